// SPDX-License-Identifier: Apache-2.0
//! A ramdisk small enough to be made here: busybox, a few modules of the tests' kernel, and a script
//! that says on the serial console how far it came.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::repository;

const INIT: &str = include_str!("../../lab/ramdisk-init.sh");
const DHCP: &str = include_str!("../../lab/ramdisk-dhcp.sh");
const BUSYBOX: &str = "/bin/busybox";
const FOLDERS: &[&str] = &["bin", "dev", "mnt", "modules", "proc", "sys"];
/// What a Debian kernel for virtual machines needs for a network card and a CD on virtio, in this
/// order.
const MODULES: &[&str] = &[
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
    "drivers/scsi/scsi_common.ko",
    "drivers/scsi/scsi_mod.ko",
    "drivers/scsi/virtio_scsi.ko",
    "drivers/cdrom/cdrom.ko",
    "drivers/scsi/sr_mod.ko",
    "fs/isofs/isofs.ko",
];

/// Makes it for this kernel; says where it is.
pub(crate) fn make(root: &Path, kernel: &Path) -> Result<PathBuf> {
    let version = kernel
        .file_name()
        .and_then(|name| name.to_str()?.strip_prefix("vmlinuz-"))
        .with_context(|| format!("{} has no version in its name", kernel.display()))?;
    let modules = kernel.with_file_name("../lib/modules").join(version).join("kernel");
    let mut archive = Archive::default();
    for folder in FOLDERS {
        archive.entry(folder, 0o040_755, &[]);
    }
    archive.entry("init", 0o100_755, INIT.as_bytes());
    archive.entry("dhcp", 0o100_755, DHCP.as_bytes());
    let busybox = fs::read(BUSYBOX).with_context(|| format!("cannot read {BUSYBOX}"))?;
    archive.entry("bin/busybox", 0o100_755, &busybox);
    for (index, module) in MODULES.iter().enumerate() {
        // One that is not there is built in.
        if let Ok(content) = fs::read(modules.join(module)) {
            archive.entry(&format!("modules/{index:02}.ko"), 0o100_644, &content);
        }
    }
    let ramdisk = std::path::absolute(repository::target(root).join("ramdisk.cpio.gz"))?;
    // Renamed last, because another run may be reading the one that is there.
    let unfinished = ramdisk.with_extension(format!("{}.gz", std::process::id()));
    compress(&archive.finish(), &unfinished)?;
    fs::rename(&unfinished, &ramdisk)?;
    Ok(ramdisk)
}

/// A cpio archive of the kind the kernel reads ("newc").
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn entry(&mut self, name: &str, mode: usize, content: &[u8]) {
        self.0.extend(b"070701");
        let numbers = [0, mode, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
        for number in numbers {
            self.0.extend(format!("{number:08x}").bytes());
        }
        self.0.extend(name.bytes());
        self.0.push(0);
        self.pad();
        self.0.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.0
    }
}

fn compress(content: &[u8], path: &Path) -> Result<()> {
    let file = fs::File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut gzip = Command::new("gzip")
        .args(["-n", "-c"])
        .stdin(Stdio::piped())
        .stdout(file)
        .spawn()
        .context("cannot run gzip")?;
    let written = gzip.stdin.take().context("the input was not piped")?.write_all(content);
    if !gzip.wait()?.success() {
        bail!("gzip could not write {}", path.display());
    }
    Ok(written?)
}
