// SPDX-License-Identifier: Apache-2.0
//! Keeps enabled consoles running: after a start, and when the process that served them is gone.
//!
//! The node records which process serves its console, because two processes on one serial line would
//! disconnect each other. Requests and jobs are run by any process; a process that finds another one
//! recorded, or none, stops serving the console within two heartbeat intervals.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use drivers::{ConsoleFeed, Driver, DriverError, DriverTarget, NodeChanges};
use node_model::{ConductorInfo, Node, NodeId};
use serde_json::Value;
use store::Columns;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::error::error_text;
use crate::hash_ring::{alive_conductors, conductor_of};
use crate::node_snapshot::NodeSnapshot;
use crate::{Conductor, ConductorError};

/// The key of `driver_internal_info` with the process that serves the console.
const SERVED_BY: &str = "console_served_by";
/// The number of nodes read in one transaction.
const BATCH_SIZE: u32 = 500;
/// The number of consoles started at a time: each opens a session with a BMC.
const MAX_CONCURRENT_STARTS: usize = 32;
/// A process without others releases consoles only every so many intervals: no other process can
/// have taken one over.
const ALONE_ROUNDS: u32 = 6;

impl Conductor {
    /// Stops serving the console of a deleted node. Does nothing if this process does not serve it.
    pub async fn release_console(&self, id: NodeId) {
        self.registry.release_console(id).await;
    }

    /// The nodes whose consoles this process serves.
    #[must_use]
    pub fn served_consoles(&self) -> Vec<NodeId> {
        self.registry.consoles_served()
    }

    /// The console of a node. Fails if it is disabled or if another process serves it.
    pub(crate) async fn console_feed(&self, id: NodeId) -> Result<ConsoleFeed, ConductorError> {
        let this = self.clone();
        let read = self.store.read(move |reader| {
            let Some(node): Option<Node> = reader.get(id)? else {
                return Err(ConductorError::NoSuchNode(id.to_string()));
            };
            let alive = alive_conductors(reader, &this.settings)?;
            let server = served_by(&node);
            let is_alive = alive.iter().any(|known| server.as_ref() == Some(&known.hostname));
            Ok((node.console_enabled, server, is_alive))
        });
        let (is_enabled, server, is_alive) = read.await?;
        if !is_enabled {
            return Err(ConductorError::Conflict(format!(
                "The console of node {id} is disabled. Enable it first: PUT \
                 /v1/nodes/{id}/states/console."
            )));
        }
        match server {
            // A process that is not recorded may still have the output of another tenant.
            Some(server) if server == self.hostname() => {
                self.registry.console_feed(id).ok_or_else(|| console_starting(id))
            }
            Some(server) if is_alive => Err(ConductorError::Conflict(format!(
                "The console of node {id} is not served by this process, {}. Connect to the process \
                 that serves it: {server:?}.",
                self.hostname()
            ))),
            Some(_) => Err(console_starting(id)),
            None => Err(ConductorError::Conflict(format!(
                "The console of node {id} is enabled, but has no text: its console interface \
                 provides none, or it was stopped with the last instance and starts with the next."
            ))),
        }
    }
}

fn console_starting(id: NodeId) -> ConductorError {
    ConductorError::NotYet(format!("The console of node {id} is starting. Retry later."))
}

/// Starts a console in this process.
pub(crate) async fn switch_on(
    conductor: &Conductor,
    driver: &Driver,
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, DriverError> {
    let changes = driver.console().start(target).await?;
    // Some console interfaces need no serving process.
    let is_served = conductor.registry.console_feed(target.node.id).is_some();
    let server = is_served.then(|| conductor.hostname());
    Ok(changes.and(NodeChanges::internal_info(SERVED_BY, server)))
}

/// Stops a console. If another process serves it, that one stops serving it.
pub(crate) async fn switch_off(
    driver: &Driver,
    target: &DriverTarget<'_>,
) -> Result<NodeChanges, DriverError> {
    let changes = driver.console().stop(target).await?;
    Ok(changes.and(clear_server()))
}

/// Records that no process serves the console.
pub(crate) fn clear_server() -> NodeChanges {
    NodeChanges::internal_info(SERVED_BY, Value::Null)
}

/// Stores the serving process immediately, because the running action may take long.
pub(crate) async fn publish_server(conductor: &Conductor, id: NodeId, changes: &NodeChanges) {
    let changes = changes.clone();
    let written = conductor.store.write(move |tx| {
        let Some(mut node): Option<Node> = tx.get(id)? else { return Ok(()) };
        changes.apply_to(&mut node);
        tx.save(&mut node)
    });
    if let Err(error) = written.await {
        // It is stored again with the outcome of the action.
        tracing::warn!(node = %id, error = error_text(&error), "console server could not be stored");
    }
}

/// Starts the consoles of this process now and whenever processes come or leave, and releases those
/// that another process serves. Starting a running console changes nothing.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = Duration::from_secs(conductor.settings.heartbeat_interval.max(1));
    let mut known_processes = None;
    let mut suspects = HashSet::new();
    let mut round = 0;
    loop {
        let processes = alive_processes(&conductor).await;
        if processes.is_some() && processes != known_processes {
            tokio::select! {
                biased;
                is_complete = start_all(&conductor) => {
                    if is_complete {
                        known_processes = processes;
                    }
                }
                _ = stopping.changed() => return,
            }
        }
        let is_alone = known_processes.as_ref().is_some_and(|all: &Vec<String>| all.len() < 2);
        if !is_alone || round % ALONE_ROUNDS == 0 {
            release_others(&conductor, &mut suspects).await;
        }
        round = round.wrapping_add(1);
        tokio::select! {
            biased;
            () = tokio::time::sleep(interval) => {}
            _ = stopping.changed() => return,
        }
    }
}

/// Releases the consoles that are disabled, that another process serves, or whose node is gone. While
/// this process works on a node, its console may just be starting: it is released only if it is found
/// in `suspects`, the result of the previous round.
pub(crate) async fn release_others(conductor: &Conductor, suspects: &mut HashSet<NodeId>) {
    let served = conductor.served_consoles();
    if served.is_empty() {
        suspects.clear();
        return;
    }
    let this = conductor.clone();
    let read = conductor.store.scan(move |reader| {
        let us = Some(this.hostname());
        let (mut uncertain, mut others) = (HashSet::new(), Vec::new());
        for id in served {
            let node: Option<Node> = reader.get(id)?;
            match node {
                Some(node) if node.console_enabled && served_by(&node).as_deref() == us => {}
                Some(node) if node.reservation.as_deref() == us => {
                    uncertain.insert(id);
                }
                Some(_) | None => others.push(id),
            }
        }
        Ok::<_, store::StoreError>((uncertain, others))
    });
    let (uncertain, others) = match read.await {
        Ok(read) => read,
        Err(error) => {
            tracing::warn!(error = error_text(&error), "served consoles could not be checked");
            return;
        }
    };
    for id in uncertain.intersection(suspects).chain(&others) {
        conductor.registry.release_console(*id).await;
    }
    *suspects = uncertain;
}

/// The processes that share the database; `None` if it cannot be read.
async fn alive_processes(conductor: &Conductor) -> Option<Vec<String>> {
    let this = conductor.clone();
    let alive = conductor.store.read(move |reader| alive_conductors(reader, &this.settings)).await;
    Some(alive.ok()?.into_iter().map(|known| known.hostname).collect())
}

/// Starts the consoles that this process has to serve. Returns false if some nodes were not read.
pub(crate) async fn start_all(conductor: &Conductor) -> bool {
    let slots = Arc::new(Semaphore::new(MAX_CONCURRENT_STARTS));
    let mut starting = JoinSet::new();
    let mut after = 0;
    loop {
        let (nodes, next) = match read_batch(conductor, after).await {
            Ok(batch) => batch,
            Err(error) => {
                tracing::warn!(error = error_text(&error), "enabled consoles could not be read");
                return false;
            }
        };
        for node in nodes {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return false };
            let conductor = conductor.clone();
            starting.spawn(async move {
                let (id, _slot) = (node.id, slot);
                if let Err(error) = start(&conductor, node).await {
                    tracing::warn!(node = %id, error = error_text(&error), "console could not be restarted");
                }
            });
        }
        let Some(next) = next else { break };
        after = next;
    }
    while starting.join_next().await.is_some() {}
    true
}

async fn read_batch(
    conductor: &Conductor,
    after: i64,
) -> Result<(Vec<Node>, Option<i64>), store::StoreError> {
    let conductor = conductor.clone();
    let store = conductor.store.clone();
    store
        .scan(move |reader| {
            let alive = alive_conductors(reader, &conductor.settings)?;
            let mut nodes = Vec::new();
            let next = reader.nodes_after(after, BATCH_SIZE, Columns::ALL, |node| {
                if node.console_enabled && is_ours(node, &alive, conductor.hostname()) {
                    nodes.push(node.clone());
                }
            })?;
            Ok((nodes, next))
        })
        .await
}

/// Whether the process `us` has to serve a console: it is recorded, or no living process is and it
/// monitors the node.
fn is_ours(node: &Node, alive: &[ConductorInfo], us: &str) -> bool {
    match served_by(node) {
        Some(server) if server == us => true,
        Some(server) if alive.iter().any(|known| known.hostname == server) => false,
        Some(_) | None => conductor_of(node, alive) == Some(us),
    }
}

/// Starts the console of a node that was read some time ago.
pub(crate) async fn start(conductor: &Conductor, node: Node) -> Result<(), ConductorError> {
    let (id, server_before) = (node.id, served_by(&node));
    let snapshot = conductor.store.read(move |reader| NodeSnapshot::read(reader, node)).await?;
    let driver = snapshot.driver(&conductor.registry)?;
    let target = snapshot.target(&driver, conductor.now());
    let started = conductor.session.while_valid(switch_on(conductor, &driver, &target)).await?;
    let changes = started.map_err(|source| snapshot.driver_error(source))?;
    let us = conductor.hostname().to_owned();
    let written = conductor.store.write(move |tx| {
        let Some(mut node): Option<Node> = tx.get(id)? else { return Ok(false) };
        let server = served_by(&node);
        let is_unchanged = server == server_before || server.as_ref() == Some(&us);
        if !node.console_enabled || !is_unchanged {
            return Ok(false);
        }
        let before = node.driver_internal_info.clone();
        changes.apply_to(&mut node);
        if node.driver_internal_info != before {
            tx.save(&mut node)?;
        }
        Ok::<_, store::StoreError>(true)
    });
    if !written.await? {
        conductor.registry.release_console(id).await;
    }
    Ok(())
}

fn served_by(node: &Node) -> Option<String> {
    node.driver_internal_info.get_str(SERVED_BY)
}
