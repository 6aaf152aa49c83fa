// SPDX-License-Identifier: Apache-2.0
//! Collector `extra-hardware`: quadruples of class, device, key and value, all strings, with the names
//! of the `hardware` library, which builds them from `lshw` and its own probes.
//!
//! Only the data that inspection rules commonly use is included: system, firmware, processors, memory,
//! disks and NICs. SMART values and RAID controllers are omitted.

use serde_json::Value;

use crate::LocalMachine;

/// Returns one quadruple.
pub(crate) fn hardware_fact(class: &str, device: &str, key: &str, value: impl ToString) -> Value {
    Value::from([class, device, key, &value.to_string()].map(str::to_owned).to_vec())
}

pub(crate) fn collect(machine: &LocalMachine) -> Vec<Value> {
    let mut facts = HardwareFacts::default();
    add_system(&mut facts, machine);
    add_processors(&mut facts, machine);
    add_disks(&mut facts, machine);
    add_network(&mut facts, machine);
    facts.facts
}

#[derive(Default)]
struct HardwareFacts {
    facts: Vec<Value>,
}

impl HardwareFacts {
    fn add(&mut self, class: &str, device: &str, key: &str, value: impl ToString) {
        let value = value.to_string();
        if !value.is_empty() {
            self.facts.push(hardware_fact(class, device, key, value));
        }
    }
}

fn add_system(facts: &mut HardwareFacts, machine: &LocalMachine) {
    let files = &machine.files;
    let vendor = machine.system_vendor();
    facts.add("system", "product", "name", vendor.product_name);
    facts.add("system", "product", "vendor", vendor.manufacturer);
    facts.add("system", "product", "serial", vendor.serial_number);
    let uuid = files.text("sys/class/dmi/id/product_uuid").unwrap_or_default();
    facts.add("system", "product", "uuid", uuid);
    let kernel = rustix::system::uname();
    facts.add("system", "kernel", "version", kernel.release().to_string_lossy());
    facts.add("system", "kernel", "arch", kernel.machine().to_string_lossy());
    facts.add("firmware", "bios", "vendor", vendor.firmware.vendor);
    facts.add("firmware", "bios", "version", vendor.firmware.version);
    facts.add("firmware", "bios", "date", vendor.firmware.build_date);
    let megabytes = machine.memory().physical_mb;
    if let Some(bytes) = megabytes.and_then(|megabytes| megabytes.checked_mul(1024 * 1024)) {
        facts.add("memory", "total", "size", bytes);
    }
}

fn add_processors(facts: &mut HardwareFacts, machine: &LocalMachine) {
    let cpu = machine.cpu();
    let sockets = cpu.socket_count.unwrap_or(1);
    facts.add("cpu", "physical", "number", sockets);
    facts.add("cpu", "logical", "number", cpu.count);
    // Servers have the same processor in all sockets.
    for socket in 0..sockets {
        let device = format!("physical_{socket}");
        facts.add("cpu", &device, "product", cpu.model_name.as_deref().unwrap_or_default());
        facts.add("cpu", &device, "flags", cpu.flags.join(" "));
        facts.add("cpu", &device, "threads", cpu.count / sockets);
    }
}

fn add_disks(facts: &mut HardwareFacts, machine: &LocalMachine) {
    const GIGABYTE: u64 = 1_000_000_000;
    let disks = machine.disks();
    facts.add("disk", "logical", "count", disks.len());
    for disk in disks {
        let name = disk.name.trim_start_matches("/dev/");
        facts.add("disk", name, "size", disk.size / GIGABYTE);
        facts.add("disk", name, "vendor", disk.vendor.unwrap_or_default());
        facts.add("disk", name, "model", disk.model.unwrap_or_default());
        let attributes = [
            ("rev", "device/rev"),
            ("optimal_io_size", "queue/optimal_io_size"),
            ("physical_block_size", "queue/physical_block_size"),
            ("rotational", "queue/rotational"),
            ("nr_requests", "queue/nr_requests"),
            ("scheduler", "queue/scheduler"),
        ];
        for (key, attribute) in attributes {
            let value = machine.files.text(format!("sys/block/{name}/{attribute}"));
            facts.add("disk", name, key, value.unwrap_or_default());
        }
        let serial = disk.serial.unwrap_or_default();
        facts.add("disk", name, "SMART/serial_number", serial);
        if let Some(wwn) = disk.wwn {
            facts.add("disk", name, "wwn-id", format!("wwn-{wwn}"));
        }
    }
}

fn add_network(facts: &mut HardwareFacts, machine: &LocalMachine) {
    for interface in machine.interfaces() {
        let name = interface.name.as_str();
        facts.add("network", name, "serial", interface.mac_address);
        facts.add("network", name, "ipv4", interface.ipv4_address.unwrap_or_default());
        facts.add("network", name, "driver", interface.driver.unwrap_or_default());
        facts.add("network", name, "link", if interface.has_carrier { "yes" } else { "no" });
        if let Some(address) = interface.pci_address {
            facts.add("network", name, "businfo", format!("pci@{address}"));
        }
        if let Some(speed) = interface.speed_mbps {
            facts.add("network", name, "speed", format!("{speed}Mbit/s"));
        }
    }
}
