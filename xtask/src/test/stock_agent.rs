// SPDX-License-Identifier: Apache-2.0
//! A ramdisk with the stock ironic-python-agent, for tests of our server and for comparison with our
//! agent.
//!
//! Debian packages are unpacked, not installed, so none of their scripts run here. The ramdisk is
//! built once, under `target/`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::archive::{Compressor, CpioWriter};
use super::kernel::{self, DebianKernel};
use super::python::{self, STOCK_AGENT};
use crate::{install, print, repository, shell};

/// The packages of the programs that the agent uses; their dependencies are added.
const PACKAGES: &[&str] = &[
    "bsdextrautils",
    "busybox-static",
    "coreutils",
    "dash",
    "dmidecode",
    "dosfstools",
    "e2fsprogs",
    "efibootmgr",
    "ethtool",
    "findutils",
    "gdisk",
    "grep",
    "hdparm",
    "iproute2",
    "kmod",
    "libc-bin",
    "lshw",
    "lsscsi",
    "mawk",
    "mdadm",
    "mount",
    "nvme-cli",
    "parted",
    "pciutils",
    "procps",
    "psmisc",
    "python3",
    "qemu-utils",
    "sed",
    "tar",
    "udev",
    "util-linux",
];
/// The drivers of virtual machines, and modules that the agent loads by name.
const MODULES: &[&str] = &[
    "8021q",
    "ata_piix",
    "button",
    "dm-mod",
    "efivarfs",
    "evdev",
    "isofs",
    "loop",
    "nls_ascii",
    "nls_cp437",
    "nls_iso8859-1",
    "nvme",
    "qemu_fw_cfg",
    "raid0",
    "raid1",
    "raid10",
    "raid456",
    "sd_mod",
    "sg",
    "sr_mod",
    "vfat",
    "virtio-rng",
    "virtio_blk",
    "virtio_net",
    "virtio_pci",
    "virtio_scsi",
    "vmxnet3",
    "xfs",
];
/// Parts of the packages that a ramdisk does not need.
const LEFT_OUT: &[&str] = &[
    "boot",
    "usr/lib/udev/hwdb.d",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/doc",
    "usr/share/doc-base",
    "usr/share/i18n",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl",
    "usr/share/perl5",
    "usr/share/zoneinfo",
    "var/lib/dpkg",
];
/// Debian 12 and later have these folders in `/usr`.
const IN_USR: &[&str] = &["bin", "lib", "lib64", "sbin"];
const EMPTY_FOLDERS: &[&str] = &[
    "dev",
    "etc/ironic-python-agent",
    "mnt",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "var/lib/misc",
    "var/log",
];

const INIT: &str = include_str!("../../lab/stock-agent-init.sh");
const ON_LEASE: &str = include_str!("../../lab/stock-agent-on-lease.sh");
const POWER: &str = include_str!("../../lab/stock-agent-power.sh");
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\n";
/// The groups that udev assigns to devices.
const GROUPS: &str = "root:x:0:\ntty:x:5:\ndisk:x:6:\nlp:x:7:\ndialout:x:20:\ncdrom:x:24:\n\
                      tape:x:26:\naudio:x:29:\nvideo:x:44:\nkmem:x:15:\ninput:x:101:\nsgx:x:102:\n\
                      kvm:x:103:\nrender:x:104:\n";

/// A stronger compression would not boot faster.
const COMPRESS: &[&str] = &["zstd", "-q", "-T0", "-9"];

/// The ramdisk. It fits only the kernel it was built for.
pub(crate) struct StockAgent {
    pub(crate) ramdisk: PathBuf,
}

impl StockAgent {
    /// Builds the ramdisk unless it is up to date.
    pub(crate) fn ensure(root: &Path, kernel: &DebianKernel) -> Result<Self> {
        let environment = python::ensure(root, &STOCK_AGENT)?;
        let target = std::path::absolute(repository::target(root))?;
        let ramdisk = target.join("stock-agent.cpio.zst");
        let stamp = ramdisk.with_extension("made-of");
        let wanted = inputs(&environment, kernel)?;
        if ramdisk.exists() && fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
            return Ok(Self { ramdisk });
        }
        let started = Instant::now();
        let work_folder = tempfile::Builder::new().prefix("stock-agent-").tempdir_in(&target)?;
        let tree = work_folder.path().join("tree");
        unpack_packages(work_folder.path(), &tree)?;
        add_agent(&tree, &environment)?;
        add_modules(&tree, kernel)?;
        add_scripts(&tree)?;
        // The library cache, which Python reads to load libraries.
        shell::output_of(Command::new("/sbin/ldconfig").arg("-r").arg(&tree))?;
        let unfinished = work_folder.path().join("ramdisk");
        let mut compressor = Compressor::start(COMPRESS, &unfinished)?;
        let mut archive = CpioWriter::new(compressor.input()?);
        archive.tree(&tree)?;
        drop(archive.finish()?);
        compressor.finish()?;
        fs::rename(&unfinished, &ramdisk)?;
        fs::write(&stamp, wanted)?;
        print::line(&format!(
            "ramdisk with ironic-python-agent: {} MB, made in {:.0} s",
            fs::metadata(&ramdisk)?.len() / 1_000_000,
            started.elapsed().as_secs_f64()
        ));
        Ok(Self { ramdisk })
    }
}

/// The inputs of the ramdisk. Versions of Debian packages are not part of it.
fn inputs(environment: &Path, kernel: &DebianKernel) -> Result<String> {
    let from_pypi = fs::read_to_string(environment.join("complete"))?;
    let lists = [PACKAGES, MODULES, LEFT_OUT, COMPRESS].map(|list| list.join(" ")).join("\n");
    let version = &kernel.version;
    Ok(format!("{version}\n{lists}\n{from_pypi}\n{INIT}\n{ON_LEASE}\n{POWER}\n{USERS}\n{GROUPS}"))
}

/// Downloads the packages with all dependencies and unpacks them.
fn unpack_packages(work_folder: &Path, tree: &Path) -> Result<()> {
    let nothing_installed = work_folder.join("status");
    fs::write(&nothing_installed, "")?;
    let archives = work_folder.join("archives");
    fs::create_dir_all(archives.join("partial"))?;
    shell::output_of(
        Command::new("apt-get")
            .args(["-qq", "-y", "--no-install-recommends", "--download-only"])
            .arg(format!("-oDir::State::status={}", nothing_installed.display()))
            .arg(format!("-oDir::Cache::archives={}", archives.display()))
            .args(["-oDebug::NoLocking=1", "-oAPT::Sandbox::User=root", "install"])
            .args(PACKAGES),
    )
    .context(
        "cannot download the packages of ironic-python-agent; run `apt-get update` and try again",
    )?;
    for name in IN_USR {
        fs::create_dir_all(tree.join("usr").join(name))?;
        symlink(Path::new("usr").join(name), tree.join(name))?;
    }
    for entry in fs::read_dir(&archives)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "deb") {
            unpack(&path, tree)?;
        }
    }
    for name in LEFT_OUT {
        match fs::remove_dir_all(tree.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    for name in EMPTY_FOLDERS {
        fs::create_dir_all(tree.join(name))?;
    }
    Ok(())
}

/// Like `dpkg-deb --extract`, but keeps the symbolic links to the folders in `/usr`.
fn unpack(package: &Path, tree: &Path) -> Result<()> {
    let mut dpkg = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .context("cannot run dpkg-deb")?;
    let output = dpkg.stdout.take().context("the output was not piped")?;
    let unpacked = Command::new("tar")
        .args(["--extract", "--keep-directory-symlink", "--no-same-owner", "--directory"])
        .arg(tree)
        .stdin(output)
        .status()
        .context("cannot run tar")?;
    if !dpkg.wait()?.success() || !unpacked.success() {
        bail!("cannot unpack {}", package.display());
    }
    Ok(())
}

/// Copies the packages from PyPI to where Debian's Python finds them, and compiles them: at each start
/// of the agent that would take half a minute in emulation.
fn add_agent(tree: &Path, environment: &Path) -> Result<()> {
    let folders = fs::read_dir(environment.join("lib"))?.filter_map(Result::ok);
    let version = folders
        .map(|entry| entry.file_name())
        .find(|name| name.to_string_lossy().starts_with("python3."))
        .context("the environment of ironic-python-agent has no Python")?;
    let library = tree.join("usr/lib").join(&version);
    if !library.exists() {
        bail!("Debian's packages have another Python than {}", version.display());
    }
    let place = tree.join("usr/local/lib").join(&version);
    fs::create_dir_all(&place)?;
    let place = place.join("dist-packages");
    shell::output_of(
        Command::new("cp")
            .arg("--recursive")
            .arg(environment.join("lib").join(&version).join("site-packages"))
            .arg(&place),
    )?;
    for name in ["pip", "setuptools", "ironic_python_agent/tests"] {
        if place.join(name).exists() {
            fs::remove_dir_all(place.join(name))?;
        }
    }
    // Without timestamps: in the archive all files are from 1970.
    shell::output_of(
        Command::new(install::DEBIAN_PYTHON)
            .args(["-m", "compileall", "-q", "-f", "-j", "0"])
            .args(["--invalidation-mode", "unchecked-hash"])
            .args([&library, &place]),
    )?;
    Ok(())
}

fn add_modules(tree: &Path, kernel: &DebianKernel) -> Result<()> {
    let from = kernel.modules();
    let to = tree.join("usr/lib/modules").join(&kernel.version);
    fs::create_dir_all(&to)?;
    for table in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        fs::copy(from.join(table), to.join(table))?;
    }
    for module in kernel.modules_in_order(MODULES)? {
        let copy = to.join(module.strip_prefix(&from)?);
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&module, &copy)?;
    }
    kernel::run_depmod(tree, &kernel.version)
}

fn add_scripts(tree: &Path) -> Result<()> {
    for (name, text) in [
        ("init", INIT),
        ("usr/sbin/on-lease", ON_LEASE),
        ("usr/sbin/poweroff", POWER),
        ("usr/sbin/reboot", POWER),
    ] {
        let path = tree.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(tree.join("etc/passwd"), USERS)?;
    fs::write(tree.join("etc/group"), GROUPS)?;
    symlink("../proc/self/mounts", tree.join("etc/mtab"))?;
    // Debian's alternatives system is missing.
    let awk = tree.join("usr/bin/awk");
    if !awk.exists() {
        symlink("mawk", awk)?;
    }
    Ok(())
}
