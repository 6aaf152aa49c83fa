// SPDX-License-Identifier: Apache-2.0
//! The virtual machines: a libvirtd of our own, as a plain user, with its own sockets and files.
//!
//! libvirtd of a plain user ("session mode") looks for everything where the XDG variables point and
//! touches nothing of the system's; the machines are emulated, so it needs no rights either.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::filled_in;
use super::folder::Folder;
use crate::test::process::{Process, free_port, give_away, unprivileged};

const DOMAIN: &str = include_str!("../../../lab/domain.xml");
const SERIAL: &str = "<serial type='tcp'><source mode='bind' host='127.0.0.1' service='@port@'/>\
                      <target port='0'/></serial>";
/// No confinement, no helper daemons: there is neither AppArmor nor systemd to ask.
const QEMU_SETTINGS: &str =
    "security_driver = \"none\"\nstdio_handler = \"file\"\nnamespaces = [ ]\n";
/// Grows as it is written to, and nothing is.
const DISK_BYTES: u64 = 4 << 30;

const XDG_FOLDERS: &[(&str, &str)] = &[
    ("XDG_CONFIG_HOME", "config"),
    ("XDG_RUNTIME_DIR", "run"),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_DATA_HOME", "data"),
];

/// One machine. Tests run side by side, so each has a machine of its own.
pub(super) struct Machine {
    pub(super) name: &'static str,
    pub(super) uuid: &'static str,
    pub(super) mac: &'static str,
}

/// All of them, named for the tests that use them.
pub(super) const MACHINES: &[Machine] = &[
    Machine {
        name: "redfish-power",
        uuid: "6c61620a-0000-4000-8000-000000000001",
        mac: "52:54:00:1a:b0:01",
    },
    Machine {
        name: "redfish-settings",
        uuid: "6c61620a-0000-4000-8000-000000000002",
        mac: "52:54:00:1a:b0:02",
    },
    Machine {
        name: "redfish-https",
        uuid: "6c61620a-0000-4000-8000-000000000003",
        mac: "52:54:00:1a:b0:03",
    },
    Machine {
        name: "virtualbmc",
        uuid: "6c61620a-0000-4000-8000-000000000004",
        mac: "52:54:00:1a:b0:04",
    },
    Machine {
        name: "virtualbmc-mistakes",
        uuid: "6c61620a-0000-4000-8000-000000000006",
        mac: "52:54:00:1a:b0:06",
    },
    Machine {
        name: IPMI_SIM,
        uuid: "6c61620a-0000-4000-8000-000000000005",
        mac: "52:54:00:1a:b0:05",
    },
];
/// The one with a serial console.
const IPMI_SIM: &str = "ipmi-sim";

/// libvirtd with the machines defined and off.
pub(super) struct Machines {
    _libvirtd: Process,
    uri: String,
    serial_port: u16,
}

impl Machines {
    pub(super) fn start(folder: &Folder) -> Result<Self> {
        let mut command = unprivileged(Path::new("/usr/sbin/libvirtd"), "TERM", folder.path());
        command.env("HOME", folder.path());
        for (variable, name) in XDG_FOLDERS {
            command.env(variable, folder.make_inside(name)?);
        }
        folder.make_inside("config/libvirt")?;
        folder.write("config/libvirt/qemu.conf", QEMU_SETTINGS)?;
        let log = folder.write("libvirtd.log", "")?;
        let mut libvirtd = Process::start("libvirtd", "TERM", command, log)?;
        let socket = folder.path().join("run/libvirt/libvirt-sock");
        let uri = format!("qemu+unix:///session?socket={}", socket.display());
        libvirtd.wait_until(|| socket.exists() && virsh(&uri, "uri").is_ok())?;
        let serial_port = free_port()?;
        virsh(&uri, &definitions(folder, serial_port)?)?;
        Ok(Self { _libvirtd: libvirtd, uri, serial_port })
    }

    /// Where libvirt's clients find it.
    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// Where the serial console of the one machine that has one listens once it is on.
    pub(super) fn serial_port(&self) -> u16 {
        self.serial_port
    }
}

/// The commands to virsh that make the storage pool and the machines. The pool has the name
/// sushy-emulator looks for; it puts images of virtual media there.
fn definitions(folder: &Folder, serial_port: u16) -> Result<String> {
    let pool = folder.make_inside("pool")?;
    let mut commands = format!("pool-create-as default dir --target '{}'", pool.display());
    for machine in MACHINES {
        let disk = pool.join(format!("{}.raw", machine.name));
        File::create(&disk)
            .and_then(|file| file.set_len(DISK_BYTES))
            .with_context(|| format!("cannot make {}", disk.display()))?;
        give_away(&disk)?;
        let serial = match machine.name {
            IPMI_SIM => filled_in(SERIAL, &[("port", &serial_port.to_string())]),
            _ => String::new(),
        };
        let definition = filled_in(
            DOMAIN,
            &[
                ("name", machine.name),
                ("uuid", machine.uuid),
                ("mac", machine.mac),
                ("folder", &pool.to_string_lossy()),
                ("serial", &serial),
            ],
        );
        let file = folder.write(&format!("{}.xml", machine.name), &definition)?;
        commands.push_str(&format!("; define '{}'", file.display()));
    }
    commands.push_str("; pool-refresh default");
    Ok(commands)
}

fn virsh(uri: &str, commands: &str) -> Result<()> {
    let output = Command::new("virsh")
        .args(["--quiet", "--connect", uri, commands])
        .output()
        .context("cannot run virsh")?;
    if !output.status.success() {
        bail!("virsh: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
