// SPDX-License-Identifier: Apache-2.0
//! The commands since the agent started, and their results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_protocol::{AgentCommandError, CommandReport, CommandStatus};
use serde_json::Value;
use tokio::sync::watch;

/// The result of a command.
pub type CommandResult = Result<Value, CommandFailure>;

/// A failed command.
#[derive(Clone, PartialEq, Debug)]
pub enum CommandFailure {
    /// The hardware managers changed since the step was listed.
    VersionMismatch(AgentCommandError),
    /// Any other error.
    Error(AgentCommandError),
}

impl CommandFailure {
    /// Returns the error text.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::VersionMismatch(error) | Self::Error(error) => error.text(),
        }
    }
}

/// All commands, oldest first.
pub struct CommandLog {
    commands: Mutex<Vec<CommandReport>>,
    changes: watch::Sender<u64>,
    async_command_ended: AtomicBool,
}

impl Default for CommandLog {
    fn default() -> Self {
        Self {
            commands: Mutex::default(),
            changes: watch::channel(0).0,
            async_command_ended: AtomicBool::new(false),
        }
    }
}

impl CommandLog {
    /// Adds a running command and returns its id.
    ///
    /// # Errors
    /// The name of the running command, if there is one.
    pub fn begin(&self, name: &str) -> Result<String, String> {
        let mut commands = self.commands();
        if let Some(last) =
            commands.last().filter(|last| last.command_status == CommandStatus::Running)
        {
            return Err(last.command_name.clone());
        }
        let id = uuid::Uuid::new_v4().to_string();
        commands.push(CommandReport {
            id: id.clone(),
            command_name: name.to_owned(),
            command_status: CommandStatus::Running,
            command_error: None,
            command_result: None,
        });
        Ok(id)
    }

    /// Removes a command that was rejected.
    pub fn remove(&self, id: &str) {
        self.commands().retain(|command| command.id != id);
    }

    /// Records the result of a command.
    pub fn end(&self, id: &str, outcome: CommandResult) {
        if let Some(command) = self.commands().iter_mut().find(|command| command.id == id) {
            match outcome {
                Ok(result) => {
                    command.command_status = CommandStatus::Succeeded;
                    command.command_result = Some(result);
                }
                Err(CommandFailure::VersionMismatch(error)) => {
                    command.command_status = CommandStatus::VersionMismatch;
                    command.command_error = Some(error);
                }
                Err(CommandFailure::Error(error)) => {
                    command.command_status = CommandStatus::Failed;
                    command.command_error = Some(error);
                }
            }
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Returns the report of a command.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<CommandReport> {
        self.commands().iter().find(|command| command.id == id).cloned()
    }

    /// Returns all reports.
    #[must_use]
    pub fn all(&self) -> Vec<CommandReport> {
        self.commands().clone()
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn count(&self) -> usize {
        self.commands().len()
    }

    /// Waits for the end of a command. Returns `None` if the id is unknown.
    pub async fn wait_for_end(&self, id: &str) -> Option<CommandReport> {
        let mut changes = self.changes.subscribe();
        loop {
            let command = self.get(id)?;
            if command.command_status != CommandStatus::Running {
                return Some(command);
            }
            changes.changed().await.ok()?;
        }
    }

    /// Records that an asynchronous command ended, which the server does not know yet.
    pub fn mark_async_end(&self) {
        self.async_command_ended.store(true, Ordering::Relaxed);
    }

    /// Whether an asynchronous command ended since the last call.
    #[must_use]
    pub fn take_async_end(&self) -> bool {
        self.async_command_ended.swap(false, Ordering::Relaxed)
    }

    fn commands(&self) -> MutexGuard<'_, Vec<CommandReport>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn rejects_second_running_command() {
        let journal = CommandLog::default();
        let id = journal.begin("execute_clean_step").unwrap();
        assert_eq!(journal.begin("sync"), Err("execute_clean_step".to_owned()));
        let (report, ()) = tokio::join!(journal.wait_for_end(&id), async {
            journal.end(&id, Ok(json!({"a": 1})));
        });
        assert_eq!(report.unwrap().command_result, Some(json!({"a": 1})));
        assert!(journal.begin("sync").is_ok());
        assert_eq!(journal.count(), 2);
        assert!(journal.wait_for_end("none").await.is_none());
    }
}
