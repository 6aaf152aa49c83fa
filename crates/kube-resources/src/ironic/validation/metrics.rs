// SPDX-License-Identifier: Apache-2.0
//! Rules for metrics.

use std::net::IpAddr;

use super::super::defaults::SENSOR_COLLECTION_INTERVAL;
use super::super::service::IronicSpec;
use super::addresses::ip_address;
use super::required;
use crate::field_error::FieldError;

pub(super) fn check(spec: &IronicSpec) -> Vec<FieldError> {
    const ADDRESS: &str = "spec.prometheusExporter.bindAddress";
    let Some(exporter) = &spec.prometheus_exporter else { return Vec::new() };
    let mut errors = Vec::new();
    errors.extend(required(
        !spec.high_availability || exporter.disable_service_monitor,
        "spec.prometheusExporter.disableServiceMonitor",
        "must be true with highAvailability, where the Service has one of several replicas",
    ));
    if let Some(address) = exporter.bind_address.as_deref() {
        errors.extend(ip_address(ADDRESS, address));
        let is_loopback = address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        errors.extend(required(
            !is_loopback || exporter.disable_service_monitor,
            ADDRESS,
            "is a loopback address, which Prometheus cannot reach; use another one, or set \
             disableServiceMonitor to true",
        ));
    }
    if let Some(interval) = exporter.sensor_collection_interval {
        errors.extend(required(
            interval >= SENSOR_COLLECTION_INTERVAL,
            "spec.prometheusExporter.sensorCollectionInterval",
            format!("{interval} is too small; the minimum is {SENSOR_COLLECTION_INTERVAL} seconds"),
        ));
    }
    errors
}
