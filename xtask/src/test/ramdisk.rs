// SPDX-License-Identifier: Apache-2.0
//! Ramdisks small enough to be made here: busybox, a few modules of the tests' kernel, and a script
//! that says on the serial console how far it came.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::archive::{Archive, Compressor};
use super::kernel::Kernel;
use crate::repository;

const BUSYBOX: &str = "/bin/busybox";
const FOLDERS: &[&str] = &["bin", "dev", "mnt", "modules", "proc", "sys"];

/// What makes one ramdisk different from another.
pub(crate) struct Ramdisk {
    /// Its name under `target/`.
    name: &'static str,
    /// The script that is all it runs.
    init: &'static str,
    /// Another program, and its name there.
    program: (&'static str, &'static str),
    /// The modules that are loaded, and what they need before them.
    modules: &'static [&'static str],
}

/// What the boot tests boot.
pub(crate) const BOOTED: Ramdisk = Ramdisk {
    name: "ramdisk.cpio.gz",
    init: include_str!("../../lab/ramdisk-init.sh"),
    program: ("dhcp", include_str!("../../lab/ramdisk-dhcp.sh")),
    modules: &["virtio_pci", "virtio_net", "virtio_scsi", "sr_mod", "isofs"],
};

/// The system on the disk image that is deployed; it lives in memory, too.
pub(crate) const DEPLOYED: Ramdisk = Ramdisk {
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

impl Ramdisk {
    /// Makes it for this kernel; says where it is.
    pub(crate) fn make(&self, root: &Path, kernel: &Kernel) -> Result<PathBuf> {
        let path = std::path::absolute(repository::target(root).join(self.name))?;
        // Renamed last, because another run may be reading the one that is there.
        let unfinished = path.with_extension(format!("{}.gz", std::process::id()));
        let mut gzip = Compressor::start(&["gzip", "-n", "-c"], &unfinished)?;
        let mut archive = Archive::new(gzip.input()?);
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
