// SPDX-License-Identifier: Apache-2.0
//! The disk image that the tests deploy: one EFI system partition that every machine can boot, with a
//! system that reports on the serial console.
//!
//! - OVMF starts `EFI/BOOT/BOOTX64.EFI`, a unified kernel image.
//! - SeaBIOS starts syslinux, by the code in the first sector and the flag of the partition.
//! - kexec finds kernel, ramdisk and parameters in `loader/entries`, as in the Boot Loader
//!   Specification.
//!
//! Built with mtools, without mounting. The same kernel gives the same bytes.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::kernel::DebianKernel;
use super::ramdisk::DEPLOYED;
use crate::{repository, shell};

const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
/// Starts the first partition with the flag "legacy BIOS bootable".
const FIRST_SECTOR: &str = "/usr/lib/syslinux/mbr/gptmbr.bin";
/// The size of the boot code in the first sector.
const CODE_BYTES: usize = 440;

/// Large enough for two copies of the kernel.
const DISK_BYTES: u64 = 56 << 20;
const SECTOR: u64 = 512;
/// The usual start of the first partition.
const PARTITION_BYTE: u64 = 1 << 20;
/// The size of the backup partition table at the end.
const TABLE_SECTORS: u64 = 34;
// Fixed identifiers, so that each run gives the same bytes.
const DISK_ID: &str = "6c61620a-0000-4000-9000-000000000001";
const PARTITION_ID: &str = "6c61620a-0000-4000-9000-000000000002";
const FILE_SYSTEM_ID: &str = "6c61620a";
/// The time of all files: 2025-01-01.
const TIME: &str = "1735689600";

/// The kernel parameters; the name of the boot loader is appended.
const PARAMETERS: &str = "console=ttyS0,115200n8 quiet panic=5 ferrite.marker=deployed-from-image \
                          ferrite.loader=";

/// The image in two formats, with `SHA256SUMS` in the same folder.
pub(crate) struct TestDiskImage {
    pub(crate) raw: PathBuf,
    pub(crate) qcow2: PathBuf,
}

impl TestDiskImage {
    pub(crate) fn make(root: &Path, kernel: &DebianKernel) -> Result<Self> {
        let ramdisk = DEPLOYED.make(root, kernel)?;
        let target = std::path::absolute(repository::target(root))?;
        let folder = target.join("image");
        fs::create_dir_all(&folder)?;
        let workshop = tempfile::Builder::new().prefix("image-").tempdir_in(&target)?;
        let made = workshop.path();

        let disk = made.join("disk.raw");
        write_disk(&disk, made, kernel, &ramdisk)?;
        shell::output_of(
            Command::new("qemu-img")
                .args(["convert", "-q", "-c", "-f", "raw", "-O", "qcow2", "disk.raw", "disk.qcow2"])
                .current_dir(made),
        )?;
        let mut sums = Command::new("sha256sum");
        let sums = shell::output_of(sums.args(["disk.raw", "disk.qcow2"]).current_dir(made))?;
        fs::write(made.join("SHA256SUMS"), sums)?;
        // Renamed at the end, because another run may be reading the existing files.
        for name in ["disk.raw", "disk.qcow2", "SHA256SUMS"] {
            fs::rename(made.join(name), folder.join(name))?;
        }
        Ok(Self { raw: folder.join("disk.raw"), qcow2: folder.join("disk.qcow2") })
    }
}

fn write_disk(disk: &Path, made: &Path, kernel: &DebianKernel, ramdisk: &Path) -> Result<()> {
    let file = fs::File::create(disk)?;
    file.set_len(DISK_BYTES)?;
    let first = PARTITION_BYTE / SECTOR;
    let last = DISK_BYTES / SECTOR - TABLE_SECTORS;
    shell::output_of(
        Command::new("/sbin/sgdisk")
            .arg(format!("--disk-guid={DISK_ID}"))
            .arg(format!("--new=1:{first}:{last}"))
            .arg(format!("--partition-guid=1:{PARTITION_ID}"))
            .args(["--typecode=1:ef00", "--change-name=1:esp", "--attributes=1:set:2"])
            .arg(disk),
    )?;
    let code = fs::read(FIRST_SECTOR).with_context(|| format!("cannot read {FIRST_SECTOR}"))?;
    file.write_all_at(&code[..code.len().min(CODE_BYTES)], 0)?;

    let kilobytes = (last + 1 - first) * SECTOR / 1024;
    shell::output_of(
        Command::new("/sbin/mkfs.fat")
            .args(["--invariant", "-F", "32", "-s", "1", "-i", FILE_SYSTEM_ID, "-n", "ESP"])
            .args(["-h", &first.to_string(), "--offset", &first.to_string()])
            .arg(disk)
            .arg(kilobytes.to_string()),
    )?;

    write_unified_image(&made.join("BOOTX64.EFI"), made, kernel, ramdisk)?;
    fs::copy(&kernel.path, made.join("vmlinuz"))?;
    fs::copy(ramdisk, made.join("initrd.gz"))?;
    fs::write(
        made.join("syslinux.cfg"),
        format!(
            "DEFAULT system\nPROMPT 0\nLABEL system\n  LINUX /vmlinuz\n  INITRD /initrd.gz\n  \
             APPEND {PARAMETERS}syslinux\n"
        ),
    )?;
    fs::write(
        made.join("system.conf"),
        format!(
            "title Deployed by the tests of Ferrite\nversion {}\nlinux /vmlinuz\n\
             initrd /initrd.gz\noptions {PARAMETERS}entry\n",
            kernel.version
        ),
    )?;
    let partition = format!("disk.raw@@{PARTITION_BYTE}");
    let folders = ["-i", &partition, "::/EFI", "::/EFI/BOOT", "::/loader", "::/loader/entries"];
    on_fat(made, "mmd", &folders)?;
    for (file, folder) in [
        ("vmlinuz", "::/"),
        ("initrd.gz", "::/"),
        ("syslinux.cfg", "::/"),
        ("BOOTX64.EFI", "::/EFI/BOOT/"),
        ("system.conf", "::/loader/entries/"),
    ] {
        on_fat(made, "mcopy", &["-i", &partition, file, folder])?;
    }
    let offset = PARTITION_BYTE.to_string();
    on_fat(made, "syslinux", &["--install", "--offset", &offset, "disk.raw"])
}

/// Writes a unified kernel image: systemd's stub with parameters, kernel and ramdisk as sections.
fn write_unified_image(
    path: &Path,
    made: &Path,
    kernel: &DebianKernel,
    ramdisk: &Path,
) -> Result<()> {
    let parameters = made.join("parameters");
    fs::write(&parameters, format!("{PARAMETERS}uki\0"))?;
    let mut objcopy = Command::new("objcopy");
    let mut address = end_of(STUB)?;
    for (section, content) in
        [(".cmdline", parameters.as_path()), (".linux", &kernel.path), (".initrd", ramdisk)]
    {
        address = address.next_multiple_of(1 << 16);
        objcopy.arg("--add-section").arg(format!("{section}={}", content.display()));
        objcopy.arg("--change-section-vma").arg(format!("{section}={address:#x}"));
        address += fs::metadata(content)?.len();
    }
    shell::output_of(objcopy.arg(STUB).arg(path))?;
    Ok(())
}

/// The first address after the sections of an EFI program.
fn end_of(program: &str) -> Result<u64> {
    let listed = shell::output_of(Command::new("objdump").args(["-h", program]))?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    // Number, name, size, address, and more.
    let ends = listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next()?.parse::<u8>().ok()?;
        Some(hexadecimal(words.nth(1)?)? + hexadecimal(words.next()?)?)
    });
    ends.max().with_context(|| format!("{program} has no sections"))
}

/// Runs a program that changes a FAT file system in a file.
fn on_fat(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("SOURCE_DATE_EPOCH", TIME);
    // mtools reject geometries that no floppy drive had.
    command.env("MTOOLS_SKIP_CHECK", "1");
    shell::output_of(&mut command)?;
    Ok(())
}
