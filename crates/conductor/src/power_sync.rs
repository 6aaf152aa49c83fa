// SPDX-License-Identifier: Apache-2.0
//! Looks at every machine's power and health, spread evenly over the interval.
//!
//! A slice of the fleet is looked at each second, each machine in a task of its own: one that does
//! not answer costs nobody else anything. What is as expected is not written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bmc_drivers::Driver;
use lifecycle::{Ledger, SyncVerdict, power_sync, power_sync_excluded};
use node_model::{Fault, Health, Node, NodeId, PowerRequest, PowerState, PowerTarget, Timestamp};
use serde_json::json;
use store::{Columns, NodeFilter};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::act::chain;
use crate::handle::Tally;
use crate::ledger::write_ledger;
use crate::sight::{Sight, alive_conductors, conductor_of};
use crate::{Conductor, Error};

/// How many looks in a row a machine has not answered, or not as it should be.
pub(crate) type Failures = Arc<Mutex<HashMap<NodeId, u32>>>;

pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = conductor.settings.sync_power_state_interval;
    if interval == 0 {
        return;
    }
    let failures = Failures::default();
    let mut looks = JoinSet::new();
    let mut after = 0;
    let mut slice = 1;
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            _ = stopping.changed() => return,
        }
        while looks.try_join_next().is_some() {}
        if after == 0 {
            slice = slice_of(&conductor, interval).await;
        }
        match read_slice(&conductor, after, slice).await {
            Ok((nodes, next)) => {
                for node in nodes {
                    looks.spawn(look(conductor.clone(), node, failures.clone()));
                }
                after = next.unwrap_or(0);
            }
            Err(error) => tracing::warn!(%error, "could not read the nodes to look at"),
        }
    }
}

/// How many nodes to look at each second so that all are looked at once per interval.
async fn slice_of(conductor: &Conductor, interval: u64) -> u32 {
    let count = conductor
        .store
        .read(|reader| reader.count::<Node>(&NodeFilter::default()))
        .await
        .unwrap_or_default();
    u32::try_from(count.div_ceil(interval)).unwrap_or(u32::MAX).max(1)
}

async fn read_slice(
    conductor: &Conductor,
    after: i64,
    limit: u32,
) -> Result<(Vec<Node>, Option<i64>), store::Error> {
    let store = conductor.store.clone();
    let conductor = conductor.clone();
    store
        .read(move |reader| {
            let mut nodes = Vec::new();
            let alive = alive_conductors(reader, &conductor.settings)?;
            let me = conductor.hostname();
            let next = reader.nodes_after(after, limit, Columns::ALL, |node| {
                // Each machine is looked at by one of the processes that share a database.
                if is_watched(node) && conductor_of(node, &alive) == Some(me) {
                    nodes.push(node.clone());
                }
            })?;
            Ok((nodes, next))
        })
        .await
}

/// Whether the node is one whose power should be as we last knew it.
fn is_watched(node: &Node) -> bool {
    let left_alone = node.maintenance && node.fault != Some(Fault::Power);
    !left_alone
        && !power_sync_excluded(node.provision_state)
        && node.reservation.is_none()
        && node.target_power_state.is_none()
}

/// One look at one machine.
pub(crate) async fn look(conductor: Conductor, node: Node, failures: Failures) {
    let id = node.id;
    Tally::add(&conductor.tally.power_looks);
    let patience = Duration::from_secs(conductor.settings.power_state_timeout.max(1));
    let seen = see(&conductor, node.clone(), patience).await;
    let as_expected =
        matches!(&seen, Ok((power, _)) if power.is_none() || *power == node.power_state);
    let in_a_row = count(&failures, id, as_expected);
    let (power, health) = match &seen {
        // A machine whose power nobody can tell yet is left alone.
        Ok((None, _)) => return,
        Ok((Some(power), health)) => (Ok(*power), *health),
        Err(error) => (Err(chain(error)), None),
    };
    let mut imagined = node.clone();
    let verdict = power_sync(
        &mut imagined,
        power.as_ref().map(|power| *power).map_err(String::as_str),
        in_a_row,
        &conductor.rules,
        &mut Ledger::default(),
    );
    let unwell = health.is_some() && health != node.health;
    let news = unwell || power.is_err() != is_noted_silent(&node);
    if !news && matches!(verdict, SyncVerdict::AsExpected | SyncVerdict::TryAgain) {
        return;
    }
    if let Err(error) = write(&conductor, id, power, health, in_a_row).await {
        tracing::warn!(node = %id, %error, "could not write what was seen of the machine");
    }
}

/// The key of `driver_internal_info` that tells of a BMC that does not answer, before that is a
/// fault.
const SILENT: &str = "bmc_silent";

/// Asked of every machine at every look, so the text is searched rather than parsed.
fn is_noted_silent(node: &Node) -> bool {
    node.driver_internal_info.as_str().contains("\"bmc_silent\"")
}

/// Notes since when and why the BMC does not answer, or that it does again.
fn note_silence(node: &mut Node, why: Option<&String>, now: Timestamp) {
    match why {
        None if is_noted_silent(node) => node.driver_internal_info.remove(SILENT),
        Some(why) if !is_noted_silent(node) => {
            let note = json!({"since": now.to_string(), "why": why});
            node.driver_internal_info.set(SILENT, note);
        }
        None | Some(_) => {}
    }
}

async fn see(
    conductor: &Conductor,
    node: Node,
    patience: Duration,
) -> Result<(Option<PowerState>, Option<Health>), Error> {
    let sight = conductor.store.read(move |reader| Sight::of(reader, node)).await?;
    let driver = sight.driver(&conductor.registry)?;
    let target = sight.target(&driver, conductor.now());
    let power = tokio::time::timeout(patience, driver.power().get(&target)).await;
    let power = power.map_err(|_| Error::Invalid {
        node: sight.node.label(),
        why: format!("the BMC did not answer within {} s", patience.as_secs()),
    })?;
    let power = power.map_err(|source| sight.failed(source))?;
    let health = tokio::time::timeout(patience, health(&driver, &target)).await;
    Ok((power, health.ok().flatten()))
}

/// Health is an extra: a BMC that cannot tell it is not a fault.
async fn health(driver: &Driver, target: &bmc_drivers::Target<'_>) -> Option<Health> {
    driver.management().health(target).await.ok().flatten()
}

fn count(failures: &Failures, id: NodeId, answered: bool) -> u32 {
    let mut failures = failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if answered {
        failures.remove(&id);
        return 0;
    }
    let in_a_row = failures.entry(id).or_insert(0);
    *in_a_row += 1;
    *in_a_row
}

/// Looks at the node again inside a transaction, since it may have changed meanwhile, and writes
/// what follows.
async fn write(
    conductor: &Conductor,
    id: NodeId,
    power: Result<PowerState, String>,
    health: Option<Health>,
    in_a_row: u32,
) -> Result<(), store::Error> {
    let conductor = conductor.clone();
    let store = conductor.store.clone();
    store
        .write(move |tx| {
            let Some(mut node) = tx.get(id)? else { return Ok(()) };
            if !is_watched(&node) {
                return Ok(());
            }
            let mut ledger = Ledger::default();
            if health.is_some() {
                node.health = health;
            }
            note_silence(&mut node, power.as_ref().err(), tx.now());
            let verdict = power_sync(
                &mut node,
                power.as_ref().map(|power| *power).map_err(String::as_str),
                in_a_row,
                &conductor.rules,
                &mut ledger,
            );
            if let SyncVerdict::PutBack(target) = verdict {
                put_back(&mut node, target, tx.now(), &conductor);
                tx.wake(id);
            }
            write_ledger(tx, &mut node, ledger, &conductor.actor(), &conductor.owner.hostname)?;
            tx.save(&mut node)
        })
        .await
}

/// Asks for the state the machine should be in, as a user would.
fn put_back(node: &mut Node, target: PowerTarget, now: Timestamp, conductor: &Conductor) {
    node.target_power_state = Some(target.state());
    node.power_request = Some(PowerRequest {
        target,
        timeout: None,
        asked_at: now,
        asked_by: conductor.actor(),
        retry: None,
    });
    node.due_at = Some(now);
}
