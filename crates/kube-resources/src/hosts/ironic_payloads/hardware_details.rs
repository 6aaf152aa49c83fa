// SPDX-License-Identifier: Apache-2.0
//! The inventory of an inspected node as hardware details.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::hardware_data::{
    HardwareDetails, HostBios, HostCpu, HostDisk, HostDiskType, HostFirmware, HostLldp, HostNic,
    HostSystemVendor, HostVlan,
};
use crate::optional::{non_empty, null_is_default};

/// The response of `GET /v1/nodes/{id}/inventory`. Only used fields are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct IronicInventory {
    #[serde(deserialize_with = "null_is_default")]
    inventory: InspectedMachine,
    #[serde(deserialize_with = "null_is_default")]
    plugin_data: PluginData,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct InspectedMachine {
    #[serde(deserialize_with = "null_is_default")]
    interfaces: Vec<IronicInterface>,
    #[serde(deserialize_with = "null_is_default")]
    disks: Vec<IronicDisk>,
    #[serde(deserialize_with = "null_is_default")]
    memory: IronicMemory,
    #[serde(deserialize_with = "null_is_default")]
    cpu: IronicCpu,
    #[serde(deserialize_with = "null_is_default")]
    system_vendor: IronicSystemVendor,
    #[serde(deserialize_with = "non_empty")]
    hostname: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct IronicInterface {
    #[serde(deserialize_with = "null_is_default")]
    name: String,
    #[serde(deserialize_with = "non_empty")]
    mac_address: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    ipv4_address: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    ipv6_address: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    vendor: String,
    #[serde(deserialize_with = "null_is_default")]
    product: String,
    #[serde(deserialize_with = "null_is_default")]
    speed_mbps: i64,
    #[serde(deserialize_with = "non_empty")]
    pci_address: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct IronicDisk {
    #[serde(deserialize_with = "null_is_default")]
    name: String,
    #[serde(deserialize_with = "non_empty")]
    by_path: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    rotational: bool,
    #[serde(deserialize_with = "null_is_default")]
    size: i64,
    #[serde(deserialize_with = "non_empty")]
    vendor: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    model: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    serial: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    wwn: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    wwn_vendor_extension: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    wwn_with_extension: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    hctl: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct IronicMemory {
    #[serde(deserialize_with = "null_is_default")]
    physical_mb: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct IronicCpu {
    #[serde(deserialize_with = "non_empty")]
    architecture: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    model_name: Option<String>,
    /// MHz, as text or number.
    frequency: Value,
    #[serde(deserialize_with = "null_is_default")]
    count: i64,
    #[serde(deserialize_with = "null_is_default")]
    flags: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct IronicSystemVendor {
    #[serde(deserialize_with = "non_empty")]
    manufacturer: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    product_name: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    serial_number: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    firmware: IronicSystemFirmware,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct IronicSystemFirmware {
    #[serde(deserialize_with = "non_empty")]
    vendor: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    version: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    build_date: Option<String>,
}

/// Results of inspection hooks. Their form depends on the hooks, so other forms are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PluginData {
    all_interfaces: Value,
    parsed_lldp: Value,
}

/// Translates an inventory. Values that the schema does not accept are left out, because the API
/// server would reject the whole object.
#[must_use]
pub fn hardware_details(data: &IronicInventory) -> HardwareDetails {
    let IronicInventory { inventory, plugin_data } = data;
    let vendor = &inventory.system_vendor;
    HardwareDetails {
        system_vendor: HostSystemVendor {
            manufacturer: vendor.manufacturer.clone(),
            product_name: vendor.product_name.clone(),
            serial_number: vendor.serial_number.clone(),
        },
        firmware: HostFirmware {
            bios: HostBios {
                date: vendor.firmware.build_date.clone(),
                vendor: vendor.firmware.vendor.clone(),
                version: vendor.firmware.version.clone(),
            },
        },
        ram_mebibytes: inventory.memory.physical_mb,
        nics: inventory.interfaces.iter().flat_map(|nic| nics(nic, plugin_data)).collect(),
        storage: inventory.disks.iter().map(disk).collect(),
        cpu: cpu(&inventory.cpu),
        hostname: inventory.hostname.clone(),
    }
}

/// One entry per address, and one for an interface without addresses.
fn nics(interface: &IronicInterface, plugin_data: &PluginData) -> Vec<HostNic> {
    let of_interface = |data: &Value| data.get(&interface.name).cloned().unwrap_or_default();
    let lldp = of_interface(&plugin_data.parsed_lldp);
    let empty = Map::new();
    let lldp = lldp.as_object().unwrap_or(&empty);
    let nic = HostNic {
        name: Some(interface.name.clone()).filter(|name| !name.is_empty()),
        model: Some(format!("{} {}", interface.vendor, interface.product).trim().to_owned())
            .filter(|model| !model.is_empty()),
        mac: interface.mac_address.clone().filter(|address| contains_mac(address)),
        ip: None,
        speed_gbps: interface.speed_mbps / 1000,
        vlans: vlans(lldp),
        vlan_id: lldp.get("switch_port_untagged_vlan_id").and_then(vlan_id).unwrap_or_default(),
        pxe: of_interface(&plugin_data.all_interfaces)["pxe_enabled"] == true,
        lldp: switch_port(lldp),
        pci_address: interface.pci_address.clone(),
    };
    let addresses: Vec<&String> =
        [&interface.ipv4_address, &interface.ipv6_address].into_iter().flatten().collect();
    if addresses.is_empty() {
        return vec![nic];
    }
    let with_address = |address: &String| HostNic { ip: Some(address.clone()), ..nic.clone() };
    addresses.into_iter().map(with_address).collect()
}

/// Whether a text matches the pattern of the schema, which is not anchored at its end.
fn contains_mac(text: &str) -> bool {
    let octets: Vec<&str> = text.split(':').collect();
    octets.len() >= 6
        && octets
            .iter()
            .all(|octet| octet.len() == 2 && octet.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn vlans(lldp: &Map<String, Value>) -> Vec<HostVlan> {
    let listed = lldp.get("switch_port_vlans").and_then(Value::as_array);
    let vlan = |vlan: &Value| {
        let name = vlan.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        Some(HostVlan { id: vlan_id(vlan.get("id")?)?, name: name.map(str::to_owned) })
    };
    listed.into_iter().flatten().filter_map(vlan).collect()
}

fn vlan_id(value: &Value) -> Option<i32> {
    let id = i32::try_from(value.as_i64()?).ok()?;
    (0..=4094).contains(&id).then_some(id)
}

fn switch_port(lldp: &Map<String, Value>) -> Option<HostLldp> {
    let text = |key: &str| {
        let value = lldp.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        value.map(str::to_owned)
    };
    let port = HostLldp {
        switch_id: text("switch_chassis_id"),
        port_id: text("switch_port_id"),
        switch_system_name: text("switch_system_name"),
    };
    (port != HostLldp::default()).then_some(port)
}

fn disk(disk: &IronicDisk) -> HostDisk {
    let kernel_name = Some(disk.name.clone()).filter(|name| !name.is_empty());
    let disk_type = if disk.rotational {
        HostDiskType::Hdd
    } else if disk.name.starts_with("/dev/nvme") {
        HostDiskType::Nvme
    } else {
        HostDiskType::Ssd
    };
    HostDisk {
        // Names of the kernel can change at every boot.
        name: disk.by_path.clone().or_else(|| kernel_name.clone()),
        alternate_names: kernel_name.into_iter().chain(disk.by_path.clone()).collect(),
        rotational: disk.rotational,
        disk_type: Some(disk_type),
        size_bytes: disk.size,
        vendor: disk.vendor.clone(),
        model: disk.model.clone(),
        serial_number: disk.serial.clone(),
        wwn: disk.wwn.clone(),
        wwn_vendor_extension: disk.wwn_vendor_extension.clone(),
        wwn_with_extension: disk.wwn_with_extension.clone(),
        hctl: disk.hctl.clone(),
    }
}

fn cpu(cpu: &IronicCpu) -> HostCpu {
    let as_text = cpu.frequency.as_str().and_then(|text| text.trim().parse::<f64>().ok());
    let megahertz = as_text.or(cpu.frequency.as_f64());
    let mut flags = cpu.flags.clone();
    flags.sort_unstable();
    HostCpu {
        arch: cpu.architecture.clone(),
        model: cpu.model_name.clone(),
        clock_megahertz: megahertz.filter(|value| value.is_finite()).unwrap_or_default().round(),
        flags,
        count: cpu.count,
    }
}

#[cfg(test)]
mod tests;
