// SPDX-License-Identifier: Apache-2.0
//! Inventories of complete machines, modelled on real ones.

mod fake_sysfs;
mod lldp_veth;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use expect_test::{Expect, expect};

use crate::InventoryOptions;
use crate::smbios::tests::structure;
use crate::vital_product_data::tests::{ata_page_83, page, page_83};
use fake_sysfs::{FakeSysfs, memory_device, on_board_nic, slot};

/// Compares the inventory, one line per item, without null fields.
fn check(machine: &FakeSysfs, expected: Expect) {
    let options = InventoryOptions {
        bootif: Some("01-b0-26-28-aa-bb-01".to_owned()),
        hostname: "localhost".to_owned(),
        ..InventoryOptions::default()
    };
    let inventory = machine.machine().inventory(&options);
    let inventory = serde_json::to_value(inventory).unwrap();
    let mut shown = String::new();
    for (key, value) in inventory.as_object().unwrap() {
        match value.as_array() {
            Some(list) => {
                for value in list {
                    shown += &format!("{key}: {}\n", without_nulls(value));
                }
            }
            None => shown += &format!("{key}: {}\n", without_nulls(value)),
        }
    }
    // The architecture is that of the machine running the tests.
    shown = shown.replace(&format!("\"architecture\":\"{}\",", std::env::consts::ARCH), "");
    expected.assert_eq(&shown);
}

fn without_nulls(value: &serde_json::Value) -> serde_json::Value {
    match value.as_object() {
        Some(map) => map.clone().into_iter().filter(|(_, value)| !value.is_null()).collect(),
        None => value.clone(),
    }
}

fn dell() -> FakeSysfs {
    let sysfs = FakeSysfs::new();
    sysfs
        .processors(8, 4, "model name\t: Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz\ncpu MHz\t\t: 2100.000\nflags\t\t: fpu vmx aes")
        .attributes("sys/devices/system/cpu/cpu3/cpufreq", "cpuinfo_max_freq 3900000")
        .memory(131_072_000)
        .directory("sys/firmware/efi")
        .attributes(
            "sys/class/dmi/id",
            "sys_vendor Dell Inc.
             product_name PowerEdge R640
             product_sku SKU=NotProvided;ModelName=PowerEdge R640
             product_serial 7XYZ123
             bios_vendor Dell Inc.
             bios_version 2.12.2
             bios_date 07/09/2021",
        )
        .smbios(&[
            memory_device(0x1100, 0x4000),
            memory_device(0x1101, 0x4000),
            memory_device(0x1102, 0),
            on_board_nic(1, 0x1a, 0x00),
            on_board_nic(2, 0x1a, 0x01),
            slot(2, 0x3b),
        ]);

    // Two on-board ports, one NIC in a slot, and the BMC's USB network interface.
    sysfs
        .attributes("sys/devices/pci0000:17/0000:1a:00.0", "vendor 0x8086\ndevice 0x1572")
        .attributes("sys/devices/pci0000:17/0000:1a:00.1", "vendor 0x8086\ndevice 0x1572")
        .attributes("sys/devices/pci0000:3a/0000:3b:00.0", "vendor 0x15b3\ndevice 0x1017")
        .nic(
            "pci0000:17/0000:1a:00.0",
            "eno1",
            "i40e",
            "address b0:26:28:aa:bb:01\ncarrier 1\nspeed 10000",
        )
        .nic("pci0000:17/0000:1a:00.1", "eno2", "i40e", "address b0:26:28:aa:bb:02\nspeed -1")
        .nic(
            "pci0000:3a/0000:3b:00.0",
            "ens2",
            "mlx5_core",
            "address a0:00:00:27:fe:80:00:00:00:00:00:00:7c:fe:90:03:00:29:26:52\ncarrier 0",
        )
        .nic(
            "pci0000:00/0000:00:14.0/usb1/1-14/1-14:1.0",
            "idrac",
            "cdc_ether",
            "address fa:d1:a6:00:00:01",
        )
        .attributes("sys/devices/virtual/net/lo", "address 00:00:00:00:00:00")
        .link("sys/class/net/lo", "sys/devices/virtual/net/lo");

    // A volume of the RAID controller, an NVMe disk, and the BMC's virtual floppy and CD.
    let controller = "pci0000:17/0000:18:00.0";
    sysfs
        .scsi(
            &format!("{controller}/host0/target0:2:0/0:2:0:0"),
            "sda",
            960,
            "vendor DELL\nmodel PERC H740P Mini\ntype 0",
        )
        .file(
            &format!("sys/devices/{controller}/host0/target0:2:0/0:2:0:0/vpd_pg80"),
            page(0x80, b"0086c9a4f2c3d1e52600e5c6b9a06d86"),
        )
        .file(
            &format!("sys/devices/{controller}/host0/target0:2:0/0:2:0:0/vpd_pg83"),
            page_83(&[(
                1,
                3,
                &[
                    0x6d, 0x09, 0x46, 0x60, 0x6e, 0xa0, 0xb9, 0, 0x26, 0xe5, 0xd1, 0xc3, 0xf2,
                    0xa4, 0xc9, 0x86,
                ],
            )]),
        )
        .file("sys/class/scsi_host/host0/proc_name", "megaraid_sas\n")
        .block(
            "pci0000:5d/0000:5e:00.0/nvme/nvme0/nvme0n1",
            6_251_233_968,
            false,
            "wwid eui.36434830547022170025385800000001\nnsid 1",
        )
        .attributes(
            "sys/devices/pci0000:5d/0000:5e:00.0/nvme/nvme0",
            "model Dell Express Flash PM1725b 3.2TB SFF    \nserial S4BENE0K102217        ",
        )
        .link(
            "sys/devices/pci0000:5d/0000:5e:00.0/nvme/nvme0/nvme0n1/device",
            "sys/devices/pci0000:5d/0000:5e:00.0/nvme/nvme0",
        )
        .scsi(
            "pci0000:00/0000:00:14.0/usb1/1-14/1-14.3/1-14.3:1.0/host1/target1:0:0/1:0:0:0",
            "sdb",
            0,
            "vendor iDRAC\nmodel Virtual Floppy\ntype 0",
        )
        .scsi(
            "pci0000:00/0000:00:14.0/usb1/1-14/1-14.3/1-14.3:1.0/host1/target1:0:0/1:0:0:1",
            "sr0",
            4,
            "vendor iDRAC\nmodel Virtual CD\ntype 5",
        );
    sysfs
}

#[test]
fn inventories_dell_with_raid_controller_and_nvme() {
    check(
        &dell(),
        expect![[r#"
        bmc_address: null
        bmc_mac: null
        bmc_v6address: null
        boot: {"current_boot_mode":"uefi","pxe_interface":"01-b0-26-28-aa-bb-01"}
        cpu: {"count":8,"flags":["fpu","vmx","aes"],"frequency":"3900.0000","model_name":"Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz","socket_count":2}
        disks: {"by_path":"/dev/disk/by-path/pci-0000:5e:00.0-nvme-1","logical_sectors":512,"model":"Dell Express Flash PM1725b 3.2TB SFF","name":"/dev/nvme0n1","physical_sectors":4096,"rotational":false,"serial":"S4BENE0K102217","size":3200631791616,"tran":"nvme","wwn":"eui.36434830547022170025385800000001"}
        disks: {"by_path":"/dev/disk/by-path/pci-0000:18:00.0-scsi-0:2:0:0","hctl":"0:2:0:0","logical_sectors":512,"model":"PERC H740P Mini","name":"/dev/sda","physical_sectors":4096,"rotational":true,"serial":"0086c9a4f2c3d1e52600e5c6b9a06d86","size":960000000000,"vendor":"DELL","wwn":"0x6d0946606ea0b90026e5d1c3f2a4c986","wwn_vendor_extension":"0x26e5d1c3f2a4c986","wwn_with_extension":"0x6d0946606ea0b90026e5d1c3f2a4c986"}
        hostname: "localhost"
        interfaces: {"biosdevname":"em1","driver":"i40e","has_carrier":true,"mac_address":"b0:26:28:aa:bb:01","name":"eno1","pci_address":"0000:1a:00.0","product":"0x1572","speed_mbps":10000,"vendor":"0x8086"}
        interfaces: {"biosdevname":"em2","driver":"i40e","has_carrier":false,"mac_address":"b0:26:28:aa:bb:02","name":"eno2","pci_address":"0000:1a:00.1","product":"0x1572","vendor":"0x8086"}
        interfaces: {"biosdevname":"p2p1","client_id":"ff:00:00:00:00:00:02:00:00:02:c9:00:7c:fe:90:03:00:29:26:52","driver":"mlx5_core","has_carrier":false,"mac_address":"7c:fe:90:29:26:52","name":"ens2","pci_address":"0000:3b:00.0","product":"0x1017","vendor":"0x15b3"}
        memory: {"physical_mb":32768,"total":134217728000}
        system_vendor: {"firmware":{"build_date":"07/09/2021","vendor":"Dell Inc.","version":"2.12.2"},"manufacturer":"Dell Inc.","product_name":"PowerEdge R640 (SKU=NotProvided;ModelName=PowerEdge R640)","serial_number":"7XYZ123"}
    "#]],
    );
}

fn hpe() -> FakeSysfs {
    let sysfs = FakeSysfs::new();
    sysfs
        .processors(2, 2, "model name\t: AMD EPYC 7452 32-Core Processor               \ncpu MHz\t\t: 2350.000\nflags\t\t: fpu svm")
        .memory(65_000_000)
        .attributes(
            "sys/class/dmi/id",
            "sys_vendor HPE\nproduct_name ProLiant DL385 Gen10 Plus\nproduct_sku P14280-B21\nproduct_serial CZ20300001\nbios_vendor HPE\nbios_version A42\nbios_date 04/08/2022",
        )
        .smbios(&[memory_device(0x1100, 65_536)]);
    // The controller's logical volume on its second channel.
    let controller = "pci0000:40/0000:43:00.0";
    let volume = format!("{controller}/host2/scsi_host/host2");
    sysfs.directory(&format!("sys/devices/{volume}"));
    let volume = format!("{controller}/host2/target2:1:0/2:1:0:0");
    sysfs
        .scsi(&volume, "sda", 480, "vendor HPE\nmodel LOGICAL VOLUME  \ntype 0")
        .file(&format!("sys/devices/{volume}/vpd_pg80"), page(0x80, b"PEYHC0DRHDA0ZV  "))
        .file(
            &format!("sys/devices/{volume}/vpd_pg83"),
            page_83(&[
                (1, 3, &[0x60, 5, 8, 0xb1, 0, 0x1c, 0x39, 0x7c, 1, 2, 3, 4, 5, 6, 7, 8]),
                (1, 0x13, &[0x50, 1, 2, 3, 4, 5, 6, 7]),
            ]),
        )
        .directory("sys/class/sas_host/host2");
    // Two SATA disks: one behind an expander, one at the mainboard's AHCI controller.
    let expander = format!("{controller}/host2/port-2:0/expander-2:0/port-2:0:3");
    let disk = format!("{expander}/end_device-2:0:3/target2:0:3/2:0:3:0");
    sysfs
        .directory(&format!("sys/devices/{expander}/phy-2:0:11"))
        .attributes(
            "sys/class/sas_device/end_device-2:0:3",
            "phy_identifier 11\nsas_address 0x50014380428a32cb",
        )
        .attributes("sys/class/sas_device/expander-2:0", "sas_address 0x50014380428a32e6")
        .scsi(&disk, "sdb", 480, "vendor ATA\nmodel MK000480GWXFF SSD\ntype 0")
        .file(&format!("sys/devices/{disk}/vpd_pg80"), page(0x80, b"                    S4KXNE0R"))
        .file(
            &format!("sys/devices/{disk}/vpd_pg83"),
            ata_page_83(
                "MK000480GWXFF SSD with a long name",
                "S4KXNE0R102030",
                &[0x50, 2, 0x53, 0x8e, 0, 0, 0, 1],
            ),
        );
    let disk = "pci0000:00/0000:00:11.5/ata3/host7/target7:0:0/7:0:0:0";
    sysfs
        .scsi(disk, "sdc", 240, "vendor ATA\nmodel INTEL SSDSC2KB24\ntype 0")
        .file(
            &format!("sys/devices/{disk}/vpd_pg83"),
            ata_page_83(
                "INTEL SSDSC2KB240G8",
                "PHYF9020001",
                &[0x55, 0xcd, 0x2e, 4, 0x14, 0xff, 0xaa, 1],
            ),
        )
        .file("sys/class/ata_port/ata3/port_no", "3\n")
        .file("sys/class/scsi_host/host7/proc_name", "ahci\n");
    sysfs
}

#[test]
fn inventories_hpe_with_volumes_expanders_and_sata() {
    check(
        &hpe(),
        expect![[r#"
            bmc_address: null
            bmc_mac: null
            bmc_v6address: null
            boot: {"current_boot_mode":"bios","pxe_interface":"01-b0-26-28-aa-bb-01"}
            cpu: {"count":2,"flags":["fpu","svm"],"frequency":"2350.000","model_name":"AMD EPYC 7452 32-Core Processor","socket_count":1}
            disks: {"by_path":"/dev/disk/by-path/pci-0000:43:00.0-scsi-0:1:0:0","hctl":"2:1:0:0","logical_sectors":512,"model":"LOGICAL VOLUME","name":"/dev/sda","physical_sectors":4096,"rotational":true,"serial":"PEYHC0DRHDA0ZV","size":480000000000,"tran":"sas","vendor":"HPE","wwn":"0x600508b1001c397c0102030405060708","wwn_vendor_extension":"0x0102030405060708","wwn_with_extension":"0x600508b1001c397c0102030405060708"}
            disks: {"by_path":"/dev/disk/by-path/pci-0000:43:00.0-sas-exp0x50014380428a32e6-phy11-lun-0","hctl":"2:0:3:0","logical_sectors":512,"model":"MK000480GWXFF SSD with a long name","name":"/dev/sdb","physical_sectors":4096,"rotational":false,"serial":"S4KXNE0R102030","size":480000000000,"tran":"sas","vendor":"ATA","wwn":"0x5002538e00000001","wwn_with_extension":"0x5002538e00000001"}
            disks: {"by_path":"/dev/disk/by-path/pci-0000:00:11.5-ata-3","hctl":"7:0:0:0","logical_sectors":512,"model":"INTEL SSDSC2KB240G8","name":"/dev/sdc","physical_sectors":4096,"rotational":false,"serial":"PHYF9020001","size":240000000000,"tran":"sata","vendor":"ATA","wwn":"0x55cd2e0414ffaa01","wwn_with_extension":"0x55cd2e0414ffaa01"}
            hostname: "localhost"
            memory: {"physical_mb":65536,"total":66560000000}
            system_vendor: {"firmware":{"build_date":"04/08/2022","vendor":"HPE","version":"A42"},"manufacturer":"HPE","product_name":"ProLiant DL385 Gen10 Plus (P14280-B21)","serial_number":"CZ20300001"}
        "#]],
    );
}

#[test]
fn inventories_virtual_machine() {
    let sysfs = FakeSysfs::new();
    sysfs
        .processors(1, 1, "model name\t: QEMU Virtual CPU version 2.5+\ncpu MHz\t\t: 2445.426\nflags\t\t: fpu hypervisor lm")
        .memory(1_000_000)
        .attributes("sys/devices/system/memory", "block_size_bytes 8000000")
        .directory("sys/devices/system/memory/memory0")
        .directory("sys/devices/system/memory/memory32")
        .attributes("sys/devices/pci0000:00/0000:00:03.0/virtio0", "vendor 0x1af4\ndevice 0x0001")
        .nic("pci0000:00/0000:00:03.0/virtio0", "eth0", "virtio_net", "address 52:54:00:12:34:56\ncarrier 1\nspeed -1")
        .attributes("sys/devices/virtual/net/eth0.42", "address 52:54:00:12:34:56")
        .link("sys/class/net/eth0.42", "sys/devices/virtual/net/eth0.42")
        .attributes("sys/devices/virtual/net/br0", "address 52:54:00:12:34:57")
        .link("sys/class/net/br0", "sys/devices/virtual/net/br0")
        .attributes("sys/devices/virtual/net/bond0", "address 52:54:00:12:34:58")
        .directory("sys/devices/virtual/net/bond0/bonding")
        .link("sys/class/net/bond0", "sys/devices/virtual/net/bond0")
        .block("pci0000:00/0000:00:04.0/virtio1/block/vda", 20_971_520, true, "serial disk-1")
        .attributes("sys/devices/pci0000:00/0000:00:04.0/virtio1", "vendor 0x1af4")
        .link(
            "sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda/device",
            "sys/devices/pci0000:00/0000:00:04.0/virtio1",
        )
        .scsi(
            "pci0000:00/0000:00:05.0/virtio2/host4/target4:0:0/4:0:0:1",
            "sda",
            10,
            "vendor QEMU\nmodel QEMU HARDDISK\ntype 0",
        )
        .file("sys/class/scsi_host/host4/proc_name", "virtio_scsi\n");
    check(
        &sysfs,
        expect![[r#"
        bmc_address: null
        bmc_mac: null
        bmc_v6address: null
        boot: {"current_boot_mode":"bios","pxe_interface":"01-b0-26-28-aa-bb-01"}
        cpu: {"count":1,"flags":["fpu","hypervisor","lm"],"frequency":"2445.426","model_name":"QEMU Virtual CPU version 2.5+","socket_count":1}
        disks: {"by_path":"/dev/disk/by-path/pci-0000:00:05.0-scsi-0:0:0:1","hctl":"4:0:0:1","logical_sectors":512,"model":"QEMU HARDDISK","name":"/dev/sda","physical_sectors":4096,"rotational":true,"size":10000000000,"vendor":"QEMU"}
        disks: {"by_path":"/dev/disk/by-path/pci-0000:00:04.0","logical_sectors":512,"name":"/dev/vda","physical_sectors":4096,"rotational":true,"serial":"disk-1","size":10737418240,"tran":"virtio","vendor":"0x1af4"}
        hostname: "localhost"
        interfaces: {"has_carrier":false,"mac_address":"52:54:00:12:34:58","name":"bond0"}
        interfaces: {"driver":"virtio_net","has_carrier":true,"mac_address":"52:54:00:12:34:56","name":"eth0","pci_address":"virtio0","product":"0x0001","vendor":"0x1af4"}
        interfaces: {"has_carrier":false,"mac_address":"52:54:00:12:34:56","name":"eth0.42"}
        memory: {"physical_mb":256,"total":1024000000}
        system_vendor: {"firmware":{"build_date":"","vendor":"","version":""},"manufacturer":"","product_name":"","serial_number":""}
    "#]],
    );
}

#[test]
fn inventories_arm_board_without_smbios() {
    let sysfs = FakeSysfs::new();
    sysfs
        .processors(4, 4, "BogoMIPS\t: 108.00\nFeatures\t: fp asimd crc32\nCPU implementer\t: 0x41\nCPU part\t: 0xd08")
        .attributes("sys/devices/system/cpu/cpu0/cpufreq", "cpuinfo_max_freq 1500000")
        .memory(3_884_360)
        .file("proc/device-tree/model", b"Raspberry Pi 4 Model B Rev 1.4\0")
        .file("proc/device-tree/serial-number", b"100000003d1d1c36\0")
        .file("proc/device-tree/compatible", b"raspberrypi,4-model-b\0brcm,bcm2711\0")
        .block("platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa/block/mmcblk0", 62_333_952, false, "")
        .attributes("sys/devices/platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa", "name SC32G\nserial 0x1b2c3d4e")
        .link(
            "sys/devices/platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa/block/mmcblk0/device",
            "sys/devices/platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa",
        )
        .nic("platform/scb/fd580000.ethernet", "eth0", "bcmgenet", "address dc:a6:32:00:00:01\ncarrier 1\nspeed 1000");
    check(
        &sysfs,
        expect![[r#"
            bmc_address: null
            bmc_mac: null
            bmc_v6address: null
            boot: {"current_boot_mode":"bios","pxe_interface":"01-b0-26-28-aa-bb-01"}
            cpu: {"count":4,"flags":["fp","asimd","crc32"],"frequency":"1500.0000","model_name":"Cortex-A72","socket_count":1}
            disks: {"by_path":"/dev/disk/by-path/platform-fe340000.mmc","logical_sectors":512,"model":"SC32G","name":"/dev/mmcblk0","physical_sectors":4096,"rotational":false,"serial":"0x1b2c3d4e","size":31914983424,"tran":"mmc"}
            hostname: "localhost"
            interfaces: {"driver":"bcmgenet","has_carrier":true,"mac_address":"dc:a6:32:00:00:01","name":"eth0","pci_address":"fd580000.ethernet","speed_mbps":1000}
            memory: {"physical_mb":3793,"total":3977584640}
            system_vendor: {"firmware":{"build_date":"","vendor":"","version":""},"manufacturer":"raspberrypi","product_name":"Raspberry Pi 4 Model B Rev 1.4","serial_number":"100000003d1d1c36"}
        "#]],
    );
}

#[test]
fn lists_only_disks_raids_and_multipath_devices() {
    let sysfs = FakeSysfs::new();
    let fibre = "pci0000:00/0000:05:00.0/host1/rport-1:0-2/target1:0:0/1:0:0:7";
    let second = "pci0000:00/0000:05:00.1/host2/rport-2:0-2/target2:0:0/2:0:0:7";
    sysfs
        .scsi(fibre, "sda", 100, "vendor PURE\nmodel FlashArray\ntype 0")
        .scsi(second, "sdb", 100, "vendor PURE\nmodel FlashArray\ntype 0")
        .scsi(
            "pci0000:00/0000:05:00.1/host2/rport-2:0-2/target2:0:0/2:0:0:8",
            "sdc",
            100,
            "vendor PURE\nmodel FlashArray\ntype 0",
        )
        .attributes("sys/class/fc_remote_ports/rport-2:0-2", "port_name 0x524a937a9bc2d412")
        .directory("sys/class/fc_host/host2")
        .block("virtual/block/dm-0", 195_312_500, false, "")
        .file("sys/devices/virtual/block/dm-0/dm/uuid", "mpath-3624a93702f1a4c4d5e6f708192a3b4c5\n")
        .block("virtual/block/dm-1", 8_000_000, false, "")
        .file("sys/devices/virtual/block/dm-1/dm/uuid", "LVM-abcdef\n")
        .block("virtual/block/md126", 8_000_000, true, "")
        .file("sys/devices/virtual/block/md126/md/level", "raid1\n")
        .block("virtual/block/md127", 8_000_000, true, "")
        .file("sys/devices/virtual/block/md127/md/level", "linear\n")
        .block("pci0000:00/0000:06:00.0/nvme/nvme0/nvme0c0n1", 8_000_000, false, "hidden 1")
        .block("virtual/nvme-subsystem/nvme-subsys0/nvme0n1", 8_000_000, false, "nsid 1")
        .attributes("sys/devices/virtual/nvme-subsystem/nvme-subsys0", "model Twice\nserial T1")
        .link(
            "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/device",
            "sys/devices/virtual/nvme-subsystem/nvme-subsys0",
        );
    for name in ["loop0", "ram0", "zram0", "fd0", "sr0"] {
        sysfs.block(&format!("virtual/block/{name}"), 8_000_000, false, "");
    }
    for disk in [fibre, second] {
        let name = if disk == fibre { "sda" } else { "sdb" };
        sysfs.link(
            &format!("sys/devices/{disk}/block/{name}/holders/dm-0"),
            "sys/devices/virtual/block/dm-0",
        );
    }
    sysfs.link("dev/disk/by-path/dm-name-of-udev", "dev/dm-0");
    check(
        &sysfs,
        expect![[r#"
            bmc_address: null
            bmc_mac: null
            bmc_v6address: null
            boot: {"current_boot_mode":"bios","pxe_interface":"01-b0-26-28-aa-bb-01"}
            cpu: {"count":0,"flags":[]}
            disks: {"by_path":"/dev/disk/by-path/dm-name-of-udev","logical_sectors":512,"name":"/dev/dm-0","physical_sectors":4096,"rotational":false,"serial":"3624a93702f1a4c4d5e6f708192a3b4c5","size":100000000000,"wwn":"0x624a93702f1a4c4d5e6f708192a3b4c5"}
            disks: {"logical_sectors":512,"name":"/dev/md126","physical_sectors":4096,"rotational":true,"size":4096000000}
            disks: {"by_path":"/dev/disk/by-path/pci-0000:06:00.0-nvme-1","logical_sectors":512,"model":"Twice","name":"/dev/nvme0n1","physical_sectors":4096,"rotational":false,"serial":"T1","size":4096000000,"tran":"nvme"}
            disks: {"by_path":"/dev/disk/by-path/pci-0000:05:00.1-fc-0x524a937a9bc2d412-lun-8","hctl":"2:0:0:8","logical_sectors":512,"model":"FlashArray","name":"/dev/sdc","physical_sectors":4096,"rotational":true,"size":100000000000,"tran":"fc","vendor":"PURE"}
            hostname: "localhost"
            memory: {}
            system_vendor: {"firmware":{"build_date":"","vendor":"","version":""},"manufacturer":"","product_name":"","serial_number":""}
        "#]],
    );
}

#[test]
fn collectors_match_ipa_output() {
    let sysfs = dell();
    let bios = [1, 2, 0, 0, 3, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 3, 8, 1, 2, 0xff, 0xff, 0x20, 0];
    let mut cpu = vec![0_u8; 0x30 - 4];
    cpu[..2].copy_from_slice(&[1, 3]);
    cpu[2] = 0xb3;
    cpu[3] = 2;
    cpu[4..12].copy_from_slice(&[0x57, 0x06, 0x05, 0x00, 0x03, 0x80, 0x00, 0x10]);
    cpu[0x11 - 4] = 0x80 | 18;
    cpu[0x14 - 4..0x16 - 4].copy_from_slice(&3900_u16.to_le_bytes());
    cpu[0x18 - 4] = 0x41;
    cpu[0x19 - 4] = 0x36;
    cpu[0x1c - 4..0x1e - 4].copy_from_slice(&[0xff, 0xff]);
    cpu[0x23 - 4..0x26 - 4].copy_from_slice(&[20, 20, 40]);
    cpu[0x26 - 4..0x28 - 4].copy_from_slice(&0xfc_u16.to_le_bytes());
    let array = [3, 3, 6, 0, 0, 0, 0x80, 0xfe, 0xff, 24, 0, 0, 0, 0, 0, 0x80, 0x7, 0, 0];
    sysfs.smbios(&[
        structure(0, 0, &bios, &["Dell Inc.", "2.12.2", "07/09/2021"]),
        structure(4, 0x400, &cpu, &["CPU1", "Intel"]),
        structure(16, 0x1000, &array, &[]),
        structure(16, 0x1001, &array, &[]),
        memory_device(0x1100, 0x4000),
        memory_device(0x1101, 0),
    ]);
    sysfs
        .link("sys/bus/pci/devices/0000:1a:00.0", "sys/devices/pci0000:17/0000:1a:00.0")
        .attributes("sys/devices/pci0000:17/0000:1a:00.0", "class 0x020000\nrevision 0x02\nnuma_node 0")
        .attributes("sys/bus/pci/devices/0000:ff:00.0", "vendor 0x8086")
        .attributes("sys/bus/usb/devices/usb1", "bDeviceClass 09\nbusnum 1\ndevnum 1\nproduct xHCI Host Controller")
        .attributes("sys/bus/usb/devices/1-14", "bDeviceClass 00\nbusnum 1\ndevnum 3\nproduct Gadget USB HUB\nmanufacturer no manufacturer")
        .attributes("sys/bus/usb/devices/1-14:1.0", "bInterfaceClass 03")
        .file("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       65536000 kB\nNode 0 MemFree: 1 kB\n")
        .file("sys/devices/system/node/node0/cpu0/topology/core_id", "0\n")
        .file("sys/devices/system/node/node0/cpu4/topology/core_id", "0\n")
        .file("sys/devices/system/node/node0/cpulist", "0,4\n");
    let machine = sysfs.machine();
    expect![[r#"
        {
          "dmi": {
            "bios": {
              "BIOS Revision": "1.2",
              "Characteristics": [
                "PCI is supported",
                "ACPI is supported",
                "USB legacy is supported",
                "UEFI is supported"
              ],
              "Handle": "Handle 0x0000, DMI type 0, 26 bytes",
              "ROM Size": "32 MB",
              "Release Date": "07/09/2021",
              "Vendor": "Dell Inc.",
              "Version": "2.12.2"
            },
            "cpu": [
              {
                "Asset Tag": "Not Specified",
                "Characteristics": [
                  "64-bit capable",
                  "Multi-Core",
                  "Hardware Thread",
                  "Execute Protection",
                  "Enhanced Virtualization",
                  "Power/Performance Control"
                ],
                "Core Count": "20",
                "Core Enabled": "20",
                "Current Speed": "Unknown",
                "External Clock": "Unknown",
                "Family": "Xeon",
                "Flags": [
                  "FPU (Floating-point unit on-chip)",
                  "VME (Virtual mode extension)",
                  "CMOV (Conditional move instruction supported)",
                  "HTT (Multi-threading)"
                ],
                "Handle": "Handle 0x0400, DMI type 4, 48 bytes",
                "ID": "57 06 05 00 03 80 00 10",
                "L1 Cache Handle": "0x0000",
                "L2 Cache Handle": "Not Provided",
                "L3 Cache Handle": "0x0000",
                "Manufacturer": "Intel",
                "Max Speed": "3900 MHz",
                "Part Number": "Not Specified",
                "Serial Number": "Not Specified",
                "Signature": "Type 0, Family 6, Model 85, Stepping 7",
                "Socket Designation": "CPU1",
                "Status": "Populated, Enabled",
                "Thread Count": "40",
                "Type": "Central Processor",
                "Upgrade": "Socket LGA3647-1",
                "Version": "Not Specified",
                "Voltage": "1.8 V"
              }
            ],
            "memory": {
              "Error Correction Type": "Multi-bit ECC",
              "Error Information Handle": "Not Provided",
              "Location": "System Board Or Motherboard",
              "Maximum Capacity": "7680 GB",
              "Number Of Devices": 48,
              "Use": "System Memory",
              "devices": [
                {
                  "Array Handle": "0x1000",
                  "Asset Tag": "Not Specified",
                  "Bank Locator": "Not Specified",
                  "Configured Memory Speed": "2666 MT/s",
                  "Configured Voltage": "1.2 V",
                  "Data Width": "64 bits",
                  "Error Information Handle": "Not Provided",
                  "Form Factor": "DIMM",
                  "Handle": "Handle 0x1100, DMI type 17, 40 bytes",
                  "Locator": "A1",
                  "Manufacturer": "Hynix Semiconductor",
                  "Maximum Voltage": "1.25 V",
                  "Minimum Voltage": "1.2 V",
                  "Part Number": "HMA82GR7CJR8N-WM",
                  "Rank": "2",
                  "Serial Number": "2E7A1B33",
                  "Set": "1",
                  "Size": "16 GB",
                  "Speed": "2933 MT/s",
                  "Total Width": "72 bits",
                  "Type": "DDR4",
                  "Type Detail": "Synchronous Registered (Buffered)"
                },
                {
                  "Array Handle": "0x1000",
                  "Bank Locator": "Not Specified",
                  "Data Width": "64 bits",
                  "Error Information Handle": "Not Provided",
                  "Form Factor": "DIMM",
                  "Handle": "Handle 0x1101, DMI type 17, 40 bytes",
                  "Locator": "A1",
                  "Set": "1",
                  "Size": "No Module Installed",
                  "Total Width": "72 bits",
                  "Type": "DDR4",
                  "Type Detail": "Synchronous Registered (Buffered)"
                }
              ]
            }
          },
          "numa_topology": {
            "cpus": [
              {
                "cpu": 0,
                "numa_node": 0,
                "thread_siblings": [
                  0,
                  4
                ]
              }
            ],
            "nics": [
              {
                "name": "eno1",
                "numa_node": 0
              }
            ],
            "ram": [
              {
                "numa_node": 0,
                "size_kb": 65536000
              }
            ]
          },
          "pci_devices": [
            {
              "bus": "0000:1a:00.0",
              "class": "020000",
              "numa_node_id": "0",
              "product_id": "1572",
              "revision": "02",
              "vendor_id": "8086"
            }
          ],
          "usb_devices": [
            {
              "handle": "USB:1:3",
              "product": "Gadget USB HUB",
              "vendor": "no manufacturer"
            }
          ]
        }
    "#]]
    .assert_eq(&format!(
        "{:#}\n",
        serde_json::json!({
            "pci_devices": machine.pci_devices(),
            "usb_devices": machine.usb_devices(),
            "numa_topology": machine.numa_topology(),
            "dmi": machine.dmi(),
        })
    ));
    let facts = machine.extra_hardware();
    assert!(facts.contains(&serde_json::json!(["disk", "sda", "size", "960"])), "{facts:?}");
    assert!(facts.contains(&serde_json::json!(["cpu", "physical", "number", "2"])), "{facts:?}");
    assert!(facts.iter().all(|fact| fact.as_array().unwrap().len() == 4));
}

#[test]
fn empty_root_has_empty_inventory() {
    check(
        &FakeSysfs::new(),
        expect![[r#"
        bmc_address: null
        bmc_mac: null
        bmc_v6address: null
        boot: {"current_boot_mode":"bios","pxe_interface":"01-b0-26-28-aa-bb-01"}
        cpu: {"count":0,"flags":[]}
        hostname: "localhost"
        memory: {}
        system_vendor: {"firmware":{"build_date":"","vendor":"","version":""},"manufacturer":"","product_name":"","serial_number":""}
    "#]],
    );
    let empty = FakeSysfs::new();
    assert_eq!(empty.machine().dmi(), None);
    assert_eq!(empty.machine().numa_topology(), None);
    assert_eq!(empty.machine().bmc(), crate::BmcAddresses::default());
}

#[test]
fn survives_malformed_attributes() {
    const MALFORMED: [&[u8]; 6] =
        [b"", b"\xff\xfe\x00\x80", b"-1", b"99999999999999999999999", b":::::,,--..", b"\0\0\0\0"];
    for malformed in MALFORMED {
        let sysfs = dell();
        overwrite(sysfs.root(), malformed);
        let machine = sysfs.machine();
        let inventory = machine.inventory(&InventoryOptions::default());
        serde_json::to_string(&inventory).unwrap();
        let _ = (machine.pci_devices(), machine.usb_devices(), machine.numa_topology());
        let _ = (machine.dmi(), machine.extra_hardware());
    }
}

#[test]
fn survives_endless_files_fifos_and_link_loops() {
    let sysfs = dell();
    sysfs.link("sys/block/sdx", "sys/block/sdx");
    sysfs.link("sys/class/net/eth9", "sys/class/net");
    sysfs.link("sys/class/net/eth8/address", "dev/zero-like");
    symlink("/dev/zero", sysfs.root().join("sys/class/net/eth7")).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"sd\xff\xfe");
    fs::create_dir_all(sysfs.root().join("sys/block").join(name)).unwrap();
    let large = fs::File::create(sysfs.root().join("sys/class/dmi/id/product_name")).unwrap();
    large.set_len(1 << 40).unwrap();
    let large = fs::File::create(sysfs.root().join("sys/firmware/dmi/tables/DMI")).unwrap();
    large.set_len(1 << 40).unwrap();
    fs::remove_file(sysfs.root().join("sys/class/dmi/id/sys_vendor")).unwrap();
    let fifo = sysfs.root().join("sys/class/dmi/id/sys_vendor");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let inventory = sysfs.machine().inventory(&InventoryOptions::default());
    assert_eq!(inventory.disks.len(), 2);
    assert_eq!(inventory.system_vendor.manufacturer, "");
    assert_eq!(inventory.system_vendor.serial_number, "7XYZ123");
}

/// Overwrites every file below a directory.
fn overwrite(directory: &std::path::Path, content: &[u8]) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            overwrite(&entry.path(), content);
        } else if kind.is_file() {
            fs::write(entry.path(), content).unwrap();
        }
    }
}
