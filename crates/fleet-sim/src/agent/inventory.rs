// SPDX-License-Identifier: Apache-2.0
//! The inspection data of a machine, as an agent collects it.

use std::net::SocketAddr;

use agent_protocol::{
    AgentInventory, CollectorConfiguration, InspectionReport, InventoryBoot, InventoryCpu,
    InventoryDisk, InventoryFirmware, InventoryInterface, InventoryMemory, ManagerVersion,
    SystemVendor, choose_root_device,
};
use serde_json::Map;

use super::to_hex;
use crate::machine::{BootMode, MachineModel};
use crate::personality::{ComponentKind, Personality};

/// Returns the inspection data. `bmc` is the address of the machine's BMC.
pub(super) fn inspection_report(machine: &MachineModel, bmc: SocketAddr) -> InspectionReport {
    let personality = machine.personality();
    let identity = machine.identity();
    let boot_interface = format!("01-{}", identity.mac(0).as_str().replace(':', "-"));
    let disks = disks(machine);
    let root_disk = choose_root_device(&disks, None).ok().cloned();
    let mode = machine.current_boot().map_or(BootMode::Uefi, |boot| boot.mode);
    let inventory = AgentInventory {
        interfaces: (0..personality.network.count).map(|nic| interface(machine, nic)).collect(),
        cpu: cpu(personality),
        disks,
        memory: InventoryMemory {
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
        boot: InventoryBoot {
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
    InspectionReport {
        inventory,
        root_disk,
        boot_interface: Some(boot_interface),
        configuration: Some(CollectorConfiguration {
            collectors: vec!["default".to_owned(), "logs".to_owned()],
            managers: vec![manager],
        }),
        error: None,
        logs: Some(super::commands::LOGS.to_owned()),
        rest: Map::new(),
    }
}

fn cpu(personality: &Personality) -> InventoryCpu {
    let processors = &personality.processors;
    InventoryCpu {
        model_name: Some(processors.model.clone()),
        frequency: Some(format!("{}.0000", processors.mhz)),
        count: processors.count * processors.cores * 2,
        architecture: "x86_64".to_owned(),
        flags: ["fpu", "aes", "vmx", "hypervisor"].map(str::to_owned).to_vec(),
        socket_count: Some(processors.count),
    }
}

fn firmware(personality: &Personality) -> InventoryFirmware {
    let bios = personality.firmware.iter().find(|rule| rule.kind == ComponentKind::Bios);
    InventoryFirmware {
        vendor: personality.manufacturer.clone(),
        version: bios.map(|rule| rule.version.clone()).unwrap_or_default(),
        build_date: "04/01/2025".to_owned(),
    }
}

fn interface(machine: &MachineModel, nic: u8) -> InventoryInterface {
    let identity = machine.identity();
    InventoryInterface {
        name: format!("eno{}", u32::from(nic) + 1),
        mac_address: identity.mac(nic).to_string(),
        // Only the NIC that it booted from has an address.
        ipv4_address: (nic == 0).then(|| identity.ipv4_address().to_string()),
        ipv6_address: None,
        has_carrier: true,
        lldp: Some(lldp_neighbour(identity.index, nic)),
        vendor: Some("0x8086".to_owned()),
        product: Some("0x159b".to_owned()),
        client_id: None,
        biosdevname: None,
        speed_mbps: Some(machine.personality().network.mbps.into()),
        pci_address: Some(format!("0000:18:00.{nic}")),
        driver: Some("ice".to_owned()),
    }
}

/// Returns the LLDP TLVs that the switch sends. NICs are connected to two switches alternately, and
/// each machine has its own port on both.
fn lldp_neighbour(index: u32, nic: u8) -> Vec<(u8, String)> {
    let switch = nic % 2;
    let chassis = [4, 0x02, 0x5c, 0, 0, 0, switch];
    let name = format!("leaf-{}", switch + 1);
    let port = format!("Ethernet{}/{}", index + 1, nic / 2 + 1);
    let port_id: Vec<u8> = std::iter::once(5).chain(port.bytes()).collect();
    vec![
        (1, to_hex(&chassis)),
        (2, to_hex(&port_id)),
        (3, to_hex(&[0, 120])),
        (4, to_hex(port.as_bytes())),
        (5, to_hex(name.as_bytes())),
        (0, String::new()),
    ]
}

/// Returns the disks of the machine, as the kernel names them.
pub(super) fn disks(machine: &MachineModel) -> Vec<InventoryDisk> {
    let rules = machine.personality().storage.iter().flat_map(|controller| &controller.drives);
    let drives = rules.flat_map(|rule| std::iter::repeat_n(rule, rule.count));
    let (mut scsi, mut nvme) = (0_u32, 0_u32);
    (0..)
        .zip(drives)
        .map(|(index, rule)| {
            let is_nvme = rule.protocol.eq_ignore_ascii_case("nvme");
            let (name, slot) = if is_nvme {
                nvme += 1;
                (format!("/dev/nvme{}n1", nvme - 1), nvme - 1)
            } else {
                scsi += 1;
                (format!("/dev/sd{}", disk_letters(scsi - 1)), scsi - 1)
            };
            let serial = machine.identity().part_serial(index);
            let wwn = format!("0x5000{:04x}{index:08x}", machine.identity().index & 0xffff);
            InventoryDisk {
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
                by_path: Some(format!("/dev/disk/by-path/pci-0000:3b:00.0-disk-{index}")),
                logical_sectors: Some(512),
                physical_sectors: Some(4096),
                tran: Some(rule.protocol.to_ascii_lowercase()),
            }
        })
        .collect()
}

/// Returns the letters of a SCSI disk name: `a` to `z`, then `aa` and so on.
fn disk_letters(mut number: u32) -> String {
    let mut reversed = Vec::new();
    loop {
        reversed.push(char::from(b'a' + u8::try_from(number % 26).unwrap_or_default()));
        if number < 26 {
            return reversed.into_iter().rev().collect();
        }
        number = number / 26 - 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::machine::MachineIdentity;

    #[test]
    fn inspection_report_round_trips_for_every_personality() {
        for name in Personality::built_in_names() {
            let personality = Arc::new(Personality::built_in(name).unwrap());
            let machine = MachineModel::new(MachineIdentity { index: 41, seed: 1 }, personality);
            let report = inspection_report(&machine, "127.0.0.1:8000".parse().unwrap());
            let text = serde_json::to_string(&report).unwrap();
            let parsed: InspectionReport = serde_json::from_str(&text).unwrap();
            assert_eq!(parsed, report, "{name}");
            assert!(report.root_disk.is_some(), "{name}");
            let interfaces = &report.inventory.interfaces;
            assert_eq!(interfaces[0].mac_address, "02:01:00:00:29:00", "{name}");
            let lldp = interfaces[0].lldp.as_ref().unwrap();
            assert!(lldp.contains(&(5, to_hex(b"leaf-1"))), "{name}");
        }
    }

    #[test]
    fn names_disks_as_the_kernel_does() {
        let names: Vec<_> = [0, 25, 26, 51, 52, 701, 702].map(disk_letters).to_vec();
        assert_eq!(names, ["a", "z", "aa", "az", "ba", "zz", "aaa"]);
    }
}
