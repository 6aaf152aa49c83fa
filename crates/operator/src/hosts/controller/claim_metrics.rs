// SPDX-License-Identifier: Apache-2.0
//! Metrics of claims. Metal3's operator has none.

use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::super::claims::host_index::HostIndex;
use crate::metrics::OperatorMetrics;

/// Counters of all claims.
#[derive(Clone)]
pub(super) struct ClaimMetrics {
    pub(super) associations: Counter,
    pub(super) releases: Counter,
    pub(super) lost: Counter,
    waiting: Gauge<i64, AtomicI64>,
    comparisons: Counter,
}

impl ClaimMetrics {
    /// Registers the metrics.
    pub(super) fn new(metrics: &OperatorMetrics) -> Self {
        let counter = |name: &str, help: &str| {
            metrics.add(format!("metal3_hostclaim_{name}"), help, Counter::default())
        };
        Self {
            associations: counter("associations", "Claims that were bound to a host"),
            releases: counter("releases", "Hosts that were released by a claim"),
            lost: counter("lost_hosts", "Hosts that disappeared or were taken from their claim"),
            waiting: metrics.add(
                "metal3_hostclaim_waiting",
                "Claims that wait for a host",
                Gauge::default(),
            ),
            comparisons: counter(
                "comparisons",
                "Comparisons of a host with the selector of a claim",
            ),
        }
    }

    /// Records the size of the index and its work.
    pub(super) fn indexed(&self, index: &HostIndex) {
        self.waiting.set(i64::try_from(index.waiting_count()).unwrap_or(i64::MAX));
        self.comparisons.inner().store(index.comparisons(), Ordering::Relaxed);
    }
}
