// SPDX-License-Identifier: Apache-2.0
//! The response to `GET /v1/lookup`: the node the agent runs on, and the agent's configuration.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// The response to a lookup.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LookupReply {
    /// The node the agent runs on.
    pub node: LookupNode,
    /// The configuration of the agent.
    pub config: LookupAgentConfig,
}

/// The node fields an agent needs. Each step comes with the full node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LookupNode {
    /// The UUID of the node.
    pub uuid: Uuid,
    /// The hardware properties, including root device hints.
    #[serde(default)]
    pub properties: Map<String, Value>,
    /// The data of the instance to deploy.
    #[serde(default)]
    pub instance_info: Map<String, Value>,
    /// The driver state, including the erase settings.
    #[serde(default)]
    pub driver_internal_info: Map<String, Value>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The configuration of an agent. Only `heartbeat_timeout` is mandatory.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct LookupAgentConfig {
    /// The maximum time between two heartbeats, in seconds.
    pub heartbeat_timeout: u64,
    /// The agent token, sent only in the first lookup response. Later responses contain a mask: an
    /// agent that does not have the token by then is not the one the token was issued to.
    #[serde(default)]
    pub agent_token: Option<String>,
    /// Whether heartbeats and commands require the token.
    #[serde(default)]
    pub agent_token_required: bool,
    /// Whether MD5 checksums are accepted.
    #[serde(default)]
    pub agent_md5_checksum_enable: bool,
    /// Whether images are written without verifying their actual format.
    #[serde(default)]
    pub disable_deep_image_inspection: bool,
    /// The accepted image formats.
    #[serde(default = "permitted_image_formats")]
    pub permitted_image_formats: Vec<String>,
    /// Whether to skip detection of the BMC's address.
    #[serde(default)]
    pub agent_skip_bmc_detect: bool,
    /// The minimum TLS version of the command API: `1.2` or `1.3`.
    #[serde(default)]
    pub tls_min_version: Option<String>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Omits the token and unknown fields.
impl fmt::Debug for LookupAgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupAgentConfig")
            .field("heartbeat_timeout", &self.heartbeat_timeout)
            .field("has_token", &self.agent_token.is_some())
            .finish_non_exhaustive()
    }
}

fn permitted_image_formats() -> Vec<String> {
    ["raw", "gpt", "qcow2", "iso"].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_minimal_reply() {
        let reply: LookupReply = serde_json::from_str(
            r#"{"node": {"uuid": "c2f5cbb5-a2e2-4f1f-8d0c-4f3ad1d1c5f3"}, "config": {"heartbeat_timeout": 300}}"#,
        )
        .expect("valid minimal reply");
        assert_eq!(reply.config.heartbeat_timeout, 300);
        assert_eq!(reply.config.permitted_image_formats, ["raw", "gpt", "qcow2", "iso"]);
        assert_eq!(reply.config.agent_token, None);
    }
}
