// SPDX-License-Identifier: Apache-2.0
//! Commands that take long: started once, and followed to their end.
//!
//! We may be interrupted between sending a command and writing down that it was sent. So before one
//! is sent, the agent is asked what it was told already: a command of the same name that is not the
//! last one we saw end is the one that we sent and forgot.

use std::time::Duration;

use agent_protocol::{Command, CommandReport, CommandStatus};
use node_model::{PowerState, PowerTarget};
use serde_json::Value;

use super::line::{AgentLine, Sent};
use super::ready::start;
use crate::{Error, NodeChanges, Outcome, RamdiskMode, Target};

/// The note with the command that is being followed.
const FOLLOWED: &str = "agent_command";
/// The key of `driver_internal_info` with the last command that was seen to end.
const ENDED: &str = "agent_last_command";
/// How long after the last look the agent is asked, if it does not call before.
const LOOK: Duration = Duration::from_secs(20);
/// How long to wait for an agent that is busy with something else.
const BUSY: Duration = Duration::from_secs(5);

/// How far a command has come.
pub(super) enum Followed {
    /// Not to its end: this is the answer for now.
    NotYet(Outcome),
    /// To its end.
    Ended(Box<CommandReport>, NodeChanges),
}

impl AgentLine {
    /// Has the agent carry out `command`, whose name in reports is `name`; call again until it has
    /// ended. If there is no agent, one is waited for.
    pub(super) async fn follow(
        &self,
        target: &Target<'_>,
        command: &Command,
    ) -> Result<Followed, Error> {
        if target.node.agent.url.is_none() {
            return wait_for_agent(target).await.map(Followed::NotYet);
        }
        let known = match self.commands(target).await {
            Ok(known) => known,
            Err(error) => return Err(explain_silence(target, error).await),
        };
        let report = match self.find(target, command, known)? {
            Some(report) => report,
            None => match self.send(target, command, false).await? {
                Sent::Report(report) => *report,
                Sent::Busy(_) => {
                    let moment = target.now.plus(BUSY);
                    let changes = NodeChanges::none();
                    return Ok(Followed::NotYet(Outcome::AgentWorks { moment, changes }));
                }
            },
        };
        Ok(match report.command_status {
            CommandStatus::Running => {
                let moment = target.now.plus(LOOK);
                let changes = NodeChanges::note(target.notes, FOLLOWED, report.id);
                Followed::NotYet(Outcome::AgentWorks { moment, changes })
            }
            CommandStatus::Succeeded | CommandStatus::Failed | CommandStatus::VersionMismatch => {
                let mut notes = target.notes.clone();
                notes.edit(|notes| drop(notes.remove(FOLLOWED)));
                let ended = NodeChanges::remember(ENDED, report.id.clone());
                let changes = NodeChanges { notes: Some(notes), ..ended };
                Followed::Ended(Box::new(report), changes)
            }
        })
    }

    /// The command among those the agent knows.
    fn find(
        &self,
        target: &Target<'_>,
        command: &Command,
        mut known: Vec<CommandReport>,
    ) -> Result<Option<CommandReport>, Error> {
        if let Some(followed) = target.notes.get_str(FOLLOWED) {
            let place = known.iter().position(|report| report.id == followed);
            return match place {
                Some(place) => Ok(Some(known.swap_remove(place))),
                None => Err(Error::failed(
                    format!("have the agent carry out {}", command.name),
                    "the agent knows nothing of it any more: it was started again in the middle of \
                     it; look at the machine's console, and try the whole again",
                )),
            };
        }
        let name = command.name.rsplit('.').next().unwrap_or(&command.name);
        let last = known.into_iter().rev().find(|report| report.command_name == name);
        let seen_to_end = target.node.driver_internal_info.get_str(ENDED);
        Ok(last.filter(|report| Some(report.id.as_str()) != seen_to_end.as_deref()))
    }
}

/// The answer while there is no agent: the machine is on its way to one. If it is not even on, it
/// is switched on.
pub(super) async fn wait_for_agent(target: &Target<'_>) -> Result<Outcome, Error> {
    let seen = target.driver.power().get(target).await?;
    let changes =
        if seen == Some(PowerState::Off) { start(target).await? } else { NodeChanges::none() };
    Ok(target.wait_for_agent(changes))
}

/// A machine that is off explains why its agent is silent, and then there is nothing to wait for.
async fn explain_silence(target: &Target<'_>, error: Error) -> Error {
    if error.silent().is_none() {
        return error;
    }
    match target.driver.power().get(target).await {
        Ok(Some(PowerState::Off)) => Error::failed(
            "reach the agent",
            "the machine is off: its power was cut, or it switched itself off, in the middle of \
             the work; see what did that, and try the whole again",
        ),
        // What the BMC says, if anything, does not explain it.
        Ok(_) | Err(_) => error,
    }
}

/// Restarts the machine, which comes back with the same ramdisk: it was made to boot that once, and
/// has.
pub(super) async fn reboot(target: &Target<'_>) -> Result<NodeChanges, Error> {
    let prepared = target.driver.boot().prepare_ramdisk(target, RamdiskMode::Deploy).await?;
    let restarted = target.driver.power().set(target, PowerTarget::Reboot, None).await?;
    Ok(NodeChanges { agent_is_gone: true, ..prepared.and(restarted) })
}

/// What an agent says about a command that failed.
pub(super) fn why(report: &CommandReport) -> String {
    let told = report.command_error.as_ref().map(|error| error.text().to_owned());
    told.or_else(|| report.command_result.as_ref().and_then(Value::as_str).map(str::to_owned))
        .unwrap_or_else(|| "it did not say why".to_owned())
}
