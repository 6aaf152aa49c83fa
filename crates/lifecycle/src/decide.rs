// SPDX-License-Identifier: Apache-2.0
//! Decides what a node does next.
//!
//! A job is a sequence of stages (prepare, plan, run, finish); [`stage_action`] lists the action of
//! every job and stage. [`decide`] evaluates the job and the provision state and returns one
//! decision; [`settle`] applies decisions until the node has to act or wait.

use std::time::Duration;

use node_model::{
    Deadline, Event, JournalEvent, Node, ProvisionState, Retry, Stage, Timestamp, Wait, WaitReason,
    Work, WorkKind,
};

use crate::boot_attempts::{
    awaited_program, boot_summary, record_abandoned_boot, unconfirmed_boot,
};
use crate::enter::enter;
use crate::job_queue::{needed_place, update_place};
use crate::pending_entries::PendingEntries;
use crate::record::{
    begin_wait, clear_agent, fail, fast_track, finish_clean_up, flow_ended, next_stage,
};
use crate::steps::ReservedStep;
use crate::transitions::{StateClass, state_class};
use crate::{Action, ActionFailure, Decision, LifecycleSettings, SettleResult};

/// Applies every decision that needs no action, and returns the action or wait that follows. The
/// node's `due_at` and `wait` record the same for a process that finds the node after a crash.
///
/// A job whose decisions do not lead to an action or wait fails.
pub fn settle(
    node: &mut Node,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) -> SettleResult {
    update_place(node);
    let result = settle_or_fail(node, settings, now, entries);
    update_place(node);
    result
}

fn settle_or_fail(
    node: &mut Node,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) -> SettleResult {
    if let Some(result) = settle_bounded(node, settings, now, entries) {
        return result;
    }
    let failure = ActionFailure::new(format!(
        "internal error: the {} job makes no progress in state \"{}\"; please report this",
        node.work.as_ref().map_or("unknown", |work| work.kind.as_str()),
        node.provision_state
    ));
    fail(node, Event::Fail, &failure, settings, now, entries);
    if let Some(result) = settle_bounded(node, settings, now, entries) {
        return result;
    }
    // Not even the clean-up can be decided.
    node.work = None;
    node.set_power_request(None);
    node.due_at = None;
    node.wait = None;
    SettleResult::Idle
}

/// Returns `None` if the decisions do not come to an end.
fn settle_bounded(
    node: &mut Node,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) -> Option<SettleResult> {
    // A job has four stages, and each step needs at most two decisions.
    let limit = 64 + 4 * node.work.as_ref().map_or(0, |work| work.steps.len());
    for _ in 0..limit {
        match decide(node, settings, now) {
            Decision::Act(action) => {
                node.due_at = Some(now);
                let is_awaiting = node.work.as_ref().is_some_and(|work| work.awaiting);
                if !is_awaiting && current_retry(node, settings).is_none() {
                    // The retry has ended.
                    node.wait = None;
                }
                return Some(SettleResult::Act(action));
            }
            Decision::TakePlace(queue) => {
                node.due_at = Some(now);
                return Some(SettleResult::NeedsPlace(queue));
            }
            Decision::Enter { event, why } => transition(node, event, why, settings, now, entries),
            Decision::NextStage => {
                if let Some(work) = &mut node.work {
                    next_stage(work, now);
                }
            }
            Decision::NextStep => {
                if let Some(work) = &mut node.work {
                    work.begin_next_step(now);
                }
            }
            Decision::BeginWait(reason, next_action_at) => {
                begin_wait(node, reason, next_action_at, now);
            }
            Decision::CleanedUp => finish_clean_up(node, now, entries),
            Decision::Fail(failure) => {
                record_abandoned_boot(node, entries);
                fail(node, Event::Fail, &failure, settings, now, entries);
            }
            Decision::Wait(wait) => return Some(record_wait(node, wait, wait.due_at(), entries)),
            Decision::WaitInMaintenance(wait) => {
                return Some(record_wait(node, wait, None, entries));
            }
            Decision::Idle => {
                node.due_at = None;
                node.wait = None;
                return Some(SettleResult::Idle);
            }
        }
    }
    None
}

/// Records a wait that lasts until `due` or an event.
fn record_wait(
    node: &mut Node,
    wait: Wait,
    due: Option<Timestamp>,
    entries: &mut PendingEntries,
) -> SettleResult {
    let reason = wait.reason;
    node.due_at = due;
    let is_awaiting = node.work.as_ref().is_some_and(|work| work.awaiting);
    if reason.is_retry() && node.power_request.is_some() && is_awaiting {
        // A power request is retried while the job waits: keep the job's wait.
        return SettleResult::Wait(reason, due);
    }
    let is_new =
        node.wait.is_none_or(|before| before.reason != reason || before.state != wait.state);
    node.wait = Some(wait);
    if is_new {
        entries.events.push(JournalEvent::Waiting {
            reason: reason.as_str().to_owned(),
            until: wait.deadline.timestamp(),
            next_action_at: wait.next_action_at,
        });
    }
    SettleResult::Wait(reason, due)
}

/// Applies a decided transition, and ends the job if it was the last.
fn transition(
    node: &mut Node,
    event: Event,
    why: &'static str,
    settings: &LifecycleSettings,
    now: Timestamp,
    entries: &mut PendingEntries,
) {
    let is_over = node.work.as_ref().is_some_and(|work| work.stage == Stage::Over);
    if !enter(node, event, why, now, entries) || !is_over {
        return;
    }
    let Some(mut work) = node.work.take() else { return };
    if !fast_track(node, settings) {
        clear_agent(node, entries);
    }
    if let Some(flow) = work.kind.flow() {
        let seconds = i64::try_from(now.since(work.started_at).as_secs()).ok();
        entries.info(flow_ended(flow), format!("{} ended", work.kind), seconds);
    }
    if work.kind == WorkKind::TearDown {
        // Cleaning follows, as part of the same job.
        work.kind = WorkKind::Clean;
        work.begin_stage(Stage::Prepare, now);
        work.started_at = now;
        work.disable_ramdisk = false;
        node.work = Some(work);
    }
}

fn decide(node: &Node, settings: &LifecycleSettings, now: Timestamp) -> Decision {
    if let Some((retry, timeout)) = current_retry(node, settings)
        && retry.at > now
    {
        let reason = wait_during_boot_retry(node).unwrap_or_else(|| retry.peer.wait_reason());
        return Decision::Wait(Wait {
            reason,
            deadline: Deadline::At(retry.since.plus(timeout)),
            next_action_at: Some(retry.at),
            state: node.provision_state,
        });
    }
    if let Some(request) = &node.power_request {
        return Decision::Act(Action::SetPower {
            target: request.target,
            timeout: request.timeout,
        });
    }
    let Some(work) = &node.work else { return Decision::Idle };
    if work.stage == Stage::CleanUp {
        return clean_up_action(work.kind).map_or(Decision::CleanedUp, Decision::Act);
    }
    match state_class(node.provision_state) {
        StateClass::Working => decide_working(node, work, settings, now),
        StateClass::Waiting => decide_waiting(node, work, settings, now),
        StateClass::Held => Decision::Wait(Wait {
            reason: WaitReason::Hold,
            deadline: Deadline::Never,
            next_action_at: None,
            state: node.provision_state,
        }),
        // The job is a leftover: nothing is to be done for it.
        StateClass::Stable | StateClass::Failed => Decision::CleanedUp,
    }
}

/// The retry in progress and its timeout. A power request takes precedence over the job.
fn current_retry<'n>(
    node: &'n Node,
    settings: &LifecycleSettings,
) -> Option<(&'n Retry, Duration)> {
    let (retry, job) = match (&node.power_request, &node.work) {
        (Some(request), _) => (&request.retry, None),
        (None, Some(work)) => (&work.retry, Some(work.kind)),
        (None, None) => return None,
    };
    Some((retry.as_ref()?, settings.bmc_retry_timeout(job)))
}

/// The job's own wait reason while the BMC does not respond to [`Action::BootAgain`]: the agent may
/// still send a heartbeat.
fn wait_during_boot_retry(node: &Node) -> Option<WaitReason> {
    let work = node.work.as_ref().filter(|work| work.awaiting && node.power_request.is_none())?;
    unconfirmed_boot(work)?;
    node.wait.map(|wait| wait.reason)
}

fn decide_working(
    node: &Node,
    work: &Work,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> Decision {
    if work.awaiting {
        let is_held = node.wait.is_some_and(|wait| wait.reason == WaitReason::Hold);
        return if is_held {
            Decision::Enter { event: Event::Hold, why: "a hold step was reached" }
        } else {
            Decision::Enter { event: Event::Wait, why: "the machine continues on its own" }
        };
    }
    match work.stage {
        Stage::Run if work.kind.flow().is_some() => decide_step(node, work, now),
        Stage::Over => finish_job(node, work),
        Stage::Prepare | Stage::Plan | Stage::Run | Stage::Finish | Stage::CleanUp => {
            if skips_cleaning(node, work, settings) {
                Decision::NextStage
            } else if let Some(queue) = needed_place(node) {
                Decision::TakePlace(queue)
            } else {
                stage_action(work).map_or(Decision::NextStage, Decision::Act)
            }
        }
    }
}

/// Whether the job is automated cleaning, which is disabled for this node: its stages pass without
/// an action.
fn skips_cleaning(node: &Node, work: &Work, settings: &LifecycleSettings) -> bool {
    work.kind == WorkKind::Clean && !node.automated_clean.unwrap_or(settings.automated_clean)
}

fn decide_step(node: &Node, work: &Work, now: Timestamp) -> Decision {
    let (Some(step), Some(flow)) = (work.steps.get(work.cursor), work.kind.flow()) else {
        return Decision::NextStage;
    };
    match ReservedStep::from_step(step) {
        Some(ReservedStep::Hold) => Decision::BeginWait(WaitReason::Hold, None),
        Some(ReservedStep::Wait) => {
            match step.args.get("seconds").and_then(|value| value.as_u64()) {
                None => Decision::BeginWait(WaitReason::AgentHeartbeat, None),
                Some(0) => Decision::NextStep,
                Some(seconds) => Decision::BeginWait(
                    WaitReason::WaitStep,
                    Some(now.plus(Duration::from_secs(seconds))),
                ),
            }
        }
        Some(ReservedStep::PowerOff) if node.disable_power_off => {
            Decision::Fail(ActionFailure::new(format!(
                "step {} would power off node {}, but disable_power_off is set; use reboot instead",
                step.qualified(),
                node.id
            )))
        }
        Some(ReservedStep::PowerOn | ReservedStep::PowerOff | ReservedStep::Reboot) | None => {
            Decision::Act(Action::RunStep { flow, step: step.clone() })
        }
    }
}

fn decide_waiting(
    node: &Node,
    work: &Work,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> Decision {
    if !work.awaiting {
        return Decision::Enter { event: Event::Resume, why: "the wait is over" };
    }
    let reason = match node.wait {
        // Whatever a process of an earlier version stored as the reason.
        _ if node.queued_at.is_some() => WaitReason::JobQueue,
        Some(wait) => wait.reason,
        None => WaitReason::AgentHeartbeat,
    };
    let scheduled_at =
        node.wait.filter(|_| reason.is_scheduled()).and_then(|wait| wait.next_action_at);
    let mut wait = Wait {
        reason,
        deadline: Deadline::Never,
        next_action_at: scheduled_at,
        state: node.provision_state,
    };
    if node.maintenance {
        // Heartbeats that arrive in maintenance, and a time that passes, are evaluated when
        // maintenance ends.
        return Decision::WaitInMaintenance(wait);
    }
    if work.heartbeat_received {
        return decide_after_heartbeat(work);
    }
    if reason == WaitReason::JobQueue {
        return Decision::Wait(wait);
    }
    if reason.is_scheduled() {
        // Earlier versions deleted the time in maintenance: such a job continues at once.
        return match scheduled_at {
            Some(at) if at > now => Decision::Wait(wait),
            Some(_) | None => decide_at_scheduled_time(work),
        };
    }
    wait.deadline = callback_deadline(node, work, settings);
    let deadline = wait.deadline.timestamp();
    if deadline.is_some_and(|deadline| deadline <= now) {
        return decide_after_deadline(node, work, reason);
    }
    match boot_again_at(work, reason, settings) {
        Some(boot_at) if boot_at <= now => return Decision::Act(Action::BootAgain),
        Some(boot_at) if deadline.is_none_or(|deadline| boot_at < deadline) => {
            wait.next_action_at = Some(boot_at);
        }
        Some(_) | None => {}
    }
    Decision::Wait(wait)
}

/// When the machine is booted again if its agent makes no request.
fn boot_again_at(
    work: &Work,
    reason: WaitReason,
    settings: &LifecycleSettings,
) -> Option<Timestamp> {
    if !reason.is_for_boot() {
        return None;
    }
    let timeout = settings.boot_timeout()?;
    unconfirmed_boot(work).map(|boot| boot.started_at.plus(timeout))
}

/// The agent sent a heartbeat during the wait.
fn decide_after_heartbeat(work: &Work) -> Decision {
    match (work.current_step(), work.kind.flow()) {
        // A hold that was released, or a wait for this heartbeat: there is nothing to poll.
        (Some(step), _) if ReservedStep::from_step(step).is_some() => Decision::NextStep,
        (Some(step), Some(flow)) => Decision::Act(Action::PollStep { flow, step: step.clone() }),
        // The stage was to boot the ramdisk.
        _ => Decision::NextStage,
    }
}

/// When waiting for the agent fails. Each heartbeat postpones it, and so does a change of the boot
/// method.
fn callback_deadline(node: &Node, work: &Work, settings: &LifecycleSettings) -> Deadline {
    let start = if node.provision_state == ProvisionState::InspectWait {
        node.inspection_started_at
    } else {
        node.provision_updated_at
    };
    let method_since = work.boot.map(|boot| boot.method_since);
    start.max(method_since).map_or(Deadline::Never, |start| {
        Deadline::after(start, settings.callback_timeout(node.provision_state))
    })
}

/// The time of a poll, of a retry or of the end of a `wait` step has come.
fn decide_at_scheduled_time(work: &Work) -> Decision {
    match (work.steps.get(work.cursor), work.kind.flow()) {
        (Some(step), Some(flow)) if ReservedStep::from_step(step).is_none() => {
            Decision::Act(Action::PollStep { flow, step: step.clone() })
        }
        (Some(_), Some(_)) if work.stage == Stage::Run => Decision::NextStep,
        (Some(_) | None, Some(_) | None) => Decision::NextStage,
    }
}

/// The job fails because the agent made no request in time.
fn decide_after_deadline(node: &Node, work: &Work, reason: WaitReason) -> Decision {
    let message = match reason {
        WaitReason::InspectionData => format!(
            "timeout reached while inspecting node {}: the ramdisk sent no data{}; check the \
             machine's console and its timeline to find out how far it booted",
            node.id,
            boot_summary(node, work)
        ),
        WaitReason::AgentHeartbeat
        | WaitReason::AgentStep
        | WaitReason::BmcStep
        | WaitReason::WaitStep
        | WaitReason::Hold
        | WaitReason::JobQueue
        | WaitReason::BmcResponse
        | WaitReason::AgentResponse => format!(
            "Timeout reached while waiting for callback for node {}: no heartbeat from the {}{}; \
             check the machine's console and its timeline to find out how far it booted",
            node.id,
            awaited_program(work),
            boot_summary(node, work)
        ),
    };
    Decision::Fail(ActionFailure::new(message))
}

/// The transition with which a job succeeds.
fn finish_job(node: &Node, work: &Work) -> Decision {
    let event = match work.kind {
        WorkKind::ManualClean => Event::Manage,
        WorkKind::Clean if node.retired => Event::Manage,
        WorkKind::TearDown => Event::Clean,
        WorkKind::Clean
        | WorkKind::Verify
        | WorkKind::Inspect
        | WorkKind::Deploy
        | WorkKind::Rebuild
        | WorkKind::Rescue
        | WorkKind::Unrescue
        | WorkKind::Adopt
        | WorkKind::Service => Event::Done,
    };
    Decision::Enter { event, why: "the job is done" }
}

/// The action of a stage. Stages that run steps, and stages without an action, have none.
fn stage_action(work: &Work) -> Option<Action> {
    use WorkKind::{
        Adopt, Clean, Deploy, Inspect, ManualClean, Rebuild, Rescue, Service, TearDown, Unrescue,
        Verify,
    };
    let ramdisk = !work.disable_ramdisk;
    match (work.kind, work.stage) {
        (_, Stage::Plan) => work.kind.flow().map(Action::ListSteps),
        (Verify, Stage::Prepare) => Some(Action::CheckPower),
        (Verify, Stage::Finish) => Some(Action::CacheHardware),
        (Inspect, Stage::Finish) => Some(Action::FinishInspection),
        (Inspect, Stage::Run) => Some(Action::Inspect),
        (Clean | ManualClean, Stage::Prepare) => ramdisk.then_some(Action::PrepareCleaning),
        (Clean | ManualClean, Stage::Finish) => ramdisk.then_some(Action::TearDownCleaning),
        (Deploy | Rebuild, Stage::Prepare) => Some(Action::PrepareDeploy),
        (Service, Stage::Prepare) => ramdisk.then_some(Action::PrepareService),
        (Service, Stage::Finish) => ramdisk.then_some(Action::TearDownService),
        (TearDown, Stage::Run) => Some(Action::TearDown),
        (Rescue, Stage::Run) => Some(Action::Rescue),
        (Rescue, Stage::Finish) => Some(Action::FinishRescue),
        (Unrescue, Stage::Run) => Some(Action::Unrescue),
        (Adopt, Stage::Run) => Some(Action::Adopt),
        (
            Verify | Inspect | Clean | ManualClean | Deploy | Rebuild | TearDown | Rescue
            | Unrescue | Adopt | Service,
            Stage::Prepare | Stage::Run | Stage::Finish | Stage::Over | Stage::CleanUp,
        ) => None,
    }
}

/// The action that cleans up after a failed job.
const fn clean_up_action(kind: WorkKind) -> Option<Action> {
    match kind {
        WorkKind::Clean | WorkKind::ManualClean => Some(Action::TearDownCleaning),
        WorkKind::Deploy | WorkKind::Rebuild => Some(Action::CleanUpDeploy),
        WorkKind::Service => Some(Action::TearDownService),
        WorkKind::Rescue => Some(Action::CleanUpRescue),
        WorkKind::Inspect => Some(Action::AbortInspection),
        WorkKind::Verify | WorkKind::TearDown | WorkKind::Unrescue | WorkKind::Adopt => None,
    }
}
