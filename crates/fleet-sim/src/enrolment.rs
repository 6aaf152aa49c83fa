// SPDX-License-Identifier: Apache-2.0
//! What Ironic, or Ferrite, is told to take a simulated machine in.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::bmc::Bmc;
use crate::redfish;

/// A node as it is created, with its ports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Enrolment {
    /// The node's name.
    pub name: String,
    /// The hardware type.
    pub driver: String,
    /// How to reach the BMC, with the password.
    pub driver_info: BTreeMap<String, Value>,
    /// What the machine is.
    pub properties: Map<String, Value>,
    /// What it is scheduled by.
    pub resource_class: String,
    /// Its network ports.
    pub ports: Vec<EnrolmentPort>,
}

/// A network port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnrolmentPort {
    /// Its hardware address.
    pub address: String,
}

/// Taken in over Redfish. `ca` verifies the certificate; without it nobody does.
pub(crate) fn by_redfish(bmc: &Bmc, ca: Option<&str>) -> Enrolment {
    let shared = &bmc.shared;
    let scheme = if shared.is_tls { "https" } else { "http" };
    let system = bmc.with(|machine, _| redfish::system_path(machine));
    let driver_info = [
        ("redfish_address", json!(format!("{scheme}://{}", bmc.address))),
        ("redfish_system_id", json!(system)),
        ("redfish_username", json!(shared.credentials.username)),
        ("redfish_password", json!(shared.credentials.password)),
        ("redfish_verify_ca", ca.map_or(json!(false), |ca| json!(ca))),
    ];
    let driver_info = driver_info.map(|(key, value)| (key.to_owned(), value)).into_iter();
    // A BMC that speaks both has its serial console over IPMI only.
    let ipmi = shared.is_ipmi.then(|| ipmi_info(bmc)).into_iter().flatten();
    of(bmc, "redfish", driver_info.chain(ipmi).collect())
}

/// Taken in over IPMI.
pub(crate) fn by_ipmi(bmc: &Bmc) -> Enrolment {
    of(bmc, "ipmi", ipmi_info(bmc).into())
}

fn ipmi_info(bmc: &Bmc) -> [(String, Value); 4] {
    let credentials = &bmc.shared.credentials;
    [
        ("ipmi_address", json!(bmc.address.ip().to_string())),
        ("ipmi_port", json!(bmc.address.port())),
        ("ipmi_username", json!(credentials.username)),
        ("ipmi_password", json!(credentials.password)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

fn of(bmc: &Bmc, driver: &str, driver_info: BTreeMap<String, Value>) -> Enrolment {
    bmc.with(|machine, _| {
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
        let ports = (0..personality.network.count).map(|card| machine.identity().mac(card));
        Enrolment {
            name: format!("{}-{:05}", bmc.shared.name, bmc.index),
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
