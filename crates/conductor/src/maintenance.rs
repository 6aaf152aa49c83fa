// SPDX-License-Identifier: Apache-2.0
//! Periodic maintenance of the database.

use std::time::Duration;

use node_model::Timestamp;
use tokio::sync::watch;

use crate::Conductor;
use crate::error::error_text;

/// Runs maintenance in the configured interval.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = Duration::from_secs(conductor.settings.heartbeat_interval.max(1));
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(interval) => {}
            _ = stopping.changed() => return,
        }
        if let Err(error) = maintain(&conductor).await {
            tracing::warn!(error = error_text(&error), retry_in = ?interval, "maintenance of the database failed");
        }
    }
}

/// Resumes allocations and deletes old entries of the journal and the audit log.
async fn maintain(conductor: &Conductor) -> Result<(), store::StoreError> {
    if !conductor.store.is_shared() {
        // On a shared database, the renewal of the session records that this process is running.
        let (hostname, run) = (conductor.owner.hostname.clone(), conductor.owner.run);
        conductor.store.write(move |tx| tx.touch_conductor(&hostname, run)).await?;
    }
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
