// SPDX-License-Identifier: Apache-2.0
//! Takes one node through decide, act, record until there is nothing left to do.
//!
//! Each round is one transaction (load, fold in the outcome, decide, save) and one action outside
//! of it. The lease is renewed while an action runs; if it is lost, somebody else has the node, and
//! nothing of ours is written any more.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bmc_drivers::NodeChanges;
use lifecycle::{
    Action, Failure, Ledger, Next, Offers, Outcome, agent_ended, is_still_going_on, record, settle,
};
use node_model::{Happening, Node, NodeId, Stage, StepFlow, Timestamp, Work, holds_secret};
use store::{Lease, Writer};

use crate::act::{Done, act, chain};
use crate::handle::Tally;
use crate::held::{bmc_calls, report_interrupted};
use crate::ledger::write_ledger;
use crate::sight::{Belongings, Sight};
use crate::{Conductor, hardware, offers};

/// Runs `node` until it rests or waits, and answers when it wants to be looked at next.
pub(crate) async fn run(conductor: &Conductor, node: NodeId) -> Option<Timestamp> {
    conductor.tally.running.fetch_add(1, Ordering::Relaxed);
    let ended = run_until_rest(conductor, node).await;
    conductor.tally.running.fetch_sub(1, Ordering::Relaxed);
    match ended {
        Ok(due) => due,
        Err(store::Error::LeaseLost) => {
            tracing::warn!(%node, "the lease was lost; another process has the node");
            None
        }
        Err(error) => {
            tracing::error!(%node, error = chain(&error), "work on the node stopped; it is taken up again");
            None
        }
    }
}

/// What a round of deciding ended with.
enum Round {
    /// Carry this out.
    Act(Lease, Box<Sight>, Action),
    /// Nothing to do before this moment, or until something happens.
    Rest(Option<Timestamp>),
}

/// When an action began, and how long it took.
#[derive(Clone, Copy)]
struct Took {
    began: Timestamp,
    time: Duration,
}

async fn run_until_rest(
    conductor: &Conductor,
    id: NodeId,
) -> Result<Option<Timestamp>, store::Error> {
    let mut round = begin(conductor, id).await?;
    loop {
        let (lease, sight, action) = match round {
            Round::Act(lease, sight, action) => (lease, sight, action),
            Round::Rest(due) => return Ok(due),
        };
        let (began, started) = (conductor.now(), Instant::now());
        let calls = Arc::default();
        let acting = act(conductor, &sight, &action, &calls);
        let (outcome, mut done) = holding(conductor, lease, acting).await?;
        done.calls = bmc_calls(&calls);
        let requests = done.found.as_mut().map(|found| found.take_calls()).unwrap_or_default();
        let took = Took { began, time: started.elapsed() };
        tell(conductor, &sight.node, &action, &outcome, took.time);
        let belongings = &sight.belongings;
        let recorded =
            finish(conductor, lease, Arc::clone(belongings), action.clone(), outcome, done, took);
        round = match recorded.await {
            Err(error) if is_about_the_data(&error) => {
                // Recording the same again would fail the same: the job ends, and says why.
                let why = format!("what the machine answered could not be kept: {}", chain(&error));
                let failed = Outcome::Failed(Failure::new(why));
                let (known, done) = (Arc::clone(belongings), Done::default());
                finish(conductor, lease, known, action, failed, done, took).await?
            }
            recorded => {
                let next = recorded?;
                conductor.make_calls(sight.node.id, requests);
                next
            }
        };
    }
}

/// Whether a store refuses because of what it was given, and will refuse it again.
const fn is_about_the_data(error: &store::Error) -> bool {
    matches!(
        error,
        store::Error::Duplicate { .. } | store::Error::Reference | store::Error::Unfit { .. }
    )
}

/// Claims the node and decides what to do first.
async fn begin(conductor: &Conductor, id: NodeId) -> Result<Round, store::Error> {
    let conductor = conductor.clone();
    let store = conductor.store.clone();
    store
        .write(move |tx| {
            let Some(node) = tx.get(id)? else { return Ok(Round::Rest(None)) };
            if !conductor.can_drive(&node) {
                return Ok(Round::Rest(None));
            }
            let Some(lease) = tx.claim(id, &conductor.owner, conductor.lease_time())? else {
                return Ok(Round::Rest(None));
            };
            let node = report_interrupted(tx, node, &conductor)?;
            decide(&conductor, tx, lease, node, None, Ledger::default())
        })
        .await
}

/// Records how an action turned out and decides what to do next.
async fn finish(
    conductor: &Conductor,
    lease: Lease,
    belongings: Arc<Belongings>,
    action: Action,
    outcome: Outcome,
    done: Done,
    took: Took,
) -> Result<Round, store::Error> {
    let conductor = conductor.clone();
    let store = conductor.store.clone();
    let took_ms = u64::try_from(took.time.as_millis()).unwrap_or(u64::MAX);
    store
        .write(move |tx| {
            let Some(mut node) = tx.get(lease.node)? else { return Ok(Round::Rest(None)) };
            let now = tx.now();
            let progress = progress(&node);
            let power = node.power_state;
            write_changes(tx, &mut node, &done.changes)?;
            // What it becomes, and from what, is for `record` to say.
            if matches!(action, Action::SetPower { .. }) {
                node.power_state = power;
            }
            hardware::write_findings(tx, &mut node, &done.found, conductor.hostname())?;
            for child in &done.children {
                write_child(tx, child.0, &child.1)?;
            }
            if let Some(logs) = &done.logs {
                let failed = node.work.as_ref().is_some_and(|work| work.stage == Stage::CleanUp);
                let why = node.last_error.as_deref().filter(|_| failed);
                logs.keep(&conductor, tx, node.id, why)?;
            }
            let mut ledger = Ledger::default();
            if done.changes.agent_is_gone {
                agent_ended(&mut node, took.began, &mut ledger);
            }
            if !is_still_going_on(&action, &outcome) {
                ledger.happened.extend(done.calls.clone());
            }
            ledger.happened.extend(made_progress(&node, progress.as_deref()));
            ledger.append(record(&mut node, &action, &outcome, took_ms, &conductor.rules, now));
            hardware::power_follows(tx, &node, &action, &outcome, &conductor)?;
            // Inspection may just have made new ports.
            let known = (action != Action::Inspect).then_some(&belongings);
            decide(&conductor, tx, lease, node, known, ledger)
        })
        .await
}

/// How far the driver says the current step has come.
fn progress(node: &Node) -> Option<String> {
    node.work.as_ref()?.notes.get_str("progress")
}

/// What to tell if the step has come further than `before`.
fn made_progress(node: &Node, before: Option<&str>) -> Option<Happening> {
    let text = progress(node).filter(|now| Some(now.as_str()) != before)?;
    let by = node.work.as_ref().and_then(Work::current_step)?.qualified();
    Some(Happening::Noted { by, text })
}

fn decide(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    lease: Lease,
    mut node: Node,
    belongings: Option<&Arc<Belongings>>,
    mut ledger: Ledger,
) -> Result<Round, store::Error> {
    let now = tx.now();
    let mut next = settle(&mut node, &conductor.rules, now, &mut ledger);
    // What a driver offers is known without asking the machine: no round is spent on it.
    while let Next::Act(action @ Action::ListSteps(flow)) = &next {
        let outcome = match conductor.registry.compose(&node) {
            Ok(driver) => match offers::of_driver(&driver, *flow) {
                offers if agent_has_more(&node, *flow, &offers) => break,
                offers => Outcome::Offers(offers),
            },
            Err(error) => Outcome::Failed(Failure::new(chain(&error))),
        };
        let told = record(&mut node, action, &outcome, 0, &conductor.rules, now);
        ledger.append(told);
        next = settle(&mut node, &conductor.rules, now, &mut ledger);
    }
    write_ledger(tx, &mut node, ledger, &conductor.actor(), &conductor.owner.hostname)?;
    tx.save_fenced(&mut node, &lease)?;
    let due = match next {
        Next::Act(action) => {
            let sight = match belongings {
                Some(known) => Sight::again(tx, node, known)?,
                None => Sight::of(tx, node)?,
            };
            return Ok(Round::Act(lease, Box::new(sight), action));
        }
        Next::Wait(_, due) => due,
        Next::Rest => None,
    };
    tx.release(&lease)?;
    Ok(Round::Rest(due))
}

/// Whether the agent has to be asked for its steps. In a deployment it is not up yet when steps are
/// first listed; it is asked when it is.
fn agent_has_more(node: &Node, flow: StepFlow, offers: &Offers) -> bool {
    let with_ramdisk = node.work.as_ref().is_some_and(|work| !work.disable_ramdisk);
    let is_up = match flow {
        StepFlow::Clean | StepFlow::Service => true,
        StepFlow::Deploy | StepFlow::Verify => false,
    };
    is_up && with_ramdisk && !offers.open.is_empty()
}

/// Writes what a driver wants changed. Objects that may hold secrets are sealed again.
pub(crate) fn write_changes(
    tx: &mut Writer<'_>,
    node: &mut Node,
    changes: &NodeChanges,
) -> Result<(), store::Error> {
    let sealed =
        holds_secret(&changes.instance_info) || holds_secret(&changes.driver_internal_info);
    if sealed {
        let mut secrets = tx.reveal(node)?;
        merge(&mut secrets.instance_info, &changes.instance_info);
        merge(&mut secrets.driver_internal_info, &changes.driver_internal_info);
        let rest = NodeChanges {
            instance_info: serde_json::Map::new(),
            driver_internal_info: serde_json::Map::new(),
            ..changes.clone()
        };
        rest.apply_to(node);
        tx.seal_node(node, secrets)?;
    } else {
        changes.apply_to(node);
    }
    hardware::write_tables(tx, node.id, changes)
}

fn merge(
    into: &mut serde_json::Map<String, serde_json::Value>,
    from: &serde_json::Map<String, serde_json::Value>,
) {
    for (key, value) in from {
        if value.is_null() {
            into.remove(key);
        } else {
            into.insert(key.clone(), value.clone());
        }
    }
}

/// Writes what a step did to a child of the node it was run for.
fn write_child(tx: &mut Writer<'_>, id: NodeId, changes: &NodeChanges) -> Result<(), store::Error> {
    if let Some(mut child) = tx.get(id)? {
        write_changes(tx, &mut child, changes)?;
        tx.save(&mut child)?;
    }
    Ok(())
}

/// Awaits `work` and keeps the lease alive meanwhile.
pub(crate) async fn holding<T>(
    conductor: &Conductor,
    lease: Lease,
    work: impl Future<Output = T>,
) -> Result<T, store::Error> {
    let ttl = conductor.lease_time();
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(ttl / 3) => {
                match conductor.store.write(move |tx| tx.renew(&lease, ttl)).await {
                    Ok(true) => {}
                    Ok(false) => return Err(store::Error::LeaseLost),
                    // Two thirds of the lease are left: the database may be back by then, and what
                    // the machine is doing must not be thrown away for a moment's absence.
                    Err(error) => tracing::warn!(node = %lease.node, %error, "cannot renew the lease"),
                }
            }
        }
    }
}

fn tell(conductor: &Conductor, node: &Node, action: &Action, outcome: &Outcome, took: Duration) {
    Tally::add(&conductor.tally.actions);
    match outcome {
        Outcome::Failed(failure) | Outcome::Unreachable(_, failure) => {
            Tally::add(&conductor.tally.failures);
            tracing::warn!(node = %node.id, %action, ?took, error = %failure.message, "failed");
        }
        Outcome::Done
        | Outcome::Offers(_)
        | Outcome::AwaitAgent
        | Outcome::AwaitStep(_)
        | Outcome::AwaitUntil(_) => {
            tracing::debug!(node = %node.id, %action, ?took, "done");
        }
    }
}
