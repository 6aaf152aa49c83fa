// SPDX-License-Identifier: Apache-2.0
//! A node held for one direct call: nobody else changes the machine meanwhile, and what was done
//! to it is told in its timeline.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use bmc_drivers::{CallLog, Driver, NodeChanges, Target};
use lifecycle::{Ledger, PowerRefusal};
use node_model::{Actor, BmcCall, Happening, NodeId};
use store::{Lease, Owner, Writer};
use uuid::Uuid;

use crate::act::chain;
use crate::ledger::write_ledger;
use crate::provision::get;
use crate::runner::{holding, write_changes};
use crate::sight::Sight;
use crate::{Conductor, Error};

/// A node, its driver, and the lease that makes it ours.
pub(crate) struct Held {
    pub(crate) sight: Sight,
    pub(crate) driver: Driver,
    lease: Lease,
    calls: Arc<CallLog>,
}

impl Conductor {
    /// Claims a node for one call. Refused while anybody else, our own jobs included, has it.
    pub(crate) async fn hold(&self, id: NodeId) -> Result<Held, Error> {
        let hostname = self.owner.hostname.clone();
        let ttl = self.lease_time();
        let claim = move |tx: &mut Writer<'_>| -> Result<(Sight, Lease), Error> {
            let node = get(tx, id)?;
            // A run of its own: our jobs may take up again what they hold, but not this.
            let owner = Owner { hostname: hostname.clone(), run: Uuid::new_v4() };
            match tx.claim(id, &owner, ttl)? {
                Some(lease) => Ok((Sight::of(tx, node)?, lease)),
                None => Err(Error::PowerRefused(PowerRefusal::Locked {
                    node: node.id.to_string(),
                    holder: node.reservation.unwrap_or_default(),
                })),
            }
        };
        let (sight, lease) = self.store.write(claim).await?;
        match sight.driver(&self.registry) {
            Ok(driver) => Ok(Held { sight, driver, lease, calls: Arc::default() }),
            Err(error) => {
                self.let_go(lease).await;
                Err(error)
            }
        }
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
        let began = Instant::now();
        let done = match holding(conductor, self.lease, work).await {
            Ok(done) => done,
            Err(error) => return Err(error.into()),
        };
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
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
        self.keep(conductor, actor, changes, told).await?;
        value
    }

    async fn keep(
        &self,
        conductor: &Conductor,
        actor: &Actor,
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
                let mut ledger = Ledger::default();
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
