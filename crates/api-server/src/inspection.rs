// SPDX-License-Identifier: Apache-2.0
//! The inspection ramdisk sends what it found. Open to everybody; the data are only taken for a
//! node that waits for them.

use ::inspection::Report;
use ::inspection::lookup::{bmc_addresses, candidate_macs};
use conductor::AgentConfig;
use http::Method;
use ironic_wire::{InspectionData, WireError, as_uuid, inspected_body, parse_object};
use node_model::{Node, NodeId};
use serde_json::Value;

use crate::agent::agent_body;
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, BodyLimit, Route};

/// From this version on the node may be named, and the answer is that of `lookup`.
const SINCE: u16 = 84;

pub(crate) const ROUTES: &[Route] = &[Route::new(
    Method::POST,
    "/v1/continue_inspection",
    "Take inspection data from a ramdisk",
    handler!(continue_inspection),
)
.access(Access::Public)
.body_limit(BodyLimit::Inspection)
.query(&["node_uuid"])];

async fn continue_inspection(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["node_uuid"])?;
    let named = match call.query_value("node_uuid").filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(NodeId(
            as_uuid(text)
                .ok_or_else(|| WireError::invalid_field("node_uuid", "expected a UUID"))?,
        )),
    };
    let body = Value::Object(parse_object(&call.body, "inspection data")?);
    let report = Report::from_value(body).map_err(|error| WireError::invalid(error.to_string()))?;
    // 1.1 is what a request without a version header gets, and that is what ramdisks send.
    let renewed = call.version.has(SINCE);
    if !InspectionData::accepted_at(call.version) || (named.is_some() && !renewed) {
        let problem = format!("Sending inspection data needs API version 1.{SINCE} or newer.");
        return Err(WireError::new(404, problem).into());
    }
    if named.is_none() && candidate_macs(&report).is_empty() && bmc_addresses(&report).is_empty() {
        let problem = "The inspection data have no MAC or BMC address to find a node by";
        return Err(WireError::invalid(problem).into());
    }
    let conductor = &call.app.conductor;
    let taken = conductor.continue_inspection(report, named, call.request_id.to_string()).await?;
    let Some(taken) = taken else {
        return Err(WireError::new(404, "No node waits for these inspection data.").into());
    };
    let json =
        if renewed { whole_answer(&call, taken.node).await? } else { inspected_body(taken.node) };
    Ok(Reply::json(http::StatusCode::ACCEPTED, json))
}

/// The answer of a lookup, without a new token: a ramdisk that stays up looks itself up, and one
/// that does not must not leave a token behind that the next agent would be refused with.
async fn whole_answer(call: &Call, id: NodeId) -> Result<Vec<u8>, Refusal> {
    let node: Option<Node> =
        call.app.store.read(move |reader| Ok::<_, Refusal>(reader.get(id)?)).await?;
    let Some(node) = node else {
        return Err(WireError::not_found("Node", &id.to_string()).into());
    };
    let heartbeat_timeout = call.app.conductor.settings().ramdisk_heartbeat_timeout;
    let config = AgentConfig { node, token: None, heartbeat_timeout, skip_bmc_detect: false };
    Ok(agent_body(config, call.version, &call.base_url)?)
}
