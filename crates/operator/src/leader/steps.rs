// SPDX-License-Identifier: Apache-2.0
//! Decides what a candidate or leader does with the Lease that it last saw. No IO, no clock.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// Times of the election. All processes that use a Lease should have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// Others take the Lease if it was not renewed for this time. Whole seconds.
    pub duration: Duration,
    /// The leader ends if it could not renew the Lease for this time.
    pub renew_deadline: Duration,
    /// Time between two attempts to acquire or renew the Lease.
    pub retry_period: Duration,
}

impl Default for LeaseTiming {
    /// The values of client-go.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Times that would allow two leaders, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLeaseTiming {
    /// The Lease stores whole seconds.
    #[error("the lease duration must be at least one second, in whole seconds")]
    Duration,
    /// Another process would become leader before this one ends.
    #[error("the renew deadline must be shorter than the lease duration")]
    Deadline,
    /// One failed attempt would end the leader.
    #[error("the retry period must be longer than zero and at most half of the renew deadline")]
    Retry,
}

impl LeaseTiming {
    /// Checks that the times exclude two leaders.
    pub fn check(&self) -> Result<(), InvalidLeaseTiming> {
        let seconds = self.duration.as_secs();
        if seconds == 0 || self.duration.subsec_nanos() != 0 || i32::try_from(seconds).is_err() {
            return Err(InvalidLeaseTiming::Duration);
        }
        if self.renew_deadline >= self.duration {
            return Err(InvalidLeaseTiming::Deadline);
        }
        if self.retry_period.is_zero() || self.retry_period > self.renew_deadline / 2 {
            return Err(InvalidLeaseTiming::Retry);
        }
        Ok(())
    }

    fn duration_seconds(&self) -> i32 {
        i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX)
    }
}

/// A Lease as this process saw it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeenLease {
    /// Version for the precondition of a write.
    pub(super) resource_version: String,
    /// The content.
    pub(super) spec: LeaseSpec,
    /// When the content was first seen.
    pub(super) seen_at: Instant,
}

impl SeenLease {
    /// The holder, unless the Lease was released.
    pub(super) fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// Replaces an earlier view. The time remains if the content is the same.
    pub(super) fn following(self, earlier: Option<Self>) -> Self {
        match earlier {
            Some(earlier) if earlier.spec == self.spec => Self { seen_at: earlier.seen_at, ..self },
            Some(_) | None => self,
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LeaseStep {
    /// There is no Lease: create it.
    Create(LeaseSpec),
    /// This process holds the Lease: renew it.
    Renew(LeaseSpec),
    /// The Lease has no holder, or its holder did not renew it: take it.
    Take(LeaseSpec),
    /// Another process holds the Lease.
    Wait {
        /// That process.
        holder: String,
    },
}

/// Decides about the Lease. `clock` is only written, never compared.
pub(super) fn next_step(
    seen: Option<&SeenLease>,
    identity: &str,
    timing: &LeaseTiming,
    now: Instant,
    clock: Timestamp,
) -> LeaseStep {
    let held = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(timing.duration_seconds()),
        acquire_time: Some(MicroTime(clock)),
        renew_time: Some(MicroTime(clock)),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    let Some(seen) = seen else { return LeaseStep::Create(held) };
    let transitions = seen.spec.lease_transitions.unwrap_or(0);
    match seen.holder() {
        Some(holder) if holder == identity => LeaseStep::Renew(LeaseSpec {
            acquire_time: seen.spec.acquire_time.clone().or(held.acquire_time.clone()),
            lease_transitions: Some(transitions),
            ..held
        }),
        Some(holder) if now < seen.seen_at + promised_duration(&seen.spec, timing) => {
            LeaseStep::Wait { holder: holder.to_owned() }
        }
        Some(_) | None => LeaseStep::Take(LeaseSpec {
            lease_transitions: Some(transitions.saturating_add(1)),
            ..held
        }),
    }
}

/// The content of a Lease that its holder gives up: others take it at once.
pub(super) fn released(spec: &LeaseSpec, clock: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        // As client-go: the API server rejects zero.
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(clock)),
        renew_time: Some(MicroTime(clock)),
        lease_transitions: spec.lease_transitions,
        ..LeaseSpec::default()
    }
}

/// The time after which the holder has stopped.
fn promised_duration(spec: &LeaseSpec, timing: &LeaseTiming) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map_or(timing.duration, Duration::from_secs)
}
