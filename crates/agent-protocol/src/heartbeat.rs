// SPDX-License-Identifier: Apache-2.0
//! The body of `POST /v1/heartbeat/{node}`.

use serde::{Deserialize, Serialize};

/// A heartbeat of an agent, or a status report of an installer.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The URL of the agent's command API; empty for installers, which have none.
    pub callback_url: String,
    /// The token that authenticates the agent.
    pub agent_token: String,
    /// The version of the agent. Installers do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The certificate of the command API (PEM), if it is self-signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_verify_ca: Option<String>,
    /// `start`, `end` or `error`, from installers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_status: Option<String>,
    /// The message for the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_status_message: Option<String>,
}

impl std::fmt::Debug for Heartbeat {
    /// Omits the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heartbeat")
            .field("callback_url", &self.callback_url)
            .field("agent_version", &self.agent_version)
            .field("agent_status", &self.agent_status)
            .finish_non_exhaustive()
    }
}
