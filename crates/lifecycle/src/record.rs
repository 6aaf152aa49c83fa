// SPDX-License-Identifier: Apache-2.0
//! What follows from how an action turned out, and from what agents say.

use node_model::{
    Deadline, Event, Fault, Happening, JsonObject, Node, PowerTarget, ProvisionState, Silent,
    Stage, Step, StepFlow, Timestamp, Wait, WaitReason, Work, WorkKind,
};

use crate::booting::{boot_started, booted_again, is_awaited, see_agent};
use crate::enter::{Chore, Ledger, enter};
use crate::steps::{Offers, Ramdisk, check_requested, merge_deploy_steps, order_steps};
use crate::transitions::{Rest, rest};
use crate::{Action, Failure, Outcome, Settings, retry};

/// Folds the outcome of `action` into the node. `took_ms` goes into the journal.
pub fn record(
    node: &mut Node,
    action: &Action,
    outcome: &Outcome,
    took_ms: u64,
    settings: &Settings,
    now: Timestamp,
) -> Ledger {
    let mut ledger = Ledger::default();
    journal(action, outcome, took_ms, &mut ledger);
    if *action == Action::BootAgain && !is_awaited(node) {
        // Meanwhile the data arrived, or the job was aborted.
        return ledger;
    }
    let given_up;
    let outcome = if let Outcome::Unreachable(whom, failure) = outcome {
        match unanswered(node, action, *whom, failure, settings, now) {
            None => return ledger,
            Some(failure) => given_up = Outcome::Failed(failure),
        }
        &given_up
    } else {
        answered(node);
        outcome
    };
    if let Action::SetPower { target, .. } = action {
        record_power(node, *target, outcome, &mut ledger);
        return ledger;
    }
    if *action == Action::BootAgain {
        booted_again(node, outcome, settings, now, &mut ledger);
        return ledger;
    }
    match outcome {
        Outcome::Failed(failure) | Outcome::Unreachable(_, failure) => {
            record_failure(node, action, failure, settings, now, &mut ledger)
        }
        Outcome::AwaitAgent => {
            await_callback(node, WaitReason::AgentHeartbeat, Deadline::Never, now);
            boot_started(node, action, now);
        }
        Outcome::AwaitUntil(moment) => {
            await_callback(node, WaitReason::WaitStep, Deadline::At(*moment), now);
        }
        Outcome::AwaitStep(moment) => {
            await_callback(node, WaitReason::AgentStep, Deadline::At(*moment), now);
            // A short step may be over, and its call come, before we wrote down that it began.
            let began = Timestamp(now.0.saturating_sub_unsigned(took_ms.saturating_mul(1000)));
            let called = node.agent.last_heartbeat.is_some_and(|call| call > began);
            if let Some(work) = node.work.as_mut().filter(|_| called) {
                work.heard = true;
            }
        }
        Outcome::Offers(offers) => plan(node, offers, settings, now, &mut ledger),
        Outcome::Done => done(node, action, settings, now, &mut ledger),
    }
    ledger
}

/// The machine did not answer. Notes when it is tried again; or, when there were tries enough,
/// answers the failure this ends in.
fn unanswered(
    node: &mut Node,
    action: &Action,
    whom: Silent,
    failure: &Failure,
    settings: &Settings,
    now: Timestamp,
) -> Option<Failure> {
    let (id, says_so) = (node.id, says_so(node));
    let slot = if matches!(action, Action::SetPower { .. }) {
        node.power_request.as_mut().map(|request| (&mut request.retry, true))
    } else {
        node.work.as_mut().map(|work| (&mut work.retry, work.kind == WorkKind::Verify))
    };
    let Some((retry, somebody_waits)) = slot else { return Some(failure.clone()) };
    let patience = settings.bmc_patience(somebody_waits);
    let silence = (whom, failure.message.as_str());
    if let Some(next) = retry::again(retry.as_ref(), id, silence, patience, now) {
        if says_so {
            node.last_error = Some(format!("{} (next try at {})", failure.message, next.at));
        }
        *retry = Some(next);
        return None;
    }
    let given_up = match retry.take() {
        None => failure.clone(),
        Some(retry) => Failure::new(format!(
            "{} (given up after {} tries in {} s)",
            failure.message,
            retry.tries + 1,
            now.since(retry.since).as_secs()
        )),
    };
    Some(given_up)
}

/// The machine answered: whatever was being tried again is over.
fn answered(node: &mut Node) {
    let says_so = says_so(node);
    let work = node.work.as_mut().and_then(|work| work.retry.take());
    let power = node.power_request.as_mut().and_then(|request| request.retry.take());
    if work.or(power).is_some() && says_so {
        node.last_error = None;
    }
}

/// Whether a silent BMC is the node's last error. While a failed job is cleared up, that is why
/// the job failed.
fn says_so(node: &Node) -> bool {
    node.work.as_ref().is_none_or(|work| work.stage != Stage::CleanUp)
}

/// Whether a step was looked at and is not over yet. Nothing happened, so there is nothing to tell:
/// an update that takes hours is looked at every few seconds.
#[must_use]
pub fn is_still_going_on(action: &Action, outcome: &Outcome) -> bool {
    matches!(action, Action::PollStep { .. })
        && matches!(outcome, Outcome::AwaitUntil(_) | Outcome::AwaitStep(_) | Outcome::AwaitAgent)
}

fn journal(action: &Action, outcome: &Outcome, took_ms: u64, ledger: &mut Ledger) {
    if is_still_going_on(action, outcome) {
        return;
    }
    let name = action.to_string();
    ledger.happened.push(match outcome {
        Outcome::Failed(failure) | Outcome::Unreachable(_, failure) => {
            Happening::Failed { action: name, took_ms, error: failure.message.clone() }
        }
        Outcome::Offers(offers) => {
            let offered: Vec<String> =
                offers.known.iter().map(|offer| offer.step.qualified()).collect();
            Happening::Did { action: name, took_ms, result: Some(offered.into()) }
        }
        Outcome::AwaitAgent => Happening::Did {
            action: name,
            took_ms,
            result: Some("goes on; the agent calls back".into()),
        },
        Outcome::AwaitStep(_) => {
            Happening::Did { action: name, took_ms, result: Some("the agent is at it".into()) }
        }
        Outcome::AwaitUntil(moment) => Happening::Did {
            action: name,
            took_ms,
            result: Some(format!("goes on until {moment}").into()),
        },
        Outcome::Done => Happening::Did { action: name, took_ms, result: None },
    });
}

fn record_power(node: &mut Node, target: PowerTarget, outcome: &Outcome, ledger: &mut Ledger) {
    node.power_request = None;
    node.target_power_state = None;
    if let Outcome::Failed(failure) = outcome {
        let wanted = target.state();
        let message = format!(
            "Failed to change power state to '{wanted}' by '{target}': {}",
            failure.message
        );
        ledger.error("power", &message);
        node.last_error = Some(message);
        return;
    }
    power_changed(node, target, ledger);
}

/// The machine's power is now as `target` wants it. An agent does not survive being switched off.
fn power_changed(node: &mut Node, target: PowerTarget, ledger: &mut Ledger) {
    let before = node.power_state;
    node.power_state = Some(target.state());
    if target != PowerTarget::On {
        forget_agent(node, ledger);
    }
    ledger.happened.push(Happening::Power {
        from: before.map(|state| state.as_str().to_owned()),
        to: node.power_state.map(|state| state.as_str().to_owned()),
        why: format!("asked for: {target}"),
    });
}

/// The agent does not survive a power cycle. Its token dies with it, unless the token comes with
/// the boot medium.
pub fn forget_agent(node: &mut Node, ledger: &mut Ledger) {
    node.agent.url = None;
    node.agent.verify_ca = None;
    if node.agent.has_token && !node.agent.token_pregenerated {
        node.agent.has_token = false;
        ledger.chores.push(Chore::ForgetAgentToken);
    }
}

/// An action that began at `began` ended the agent. If it made the machine boot another, what was
/// known of the old one was forgotten then, and what is known now is of the new one, which may have
/// called before we come to write this down.
pub fn agent_ended(node: &mut Node, began: Timestamp, ledger: &mut Ledger) {
    if node.agent.replaced_at.is_none_or(|moment| moment < began) {
        forget_agent(node, ledger);
    }
}

/// The machine goes on without us: from now on it waits. Which state that is, and how long it may
/// wait for an agent, is decided by `settle`.
pub(crate) fn await_callback(node: &mut Node, why: WaitReason, until: Deadline, now: Timestamp) {
    let inspecting =
        matches!(node.provision_state, ProvisionState::Inspecting | ProvisionState::InspectWait);
    let why = if inspecting { WaitReason::InspectionData } else { why };
    if let Some(work) = &mut node.work {
        if !work.awaiting {
            work.since = now;
        }
        work.awaiting = true;
        work.heard = false;
    }
    node.wait = Some(Wait { why, until, state: node.provision_state });
}

/// Puts the steps of the job in order. If some were run already, these are over, the one that
/// runs included, and the others are put in order anew.
fn plan(
    node: &mut Node,
    offers: &Offers,
    settings: &Settings,
    now: Timestamp,
    ledger: &mut Ledger,
) {
    let Some(work) = &mut node.work else { return };
    let Some(flow) = work.kind.flow() else { return };
    match planned(work, flow, offers, settings) {
        Ok(steps) if work.stage == Stage::Run => {
            work.steps.truncate(work.cursor + 1);
            let is_over =
                |step: &Step| work.steps.iter().any(|over| over.qualified() == step.qualified());
            let rest: Vec<Step> = steps.into_iter().filter(|step| !is_over(step)).collect();
            work.steps.extend(rest);
            next_step(work, now);
        }
        Ok(steps) => {
            work.steps = steps;
            work.cursor = 0;
            next_stage(work, now);
        }
        Err(failure) => fail(node, Event::Fail, &failure, settings, now, ledger),
    }
}

fn planned(
    work: &Work,
    flow: StepFlow,
    offers: &Offers,
    settings: &Settings,
) -> Result<Vec<Step>, Failure> {
    let ramdisk = if work.disable_ramdisk { Ramdisk::Disabled } else { Ramdisk::Booted };
    let requested = check_requested(flow, &work.requested_steps, Some(offers), ramdisk, settings)
        .map_err(|error| Failure::new(error.to_string()))?;
    let offered: Vec<Step> = offers.known.iter().map(|offer| offer.step.clone()).collect();
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

/// Whether agents may stay on this machine between jobs, to be reused by the next.
#[must_use]
pub fn fast_track(node: &Node, settings: &Settings) -> bool {
    node.fast_track(settings.fast_track)
}

/// Something ended well: go on with the next step or stage.
fn done(
    node: &mut Node,
    action: &Action,
    settings: &Settings,
    now: Timestamp,
    ledger: &mut Ledger,
) {
    if *action == Action::TearDown {
        forget_instance(node, ledger);
    }
    if *action == Action::Unrescue {
        ledger.chores.push(Chore::ForgetRescuePassword);
    }
    if let Some(target) = action.power_target() {
        power_changed(node, target, ledger);
    }
    let Some(work) = &mut node.work else { return };
    if work.stage == Stage::CleanUp {
        finish_clean_up(node, now, ledger);
        return;
    }
    if work.stage != Stage::Run || work.steps.is_empty() {
        next_stage(work, now);
        return;
    }
    let ended = work.steps.get(work.cursor);
    if ended.is_some_and(|step| step.abort_after) {
        let message = format!("By request, the {} operation was aborted.", work.kind);
        let event =
            if rest(node.provision_state) == Rest::Waiting { Event::Abort } else { Event::Fail };
        fail(node, event, &Failure::new(message), settings, now, ledger);
        return;
    }
    next_step(work, now);
}

pub(crate) fn next_step(work: &mut Work, now: Timestamp) {
    work.cursor += 1;
    work.awaiting = false;
    work.heard = false;
    work.since = now;
    work.notes = JsonObject::empty();
}

pub(crate) fn next_stage(work: &mut Work, now: Timestamp) {
    work.stage = match work.stage {
        Stage::Prepare => Stage::Plan,
        Stage::Plan => Stage::Run,
        Stage::Run => Stage::Finish,
        Stage::Finish | Stage::Over | Stage::CleanUp => Stage::Over,
    };
    work.awaiting = false;
    work.heard = false;
    work.since = now;
    work.notes = JsonObject::empty();
}

fn record_failure(
    node: &mut Node,
    action: &Action,
    failure: &Failure,
    settings: &Settings,
    now: Timestamp,
    ledger: &mut Ledger,
) {
    let Some(work) = &node.work else { return };
    if work.stage == Stage::CleanUp {
        ledger.error("conductor", &failure.message);
        if *action == Action::CleanUpRescue {
            set_fault(node, Fault::RescueAbort, &failure.message, ledger);
        }
        finish_clean_up(node, now, ledger);
        return;
    }
    if *action == Action::TearDown {
        // Whatever the driver says, the instance is gone from the books.
        forget_instance(node, ledger);
    }
    fail(node, Event::Fail, failure, settings, now, ledger);
}

/// The job is over, badly. What is left to put back is done in the failed state.
pub(crate) fn fail(
    node: &mut Node,
    event: Event,
    failure: &Failure,
    settings: &Settings,
    now: Timestamp,
    ledger: &mut Ledger,
) {
    let step_ran = node.work.as_ref().and_then(Work::current_step).is_some();
    let kind = node.work.as_ref().map(|work| work.kind);
    ledger.error(history_type(kind), &failure.message);
    if let (Some(kind), Some(work)) = (kind, &node.work)
        && let Some(flow) = kind.flow()
    {
        let took = now.since(work.started_at).as_secs();
        ledger.info(flow_ended(flow), format!("{kind} failed"), i64::try_from(took).ok());
    }
    enter(node, event, &failure.message, now, ledger);
    node.last_error = Some(failure.message.clone());
    let aborted = event == Event::Abort;
    match kind {
        Some(WorkKind::Clean | WorkKind::ManualClean) if step_ran && !aborted => {
            set_fault(node, Fault::Clean, &failure.message, ledger);
        }
        Some(WorkKind::Service) if step_ran && !aborted => {
            set_fault(node, Fault::Service, &failure.message, ledger);
        }
        Some(WorkKind::Rescue) => ledger.chores.push(Chore::ForgetRescuePassword),
        Some(WorkKind::Adopt) => node.power_state = None,
        _ => {}
    }
    if let Some(work) = &mut node.work {
        work.stage = Stage::CleanUp;
        work.retry = None;
        work.awaiting = false;
        work.heard = false;
        work.since = now;
        work.notes = JsonObject::empty();
        if aborted {
            work.notes.set("aborted", true);
        }
        if powers_off(work.kind, settings) {
            work.notes.set("power_off", true);
        }
    }
    node.due_at = Some(now);
}

fn powers_off(kind: WorkKind, settings: &Settings) -> bool {
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

pub(crate) const fn flow_ended(flow: StepFlow) -> &'static str {
    match flow {
        StepFlow::Clean => "cleaning_end",
        StepFlow::Deploy => "deploying_end",
        StepFlow::Service => "servicing_end",
        StepFlow::Verify => "verify_end",
    }
}

fn set_fault(node: &mut Node, fault: Fault, reason: &str, ledger: &mut Ledger) {
    node.maintenance = true;
    node.fault = Some(fault);
    if node.maintenance_reason.is_none() {
        node.maintenance_reason = Some(reason.to_owned());
    }
    ledger.happened.push(Happening::Maintenance {
        on: true,
        reason: node.maintenance_reason.clone(),
        fault: Some(fault.as_str().to_owned()),
    });
}

/// Clearing up after a failure is over. An aborted service goes back to `active`.
pub(crate) fn finish_clean_up(node: &mut Node, now: Timestamp, ledger: &mut Ledger) {
    let Some(work) = node.work.take() else { return };
    let aborted = work.notes.get("aborted").is_some();
    if work.kind == WorkKind::Service && aborted {
        enter(node, Event::Abort, "service was aborted and things are put back", now, ledger);
    }
}

/// The machine no longer belongs to an instance.
fn forget_instance(node: &mut Node, ledger: &mut Ledger) {
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
        ] {
            info.remove(key);
        }
    });
    forget_agent(node, ledger);
    ledger.chores.push(Chore::ForgetInstanceSecrets);
    ledger.chores.push(Chore::DetachVifs);
    if let Some(allocation) = node.allocation_id.take() {
        ledger.chores.push(Chore::RemoveAllocation(allocation));
    }
}

/// The agent called. What it says about itself is on the node already; here it is decided what
/// that means for the job. Answers whether the node has something to do now.
pub fn hear_agent(node: &mut Node, now: Timestamp) -> bool {
    let waiting = matches!(rest(node.provision_state), Rest::Waiting);
    if waiting {
        node.provision_updated_at = Some(now);
    }
    let for_agent = node
        .wait
        .is_some_and(|wait| matches!(wait.why, WaitReason::AgentHeartbeat | WaitReason::AgentStep));
    let Some(work) = &mut node.work else { return false };
    if !(waiting && work.awaiting && for_agent) {
        return false;
    }
    work.heard = true;
    node.due_at = Some(now);
    true
}

/// The inspection ramdisk sent its data and they were accepted. `settle` ends the inspection.
pub fn hear_inspection_data(node: &mut Node, now: Timestamp, ledger: &mut Ledger) -> bool {
    if node.provision_state != ProvisionState::InspectWait {
        return false;
    }
    see_agent(node, ledger);
    enter(node, Event::Resume, "inspection data arrived", now, ledger);
    if let Some(work) = &mut node.work {
        work.stage = Stage::Finish;
        work.awaiting = false;
        work.since = now;
    }
    node.due_at = Some(now);
    true
}
