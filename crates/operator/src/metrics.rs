// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics of the operator.
//!
//! Metrics that controllers of Metal3 have too keep the names of controller-runtime, so that existing
//! dashboards and alerts work. Labels are names of controllers and outcomes; no metric has an object as
//! label.

use std::fmt;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// The metrics registry and the metrics that all controllers have. Cheap to clone; all clones share it.
#[derive(Clone)]
pub struct OperatorMetrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Family<ReconcileLabels, Counter>,
    durations: Family<ControllerLabels, Histogram>,
    reviews: Family<ReviewLabels, Counter>,
    leases: Family<LeaseLabels, Gauge<i64, AtomicI64>>,
}

/// How the reconciliation of an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileOutcome {
    /// The object is as requested; the next event or resync continues.
    Settled,
    /// More is to do: the object is reconciled again after a time.
    Requeued,
    /// An error: the object is reconciled again after a back-off.
    Failed,
}

impl ReconcileOutcome {
    /// Value of the label `result`, as in controller-runtime.
    fn label(self) -> &'static str {
        match self {
            Self::Settled => "success",
            Self::Requeued => "requeue_after",
            Self::Failed => "error",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReviewLabels {
    webhook: &'static str,
    code: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LeaseLabels {
    name: String,
}

impl OperatorMetrics {
    /// A registry with the metrics of all controllers.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let reconciles = Family::<ReconcileLabels, Counter>::default();
        registry.register(
            "controller_runtime_reconcile",
            "Reconciliations per controller and result",
            reconciles.clone(),
        );
        let durations = Family::<ControllerLabels, Histogram>::new_with_constructor(|| {
            // Buckets in seconds, from a comparison without requests to a slow BMC.
            Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0])
        });
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconciliation",
            durations.clone(),
        );
        let reviews = Family::<ReviewLabels, Counter>::default();
        registry.register(
            "controller_runtime_webhook_requests",
            "Admission requests per webhook and HTTP status",
            reviews.clone(),
        );
        let leases = Family::<LeaseLabels, Gauge<i64, AtomicI64>>::default();
        registry.register(
            "leader_election_master_status",
            "1 if this process holds the lease, otherwise 0",
            leases.clone(),
        );
        Self { registry: Arc::new(Mutex::new(registry)), reconciles, durations, reviews, leases }
    }

    /// Records the end of a reconciliation.
    pub fn reconciled(
        &self,
        controller: &'static str,
        outcome: ReconcileOutcome,
        duration: Duration,
    ) {
        let labels = ReconcileLabels { controller, result: outcome.label() };
        self.reconciles.get_or_create(&labels).inc();
        self.durations
            .get_or_create(&ControllerLabels { controller })
            .observe(duration.as_secs_f64());
    }

    /// Records the response of a webhook.
    pub(crate) fn reviewed(&self, webhook: &'static str, code: u16) {
        self.reviews.get_or_create(&ReviewLabels { webhook, code }).inc();
    }

    /// Records whether this process holds the lease.
    pub(crate) fn set_leader(&self, lease: &str, is_leader: bool) {
        let labels = LeaseLabels { name: lease.to_owned() };
        self.leases.get_or_create(&labels).set(i64::from(is_leader));
    }

    /// Registers a metric of a controller and returns it. The registry has no prefix.
    pub(crate) fn add<M: Metric + Clone>(
        &self,
        name: impl Into<String>,
        help: &str,
        metric: M,
    ) -> M {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(name, help, metric.clone());
        metric
    }

    /// All metrics in Prometheus text format.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(8 * 1024);
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}

impl Default for OperatorMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_reconciliations_per_controller_and_result() {
        let metrics = OperatorMetrics::new();
        let shared = metrics.clone();
        shared.reconciled("ironic", ReconcileOutcome::Settled, Duration::from_millis(3));
        shared.reconciled("ironic", ReconcileOutcome::Failed, Duration::from_millis(3));
        shared.set_leader("ironic.metal3.io", true);
        shared.reviewed("/validate", 200);
        let text = metrics.render().unwrap();
        for line in [
            r#"controller_runtime_reconcile_total{controller="ironic",result="success"} 1"#,
            r#"controller_runtime_reconcile_total{controller="ironic",result="error"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="ironic"} 2"#,
            r#"leader_election_master_status{name="ironic.metal3.io"} 1"#,
            r#"controller_runtime_webhook_requests_total{webhook="/validate",code="200"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
