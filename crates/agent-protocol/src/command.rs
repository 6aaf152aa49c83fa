// SPDX-License-Identifier: Apache-2.0
//! The agent's commands and their reports: `POST` and `GET /v1/commands/`.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// A command for an agent.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentCommand {
    /// The extension and the command in it, such as `deploy.execute_deploy_step`.
    pub name: String,
    /// The arguments of the command.
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// Omits the parameters, which may contain config drives and passwords.
impl fmt::Debug for AgentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCommand").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The status and result of a command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommandReport {
    /// The id the agent assigned to the command.
    #[serde(deserialize_with = "deserialize_short_id")]
    pub id: String,
    /// The command without its extension, such as `execute_deploy_step`.
    pub command_name: String,
    /// The current status.
    pub command_status: CommandStatus,
    /// The error, if the command failed.
    #[serde(default)]
    pub command_error: Option<AgentCommandError>,
    /// The result, if the command succeeded.
    #[serde(default)]
    pub command_result: Option<Value>,
}

/// Command ids are UUIDs or counters. The id is stored with the node, so its length is limited.
const MAX_COMMAND_ID_BYTES: usize = 255;

fn deserialize_short_id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.len() > MAX_COMMAND_ID_BYTES {
        return Err(D::Error::custom("command id is longer than 255 bytes"));
    }
    Ok(text)
}

/// The status of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CommandStatus {
    /// Still running.
    #[serde(rename = "RUNNING")]
    Running,
    /// Finished successfully.
    #[serde(rename = "SUCCEEDED")]
    Succeeded,
    /// Finished with an error.
    #[serde(rename = "FAILED")]
    Failed,
    /// The agent's hardware managers differ from those that offered the step. The steps have to be
    /// listed again.
    #[serde(rename = "CLEAN_VERSION_MISMATCH", alias = "VERSION_MISMATCH")]
    VersionMismatch,
}

/// The error of a failed command.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AgentCommandError {
    /// The error type as named in ironic-python-agent, such as `CleaningError`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The HTTP status that corresponds to the error.
    #[serde(default)]
    pub code: Option<u16>,
    /// The short error text.
    #[serde(default)]
    pub message: Option<String>,
    /// The long error text, which usually repeats the message.
    #[serde(default)]
    pub details: Option<String>,
}

impl AgentCommandError {
    /// Returns the most detailed text available: details, message, or type.
    #[must_use]
    pub fn text(&self) -> &str {
        let details = self.details.as_deref().filter(|text| !text.is_empty());
        details.or(self.message.as_deref()).unwrap_or(&self.kind)
    }
}

/// The response to `GET /v1/commands/`: all commands since the agent started, oldest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommandList {
    /// The reports.
    pub commands: Vec<CommandReport>,
}

/// The body of an HTTP error response of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentFault {
    /// `Client` or `Server`: which side caused the error.
    pub faultcode: String,
    /// The error text.
    pub faultstring: String,
}

impl AgentFault {
    /// Whether the agent rejected the command because another one is running.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.faultstring.to_ascii_lowercase().contains("agent is busy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_command_reports_of_ironic_python_agent() {
        let list: CommandList = serde_json::from_str(
            r#"{"commands": [
                {"id": "1", "command_name": "get_clean_steps", "command_status": "SUCCEEDED",
                 "command_error": null, "command_result": {"clean_steps": {}}},
                {"id": "2", "command_name": "execute_clean_step", "command_status": "FAILED",
                 "command_error": {"type": "CleaningError", "code": 500, "message": "Clean step failed",
                 "details": "Clean step failed: no disks"}, "command_result": null},
                {"id": "3", "command_name": "execute_clean_step",
                 "command_status": "CLEAN_VERSION_MISMATCH", "command_params": {"step": {}}}
            ]}"#,
        )
        .expect("valid command list");
        let error = list.commands[1].command_error.as_ref().expect("command error");
        assert_eq!(error.text(), "Clean step failed: no disks");
        assert_eq!(list.commands[2].command_status, CommandStatus::VersionMismatch);
    }
}
