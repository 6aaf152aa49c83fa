// SPDX-License-Identifier: Apache-2.0
//! The answer to `GET /v1/lookup`: which node the agent runs on, and how it is to behave.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// What an agent is told when it asks who it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LookupReply {
    /// The node it runs on.
    pub node: LookupNode,
    /// How it is to behave.
    pub config: AgentSettings,
}

/// As much of the node as an agent needs. The whole node comes with each step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LookupNode {
    /// Its identity.
    pub uuid: Uuid,
    /// What it is made of; root device hints are in here.
    #[serde(default)]
    pub properties: Map<String, Value>,
    /// What is to be deployed on it.
    #[serde(default)]
    pub instance_info: Map<String, Value>,
    /// What drivers remember about it; how to erase disks is in here.
    #[serde(default)]
    pub driver_internal_info: Map<String, Value>,
    /// Whatever else the server said.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// How an agent is to behave. A server need only say `heartbeat_timeout`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// Seconds within which it has to call again.
    pub heartbeat_timeout: u64,
    /// Its token, told once. Masked if it was told before: then the agent has it, or is not the one
    /// that was meant.
    #[serde(default)]
    pub agent_token: Option<String>,
    /// Whether heartbeats and commands need the token.
    #[serde(default)]
    pub agent_token_required: bool,
    /// Whether MD5 checksums are good enough.
    #[serde(default)]
    pub agent_md5_checksum_enable: bool,
    /// Whether images are written without a look at what they are.
    #[serde(default)]
    pub disable_deep_image_inspection: bool,
    /// The formats images may have.
    #[serde(default = "permitted_image_formats")]
    pub permitted_image_formats: Vec<String>,
    /// Whether the BMC is known already, so that it need not be looked for.
    #[serde(default)]
    pub agent_skip_bmc_detect: bool,
    /// The oldest TLS in which it may take commands: `1.2` or `1.3`.
    #[serde(default)]
    pub tls_min_version: Option<String>,
    /// Whatever else the server said.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Without the token, and without what nobody knows.
impl fmt::Debug for AgentSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSettings")
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
    fn the_least_a_server_says_is_enough() {
        let reply: LookupReply = serde_json::from_str(
            r#"{"node": {"uuid": "c2f5cbb5-a2e2-4f1f-8d0c-4f3ad1d1c5f3"}, "config": {"heartbeat_timeout": 300}}"#,
        )
        .expect("a server need not say more");
        assert_eq!(reply.config.heartbeat_timeout, 300);
        assert_eq!(reply.config.permitted_image_formats, ["raw", "gpt", "qcow2", "iso"]);
        assert_eq!(reply.config.agent_token, None);
    }
}
