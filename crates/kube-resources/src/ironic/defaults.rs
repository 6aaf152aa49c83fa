// SPDX-License-Identifier: Apache-2.0
//! Values of missing fields.
//!
//! The API server fills in defaults of the schema only below objects that exist: an `Ironic` without
//! `networking` has no ports. These functions return the same values in both cases.

use super::networking::IronicNetworking;
use super::service::{IronicSpec, PrometheusExporterSettings};

/// Port of the API.
pub const API_PORT: u16 = 6385;
/// Port of the image server.
pub const IMAGE_SERVER_PORT: u16 = 6180;
/// Port of the image server with TLS.
pub const IMAGE_SERVER_TLS_PORT: u16 = 6183;
/// Port of calls between replicas.
pub const RPC_PORT: u16 = 6189;
/// Port of metrics.
pub const PROMETHEUS_EXPORTER_PORT: u16 = 9608;
/// Seconds between two readings of sensors.
pub const SENSOR_COLLECTION_INTERVAL: i64 = 60;
/// Address to listen on for metrics.
pub const EXPORTER_BIND_ADDRESS: &str = "0.0.0.0";
/// Size of the volume of the embedded database.
pub const STORAGE_SIZE: &str = "10Gi";

/// The ports of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IronicPorts {
    /// The API.
    pub api: u16,
    /// The image server.
    pub image_server: u16,
    /// The image server with TLS.
    pub image_server_tls: u16,
    /// Metrics.
    pub metrics: u16,
    /// Calls between replicas.
    pub rpc: u16,
}

impl IronicPorts {
    /// The ports of a spec. Ports that are not valid are replaced by their defaults; validation
    /// rejects them.
    #[must_use]
    pub fn of(networking: &IronicNetworking) -> Self {
        let port = |configured: Option<i32>, default: u16| {
            let valid = configured.and_then(|port| u16::try_from(port).ok());
            valid.filter(|port| *port != 0).unwrap_or(default)
        };
        Self {
            api: port(networking.api_port, API_PORT),
            image_server: port(networking.image_server_port, IMAGE_SERVER_PORT),
            image_server_tls: port(networking.image_server_tls_port, IMAGE_SERVER_TLS_PORT),
            metrics: port(networking.prometheus_exporter_port, PROMETHEUS_EXPORTER_PORT),
            rpc: port(networking.rpc_port, RPC_PORT),
        }
    }
}

/// The metrics settings if they are enabled.
#[must_use]
pub fn enabled_exporter(spec: &IronicSpec) -> Option<&PrometheusExporterSettings> {
    spec.prometheus_exporter.as_ref().filter(|exporter| exporter.enabled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ports(spec: serde_json::Value) -> IronicPorts {
        let spec: IronicSpec = serde_json::from_value(spec).unwrap();
        IronicPorts::of(&spec.networking)
    }

    #[test]
    fn ports_do_not_depend_on_the_api_server() {
        let all = IronicPorts {
            api: 6385,
            image_server: 6180,
            image_server_tls: 6183,
            metrics: 9608,
            rpc: 6189,
        };
        for spec in [json!({}), json!({"networking": null}), json!({"networking": {}})] {
            assert_eq!(ports(spec.clone()), all, "{spec}");
        }
        assert_eq!(
            ports(json!({"networking": {"apiPort": 8080}})),
            IronicPorts { api: 8080, ..all }
        );
        assert_eq!(ports(json!({"networking": {"apiPort": 70000}})), all);
    }
}
