// SPDX-License-Identifier: Apache-2.0
//! Node and port data for enrolling a simulated machine in Ironic or Ferrite.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::redfish_service;
use crate::simulated_bmc::SimulatedBmc;

/// A node to create, with its ports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Enrolment {
    /// The node's name.
    pub name: String,
    /// The hardware type.
    pub driver: String,
    /// Address and credentials of the BMC.
    pub driver_info: BTreeMap<String, Value>,
    /// Ironic's hardware properties.
    pub properties: Map<String, Value>,
    /// The resource class.
    pub resource_class: String,
    /// The ports to create.
    pub ports: Vec<EnrolmentPort>,
}

/// A port to create.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnrolmentPort {
    /// The MAC.
    pub address: String,
}

/// Returns the enrolment with the driver `redfish`. Without `ca` the certificate is not verified.
pub(crate) fn redfish_enrolment(bmc: &SimulatedBmc, ca: Option<&str>) -> Enrolment {
    let shared = &bmc.fleet;
    let scheme = if shared.is_tls { "https" } else { "http" };
    let system = bmc.with_model(|machine, _| redfish_service::system_path(machine));
    let driver_info = [
        ("redfish_address", json!(format!("{scheme}://{}", bmc.address))),
        ("redfish_system_id", json!(system)),
        ("redfish_username", json!(shared.credentials.username)),
        ("redfish_password", json!(shared.credentials.password)),
        ("redfish_verify_ca", ca.map_or(json!(false), |ca| json!(ca))),
    ];
    let driver_info = driver_info.map(|(key, value)| (key.to_owned(), value)).into_iter();
    // The Redfish driver uses the `ipmi_*` keys for the serial console.
    let ipmi = shared.is_ipmi.then(|| ipmi_driver_info(bmc)).into_iter().flatten();
    build_enrolment(bmc, "redfish", driver_info.chain(ipmi).collect())
}

/// Returns the enrolment with the driver `ipmi`.
pub(crate) fn ipmi_enrolment(bmc: &SimulatedBmc) -> Enrolment {
    build_enrolment(bmc, "ipmi", ipmi_driver_info(bmc).into())
}

fn ipmi_driver_info(bmc: &SimulatedBmc) -> [(String, Value); 4] {
    let credentials = &bmc.fleet.credentials;
    [
        ("ipmi_address", json!(bmc.address.ip().to_string())),
        ("ipmi_port", json!(bmc.address.port())),
        ("ipmi_username", json!(credentials.username)),
        ("ipmi_password", json!(credentials.password)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

fn build_enrolment(
    bmc: &SimulatedBmc,
    driver: &str,
    driver_info: BTreeMap<String, Value>,
) -> Enrolment {
    bmc.with_model(|machine, _| {
        let personality = machine.personality();
        let processors = &personality.processors;
        let disks = personality.storage.iter().flat_map(|rule| &rule.drives);
        let properties = json!({
            "cpu_arch": "x86_64",
            "cpus": processors.count * processors.cores * 2,
            "memory_mb": personality.memory_gib * 1024,
            "local_gb": disks.map(|drive| drive.gigabytes).min(),
            "vendor": personality.manufacturer,
            "capabilities": "boot_mode:uefi",
        });
        let ports = machine.nic_macs().into_iter();
        Enrolment {
            name: format!("{}-{:05}", bmc.fleet.name, bmc.index),
            driver: driver.to_owned(),
            driver_info,
            properties: match properties {
                Value::Object(properties) => properties,
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_) => Map::new(),
            },
            resource_class: format!("sim-{}", personality.name),
            ports: ports.map(|mac| EnrolmentPort { address: mac.to_string() }).collect(),
        }
    })
}
