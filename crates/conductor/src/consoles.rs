// SPDX-License-Identifier: Apache-2.0
//! Consoles that are on stay on: after a start, and when the process that served them is gone.
//!
//! A node says which process serves its console, and that decides: two who hold a serial line take it
//! from each other. Requests and jobs are carried out by whichever process gets them; one that finds
//! another named, or nobody, leaves the console within two signs of life.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bmc_drivers::{ConsoleFeed, Driver, NodeChanges, Target};
use node_model::{ConductorInfo, Node, NodeId};
use serde_json::Value;
use store::Columns;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::act::chain;
use crate::sight::{Sight, alive_conductors, conductor_of};
use crate::{Conductor, Error};

/// Where a node says which process serves its console, in `driver_internal_info`.
const SERVED_BY: &str = "console_served_by";
/// Nodes read in one piece.
const SLICE: u32 = 500;
/// Consoles started at a time: each opens a session with a BMC.
const AT_A_TIME: usize = 32;
/// Every so many signs of life a process looks that is alone: nobody else switches anything.
const ALONE_EVERY: u32 = 6;

impl Conductor {
    /// What a node's console says and takes, if it is on and this process serves it.
    pub async fn console_feed(&self, id: NodeId) -> Result<ConsoleFeed, Error> {
        let this = self.clone();
        let found = self.store.read(move |reader| {
            let Some(node): Option<Node> = reader.get(id)? else {
                return Err(Error::NoSuchNode(id.to_string()));
            };
            let alive = alive_conductors(reader, &this.settings)?;
            let server = served_by(&node);
            let is_alive = alive.iter().any(|known| server.as_ref() == Some(&known.hostname));
            Ok((node.console_enabled, server, is_alive))
        });
        let (is_on, server, is_alive) = found.await?;
        if !is_on {
            return Err(Error::Conflict(format!(
                "The console of node {id} is off. Switch it on first: PUT \
                 /v1/nodes/{id}/states/console."
            )));
        }
        match server {
            // Whoever is not named may still have what another tenant saw.
            Some(server) if server == self.hostname() => {
                self.registry.console_feed(id).ok_or_else(|| being_started(id))
            }
            Some(server) if is_alive => Err(Error::Conflict(format!(
                "The console of node {id} is not served by this process, {}. Ask the one that \
                 serves it: {server:?}.",
                self.hostname()
            ))),
            Some(_) => Err(being_started(id)),
            None => Err(Error::Conflict(format!(
                "The console of node {id} is on, but there is no text of it: its console interface \
                 has none, or it went with the last instance and comes back with the next."
            ))),
        }
    }
}

fn being_started(id: NodeId) -> Error {
    Error::NotYet(format!(
        "The console of node {id} is on, and is just being started. Try again in a moment."
    ))
}

/// Switches a console on, to be served by this process.
pub(crate) async fn switch_on(
    conductor: &Conductor,
    driver: &Driver,
    target: &Target<'_>,
) -> Result<NodeChanges, bmc_drivers::Error> {
    let changes = driver.console().start(target).await?;
    // Some have nothing that would have to be served.
    let is_served = conductor.registry.console_feed(target.node.id).is_some();
    let server = is_served.then(|| conductor.hostname());
    Ok(changes.and(NodeChanges::remember(SERVED_BY, server)))
}

/// Switches a console off. If another process serves it, that one leaves it.
pub(crate) async fn switch_off(
    driver: &Driver,
    target: &Target<'_>,
) -> Result<NodeChanges, bmc_drivers::Error> {
    let changes = driver.console().stop(target).await?;
    Ok(changes.and(nobody_serves()))
}

/// What a node says whose console is served by nobody.
pub(crate) fn nobody_serves() -> NodeChanges {
    NodeChanges::remember(SERVED_BY, Value::Null)
}

/// Writes down at once what became of a console in the course of a job, which may take long.
pub(crate) async fn tell_others(conductor: &Conductor, id: NodeId, changes: &NodeChanges) {
    let changes = changes.clone();
    let written = conductor.store.write(move |tx| {
        let Some(mut node): Option<Node> = tx.get(id)? else { return Ok(()) };
        changes.apply_to(&mut node);
        tx.save(&mut node)
    });
    if let Err(error) = written.await {
        // It is written again when the job is done.
        tracing::warn!(node = %id, %error, "who serves its console is not written down yet");
    }
}

/// Starts the consoles that this process looks after: now, and whenever processes come or go, for
/// then others may be its own. Starting one that runs changes nothing. Those that another serves, or
/// nobody, are left.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = Duration::from_secs(conductor.settings.heartbeat_interval.max(1));
    let mut company = None;
    let mut doubtful = HashSet::new();
    let mut round = 0;
    loop {
        let alive = alive(&conductor).await;
        if alive.is_some() && alive != company {
            tokio::select! {
                is_done = restart(&conductor) => if is_done { company = alive },
                _ = stopping.changed() => return,
            }
        }
        let is_alone = company.as_ref().is_some_and(|all: &Vec<String>| all.len() < 2);
        if !is_alone || round % ALONE_EVERY == 0 {
            leave_others(&conductor, &mut doubtful).await;
        }
        round = round.wrapping_add(1);
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stopping.changed() => return,
        }
    }
}

/// Leaves the consoles that are off, or whose nodes do not name this process or are gone. While this
/// process works on a node, its console may just be being started: it must be seen so twice.
pub(crate) async fn leave_others(conductor: &Conductor, doubtful: &mut HashSet<NodeId>) {
    let served = conductor.registry.consoles_served();
    if served.is_empty() {
        doubtful.clear();
        return;
    }
    let this = conductor.clone();
    let looked = conductor.store.scan(move |reader| {
        let us = Some(this.hostname());
        let (mut maybe, mut others) = (HashSet::new(), Vec::new());
        for id in served {
            let node: Option<Node> = reader.get(id)?;
            match node {
                Some(node) if node.console_enabled && served_by(&node).as_deref() == us => {}
                Some(node) if node.reservation.as_deref() == us => {
                    maybe.insert(id);
                }
                Some(_) | None => others.push(id),
            }
        }
        Ok::<_, store::Error>((maybe, others))
    });
    let (maybe, others) = match looked.await {
        Ok(looked) => looked,
        Err(error) => {
            tracing::warn!(%error, "could not read which consoles are still on");
            return;
        }
    };
    for id in maybe.intersection(doubtful).chain(&others) {
        conductor.registry.leave_console(*id).await;
    }
    *doubtful = maybe;
}

/// The processes that share the database; none if that cannot be read now.
async fn alive(conductor: &Conductor) -> Option<Vec<String>> {
    let this = conductor.clone();
    let alive = conductor.store.read(move |reader| alive_conductors(reader, &this.settings)).await;
    Some(alive.ok()?.into_iter().map(|known| known.hostname).collect())
}

/// Starts what is to be served by this process; false if not all could be looked at.
pub(crate) async fn restart(conductor: &Conductor) -> bool {
    let slots = Arc::new(Semaphore::new(AT_A_TIME));
    let mut starting = JoinSet::new();
    let mut after = 0;
    loop {
        let (nodes, next) = match read_slice(conductor, after).await {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(%error, "could not read which consoles are on");
                return false;
            }
        };
        for node in nodes {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return false };
            let conductor = conductor.clone();
            starting.spawn(async move {
                let (id, _slot) = (node.id, slot);
                if let Err(error) = start(&conductor, node).await {
                    tracing::warn!(node = %id, error = chain(&error), "its console is not back");
                }
            });
        }
        let Some(next) = next else { break };
        after = next;
    }
    while starting.join_next().await.is_some() {}
    true
}

async fn read_slice(
    conductor: &Conductor,
    after: i64,
) -> Result<(Vec<Node>, Option<i64>), store::Error> {
    let conductor = conductor.clone();
    let store = conductor.store.clone();
    store
        .scan(move |reader| {
            let alive = alive_conductors(reader, &conductor.settings)?;
            let mut nodes = Vec::new();
            let next = reader.nodes_after(after, SLICE, Columns::ALL, |node| {
                if node.console_enabled && is_ours(node, &alive, conductor.hostname()) {
                    nodes.push(node.clone());
                }
            })?;
            Ok((nodes, next))
        })
        .await
}

/// Whether this process, `us`, is to serve a console: it did, or nobody who is alive does and it
/// looks after the machine.
fn is_ours(node: &Node, alive: &[ConductorInfo], us: &str) -> bool {
    match served_by(node) {
        Some(server) if server == us => true,
        Some(server) if alive.iter().any(|known| known.hostname == server) => false,
        Some(_) | None => conductor_of(node, alive) == Some(us),
    }
}

/// Starts the console of a node as it was read, which may be a while ago.
pub(crate) async fn start(conductor: &Conductor, node: Node) -> Result<(), Error> {
    let (id, seen) = (node.id, served_by(&node));
    let sight = conductor.store.read(move |reader| Sight::of(reader, node)).await?;
    let driver = sight.driver(&conductor.registry)?;
    let target = sight.target(&driver, conductor.now());
    let started = switch_on(conductor, &driver, &target).await;
    let changes = started.map_err(|source| sight.failed(source))?;
    let us = conductor.hostname().to_owned();
    let written = conductor.store.write(move |tx| {
        let Some(mut node): Option<Node> = tx.get(id)? else { return Ok(false) };
        let server = served_by(&node);
        let is_as_seen = server == seen || server.as_ref() == Some(&us);
        if !node.console_enabled || !is_as_seen {
            return Ok(false);
        }
        let before = node.driver_internal_info.clone();
        changes.apply_to(&mut node);
        if node.driver_internal_info != before {
            tx.save(&mut node)?;
        }
        Ok::<_, store::Error>(true)
    });
    if !written.await? {
        conductor.registry.leave_console(id).await;
    }
    Ok(())
}

fn served_by(node: &Node) -> Option<String> {
    match node.driver_internal_info.get(SERVED_BY)? {
        Value::String(hostname) => Some(hostname),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
}
