// SPDX-License-Identifier: Apache-2.0
//! Everything the agent was told since it started, and what came of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_protocol::{CommandError, CommandReport, CommandStatus};
use serde_json::Value;
use tokio::sync::watch;

/// How a command ended.
pub type Outcome = Result<Value, Failed>;

/// Why a command failed.
#[derive(Clone, PartialEq, Debug)]
pub enum Failed {
    /// Others offer the step now than when it was listed.
    VersionMismatch(CommandError),
    /// Anything else.
    Error(CommandError),
}

impl Failed {
    /// What is worth telling.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::VersionMismatch(error) | Self::Error(error) => error.text(),
        }
    }
}

/// The commands, oldest first.
pub struct Journal {
    commands: Mutex<Vec<CommandReport>>,
    changes: watch::Sender<u64>,
    just_ended: AtomicBool,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            commands: Mutex::default(),
            changes: watch::channel(0).0,
            just_ended: AtomicBool::new(false),
        }
    }
}

impl Journal {
    /// Enters a command that runs from now on, and names it; or says which one still runs.
    ///
    /// # Errors
    /// If a command still runs.
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

    /// Forgets a command that turned out to be none.
    pub fn withdraw(&self, id: &str) {
        self.commands().retain(|command| command.id != id);
    }

    /// Notes how a command ended.
    pub fn end(&self, id: &str, outcome: Outcome) {
        if let Some(command) = self.commands().iter_mut().find(|command| command.id == id) {
            match outcome {
                Ok(result) => {
                    command.command_status = CommandStatus::Succeeded;
                    command.command_result = Some(result);
                }
                Err(Failed::VersionMismatch(error)) => {
                    command.command_status = CommandStatus::VersionMismatch;
                    command.command_error = Some(error);
                }
                Err(Failed::Error(error)) => {
                    command.command_status = CommandStatus::Failed;
                    command.command_error = Some(error);
                }
            }
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<CommandReport> {
        self.commands().iter().find(|command| command.id == id).cloned()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<CommandReport> {
        self.commands().clone()
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.commands().len()
    }

    /// Returns a command when it has ended.
    pub async fn ended(&self, id: &str) -> Option<CommandReport> {
        let mut changes = self.changes.subscribe();
        loop {
            let command = self.get(id)?;
            if command.command_status != CommandStatus::Running {
                return Some(command);
            }
            changes.changed().await.ok()?;
        }
    }

    /// Notes that a command ended of which the server does not know yet.
    pub fn note_ended(&self) {
        self.just_ended.store(true, Ordering::Relaxed);
    }

    /// Whether such a command ended since this was last asked.
    #[must_use]
    pub fn take_just_ended(&self) -> bool {
        self.just_ended.swap(false, Ordering::Relaxed)
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
    async fn one_command_runs_at_a_time() {
        let journal = Journal::default();
        let id = journal.begin("execute_clean_step").unwrap();
        assert_eq!(journal.begin("sync"), Err("execute_clean_step".to_owned()));
        let (report, ()) = tokio::join!(journal.ended(&id), async {
            journal.end(&id, Ok(json!({"a": 1})));
        });
        assert_eq!(report.unwrap().command_result, Some(json!({"a": 1})));
        assert!(journal.begin("sync").is_ok());
        assert_eq!(journal.count(), 2);
        assert!(journal.ended("none").await.is_none());
    }
}
