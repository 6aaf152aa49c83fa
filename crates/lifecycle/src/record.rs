// SPDX-License-Identifier: Apache-2.0
//! Records outcomes of actions, heartbeats and inspection data on the node.

use node_model::{
    ActionProgress, Deadline, Event, Fault, JournalEvent, JsonObject, Node, PowerTarget,
    ProvisionState, Stage, Step, StepFlow, Timestamp, UnreachablePeer, Wait, WaitReason, Work,
    WorkKind,
};

use crate::boot_attempts::{confirm_boot, is_agent_awaited, record_boot, record_boot_again};
use crate::deployment::DEPLOYED_BY_KEY;
use crate::enter::enter;
use crate::pending_entries::{FollowUpChange, PendingEntries};
use crate::steps::{AvailableSteps, Ramdisk, check_requested, merge_deploy_steps, order_steps};
use crate::transitions::{StateClass, state_class};
use crate::{Action, ActionFailure, ActionOutcome, LifecycleSettings, retry};

/// Records the outcome of `action` on the node. `took_ms` is the duration of the action.
pub fn record(
    node: &mut Node,
    action: &Action,
    outcome: &ActionOutcome,
    took_ms: u64,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> PendingEntries {
    let mut entries = PendingEntries::default();
    add_journal_event(action, outcome, took_ms, &mut entries);
    if *action == Action::BootAgain && !is_agent_awaited(node) {
        // The agent's data arrived, or the job was aborted, while the machine was booted.
        return entries;
    }
    let final_failure;
    let outcome = if let ActionOutcome::Unreachable(peer, failure) = outcome {
        match schedule_retry(node, action, *peer, failure, settings, now) {
            None => return entries,
            Some(failure) => final_failure = ActionOutcome::Failed(failure),
        }
        &final_failure
    } else {
        end_retry(node);
        outcome
    };
    if let Action::SetPower { target, .. } = action {
        record_power(node, *target, outcome, &mut entries);
        return entries;
    }
    if *action == Action::BootAgain {
        record_boot_again(node, outcome, settings, now, &mut entries);
        return entries;
    }
    match outcome {
        ActionOutcome::Failed(failure) | ActionOutcome::Unreachable(_, failure) => {
            record_failure(node, action, failure, settings, now, &mut entries);
        }
        ActionOutcome::StepsListed(steps) => plan(node, steps, settings, now, &mut entries),
        ActionOutcome::Progress(progress) => {
            record_progress(node, action, *progress, took_ms, settings, now, &mut entries);
        }
    }
    entries
}

fn record_progress(
    node: &mut Node,
    action: &Action,
    progress: ActionProgress,
    took_ms: u64,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    match progress {
        ActionProgress::Done | ActionProgress::AgentReady => {
            record_done(node, action, settings, now, entries);
        }
        ActionProgress::WaitForAgent | ActionProgress::WaitForInstaller => {
            begin_wait(node, WaitReason::AgentHeartbeat, None, now);
            record_boot(node, action, now);
            if let Some(work) = &mut node.work {
                work.awaits_installer = progress == ActionProgress::WaitForInstaller;
            }
        }
        ActionProgress::PollAt(due) => {
            begin_wait(node, WaitReason::BmcStep, Some(due), now);
        }
        ActionProgress::Checkpoint => begin_wait(node, running_step(action), Some(now), now),
        ActionProgress::PollAgentAt(due) => {
            begin_wait(node, WaitReason::AgentStep, Some(due), now);
            // A short step may end, and its heartbeat arrive, before its start is recorded.
            let began = Timestamp(now.0.saturating_sub_unsigned(took_ms.saturating_mul(1000)));
            let is_late = node.agent.last_heartbeat.is_some_and(|heartbeat| heartbeat > began);
            if let Some(work) = node.work.as_mut().filter(|_| is_late) {
                work.heartbeat_received = true;
            }
        }
    }
}

/// The wait reason while the step of an action runs.
fn running_step(action: &Action) -> WaitReason {
    match action.step() {
        Some(step) if step.requires_ramdisk => WaitReason::AgentStep,
        Some(_) | None => WaitReason::BmcStep,
    }
}

/// Schedules another attempt after a peer did not respond. Returns the final failure if the timeout
/// for retries is exceeded.
fn schedule_retry(
    node: &mut Node,
    action: &Action,
    peer: UnreachablePeer,
    failure: &ActionFailure,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> Option<ActionFailure> {
    let (id, sets_last_error) = (node.id, retry_sets_last_error(node));
    let slot = if matches!(action, Action::SetPower { .. }) {
        node.power_request.as_mut().map(|request| (&mut request.retry, None))
    } else {
        node.work.as_mut().map(|work| (&mut work.retry, Some(work.kind)))
    };
    let Some((retry, job)) = slot else { return Some(failure.clone()) };
    let timeout = settings.bmc_retry_timeout(job);
    let error = (peer, failure.message.as_str());
    if let Some(next) = retry::next_attempt(retry.as_ref(), id, error, timeout, now) {
        if sets_last_error {
            node.last_error = Some(format!("{} (next attempt at {})", failure.message, next.at));
        }
        *retry = Some(next);
        return None;
    }
    Some(match retry.take() {
        None => failure.clone(),
        Some(retry) => ActionFailure::new(format!(
            "{} (failed after {} attempts in {} s)",
            failure.message,
            retry.attempts + 1,
            now.since(retry.since).as_secs()
        )),
    })
}

/// Ends the retry in progress, because the peer responded.
fn end_retry(node: &mut Node) {
    let sets_last_error = retry_sets_last_error(node);
    let work = node.work.as_mut().and_then(|work| work.retry.take());
    let power = node.power_request.as_mut().and_then(|request| request.retry.take());
    if work.or(power).is_some() && sets_last_error {
        node.last_error = None;
    }
}

/// Whether retries set and clear `last_error`. During clean-up it contains the failure of the job.
fn retry_sets_last_error(node: &Node) -> bool {
    node.work.as_ref().is_none_or(|work| work.stage != Stage::CleanUp)
}

/// Whether the action polled a step that has not ended. That is not recorded in the journal: an
/// update that takes hours is polled every few seconds.
#[must_use]
pub fn is_still_running(action: &Action, outcome: &ActionOutcome) -> bool {
    matches!(action, Action::PollStep { .. })
        && matches!(outcome, ActionOutcome::Progress(progress) if progress.is_unfinished())
}

fn add_journal_event(
    action: &Action,
    outcome: &ActionOutcome,
    took_ms: u64,
    entries: &mut PendingEntries,
) {
    if is_still_running(action, outcome) {
        return;
    }
    let name = action.to_string();
    let result = match outcome {
        ActionOutcome::Failed(failure) | ActionOutcome::Unreachable(_, failure) => {
            let error = failure.message.clone();
            entries.events.push(JournalEvent::ActionFailed { action: name, took_ms, error });
            return;
        }
        ActionOutcome::StepsListed(steps) => {
            let names: Vec<String> =
                steps.known.iter().map(|known| known.step.qualified()).collect();
            Some(names.into())
        }
        ActionOutcome::Progress(progress) => match progress {
            ActionProgress::Done | ActionProgress::AgentReady => None,
            ActionProgress::WaitForAgent => Some("running, waiting for a heartbeat".into()),
            ActionProgress::WaitForInstaller => Some("running, waiting for the installer".into()),
            ActionProgress::PollAgentAt(_) => Some("running in the agent".into()),
            ActionProgress::Checkpoint => Some("running".into()),
            ActionProgress::PollAt(due) => Some(format!("running, polled at {due}").into()),
        },
    };
    entries.events.push(JournalEvent::ActionDone { action: name, took_ms, result });
}

fn record_power(
    node: &mut Node,
    target: PowerTarget,
    outcome: &ActionOutcome,
    entries: &mut PendingEntries,
) {
    node.set_power_request(None);
    if let ActionOutcome::Failed(failure) = outcome {
        let state = target.state();
        let message =
            format!("Failed to change power state to '{state}' by '{target}': {}", failure.message);
        entries.error("power", &message);
        node.last_error = Some(message);
        return;
    }
    record_power_change(node, target, entries);
}

/// Sets the power state. No agent survives a power-off or reboot.
fn record_power_change(node: &mut Node, target: PowerTarget, entries: &mut PendingEntries) {
    let before = node.power_state;
    node.power_state = Some(target.state());
    if target != PowerTarget::On {
        clear_agent(node, entries);
    }
    entries.events.push(JournalEvent::Power {
        from: before.map(|state| state.as_str().to_owned()),
        to: node.power_state.map(|state| state.as_str().to_owned()),
        reason: format!("requested: {target}"),
    });
}

/// Clears the record of the agent. Its token is deleted too, unless it is part of the kernel
/// parameters.
pub fn clear_agent(node: &mut Node, entries: &mut PendingEntries) {
    node.agent.url = None;
    node.agent.verify_ca = None;
    if node.agent.has_token && !node.agent.token_pregenerated {
        node.agent.has_token = false;
        node.agent.proof = None;
        node.agent.address = None;
        entries.follow_ups.push(FollowUpChange::DeleteAgentToken);
    }
}

/// Records that an action that began at `began` stopped the agent. If the action booted a new agent,
/// the record was reset then and describes the new agent, which may have made requests already.
pub fn agent_stopped(node: &mut Node, began: Timestamp, entries: &mut PendingEntries) {
    if node.agent.replaced_at.is_none_or(|replaced| replaced < began) {
        clear_agent(node, entries);
    }
}

/// Lets the job wait until `next_action_at` or an event. [`settle`](crate::settle) decides the
/// provision state, and the deadline of a wait for the agent.
pub(crate) fn begin_wait(
    node: &mut Node,
    reason: WaitReason,
    next_action_at: Option<Timestamp>,
    now: Timestamp,
) {
    let is_inspecting =
        matches!(node.provision_state, ProvisionState::Inspecting | ProvisionState::InspectWait);
    let reason = if is_inspecting { WaitReason::InspectionData } else { reason };
    if let Some(work) = &mut node.work {
        if !work.awaiting {
            work.since = now;
        }
        work.awaiting = true;
        work.heartbeat_received = false;
    }
    let state = node.provision_state;
    node.wait = Some(Wait { reason, deadline: Deadline::Never, next_action_at, state });
}

/// Orders the steps of the job. While steps run, those up to the current one are done and the others
/// are ordered again.
fn plan(
    node: &mut Node,
    available: &AvailableSteps,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    let Some(work) = &mut node.work else { return };
    let Some(flow) = work.kind.flow() else { return };
    match plan_steps(work, flow, available, settings) {
        Ok(steps) if work.stage == Stage::Run => {
            work.steps.truncate(work.cursor + 1);
            let is_done =
                |step: &Step| work.steps.iter().any(|done| done.qualified() == step.qualified());
            let remaining: Vec<Step> = steps.into_iter().filter(|step| !is_done(step)).collect();
            work.steps.extend(remaining);
            work.begin_next_step(now);
        }
        Ok(steps) => {
            work.steps = steps;
            work.cursor = 0;
            next_stage(work, now);
        }
        Err(failure) => fail(node, Event::Fail, &failure, settings, now, entries),
    }
}

fn plan_steps(
    work: &Work,
    flow: StepFlow,
    available: &AvailableSteps,
    settings: &LifecycleSettings,
) -> Result<Vec<Step>, ActionFailure> {
    let ramdisk = if work.disable_ramdisk { Ramdisk::Disabled } else { Ramdisk::Booted };
    let requested =
        check_requested(flow, &work.requested_steps, Some(available), ramdisk, settings)
            .map_err(|error| ActionFailure::new(error.to_string()))?;
    let offered: Vec<Step> = available.known.iter().map(|known| known.step.clone()).collect();
    Ok(match work.kind {
        WorkKind::ManualClean | WorkKind::Service => requested,
        WorkKind::Deploy | WorkKind::Rebuild => {
            order_steps(flow, merge_deploy_steps(&[&requested, &offered]), settings)
        }
        WorkKind::Clean | WorkKind::Verify => order_steps(flow, offered, settings),
        WorkKind::Inspect
        | WorkKind::TearDown
        | WorkKind::Rescue
        | WorkKind::Unrescue
        | WorkKind::Adopt => Vec::new(),
    })
}

/// Whether agents may keep running on this machine between jobs and be reused by the next.
#[must_use]
pub fn fast_track(node: &Node, settings: &LifecycleSettings) -> bool {
    node.fast_track(settings.fast_track)
}

/// Records that an action is done, and begins the next step or stage.
fn record_done(
    node: &mut Node,
    action: &Action,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    if *action == Action::TearDown {
        clear_instance(node, entries);
    }
    if *action == Action::Unrescue {
        entries.follow_ups.push(FollowUpChange::DeleteRescuePassword);
    }
    if let Some(target) = action.power_target() {
        record_power_change(node, target, entries);
    }
    let Some(work) = &mut node.work else { return };
    if work.stage == Stage::CleanUp {
        finish_clean_up(node, now, entries);
        return;
    }
    if work.stage != Stage::Run || work.steps.is_empty() {
        next_stage(work, now);
        return;
    }
    let ended = work.steps.get(work.cursor);
    if ended.is_some_and(|step| step.abort_after) {
        let message = format!("By request, the {} operation was aborted.", work.kind);
        let is_waiting = state_class(node.provision_state) == StateClass::Waiting;
        let event = if is_waiting { Event::Abort } else { Event::Fail };
        fail(node, event, &ActionFailure::new(message), settings, now, entries);
        return;
    }
    work.begin_next_step(now);
}

pub(crate) fn next_stage(work: &mut Work, now: Timestamp) {
    let next = match work.stage {
        Stage::Prepare => Stage::Plan,
        Stage::Plan => Stage::Run,
        Stage::Run => Stage::Finish,
        Stage::Finish | Stage::Over | Stage::CleanUp => Stage::Over,
    };
    work.begin_stage(next, now);
}

fn record_failure(
    node: &mut Node,
    action: &Action,
    failure: &ActionFailure,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    let Some(work) = &node.work else { return };
    if work.stage == Stage::CleanUp {
        entries.error("conductor", &failure.message);
        if *action == Action::CleanUpRescue {
            set_fault(node, Fault::RescueAbort, &failure.message, entries);
        }
        finish_clean_up(node, now, entries);
        return;
    }
    if *action == Action::TearDown {
        // The instance is removed from the node's record even if the driver failed.
        clear_instance(node, entries);
    }
    fail(node, Event::Fail, failure, settings, now, entries);
}

/// Fails the job. Clean-up runs in the failed state.
pub(crate) fn fail(
    node: &mut Node,
    event: Event,
    failure: &ActionFailure,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    let is_step_running = node.work.as_ref().and_then(Work::current_step).is_some();
    let kind = node.work.as_ref().map(|work| work.kind);
    let was_queued = node.queued_at.is_some();
    entries.error(history_type(kind), &failure.message);
    if let (Some(kind), Some(work)) = (kind, &node.work)
        && let Some(flow) = kind.flow()
    {
        let seconds = now.since(work.started_at).as_secs();
        entries.info(flow_ended(flow), format!("{kind} failed"), i64::try_from(seconds).ok());
    }
    enter(node, event, &failure.message, now, entries);
    node.last_error = Some(failure.message.clone());
    let is_aborted = event == Event::Abort;
    match kind {
        Some(WorkKind::Clean | WorkKind::ManualClean) if is_step_running && !is_aborted => {
            set_fault(node, Fault::Clean, &failure.message, entries);
        }
        Some(WorkKind::Service) if is_step_running && !is_aborted => {
            set_fault(node, Fault::Service, &failure.message, entries);
        }
        Some(WorkKind::Rescue) => entries.follow_ups.push(FollowUpChange::DeleteRescuePassword),
        Some(WorkKind::Adopt) => node.power_state = None,
        _ => {}
    }
    if let Some(work) = &mut node.work {
        work.begin_stage(Stage::CleanUp, now);
        work.retry = None;
        work.aborted = is_aborted;
        // A machine that waited in a queue may still run the instance that a rebuild would replace.
        work.power_off =
            powers_off_after_failure(work.kind, settings) && !node.disable_power_off && !was_queued;
    }
    node.due_at = Some(now);
}

fn powers_off_after_failure(kind: WorkKind, settings: &LifecycleSettings) -> bool {
    match kind {
        WorkKind::Clean | WorkKind::ManualClean => settings.poweroff_in_cleanfail,
        WorkKind::Service => settings.poweroff_in_servicefail,
        WorkKind::Deploy | WorkKind::Rebuild => settings.power_off_after_deploy_failure,
        WorkKind::Verify
        | WorkKind::Inspect
        | WorkKind::TearDown
        | WorkKind::Rescue
        | WorkKind::Unrescue
        | WorkKind::Adopt => false,
    }
}

/// Ironic's history event type.
const fn history_type(kind: Option<WorkKind>) -> &'static str {
    match kind {
        Some(WorkKind::Verify) => "verify",
        Some(WorkKind::Inspect) => "introspection",
        Some(WorkKind::Clean | WorkKind::ManualClean) => "cleaning",
        Some(WorkKind::Deploy | WorkKind::Rebuild) => "deploying",
        Some(WorkKind::TearDown) => "unprovision",
        Some(WorkKind::Rescue) => "rescue",
        Some(WorkKind::Unrescue) => "unrescue",
        Some(WorkKind::Adopt) => "adoption",
        Some(WorkKind::Service) => "servicing",
        None => "transition",
    }
}

/// Ironic's history event type.
pub(crate) const fn flow_ended(flow: StepFlow) -> &'static str {
    match flow {
        StepFlow::Clean => "cleaning_end",
        StepFlow::Deploy => "deploying_end",
        StepFlow::Service => "servicing_end",
        StepFlow::Verify => "verify_end",
    }
}

fn set_fault(node: &mut Node, fault: Fault, reason: &str, entries: &mut PendingEntries) {
    node.maintenance = true;
    node.fault = Some(fault);
    if node.maintenance_reason.is_none() {
        node.maintenance_reason = Some(reason.to_owned());
    }
    entries.events.push(JournalEvent::Maintenance {
        on: true,
        reason: node.maintenance_reason.clone(),
        fault: Some(fault.as_str().to_owned()),
    });
}

/// Ends a job whose clean-up is done. An aborted service returns to `active`.
pub(crate) fn finish_clean_up(node: &mut Node, now: Timestamp, entries: &mut PendingEntries) {
    let Some(work) = node.work.take() else { return };
    if work.kind == WorkKind::Service && work.aborted {
        enter(node, Event::Abort, "the aborted service was cleaned up", now, entries);
    }
}

/// Removes the instance from the node's record.
fn clear_instance(node: &mut Node, entries: &mut PendingEntries) {
    node.instance_info = JsonObject::empty();
    node.instance_uuid = None;
    node.instance_name = None;
    node.driver_internal_info.edit(|info| {
        for key in [
            "instance",
            "root_uuid_or_disk_id",
            "is_whole_disk_image",
            "is_source_a_path",
            "deploy_boot_mode",
            DEPLOYED_BY_KEY,
        ] {
            info.remove(key);
        }
    });
    clear_agent(node, entries);
    entries.follow_ups.push(FollowUpChange::DeleteInstanceSecrets);
    entries.follow_ups.push(FollowUpChange::DetachVifs);
    if let Some(allocation) = node.allocation_id.take() {
        entries.follow_ups.push(FollowUpChange::RemoveAllocation(allocation));
    }
}

/// Whether heartbeats of an agent on a node in this state belong to a job.
#[must_use]
pub const fn job_accepts_heartbeats(state: ProvisionState) -> bool {
    use ProvisionState::{Cleaning, Deploying, InspectWait, Rescuing, Servicing};
    match state_class(state) {
        StateClass::Waiting => !matches!(state, InspectWait),
        StateClass::Held => true,
        StateClass::Working => matches!(state, Deploying | Cleaning | Rescuing | Servicing),
        StateClass::Stable | StateClass::Failed => false,
    }
}

/// Evaluates a heartbeat; the agent's data are on the node already. Returns whether the node is due
/// now.
pub fn heartbeat_received(node: &mut Node, now: Timestamp) -> bool {
    let is_waiting = state_class(node.provision_state) == StateClass::Waiting;
    if is_waiting {
        node.provision_updated_at = Some(now);
    }
    let is_for_agent = node.wait.is_some_and(|wait| wait.reason.ends_with_heartbeat());
    let Some(work) = &mut node.work else { return false };
    if !(is_waiting && work.awaiting && is_for_agent) {
        return false;
    }
    work.heartbeat_received = true;
    node.due_at = Some(now);
    true
}

/// Evaluates inspection data that were accepted. Returns false if the node does not wait for them.
pub fn inspection_data_received(
    node: &mut Node,
    now: Timestamp,
    entries: &mut PendingEntries,
) -> bool {
    if node.provision_state != ProvisionState::InspectWait {
        return false;
    }
    confirm_boot(node, entries);
    enter(node, Event::Resume, "inspection data arrived", now, entries);
    if let Some(work) = &mut node.work {
        work.stage = Stage::Finish;
        work.awaiting = false;
        work.since = now;
    }
    node.due_at = Some(now);
    true
}
