// SPDX-License-Identifier: Apache-2.0
//! Consoles that were on when the last run ended are on again after the start.

use std::sync::Arc;

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

/// Starts the consoles that this process looks after, each in its own time.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    tokio::select! {
        () = restart(&conductor) => {}
        _ = stopping.changed() => {}
    }
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
