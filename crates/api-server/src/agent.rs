// SPDX-License-Identifier: Apache-2.0
//! The ramdisk agent calls home: `lookup` tells it which node it runs on, `heartbeat` tells us that
//! it is there. Both are open to everybody; the token that the first lookup hands out is what is
//! trusted.

use std::sync::LazyLock;

use conductor::{AgentConfig, Heartbeat, Lookup};
use http::Method;
use ironic_wire::{
    ApiVersion, Context, Heartbeat as Beat, JsonWriter, Lookup as Question, Selection, WireError,
};
use node_model::{MASK, Node, NodeId};

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, Route};

const SINCE: u16 = 22;

/// What an agent may know about its node.
const SHOWN: [&str; 5] = ["uuid", "properties", "instance_info", "driver_internal_info", "links"];

/// What every agent is told, after what differs from node to node. Agents read all of these; they
/// are Ironic's defaults, because nothing here depends on them.
static SAME_FOR_ALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let block = serde_json::json!({
        "agent_token_required": true,
        "agent_md5_checksum_enable": true,
        "disable_deep_image_inspection": false,
        "permitted_image_formats": ["raw", "gpt", "qcow2", "iso"],
        "enable_bios_bootloader_install": false,
        "tls_min_version": "1.3",
        "tls_cipher_suites": null,
        "metrics": {
            "backend": "noop",
            "prepend_host": false,
            "prepend_uuid": false,
            "prepend_host_reverse": true,
            "global_prefix": null,
        },
        "metrics_statsd": {"statsd_host": "localhost", "statsd_port": 8125},
        "agent_containers": {
            "allow_arbitrary_containers": false,
            "allowed_containers": [],
            "container_steps_file": "/etc/ironic-python-agent.d/mysteps.yaml",
            "runner": "podman",
            "pull_options": [],
            "run_options": ["--rm", "--network=host"],
        },
    });
    block.to_string().into_bytes()
});

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/lookup", "Tell an agent which node it runs on", handler!(lookup))
        .since(SINCE)
        .access(Access::Public)
        .query(&["addresses", "node_uuid"]),
    Route::new(
        Method::POST,
        "/v1/heartbeat/{node}",
        "Take a sign of life from an agent",
        handler!(heartbeat),
    )
    .since(SINCE)
    .access(Access::Public),
];

/// What an agent is told about itself: `{"node": …, "config": …}`. Anybody can ask, so the steps of
/// the job on the node are left out: their arguments are no business of anybody's, and an agent is
/// sent each step when its turn comes.
pub(crate) fn agent_body(
    mut config: AgentConfig,
    version: ApiVersion,
    base_url: &str,
) -> Result<Vec<u8>, WireError> {
    config.node.work = None;
    let context = Context::new(version, base_url);
    let mut body = JsonWriter::with_capacity(2048);
    body.begin_object();
    body.key("node");
    Selection::<Node>::named(&SHOWN, version)?.write(&mut body, &config.node, &context);
    body.key("config");
    body.begin_object();
    body.key("heartbeat_timeout");
    body.integer(i64::try_from(config.heartbeat_timeout).unwrap_or(i64::MAX));
    body.key("agent_token");
    match &config.token {
        Some(token) => body.string(token.reveal()),
        // There is one already, and whoever has it does not need to be told.
        None => body.optional_string(config.node.agent.has_token.then_some(MASK)),
    }
    body.key("agent_skip_bmc_detect");
    body.boolean(config.skip_bmc_detect);
    let mut bytes = body.into_bytes();
    bytes.push(b',');
    bytes.extend_from_slice(&SAME_FOR_ALL[1..]);
    bytes.push(b'}');
    Ok(bytes)
}

async fn lookup(call: Call) -> Result<Reply, Refusal> {
    let question = Question::parse(&call.query)?;
    let found = call
        .app
        .conductor
        .lookup(Lookup {
            node: question.node_uuid.map(NodeId),
            macs: question.addresses,
            request_id: call.request_id.to_string(),
        })
        .await?;
    match found {
        Some(config) => Ok(Reply::ok(agent_body(config, call.version, &call.base_url)?)),
        // Whether there is no such node or only no job on it is nobody's business.
        None => Err(WireError::new(404, "No node waits for this agent.").into()),
    }
}

async fn heartbeat(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let beat = Beat::parse(&call.body, call.version)?;
    let Some(token) = beat.agent_token else {
        return Err(WireError::missing("agent_token").into());
    };
    let id = node_id(&call).await?;
    call.app
        .conductor
        .heartbeat(
            id,
            Heartbeat {
                callback_url: beat.callback_url,
                token,
                version: beat.agent_version,
                verify_ca: beat.agent_verify_ca,
                status: beat.agent_status,
                status_message: beat.agent_status_message,
                request_id: call.request_id.to_string(),
            },
        )
        .await?;
    Ok(Reply::accepted())
}

/// The node of a heartbeat. Agents give its UUID, and then the conductor finds out whether there is
/// one: this is the most frequent request, so the node is not read twice.
pub(crate) async fn node_id(call: &Call) -> Result<NodeId, Refusal> {
    if let Some(uuid) = ironic_wire::as_uuid(call.param("node")) {
        return Ok(NodeId(uuid));
    }
    let ident = Ident::of_path(call, "node");
    let node: Node = call.app.store.read(move |reader| ident.find(reader)).await?;
    Ok(node.id)
}
