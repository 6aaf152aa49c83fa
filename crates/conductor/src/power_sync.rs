// SPDX-License-Identifier: Apache-2.0
//! Looks at every machine's power and health, spread evenly over the interval.
//!
//! A slice of the fleet is looked at each second, each machine in a task of its own: one that does
//! not answer costs nobody else anything. What is as expected is not written.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bmc_drivers::Driver;
use lifecycle::{
    Ledger, SyncVerdict, Warming, judge_warming, power_sync, power_sync_excluded, warming,
};
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

/// What is known of the looks at machines, from one to the next.
#[derive(Clone, Default)]
pub(crate) struct Looks(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// How many looks in a row a machine has not answered, or not as it should be.
    unexpected: HashMap<NodeId, u32>,
    /// Machines that are being looked at: one that hangs is not asked a second time meanwhile.
    under_way: HashSet<NodeId>,
}

impl Looks {
    /// Begins a look, unless one is under way.
    fn begin(&self, id: NodeId) -> Option<Look> {
        let begun = self.known().under_way.insert(id);
        begun.then(|| Look { looks: self.clone(), id })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look that is under way until it is dropped.
struct Look {
    looks: Looks,
    id: NodeId,
}

impl Look {
    /// Counts how the look turned out: how many in a row were not as expected, this one included.
    fn count(&self, as_expected: bool) -> u32 {
        let mut known = self.looks.known();
        if as_expected {
            known.unexpected.remove(&self.id);
            return 0;
        }
        let in_a_row = known.unexpected.entry(self.id).or_insert(0);
        *in_a_row += 1;
        *in_a_row
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.looks.known().under_way.remove(&self.id);
    }
}

/// What was seen of a machine.
#[derive(Clone)]
struct Seen {
    power: Result<PowerState, String>,
    health: Option<Health>,
    /// Looks in a row that were not as expected.
    in_a_row: u32,
    can_put_back: bool,
}

impl Seen {
    /// What this means for `node`.
    fn judge(
        &self,
        node: &mut Node,
        rules: &lifecycle::Settings,
        ledger: &mut Ledger,
    ) -> SyncVerdict {
        let power = self.power.as_ref().map(|power| *power).map_err(String::as_str);
        power_sync(node, power, self.in_a_row, self.can_put_back, rules, ledger)
    }
}

pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = conductor.settings.sync_power_state_interval;
    if interval == 0 {
        return;
    }
    let seen_so_far = Looks::default();
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
                    looks.spawn(look(conductor.clone(), node, seen_so_far.clone()));
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
        // What a job does to the power is its own business: firmware updates switch machines off.
        && node.work.is_none()
        && node.reservation.is_none()
        && node.target_power_state.is_none()
}

/// One look at one machine.
pub(crate) async fn look(conductor: Conductor, node: Node, looks: Looks) {
    let id = node.id;
    let Some(look) = looks.begin(id) else { return };
    Tally::add(&conductor.tally.power_looks);
    let patience = Duration::from_secs(conductor.settings.power_state_timeout.max(1));
    let (power, health, can_put_back) = match see(&conductor, node.clone(), patience).await {
        // A machine whose power nobody can tell yet is left alone.
        Ok(Sighting { power: None, .. }) => return,
        Ok(Sighting { power: Some(power), health, can_put_back }) => {
            (Ok(power), health, can_put_back)
        }
        Err(error) => (Err(chain(&error)), None, false),
    };
    let as_expected = power.as_ref().is_ok_and(|power| Some(*power) == node.power_state);
    let in_a_row = look.count(as_expected);
    let seen = Seen { power, health, in_a_row, can_put_back };
    let verdict = seen.judge(&mut node.clone(), &conductor.rules, &mut Ledger::default());
    let unwell = seen.health.is_some() && seen.health != node.health;
    let warming = warming(&node, &conductor.rules, conductor.now());
    let news = unwell
        || !is_told(&node, seen.power.as_ref().err())
        || matches!(warming, Warming::Over | Warming::Overdue);
    if !news && matches!(verdict, SyncVerdict::AsExpected | SyncVerdict::TryAgain) {
        return;
    }
    if let Err(error) = write(&conductor, &node, seen).await {
        tracing::warn!(node = %id, %error, "could not write what was seen of the machine");
    }
}

/// The key of `driver_internal_info` that tells of a BMC that does not answer, before that is a
/// fault.
const SILENT: &str = "bmc_silent";

/// Whether the node tells of its BMC what is so: that it is silent for this reason, or that it is
/// not silent. Asked of every machine at every look, so the text is searched before it is parsed.
fn is_told(node: &Node, why: Option<&String>) -> bool {
    let told = if node.driver_internal_info.as_str().contains("\"bmc_silent\"") {
        node.driver_internal_info.get(SILENT)
    } else {
        None
    };
    match (told, why) {
        (None, None) => true,
        (Some(told), Some(why)) => told["why"] == **why,
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Tells since when and why the BMC does not answer, or nothing more of it.
fn tell_silence(node: &mut Node, why: Option<&String>, now: Timestamp) {
    if is_told(node, why) {
        return;
    }
    match why {
        None => node.driver_internal_info.remove(SILENT),
        Some(why) => {
            let before = node.driver_internal_info.get(SILENT);
            let since = before.and_then(|told| told["since"].as_str().map(str::to_owned));
            let since = since.unwrap_or_else(|| now.to_string());
            node.driver_internal_info.set(SILENT, json!({"since": since, "why": why}));
        }
    }
}

/// What a machine answers when it is asked how it is.
struct Sighting {
    power: Option<PowerState>,
    health: Option<Health>,
    can_put_back: bool,
}

async fn see(conductor: &Conductor, node: Node, patience: Duration) -> Result<Sighting, Error> {
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
    let can_put_back = driver.power().supports_sync();
    Ok(Sighting { power, health: health.ok().flatten(), can_put_back })
}

/// Health is an extra: a BMC that cannot tell it is not a fault.
async fn health(driver: &Driver, target: &bmc_drivers::Target<'_>) -> Option<Health> {
    driver.management().health(target).await.ok().flatten()
}

/// Looks at the node again inside a transaction and writes what follows; nothing if the node has
/// changed since the machine was looked at, for then what was seen may be old.
async fn write(conductor: &Conductor, before: &Node, seen: Seen) -> Result<(), store::Error> {
    let conductor = conductor.clone();
    let store = conductor.store.clone();
    let (id, looked_at) = (before.id, before.updated_at);
    store
        .write(move |tx| {
            let Some(mut node) = tx.get(id)? else { return Ok(()) };
            if !is_watched(&node) || node.updated_at != looked_at {
                return Ok(());
            }
            let mut ledger = Ledger::default();
            if seen.health.is_some() {
                node.health = seen.health;
            }
            tell_silence(&mut node, seen.power.as_ref().err(), tx.now());
            judge_warming(&mut node, &conductor.rules, tx.now(), &mut ledger);
            let verdict = seen.judge(&mut node, &conductor.rules, &mut ledger);
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
