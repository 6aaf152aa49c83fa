// SPDX-License-Identifier: Apache-2.0
//! Counts machines that got no DHCP address.

use std::sync::Arc;

use api_server::Metrics;
use boot_server::dhcp4::Dhcp4Outcome;
use boot_server::dhcp6::Dhcp6Outcome;
use boot_server::{BootEvent, BootEventDetail, BootEventRecorder};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Counts events and passes them on.
pub(crate) struct CountedBootEvents {
    recorder: Arc<dyn BootEventRecorder>,
    without_address: Family<WithoutAddressLabels, Counter>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct WithoutAddressLabels {
    reason: &'static str,
}

impl CountedBootEvents {
    /// Registers the metrics.
    pub(crate) fn new(recorder: Arc<dyn BootEventRecorder>, metrics: &Metrics) -> Self {
        let without_address = Family::<WithoutAddressLabels, Counter>::default();
        metrics.register(|registry| {
            registry.register(
                "dhcp_requests_without_address",
                "DHCP requests without a reply because no address was available",
                without_address.clone(),
            );
        });
        Self { recorder, without_address }
    }
}

impl BootEventRecorder for CountedBootEvents {
    fn record(&self, event: BootEvent) {
        let reason = match &event.detail {
            BootEventDetail::Dhcp4 { outcome: Dhcp4Outcome::NoFreeAddress, .. }
            | BootEventDetail::Dhcp6 { outcome: Dhcp6Outcome::NoFreeAddress, .. } => {
                Some("pool_full")
            }
            BootEventDetail::Dhcp4 { outcome: Dhcp4Outcome::UnknownShareUsed, .. } => {
                Some("unknown_share_used")
            }
            BootEventDetail::Dhcp4 { .. }
            | BootEventDetail::Dhcp6 { .. }
            | BootEventDetail::Tftp { .. }
            | BootEventDetail::Http { .. } => None,
        };
        if let Some(reason) = reason {
            self.without_address.get_or_create(&WithoutAddressLabels { reason }).inc();
        }
        self.recorder.record(event);
    }
}
