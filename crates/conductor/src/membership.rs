// SPDX-License-Identifier: Apache-2.0
//! The registration of this process in the table of conductors, and periodic maintenance of the
//! database.

use std::time::Duration;

use node_model::{ConductorInfo, Timestamp};
use tokio::sync::watch;

use crate::Conductor;
use crate::error::error_text;
use crate::exclusive_call::report_interrupted;

/// Registers this process in the table of conductors.
pub(crate) async fn register(conductor: &Conductor) -> Result<(), store::StoreError> {
    write_registration(conductor, true).await
}

/// Releases the nodes that a previous run of this process had leased, so that their jobs continue
/// now instead of when the leases expire.
pub(crate) async fn release_previous_run(conductor: &Conductor) -> Result<(), store::StoreError> {
    let this = conductor.clone();
    let count = conductor
        .store
        .write(move |tx| {
            let released =
                tx.release_leases_of_earlier_runs(&this.owner.hostname, this.owner.run)?;
            for node in &released {
                if let Some(node) = tx.get(*node)? {
                    report_interrupted(tx, node, &this)?;
                }
                tx.wake(*node);
            }
            Ok::<_, store::StoreError>(released.len())
        })
        .await?;
    if count > 0 {
        tracing::info!(nodes = count, "resuming work of the previous run");
    }
    Ok(())
}

/// Renews the registration and runs maintenance in the configured interval.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = Duration::from_secs(conductor.settings.heartbeat_interval.max(1));
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stopping.changed() => return,
        }
        if let Err(error) = renew(&conductor).await {
            tracing::warn!(error = error_text(&error), retry_in = ?interval, "conductor registration could not be renewed");
        }
    }
}

/// Renews the registration, resumes allocations and deletes old entries of the journal and the audit log.
async fn renew(conductor: &Conductor) -> Result<(), store::StoreError> {
    write_registration(conductor, true).await?;
    conductor.resume_allocations().await?;
    if let Some(before) = days_ago(conductor, conductor.settings.journal_days) {
        conductor.store.write(move |tx| tx.prune_journal(before)).await?;
    }
    if let Some(before) = days_ago(conductor, conductor.settings.audit_days) {
        conductor.store.write(move |tx| tx.prune_audit_log(before)).await?;
    }
    Ok(())
}

/// The time `days` days ago; `None` for 0 days.
fn days_ago(conductor: &Conductor, days: u64) -> Option<Timestamp> {
    let age = Duration::from_secs(days.saturating_mul(24 * 60 * 60));
    let micros = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
    (days > 0).then(|| Timestamp(conductor.now().0.saturating_sub(micros)))
}

/// Marks this process as stopped, so that others do not have to wait for the timeout.
pub(crate) async fn unregister(conductor: &Conductor) -> Result<(), store::StoreError> {
    write_registration(conductor, false).await
}

async fn write_registration(conductor: &Conductor, online: bool) -> Result<(), store::StoreError> {
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
            tx.record_conductor_heartbeat(&ConductorInfo {
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
