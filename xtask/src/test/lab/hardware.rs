// SPDX-License-Identifier: Apache-2.0
//! What the machines of the lab are: their firmware, network and console, as libvirt is told.

use std::path::Path;

use serde_json::{Value, json};

use super::bridges::Bridge;
use super::disks::{Disk, Disks, ONE_DISK};
use super::filled_in;

const DOMAIN: &str = include_str!("../../../lab/domain.xml");

const OVMF: &str = "<loader readonly='yes' secure='no' type='pflash'>\
                    /usr/share/OVMF/OVMF_CODE_4M.secboot.fd</loader>\
                    <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>@folder@/pool/@name@.fd</nvram>";
/// Its messages, and those of the network card's iPXE, go to the serial console as well.
const SEABIOS: &str = "<loader readonly='yes' type='rom'>/usr/share/seabios/bios-256k.bin</loader>\
     <bios useserial='yes'/>";
/// iPXE as a kernel, with a script that loads PXELINUX: all cards of QEMU have iPXE, which asks for a
/// script of its own where the PXE of a real server's card loads what it is told to.
const SEABIOS_TO_PXELINUX: &str = "<loader readonly='yes' type='rom'>/usr/share/seabios/bios-256k.bin</loader>\
     <kernel>/usr/lib/ipxe/ipxe.lkrn</kernel><initrd>@folder@/@name@.ipxe</initrd>\
     <bios useserial='yes'/>";
const TO_PXELINUX: &str = include_str!("../../../lab/to-pxelinux.ipxe");

/// The firmware ends in a shell that idles: there is no cable, so nothing waits for an answer.
const NO_CABLE: &str = "<interface type='user'><mac address='@mac@'/><model type='virtio'/>\
                        <link state='down'/><rom enabled='no'/><boot order='@order@'/></interface>";
const CABLE: &str = "<interface type='ethernet'><mac address='@mac@'/>\
                     <target dev='@socket@' managed='no'/><model type='virtio'/>\
                     @rom@<boot order='@order@'/></interface>";
/// QEMU's network cards come with iPXE for both firmwares. SeaBIOS can do nothing without it; OVMF
/// then uses its own clients for PXE and HTTP, as a real server does.
const WITHOUT_IPXE: &str = "<rom enabled='no'/>";

const SERIAL_PORT: &str = "<serial type='tcp'><source mode='bind' host='127.0.0.1' \
                           service='@port@'/><target port='0'/></serial>";
/// Added to at each start, so that who notes how long it is before sees what came after.
const SERIAL_FILE: &str = "<serial type='file'><source path='@folder@/@name@.console' \
                           append='on'/><target port='0'/></serial>";

/// OVMF tries PXE and HTTP, v4 and v6, in turn, and minutes each where nobody answers. This leaves
/// out what the test is not about.
const SKIPPED: &str = "<sysinfo type='fwcfg'>@entries@</sysinfo>";
const SKIPPED_ENTRY: &str = "<entry name='opt/org.tianocore/@name@PXESupport'>n</entry>";

/// The folder of the machines' files inside the lab's.
pub(super) const POOL: &str = "pool";
/// Enough for firmware alone.
const IDLE_MEMORY: u32 = 256;

/// One machine. Tests run side by side, so each has a machine of its own.
pub(super) struct Machine {
    pub(super) name: &'static str,
    /// Its identity and addresses follow from it.
    number: u8,
    kind: Kind,
    disks: &'static [Disk],
}

/// What the tests do with a machine.
enum Kind {
    /// Switch it on and off.
    Idle,
    /// The same, with a serial console that a BMC connects to.
    IdleWithConsole,
    /// Boot it.
    Booting { firmware: Firmware, bridge: Bridge, memory: u32 },
}

/// What a booting machine starts with, and what that tries first.
#[derive(Clone, Copy)]
pub(super) enum Firmware {
    /// SeaBIOS; its network card has iPXE.
    Bios,
    /// SeaBIOS, and iPXE that loads PXELINUX.
    BiosToPxelinux,
    /// OVMF: its disk or CD, then PXE over IPv4.
    Uefi,
    /// OVMF: its disk or CD, then HTTP over IPv4.
    UefiHttp,
}

impl Machine {
    pub(super) const fn idle(name: &'static str, number: u8) -> Self {
        Self { name, number, kind: Kind::Idle, disks: ONE_DISK }
    }

    pub(super) const fn idle_with_console(name: &'static str, number: u8) -> Self {
        Self { name, number, kind: Kind::IdleWithConsole, disks: ONE_DISK }
    }

    /// `memory` is in MiB.
    pub(super) const fn booting(
        name: &'static str,
        number: u8,
        firmware: Firmware,
        bridge: Bridge,
        memory: u32,
    ) -> Self {
        let kind = Kind::Booting { firmware, bridge, memory };
        Self { name, number, kind, disks: ONE_DISK }
    }

    /// The same machine with these disks.
    pub(super) const fn with(self, disks: &'static [Disk]) -> Self {
        Self { disks, ..self }
    }

    pub(super) fn uuid(&self) -> String {
        format!("6c61620a-0000-4000-8000-{:012x}", self.number)
    }

    /// The network it boots from.
    pub(super) fn bridge(&self) -> Option<Bridge> {
        match self.kind {
            Kind::Idle | Kind::IdleWithConsole => None,
            Kind::Booting { bridge, .. } => Some(bridge),
        }
    }

    pub(super) fn disks(&self) -> Disks {
        Disks { machine: self.name, number: self.number, disks: self.disks }
    }

    /// The definition for libvirt; all files are in `folder`.
    pub(super) fn definition(&self, folder: &Path, serial_port: u16) -> String {
        let parts = self.parts();
        let disks = self.disks();
        let pool = folder.join(POOL);
        // The parts have blanks of their own, hence first.
        filled_in(
            &filled_in(
                DOMAIN,
                &[
                    ("firmware", parts.firmware),
                    ("network", parts.network),
                    ("serial", parts.serial),
                    ("settings", &parts.settings),
                    ("disks", &disks.definition(&pool)),
                    ("more", &disks.more_definition(&pool)),
                ],
            ),
            &[
                ("name", self.name),
                ("uuid", &self.uuid()),
                ("mac", &self.mac()),
                ("memory", &parts.memory.to_string()),
                ("folder", &folder.to_string_lossy()),
                ("socket", &self.bridge().map(Bridge::socket).unwrap_or_default()),
                ("rom", parts.rom),
                ("order", &(disks.in_boot_order() + 1).to_string()),
                ("port", &serial_port.to_string()),
            ],
        )
    }

    /// A script its firmware runs, if it does, and the name of the file it is in.
    pub(super) fn script(&self) -> Option<(String, &'static str)> {
        match self.kind {
            Kind::Booting { firmware: Firmware::BiosToPxelinux, .. } => {
                Some((format!("{}.ipxe", self.name), TO_PXELINUX))
            }
            Kind::Idle | Kind::IdleWithConsole | Kind::Booting { .. } => None,
        }
    }

    /// The file its serial console goes to, if it does.
    pub(super) fn console(&self) -> Option<String> {
        match self.kind {
            Kind::Idle | Kind::IdleWithConsole => None,
            Kind::Booting { .. } => Some(format!("{}.console", self.name)),
        }
    }

    /// For the inventory.
    pub(super) fn described(&self, folder: &Path) -> Value {
        let mut described = json!({
            "uuid": self.uuid(),
            "mac": self.mac(),
            "disks": self.disks().described(&folder.join(POOL)),
        });
        if let Kind::Booting { firmware, bridge, memory } = self.kind {
            described["firmware"] = json!(match firmware {
                Firmware::Bios | Firmware::BiosToPxelinux => "bios",
                Firmware::Uefi => "uefi",
                Firmware::UefiHttp => "uefi-http",
            });
            described["memory_mib"] = json!(memory);
            described["network"] = bridge.described();
        }
        if let Some(console) = self.console() {
            described["console"] = json!(folder.join(console));
        }
        described
    }

    fn mac(&self) -> String {
        format!("52:54:00:1a:b0:{:02x}", self.number)
    }

    fn parts(&self) -> Parts {
        let idle = Parts {
            firmware: OVMF,
            network: NO_CABLE,
            rom: WITHOUT_IPXE,
            serial: "",
            settings: String::new(),
            memory: IDLE_MEMORY,
        };
        match self.kind {
            Kind::Idle => idle,
            Kind::IdleWithConsole => Parts { serial: SERIAL_PORT, ..idle },
            Kind::Booting { firmware, memory, .. } => {
                let booting = Parts { network: CABLE, serial: SERIAL_FILE, memory, ..idle };
                match firmware {
                    Firmware::Bios => Parts { firmware: SEABIOS, rom: "", ..booting },
                    Firmware::BiosToPxelinux => Parts { firmware: SEABIOS_TO_PXELINUX, ..booting },
                    Firmware::Uefi => Parts { settings: skipping(&["IPv6"]), ..booting },
                    Firmware::UefiHttp => {
                        Parts { settings: skipping(&["IPv4", "IPv6"]), ..booting }
                    }
                }
            }
        }
    }
}

/// What differs between the definitions.
struct Parts {
    firmware: &'static str,
    network: &'static str,
    rom: &'static str,
    serial: &'static str,
    settings: String,
    memory: u32,
}

fn skipping(protocols: &[&str]) -> String {
    let entries: String =
        protocols.iter().map(|name| filled_in(SKIPPED_ENTRY, &[("name", name)])).collect();
    filled_in(SKIPPED, &[("entries", &entries)])
}
