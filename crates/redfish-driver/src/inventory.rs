// SPDX-License-Identifier: Apache-2.0
//! Converts Redfish resources into node properties, ports and an inventory in the agent's format.
//! Missing data is omitted.

use drivers::NodeChanges;
use node_model::{Mac, Node};
use redfish::RedfishResource;
use serde_json::{Map, Value, json};

use super::boot_settings;

const GIBIBYTE: i64 = 1 << 30;
/// Disks below this many bytes are not used for an operating system: SD media, BMC storage.
const SMALLEST_DISK: i64 = 4 * GIBIBYTE;

/// Redfish instruction sets and the agent's names for them.
const ARCHITECTURES: &[(&str, &str)] = &[
    ("x86-64", "x86_64"),
    ("ARM-A64", "aarch64"),
    ("ARM-A32", "arm"),
    ("x86", "i686"),
    ("IA-64", "ia64"),
    ("MIPS32", "mips"),
    ("MIPS64", "mips64"),
    ("PowerISA", "ppc64le"),
    ("RV32", "riscv32"),
    ("RV64", "riscv64"),
];

/// Redfish processor architectures, for BMCs that do not report the instruction set. No server with
/// a Redfish BMC has 32-bit processors.
const FAMILIES: &[(&str, &str)] =
    &[("x86", "x86_64"), ("ARM", "aarch64"), ("Power", "ppc64le"), ("RISC-V", "riscv64")];

/// The resources that describe a machine.
#[derive(Debug)]
pub(super) struct SystemInventory {
    pub(super) system: RedfishResource,
    pub(super) processors: Vec<RedfishResource>,
    pub(super) interfaces: Vec<RedfishResource>,
    pub(super) storage: Vec<StorageSubsystem>,
    pub(super) simple_storage: Vec<RedfishResource>,
    pub(super) bmc_interfaces: Vec<RedfishResource>,
}

/// A `Storage` resource with its drives and volumes.
#[derive(Debug)]
pub(super) struct StorageSubsystem {
    pub(super) unit: RedfishResource,
    pub(super) drives: Vec<RedfishResource>,
    pub(super) volumes: Vec<RedfishResource>,
}

impl SystemInventory {
    /// A machine of which only the System is known.
    pub(super) const fn from_system(system: RedfishResource) -> Self {
        Self {
            system,
            processors: Vec::new(),
            interfaces: Vec::new(),
            storage: Vec::new(),
            simple_storage: Vec::new(),
            bmc_interfaces: Vec::new(),
        }
    }

    /// Returns the node changes.
    pub(super) fn changes(&self, node: &Node) -> NodeChanges {
        let mut properties = Map::new();
        let mut set = |key: &str, value: Value| properties.insert(key.to_owned(), value);
        if let Some(megabytes) = self.memory_mb() {
            set("memory_mb", megabytes.into());
        }
        if let Some(architecture) = self.architecture() {
            set("cpu_arch", architecture.into());
        }
        if let Some(count) = self.cpu_count() {
            set("cpus", count.into());
        }
        set("local_gb", self.local_gb().into());
        let boot_mode = self.boot_mode();
        if let Some(mode) = boot_mode
            && let Some(capabilities) = with_boot_mode(node, mode)
        {
            set("capabilities", capabilities);
        }
        NodeChanges { properties, boot_mode: boot_mode.map(str::to_owned), ..NodeChanges::none() }
    }

    /// Returns the MAC addresses of enabled NICs, or of all NICs if none is enabled: BMCs also report
    /// NICs without link as disabled.
    pub(super) fn ports(&self) -> Vec<Mac> {
        let addresses = |usable: fn(&RedfishResource) -> bool| {
            let mut found: Vec<Mac> = Vec::new();
            for mac in self.interfaces.iter().filter(|nic| usable(nic)).filter_map(address) {
                if !found.contains(&mac) {
                    found.push(mac);
                }
            }
            found
        };
        let enabled = addresses(is_enabled);
        if enabled.is_empty() { addresses(|_| true) } else { enabled }
    }

    /// Returns the inventory in the agent's format.
    pub(super) fn inventory(&self) -> Map<String, Value> {
        let mut inventory = Map::new();
        let mut set = |key: &str, value: Value| inventory.insert(key.to_owned(), value);
        set("cpu", self.cpu());
        if let Some(megabytes) = self.memory_mb() {
            set(
                "memory",
                json!({"physical_mb": megabytes, "total": megabytes.saturating_mul(1 << 20)}),
            );
        }
        set("interfaces", self.interfaces.iter().filter_map(interface).collect());
        set("disks", self.disks());
        if !self.storage.is_empty() {
            set("storage_controllers", self.storage.iter().map(controller).collect());
        }
        let vendor = self.system_vendor();
        if !vendor.is_empty() {
            set("system_vendor", vendor.into());
        }
        if let Some(mode) = self.boot_mode() {
            set("boot", json!({"current_boot_mode": mode}));
        }
        for (key, value) in self.bmc_addresses() {
            set(key, value.into());
        }
        if let Some(name) = self.system.text("/HostName").filter(|name| !name.is_empty()) {
            set("hostname", name.into());
        }
        inventory
    }

    fn memory_mb(&self) -> Option<i64> {
        let gibibytes = self.system.number("/MemorySummary/TotalSystemMemoryGiB")?;
        #[expect(clippy::cast_possible_truncation, reason = "checked to be small enough")]
        (gibibytes > 0.0 && gibibytes < 1e9).then_some((gibibytes * 1024.0) as i64)
    }

    fn cpus(&self) -> impl Iterator<Item = &RedfishResource> {
        // The collection also contains accelerators.
        self.processors.iter().filter(|processor| {
            processor.text("/ProcessorType").is_none_or(|kind| kind == "CPU")
                && processor.text("/Status/State") != Some("Absent")
        })
    }

    /// Number of logical CPUs in all sockets.
    fn cpu_count(&self) -> Option<i64> {
        let sum = |key: &str| self.cpus().filter_map(|cpu| cpu.whole(key)).sum::<i64>();
        [
            sum("/TotalThreads"),
            self.system.whole("/ProcessorSummary/LogicalProcessorCount").unwrap_or(0),
            sum("/TotalCores"),
        ]
        .into_iter()
        .find(|count| *count > 0)
    }

    fn architecture(&self) -> Option<&'static str> {
        let known = |table: &[(&str, &'static str)], key: &str| {
            let names = self.cpus().filter_map(|cpu| cpu.text(key));
            names
                .filter_map(|name| table.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)))
                .map(|(_, architecture)| *architecture)
                .next()
        };
        known(ARCHITECTURES, "/InstructionSet")
            .or_else(|| known(FAMILIES, "/ProcessorArchitecture"))
    }

    fn cpu(&self) -> Value {
        let first = self.cpus().next();
        let model = first.and_then(|cpu| cpu.text("/Model"));
        let model = model.or_else(|| self.system.text("/ProcessorSummary/Model"));
        let mut cpu = Map::new();
        // Inspection rules and hooks require these two.
        cpu.insert("count".to_owned(), self.cpu_count().unwrap_or(0).into());
        cpu.insert("architecture".to_owned(), self.architecture().unwrap_or_default().into());
        if let Some(model) = model {
            cpu.insert("model_name".to_owned(), model.into());
        }
        if let Some(megahertz) = first.and_then(|cpu| cpu.whole("/MaxSpeedMHz")) {
            cpu.insert("frequency".to_owned(), megahertz.into());
        }
        let sockets = self.system.whole("/ProcessorSummary/Count").filter(|count| *count > 0);
        let listed = i64::try_from(self.cpus().count()).ok().filter(|count| *count > 0);
        if let Some(sockets) = sockets.or(listed) {
            cpu.insert("socket_count".to_owned(), sockets.into());
        }
        cpu.into()
    }

    /// Size in GiB of the root disk candidate: the smallest disk that is large enough, a volume if there
    /// are any. One GiB less than the capacity, as schedulers expect.
    fn local_gb(&self) -> i64 {
        let simple = smallest(self.simple_disks().filter_map(simple_size));
        let of = |parts: fn(&StorageSubsystem) -> &[RedfishResource]| {
            let parts = self.storage.iter().flat_map(parts);
            smallest(parts.filter_map(|part| part.whole("/CapacityBytes")))
        };
        let full = of(|unit| &unit.volumes).or_else(|| of(|unit| &unit.drives));
        let size = simple.into_iter().chain(full).min().unwrap_or(0);
        (size / GIBIBYTE - 1).max(0)
    }

    fn simple_disks(&self) -> impl Iterator<Item = &Value> {
        self.simple_storage.iter().flat_map(|unit| unit.list("/Devices"))
    }

    fn disks(&self) -> Value {
        let mut seen = Vec::new();
        let mut disks = Vec::new();
        for drive in self.storage.iter().flat_map(|unit| &unit.drives) {
            // Two controllers may share drives.
            if !seen.contains(&drive.path.as_str()) {
                seen.push(drive.path.as_str());
                disks.push(disk(drive));
            }
        }
        if disks.is_empty() {
            disks.extend(self.simple_disks().filter_map(simple_disk));
        }
        disks.into()
    }

    fn system_vendor(&self) -> Map<String, Value> {
        let mut vendor = texts(
            &self.system,
            &[
                ("product_name", "/Model"),
                ("manufacturer", "/Manufacturer"),
                ("serial_number", "/SerialNumber"),
                ("sku", "/SKU"),
                ("system_uuid", "/UUID"),
            ],
        );
        if let Some(version) = self.system.text("/BiosVersion").filter(|text| !text.is_empty()) {
            vendor.insert("firmware".to_owned(), json!({"version": version}));
        }
        vendor
    }

    fn boot_mode(&self) -> Option<&'static str> {
        boot_settings::mode(&self.system).map(|mode| mode.as_str())
    }

    /// Returns the addresses of the BMC: its first interface with a routable address.
    fn bmc_addresses(&self) -> Vec<(&'static str, String)> {
        let reachable = |list: &str, local: &[&str]| {
            let interfaces = self.bmc_interfaces.iter();
            let mut addresses = interfaces.flat_map(|interface| {
                let addresses = interface.list(list).iter();
                addresses
                    .filter_map(move |entry| Some((interface, entry.get("Address")?.as_str()?)))
            });
            addresses.find(|(_, address)| {
                !address.is_empty() && !local.iter().any(|start| address.starts_with(start))
            })
        };
        let v4 = reachable("/IPv4Addresses", &["0.0.0.0", "127.", "169.254."]);
        let v6 = reachable("/IPv6Addresses", &["fe80:", "FE80:", "::"]);
        let mac = v4.or(v6).and_then(|(interface, _)| address(interface));
        let texts = [
            ("bmc_address", v4.map(|(_, address)| address.to_owned())),
            ("bmc_v6address", v6.map(|(_, address)| address.to_owned())),
            ("bmc_mac", mac.map(|mac| mac.to_string())),
        ];
        texts.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
    }
}

/// Adds the boot mode to the capabilities. `None` if they have one: an operator's choice is kept.
fn with_boot_mode(node: &Node, mode: &str) -> Option<Value> {
    let known = node.properties.get("capabilities").unwrap_or(Value::Null);
    match known {
        Value::Object(mut known) => {
            if known.contains_key("boot_mode") {
                return None;
            }
            known.insert("boot_mode".to_owned(), mode.into());
            Some(known.into())
        }
        Value::String(known) if !known.is_empty() => {
            let has_boot_mode =
                known.split(',').any(|entry| entry.trim().starts_with("boot_mode:"));
            (!has_boot_mode).then(|| format!("{known},boot_mode:{mode}").into())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Some(format!("boot_mode:{mode}").into())
        }
    }
}

/// Returns the MAC address of a NIC; `None` if it is missing, invalid or all zeros.
fn address(nic: &RedfishResource) -> Option<Mac> {
    let addresses = ["/MACAddress", "/PermanentMACAddress"].iter();
    addresses
        .filter_map(|key| nic.text(key)?.parse::<Mac>().ok())
        .find(|mac| mac.as_str().bytes().any(|letter| letter != b'0' && letter != b':'))
}

fn is_enabled(nic: &RedfishResource) -> bool {
    nic.flag("/InterfaceEnabled") != Some(false)
        && !matches!(nic.text("/Status/State"), Some("Absent" | "Disabled"))
}

fn interface(nic: &RedfishResource) -> Option<Value> {
    let mac = address(nic)?;
    let mut interface = Map::new();
    let mut set = |key: &str, value: Value| interface.insert(key.to_owned(), value);
    set("mac_address", mac.as_str().into());
    let name = nic.text("/Id").or_else(|| nic.text("/Name")).unwrap_or_default();
    set("name", name.into());
    if let Some(speed) = nic.whole("/SpeedMbps").filter(|speed| *speed > 0) {
        set("speed_mbps", speed.into());
    }
    if let Some(link) = nic.text("/LinkStatus") {
        set("has_carrier", (link == "LinkUp").into());
    }
    for (key, pointer) in
        [("ipv4_address", "/IPv4Addresses/0/Address"), ("ipv6_address", "/IPv6Addresses/0/Address")]
    {
        if let Some(address) = nic.text(pointer).filter(|address| !address.is_empty()) {
            set(key, address.into());
        }
    }
    Some(interface.into())
}

fn disk(drive: &RedfishResource) -> Value {
    let mut disk = texts(
        drive,
        &[
            ("name", "/Name"),
            ("vendor", "/Manufacturer"),
            ("model", "/Model"),
            ("serial", "/SerialNumber"),
        ],
    );
    if let Some(size) = drive.whole("/CapacityBytes") {
        disk.insert("size".to_owned(), size.into());
    }
    if let Some(media) = drive.text("/MediaType") {
        disk.insert("rotational".to_owned(), (media == "HDD").into());
    }
    if let Some(protocol) = drive.text("/Protocol") {
        disk.insert("tran".to_owned(), protocol.to_ascii_lowercase().into());
    }
    let names = drive.list("/Identifiers").iter();
    let mut worldwide = names.filter(|name| {
        name.get("DurableNameFormat").is_some_and(|format| format == "NAA" || format == "EUI")
    });
    if let Some(name) = worldwide.find_map(|name| name.get("DurableName")?.as_str()) {
        let digits = name.trim_start_matches("0x").to_ascii_lowercase();
        disk.insert("wwn".to_owned(), format!("0x{digits}").into());
    }
    disk.into()
}

fn simple_disk(device: &Value) -> Option<Value> {
    let text = |key: &str| device.get(key).and_then(Value::as_str).map(str::trim);
    if device.pointer("/Status/State").and_then(Value::as_str) == Some("Absent") {
        return None;
    }
    let mut disk = Map::new();
    for (key, name) in [("name", "Name"), ("vendor", "Manufacturer"), ("model", "Model")] {
        if let Some(text) = text(name) {
            disk.insert(key.to_owned(), text.into());
        }
    }
    if let Some(size) = device.get("CapacityBytes").and_then(Value::as_i64) {
        disk.insert("size".to_owned(), size.into());
    }
    Some(disk.into())
}

fn simple_size(device: &Value) -> Option<i64> {
    let state = device.pointer("/Status/State").and_then(Value::as_str);
    let size = device.get("CapacityBytes").and_then(Value::as_i64)?;
    state.is_none_or(|state| state == "Enabled").then_some(size)
}

fn smallest(sizes: impl Iterator<Item = i64>) -> Option<i64> {
    sizes.filter(|size| *size >= SMALLEST_DISK).min()
}

fn controller(storage: &StorageSubsystem) -> Value {
    let unit = &storage.unit;
    let drives: Vec<Value> = storage
        .drives
        .iter()
        .map(|drive| {
            let mut described = texts(
                drive,
                &[
                    ("id", "/Id"),
                    ("name", "/Name"),
                    ("media_type", "/MediaType"),
                    ("serial_number", "/SerialNumber"),
                    ("manufacturer", "/Manufacturer"),
                    ("model", "/Model"),
                    ("revision", "/Revision"),
                    ("protocol", "/Protocol"),
                ],
            );
            if let Some(size) = drive.whole("/CapacityBytes") {
                described.insert("size".to_owned(), size.into());
            }
            let status = texts(drive, &[("health", "/Status/Health"), ("state", "/Status/State")]);
            if !status.is_empty() {
                described.insert("status".to_owned(), status.into());
            }
            described.into()
        })
        .collect();
    let mut described = texts(unit, &[("id", "/Id"), ("name", "/Name")]);
    described.insert("drives".to_owned(), drives.into());
    described.into()
}

/// Returns the non-empty texts of a resource, each under our key for it.
fn texts(resource: &RedfishResource, keys: &[(&str, &str)]) -> Map<String, Value> {
    let found = keys.iter().filter_map(|(key, pointer)| {
        let text = resource.text(pointer).filter(|text| !text.is_empty())?;
        Some(((*key).to_owned(), text.into()))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};

    use super::*;

    fn resource(body: Value) -> RedfishResource {
        let path = body["@odata.id"].as_str().unwrap_or("/x").to_owned();
        RedfishResource { path, etag: None, body }
    }

    fn node() -> Node {
        Node::new(NodeId::random(), "redfish", Timestamp(0))
    }

    fn server() -> SystemInventory {
        let cpu = json!({"ProcessorType": "CPU", "TotalThreads": 32, "TotalCores": 16,
            "InstructionSet": "x86-64", "Model": "Xeon", "MaxSpeedMHz": 3900});
        let nic = |id: &str, mac: &str, state: &str| json!({"Id": id, "MACAddress": mac, "Status": {"State": state}, "SpeedMbps": 10000});
        let drive = |id: &str, gib: i64| {
            json!({"@odata.id": format!("/d/{id}"), "Name": id, "CapacityBytes": gib * GIBIBYTE,
                "MediaType": "SSD", "Protocol": "SATA", "SerialNumber": "S",
                "Identifiers": [{"DurableNameFormat": "NAA", "DurableName": "55CD2E4"}]})
        };
        SystemInventory {
            processors: vec![
                resource(cpu.clone()),
                resource(cpu),
                resource(json!({"ProcessorType": "GPU", "TotalThreads": 9999})),
                resource(json!({"Status": {"State": "Absent"}, "TotalThreads": 9999})),
            ],
            interfaces: vec![
                resource(nic("NIC.1", "52-54-00-AA-BB-01", "Enabled")),
                resource(nic("NIC.2", "52:54:00:aa:bb:02", "Disabled")),
                resource(nic("NIC.3", "00:00:00:00:00:00", "Enabled")),
                resource(nic("NIC.4", "not set", "Enabled")),
                resource(nic("NIC.1-1", "52:54:00:aa:bb:01", "Enabled")),
            ],
            storage: vec![StorageSubsystem {
                unit: resource(json!({"Id": "RAID.1"})),
                drives: vec![
                    resource(drive("0", 480)),
                    resource(drive("1", 2)),
                    resource(drive("0", 480)),
                ],
                volumes: Vec::new(),
            }],
            simple_storage: vec![resource(json!({"Devices": [
                {"Name": "SD", "CapacityBytes": 2 * GIBIBYTE},
                {"Name": "off", "CapacityBytes": 5 * GIBIBYTE, "Status": {"State": "Disabled"}},
                {"Name": "in", "CapacityBytes": 600 * GIBIBYTE, "Status": {"State": "Enabled"}},
            ]}))],
            bmc_interfaces: vec![
                resource(json!({"MACAddress": "d0:94:66:00:00:02",
                    "IPv4Addresses": [{"Address": "169.254.0.3"}]})),
                resource(json!({"MACAddress": "d0:94:66:00:00:01",
                    "IPv4Addresses": [{"Address": "10.0.0.5"}],
                    "IPv6Addresses": [{"Address": "fe80::1"}]})),
            ],
            ..SystemInventory::from_system(resource(json!({
                "Manufacturer": "Dell Inc.", "Model": "R640", "SerialNumber": "", "UUID": "u",
                "BiosVersion": "2.1.7", "MemorySummary": {"TotalSystemMemoryGiB": 127.5},
                "Boot": {"BootSourceOverrideMode": "UEFI"}, "ProcessorSummary": {"Count": 2},
            })))
        }
    }

    #[test]
    fn converts_a_typical_server() {
        let server = server();
        let changes = server.changes(&node());
        assert_eq!(
            Value::from(changes.properties),
            json!({"memory_mb": 130_560, "cpu_arch": "x86_64", "cpus": 64, "local_gb": 479,
                   "capabilities": "boot_mode:uefi"})
        );
        assert_eq!(changes.boot_mode.as_deref(), Some("uefi"));
        assert_eq!(server.ports(), ["52:54:00:aa:bb:01".parse().unwrap()]);
        let inventory = Value::from(server.inventory());
        assert_eq!(
            inventory["cpu"],
            json!({"count": 64, "architecture": "x86_64", "model_name": "Xeon",
                   "frequency": 3900, "socket_count": 2})
        );
        assert_eq!(inventory["interfaces"].as_array().unwrap().len(), 3);
        assert_eq!(
            inventory["interfaces"][0],
            json!({"name": "NIC.1", "mac_address": "52:54:00:aa:bb:01", "speed_mbps": 10000})
        );
        assert_eq!(inventory["disks"].as_array().unwrap().len(), 2);
        assert_eq!(
            inventory["disks"][0],
            json!({"name": "0", "size": 480 * GIBIBYTE, "rotational": false, "tran": "sata",
                   "serial": "S", "wwn": "0x55cd2e4"})
        );
        assert_eq!(
            inventory["system_vendor"],
            json!({"manufacturer": "Dell Inc.", "product_name": "R640", "system_uuid": "u",
                   "firmware": {"version": "2.1.7"}})
        );
        assert_eq!(inventory["bmc_address"], "10.0.0.5");
        assert_eq!(inventory["bmc_mac"], "d0:94:66:00:00:01");
        assert_eq!(inventory.get("bmc_v6address"), None);
        assert_eq!(inventory["boot"], json!({"current_boot_mode": "uefi"}));
    }

    #[test]
    fn omits_everything_for_an_empty_system() {
        let empty = SystemInventory::from_system(resource(json!({})));
        let changes = empty.changes(&node());
        assert_eq!(Value::from(changes.properties), json!({"local_gb": 0}));
        assert!(empty.ports().is_empty());
        assert_eq!(
            Value::from(empty.inventory()),
            json!({"cpu": {"count": 0, "architecture": ""}, "interfaces": [], "disks": []})
        );
    }

    #[test]
    fn skips_invalid_values() {
        let invalid = SystemInventory {
            processors: vec![resource(json!({"TotalThreads": "many", "InstructionSet": 7,
                "ProcessorArchitecture": "arm"}))],
            interfaces: vec![resource(json!({"Id": 5, "PermanentMACAddress": "52:54:00:00:00:01",
                "Status": {"State": "Disabled"}, "SpeedMbps": null}))],
            simple_storage: vec![resource(json!({"Devices": [7, null, {"CapacityBytes": "x"},
                {"Status": "OK", "CapacityBytes": 8 * GIBIBYTE}]}))],
            ..SystemInventory::from_system(resource(json!({
                "MemorySummary": {"TotalSystemMemoryGiB": -4}, "Boot": [],
                "ProcessorSummary": {"LogicalProcessorCount": 8},
            })))
        };
        let changes = invalid.changes(&node());
        assert_eq!(
            Value::from(changes.properties),
            json!({"cpu_arch": "aarch64", "cpus": 8, "local_gb": 7})
        );
        // All NICs are disabled, so all are used.
        assert_eq!(invalid.ports().len(), 1);
        assert_eq!(invalid.inventory()["disks"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn local_gb_prefers_volumes_and_the_smallest() {
        let mut machine = server();
        assert_eq!(machine.local_gb(), 479);
        machine.storage[0].volumes = vec![
            resource(json!({"CapacityBytes": 900 * GIBIBYTE})),
            resource(json!({"CapacityBytes": 700 * GIBIBYTE})),
        ];
        assert_eq!(machine.local_gb(), 599);
        machine.simple_storage.clear();
        assert_eq!(machine.local_gb(), 699);
    }

    #[test]
    fn keeps_boot_mode_of_the_operator() {
        for (known, expected) in [
            (Value::Null, Some(json!("boot_mode:uefi"))),
            (json!(""), Some(json!("boot_mode:uefi"))),
            (json!("a:b"), Some(json!("a:b,boot_mode:uefi"))),
            (json!("a:b,boot_mode:bios"), None),
            (json!({"a": "b"}), Some(json!({"a": "b", "boot_mode": "uefi"}))),
            (json!({"boot_mode": "bios"}), None),
        ] {
            let mut node = node();
            node.properties.set("capabilities", known.clone());
            assert_eq!(with_boot_mode(&node, "uefi"), expected, "{known}");
        }
    }
}
