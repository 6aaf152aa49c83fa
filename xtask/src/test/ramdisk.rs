// SPDX-License-Identifier: Apache-2.0
//! Small test ramdisks: busybox, a few kernel modules, and an init script that reports its progress
//! on the serial console.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::archive::{Compressor, CpioWriter};
use super::kernel::DebianKernel;
use crate::repository;

const BUSYBOX: &str = "/bin/busybox";
const FOLDERS: &[&str] = &["bin", "dev", "mnt", "modules", "proc", "sys"];

/// The description of a ramdisk.
pub(crate) struct TestRamdisk {
    /// Its name under `target/`.
    name: &'static str,
    /// The init script.
    init: &'static str,
    /// The name and content of another program.
    program: (&'static str, &'static str),
    /// The kernel modules to load; their dependencies are added.
    modules: &'static [&'static str],
}

/// The ramdisk of the boot tests.
pub(crate) const BOOTED: TestRamdisk = TestRamdisk {
    name: "ramdisk.cpio.gz",
    init: include_str!("../../lab/ramdisk-init.sh"),
    program: ("dhcp", include_str!("../../lab/ramdisk-dhcp.sh")),
    modules: &["virtio_pci", "virtio_net", "virtio_scsi", "sr_mod", "isofs"],
};

/// The system on the deployed disk image; it also runs from memory.
pub(crate) const DEPLOYED: TestRamdisk = TestRamdisk {
    name: "deployed.cpio.gz",
    init: include_str!("../../lab/deployed-init.sh"),
    program: ("power-button", include_str!("../../lab/deployed-power-button.sh")),
    modules: &[
        "virtio_pci",
        "virtio_scsi",
        "virtio_blk",
        "sd_mod",
        "sr_mod",
        "nvme",
        "ata_piix",
        "loop",
        "isofs",
        "vfat",
        "nls_cp437",
        "nls_ascii",
        "nls_utf8",
        "button",
        "evdev",
    ],
};

impl TestRamdisk {
    /// Writes the ramdisk for this kernel and returns its path.
    pub(crate) fn make(&self, root: &Path, kernel: &DebianKernel) -> Result<PathBuf> {
        let path = std::path::absolute(repository::target(root).join(self.name))?;
        // Renamed at the end, because another run may be reading the existing file.
        let unfinished = path.with_extension(format!("{}.gz", std::process::id()));
        let mut gzip = Compressor::start(&["gzip", "-n", "-c"], &unfinished)?;
        let mut archive = CpioWriter::new(gzip.input()?);
        for folder in FOLDERS {
            archive.folder(folder)?;
        }
        archive.program("init", self.init.as_bytes())?;
        archive.program(self.program.0, self.program.1.as_bytes())?;
        let busybox = fs::read(BUSYBOX).with_context(|| format!("cannot read {BUSYBOX}"))?;
        archive.program("bin/busybox", &busybox)?;
        for (index, module) in kernel.modules_in_order(self.modules)?.iter().enumerate() {
            let content =
                fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
            archive.file(&format!("modules/{index:02}.ko"), &content)?;
        }
        drop(archive.finish()?);
        gzip.finish()?;
        fs::rename(&unfinished, &path)?;
        Ok(path)
    }
}
