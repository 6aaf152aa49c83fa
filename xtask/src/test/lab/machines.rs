// SPDX-License-Identifier: Apache-2.0
//! The virtual machines, run by a private libvirtd as an unprivileged user.
//!
//! libvirtd in session mode uses the folders that the XDG variables name, not those of the system.
//! The machines are emulated, so it needs no privileges.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::bridges::Bridge;
use super::disks::{DiskKind, LabDisk};
use super::folder::LabFolder;
use super::hardware::{LabFirmware, LabMachine, POOL};
use crate::test::process::{Process, free_port, unprivileged};

/// No confinement and no helper daemons: containers have neither AppArmor nor systemd.
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

/// All machines, named after the tests that use them.
pub(super) const MACHINES: &[LabMachine] = &[
    LabMachine::idle("redfish-power", 1),
    LabMachine::idle("redfish-settings", 2),
    LabMachine::idle("redfish-https", 3),
    LabMachine::idle("virtualbmc", 4),
    LabMachine::idle_with_console("ipmi-sim", 5),
    LabMachine::idle("virtualbmc-cases", 6),
    LabMachine::booting("boot-bios", 16, LabFirmware::Bios, Bridge::new(0), 512),
    LabMachine::booting("boot-uefi", 17, LabFirmware::Uefi, Bridge::new(1), 512),
    LabMachine::booting("boot-http", 18, LabFirmware::UefiHttp, Bridge::new(2), 1024),
    LabMachine::booting("boot-media", 19, LabFirmware::Uefi, Bridge::new(3), 1024),
    LabMachine::booting("boot-pxelinux", 20, LabFirmware::BiosToPxelinux, Bridge::new(4), 512),
    // Each boot of these uses one core for a minute. On two cores, more than three at once exceed the
    // timeouts of the tests.
    LabMachine::booting("journey-uefi", 32, LabFirmware::Uefi, Bridge::new(16), 2048)
        .with(LARGE_DISK),
    LabMachine::booting("journey-bios", 33, LabFirmware::Bios, Bridge::new(17), 2048)
        .with(LARGE_DISK),
    LabMachine::booting("journey-http", 34, LabFirmware::UefiHttp, Bridge::new(18), 1024)
        .with(LARGE_DISK),
    LabMachine::booting("journey-media", 35, LabFirmware::Uefi, Bridge::new(19), 1024)
        .with(LARGE_DISK),
    LabMachine::booting("journey-raid", 36, LabFirmware::Uefi, Bridge::new(20), 2048)
        .with(RAID_DISKS),
    LabMachine::booting("journey-disks", 37, LabFirmware::Uefi, Bridge::new(21), 1024)
        .with(DIFFERENT_DISKS),
];

/// Without a root device hint an agent ignores disks smaller than 4 GiB.
const LARGE_DISK: &[LabDisk] = &[LabDisk { serial: "FLASH-1", gib: 6, kind: DiskKind::Flash }];
/// Two disks for RAID 1, and one that is too small for a root device.
const RAID_DISKS: &[LabDisk] = &[
    LabDisk { serial: "FLASH-1", gib: 5, kind: DiskKind::Flash },
    LabDisk { serial: "FLASH-2", gib: 5, kind: DiskKind::Flash },
    LabDisk { serial: "SMALL-1", gib: 1, kind: DiskKind::Flash },
];
/// Without a hint the smallest is used, which is the third. All attributes differ.
const DIFFERENT_DISKS: &[LabDisk] = &[
    LabDisk { serial: "MAGNETIC-1", gib: 8, kind: DiskKind::Magnetic },
    LabDisk { serial: "FLASH-1", gib: 6, kind: DiskKind::Flash },
    LabDisk { serial: "NVME-1", gib: 5, kind: DiskKind::Nvme },
];

/// libvirtd with all machines defined and powered off.
pub(super) struct LabMachines {
    _libvirtd: Process,
    uri: String,
    serial_port: u16,
}

impl LabMachines {
    pub(super) fn start(folder: &LabFolder) -> Result<Self> {
        let libvirtd = unprivileged(Path::new("/usr/sbin/libvirtd"), "TERM", folder.path());
        let mut command = with_tap_device(&libvirtd, folder.path());
        command.env("HOME", folder.path());
        for (variable, name) in XDG_FOLDERS {
            command.env(variable, folder.create_subfolder(name)?);
        }
        folder.create_subfolder("config/libvirt")?;
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

    /// The URI for libvirt clients.
    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// The TCP port of the serial console of the machine that has one, while it is powered on.
    pub(super) fn serial_port(&self) -> u16 {
        self.serial_port
    }
}

/// The virsh commands that create the storage pool and the machines. sushy-emulator expects the pool
/// under this name and stores virtual media images in it.
fn definitions(folder: &LabFolder, serial_port: u16) -> Result<String> {
    let pool = folder.create_subfolder(POOL)?;
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

/// libvirtd opens the tap devices, but on some systems only root may open `/dev/net/tun`. In its own
/// mount namespace libvirtd gets a `/dev/net/tun` that any user may open; it can still only attach to
/// the tap devices that its user owns.
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
