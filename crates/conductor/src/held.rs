// SPDX-License-Identifier: Apache-2.0
//! A node held for one direct call: nobody else changes the machine meanwhile, and what was done
//! to it is told in its timeline.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bmc_drivers::{CallLog, Driver, NodeChanges, Target};
use lifecycle::{Ledger, PowerRefusal, agent_ended};
use node_model::{Actor, BmcCall, Happening, Node, NodeId, Timestamp};
use store::{Lease, Owner, Writer};
use uuid::Uuid;

use crate::act::chain;
use crate::ledger::write_ledger;
use crate::provision::get;
use crate::runner::{holding, write_changes};
use crate::sight::Sight;
use crate::{Conductor, Error};

/// How often a node that somebody else has is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A node, its driver, and the lease that makes it ours.
pub(crate) struct Held {
    pub(crate) sight: Sight,
    pub(crate) driver: Driver,
    lease: Lease,
    calls: Arc<CallLog>,
}

impl Conductor {
    /// Claims a node for one call. If anybody else, our own jobs included, has it for longer than
    /// `node_locked_timeout`, the call is refused.
    pub(crate) async fn hold(&self, id: NodeId) -> Result<Held, Error> {
        let patience = Duration::from_secs(self.settings.node_locked_timeout);
        let began = Instant::now();
        let (sight, lease) = loop {
            match self.claim(id).await {
                Err(Error::PowerRefused(PowerRefusal::Locked { .. }))
                    if began.elapsed() < patience =>
                {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                claimed => break claimed?,
            }
        };
        match sight.driver(&self.registry) {
            Ok(driver) => Ok(Held { sight, driver, lease, calls: Arc::default() }),
            Err(error) => {
                self.let_go(lease).await;
                Err(error)
            }
        }
    }

    async fn claim(&self, id: NodeId) -> Result<(Sight, Lease), Error> {
        let conductor = self.clone();
        let ttl = self.lease_time();
        let claim = move |tx: &mut Writer<'_>| -> Result<(Sight, Lease), Error> {
            let node = get(tx, id)?;
            // A run of its own: our jobs may take up again what they hold, but not this.
            let owner = Owner { hostname: conductor.hostname().to_owned(), run: Uuid::new_v4() };
            match tx.claim(id, &owner, ttl)? {
                Some(lease) => {
                    let node = report_interrupted(tx, node, &conductor)?;
                    Ok((Sight::of(tx, node)?, lease))
                }
                None => Err(Error::PowerRefused(PowerRefusal::Locked {
                    node: node.id.to_string(),
                    holder: node.reservation.unwrap_or_default(),
                })),
            }
        };
        self.store.write(claim).await
    }

    async fn let_go(&self, lease: Lease) {
        let released = self.store.write(move |tx| free(tx, &lease)).await;
        if let Err(error) = released {
            // It ends by itself.
            tracing::warn!(node = %lease.node, %error, "a lease could not be given back");
        }
    }
}

impl Held {
    /// What an interface is given.
    pub(crate) fn target(&self, conductor: &Conductor) -> Target<'_> {
        let target = self.sight.target(&self.driver, conductor.now());
        Target { calls: Some(&self.calls), ..target }
    }

    /// Carries out `work`, in words `action`, keeps what it changed, tells it in the timeline and
    /// lets the node go.
    pub(crate) async fn carry_out<T>(
        &self,
        conductor: &Conductor,
        actor: &Actor,
        action: &str,
        work: impl Future<Output = Result<(T, NodeChanges), bmc_drivers::Error>>,
    ) -> Result<T, Error> {
        let (began, started) = (conductor.now(), Instant::now());
        let done = match holding(conductor, self.lease, work).await {
            Ok(done) => done,
            Err(error) => return Err(error.into()),
        };
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (value, changes, told) = match done {
            Ok((value, changes)) => {
                let told = Happening::Did { action: action.to_owned(), took_ms, result: None };
                (Ok(value), changes, told)
            }
            // A request that makes no sense was not carried out: there is nothing to tell.
            Err(error) if error.is_callers_fault() => {
                conductor.let_go(self.lease).await;
                return Err(self.sight.failed(error));
            }
            Err(error) => {
                let told =
                    Happening::Failed { action: action.to_owned(), took_ms, error: chain(&error) };
                (Err(self.sight.failed(error)), NodeChanges::none(), told)
            }
        };
        if let Err(error) = self.keep(conductor, actor, began, changes, told).await {
            conductor.let_go(self.lease).await;
            return Err(error);
        }
        value
    }

    /// Lets the node go without having done anything.
    pub(crate) async fn give_back(&self, conductor: &Conductor) {
        conductor.let_go(self.lease).await;
    }

    /// Writes down what is about to be done, for calls that nobody waits for: if the program ends
    /// meanwhile, the next run says so on the node.
    pub(crate) async fn announce(&self, conductor: &Conductor, action: &str) -> Result<(), Error> {
        let (lease, action) = (self.lease, action.to_owned());
        let announced = conductor
            .store
            .write(move |tx| -> Result<(), Error> {
                let mut node = get(tx, lease.node)?;
                node.driver_internal_info.set(ANNOUNCED, action.clone());
                Ok(tx.save_fenced(&mut node, &lease)?)
            })
            .await;
        if announced.is_err() {
            conductor.let_go(self.lease).await;
        }
        announced
    }

    async fn keep(
        &self,
        conductor: &Conductor,
        actor: &Actor,
        began: Timestamp,
        changes: NodeChanges,
        told: Happening,
    ) -> Result<(), Error> {
        let (lease, actor) = (self.lease, actor.clone());
        let hostname = conductor.owner.hostname.clone();
        let calls = bmc_calls(&self.calls);
        conductor
            .store
            .write(move |tx| {
                let mut node = get(tx, lease.node)?;
                write_changes(tx, &mut node, &changes)?;
                node.driver_internal_info.remove(ANNOUNCED);
                let mut ledger = Ledger::default();
                if changes.agent_is_gone {
                    agent_ended(&mut node, began, &mut ledger);
                }
                ledger.happened.extend(calls.clone());
                ledger.happened.push(told.clone());
                write_ledger(tx, &mut node, ledger, &actor, &hostname)?;
                tx.save_fenced(&mut node, &lease)?;
                free(tx, &lease)?;
                Ok(())
            })
            .await
    }
}

/// The key of `driver_internal_info` under which a call that nobody waits for is written down.
const ANNOUNCED: &str = "direct_call";

/// Says on a node, which is ours now, what nobody saw the end of because a process ended.
pub(crate) fn report_interrupted(
    tx: &mut Writer<'_>,
    mut node: Node,
    conductor: &Conductor,
) -> Result<Node, store::Error> {
    // Asked before every job, so the text is searched before it is parsed.
    if !node.driver_internal_info.as_str().contains("\"direct_call\"") {
        return Ok(node);
    }
    let Some(action) = node.driver_internal_info.get_str(ANNOUNCED) else { return Ok(node) };
    node.driver_internal_info.remove(ANNOUNCED);
    let error = "the program ended meanwhile, so it is not known whether it was done; look at the \
                 machine and ask again"
        .to_owned();
    node.last_error = Some(format!("failed to {action}: {error}"));
    let mut ledger = Ledger::default();
    ledger.happened.push(Happening::Failed { action, took_ms: 0, error });
    write_ledger(tx, &mut node, ledger, &conductor.actor(), conductor.hostname())?;
    tx.save(&mut node)?;
    Ok(node)
}

/// What was said to the BMC, as the journal tells it; none if nothing was.
pub(crate) fn bmc_calls(log: &CallLog) -> Option<Happening> {
    let (calls, left_out) = log.take();
    if calls.is_empty() {
        return None;
    }
    let calls = calls.into_iter().map(|call| BmcCall {
        what: call.what,
        result: call.result,
        took_ms: u64::try_from(call.took.as_millis()).unwrap_or(u64::MAX),
        times: call.times,
    });
    Some(Happening::BmcCalls { calls: calls.collect(), left_out })
}

/// Gives the node back; jobs that were asked for meanwhile are taken up at once.
fn free(tx: &mut Writer<'_>, lease: &Lease) -> Result<(), store::Error> {
    tx.release(lease)?;
    tx.wake(lease.node);
    Ok(())
}
