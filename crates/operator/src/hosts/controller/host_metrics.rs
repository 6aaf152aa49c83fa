// SPDX-License-Identifier: Apache-2.0
//! Metrics of hosts, with the names of Metal3's operator.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_resources::hosts::host_status::{
    BareMetalHostStatus, HostProvisioningState, OperationTimes, OperationalStatus,
};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::super::decide::HostEvent;
use crate::metrics::OperatorMetrics;

/// Bounds in seconds, from a quick registration to a slow deployment.
const OPERATION_BOUNDS: [f64; 9] = [1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0];

/// Counters and durations of all hosts.
#[derive(Clone)]
pub(super) struct HostMetrics {
    passes: Counter,
    failed_passes: Counter,
    errors: Family<ErrorLabels, Counter>,
    states: Family<StateLabels, Counter>,
    power_changes: Family<PowerLabels, Counter>,
    delays: Counter,
    register: Histogram,
    inspect: Histogram,
    provision: Histogram,
    deprovision: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    error_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    prior_state: String,
    new_state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PowerLabels {
    event: &'static str,
}

impl HostMetrics {
    /// Registers the metrics.
    pub(super) fn new(metrics: &OperatorMetrics) -> Self {
        let counter = |name: &str, help: &str| metrics.add(name, help, Counter::default());
        let operation = |name: &str| {
            let name = format!("metal3_operation_{name}_duration_seconds");
            metrics.add(name, "Duration of the operation", Histogram::new(OPERATION_BOUNDS))
        };
        Self {
            passes: counter("metal3_reconcile", "Passes over hosts"),
            failed_passes: counter(
                "metal3_reconcile_error",
                "Passes that failed because of the Kubernetes API",
            ),
            errors: metrics.add(
                "metal3_host_error",
                "Failed operations per error type",
                Family::default(),
            ),
            states: metrics.add(
                "metal3_provisioning_state_change",
                "Changes of the provisioning state",
                Family::default(),
            ),
            power_changes: metrics.add(
                "metal3_operation_power_change",
                "Power changes that were started",
                Family::default(),
            ),
            // The name has two underscores in Metal3 too.
            delays: counter(
                "metal3_delayed__provisioning",
                "Operations that waited for free capacity",
            ),
            register: operation("register"),
            inspect: operation("inspect"),
            provision: operation("provision"),
            deprovision: operation("deprovision"),
        }
    }

    /// Counts a pass.
    pub(super) fn passed(&self, is_failed: bool) {
        self.passes.inc();
        if is_failed {
            self.failed_passes.inc();
        }
    }

    /// Counts what a new status and its events show.
    pub(super) fn changed(
        &self,
        before: &BareMetalHostStatus,
        after: &BareMetalHostStatus,
        events: &[HostEvent],
    ) {
        let (prior, new) = (&before.provisioning.state, &after.provisioning.state);
        if prior != new {
            let text = |state: &HostProvisioningState| state.as_str().to_owned();
            let labels = StateLabels { prior_state: text(prior), new_state: text(new) };
            self.states.get_or_create(&labels).inc();
        }
        if after.error_count > before.error_count
            && let Some(kind) = &after.error_type
        {
            let labels = ErrorLabels { error_type: kind.as_str().to_owned() };
            self.errors.get_or_create(&labels).inc();
        }
        let is_delayed =
            |status: &BareMetalHostStatus| status.operational_status == OperationalStatus::Delayed;
        if is_delayed(after) && !is_delayed(before) {
            self.delays.inc();
        }
        for event in events.iter().filter(|event| event.reason.starts_with("Power")) {
            if let "PowerOn" | "PowerOff" = event.reason {
                self.power_changes.get_or_create(&PowerLabels { event: event.reason }).inc();
            }
        }
        let (old, new) = (&before.operation_history, &after.operation_history);
        observe(&self.register, &old.register, &new.register);
        observe(&self.inspect, &old.inspect, &new.inspect);
        observe(&self.provision, &old.provision, &new.provision);
        observe(&self.deprovision, &old.deprovision, &new.deprovision);
    }
}

/// Records the duration of an operation that ended.
fn observe(histogram: &Histogram, before: &OperationTimes, after: &OperationTimes) {
    if let (Some(Time(start)), Some(Time(end))) = (&after.start, &after.end)
        && before.end != after.end
    {
        histogram.observe(end.duration_since(*start).as_secs_f64().max(0.0));
    }
}
