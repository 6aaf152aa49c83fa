// SPDX-License-Identifier: Apache-2.0
//! Sign-ins in the log, in the metrics and in the store.
//!
//! Failures are counted per user and address for a second and then written together, so that guessing
//! fills neither the log nor the database.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_model::{SignInFailure, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use store::{Store, StoreError};

/// For how long failures are collected before they are written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of pairs of user and address that are written per interval.
const MAX_PAIRS: usize = 100;
/// Maximum length of a recorded user name, in characters.
const MAX_USER_CHARS: usize = 64;

/// What a client presented.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CredentialKind {
    Password,
    Token,
    /// A token of an OpenID Connect provider, or a sign-in with it.
    OpenIdConnect,
    /// A token of Keystone.
    Keystone,
    /// A TLS client certificate.
    Certificate,
}

/// How a sign-in ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SignInOutcome {
    /// The credentials are right.
    Accepted,
    /// The credentials are wrong.
    Rejected,
    /// There were too many attempts.
    Limited,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct SignInLabels {
    credential: &'static str,
    outcome: &'static str,
}

/// Records sign-ins.
#[derive(Clone)]
pub(crate) struct SignInRecorder {
    store: Store,
    counts: Family<SignInLabels, Counter>,
    waiting: Gauge<i64, AtomicI64>,
    pending: Arc<Mutex<PendingFailures>>,
}

#[derive(Debug, Default)]
struct PendingFailures {
    failures: HashMap<(String, IpAddr, CredentialKind), SignInFailure>,
    /// Failures of further users and addresses.
    uncounted: u64,
    has_flush: bool,
}

impl CredentialKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Token => "token",
            Self::OpenIdConnect => "oidc",
            Self::Keystone => "keystone",
            Self::Certificate => "certificate",
        }
    }
}

impl SignInRecorder {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            counts: Family::default(),
            waiting: Gauge::default(),
            pending: Arc::default(),
        }
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "sign_ins",
            "Passwords and tokens that were verified or rejected; cached ones are not counted",
            self.counts.clone(),
        );
        registry.register(
            "sign_ins_waiting",
            "Passwords waiting for their verification",
            self.waiting.clone(),
        );
    }

    /// Sets the number of passwords that wait for their verification.
    pub(crate) fn set_waiting(&self, waiting: usize) {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Records a sign-in. `user` is the name that the client sent.
    pub(crate) fn record(
        &self,
        credential: CredentialKind,
        outcome: SignInOutcome,
        user: &str,
        address: IpAddr,
        now: Timestamp,
    ) {
        let (outcome, is_failure) = match outcome {
            SignInOutcome::Accepted => ("accepted", false),
            SignInOutcome::Rejected => ("rejected", true),
            SignInOutcome::Limited => ("limited", true),
        };
        let labels = SignInLabels { credential: credential.name(), outcome };
        self.counts.get_or_create(&labels).inc();
        if is_failure {
            self.add_failure(credential, user, address, now);
        }
    }

    fn add_failure(&self, credential: CredentialKind, user: &str, address: IpAddr, now: Timestamp) {
        let user: String = user.chars().filter(|c| !c.is_control()).take(MAX_USER_CHARS).collect();
        let mut pending = self.pending();
        let key = (user, address, credential);
        if pending.failures.len() >= MAX_PAIRS && !pending.failures.contains_key(&key) {
            pending.uncounted += 1;
        } else {
            let failure = pending.failures.entry(key).or_insert_with_key(|(user, address, _)| {
                SignInFailure {
                    user_name: user.clone(),
                    address: address.to_canonical().to_string(),
                    credential: credential.name().to_owned(),
                    first_at: now,
                    last_at: now,
                    attempts: 0,
                }
            });
            failure.attempts += 1;
            failure.last_at = now;
        }
        if !std::mem::replace(&mut pending.has_flush, true) {
            let recorder = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(FLUSH_INTERVAL).await;
                recorder.flush().await;
            });
        }
    }

    /// Writes the collected failures to the log and to the store.
    async fn flush(&self) {
        let (failures, uncounted) = {
            let mut pending = self.pending();
            pending.has_flush = false;
            let failures = std::mem::take(&mut pending.failures);
            (failures, std::mem::take(&mut pending.uncounted))
        };
        let mut failures: Vec<SignInFailure> = failures.into_values().collect();
        failures.sort_unstable_by_key(|failure| failure.first_at);
        for SignInFailure { user_name, address, credential, attempts, .. } in &failures {
            tracing::warn!(user = user_name, address, credential, attempts, "sign-in failed");
        }
        if uncounted > 0 {
            tracing::warn!(attempts = uncounted, "sign-ins of further users and addresses failed");
        }
        let stored =
            self.store.write(move |writer| writer.record_sign_in_failures(&failures)).await;
        if let Err::<(), StoreError>(error) = stored {
            tracing::warn!(%error, "storing failed sign-ins failed");
        }
    }

    fn pending(&self) -> MutexGuard<'_, PendingFailures> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
