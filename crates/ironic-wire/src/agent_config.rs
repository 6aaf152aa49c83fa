// SPDX-License-Identifier: Apache-2.0
//! The response to an agent's lookup: its node and its configuration.

use node_model::{JsonObject, MASK, Node, mask_secrets};
use serde::Serialize;
use serde_json::Value;

use crate::context::RenderContext;
use crate::error::WireError;
use crate::field::FieldSelection;
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// The fields of a node that an agent gets. Lookups are not authenticated, so all others are left
/// out.
const NODE_FIELDS: [&str; 5] =
    ["uuid", "properties", "instance_info", "driver_internal_info", "links"];

/// The members that agents read before their first command; every command brings the whole node.
const PROPERTIES: [&str; 4] = ["capabilities", "cpu_arch", "root_device", "skip_block_devices"];
/// See [`PROPERTIES`].
const INSTANCE_INFO: [&str; 3] = ["capabilities", "deploy_boot_mode", "root_device"];
/// See [`PROPERTIES`]. All settings of agents start with `agent_`.
const INTERNAL_INFO: [&str; 2] = ["deploy_boot_mode", "disk_erasure_concurrency"];
const AGENT_SETTING_PREFIX: &str = "agent_";

/// The response to a lookup: `{"node": …, "config": …}`.
#[derive(Clone, Copy, Debug)]
pub struct LookupResponse<'n> {
    /// The agent's node.
    pub node: &'n Node,
    /// The agent's token, if this lookup issues it.
    pub issued_token: Option<&'n str>,
    /// Seconds within which the agent has to send a heartbeat.
    pub heartbeat_timeout: u64,
    /// Whether the agent shall not search for a BMC.
    pub skip_bmc_detect: bool,
}

impl LookupResponse<'_> {
    /// The body. It has only what an agent needs before its first command: every caller may do a lookup.
    ///
    /// # Errors
    /// Fails if a node field does not exist in `version`.
    pub fn body(&self, version: ApiVersion, base_url: &str) -> Result<Vec<u8>, WireError> {
        let mut node = Node::new(self.node.id, &self.node.driver, self.node.created_at);
        node.properties = selected(&self.node.properties, |key| PROPERTIES.contains(&key));
        node.instance_info = selected(&self.node.instance_info, |key| INSTANCE_INFO.contains(&key));
        node.driver_internal_info = selected(&self.node.driver_internal_info, |key| {
            key.starts_with(AGENT_SETTING_PREFIX) || INTERNAL_INFO.contains(&key)
        });
        let mut body = JsonWriter::with_capacity(2048);
        body.begin_object();
        body.key("node");
        let context = RenderContext::new(version, base_url);
        FieldSelection::<Node>::named(&NODE_FIELDS, version)?.write(&mut body, &node, &context);
        body.key("config");
        body.object(&self.config().to_json());
        body.end_object();
        Ok(body.into_bytes())
    }

    fn config(&self) -> LookupConfig<'_> {
        LookupConfig {
            heartbeat_timeout: self.heartbeat_timeout,
            // An issued token is never sent again.
            agent_token: self.issued_token.or(self.node.agent.has_token.then_some(MASK)),
            agent_skip_bmc_detect: self.skip_bmc_detect,
            ..LookupConfig::default()
        }
    }
}

/// The members of `object` that `is_selected`, with masked secrets.
fn selected(object: &JsonObject, is_selected: impl Fn(&str) -> bool) -> JsonObject {
    let mut members = object.parse();
    members.retain(|key, _| is_selected(key));
    mask_secrets(&JsonObject::from(members)).into_owned()
}

/// Configuration that agents read from the lookup response. Agents require all members; the values
/// that do not depend on the node are Ironic's defaults.
#[derive(Serialize)]
struct LookupConfig<'t> {
    heartbeat_timeout: u64,
    agent_token: Option<&'t str>,
    agent_token_required: bool,
    agent_skip_bmc_detect: bool,
    agent_md5_checksum_enable: bool,
    disable_deep_image_inspection: bool,
    permitted_image_formats: [&'static str; 4],
    enable_bios_bootloader_install: bool,
    tls_min_version: &'static str,
    tls_cipher_suites: Option<&'static str>,
    metrics: AgentMetricsConfig,
    metrics_statsd: AgentStatsdConfig,
    agent_containers: AgentContainerConfig,
}

#[derive(Serialize)]
struct AgentMetricsConfig {
    backend: &'static str,
    prepend_host: bool,
    prepend_uuid: bool,
    prepend_host_reverse: bool,
    global_prefix: Option<&'static str>,
}

#[derive(Serialize)]
struct AgentStatsdConfig {
    statsd_host: &'static str,
    statsd_port: u16,
}

#[derive(Serialize)]
struct AgentContainerConfig {
    allow_arbitrary_containers: bool,
    allowed_containers: [&'static str; 0],
    container_steps_file: &'static str,
    runner: &'static str,
    pull_options: [&'static str; 0],
    run_options: [&'static str; 2],
}

impl Default for LookupConfig<'_> {
    fn default() -> Self {
        Self {
            heartbeat_timeout: 0,
            agent_token: None,
            agent_token_required: true,
            agent_skip_bmc_detect: false,
            agent_md5_checksum_enable: true,
            disable_deep_image_inspection: false,
            permitted_image_formats: ["raw", "gpt", "qcow2", "iso"],
            enable_bios_bootloader_install: false,
            tls_min_version: "1.3",
            tls_cipher_suites: None,
            metrics: AgentMetricsConfig {
                backend: "noop",
                prepend_host: false,
                prepend_uuid: false,
                prepend_host_reverse: true,
                global_prefix: None,
            },
            metrics_statsd: AgentStatsdConfig { statsd_host: "localhost", statsd_port: 8125 },
            agent_containers: AgentContainerConfig {
                allow_arbitrary_containers: false,
                allowed_containers: [],
                container_steps_file: "/etc/ironic-python-agent.d/mysteps.yaml",
                runner: "podman",
                pull_options: [],
                run_options: ["--rm", "--network=host"],
            },
        }
    }
}

impl LookupConfig<'_> {
    fn to_json(&self) -> JsonObject {
        match serde_json::to_value(self) {
            Ok(Value::Object(members)) => JsonObject::from(members),
            Ok(_) | Err(_) => JsonObject::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn config_has_all_members_that_agents_require() {
        let config = LookupConfig { heartbeat_timeout: 300, ..LookupConfig::default() };
        assert_eq!(
            serde_json::to_value(&config).unwrap(),
            json!({
                "heartbeat_timeout": 300,
                "agent_token": null,
                "agent_token_required": true,
                "agent_skip_bmc_detect": false,
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
            })
        );
    }
}
