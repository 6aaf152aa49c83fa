// SPDX-License-Identifier: Apache-2.0
//! Collector `extra-hardware`: the machine as quadruples of class, device, key and value, all of them
//! text, with the names of the `hardware` library, which turns `lshw` and its own probes into such.
//!
//! Only what rules are commonly written about is there: system, firmware, processors, memory, disks and
//! network cards. SMART values and RAID controllers are not.

use serde_json::Value;

use crate::Machine;

/// A fact, as it is sent.
pub(crate) fn fact(class: &str, device: &str, key: &str, value: impl ToString) -> Value {
    Value::from([class, device, key, &value.to_string()].map(str::to_owned).to_vec())
}

pub(crate) fn collect(machine: &Machine) -> Vec<Value> {
    let mut facts = Facts::default();
    add_system(&mut facts, machine);
    add_processors(&mut facts, machine);
    add_disks(&mut facts, machine);
    add_network(&mut facts, machine);
    facts.facts
}

#[derive(Default)]
struct Facts {
    facts: Vec<Value>,
}

impl Facts {
    fn add(&mut self, class: &str, device: &str, key: &str, value: impl ToString) {
        let value = value.to_string();
        if !value.is_empty() {
            self.facts.push(fact(class, device, key, value));
        }
    }
}

fn add_system(facts: &mut Facts, machine: &Machine) {
    let tree = &machine.tree;
    let vendor = machine.system_vendor();
    facts.add("system", "product", "name", vendor.product_name);
    facts.add("system", "product", "vendor", vendor.manufacturer);
    facts.add("system", "product", "serial", vendor.serial_number);
    let uuid = tree.text("sys/class/dmi/id/product_uuid").unwrap_or_default();
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

fn add_processors(facts: &mut Facts, machine: &Machine) {
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

fn add_disks(facts: &mut Facts, machine: &Machine) {
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
            let value = machine.tree.text(format!("sys/block/{name}/{attribute}"));
            facts.add("disk", name, key, value.unwrap_or_default());
        }
        let serial = disk.serial.unwrap_or_default();
        facts.add("disk", name, "SMART/serial_number", serial);
        if let Some(wwn) = disk.wwn {
            facts.add("disk", name, "wwn-id", format!("wwn-{wwn}"));
        }
    }
}

fn add_network(facts: &mut Facts, machine: &Machine) {
    for card in machine.interfaces() {
        let name = card.name.as_str();
        facts.add("network", name, "serial", card.mac_address);
        facts.add("network", name, "ipv4", card.ipv4_address.unwrap_or_default());
        facts.add("network", name, "driver", card.driver.unwrap_or_default());
        facts.add("network", name, "link", if card.has_carrier { "yes" } else { "no" });
        if let Some(address) = card.pci_address {
            facts.add("network", name, "businfo", format!("pci@{address}"));
        }
        if let Some(speed) = card.speed_mbps {
            facts.add("network", name, "speed", format!("{speed}Mbit/s"));
        }
    }
}
