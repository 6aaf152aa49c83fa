// SPDX-License-Identifier: Apache-2.0
//! Long-running agent commands: sent once, polled until they end.
//!
//! The process may stop between sending a command and recording it. So before a command is sent, the
//! agent's command list is queried: a command of the same name after the last known one was sent but
//! not recorded.

use std::future::Future;
use std::time::Duration;

use agent_protocol::{AgentCommand, CommandReport, CommandStatus};
use drivers::ramdisk_boot::start_machine;
use drivers::{DriverError, DriverTarget, NodeChanges, StepOutcome};
use node_model::{PowerState, Timestamp};
use serde_json::Value;

use super::agent_client::{AgentClient, AgentCommandReply};

/// Driver state: ID of the running command.
const COMMAND_KEY: &str = "agent_command";
/// The `driver_internal_info` key with the last command that precedes the job's next one: the last that
/// ended, or the last that the agent had when the job started.
const LAST_COMMAND_KEY: &str = "agent_last_command";
/// Driver state: time since the agent is busy with another command.
const BUSY_SINCE_KEY: &str = "agent_busy_since";
/// Interval of polls if the agent sends no heartbeat before.
const POLL_INTERVAL: Duration = Duration::from_secs(20);
/// Retry interval while the agent runs another command, and the timeout of that.
const BUSY_RETRY_INTERVAL: Duration = Duration::from_secs(5);
const BUSY_TIMEOUT: Duration = Duration::from_secs(1800);

/// The progress of a command.
pub(super) enum CommandProgress {
    /// It has not ended; the outcome of this call.
    Pending(StepOutcome),
    /// It has ended.
    Ended(Box<CommandReport>, NodeChanges),
}

impl AgentClient {
    /// Runs the command `name`; repeat the call until it has ended. `command` is evaluated only if the
    /// command was not sent yet. Without an agent, waits for one.
    pub(super) async fn follow(
        &self,
        target: &DriverTarget<'_>,
        name: &str,
        command: impl Future<Output = Result<AgentCommand, DriverError>> + Send,
    ) -> Result<CommandProgress, DriverError> {
        if target.node.agent.url.is_none() {
            return wait_for_agent(target).await.map(CommandProgress::Pending);
        }
        let sent = match target.driver_state.get_str(COMMAND_KEY) {
            Some(id) => self.recorded_command(target, name, &id).await.map(Some),
            None => self.unrecorded_command(target, name).await,
        };
        let report = match sent {
            Ok(Some(report)) => report,
            Ok(None) => match self.send(target, &command.await?, false).await? {
                AgentCommandReply::Report(report) => *report,
                AgentCommandReply::Busy(why) => {
                    return wait_while_busy(target, name, &why).map(CommandProgress::Pending);
                }
            },
            Err(error) => return Err(explain_unreachable(target, error).await),
        };
        let idle = NodeChanges::driver_state_key(BUSY_SINCE_KEY, Value::Null);
        Ok(match report.command_status {
            CommandStatus::Running => {
                let poll_at = target.now.plus(POLL_INTERVAL);
                let changes = idle.and(NodeChanges::driver_state_key(COMMAND_KEY, report.id));
                CommandProgress::Pending(StepOutcome::poll_agent_at(poll_at, changes))
            }
            CommandStatus::Succeeded | CommandStatus::Failed | CommandStatus::VersionMismatch => {
                let changes = idle
                    .and(NodeChanges::driver_state_key(COMMAND_KEY, Value::Null))
                    .and(NodeChanges::internal_info(LAST_COMMAND_KEY, report.id.clone()));
                CommandProgress::Ended(Box::new(report), changes)
            }
        })
    }

    /// Returns the changes that record the agent if it responds and runs no command; otherwise `None`.
    pub(super) async fn check_idle(&self, target: &DriverTarget<'_>) -> Option<NodeChanges> {
        target.node.agent.url.as_ref()?;
        let known = self.commands(target).await.ok()?;
        if known.iter().any(|report| report.command_status == CommandStatus::Running) {
            return None;
        }
        let last = known.last();
        Some(last.map_or_else(NodeChanges::none, |last| {
            NodeChanges::internal_info(LAST_COMMAND_KEY, last.id.clone())
        }))
    }

    /// The report of the recorded command.
    async fn recorded_command(
        &self,
        target: &DriverTarget<'_>,
        name: &str,
        id: &str,
    ) -> Result<CommandReport, DriverError> {
        self.command(target, id).await?.ok_or_else(|| {
            DriverError::failed(
                format!("have the agent carry out {name}"),
                "the agent does not know the command any more, because the machine was restarted \
                 during it; check the machine's console and retry the job",
            )
        })
    }

    /// The command's report if it was sent but not recorded.
    async fn unrecorded_command(
        &self,
        target: &DriverTarget<'_>,
        name: &str,
    ) -> Result<Option<CommandReport>, DriverError> {
        let known = self.commands(target).await?;
        let last_known = target.node.driver_internal_info.get_str(LAST_COMMAND_KEY);
        let new =
            known.into_iter().rev().take_while(|report| Some(&report.id) != last_known.as_ref());
        // Reports have the command's name without its extension.
        let name = name.rsplit('.').next().unwrap_or(name);
        Ok(new.into_iter().find(|report| report.command_name == name))
    }
}

/// The outcome while the agent runs another command.
fn wait_while_busy(
    target: &DriverTarget<'_>,
    name: &str,
    why: &str,
) -> Result<StepOutcome, DriverError> {
    let since = target.driver_state.get(BUSY_SINCE_KEY).and_then(|since| since.as_i64());
    let since = since.map_or(target.now, Timestamp);
    if target.now.since(since) >= BUSY_TIMEOUT {
        return Err(DriverError::failed(
            format!("have the agent carry out {name}"),
            format!(
                "it has been busy with another command for {} minutes: {why}; check the machine's \
                 console and retry the job",
                BUSY_TIMEOUT.as_secs() / 60
            ),
        ));
    }
    let changes = NodeChanges::driver_state_key(BUSY_SINCE_KEY, since.0);
    Ok(StepOutcome::poll_agent_at(target.now.plus(BUSY_RETRY_INTERVAL), changes))
}

/// The outcome while there is no agent. Powers the machine on if it is off.
pub(super) async fn wait_for_agent(target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
    let power = target.driver.power().get(target).await?;
    let mut changes = NodeChanges::none();
    if power == Some(PowerState::Off) {
        changes = start_machine(target, changes).await?;
    }
    Ok(target.wait_for_agent(changes))
}

/// Replaces the error of an unreachable agent if the machine is off; then waiting is useless.
async fn explain_unreachable(target: &DriverTarget<'_>, error: DriverError) -> DriverError {
    if error.unreachable_peer().is_none() {
        return error;
    }
    match target.driver.power().get(target).await {
        Ok(Some(PowerState::Off)) => DriverError::failed(
            "reach the agent",
            "the machine is off: its power was cut, or it shut down, during the job; find the cause \
             and retry the job",
        ),
        // The power state does not explain it.
        Ok(_) | Err(_) => error,
    }
}

/// The reason an agent reports for a failed command.
pub(super) fn failure_reason(report: &CommandReport) -> String {
    let error_text = report.command_error.as_ref().map(|error| error.text().to_owned());
    error_text
        .or_else(|| report.command_result.as_ref().and_then(Value::as_str).map(str::to_owned))
        .unwrap_or_else(|| "the agent reported no reason".to_owned())
}
