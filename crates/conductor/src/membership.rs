// SPDX-License-Identifier: Apache-2.0
//! The registration of this process in the table of conductors, its session, and the end of the sessions of
//! dead processes.

use std::time::Duration;

use node_model::{ConductorInfo, NodeId};
use store::{LeaseOwner, ObservedSession, SessionRenewals, SessionReport, StoreError, StoreWriter};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::error::error_text;
use crate::exclusive_call::report_interrupted;
use crate::session::{DEATH_TIMEOUT, ReplicaWatch, UnreleasedNode};
use crate::{Conductor, ConductorStartError};

/// The interval in which a starting process reads the session of an earlier process with its name.
const PREDECESSOR_INTERVAL: Duration = Duration::from_millis(250);
/// The time between two attempts to begin the session again, or to release nodes.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Begins the session of this process and releases the nodes of its previous run. `previous_run` is known
/// to have ended. Fails if another process with the same name is running.
pub(crate) async fn begin(
    conductor: &Conductor,
    previous_run: Option<Uuid>,
) -> Result<(), ConductorStartError> {
    let mut observed: Option<(ObservedSession, Duration)> = None;
    loop {
        let predecessor = predecessor(conductor).await?;
        let now = conductor.session.now();
        let replaced = match predecessor {
            Some(found) if !conductor.store.is_shared() || found.run == previous_run => Some(found),
            Some(found) => {
                let since = match observed.take() {
                    Some((seen, since)) if seen == found => since,
                    Some((seen, _)) if seen.run == found.run => {
                        let hostname = conductor.hostname().to_owned();
                        return Err(ConductorStartError::NameInUse { hostname });
                    }
                    Some(_) | None => {
                        tracing::info!(
                            timeout = ?DEATH_TIMEOUT,
                            "checking whether an earlier process with this host name still runs"
                        );
                        now
                    }
                };
                if now.saturating_sub(since) < DEATH_TIMEOUT {
                    observed = Some((found, since));
                    tokio::time::sleep(PREDECESSOR_INTERVAL).await;
                    continue;
                }
                Some(found)
            }
            None => None,
        };
        if begin_session(conductor, replaced).await? {
            return Ok(release_previous_run(conductor).await?);
        }
    }
}

/// The session of another run with the name of this process that has not ended.
async fn predecessor(conductor: &Conductor) -> Result<Option<ObservedSession>, StoreError> {
    let sessions = conductor.store.read(|reader| reader.sessions()).await?;
    let (hostname, run) = (conductor.hostname(), Some(conductor.owner.run));
    Ok(sessions.into_iter().find(|session| {
        session.hostname == hostname && session.online && session.renews && session.run != run
    }))
}

/// Registers this process. Returns false if another process with its name began a session meanwhile.
async fn begin_session(
    conductor: &Conductor,
    replaced: Option<ObservedSession>,
) -> Result<bool, StoreError> {
    let drivers: Vec<String> = conductor
        .registry
        .hardware_types()
        .map(|hardware_type| hardware_type.name.to_owned())
        .collect();
    let (hostname, run) = (conductor.owner.hostname.clone(), Some(conductor.owner.run));
    let conductor_group = conductor.settings.conductor_group.to_lowercase();
    let submitted = conductor.session.now();
    let begun = conductor
        .store
        .write(move |tx| {
            let now = tx.now();
            let info = ConductorInfo {
                hostname: hostname.clone(),
                run,
                version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                conductor_group: conductor_group.clone(),
                drivers: drivers.clone(),
                created_at: now,
                updated_at: now,
                online: true,
            };
            tx.begin_session(&info, replaced.as_ref())
        })
        .await;
    match begun {
        Ok(true) => {
            if conductor.store.is_shared() {
                conductor.session.renewed(submitted);
            }
            Ok(true)
        }
        // Two processes with the same name registered for the first time.
        Ok(false) | Err(StoreError::Duplicate { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the nodes that a previous run of this process had leased.
pub(crate) async fn release_previous_run(conductor: &Conductor) -> Result<(), StoreError> {
    let this = conductor.clone();
    let count = conductor
        .store
        .write(move |tx| {
            let released =
                tx.release_leases_of_earlier_runs(&this.owner.hostname, this.owner.run)?;
            resume_released(tx, &released, &this)?;
            Ok::<_, StoreError>(released.len())
        })
        .await?;
    if count > 0 {
        tracing::info!(nodes = count, "resuming work of the previous run");
    }
    Ok(())
}

/// Reports interrupted calls on released nodes, and wakes the nodes.
fn resume_released(
    tx: &mut StoreWriter<'_>,
    released: &[NodeId],
    conductor: &Conductor,
) -> Result<(), StoreError> {
    for id in released {
        if let Some(node) = tx.get(*id)? {
            report_interrupted(tx, node, conductor)?;
        }
        tx.wake(*id);
    }
    Ok(())
}

/// What the thread that renews the session reports.
pub(crate) enum MembershipEvent {
    /// Another process has ended the session of this one.
    Ended,
    /// A process is dead; the number of its renewals.
    Dead(LeaseOwner, i64),
}

/// Starts to renew the session. Does nothing if the database is not shared.
pub(crate) fn start_renewals(
    conductor: &Conductor,
) -> (Option<SessionRenewals>, mpsc::UnboundedReceiver<MembershipEvent>) {
    let (events, receiver) = mpsc::unbounded_channel();
    let (session, hostname) = (conductor.session.clone(), conductor.hostname().to_owned());
    let mut watch = ReplicaWatch::default();
    let mut has_failed = false;
    let report = move |report: SessionReport| match report {
        SessionReport::Renewed { submitted } => {
            if std::mem::take(&mut has_failed) {
                tracing::info!("session of this process renewed again");
            }
            session.renewed(submitted);
        }
        SessionReport::Ended => {
            session.ended();
            // Fails only when the process stops.
            let _ = events.send(MembershipEvent::Ended);
        }
        SessionReport::Observed { at, sessions } => {
            let changes = watch.observe(&hostname, at, &sessions);
            if changes.members_changed {
                session.search_now.notify_one();
            }
            for (owner, renewals) in changes.dead {
                if session.is_valid() {
                    let _ = events.send(MembershipEvent::Dead(owner, renewals));
                }
            }
        }
        SessionReport::Failed(error) => {
            if !std::mem::replace(&mut has_failed, true) {
                tracing::warn!(
                    error = error_text(&error),
                    "session of this process could not be renewed"
                );
            }
        }
    };
    (conductor.store.start_renewals(conductor.owner.clone(), report), receiver)
}

/// Ends the sessions of dead processes, begins the own one again if it was ended, and releases nodes whose
/// tasks could not do so.
pub(crate) async fn run(
    conductor: Conductor,
    mut events: mpsc::UnboundedReceiver<MembershipEvent>,
    mut stopping: watch::Receiver<bool>,
) {
    let Some(mut unreleased) = conductor.session.take_unreleased() else { return };
    let mut to_release: Vec<UnreleasedNode> = Vec::new();
    let mut extension = tokio::time::interval(conductor.lease_time() / 3);
    loop {
        tokio::select! {
            biased;
            _ = stopping.changed() => return,
            Some(event) = events.recv() => match event {
                MembershipEvent::Ended => begin_again(&conductor).await,
                MembershipEvent::Dead(owner, renewals) => {
                    end_dead_session(&conductor, owner, renewals).await;
                }
            },
            count = unreleased.recv_many(&mut to_release, 1000), if to_release.is_empty() => {
                if count == 0 {
                    return;
                }
                release_nodes(&conductor, &mut to_release).await;
            }
            () = tokio::time::sleep(RETRY_INTERVAL), if !to_release.is_empty() => {
                release_nodes(&conductor, &mut to_release).await;
            }
            _ = extension.tick() => extend_leases(&conductor).await,
        }
    }
}

/// Begins the session of this process again after others have ended it: it was suspended, or could not
/// reach the database.
async fn begin_again(conductor: &Conductor) {
    match begin_session(conductor, None).await {
        Ok(true) => {
            tracing::warn!(
                "another process had ended the session of this one, which was too slow or had no \
                 connection to the database; its work is done by others"
            );
        }
        Ok(false) => {
            tracing::error!(
                hostname = conductor.hostname(),
                "another process with the same host name is running; stop one of them, or set \
                 conductor.host"
            );
        }
        Err(error) => {
            tracing::warn!(error = error_text(&error), "session could not be begun again");
        }
    }
}

async fn end_dead_session(conductor: &Conductor, dead: LeaseOwner, renewals: i64) {
    let (this, owner) = (conductor.clone(), dead.clone());
    let ended = conductor.store.write(move |tx| {
        let released = tx.end_session(&owner, Some(renewals))?;
        resume_released(tx, released.as_deref().unwrap_or_default(), &this)?;
        Ok::<_, StoreError>(released.map(|released| released.len()))
    });
    match ended.await {
        Ok(Some(nodes)) => {
            tracing::warn!(
                conductor = dead.hostname,
                nodes,
                "process is dead, taking over its nodes"
            );
            conductor.session.search_now.notify_one();
        }
        // It has renewed its session, or another process was faster.
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(
                conductor = dead.hostname,
                error = error_text(&error),
                "session of a dead process could not be ended, will retry"
            );
        }
    }
}

/// Releases the nodes that no task holds any more. Those that could not be released remain in the list.
async fn release_nodes(conductor: &Conductor, nodes: &mut Vec<UnreleasedNode>) {
    let mut remaining = Vec::new();
    for UnreleasedNode { node, runs_again } in nodes.drain(..) {
        // If another task holds it, that one releases it.
        let Some(hold) = conductor.session.hold(node) else { continue };
        let this = conductor.clone();
        let released = conductor.store.write(move |tx| {
            if tx.release_of_run(node, &this.owner)?
                && let Some(found) = tx.get(node)?
            {
                report_interrupted(tx, found, &this)?;
            }
            if runs_again {
                tx.wake(node);
            }
            Ok::<_, StoreError>(())
        });
        let released = released.await;
        hold.released();
        if let Err(error) = released {
            tracing::debug!(%node, error = error_text(&error), "node could not be released, will retry");
            remaining.push(UnreleasedNode { node, runs_again: true });
        }
    }
    *nodes = remaining;
}

/// Extends the leases of the nodes that are held for longer, which processes of earlier versions respect.
async fn extend_leases(conductor: &Conductor) {
    let mut leases = conductor.session.held_leases();
    if leases.is_empty() || !conductor.store.is_shared() {
        return;
    }
    // In the order of other transactions, so that none waits for the other.
    leases.sort_unstable_by_key(|lease| lease.node);
    let ttl = conductor.lease_time();
    let extended = conductor.store.write(move |tx| {
        let mut lost = Vec::new();
        for lease in &leases {
            if !tx.renew(lease, ttl)? {
                lost.push(*lease);
            }
        }
        Ok::<_, StoreError>(lost)
    });
    match extended.await {
        Ok(lost) => lost.iter().for_each(|lease| conductor.session.lost(lease)),
        Err(error) => {
            tracing::warn!(error = error_text(&error), "leases could not be extended");
        }
    }
}

/// Ends the session of this process and releases its nodes, so that others continue at once.
pub(crate) async fn end(conductor: &Conductor) -> Result<(), StoreError> {
    let this = conductor.clone();
    conductor
        .store
        .write(move |tx| {
            let released = tx.end_session(&this.owner, None)?.unwrap_or_default();
            resume_released(tx, &released, &this)
        })
        .await
}
