// SPDX-License-Identifier: Apache-2.0
//! What a BMC does in its own time, and how a step waits for it: look once, remember how far things
//! have come, and look again later. Nothing here sleeps.

use std::time::Duration;

use redfish::{Answer, TaskState};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bmc::Bmc;
use super::settings::RedfishSettings;
use crate::{Error, NodeChanges, Outcome, Target};

/// The note of what a step is doing, in words for whoever looks at the machine.
const PROGRESS: &str = "progress";
/// The note of when the BMC was first too busy to take a change.
const BUSY: &str = "redfish_busy_since";
/// How long a BMC may be too busy: longer than the longest self-test of a machine.
const LONGEST_BUSY: Duration = Duration::from_secs(1200);

/// How many tasks are looked at, from the first and from the last.
const MOST_LOOKED_AT: usize = 4;

/// What one look at a task shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// It goes on.
    Working(Work),
    /// It ended well.
    Done,
    /// The BMC no longer knows it, which mostly means that it ended well.
    Gone,
    /// It ended badly, and this is what the BMC says.
    Failed(String),
    /// The BMC did not say, for this reason.
    Silent(String),
}

/// How far a task that goes on has come, as far as the BMC tells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Work {
    /// How much of it is done.
    pub(super) percent: Option<u8>,
    /// What the BMC calls its state.
    pub(super) word: Option<String>,
}

/// Looks at a task. A BMC that does not answer, or answers nonsense, is no failure of the task: it
/// may be restarting.
pub(super) async fn look(bmc: &Bmc, task: &str) -> Look {
    match bmc.client().task(task).await {
        Err(error) => Look::Silent(error.to_string()),
        Ok(task) => match task.state {
            TaskState::Running => Look::Working(Work { percent: task.percent, word: task.word }),
            TaskState::Done if task.gone => Look::Gone,
            TaskState::Done => Look::Done,
            TaskState::Failed if task.messages.is_empty() => {
                Look::Failed("the BMC does not say why".to_owned())
            }
            TaskState::Failed => Look::Failed(task.messages.join("; ")),
        },
    }
}

/// The path of a task that has not ended, if the BMC has one. It may be one we asked for and died
/// before we remembered it; BMCs keep many that have ended, so only some are looked at.
pub(super) async fn unfinished(bmc: &Bmc) -> Option<String> {
    let root = bmc.client().root().await.ok()?;
    let service = bmc.follow(&root, "/Tasks").await.ok()??;
    let all = bmc.client().members(service.link("/Tasks")?).await.ok()?;
    // The newest is at one of the ends.
    let ends = all.iter().rev().take(MOST_LOOKED_AT).chain(all.iter().take(MOST_LOOKED_AT));
    let mut seen: Vec<&String> = Vec::new();
    for path in ends {
        if seen.contains(&path) {
            continue;
        }
        seen.push(path);
        if matches!(look(bmc, path).await, Look::Working(_)) {
            return Some(path.clone());
        }
    }
    None
}

/// The path of the task that does what was asked, if it is not done yet.
pub(super) fn task_of(answer: &Answer) -> Option<String> {
    answer.task().map(str::to_owned)
}

/// What a step remembered under `key` when it was last told to wait.
pub(super) fn recall<T: DeserializeOwned>(target: &Target<'_>, key: &str) -> Option<T> {
    serde_json::from_value(target.notes.get(key)?).ok()
}

/// The answer of a step that looks again after a while, remembering `progress` until then.
pub(super) fn look_again(
    target: &Target<'_>,
    settings: &RedfishSettings,
    key: &str,
    progress: &impl Serialize,
) -> Outcome {
    wait(target, Duration::from_secs(settings.poll_interval), key, progress)
}

/// The answer of a step that goes on at once, when `progress` is safely written down.
pub(super) fn go_on(target: &Target<'_>, key: &str, progress: &impl Serialize) -> Outcome {
    wait(target, Duration::ZERO, key, progress)
}

/// The answer of a step whose BMC takes no changes right now (`error`): it tries again after a
/// while, and gives up when the BMC stays busy.
pub(super) fn try_again(
    target: &Target<'_>,
    settings: &RedfishSettings,
    error: Error,
) -> Result<Outcome, Error> {
    let since = recall(target, BUSY).unwrap_or(target.now);
    if target.now.since(since) >= LONGEST_BUSY {
        return Err(error);
    }
    Ok(look_again(target, settings, BUSY, &since))
}

/// The answer of a step that reboots the machine and then looks again, with `progress` saying that
/// the reboot is no longer due. That it was due must have been written down by an earlier call,
/// together with everything that led to it: a machine is not to be rebooted twice because an answer
/// was lost. A machine that is off is switched on.
pub(super) async fn reboot(
    target: &Target<'_>,
    settings: &RedfishSettings,
    key: &str,
    progress: &impl Serialize,
) -> Result<Outcome, Error> {
    let changes = crate::agent::restart(target).await?;
    let mut outcome = look_again(target, settings, key, progress);
    if let Outcome::WaitUntil { changes: later, .. } = &mut outcome {
        *later = changes.and(std::mem::take(later));
    }
    Ok(outcome)
}

/// The same outcome, which also tells what the step is doing.
pub(super) fn telling(mut outcome: Outcome, words: impl Into<String>) -> Outcome {
    if let Outcome::WaitUntil { changes: NodeChanges { notes: Some(notes), .. }, .. } = &mut outcome
    {
        notes.set(PROGRESS, words.into());
    }
    outcome
}

fn wait(target: &Target<'_>, pause: Duration, key: &str, progress: &impl Serialize) -> Outcome {
    let mut notes = target.notes.clone();
    if key != BUSY {
        notes.remove(BUSY);
    }
    notes.set(key, serde_json::to_value(progress).unwrap_or(Value::Null));
    let changes = NodeChanges { notes: Some(notes), ..NodeChanges::none() };
    Outcome::WaitUntil { moment: target.now.plus(pause), changes }
}
