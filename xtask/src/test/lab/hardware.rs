// SPDX-License-Identifier: Apache-2.0
//! The hardware of the lab machines (firmware, network, console) as libvirt definitions.

use std::path::Path;

use serde_json::{Value, json};

use super::bridges::Bridge;
use super::disks::{LabDisk, LabDisks, ONE_DISK};
use super::fill_template;

const DOMAIN: &str = include_str!("../../../lab/domain.xml");

const OVMF: &str = "<loader readonly='yes' secure='no' type='pflash'>\
                    /usr/share/OVMF/OVMF_CODE_4M.secboot.fd</loader>\
                    <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>@folder@/pool/@name@.fd</nvram>";
/// SeaBIOS and the iPXE of the NIC also print to the serial console.
const SEABIOS: &str = "<loader readonly='yes' type='rom'>/usr/share/seabios/bios-256k.bin</loader>\
     <bios useserial='yes'/>";
/// iPXE as a kernel, with a script that loads PXELINUX. All NICs of QEMU have iPXE, which requests its
/// own script, while the PXE of a real server's NIC loads the file that DHCP names.
const SEABIOS_TO_PXELINUX: &str = "<loader readonly='yes' type='rom'>/usr/share/seabios/bios-256k.bin</loader>\
     <kernel>/usr/lib/ipxe/ipxe.lkrn</kernel><initrd>@folder@/@name@.ipxe</initrd>\
     <bios useserial='yes'/>";
const TO_PXELINUX: &str = include_str!("../../../lab/to-pxelinux.ipxe");

/// Without a link the firmware does not wait for DHCP and ends in its shell, which is idle.
const NO_CABLE: &str = "<interface type='user'><mac address='@mac@'/><model type='virtio'/>\
                        <link state='down'/><rom enabled='no'/><boot order='@order@'/></interface>";
const BRIDGED_NIC: &str = "<interface type='ethernet'><mac address='@mac@'/>\
                     <target dev='@socket@' managed='no'/><model type='virtio'/>\
                     @rom@<boot order='@order@'/></interface>";
/// The NICs of QEMU have iPXE for both firmwares. SeaBIOS needs it; OVMF without it uses its own PXE
/// and HTTP clients, as a real server does.
const WITHOUT_IPXE: &str = "<rom enabled='no'/>";

const SERIAL_PORT: &str = "<serial type='tcp'><source mode='bind' host='127.0.0.1' \
                           service='@port@'/><target port='0'/></serial>";
/// Appended to at each start, so that a test can read what was printed after a given length.
const SERIAL_FILE: &str = "<serial type='file'><source path='@folder@/@name@.console' \
                           append='on'/><target port='0'/></serial>";

/// OVMF tries PXE and HTTP, IPv4 and IPv6 in turn, for minutes each without a response. This
/// disables the ones the test does not use.
const SKIPPED: &str = "<sysinfo type='fwcfg'>@entries@</sysinfo>";
const SKIPPED_ENTRY: &str = "<entry name='opt/org.tianocore/@name@PXESupport'>n</entry>";

/// The subfolder with the files of the machines.
pub(super) const POOL: &str = "pool";
/// In MiB; enough for the firmware alone.
const IDLE_MEMORY: u32 = 256;

/// One machine. Tests run in parallel, so most have their own.
pub(super) struct LabMachine {
    pub(super) name: &'static str,
    /// UUID and MAC address are derived from it.
    number: u8,
    kind: LabMachineKind,
    disks: &'static [LabDisk],
}

/// How the tests use a machine.
enum LabMachineKind {
    /// Only powered on and off.
    Idle,
    /// Only powered on and off; a BMC connects to its serial console.
    IdleWithConsole,
    /// Boots from its bridge, a disk or a CD.
    Booting { firmware: LabFirmware, bridge: Bridge, memory: u32 },
}

/// The firmware and the boot devices it tries.
#[derive(Clone, Copy)]
pub(super) enum LabFirmware {
    /// SeaBIOS; its NIC has iPXE.
    Bios,
    /// SeaBIOS, and iPXE that loads PXELINUX.
    BiosToPxelinux,
    /// OVMF: its disk or CD, then PXE over IPv4.
    Uefi,
    /// OVMF: its disk or CD, then HTTP over IPv4.
    UefiHttp,
}

impl LabMachine {
    pub(super) const fn idle(name: &'static str, number: u8) -> Self {
        Self { name, number, kind: LabMachineKind::Idle, disks: ONE_DISK }
    }

    pub(super) const fn idle_with_console(name: &'static str, number: u8) -> Self {
        Self { name, number, kind: LabMachineKind::IdleWithConsole, disks: ONE_DISK }
    }

    /// `memory` is in MiB.
    pub(super) const fn booting(
        name: &'static str,
        number: u8,
        firmware: LabFirmware,
        bridge: Bridge,
        memory: u32,
    ) -> Self {
        let kind = LabMachineKind::Booting { firmware, bridge, memory };
        Self { name, number, kind, disks: ONE_DISK }
    }

    /// Replaces the disks.
    pub(super) const fn with(self, disks: &'static [LabDisk]) -> Self {
        Self { disks, ..self }
    }

    pub(super) fn uuid(&self) -> String {
        format!("6c61620a-0000-4000-8000-{:012x}", self.number)
    }

    /// The network that the machine boots from.
    pub(super) fn bridge(&self) -> Option<Bridge> {
        match self.kind {
            LabMachineKind::Idle | LabMachineKind::IdleWithConsole => None,
            LabMachineKind::Booting { bridge, .. } => Some(bridge),
        }
    }

    pub(super) fn disks(&self) -> LabDisks {
        LabDisks { machine: self.name, number: self.number, disks: self.disks }
    }

    /// The libvirt definition; all files are in `folder`.
    pub(super) fn definition(&self, folder: &Path, serial_port: u16) -> String {
        let parts = self.parts();
        let disks = self.disks();
        let pool = folder.join(POOL);
        // The parts contain placeholders themselves, so they are filled in first.
        fill_template(
            &fill_template(
                DOMAIN,
                &[
                    ("firmware", parts.firmware),
                    ("network", parts.network),
                    ("serial", parts.serial),
                    ("settings", &parts.settings),
                    ("disks", &disks.definition(&pool)),
                    ("more", &disks.qemu_arguments(&pool)),
                ],
            ),
            &[
                ("name", self.name),
                ("uuid", &self.uuid()),
                ("mac", &self.mac()),
                ("memory", &parts.memory.to_string()),
                ("folder", &folder.to_string_lossy()),
                ("socket", &self.bridge().map(Bridge::tap_device).unwrap_or_default()),
                ("rom", parts.rom),
                ("order", &(disks.in_boot_order() + 1).to_string()),
                ("port", &serial_port.to_string()),
            ],
        )
    }

    /// The iPXE script of the machine, if any: file name and content.
    pub(super) fn script(&self) -> Option<(String, &'static str)> {
        match self.kind {
            LabMachineKind::Booting { firmware: LabFirmware::BiosToPxelinux, .. } => {
                Some((format!("{}.ipxe", self.name), TO_PXELINUX))
            }
            LabMachineKind::Idle
            | LabMachineKind::IdleWithConsole
            | LabMachineKind::Booting { .. } => None,
        }
    }

    /// The file that the serial console is written to, if any.
    pub(super) fn console(&self) -> Option<String> {
        match self.kind {
            LabMachineKind::Idle | LabMachineKind::IdleWithConsole => None,
            LabMachineKind::Booting { .. } => Some(format!("{}.console", self.name)),
        }
    }

    /// The entry in the inventory of the lab.
    pub(super) fn inventory_entry(&self, folder: &Path) -> Value {
        let mut entry = json!({
            "uuid": self.uuid(),
            "mac": self.mac(),
            "disks": self.disks().inventory_entry(&folder.join(POOL)),
        });
        if let LabMachineKind::Booting { firmware, bridge, memory } = self.kind {
            entry["firmware"] = json!(match firmware {
                LabFirmware::Bios | LabFirmware::BiosToPxelinux => "bios",
                LabFirmware::Uefi => "uefi",
                LabFirmware::UefiHttp => "uefi-http",
            });
            entry["memory_mib"] = json!(memory);
            entry["network"] = bridge.inventory_entry();
        }
        if let Some(console) = self.console() {
            entry["console"] = json!(folder.join(console));
        }
        entry
    }

    fn mac(&self) -> String {
        format!("52:54:00:1a:b0:{:02x}", self.number)
    }

    fn parts(&self) -> DomainParts {
        let idle = DomainParts {
            firmware: OVMF,
            network: NO_CABLE,
            rom: WITHOUT_IPXE,
            serial: "",
            settings: String::new(),
            memory: IDLE_MEMORY,
        };
        match self.kind {
            LabMachineKind::Idle => idle,
            LabMachineKind::IdleWithConsole => DomainParts { serial: SERIAL_PORT, ..idle },
            LabMachineKind::Booting { firmware, memory, .. } => {
                let booting =
                    DomainParts { network: BRIDGED_NIC, serial: SERIAL_FILE, memory, ..idle };
                match firmware {
                    LabFirmware::Bios => DomainParts { firmware: SEABIOS, rom: "", ..booting },
                    LabFirmware::BiosToPxelinux => {
                        DomainParts { firmware: SEABIOS_TO_PXELINUX, ..booting }
                    }
                    LabFirmware::Uefi => DomainParts { settings: skipping(&["IPv6"]), ..booting },
                    LabFirmware::UefiHttp => {
                        DomainParts { settings: skipping(&["IPv4", "IPv6"]), ..booting }
                    }
                }
            }
        }
    }
}

/// The parts in which the definitions differ.
struct DomainParts {
    firmware: &'static str,
    network: &'static str,
    rom: &'static str,
    serial: &'static str,
    settings: String,
    memory: u32,
}

fn skipping(protocols: &[&str]) -> String {
    let entries: String =
        protocols.iter().map(|name| fill_template(SKIPPED_ENTRY, &[("name", name)])).collect();
    fill_template(SKIPPED, &[("entries", &entries)])
}
