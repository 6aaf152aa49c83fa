// SPDX-License-Identifier: Apache-2.0
//! The virtual machines: a libvirtd of our own, as a plain user, with its own sockets and files.
//!
//! libvirtd of a plain user ("session mode") looks for everything where the XDG variables point and
//! touches nothing of the system's; the machines are emulated, so it needs no rights either.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::bridges::Bridge;
use super::disks::{Disk, DiskKind};
use super::folder::Folder;
use super::hardware::{Firmware, Machine, POOL};
use crate::test::process::{Process, free_port, unprivileged};

/// No confinement, no helper daemons: there is neither AppArmor nor systemd to ask.
const QEMU_SETTINGS: &str =
    "security_driver = \"none\"\nstdio_handler = \"file\"\nnamespaces = [ ]\n";
const TAP_DEVICE: &str = "mkdir -p /dev/net && mount -t tmpfs tmpfs /dev/net && \
                          mknod -m 666 /dev/net/tun c 10 200 && exec \"$0\" \"$@\"";
const XDG_FOLDERS: &[(&str, &str)] = &[
    ("XDG_CONFIG_HOME", "config"),
    ("XDG_RUNTIME_DIR", "run"),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_DATA_HOME", "data"),
];

/// All of them, named for the tests that use them.
pub(super) const MACHINES: &[Machine] = &[
    Machine::idle("redfish-power", 1),
    Machine::idle("redfish-settings", 2),
    Machine::idle("redfish-https", 3),
    Machine::idle("virtualbmc", 4),
    Machine::idle_with_console("ipmi-sim", 5),
    Machine::idle("virtualbmc-mistakes", 6),
    Machine::booting("boot-bios", 16, Firmware::Bios, Bridge::new(0), 512),
    Machine::booting("boot-uefi", 17, Firmware::Uefi, Bridge::new(1), 512),
    Machine::booting("boot-http", 18, Firmware::UefiHttp, Bridge::new(2), 1024),
    Machine::booting("boot-media", 19, Firmware::Uefi, Bridge::new(3), 1024),
    Machine::booting("boot-pxelinux", 20, Firmware::BiosToPxelinux, Bridge::new(4), 512),
    // Each of these takes a processor for a minute at each boot: with two processors, a test that
    // runs more than three at once waits longer than it is patient.
    Machine::booting("journey-uefi", 32, Firmware::Uefi, Bridge::new(16), 2048).with(ROOMY),
    Machine::booting("journey-bios", 33, Firmware::Bios, Bridge::new(17), 2048).with(ROOMY),
    Machine::booting("journey-http", 34, Firmware::UefiHttp, Bridge::new(18), 1024).with(ROOMY),
    Machine::booting("journey-media", 35, Firmware::Uefi, Bridge::new(19), 1024).with(ROOMY),
    Machine::booting("journey-raid", 36, Firmware::Uefi, Bridge::new(20), 2048).with(MIRRORED),
    Machine::booting("journey-disks", 37, Firmware::Uefi, Bridge::new(21), 1024).with(VARIOUS),
];

/// An agent takes no disk smaller than 4 GiB for the root device unless it is told to.
const ROOMY: &[Disk] = &[Disk { serial: "FLASH-1", gib: 6, kind: DiskKind::Flash }];
/// Two for a mirror, and one that is too small for anything.
const MIRRORED: &[Disk] = &[
    Disk { serial: "FLASH-1", gib: 5, kind: DiskKind::Flash },
    Disk { serial: "FLASH-2", gib: 5, kind: DiskKind::Flash },
    Disk { serial: "SMALL-1", gib: 1, kind: DiskKind::Flash },
];
/// Without a hint the smallest is taken, which is the third. No two are alike in anything.
const VARIOUS: &[Disk] = &[
    Disk { serial: "MAGNETIC-1", gib: 8, kind: DiskKind::Magnetic },
    Disk { serial: "FLASH-1", gib: 6, kind: DiskKind::Flash },
    Disk { serial: "NVME-1", gib: 5, kind: DiskKind::Nvme },
];

/// libvirtd with the machines defined and off.
pub(super) struct Machines {
    _libvirtd: Process,
    uri: String,
    serial_port: u16,
}

impl Machines {
    pub(super) fn start(folder: &Folder) -> Result<Self> {
        let libvirtd = unprivileged(Path::new("/usr/sbin/libvirtd"), "TERM", folder.path());
        let mut command = with_tap_device(&libvirtd, folder.path());
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
    let pool = folder.make_inside(POOL)?;
    let mut commands = format!("pool-create-as default dir --target '{}'", pool.display());
    for machine in MACHINES {
        machine.disks().make(&pool)?;
        if let Some(console) = machine.console() {
            folder.write(&console, "")?;
        }
        if let Some((file, script)) = machine.script() {
            folder.write(&file, script)?;
        }
        let definition = machine.definition(folder.path(), serial_port);
        let file = folder.write(&format!("{}.xml", machine.name), &definition)?;
        commands.push_str(&format!("; define '{}'", file.display()));
    }
    commands.push_str("; pool-refresh default");
    Ok(commands)
}

/// libvirtd opens the machines' ends of the bridges, and `/dev/net/tun` is root's on some systems.
/// In a mount namespace of its own it sees another, which everybody may open; what can be opened
/// there is still only what was given to its user.
fn with_tap_device(libvirtd: &Command, folder: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", TAP_DEVICE])
        .arg(libvirtd.get_program())
        .args(libvirtd.get_args())
        .stdin(Stdio::null())
        .current_dir(folder)
        .env("TMPDIR", folder);
    command
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
