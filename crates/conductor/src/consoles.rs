// SPDX-License-Identifier: Apache-2.0
//! Consoles that are on stay on: after a start, and when the process that served them is gone.

use std::sync::Arc;
use std::time::Duration;

use node_model::Node;
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

/// Starts the consoles that this process looks after: now, and whenever processes come or go, for
/// then others may be its own. Starting one that runs changes nothing.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = Duration::from_secs(conductor.settings.heartbeat_interval.max(1));
    let mut company = None;
    loop {
        let alive = alive(&conductor).await;
        if alive.is_some() && alive != company {
            company = alive;
            tokio::select! {
                () = restart(&conductor) => {}
                _ = stopping.changed() => return,
            }
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stopping.changed() => return,
        }
    }
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
