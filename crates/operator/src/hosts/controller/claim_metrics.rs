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
        let made = Self {
            associations: Counter::default(),
            releases: Counter::default(),
            lost: Counter::default(),
            waiting: Gauge::default(),
            comparisons: Counter::default(),
        };
        metrics.register(|registry| {
            registry.register(
                "metal3_hostclaim_associations",
                "Claims that were bound to a host",
                made.associations.clone(),
            );
            registry.register(
                "metal3_hostclaim_releases",
                "Hosts that were released by a claim",
                made.releases.clone(),
            );
            registry.register(
                "metal3_hostclaim_lost_hosts",
                "Hosts that disappeared or were taken from their claim",
                made.lost.clone(),
            );
            registry.register(
                "metal3_hostclaim_waiting",
                "Claims that wait for a host",
                made.waiting.clone(),
            );
            registry.register(
                "metal3_hostclaim_comparisons",
                "Comparisons of a host with the selector of a claim",
                made.comparisons.clone(),
            );
        });
        made
    }

    /// Records the size of the index and its work.
    pub(super) fn indexed(&self, index: &HostIndex) {
        self.waiting.set(i64::try_from(index.waiting_count()).unwrap_or(i64::MAX));
        self.comparisons.inner().store(index.comparisons(), Ordering::Relaxed);
    }
}
