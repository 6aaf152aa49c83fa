// SPDX-License-Identifier: Apache-2.0
//! Booting again: how often a machine was booted for the agent that is waited for, by which ways,
//! and what follows when the agent calls or stays silent.
//!
//! All of it is among the notes of the job in flight, which are emptied when a stage or step ends:
//! so it concerns one wait and is still there after a crash.

use node_model::{
    AWAITED, BOOT_WAY, BOOT_WAYS_TRIED, BootWay, Event, Happening, InterfaceKind, Node, Stage,
    Timestamp, Work,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::enter::{Chore, Ledger};
use crate::record::fail;
use crate::transitions::{Rest, rest};
use crate::{Action, Failure, Outcome, Settings};

/// The boots for the wait at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Boots {
    /// When the last one was started.
    pub(crate) at: Timestamp,
    /// How many there were.
    times: u32,
    /// By which way, where that is chosen automatically.
    way: Option<BootWay>,
    /// When that way was first tried.
    pub(crate) way_since: Timestamp,
    /// Something was heard of the agent since.
    answered: bool,
    /// That the way failed is told already. It counts once for a machine, however often the machine
    /// is booted: one with a broken cable must not speak for its whole model.
    told: bool,
}

/// The note they are under.
const NOTE: &str = "boots";

impl Boots {
    /// The boots for the wait of `work`.
    pub(crate) fn of(work: &Work) -> Option<Self> {
        // Heartbeats ask this, so the text is searched before it is parsed.
        if !work.notes.as_str().contains(NOTE) {
            return None;
        }
        serde_json::from_value(work.notes.get(NOTE)?).ok()
    }

    /// The boots for the wait of `work`, if nothing was heard of the agent since the last.
    pub(crate) fn unanswered(work: &Work) -> Option<Self> {
        Self::of(work).filter(|boots| !boots.answered)
    }

    fn keep(self, work: &mut Work) {
        let value = serde_json::to_value(self).expect("numbers, names and flags are JSON");
        work.notes.set(NOTE, value);
    }
}

/// The machine was booted and its agent is waited for, if that is what `action` did.
pub(crate) fn boot_started(node: &mut Node, action: &Action, now: Timestamp) {
    let way = way(node);
    let is_unknown = node.agent.url.is_none();
    let Some(work) = &mut node.work else { return };
    let boots = match action {
        Action::PrepareCleaning | Action::PrepareService | Action::Inspect | Action::Rescue => true,
        // Deployment boots the agent in a step, and steps that restart the machine in any job. What
        // waits for an agent that is there waits for its next call.
        Action::RunStep { .. } | Action::PollStep { .. } => is_unknown && Boots::of(work).is_none(),
        Action::CheckPower
        | Action::CacheHardware
        | Action::ListSteps(_)
        | Action::PrepareDeploy
        | Action::CleanUpDeploy
        | Action::TearDown
        | Action::TearDownCleaning
        | Action::TearDownService
        | Action::FinishInspection
        | Action::AbortInspection
        | Action::BootAgain
        | Action::FinishRescue
        | Action::CleanUpRescue
        | Action::Unrescue
        | Action::Adopt
        | Action::SetPower { .. } => false,
    };
    if !boots {
        return;
    }
    let (at, way_since) = (now, now);
    Boots { at, times: 1, way, way_since, answered: false, told: false }.keep(work);
}

/// Who the job waits for, in words.
pub(crate) fn awaited(work: &Work) -> String {
    work.notes.get_str(AWAITED).unwrap_or_else(|| "agent".to_owned())
}

/// Something was heard of the agent: a lookup, a call, or inspection data. Answers whether it is
/// the first since the machine was booted; then the node is to be saved.
pub fn see_agent(node: &mut Node, ledger: &mut Ledger) -> bool {
    let Some(work) = node.work.as_mut().filter(|work| work.awaiting) else { return false };
    let Some(boots) = Boots::unanswered(work) else { return false };
    Boots { answered: true, ..boots }.keep(work);
    if work.retry.take().is_some() {
        // The BMC did not answer when it was told to boot the machine again. There is no need to.
        node.last_error = None;
    }
    ledger.chores.push(Chore::NoteBoot { way: boots.way, worked: true });
    true
}

/// Whether the job still waits for the agent, as it did when it was decided to boot again.
pub(crate) fn is_awaited(node: &Node) -> bool {
    let waits = |work: &Work| work.awaiting && work.stage != Stage::CleanUp;
    rest(node.provision_state) == Rest::Waiting && node.work.as_ref().is_some_and(waits)
}

/// The machine was booted again, or could not be.
pub(crate) fn booted_again(
    node: &mut Node,
    outcome: &Outcome,
    settings: &Settings,
    now: Timestamp,
    ledger: &mut Ledger,
) {
    let way = way(node);
    let Some(before) = node.work.as_ref().and_then(Boots::of) else { return };
    tell_failed(before, ledger);
    let who = node.work.as_ref().map(awaited).unwrap_or_default();
    let silence = format!("the {who} did not call within {} s", settings.boot_retry_timeout);
    match outcome {
        Outcome::Failed(failure) | Outcome::Unreachable(_, failure) => {
            let message = format!(
                "{silence}{}, and the machine could not be booted again: {}",
                node.work.as_ref().map(|work| tried(node, work)).unwrap_or_default(),
                failure.message
            );
            fail(node, Event::Fail, &Failure::new(message), settings, now, ledger);
            return;
        }
        Outcome::Done
        | Outcome::AwaitAgent
        | Outcome::AwaitUntil(_)
        | Outcome::AwaitStep(_)
        | Outcome::Offers(_) => {}
    }
    let text = format!(
        "{silence} of booting by {}; booting again by {}",
        name(node, before.way),
        name(node, way)
    );
    ledger.happened.push(Happening::Noted { by: "boot".to_owned(), text });
    let Some(work) = &mut node.work else { return };
    work.heard = false;
    let told = way == before.way;
    let way_since = if told { before.way_since } else { now };
    let times = before.times.saturating_add(1);
    Boots { at: now, times, way, way_since, answered: false, told }.keep(work);
}

/// The job fails; if that is because the agent never called, its way of booting did not work.
pub(crate) fn gave_up(node: &Node, ledger: &mut Ledger) {
    if is_awaited(node)
        && let Some(boots) = node.work.as_ref().and_then(Boots::of)
    {
        tell_failed(boots, ledger);
    }
}

fn tell_failed(boots: Boots, ledger: &mut Ledger) {
    if !boots.answered && !boots.told {
        ledger.chores.push(Chore::NoteBoot { way: boots.way, worked: false });
    }
}

/// How often and by which ways the machine was booted in vain, if there is something to tell.
pub(crate) fn tried(node: &Node, work: &Work) -> String {
    let Some(boots) = Boots::of(work) else { return String::new() };
    let ways: Vec<String> = match node.driver_internal_info.get(BOOT_WAYS_TRIED) {
        Some(Value::Array(ways)) => {
            ways.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(_) | None => vec![name(node, boots.way).to_owned()],
    };
    match (boots.times, ways.len()) {
        (1, 1) => String::new(),
        (1, _) => format!(" after the machine was booted; tried: {}", ways.join(", ")),
        (times, _) => {
            format!(" after the machine was booted {times} times; tried: {}", ways.join(", "))
        }
    }
}

/// The way that was chosen automatically.
fn way(node: &Node) -> Option<BootWay> {
    node.driver_internal_info.get_str(BOOT_WAY)?.parse().ok()
}

/// A way in words: if it was not chosen automatically, it is as the boot interface has it.
fn name(node: &Node, way: Option<BootWay>) -> &str {
    match way {
        Some(way) => way.as_str(),
        None => node.interfaces.get(InterfaceKind::Boot).unwrap_or("its boot interface"),
    }
}
