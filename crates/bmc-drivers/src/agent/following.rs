// SPDX-License-Identifier: Apache-2.0
//! Commands that take long: started once, and followed to their end.
//!
//! We may be interrupted between sending a command and writing down that it was sent. So before one
//! is sent, the agent is asked what it was told already: a command of the same name that came after
//! the last one we know of is the one that we sent and forgot.

use std::future::Future;
use std::time::Duration;

use agent_protocol::{Command, CommandReport, CommandStatus};
use node_model::{PowerState, PowerTarget, Timestamp};
use serde_json::Value;

use super::line::{AgentLine, Sent};
use super::ready::start;
use crate::{Error, NodeChanges, Outcome, RamdiskMode, Target};

/// The note with the command that is being followed.
const FOLLOWED: &str = "agent_command";
/// The key of `driver_internal_info` with the last command that is none of what is yet to come: the
/// last that was seen to end, or the last an agent had been told when the job began to use it.
const ENDED: &str = "agent_last_command";
/// The note since when the agent is busy with something else.
const BUSY_SINCE: &str = "agent_busy_since";
/// How long after the last look the agent is asked, if it does not call before.
const LOOK: Duration = Duration::from_secs(20);
/// How soon an agent that is busy with something else is asked again, and how long it may be busy.
const BUSY: Duration = Duration::from_secs(5);
const LONGEST_BUSY: Duration = Duration::from_secs(1800);

/// How far a command has come.
pub(super) enum Followed {
    /// Not to its end: this is the answer for now.
    NotYet(Outcome),
    /// To its end.
    Ended(Box<CommandReport>, NodeChanges),
}

impl AgentLine {
    /// Has the agent carry out the command `name`; call again until it has ended. What is to be sent
    /// is made by `command` only if it was not sent yet. If there is no agent, one is waited for.
    pub(super) async fn follow(
        &self,
        target: &Target<'_>,
        name: &str,
        command: impl Future<Output = Result<Command, Error>> + Send,
    ) -> Result<Followed, Error> {
        if target.node.agent.url.is_none() {
            return wait_for_agent(target).await.map(Followed::NotYet);
        }
        let sent = match target.notes.get_str(FOLLOWED) {
            Some(id) => self.followed(target, name, &id).await.map(Some),
            None => self.forgotten(target, name).await,
        };
        let report = match sent {
            Ok(Some(report)) => report,
            Ok(None) => match self.send(target, &command.await?, false).await? {
                Sent::Report(report) => *report,
                Sent::Busy(why) => return busy(target, name, &why).map(Followed::NotYet),
            },
            Err(error) => return Err(explain_silence(target, error).await),
        };
        let mut notes = target.notes.clone();
        notes.remove(BUSY_SINCE);
        Ok(match report.command_status {
            CommandStatus::Running => {
                let moment = target.now.plus(LOOK);
                let changes = NodeChanges::note(&notes, FOLLOWED, report.id);
                Followed::NotYet(Outcome::AgentWorks { moment, changes })
            }
            CommandStatus::Succeeded | CommandStatus::Failed | CommandStatus::VersionMismatch => {
                notes.remove(FOLLOWED);
                let ended = NodeChanges::remember(ENDED, report.id.clone());
                let changes = NodeChanges { notes: Some(notes), ..ended };
                Followed::Ended(Box::new(report), changes)
            }
        })
    }

    /// The agent, if it answers and has nothing to do, so that a job can begin to use it: what to
    /// remember of it.
    pub(super) async fn idle(&self, target: &Target<'_>) -> Option<NodeChanges> {
        target.node.agent.url.as_ref()?;
        let known = self.commands(target).await.ok()?;
        if known.iter().any(|report| report.command_status == CommandStatus::Running) {
            return None;
        }
        let last = known.last();
        Some(
            last.map_or_else(NodeChanges::none, |last| {
                NodeChanges::remember(ENDED, last.id.clone())
            }),
        )
    }

    /// The command that we know we sent.
    async fn followed(
        &self,
        target: &Target<'_>,
        name: &str,
        id: &str,
    ) -> Result<CommandReport, Error> {
        self.command(target, id).await?.ok_or_else(|| {
            Error::failed(
                format!("have the agent carry out {name}"),
                "the agent knows nothing of it any more: it was started again in the middle of it; \
                 look at the machine's console, and try the whole again",
            )
        })
    }

    /// The command, if we sent it and were interrupted before we wrote that down.
    async fn forgotten(
        &self,
        target: &Target<'_>,
        name: &str,
    ) -> Result<Option<CommandReport>, Error> {
        let known = self.commands(target).await?;
        let last_known = target.node.driver_internal_info.get_str(ENDED);
        let new =
            known.into_iter().rev().take_while(|report| Some(&report.id) != last_known.as_ref());
        // The command is known without its extension.
        let name = name.rsplit('.').next().unwrap_or(name);
        Ok(new.into_iter().find(|report| report.command_name == name))
    }
}

/// The answer while the agent is busy with something else.
fn busy(target: &Target<'_>, name: &str, why: &str) -> Result<Outcome, Error> {
    let since = target.notes.get(BUSY_SINCE).and_then(|since| since.as_i64());
    let since = since.map_or(target.now, Timestamp);
    if target.now.since(since) >= LONGEST_BUSY {
        return Err(Error::failed(
            format!("have the agent carry out {name}"),
            format!(
                "it has been busy with something else for {} minutes: {why}; look at the machine's \
                 console, and try the whole again",
                LONGEST_BUSY.as_secs() / 60
            ),
        ));
    }
    let changes = NodeChanges::note(target.notes, BUSY_SINCE, since.0);
    Ok(Outcome::AgentWorks { moment: target.now.plus(BUSY), changes })
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

/// Restarts the machine in the middle of a job, with the agent if a later step needs one.
pub(crate) async fn restart(target: &Target<'_>) -> Result<NodeChanges, Error> {
    let needs_agent = target.node.work.as_ref().is_some_and(|work| {
        let later = work.steps.iter().skip(work.cursor.saturating_add(1));
        !work.disable_ramdisk && later.into_iter().any(|step| step.requires_ramdisk)
    });
    if needs_agent {
        reboot(target).await
    } else {
        target.driver.power().set(target, PowerTarget::Reboot, None).await
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
