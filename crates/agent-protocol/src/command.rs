// SPDX-License-Identifier: Apache-2.0
//! Commands to an agent, and what it says about them: `POST` and `GET /v1/commands/`.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// What an agent is told to do.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The extension and the command in it: `deploy.execute_deploy_step`.
    pub name: String,
    /// What the command needs to know.
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// Without the parameters: there are config drives and passwords among them.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What became of a command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommandReport {
    /// The agent's name for this one.
    #[serde(deserialize_with = "short")]
    pub id: String,
    /// The command, without its extension: `execute_deploy_step`.
    pub command_name: String,
    /// How far it has come.
    pub command_status: CommandStatus,
    /// Why it failed.
    #[serde(default)]
    pub command_error: Option<CommandError>,
    /// What came of it.
    #[serde(default)]
    pub command_result: Option<Value>,
}

/// Longer than any name of a command. It is kept with the node.
const MAX_ID: usize = 255;

fn short<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.len() > MAX_ID {
        return Err(D::Error::custom("the id of a command is too long to be one"));
    }
    Ok(text)
}

/// How far a command has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CommandStatus {
    /// It runs.
    #[serde(rename = "RUNNING")]
    Running,
    /// It ended well.
    #[serde(rename = "SUCCEEDED")]
    Succeeded,
    /// It ended badly.
    #[serde(rename = "FAILED")]
    Failed,
    /// The agent's hardware managers are others than those whose step was asked for: the steps are
    /// to be listed again.
    #[serde(rename = "CLEAN_VERSION_MISMATCH", alias = "VERSION_MISMATCH")]
    VersionMismatch,
}

/// Why a command failed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CommandError {
    /// The kind of error, by the name it has in ironic-python-agent.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// An HTTP status that says whose fault it is.
    #[serde(default)]
    pub code: Option<u16>,
    /// In short.
    #[serde(default)]
    pub message: Option<String>,
    /// At length.
    #[serde(default)]
    pub details: Option<String>,
}

impl CommandError {
    /// What is worth telling: the details, which repeat the message, where there are any.
    #[must_use]
    pub fn text(&self) -> &str {
        let details = self.details.as_deref().filter(|text| !text.is_empty());
        details.or(self.message.as_deref()).unwrap_or(&self.kind)
    }
}

/// The answer to `GET /v1/commands/`: everything the agent was told since it started, oldest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommandList {
    /// The commands.
    pub commands: Vec<CommandReport>,
}

/// The body of an agent's error answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// `Client` or `Server`: whose fault it is.
    pub faultcode: String,
    /// What is wrong.
    pub faultstring: String,
}

impl Fault {
    /// Whether the agent refused because it is busy with something else.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.faultstring.to_ascii_lowercase().contains("agent is busy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_a_real_agent_are_read() {
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
        .expect("this is what agents send");
        let error = list.commands[1].command_error.as_ref().expect("it failed");
        assert_eq!(error.text(), "Clean step failed: no disks");
        assert_eq!(list.commands[2].command_status, CommandStatus::VersionMismatch);
    }
}
