// SPDX-License-Identifier: Apache-2.0
//! The body of `POST /v1/heartbeat/{node}`.

use serde::{Deserialize, Serialize};

/// A sign of life.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Where the agent listens for commands.
    pub callback_url: String,
    /// The token it was given.
    pub agent_token: String,
    /// Its version.
    pub agent_version: String,
    /// The certificate it presents, as PEM, if it made one for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_verify_ca: Option<String>,
}

impl std::fmt::Debug for Heartbeat {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heartbeat")
            .field("callback_url", &self.callback_url)
            .field("agent_version", &self.agent_version)
            .finish_non_exhaustive()
    }
}
