// SPDX-License-Identifier: Apache-2.0
//! Acquires, renews and releases a Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::fence::LeadershipFence;
use super::steps::{LeaseStep, LeaseTiming, SeenLease, next_step, released};
use crate::metrics::OperatorMetrics;
use crate::owned_objects::api_error_text;

/// Time limit of the request that releases a Lease when the process ends.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// One process's part in an election.
pub struct LeaderElection {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: LeaseTiming,
    fence: LeadershipFence,
    metrics: OperatorMetrics,
    seen: Option<SeenLease>,
    /// When the request of the last renewal was sent, so that it is never later than the time at which
    /// others see the renewal.
    renewed_at: Instant,
}

/// Why a leader has to stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeadershipLoss {
    /// The API server did not accept a renewal in time.
    #[error("the lease could not be renewed in {deadline:?}")]
    NotRenewed {
        /// The renew deadline.
        deadline: Duration,
    },
    /// Another process is the leader.
    #[error("the lease is held by {holder}")]
    Replaced {
        /// That process.
        holder: String,
    },
}

/// The result of one attempt.
enum AttemptOutcome {
    Held,
    HeldBy(String),
    /// Another process wrote at the same time.
    Conflict,
}

impl LeaderElection {
    /// Takes part in the election with the Lease `name`. `identity` must be unique, also after a
    /// restart.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        timing: LeaseTiming,
        metrics: OperatorMetrics,
    ) -> Self {
        metrics.set_leader(name, false);
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            fence: LeadershipFence::closed(),
            metrics,
            seen: None,
            renewed_at: Instant::now(),
        }
    }

    /// The fence of this leadership. It rejects requests while this process is not the leader.
    #[must_use]
    pub fn fence(&self) -> LeadershipFence {
        self.fence.clone()
    }

    /// Waits until this process is the leader.
    pub async fn acquire(&mut self) {
        let mut last_holder = None;
        loop {
            let started_at = Instant::now();
            match self.attempt(self.timing.renew_deadline).await {
                Ok(AttemptOutcome::Held) => {
                    self.set_renewed(started_at);
                    self.metrics.set_leader(&self.name, true);
                    info!(lease = %self.name, identity = %self.identity, "became leader");
                    return;
                }
                Ok(AttemptOutcome::HeldBy(holder)) => {
                    if last_holder.as_ref() != Some(&holder) {
                        info!(lease = %self.name, %holder, "waiting for the lease");
                    }
                    last_holder = Some(holder);
                }
                Ok(AttemptOutcome::Conflict) => {}
                Err(error) => {
                    let retry_in = self.timing.retry_period;
                    warn!(lease = %self.name, %error, ?retry_in, "lease request failed");
                }
            }
            sleep_until(started_at + self.timing.retry_period).await;
        }
    }

    /// Renews the Lease until it is lost. The fence rejects requests when this returns.
    pub async fn hold(&mut self) -> LeadershipLoss {
        let loss = self.renew_until_lost().await;
        self.fence.close();
        self.metrics.set_leader(&self.name, false);
        loss
    }

    async fn renew_until_lost(&mut self) -> LeadershipLoss {
        let LeaseTiming { renew_deadline, retry_period, .. } = self.timing;
        let mut next_attempt = self.renewed_at + retry_period;
        loop {
            let deadline = self.renewed_at + renew_deadline;
            sleep_until(next_attempt.min(deadline)).await;
            let started_at = Instant::now();
            if started_at >= deadline {
                return LeadershipLoss::NotRenewed { deadline: renew_deadline };
            }
            next_attempt = started_at + retry_period;
            // A connection that hangs must leave time for another attempt.
            let limit = (deadline - started_at).min(renew_deadline / 2);
            match self.attempt(limit).await {
                Ok(AttemptOutcome::Held) => self.set_renewed(started_at),
                Ok(AttemptOutcome::HeldBy(holder)) => return LeadershipLoss::Replaced { holder },
                Ok(AttemptOutcome::Conflict) => next_attempt = Instant::now() + retry_period / 4,
                Err(error) => {
                    warn!(lease = %self.name, %error, retry_in = ?retry_period, "lease renewal failed");
                }
            }
        }
    }

    /// Gives the Lease up, so that another process takes it at its next attempt. Does nothing if this
    /// process does not hold it. The controllers must have ended.
    pub async fn release(mut self) {
        self.fence.close();
        self.metrics.set_leader(&self.name, false);
        match timeout(RELEASE_TIMEOUT, self.try_release()).await {
            Ok(Ok(true)) => info!(lease = %self.name, "released the lease"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                let error = api_error_text(&error);
                warn!(lease = %self.name, error, "lease was not released");
            }
            Err(_) => {
                warn!(lease = %self.name, limit = ?RELEASE_TIMEOUT, "release of the lease timed out");
            }
        }
    }

    fn set_renewed(&mut self, started_at: Instant) {
        self.renewed_at = started_at;
        self.fence.extend(started_at + self.timing.renew_deadline);
    }

    async fn try_release(&mut self) -> Result<bool, kube::Error> {
        // What was seen may be out of date, if the last request was cancelled.
        self.read().await?;
        let Some(seen) = self.seen.take() else { return Ok(false) };
        if seen.holder() != Some(&self.identity) {
            return Ok(false);
        }
        let spec = released(&seen.spec, Timestamp::now());
        self.patch(&seen.resource_version, &spec).await?;
        Ok(true)
    }

    /// One attempt to acquire or renew the Lease.
    async fn attempt(&mut self, limit: Duration) -> Result<AttemptOutcome, AttemptError> {
        timeout(limit, self.try_once()).await.map_err(|_| AttemptError::Timeout(limit))?
    }

    async fn try_once(&mut self) -> Result<AttemptOutcome, AttemptError> {
        // A leader renews without reading first; a conflict shows that the Lease was changed.
        if self.seen.as_ref().and_then(SeenLease::holder) != Some(&self.identity) {
            self.read().await?;
        }
        let step = next_step(
            self.seen.as_ref(),
            &self.identity,
            &self.timing,
            Instant::now(),
            Timestamp::now(),
        );
        let written = match step {
            LeaseStep::Wait { holder } => return Ok(AttemptOutcome::HeldBy(holder)),
            LeaseStep::Create(spec) => {
                let metadata =
                    ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(spec) };
                self.api.create(&PostParams::default(), &lease).await
            }
            LeaseStep::Renew(spec) | LeaseStep::Take(spec) => match &self.seen {
                Some(seen) => self.patch(&seen.resource_version.clone(), &spec).await,
                None => return Ok(AttemptOutcome::Conflict),
            },
        };
        match written {
            Ok(lease) => {
                self.seen = Some(seen_lease(lease));
                Ok(AttemptOutcome::Held)
            }
            // 404: the Lease was deleted.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                self.read().await?;
                match self.seen.as_ref().and_then(SeenLease::holder) {
                    Some(holder) if holder != self.identity => {
                        Ok(AttemptOutcome::HeldBy(holder.to_owned()))
                    }
                    Some(_) | None => Ok(AttemptOutcome::Conflict),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn read(&mut self) -> Result<(), kube::Error> {
        let found = self.api.get_opt(&self.name).await?;
        let earlier = self.seen.take();
        self.seen = found.map(|lease| seen_lease(lease).following(earlier));
        Ok(())
    }

    /// Writes the content of the Lease unless it was changed since `resource_version`. Other fields
    /// remain.
    async fn patch(&self, resource_version: &str, spec: &LeaseSpec) -> Result<Lease, kube::Error> {
        let patch = json!({
            "metadata": {"resourceVersion": resource_version},
            "spec": spec,
        });
        self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await
    }
}

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("no response in {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Request(String),
}

impl From<kube::Error> for AttemptError {
    fn from(error: kube::Error) -> Self {
        Self::Request(api_error_text(&error))
    }
}

fn seen_lease(lease: Lease) -> SeenLease {
    SeenLease {
        resource_version: lease.metadata.resource_version.unwrap_or_default(),
        spec: lease.spec.unwrap_or_default(),
        seen_at: Instant::now(),
    }
}
