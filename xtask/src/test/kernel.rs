// SPDX-License-Identifier: Apache-2.0
//! The Debian kernel that the tests boot, with its modules, unpacked under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{repository, shell};

/// Debian's name for the newest kernel for virtual machines.
const NEWEST: &str = "linux-image-cloud-amd64";

/// A kernel and its modules.
pub(crate) struct DebianKernel {
    pub(crate) path: PathBuf,
    pub(crate) version: String,
    /// The unpacked package.
    folder: PathBuf,
}

impl DebianKernel {
    /// Downloads and unpacks the kernel, unless that was done before.
    pub(crate) fn ensure(root: &Path) -> Result<Self> {
        let folder = std::path::absolute(repository::target(root).join("kernel"))?;
        if let Some(kernel) = Self::in_folder(&folder) {
            return Ok(kernel);
        }
        let download = folder.with_extension("download");
        if download.exists() {
            fs::remove_dir_all(&download)?;
        }
        fs::create_dir_all(&download)?;
        let package = package()?;
        shell::output_of(
            Command::new("apt-get").args(["-qq", "download", &package]).current_dir(&download),
        )?;
        let archive = fs::read_dir(&download)?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
            .with_context(|| format!("apt-get downloaded no package {package}"))?;
        let unpacked = download.join("root");
        shell::output_of(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&unpacked))?;
        let kernel =
            Self::in_boot(&unpacked).with_context(|| format!("there is no kernel in {package}"))?;
        run_depmod(&unpacked, &kernel.version)?;
        // Renamed at the end, so that an interrupted download is repeated.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::rename(&unpacked, &folder)?;
        fs::remove_dir_all(&download)?;
        Self::in_folder(&folder).context("the kernel is gone")
    }

    /// The folder with the modules and their dependency tables.
    pub(crate) fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.version)
    }

    /// The files of these modules and their dependencies, in loading order. Modules without a file
    /// are built into the kernel and ignored.
    pub(crate) fn modules_in_order(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let modules = self.modules();
        let table =
            fs::read_to_string(modules.join("modules.dep")).context("cannot read modules.dep")?;
        let mut ordered: Vec<PathBuf> = Vec::new();
        for name in names {
            let line = table.lines().filter_map(|line| line.split_once(':')).find(|(path, _)| {
                Path::new(path)
                    .file_name()
                    .is_some_and(|file| file == format!("{name}.ko").as_str())
            });
            let Some((module, needs)) = line else { continue };
            // The line also lists indirect dependencies, in reverse loading order.
            for path in needs.split_whitespace().rev().chain([module]) {
                let path = modules.join(path);
                if !ordered.contains(&path) {
                    ordered.push(path);
                }
            }
        }
        Ok(ordered)
    }

    /// Returns `None` unless the folder contains a completely unpacked kernel.
    fn in_folder(folder: &Path) -> Option<Self> {
        Self::in_boot(folder).filter(|kernel| kernel.modules().join("modules.dep").exists())
    }

    fn in_boot(folder: &Path) -> Option<Self> {
        let boot = fs::read_dir(folder.join("boot")).ok()?;
        let mut files = boot.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        files.find_map(|path| {
            let version = path.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            Some(Self { path, version, folder: folder.to_owned() })
        })
    }
}

/// Writes the dependency tables. `/sbin` is not on the path of every user.
pub(crate) fn run_depmod(folder: &Path, version: &str) -> Result<()> {
    shell::output_of(Command::new("/sbin/depmod").arg("--basedir").arg(folder).arg(version))?;
    Ok(())
}

/// The name of the newest kernel package.
fn package() -> Result<String> {
    let output = shell::output_of(Command::new("apt-cache").args(["depends", NEWEST]))?;
    let depends = output.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    match depends.map(str::trim).find(|name| name.starts_with("linux-image-")) {
        Some(name) => Ok(name.to_owned()),
        None => bail!("{NEWEST} depends on no kernel; run `apt-get update` and try again"),
    }
}

#[test]
fn modules_come_after_what_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = DebianKernel {
        path: folder.path().join("boot/vmlinuz-6.1"),
        version: "6.1".to_owned(),
        folder: folder.path().to_owned(),
    };
    fs::create_dir_all(kernel.modules()).unwrap();
    let table = "fs/fat/vfat.ko: fs/fat/fat.ko\nscsi/sd_mod.ko: lib/t10-pi.ko scsi/scsi_mod.ko\n\
                 scsi/sr_mod.ko: cdrom.ko scsi/scsi_mod.ko\n";
    fs::write(kernel.modules().join("modules.dep"), table).unwrap();
    let ordered = kernel.modules_in_order(&["sd_mod", "built_in", "sr_mod"]).unwrap();
    let names: Vec<_> = ordered.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    assert_eq!(names, ["scsi_mod.ko", "t10-pi.ko", "sd_mod.ko", "cdrom.ko", "sr_mod.ko"]);
}
