// SPDX-License-Identifier: Apache-2.0
//! Signs of life: this process in the table of conductors, and what an earlier run of it left.

use std::time::Duration;

use node_model::{ConductorInfo, Timestamp};
use tokio::sync::watch;

use crate::Conductor;
use crate::held::report_interrupted;

/// Enters this process into the table of conductors.
pub(crate) async fn register(conductor: &Conductor) -> Result<(), store::Error> {
    write(conductor, true).await
}

/// Frees the nodes that an earlier run of this process had reserved when it died: they go on now
/// rather than when their leases expire.
pub(crate) async fn take_up(conductor: &Conductor) -> Result<(), store::Error> {
    let this = conductor.clone();
    let freed = conductor
        .store
        .write(move |tx| {
            let freed = tx.break_leases_of(&this.owner.hostname, this.owner.run)?;
            for node in &freed {
                if let Some(node) = tx.get(*node)? {
                    report_interrupted(tx, node, &this)?;
                }
                tx.wake(*node);
            }
            Ok::<_, store::Error>(freed.len())
        })
        .await?;
    if freed > 0 {
        tracing::info!(nodes = freed, "taking up work that was in flight when the last run ended");
    }
    Ok(())
}

/// Says that this process lives, again and again.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = Duration::from_secs(conductor.settings.heartbeat_interval.max(1));
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stopping.changed() => return,
        }
        if let Err(error) = upkeep(&conductor).await {
            tracing::warn!(%error, "could not write the sign of life or look after the rest");
        }
    }
}

/// What is done every few seconds besides.
async fn upkeep(conductor: &Conductor) -> Result<(), store::Error> {
    write(conductor, true).await?;
    conductor.take_up_allocations().await?;
    let days = conductor.settings.journal_days;
    if days > 0 {
        let age = Duration::from_secs(days * 24 * 60 * 60);
        let before = Timestamp(conductor.now().0 - i64::try_from(age.as_micros()).unwrap_or(0));
        conductor.store.write(move |tx| tx.prune_journal(before)).await?;
    }
    Ok(())
}

/// Says goodbye, so that others need not wait for the silence.
pub(crate) async fn leave(conductor: &Conductor) -> Result<(), store::Error> {
    write(conductor, false).await
}

async fn write(conductor: &Conductor, online: bool) -> Result<(), store::Error> {
    let drivers: Vec<String> = conductor
        .registry
        .hardware_types()
        .map(|hardware_type| hardware_type.name.to_owned())
        .collect();
    let (hostname, run) = (conductor.owner.hostname.clone(), Some(conductor.owner.run));
    let conductor_group = conductor.settings.conductor_group.to_lowercase();
    conductor
        .store
        .write(move |tx| {
            let now = tx.now();
            tx.heartbeat_conductor(&ConductorInfo {
                hostname: hostname.clone(),
                run,
                conductor_group: conductor_group.clone(),
                drivers: drivers.clone(),
                created_at: now,
                updated_at: now,
                online,
            })
        })
        .await
}
