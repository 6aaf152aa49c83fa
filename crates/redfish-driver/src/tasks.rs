// SPDX-License-Identifier: Apache-2.0
//! Redfish tasks, and the driver state of steps that wait for them. A step polls once, stores its
//! progress, and is called again later. Nothing here sleeps.

use std::time::Duration;

use drivers::{DriverError, DriverTarget, NodeChanges, StepOutcome};
use redfish::{OperationResponse, TaskState};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bmc::RedfishBmc;
use super::settings::RedfishSettings;

/// The driver state key with the time at which the BMC was first busy.
const BUSY: &str = "redfish_busy_since";
/// How long a BMC may stay busy: longer than the longest power-on self-test.
const LONGEST_BUSY: Duration = Duration::from_secs(1200);

/// How many tasks are read from each end of the task collection.
const MAX_TASKS_PER_END: usize = 4;

/// The result of polling a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TaskPoll {
    /// It is running.
    Working(TaskProgress),
    /// It succeeded.
    Done,
    /// The BMC no longer lists it, which usually means that it succeeded.
    NotFound,
    /// It failed with this message.
    Failed(String),
    /// It could not be read, for this reason.
    Unreadable(String),
}

/// Progress of a running task, as far as the BMC reports it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TaskProgress {
    /// Completed share in percent.
    pub(super) percent: Option<u8>,
    /// The `TaskState` as the BMC writes it.
    pub(super) word: Option<String>,
}

/// Polls a task. An unreachable BMC or an invalid response is not a failure of the task: the BMC
/// may be restarting.
pub(super) async fn poll(bmc: &RedfishBmc, task: &str) -> TaskPoll {
    match bmc.client().task(task).await {
        Err(error) => TaskPoll::Unreadable(error.to_string()),
        Ok(task) => match task.state {
            TaskState::Running => {
                TaskPoll::Working(TaskProgress { percent: task.percent, word: task.word })
            }
            TaskState::Done if task.gone => TaskPoll::NotFound,
            TaskState::Done => TaskPoll::Done,
            TaskState::Failed if task.messages.is_empty() => {
                TaskPoll::Failed("the BMC reports no reason".to_owned())
            }
            TaskState::Failed => TaskPoll::Failed(task.messages.join("; ")),
        },
    }
}

/// Returns the path of a running task, if there is one. It may be a task that this step started
/// before the process stopped without storing it. BMCs keep many finished tasks, so only some are read.
pub(super) async fn unfinished(bmc: &RedfishBmc) -> Option<String> {
    let root = bmc.client().root().await.ok()?;
    let service = bmc.follow(&root, "/Tasks").await.ok()??;
    let all = bmc.client().members(service.link("/Tasks")?).await.ok()?;
    // The newest task is the first or the last member.
    let ends = all.iter().rev().take(MAX_TASKS_PER_END).chain(all.iter().take(MAX_TASKS_PER_END));
    let mut polled: Vec<&String> = Vec::new();
    for path in ends {
        if polled.contains(&path) {
            continue;
        }
        polled.push(path);
        if matches!(poll(bmc, path).await, TaskPoll::Working(_)) {
            return Some(path.clone());
        }
    }
    None
}

/// Returns the path of the task that carries out the operation, unless it is already complete.
pub(super) fn task_path(response: &OperationResponse) -> Option<String> {
    response.task().map(str::to_owned)
}

/// Returns the driver state that the step stored under `key`.
pub(super) fn load_state<T: DeserializeOwned>(target: &DriverTarget<'_>, key: &str) -> Option<T> {
    serde_json::from_value(target.driver_state.get(key)?).ok()
}

/// The outcome of a step that is called again after the poll interval, with `progress` stored.
pub(super) fn poll_later(
    target: &DriverTarget<'_>,
    settings: &RedfishSettings,
    key: &str,
    progress: &impl Serialize,
) -> StepOutcome {
    let time = target.now.plus(Duration::from_secs(settings.poll_interval));
    StepOutcome::poll_at(time, store_state(key, progress))
}

/// The outcome of a step that is called again as soon as `progress` is stored.
pub(super) fn checkpoint(key: &str, progress: &impl Serialize) -> StepOutcome {
    StepOutcome::checkpoint(store_state(key, progress))
}

/// The outcome of a step whose BMC is busy (`error`): it is retried after the poll interval and
/// fails after [`LONGEST_BUSY`].
pub(super) fn retry_while_busy(
    target: &DriverTarget<'_>,
    settings: &RedfishSettings,
    error: DriverError,
) -> Result<StepOutcome, DriverError> {
    let since = load_state(target, BUSY).unwrap_or(target.now);
    if target.now.since(since) >= LONGEST_BUSY {
        return Err(error);
    }
    Ok(poll_later(target, settings, BUSY, &since))
}

/// Reboots the machine and polls later; `progress` records that the reboot is done. An earlier call
/// must have stored that the reboot is due, with everything that led to it, so that a lost result
/// does not cause a second reboot. A machine that is off is switched on.
pub(super) async fn reboot(
    target: &DriverTarget<'_>,
    settings: &RedfishSettings,
    key: &str,
    progress: &impl Serialize,
) -> Result<StepOutcome, DriverError> {
    let changes = drivers::ramdisk_boot::restart(target).await?;
    Ok(poll_later(target, settings, key, progress).after(changes))
}

/// Adds a progress text for operators to the outcome of an unfinished step.
pub(super) fn with_progress_text(mut outcome: StepOutcome, text: impl Into<String>) -> StepOutcome {
    if outcome.progress.is_unfinished() {
        outcome.changes = outcome.changes.and(NodeChanges::progress(text));
    }
    outcome
}

/// Stores `progress` under `key` and clears the busy time.
fn store_state(key: &str, progress: &impl Serialize) -> NodeChanges {
    let progress = serde_json::to_value(progress).unwrap_or(Value::Null);
    NodeChanges::driver_state_key(BUSY, Value::Null)
        .and(NodeChanges::driver_state_key(key, progress))
}
