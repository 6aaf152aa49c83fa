// SPDX-License-Identifier: Apache-2.0
//! What a machine is made of, as an inspection ramdisk finds it.

use std::fmt::Write as _;
use std::net::SocketAddr;

use agent_protocol::{
    BootInfo, Configuration, Cpu, Disk, Firmware, Interface, Inventory, ManagerVersion, Memory,
    Report, SystemVendor, choose_root_device,
};
use serde_json::Map;

use crate::machine::{BootMode, Machine};
use crate::personality::{ComponentKind, Personality};

/// Everything about the machine, whose BMC has this address.
pub(super) fn report(machine: &Machine, bmc: SocketAddr) -> Report {
    let personality = machine.personality();
    let identity = machine.identity();
    let boot_interface = format!("01-{}", identity.mac(0).as_str().replace(':', "-"));
    let disks = disks(machine);
    let root_disk = choose_root_device(&disks, None).ok().cloned();
    let mode = machine.booted().map_or(BootMode::Uefi, |boot| boot.mode);
    let inventory = Inventory {
        interfaces: (0..personality.network.count).map(|card| interface(machine, card)).collect(),
        cpu: cpu(personality),
        disks,
        memory: Memory {
            total: Some(u64::from(personality.memory_gib) << 30),
            physical_mb: Some(u64::from(personality.memory_gib) * 1024),
        },
        bmc_address: Some(if bmc.is_ipv4() { bmc.ip().to_string() } else { "0.0.0.0".to_owned() }),
        bmc_v6address: Some(if bmc.is_ipv6() { bmc.ip().to_string() } else { "::/0".to_owned() }),
        bmc_mac: Some(identity.mac(255).to_string()),
        system_vendor: SystemVendor {
            product_name: personality.model.clone(),
            serial_number: identity.serial(&personality.ids.serial_prefix),
            manufacturer: personality.manufacturer.clone(),
            firmware: firmware(personality),
        },
        boot: BootInfo {
            current_boot_mode: match mode {
                BootMode::Legacy => "bios",
                BootMode::Uefi => "uefi",
            }
            .to_owned(),
            pxe_interface: Some(boot_interface.clone()),
        },
        hostname: "localhost".to_owned(),
    };
    let manager =
        ManagerVersion { name: "generic_hardware_manager".to_owned(), version: "1.2".to_owned() };
    Report {
        inventory,
        root_disk,
        boot_interface: Some(boot_interface),
        configuration: Some(Configuration {
            collectors: vec!["default".to_owned(), "logs".to_owned()],
            managers: vec![manager],
        }),
        error: None,
        logs: Some(super::work::LOGS.to_owned()),
        rest: Map::new(),
    }
}

fn cpu(personality: &Personality) -> Cpu {
    let processors = &personality.processors;
    Cpu {
        model_name: Some(processors.model.clone()),
        frequency: Some(format!("{}.0000", processors.mhz)),
        count: processors.count * processors.cores * 2,
        architecture: "x86_64".to_owned(),
        flags: ["fpu", "aes", "vmx", "hypervisor"].map(str::to_owned).to_vec(),
        socket_count: Some(processors.count),
    }
}

fn firmware(personality: &Personality) -> Firmware {
    let bios = personality.firmware.iter().find(|rule| rule.kind == ComponentKind::Bios);
    Firmware {
        vendor: personality.manufacturer.clone(),
        version: bios.map(|rule| rule.version.clone()).unwrap_or_default(),
        build_date: "04/01/2025".to_owned(),
    }
}

fn interface(machine: &Machine, card: u8) -> Interface {
    let identity = machine.identity();
    let index = identity.index.to_be_bytes();
    Interface {
        name: format!("eno{}", u32::from(card) + 1),
        mac_address: identity.mac(card).to_string(),
        // Only the card it booted from has an address.
        ipv4_address: (card == 0).then(|| format!("10.{}.{}.{}", index[1], index[2], index[3])),
        ipv6_address: None,
        has_carrier: true,
        lldp: Some(neighbour(identity.index, card)),
        vendor: Some("0x8086".to_owned()),
        product: Some("0x159b".to_owned()),
        client_id: None,
        biosdevname: None,
        speed_mbps: Some(machine.personality().network.mbps.into()),
        pci_address: Some(format!("0000:18:00.{card}")),
        driver: Some("ice".to_owned()),
    }
}

/// What the switch at the other end says: the cards are plugged into two switches by turns, and on
/// each every machine has a port of its own.
fn neighbour(index: u32, card: u8) -> Vec<(u8, String)> {
    let switch = card % 2;
    let chassis = [4, 0x02, 0x5c, 0, 0, 0, switch];
    let name = format!("leaf-{}", switch + 1);
    let port = format!("Ethernet{}/{}", index + 1, card / 2 + 1);
    let port_id: Vec<u8> = std::iter::once(5).chain(port.bytes()).collect();
    vec![
        (1, hexadecimal(&chassis)),
        (2, hexadecimal(&port_id)),
        (3, hexadecimal(&[0, 120])),
        (4, hexadecimal(port.as_bytes())),
        (5, hexadecimal(name.as_bytes())),
        (0, String::new()),
    ]
}

fn disks(machine: &Machine) -> Vec<Disk> {
    let rules = machine.personality().storage.iter().flat_map(|controller| &controller.drives);
    let drives = rules.flat_map(|rule| std::iter::repeat_n(rule, rule.count));
    let (mut scsi, mut nvme) = (0_u32, 0_u32);
    (0..)
        .zip(drives)
        .map(|(place, rule)| {
            let is_nvme = rule.protocol.eq_ignore_ascii_case("nvme");
            let (name, slot) = if is_nvme {
                nvme += 1;
                (format!("/dev/nvme{}n1", nvme - 1), nvme - 1)
            } else {
                scsi += 1;
                (format!("/dev/sd{}", letters(scsi - 1)), scsi - 1)
            };
            let serial = machine.identity().part_serial(place);
            let wwn = format!("0x5000{:04x}{place:08x}", machine.identity().index & 0xffff);
            Disk {
                name,
                model: Some(rule.model.clone()),
                size: rule.gigabytes * 1_000_000_000,
                rotational: rule.media.eq_ignore_ascii_case("hdd"),
                wwn: Some(wwn.clone()),
                serial: Some(serial),
                vendor: None,
                wwn_with_extension: Some(wwn),
                wwn_vendor_extension: None,
                hctl: (!is_nvme).then(|| format!("0:0:{slot}:0")),
                by_path: Some(format!("/dev/disk/by-path/pci-0000:3b:00.0-disk-{place}")),
                logical_sectors: Some(512),
                physical_sectors: Some(4096),
                tran: Some(rule.protocol.to_ascii_lowercase()),
            }
        })
        .collect()
}

/// `a` to `z`, then `aa` and so on.
fn letters(mut number: u32) -> String {
    let mut reversed = Vec::new();
    loop {
        reversed.push(char::from(b'a' + u8::try_from(number % 26).unwrap_or_default()));
        if number < 26 {
            return reversed.into_iter().rev().collect();
        }
        number = number / 26 - 1;
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::machine::Identity;

    #[test]
    fn every_kind_of_machine_has_a_report_as_agents_send_it() {
        for name in Personality::names() {
            let personality = Arc::new(Personality::named(name).unwrap());
            let machine = Machine::new(Identity { index: 41, seed: 1 }, personality);
            let found = report(&machine, "127.0.0.1:8000".parse().unwrap());
            let text = serde_json::to_string(&found).unwrap();
            let again: Report = serde_json::from_str(&text).unwrap();
            assert_eq!(again, found, "{name}");
            assert!(found.root_disk.is_some(), "{name}");
            let macs: Vec<_> =
                found.inventory.interfaces.iter().map(|card| card.mac_address.as_str()).collect();
            assert_eq!(macs[0], "02:01:00:00:29:00", "{name}");
            let lldp = found.inventory.interfaces[0].lldp.as_ref().unwrap();
            assert!(lldp.contains(&(5, hexadecimal(b"leaf-1"))), "{name}");
        }
    }

    #[test]
    fn disks_are_named_as_the_kernel_does() {
        let names: Vec<_> = [0, 25, 26, 51, 52, 701, 702].map(letters).to_vec();
        assert_eq!(names, ["a", "z", "aa", "az", "ba", "zz", "aaa"]);
    }
}
