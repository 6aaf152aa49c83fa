// SPDX-License-Identifier: Apache-2.0
//! Makes a deployed system bootable: `image.install_bootloader`.
//!
//! A disk for UEFI that brings its boot loader only needs entries in the firmware. Where the loader
//! is missing (partition images, software RAID in BIOS mode) the system's own GRUB installs itself,
//! run inside the deployed system. That is somebody else's program with all rights on this machine, so
//! it is done only if the server says that it may be.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::device::{Device, DeviceError, partition_path, wait_for};
use crate::efi;
use crate::filesystem::identify;
use crate::gpt::{Gpt, kind};
use crate::inside;
use crate::mounts::{MountError, Mounted};
use crate::partitions;
use crate::raid::{self, Array, ESP_NAME, ExistingArray};

/// Where the deployed system's programs are.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The size of an EFI system partition on each disk of an array.
const ESP_SIZE: u64 = 550 << 20;
const BIOS_BOOT_SIZE: u64 = 2 << 20;

/// What is to be made bootable.
#[derive(Debug, Clone)]
pub struct BootloaderOptions<'a> {
    /// Whether the machine boots by UEFI.
    pub uefi: bool,
    /// The root file system, by its UUID.
    pub root_uuid: Option<&'a str>,
    /// The EFI system partition, by its UUID.
    pub efi_system_partition_uuid: Option<&'a str>,
    /// Whether programs of the deployed system may be run.
    pub may_run_its_programs: bool,
    /// Where the kernel shows the firmware's variables.
    pub variables: &'a Path,
    /// Where the kernel tells about devices.
    pub sys: &'a Path,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// The firmware has entries with these names.
    Entries(Vec<String>),
    /// GRUB installed itself on these disks.
    Grub(Vec<String>),
}

/// Why the system does not boot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The firmware's entries.
    #[error(transparent)]
    Efi(#[from] efi::Error),
    /// Its programs may not be run.
    #[error(
        "the image brings no boot loader that the firmware could start, and its own grub-install is not run: enable_bios_bootloader_install is off, because of CVE-2026-43003; use a whole-disk image with a boot loader for this machine's boot mode, or switch that on if all images are trusted"
    )]
    Forbidden,
    /// The root file system is not there.
    #[error("{device} has no partition with the root file system {uuid}: is this the right image?")]
    NoRoot {
        /// The disk.
        device: String,
        /// What was looked for.
        uuid: String,
    },
    /// There is no GRUB in the image.
    #[error(
        "the image has neither grub-install nor grub2-install: use an image with a boot loader"
    )]
    NoGrub,
    /// GRUB does not install itself.
    #[error("`{command}` in the deployed system failed: {said}")]
    Grub {
        /// What was run.
        command: String,
        /// What it said.
        said: String,
    },
    /// The image's EFI system partition is too large for the room on the array's disks.
    #[error(
        "the image's EFI system partition has {size} bytes, more than the {ESP_SIZE} there are on each disk"
    )]
    EspTooLarge {
        /// Its bytes.
        size: u64,
    },
    /// A disk of an array has no room in front.
    #[error(
        "{disk} has no room for what boots: build the array again with delete_configuration and create_configuration"
    )]
    NoRoom {
        /// Which disk.
        disk: String,
    },
    /// An array.
    #[error(transparent)]
    Raid(#[from] raid::Error),
    /// A file system cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Makes the system on a disk or an array bootable.
///
/// # Errors
/// If it has no boot loader, or that cannot be installed.
pub fn install(device: &Path, options: &BootloaderOptions<'_>) -> Result<Installed, Error> {
    let arrays = raid::existing(options.sys);
    let array = arrays.iter().find(|array| array.device == device);
    if options.uefi {
        let entries = match array {
            Some(array) => boot_from_array(device, array, &arrays, options)?,
            None => match efi::boot_from_disk(options.variables, device) {
                // Partition images come with an empty partition; GRUB is to fill it.
                Err(efi::Error::NoLoader { .. }) if has_root(options) => Vec::new(),
                entries => entries?,
            },
        };
        if !entries.is_empty() {
            return Ok(Installed::Entries(entries.into_iter().map(|entry| entry.label).collect()));
        }
    }
    if !options.may_run_its_programs {
        return Err(Error::Forbidden);
    }
    let disks: Vec<PathBuf> = match array {
        Some(array) => array.disks.clone(),
        None => vec![device.to_owned()],
    };
    if array.is_some() && !options.uefi {
        for disk in &disks {
            add_in_front(disk, BIOS_BOOT_SIZE, kind::BIOS_BOOT, "bios-boot-part")?;
        }
    }
    grub(device, &disks, options)?;
    if options.uefi {
        let entries = efi::boot_from_disk(options.variables, device)?;
        return Ok(Installed::Entries(entries.into_iter().map(|entry| entry.label).collect()));
    }
    Ok(Installed::Grub(disks.iter().map(|disk| disk.display().to_string()).collect()))
}

/// Whether the root file system is known. What begins like this is the disk's identifier, which is all
/// that is known of an image of a whole disk.
fn has_root(options: &BootloaderOptions<'_>) -> bool {
    options.root_uuid.is_some_and(|uuid| !uuid.starts_with("0x"))
}

/// Puts a copy of the image's EFI system partition on each disk of an array, kept equal by a RAID-1
/// of their own, and makes entries for all of them.
fn boot_from_array(
    device: &Path,
    array: &ExistingArray,
    arrays: &[ExistingArray],
    options: &BootloaderOptions<'_>,
) -> Result<Vec<efi::BootEntry>, Error> {
    let no_partition = || efi::Error::NoPartition { device: device.display().to_string() };
    let from = efi::system_partition(device)?.ok_or_else(no_partition)?;
    let from = partition_path(device, from.number);
    let there = arrays.iter().find(|array| array.name.as_deref() == Some(ESP_NAME));
    let (esp, members) = match there {
        Some(esp) => (esp.device.clone(), esp.members.clone()),
        None => make_esp_array(array, arrays)?,
    };
    // Once copied the image's own is wiped. When asked again there is nothing left to copy.
    let is_there = identify(&Device::read_only(&from)?)?.is_some_and(|it| it.kind == "vfat");
    if is_there {
        copy(&from, &esp)?;
    }
    let mounted = Mounted::read_only(&esp, Some("vfat"))?;
    let mut entries = Vec::new();
    for (index, disk) in array.disks.iter().enumerate() {
        let Some(partition) = efi::system_partition(disk)? else { continue };
        let on_disk = partition_path(disk, partition.number);
        if !members.contains(&on_disk) {
            continue;
        }
        let suffix = format!("(RAID, part{index})");
        entries.extend(efi::boot_from_files(
            options.variables,
            mounted.path(),
            &partition,
            Some(&suffix),
        )?);
    }
    mounted.unmount()?;
    Ok(entries)
}

fn make_esp_array(
    array: &ExistingArray,
    arrays: &[ExistingArray],
) -> Result<(PathBuf, Vec<PathBuf>), Error> {
    let mut members = Vec::new();
    for (index, disk) in array.disks.iter().enumerate() {
        let name = format!("uefi-holder-{index}");
        let number = add_in_front(disk, ESP_SIZE, kind::EFI_SYSTEM, &name)?;
        let member = partition_path(disk, number);
        wait_for(&member)?;
        members.push(member);
    }
    let is_free = |path: &PathBuf| arrays.iter().all(|array| array.device != *path);
    let mut names = (0..128).map(|number| PathBuf::from(format!("/dev/md{number}")));
    let esp = names.find(is_free).unwrap_or_else(|| PathBuf::from("/dev/md127"));
    let command = raid::create_command(&Array {
        device: esp.display().to_string(),
        name: ESP_NAME.to_owned(),
        level: "1".to_owned(),
        gib: None,
        disks: array.disks.iter().map(|disk| disk.display().to_string()).collect(),
        members: members.clone(),
        // At the end, so that firmware sees a plain FAT on each disk.
        metadata: "--metadata=1.0",
    });
    raid::run("mdadm", &command)?;
    Ok((esp, members))
}

/// Adds a partition in the room that was left in front of the arrays. Answers its number; one of
/// that name is taken as it is.
fn add_in_front(disk: &Path, size: u64, kind: uuid::Uuid, name: &str) -> Result<u32, Error> {
    let device = Device::writable(disk)?;
    let no_room = || Error::NoRoom { disk: disk.display().to_string() };
    let Some(mut table) = Gpt::read(&device)? else {
        // In an MBR GRUB needs no partition of its own.
        return if kind == crate::gpt::kind::BIOS_BOOT { Ok(0) } else { Err(no_room()) };
    };
    if let Some(partition) = table.partitions.iter().find(|partition| partition.name == name) {
        return Ok(partition.number);
    }
    let number = table.add(Some(size), kind, uuid::Uuid::new_v4(), name).map_err(|_| no_room())?;
    table.write(&device)?;
    device.sync()?;
    // Partitions in use keep the kernel from reading the whole table again.
    let added = table.partitions.iter().find(|partition| partition.number == number);
    if let Some(partition) = added {
        device.add_partition(number, table.range(partition))?;
    }
    Ok(number)
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let source = Device::read_only(from)?;
    let target = Device::exclusive(to)?;
    if source.size() > target.size() {
        return Err(Error::EspTooLarge { size: source.size() });
    }
    let mut at = 0;
    while at < source.size() {
        let length = usize::try_from((source.size() - at).min(1 << 20)).expect("a megabyte");
        target.write(at, &source.read(at, length)?)?;
        at += length as u64;
    }
    target.sync()?;
    // Two file systems with one UUID would confuse whoever looks for it.
    let source = Device::writable(from)?;
    source.zero(0, 1 << 20)?;
    Ok(source.sync()?)
}

/// Runs the deployed system's own GRUB on the disks.
fn grub(device: &Path, disks: &[PathBuf], options: &BootloaderOptions<'_>) -> Result<(), Error> {
    let uuid = options.root_uuid.unwrap_or_default();
    let no_root = || Error::NoRoot { device: device.display().to_string(), uuid: uuid.to_owned() };
    let root = partitions::find(device, uuid)?.ok_or_else(no_root)?;
    let kind = root.identity.as_ref().map_or("ext4", |identity| identity.kind);
    let mut system = Mounted::read_write(&root.path, kind)?;
    // Not /run, where the agent has its token.
    for folder in ["dev", "proc", "sys"] {
        system.bind(&Path::new("/").join(folder), folder)?;
    }
    if options.uefi {
        let found = options.efi_system_partition_uuid.map(|uuid| partitions::find(device, uuid));
        let by_uuid = found.transpose()?.flatten().map(|found| found.path);
        let by_table = || -> Result<_, Error> {
            Ok(efi::system_partition(device)?.map(|it| partition_path(device, it.number)))
        };
        if let Some(esp) = by_uuid.map_or_else(by_table, |path| Ok(Some(path)))? {
            let kind =
                identify(&Device::read_only(&esp)?)?.map_or("vfat", |identity| identity.kind);
            system.mount_inside(&esp, kind, "boot/efi")?;
        }
    }
    let names = [
        ("grub2-install", "grub2-mkconfig", "boot/grub2"),
        ("grub-install", "grub-mkconfig", "boot/grub"),
    ];
    let has = |program: &str| {
        let mut paths = SEARCH_PATH.split(':').map(|folder| format!("{folder}/{program}"));
        paths.any(|path| inside::file(system.path(), path).is_some())
    };
    let (install, configure, folder) =
        names.into_iter().find(|(install, ..)| has(install)).ok_or(Error::NoGrub)?;
    for command in grub_commands(install, disks, options.uefi) {
        run_inside(system.path(), &command)?;
    }
    let menu = format!("/{folder}/grub.cfg");
    run_inside(system.path(), &[configure.to_owned(), "-o".to_owned(), menu])?;
    Ok(system.unmount()?)
}

/// For UEFI GRUB goes to the EFI system partition, also under the name firmware looks for; for BIOS
/// to every disk.
fn grub_commands(install: &str, disks: &[PathBuf], uefi: bool) -> Vec<Vec<String>> {
    let command = |rest: &[&str]| {
        std::iter::once(install).chain(rest.iter().copied()).map(str::to_owned).collect()
    };
    if uefi {
        return vec![command(&["--no-nvram"]), command(&["--no-nvram", "--removable"])];
    }
    disks.iter().map(|disk| command(&[&disk.display().to_string()])).collect()
}

fn run_inside(root: &Path, command: &[String]) -> Result<(), Error> {
    let text = command.join(" ");
    let failed = |said: String| Error::Grub { command: text.clone(), said };
    let start = |mut program: Command| {
        program.arg(root).args(command).env("PATH", SEARCH_PATH).env("LC_ALL", "C").output()
    };
    let mut busybox = Command::new("busybox");
    busybox.arg("chroot");
    // The ramdisk has the one, elsewhere there is the other.
    let output = match start(busybox) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => start(Command::new("chroot")),
        output => output,
    };
    let output = output.map_err(|error| failed(format!("chroot does not start ({error})")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.chars().take(2000).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grub_goes_to_every_disk_or_to_the_partition() {
        let disks = [PathBuf::from("/dev/sda"), PathBuf::from("/dev/sdb")];
        let words = |uefi| {
            let commands = grub_commands("grub-install", &disks, uefi);
            commands.into_iter().map(|command| command.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(words(false), ["grub-install /dev/sda", "grub-install /dev/sdb"]);
        assert_eq!(words(true), ["grub-install --no-nvram", "grub-install --no-nvram --removable"]);
    }

    #[test]
    fn programs_of_an_image_run_only_if_that_is_allowed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16 << 20).unwrap();
        let nothing = tempfile::tempdir().unwrap();
        let options = BootloaderOptions {
            uefi: false,
            root_uuid: Some("0b4a7e8e-3c5f-4a86-9f62-8d6f2f0a3c11"),
            efi_system_partition_uuid: None,
            may_run_its_programs: false,
            variables: nothing.path(),
            sys: nothing.path(),
        };
        let refused = install(file.path(), &options).unwrap_err();
        assert!(refused.to_string().contains("enable_bios_bootloader_install"), "{refused}");
        let options = BootloaderOptions { may_run_its_programs: true, ..options };
        assert!(matches!(install(file.path(), &options), Err(Error::NoRoot { .. })));
    }

    #[test]
    fn programs_see_the_system_as_their_root() {
        let root = tempfile::tempdir().unwrap();
        let none = run_inside(root.path(), &["grub-install".to_owned()]).unwrap_err().to_string();
        // Whatever chroots here says that the program is not there, and not that it cannot start.
        assert!(none.contains("grub-install") && !none.contains("does not start"), "{none}");
    }

    #[test]
    fn room_in_front_of_arrays_is_used_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 << 30).unwrap();
        let device = Device::writable(file.path()).unwrap();
        let mut table = Gpt::new(&device, uuid::Uuid::from_u128(1));
        table.add(Some(ESP_SIZE), kind::LINUX, uuid::Uuid::nil(), "reserved").unwrap();
        table.add(None, kind::RAID, uuid::Uuid::from_u128(2), "").unwrap();
        table.partitions.remove(0);
        table.write(&device).unwrap();
        for _ in 0..2 {
            let number = add_in_front(file.path(), ESP_SIZE, kind::EFI_SYSTEM, "uefi-holder-0");
            assert_eq!(number.unwrap(), 1);
        }
        let table = Gpt::read(&device).unwrap().unwrap();
        assert_eq!(table.partitions.len(), 2);
        assert_eq!(table.range(&table.partitions[0]), (1 << 20, ESP_SIZE));
        let full = add_in_front(file.path(), ESP_SIZE, kind::EFI_SYSTEM, "another");
        assert!(matches!(full, Err(Error::NoRoom { .. })));
    }
}
