// SPDX-License-Identifier: Apache-2.0
//! The firmware update step: updates the components one after the other.
//!
//! The BMC downloads the image and installs it in a task. BIOS and NIC updates need a reboot: some
//! tasks wait for it before they start, others end before it and the update takes effect with it. A
//! BMC update restarts the BMC, which is unreachable or returns errors for minutes; it is complete
//! when the new version is reported. So a failed request is no failure of the update until the
//! update times out.

use std::time::Duration;

use drivers::{DriverError, DriverTarget, NodeChanges, StepOutcome};
use node_model::{FirmwareComponent, Step, Timestamp};
use redfish::{RedfishAction, RedfishResource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::update_request::{FirmwareTarget, FirmwareUpdate, UpdateArgumentForm, bodies};
use super::{BIOS_NAMES, BMC_NAMES, bmc_component, components, inventory_item, nic_components};
use crate::bmc::RedfishBmc;
use crate::retries::{is_busy, is_refusal};
use crate::settings::RedfishSettings;
use crate::tasks::{self, TaskPoll};

/// The driver state key of the progress.
const DRIVER_STATE_KEY: &str = "redfish_firmware";
/// Time an update may stay queued before it is assumed to wait for a reboot. Some are queued briefly
/// before they start.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time an update may stay queued after the first reboot, or a BIOS task may report no progress,
/// before it is assumed to wait for a reboot.
const STALL_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum number of reboots for one update.
const MAX_REBOOTS: u8 = 3;
/// Time for a component to report its new version if the request has no `wait`. If the version is
/// unchanged then, the same version was installed again.
const VERSION_TIMEOUT: Duration = Duration::from_secs(300);

/// The key of `driver_info` with the seconds a BMC needs after an update until it is reliable.
const UNRESPONSIVE_WAIT: &str = "firmware_update_unresponsive_bmc_wait";

/// Task states of an update whose image is not complete.
const NEW: &[&str] = &["New", "Downloading", "Downloaded"];
/// Task states of an update that waits.
const WAITING: &[&str] = &[
    "Starting",
    "Pending",
    "Suspended",
    "Scheduled",
    "Waiting",
    "ReadyForExecution",
    "Interrupted",
];

/// Progress of the step; stored between calls.
#[derive(Debug, Serialize, Deserialize)]
struct FirmwareUpdateProgress {
    /// The index of the current update.
    next: usize,
    /// When the current update started.
    since: Timestamp,
    /// The version before the update, stored before the request is sent; empty if the component
    /// reports none.
    before: Option<String>,
    /// The running update.
    running: Option<RunningUpdate>,
    /// Whether a reboot is due before anything else.
    reboot: bool,
}

impl FirmwareUpdateProgress {
    fn at(next: usize, now: Timestamp) -> Self {
        Self { next, since: now, before: None, running: None, reboot: false }
    }
}

/// A running update.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RunningUpdate {
    /// The path of its task.
    task: Option<String>,
    /// The version before the update.
    before: Option<String>,
    /// Completed share in percent.
    percent: Option<u8>,
    /// When the percentage last changed or the machine was last rebooted.
    #[serde(alias = "moved")]
    progressed_at: Timestamp,
    /// Since when the task is queued.
    queued: Option<Timestamp>,
    /// Whether the task is still in the queue in which the last reboot found it.
    still_queued: bool,
    /// Number of reboots for this update.
    reboots: u8,
    /// Since when the task has ended and the new version is awaited; reset by a reboot after the end.
    ended: Option<Timestamp>,
    /// Whether the reboot followed the task, so that the update is installed after it.
    staged: bool,
    /// Whether the new version has been reported.
    #[serde(alias = "renewed")]
    has_new_version: bool,
    /// Whether the task was found on the BMC and may belong to another client.
    #[serde(alias = "found")]
    is_foreign_task: bool,
}

/// The state of a running update, as polled.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ObservedUpdate {
    /// The image is not complete yet.
    New,
    /// The task is queued.
    Queued,
    /// The task is running.
    Running,
    /// The task has ended, or the BMC no longer lists it.
    Ended,
    /// The task failed.
    Failed(String),
    /// The task could not be read.
    Unreadable(String),
}

/// The next action for a running update.
#[derive(Debug, Clone, PartialEq, Eq)]
enum UpdateDecision {
    PollAgain,
    Reboot,
    Finish,
    Fail(String),
}

/// Runs the step until it has to wait.
pub(super) async fn run(
    settings: &RedfishSettings,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    step: &Step,
    form: UpdateArgumentForm,
) -> Result<StepOutcome, DriverError> {
    let updates = requested_updates(target, step, form)?;
    let mut progress = match tasks::load_state(target, DRIVER_STATE_KEY) {
        Some(progress) => progress,
        None => {
            check_components(bmc, &updates, target.now).await?;
            FirmwareUpdateProgress::at(0, target.now)
        }
    };
    if progress.reboot {
        progress.reboot = false;
        return tasks::reboot(target, settings, DRIVER_STATE_KEY, &progress).await;
    }
    let Some(update) = updates.get(progress.next) else {
        return Ok(StepOutcome::done(final_changes(bmc, target, &updates).await?));
    };
    let label = format!("update {} of {} ({})", progress.next + 1, updates.len(), update.component);
    let Some(running) = progress.running.as_mut() else {
        let outcome = start(settings, bmc, target, update, progress).await?;
        return Ok(tasks::with_progress_text(outcome, format!("{label} started")));
    };
    let observed = poll(bmc, running, target.now).await;
    let decision = match decide_while_running(update.kind, running, &observed, target.now) {
        Some(decision) => decision,
        None => match version(bmc, update).await {
            // The update cannot be complete while the BMC does not respond.
            Err(_) => UpdateDecision::PollAgain,
            Ok(version) => decide_after_end(update, running, version.as_deref(), target.now),
        },
    };
    match decision {
        UpdateDecision::Finish | UpdateDecision::Fail(_)
            if running.is_foreign_task && !running.has_new_version =>
        {
            // The task belonged to another operation.
            progress.running = None;
            Ok(tasks::checkpoint(DRIVER_STATE_KEY, &progress))
        }
        UpdateDecision::Fail(why) => Err(failed(update, &format!("the BMC reports: {why}"))),
        UpdateDecision::Reboot => {
            progress.reboot = true;
            let outcome = tasks::checkpoint(DRIVER_STATE_KEY, &progress);
            Ok(tasks::with_progress_text(outcome, format!("{label}: rebooting the machine")))
        }
        UpdateDecision::PollAgain => {
            let limit = Duration::from_secs(settings.firmware_update_timeout);
            let observed = describe_observed(&observed, running);
            if target.now.since(progress.since) >= limit {
                let why = format!(
                    "the update did not finish within {} seconds ({observed}); check the BMC's job queue",
                    limit.as_secs()
                );
                return Err(failed(update, &why));
            }
            let outcome = tasks::poll_later(target, settings, DRIVER_STATE_KEY, &progress);
            Ok(tasks::with_progress_text(outcome, format!("{label}: {observed}")))
        }
        UpdateDecision::Finish => {
            let node = target.node.id;
            tracing::info!(%node, component = update.component, "firmware update finished");
            let mut next = FirmwareUpdateProgress::at(progress.next + 1, target.now);
            // Some machines reject further updates until they were rebooted with the new BMC firmware.
            next.reboot = update.kind == FirmwareTarget::Bmc && next.next < updates.len();
            let outcome = tasks::checkpoint(DRIVER_STATE_KEY, &next);
            Ok(tasks::with_progress_text(outcome, format!("{label} finished")))
        }
    }
}

/// Returns the requested updates. The node's [`UNRESPONSIVE_WAIT`] is the default `wait` of images
/// that may be for the BMC.
fn requested_updates(
    target: &DriverTarget<'_>,
    step: &Step,
    form: UpdateArgumentForm,
) -> Result<Vec<FirmwareUpdate>, DriverError> {
    let mut updates = FirmwareUpdate::read(&step.args, form)?;
    let wait = unresponsive_wait(target)?;
    for update in &mut updates {
        if matches!(update.kind, FirmwareTarget::Bmc | FirmwareTarget::Unknown) {
            update.wait = update.wait.or(wait);
        }
    }
    Ok(updates)
}

fn unresponsive_wait(target: &DriverTarget<'_>) -> Result<Option<Duration>, DriverError> {
    let seconds = match target.driver_info.get(UNRESPONSIVE_WAIT) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_u64(),
    };
    let why = "use a whole number of seconds";
    let seconds = seconds
        .ok_or_else(|| DriverError::invalid(format!("driver_info/{UNRESPONSIVE_WAIT}"), why))?;
    Ok(Some(Duration::from_secs(seconds)).filter(|wait| !wait.is_zero()))
}

/// Fails if a NIC that is to be updated does not exist, as far as the BMC lists NICs.
async fn check_components(
    bmc: &RedfishBmc,
    updates: &[FirmwareUpdate],
    now: Timestamp,
) -> Result<(), DriverError> {
    if !updates.iter().any(|update| update.kind == FirmwareTarget::Nic) {
        return Ok(());
    }
    let system = bmc.system().await?;
    let known = nic_components(bmc, &system, now).await.unwrap_or_default();
    let is_known = |update: &&FirmwareUpdate| {
        update.kind != FirmwareTarget::Nic
            || known.iter().any(|nic| nic.component == update.component)
    };
    match updates.iter().find(|update| !is_known(update)) {
        Some(unknown) if !known.is_empty() => {
            let names: Vec<_> = known.iter().map(|nic| nic.component.as_str()).collect();
            Err(DriverError::invalid(
                "settings",
                format!("there is no '{}'; there are {}", unknown.component, names.join(", ")),
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// Starts the update of a component.
async fn start(
    settings: &RedfishSettings,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    update: &FirmwareUpdate,
    mut progress: FirmwareUpdateProgress,
) -> Result<StepOutcome, DriverError> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    let service = bmc.follow(&root, "/UpdateService").await?;
    let action = service.as_ref().and_then(|service| service.action("UpdateService.SimpleUpdate"));
    let (Some(service), Some(action)) = (service, action) else {
        return Err(failed(
            update,
            "the BMC cannot download an image (it has no SimpleUpdate action); update it with \
             the vendor's tools",
        ));
    };
    let version = version(bmc, update).await?;
    let Some(before) = progress.before.clone() else {
        progress.before = Some(version.unwrap_or_default());
        return Ok(tasks::checkpoint(DRIVER_STATE_KEY, &progress));
    };
    let before = Some(before).filter(|before| !before.is_empty());
    if version.is_some() && before.is_some() && version != before {
        // The update completed, and the process stopped before it stored the request.
        return Ok(tasks::checkpoint(
            DRIVER_STATE_KEY,
            &FirmwareUpdateProgress::at(progress.next + 1, target.now),
        ));
    }
    let system = bmc.system().await?;
    let targets = targets(bmc, &root, &service, &system, update.kind).await;
    let task = match submit(bmc, update, &action, &targets, &system.path).await {
        Ok(task) => task,
        Err(error) if is_busy(&error) => {
            // The BMC may be busy with this update if the process stopped before it stored the request.
            let Some(task) = tasks::unfinished(bmc).await else {
                return tasks::retry_while_busy(target, settings, explain(bmc, update, error));
            };
            progress.running = Some(RunningUpdate {
                task: Some(task),
                before,
                progressed_at: target.now,
                is_foreign_task: true,
                ..RunningUpdate::default()
            });
            return Ok(tasks::poll_later(target, settings, DRIVER_STATE_KEY, &progress));
        }
        Err(error) => return Err(explain(bmc, update, error)),
    };
    let node = target.node.id;
    tracing::info!(%node, component = update.component, image = ?update.image, "firmware update started");
    progress.running =
        Some(RunningUpdate { task, before, progressed_at: target.now, ..RunningUpdate::default() });
    Ok(tasks::poll_later(target, settings, DRIVER_STATE_KEY, &progress))
}

/// Returns the `Targets` of an update: the System if the BMC has several, else the inventory item of
/// the component if it is unambiguous. Usually the image determines the target.
async fn targets(
    bmc: &RedfishBmc,
    root: &RedfishResource,
    service: &RedfishResource,
    system: &RedfishResource,
    kind: FirmwareTarget,
) -> Vec<String> {
    let systems = match root.link("/Systems") {
        Some(path) => bmc.client().members(path).await.unwrap_or_default(),
        None => Vec::new(),
    };
    if systems.len() > 1 {
        return vec![system.path.clone()];
    }
    let item = match kind {
        FirmwareTarget::Bios => inventory_item(bmc, service, BIOS_NAMES).await,
        FirmwareTarget::Bmc => inventory_item(bmc, service, BMC_NAMES).await,
        FirmwareTarget::Nic | FirmwareTarget::Unknown => None,
    };
    item.into_iter().collect()
}

async fn submit(
    bmc: &RedfishBmc,
    update: &FirmwareUpdate,
    action: &RedfishAction,
    targets: &[String],
    machine: &str,
) -> Result<Option<String>, redfish::RedfishError> {
    let mut refusal = None;
    for body in bodies(&update.image, action, targets, machine) {
        match bmc.client().post(&action.target, &body).await {
            Ok(response) => return Ok(tasks::task_path(&response)),
            Err(error) if is_refusal(&error) => refusal = refusal.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    // The response to the full request has the most specific error.
    Err(refusal.unwrap_or_else(|| redfish::RedfishError::NotFound { path: action.target.clone() }))
}

/// Polls the running update.
async fn poll(bmc: &RedfishBmc, running: &mut RunningUpdate, now: Timestamp) -> ObservedUpdate {
    let Some(task) = running.task.as_deref().filter(|_| running.ended.is_none()) else {
        return ObservedUpdate::Ended;
    };
    match tasks::poll(bmc, task).await {
        TaskPoll::Done | TaskPoll::NotFound => ObservedUpdate::Ended,
        TaskPoll::Failed(why) => ObservedUpdate::Failed(why),
        TaskPoll::Unreadable(why) => ObservedUpdate::Unreadable(why),
        TaskPoll::Working(work) => {
            if work.percent != running.percent {
                running.percent = work.percent;
                running.progressed_at = now;
            }
            task_phase(work.word.as_deref())
        }
    }
}

/// Maps the task state of an unfinished task.
fn task_phase(word: Option<&str>) -> ObservedUpdate {
    match word {
        Some(word) if NEW.contains(&word) => ObservedUpdate::New,
        Some(word) if WAITING.contains(&word) => ObservedUpdate::Queued,
        Some(_) | None => ObservedUpdate::Running,
    }
}

/// Decides what to do while the task runs; returns `None` once it has ended.
fn decide_while_running(
    kind: FirmwareTarget,
    running: &mut RunningUpdate,
    observed: &ObservedUpdate,
    now: Timestamp,
) -> Option<UpdateDecision> {
    let reboot = match observed {
        ObservedUpdate::Ended => {
            running.ended = running.ended.or(Some(now));
            return None;
        }
        ObservedUpdate::Failed(why) => return Some(UpdateDecision::Fail(why.clone())),
        ObservedUpdate::Unreadable(_) => false,
        ObservedUpdate::New | ObservedUpdate::Running => {
            (running.queued, running.still_queued) = (None, false);
            let is_stalled = now.since(running.progressed_at) >= STALL_TIMEOUT;
            let may_wait = matches!(kind, FirmwareTarget::Bios | FirmwareTarget::Unknown);
            may_wait && *observed == ObservedUpdate::Running && running.reboots == 0 && is_stalled
        }
        ObservedUpdate::Queued => {
            let timeout = if running.still_queued { STALL_TIMEOUT } else { QUEUE_TIMEOUT };
            now.since(*running.queued.get_or_insert(now)) >= timeout
        }
    };
    if !reboot || kind == FirmwareTarget::Bmc || running.reboots >= MAX_REBOOTS {
        return Some(UpdateDecision::PollAgain);
    }
    running.reboots += 1;
    running.still_queued = *observed == ObservedUpdate::Queued;
    (running.queued, running.progressed_at) = (None, now);
    Some(UpdateDecision::Reboot)
}

/// Decides what to do after the task has ended and the component reports `version`.
fn decide_after_end(
    update: &FirmwareUpdate,
    running: &mut RunningUpdate,
    version: Option<&str>,
    now: Timestamp,
) -> UpdateDecision {
    if update.kind != FirmwareTarget::Bmc && running.reboots == 0 {
        running.reboots = 1;
        running.staged = true;
        running.ended = Some(now);
        return UpdateDecision::Reboot;
    }
    let ended = *running.ended.get_or_insert(now);
    let is_new =
        version.is_some() && running.before.is_some() && version != running.before.as_deref();
    // A BMC that has just restarted may restart again: require the version in two polls.
    let is_steady = update.kind != FirmwareTarget::Bmc || running.has_new_version;
    running.has_new_version = is_new;
    let rebooted_in_time =
        update.kind != FirmwareTarget::Bmc && !running.staged && update.wait.is_none();
    let timeout = update.wait.unwrap_or(VERSION_TIMEOUT);
    if (is_new && is_steady) || rebooted_in_time || now.since(ended) >= timeout {
        return UpdateDecision::Finish;
    }
    UpdateDecision::PollAgain
}

/// Returns the current version of a component.
async fn version(bmc: &RedfishBmc, update: &FirmwareUpdate) -> Result<Option<String>, DriverError> {
    let system = bmc.system().await?;
    let now = Timestamp(0);
    let component = match update.kind {
        FirmwareTarget::Bios => return Ok(system.text("/BiosVersion").map(str::to_owned)),
        FirmwareTarget::Bmc => bmc_component(bmc, &system, now).await?,
        FirmwareTarget::Nic => {
            // NICs are not listed while the machine boots.
            let nics = nic_components(bmc, &system, now).await.unwrap_or_default();
            nics.into_iter().find(|nic| nic.component == update.component)
        }
        FirmwareTarget::Unknown => None,
    };
    Ok(component.and_then(|component| component.current_version))
}

/// Returns the changes to store after all updates.
async fn final_changes(
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    updates: &[FirmwareUpdate],
) -> Result<NodeChanges, DriverError> {
    let mut known = components(bmc, target.now).await?;
    for component in &mut known {
        mark_flashed(component, updates);
    }
    let firmware_components = (!known.is_empty()).then_some(known);
    Ok(NodeChanges { firmware_components, ..NodeChanges::none() })
}

fn mark_flashed(component: &mut FirmwareComponent, updates: &[FirmwareUpdate]) {
    if updates.iter().any(|update| update.component == component.component) {
        component.last_version_flashed.clone_from(&component.current_version);
    }
}

/// Converts a refusal; masks secrets because the BMC may repeat the request.
fn explain(bmc: &RedfishBmc, update: &FirmwareUpdate, error: redfish::RedfishError) -> DriverError {
    let mut explained = bmc.explain(error);
    if let DriverError::Failed { why, .. } = &mut explained {
        *why = update.image.mask_secrets(std::mem::take(why));
    }
    explained
}

fn failed(update: &FirmwareUpdate, why: &str) -> DriverError {
    DriverError::Failed {
        what: format!("update {} from {}", update.component, update.image.displayed()),
        why: update.image.mask_secrets(why.to_owned()),
    }
}

/// Describes the last observed state, for messages.
fn describe_observed(observed: &ObservedUpdate, running: &RunningUpdate) -> String {
    let percent = running.percent.map_or_else(String::new, |percent| format!(" at {percent} %"));
    match observed {
        ObservedUpdate::New => "its task has not started".to_owned(),
        ObservedUpdate::Queued => "its task is queued".to_owned(),
        ObservedUpdate::Running => format!("its task is running{percent}"),
        ObservedUpdate::Ended => "its task has ended and no new version is reported".to_owned(),
        ObservedUpdate::Failed(why) | ObservedUpdate::Unreadable(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests;
