// SPDX-License-Identifier: Apache-2.0
//! Consoles that are on stay on: after a start, and when the process that served them is gone. What
//! machines print there is written down.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bmc_drivers::{ConsoleFeed, ConsoleText};
use node_model::{Actor, Happening, JournalEntry, Node, NodeId};
use store::Columns;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::act::chain;
use crate::sight::{Sight, alive_conductors, conductor_of};
use crate::{Conductor, Error};

/// Nodes read in one piece.
const SLICE: u32 = 500;
/// Consoles started at a time: each opens a session with a BMC.
const AT_A_TIME: usize = 32;
/// Pieces of text written down in one transaction.
const TEXTS_AT_A_TIME: usize = 64;

impl Conductor {
    /// What a node's console says and takes, if it is on and this process serves it.
    pub async fn console_feed(&self, id: NodeId) -> Result<ConsoleFeed, Error> {
        if let Some(feed) = self.registry.console_feed(id) {
            return Ok(feed);
        }
        let this = self.clone();
        let found = self.store.read(move |reader| {
            let Some(node): Option<Node> = reader.get(id)? else {
                return Err(Error::NoSuchNode(id.to_string()));
            };
            let hosts = alive_conductors(reader, &this.settings)?.into_iter();
            Ok((node, hosts.map(|known| known.hostname).collect::<Vec<_>>()))
        });
        let (node, hosts) = found.await?;
        if !node.console_enabled {
            return Err(Error::Conflict(format!(
                "The console of node {id} is off. Switch it on first: PUT \
                 /v1/nodes/{id}/states/console."
            )));
        }
        let others: Vec<_> = hosts.iter().filter(|host| *host != self.hostname()).collect();
        Err(Error::Conflict(if others.is_empty() {
            format!(
                "The console of node {id} is on, but there is no text of it: its console interface \
                 has none, or it is just being started."
            )
        } else {
            format!(
                "The console of node {id} is not served by this process, {}. Ask the one that \
                 serves it, of: {others:?}.",
                self.hostname()
            )
        }))
    }
}

/// Writes down what machines print, until there is nothing more or the process stops.
pub(crate) async fn record(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let Some(mut texts) = conductor.registry.take_console_texts() else { return };
    let mut pieces = Vec::new();
    loop {
        tokio::select! {
            count = texts.recv_many(&mut pieces, TEXTS_AT_A_TIME) => if count == 0 { return },
            _ = stopping.changed() => return,
        }
        let now = conductor.now();
        let entries: Vec<_> = pieces.drain(..).map(|piece| entry(piece, now)).collect();
        let written = conductor.store.write(move |tx| {
            for entry in &entries {
                tx.append(entry.clone());
            }
            Ok::<_, store::Error>(())
        });
        if let Err(error) = written.await {
            tracing::warn!(%error, "what machines printed on their consoles is not in their timelines");
        }
    }
}

fn entry(piece: ConsoleText, at: node_model::Timestamp) -> JournalEntry {
    let ConsoleText { node, address, text } = piece;
    let what = Happening::Seen { by: "console".to_owned(), text, times: 1 };
    JournalEntry { at, node_id: node, actor: Actor::Machine { address }, what }
}

/// Starts the consoles that this process looks after: now, and whenever processes come or go, for
/// then others may be its own. Starting one that runs changes nothing. Those that are none of its
/// own any more are left: two who hold a serial line take it from each other.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = Duration::from_secs(conductor.settings.heartbeat_interval.max(1));
    let mut company = None;
    let mut doubtful = HashSet::new();
    loop {
        let alive = alive(&conductor).await;
        let is_new = alive.is_some() && alive != company;
        if is_new {
            company = alive;
            tokio::select! {
                () = restart(&conductor) => {}
                _ = stopping.changed() => return,
            }
        }
        // Alone, nobody else switches anything.
        if company.as_ref().is_some_and(|all: &Vec<String>| all.len() > 1) {
            leave_others(&conductor, is_new, &mut doubtful).await;
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stopping.changed() => return,
        }
    }
}

/// Leaves the consoles that were switched off, or whose nodes were removed, by way of another process,
/// and if `is_new_company` those that another process looks after now. One that is seen to be off only
/// once may just be being started.
pub(crate) async fn leave_others(
    conductor: &Conductor,
    is_new_company: bool,
    doubtful: &mut HashSet<NodeId>,
) {
    let served = conductor.registry.consoles_served();
    if served.is_empty() {
        doubtful.clear();
        return;
    }
    let this = conductor.clone();
    let looked = conductor.store.scan(move |reader| {
        let alive = alive_conductors(reader, &this.settings)?;
        let (mut off, mut others) = (HashSet::new(), Vec::new());
        for id in served {
            let node: Option<Node> = reader.get(id)?;
            match node.filter(|node| node.console_enabled) {
                None => {
                    off.insert(id);
                }
                Some(node) if conductor_of(&node, &alive) != Some(this.hostname()) => {
                    others.push(id);
                }
                Some(_) => {}
            }
        }
        Ok::<_, store::Error>((off, others))
    });
    let (off, others) = match looked.await {
        Ok(looked) => looked,
        Err(error) => {
            tracing::warn!(%error, "could not read which consoles are still on");
            return;
        }
    };
    let others = others.iter().filter(|_| is_new_company);
    for id in off.intersection(doubtful).chain(others) {
        conductor.registry.leave_console(*id).await;
    }
    *doubtful = off;
}

/// The processes that share the database; none if that cannot be read now.
async fn alive(conductor: &Conductor) -> Option<Vec<String>> {
    let this = conductor.clone();
    let alive = conductor.store.read(move |reader| alive_conductors(reader, &this.settings)).await;
    Some(alive.ok()?.into_iter().map(|known| known.hostname).collect())
}

async fn restart(conductor: &Conductor) {
    let slots = Arc::new(Semaphore::new(AT_A_TIME));
    let mut starting = JoinSet::new();
    let mut after = 0;
    loop {
        let (nodes, next) = match read_slice(conductor, after).await {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(%error, "could not read which consoles are on");
                break;
            }
        };
        for node in nodes {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
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
                let ours = conductor_of(node, &alive) == Some(conductor.hostname());
                if node.console_enabled && ours {
                    nodes.push(node.clone());
                }
            })?;
            Ok((nodes, next))
        })
        .await
}

async fn start(conductor: &Conductor, node: Node) -> Result<(), Error> {
    let sight = conductor.store.read(move |reader| Sight::of(reader, node)).await?;
    let driver = sight.driver(&conductor.registry)?;
    let target = sight.target(&driver, conductor.now());
    let started = driver.console().start(&target).await;
    // What it changes is what it changed when the user started it.
    started.map(drop).map_err(|source| sight.failed(source))
}
