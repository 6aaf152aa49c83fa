// SPDX-License-Identifier: Apache-2.0
//! When the certificates of this server expire: metrics, and warnings in the log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api_server::{CertificateExpiry, Metrics};
use node_model::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Time between two warnings in the log about the same certificate.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CertificateLabels {
    certificate: &'static str,
}

/// The expiry of each certificate. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct CertificateExpiries {
    state: Arc<Mutex<WatchedCertificates>>,
    gauges: Family<CertificateLabels, Gauge>,
}

#[derive(Default)]
struct WatchedCertificates {
    expiries: Vec<CertificateExpiry>,
    /// When the last warning about each certificate was logged.
    warned_at: HashMap<&'static str, Timestamp>,
}

impl CertificateExpiries {
    /// Registers the metrics.
    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.register(|registry| {
            registry.register(
                "certificate_expiry_timestamp_seconds",
                "When a certificate of this server expires, in seconds since 1970",
                self.gauges.clone(),
            );
        });
    }

    /// The certificates of the last update.
    pub(crate) fn current(&self) -> Vec<CertificateExpiry> {
        self.state().expiries.clone()
    }

    /// Replaces the certificates, and logs a warning for those that the operator has to replace soon.
    pub(crate) fn update(&self, expiries: Vec<CertificateExpiry>, now: Timestamp) {
        let mut state = self.state();
        for expiry in &expiries {
            let labels = CertificateLabels { certificate: expiry.name };
            self.gauges.get_or_create(&labels).set(expiry.expires_at.0 / 1_000_000);
            if expiry.warning(now).is_none() {
                state.warned_at.remove(expiry.name);
                continue;
            }
            let last = state.warned_at.get(expiry.name);
            if last.is_none_or(|last| now.since(*last) >= WARNING_INTERVAL) {
                state.warned_at.insert(expiry.name, now);
                let (key, expires_at) = (expiry.key, expiry.expires_at);
                tracing::warn!(key, %expires_at, "certificate expires soon or has expired");
            }
        }
        state.expiries = expiries;
    }

    fn state(&self) -> MutexGuard<'_, WatchedCertificates> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
