// SPDX-License-Identifier: Apache-2.0
//! What is next for a node.
//!
//! A job is a short script of stages (prepare, plan, run, finish); [`action_of`] is that script for
//! every job. [`decide`] looks at where the job stands and at the provision state, and answers with
//! one decision; [`settle`] applies decisions until something has to be done or waited for.

use node_model::{
    Deadline, Event, Happening, Node, ProvisionState, Retry, Stage, Timestamp, Wait, WaitReason,
    Work, WorkKind,
};

use crate::booting::{Boots, awaited, gave_up, tried};
use crate::enter::{Ledger, enter};
use crate::record::{
    await_callback, fail, fast_track, finish_clean_up, flow_ended, forget_agent, next_stage,
    next_step,
};
use crate::steps::Reserved;
use crate::transitions::{Rest, rest};
use crate::{Action, Decision, Failure, Next, Settings};

/// Applies every decision that needs nothing done, and answers what has to be done or waited for.
/// The node's `due_at` and `wait` say the same to whoever finds it after a crash.
pub fn settle(node: &mut Node, settings: &Settings, now: Timestamp, ledger: &mut Ledger) -> Next {
    // A job has four stages and each step needs two decisions at most: a longer walk would be a
    // circle, which the property tests look for.
    let longest = 64 + 4 * node.work.as_ref().map_or(0, |work| work.steps.len());
    for _ in 0..longest {
        match decide(node, settings, now) {
            Decision::Act(action) => {
                node.due_at = Some(now);
                return Next::Act(action);
            }
            Decision::Enter { event, why } => transition(node, event, why, settings, now, ledger),
            Decision::NextStage => {
                if let Some(work) = &mut node.work {
                    next_stage(work, now);
                }
            }
            Decision::NextStep => {
                if let Some(work) = &mut node.work {
                    next_step(work, now);
                }
            }
            Decision::Await(why, until) => await_callback(node, why, until, now),
            Decision::CleanedUp => finish_clean_up(node, now, ledger),
            Decision::Fail(failure) => {
                gave_up(node, ledger);
                fail(node, Event::Fail, &failure, settings, now, ledger);
            }
            Decision::Wait(why, until) => return wait(node, why, until, ledger),
            Decision::Rest => {
                node.due_at = None;
                node.wait = None;
                return Next::Rest;
            }
        }
    }
    node.due_at = None;
    Next::Rest
}

fn wait(node: &mut Node, why: WaitReason, until: Deadline, ledger: &mut Ledger) -> Next {
    let awaiting = node.work.as_ref().is_some_and(|work| work.awaiting);
    let silent = matches!(why, WaitReason::BmcAnswer | WaitReason::AgentAnswer);
    if silent && node.power_request.is_some() && awaiting {
        // A change of power came in between: what the job waits for stays as it is.
        node.due_at = until.moment();
        return Next::Wait(why, until.moment());
    }
    let wait = Wait { why, until, state: node.provision_state };
    let told = node.wait.is_some_and(|before| before.why == why && before.state == wait.state);
    node.wait = Some(wait);
    node.due_at = until.moment();
    if !told {
        ledger
            .happened
            .push(Happening::Waiting { why: why.as_str().to_owned(), until: until.moment() });
    }
    Next::Wait(why, until.moment())
}

/// A transition decided here, with what it means for the job.
fn transition(
    node: &mut Node,
    event: Event,
    why: &'static str,
    settings: &Settings,
    now: Timestamp,
    ledger: &mut Ledger,
) {
    let over = node.work.as_ref().is_some_and(|work| work.stage == Stage::Over);
    if !enter(node, event, why, now, ledger) || !over {
        return;
    }
    let Some(mut work) = node.work.take() else { return };
    if !fast_track(node, settings) {
        forget_agent(node, ledger);
    }
    if let Some(flow) = work.kind.flow() {
        let took = i64::try_from(now.since(work.started_at).as_secs()).ok();
        ledger.info(flow_ended(flow), format!("{} ended", work.kind), took);
    }
    if work.kind == WorkKind::TearDown {
        work.kind = WorkKind::Clean;
        work.stage = Stage::Prepare;
        work.started_at = now;
        work.since = now;
        work.disable_ramdisk = false;
        node.work = Some(work);
    }
}

fn decide(node: &Node, settings: &Settings, now: Timestamp) -> Decision {
    if let Some(moment) = not_before(node).filter(|moment| *moment > now) {
        let why = silent_while_booting(node).unwrap_or_else(|| silent(node));
        return Decision::Wait(why, Deadline::At(moment));
    }
    if let Some(request) = &node.power_request {
        return Decision::Act(Action::SetPower {
            target: request.target,
            timeout: request.timeout,
        });
    }
    let Some(work) = &node.work else { return Decision::Rest };
    if work.stage == Stage::CleanUp {
        return clean_up(work);
    }
    match rest(node.provision_state) {
        Rest::Working => decide_working(node, work, settings, now),
        Rest::Waiting => decide_waiting(node, work, settings, now),
        Rest::Held => Decision::Wait(WaitReason::Hold, Deadline::Never),
        // A job in a stable or failed state is a leftover: there is nothing to do for it.
        Rest::Stable | Rest::Failed => Decision::CleanedUp,
    }
}

/// When a machine that did not answer is tried again.
fn not_before(node: &Node) -> Option<Timestamp> {
    retry(node).map(|retry| retry.at)
}

/// Who of the machine does not answer.
fn silent(node: &Node) -> WaitReason {
    retry(node).map(|retry| retry.whom).unwrap_or_default().awaited()
}

/// What is being tried again. A change of power comes before the job.
fn retry(node: &Node) -> Option<&Retry> {
    match (&node.power_request, &node.work) {
        (Some(request), _) => request.retry.as_ref(),
        (None, Some(work)) => work.retry.as_ref(),
        (None, None) => None,
    }
}

/// What the job goes on waiting for where the BMC is silent only when told to boot the machine
/// again: the agent may still call.
fn silent_while_booting(node: &Node) -> Option<WaitReason> {
    let work = node.work.as_ref().filter(|work| work.awaiting && node.power_request.is_none())?;
    Boots::unanswered(work)?;
    node.wait.map(|wait| wait.why)
}

fn decide_working(node: &Node, work: &Work, settings: &Settings, now: Timestamp) -> Decision {
    if work.awaiting {
        let held = node.wait.is_some_and(|wait| wait.why == WaitReason::Hold);
        return if held {
            Decision::Enter { event: Event::Hold, why: "a hold step was reached" }
        } else {
            Decision::Enter { event: Event::Wait, why: "the machine goes on by itself" }
        };
    }
    match work.stage {
        Stage::Run if work.kind.flow().is_some() => decide_step(node, work, now),
        Stage::Over => end(node, work),
        Stage::Prepare | Stage::Plan | Stage::Run | Stage::Finish | Stage::CleanUp => {
            if skips_cleaning(node, work, settings) {
                Decision::NextStage
            } else {
                action_of(work).map_or(Decision::NextStage, Decision::Act)
            }
        }
    }
}

/// Whether the job is automated cleaning and that is switched off for this machine: then its stages
/// are walked through without doing anything.
fn skips_cleaning(node: &Node, work: &Work, settings: &Settings) -> bool {
    work.kind == WorkKind::Clean && !node.automated_clean.unwrap_or(settings.automated_clean)
}

fn decide_step(node: &Node, work: &Work, now: Timestamp) -> Decision {
    let (Some(step), Some(flow)) = (work.steps.get(work.cursor), work.kind.flow()) else {
        return Decision::NextStage;
    };
    match Reserved::of(step) {
        Some(Reserved::Hold) => Decision::Await(WaitReason::Hold, Deadline::Never),
        Some(Reserved::Wait) => match step.args.get("seconds").and_then(|value| value.as_u64()) {
            None => Decision::Await(WaitReason::AgentHeartbeat, Deadline::Never),
            Some(0) => Decision::NextStep,
            Some(seconds) => Decision::Await(
                WaitReason::WaitStep,
                Deadline::At(now.plus(std::time::Duration::from_secs(seconds))),
            ),
        },
        Some(Reserved::PowerOff) if node.disable_power_off => {
            Decision::Fail(Failure::new(format!(
                "step {} would switch off node {}, and disable_power_off is set; use reboot instead",
                step.qualified(),
                node.id
            )))
        }
        Some(Reserved::PowerOn | Reserved::PowerOff | Reserved::Reboot) | None => {
            Decision::Act(Action::RunStep { flow, step: step.clone() })
        }
    }
}

fn decide_waiting(node: &Node, work: &Work, settings: &Settings, now: Timestamp) -> Decision {
    if !work.awaiting {
        return Decision::Enter { event: Event::Resume, why: "what was waited for has happened" };
    }
    let why = node.wait.map_or(WaitReason::AgentHeartbeat, |wait| wait.why);
    if node.maintenance {
        // Somebody looks at the machine. What the agent says meanwhile counts when they are done.
        return Decision::Wait(why, Deadline::Never);
    }
    if work.heard {
        return called_back(work);
    }
    let until = match (why, node.wait.map(|wait| wait.until)) {
        (
            WaitReason::WaitStep
            | WaitReason::AgentStep
            | WaitReason::BmcAnswer
            | WaitReason::AgentAnswer,
            Some(until),
        ) => until,
        _ => callback_deadline(node, work, settings),
    };
    if until.moment().is_some_and(|moment| moment <= now) {
        return deadline_passed(node, work, why);
    }
    match boot_again_at(work, why, settings) {
        Some(moment) if moment <= now => Decision::Act(Action::BootAgain),
        Some(moment) if until.moment().is_none_or(|end| moment < end) => {
            Decision::Wait(why, Deadline::At(moment))
        }
        Some(_) | None => Decision::Wait(why, until),
    }
}

/// When the machine is booted again if nothing is heard of its agent.
fn boot_again_at(work: &Work, why: WaitReason, settings: &Settings) -> Option<Timestamp> {
    let for_agent = match why {
        WaitReason::AgentHeartbeat | WaitReason::InspectionData => true,
        WaitReason::WaitStep
        | WaitReason::AgentStep
        | WaitReason::Hold
        | WaitReason::BmcAnswer
        | WaitReason::AgentAnswer => false,
    };
    if !for_agent {
        return None;
    }
    let patience = settings.boot_patience()?;
    Boots::unanswered(work).map(|boots| boots.at.plus(patience))
}

/// The agent called while it was waited for.
fn called_back(work: &Work) -> Decision {
    let step = match work.stage {
        Stage::Run => work.steps.get(work.cursor),
        Stage::Prepare | Stage::Plan | Stage::Finish | Stage::Over | Stage::CleanUp => None,
    };
    match (step, work.kind.flow()) {
        // A hold that was released, or a wait for this very call: nothing to ask the agent.
        (Some(step), _) if Reserved::of(step).is_some() => Decision::NextStep,
        (Some(step), Some(flow)) => Decision::Act(Action::PollStep { flow, step: step.clone() }),
        // The ramdisk is up: that was the stage.
        _ => Decision::NextStage,
    }
}

/// When waiting for the agent ends in failure. Each call moves it, and so does another way of
/// booting.
fn callback_deadline(node: &Node, work: &Work, settings: &Settings) -> Deadline {
    let from = if node.provision_state == ProvisionState::InspectWait {
        node.inspection_started_at
    } else {
        node.provision_updated_at
    };
    let another_way = Boots::of(work).map(|boots| boots.way_since);
    from.max(another_way).map_or(Deadline::Never, |from| {
        Deadline::after(from, settings.callback_timeout(node.provision_state))
    })
}

fn deadline_passed(node: &Node, work: &Work, why: WaitReason) -> Decision {
    match why {
        WaitReason::WaitStep
        | WaitReason::AgentStep
        | WaitReason::BmcAnswer
        | WaitReason::AgentAnswer => {
            let step = work.steps.get(work.cursor);
            match (step, work.kind.flow()) {
                (Some(step), Some(flow)) if Reserved::of(step).is_none() => {
                    Decision::Act(Action::PollStep { flow, step: step.clone() })
                }
                (Some(_), Some(_)) if work.stage == Stage::Run => Decision::NextStep,
                _ => Decision::NextStage,
            }
        }
        WaitReason::InspectionData => Decision::Fail(Failure::new(format!(
            "timeout reached while inspecting node {}: the ramdisk sent no data{}; look at the \
             machine's console and at its timeline to see how far it booted",
            node.id,
            tried(node, work)
        ))),
        WaitReason::AgentHeartbeat | WaitReason::Hold => Decision::Fail(Failure::new(format!(
            "Timeout reached while waiting for callback for node {}: the {} did not call{}; \
             look at the machine's console and at its timeline to see how far it booted",
            node.id,
            awaited(work),
            tried(node, work)
        ))),
    }
}

/// The transition with which a job ends well.
fn end(node: &Node, work: &Work) -> Decision {
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
    Decision::Enter { event, why: "everything is done" }
}

/// The one thing a stage does, for jobs and stages that do one thing.
fn action_of(work: &Work) -> Option<Action> {
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

/// What is put back after a failure.
fn clean_up(work: &Work) -> Decision {
    let action = match work.kind {
        WorkKind::Clean | WorkKind::ManualClean => Action::TearDownCleaning,
        WorkKind::Deploy | WorkKind::Rebuild => Action::CleanUpDeploy,
        WorkKind::Service => Action::TearDownService,
        WorkKind::Rescue => Action::CleanUpRescue,
        WorkKind::Inspect => Action::AbortInspection,
        WorkKind::Verify | WorkKind::TearDown | WorkKind::Unrescue | WorkKind::Adopt => {
            return Decision::CleanedUp;
        }
    };
    Decision::Act(action)
}
