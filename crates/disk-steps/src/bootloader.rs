// SPDX-License-Identifier: Apache-2.0
//! Makes a deployed system bootable: `image.install_bootloader`.
//!
//! A UEFI disk image with a boot loader only needs boot entries in the firmware. If the boot loader is
//! missing (partition images, software RAID in BIOS mode), the system's own GRUB is run inside the
//! deployed system. That executes an untrusted program with root privileges, so it is done only if the
//! server allows it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::device::{Device, DeviceError, partition_path, wait_for_device};
use crate::efi;
use crate::filesystem::identify;
use crate::gpt::{Gpt, partition_type};
use crate::mounts::{MountError, MountedFilesystem};
use crate::partitions;
use crate::raid::{self, ESP_NAME, ExistingArray, PlannedArray};
use crate::system_root;

/// `PATH` inside the deployed system.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Size of the EFI system partition on each disk of an array.
const ESP_SIZE: u64 = 550 << 20;
const BIOS_BOOT_SIZE: u64 = 2 << 20;

/// Options of [`install`].
#[derive(Debug, Clone)]
pub struct BootloaderOptions<'a> {
    /// Whether the machine boots in UEFI mode.
    pub uefi: bool,
    /// UUID of the root file system.
    pub root_uuid: Option<&'a str>,
    /// UUID of the EFI system partition.
    pub efi_system_partition_uuid: Option<&'a str>,
    /// Whether programs of the deployed system may be run.
    pub allow_image_programs: bool,
    /// Mount point of efivarfs.
    pub variables: &'a Path,
    /// Mount point of sysfs.
    pub sys: &'a Path,
}

/// Result of [`install`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootloaderOutcome {
    /// Labels of the boot entries added to the firmware.
    Entries(Vec<String>),
    /// Disks on which GRUB was installed.
    Grub(Vec<String>),
}

/// The boot loader was not installed.
#[derive(Debug, thiserror::Error)]
pub enum BootloaderError {
    /// Writing boot entries failed.
    #[error(transparent)]
    Efi(#[from] efi::EfiError),
    /// Programs of the deployed system must not be run.
    #[error(
        "the image has no boot loader for this machine's boot mode, and its own grub-install is not run because enable_bios_bootloader_install is off (CVE-2026-43003): use a whole-disk image with a boot loader for this boot mode, or enable it if all images are trusted"
    )]
    Forbidden,
    /// The root file system was not found.
    #[error(
        "{device} has no partition with the root file system {uuid}: check that it is the right image"
    )]
    NoRoot {
        /// Path of the disk.
        device: String,
        /// UUID of the root file system.
        uuid: String,
    },
    /// The image does not contain GRUB.
    #[error(
        "the image has neither grub-install nor grub2-install: use an image with a boot loader"
    )]
    NoGrub,
    /// A GRUB program failed.
    #[error("`{command}` in the deployed system failed: {output}")]
    Grub {
        /// The command.
        command: String,
        /// Its error output.
        output: String,
    },
    /// The image's EFI system partition is larger than those on the disks of the array.
    #[error(
        "the image's EFI system partition has {size} bytes, but the partitions on the disks have {ESP_SIZE}: use a smaller one"
    )]
    EspTooLarge {
        /// Size in bytes.
        size: u64,
    },
    /// A disk of an array has no reserved space for boot partitions.
    #[error(
        "{disk} has no space for a boot partition: create the array again with delete_configuration and create_configuration"
    )]
    NoRoom {
        /// Path of the disk.
        disk: String,
    },
    /// Creating an array failed.
    #[error(transparent)]
    Raid(#[from] raid::SoftwareRaidError),
    /// Mounting failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Makes the system on a disk or an array bootable.
///
/// # Errors
/// Fails if the image has no boot loader, or it cannot be installed.
pub fn install(
    device: &Path,
    options: &BootloaderOptions<'_>,
) -> Result<BootloaderOutcome, BootloaderError> {
    let arrays = raid::list_arrays(options.sys);
    let array = arrays.iter().find(|array| array.device == device);
    if options.uefi {
        let entries = match array {
            Some(array) => boot_from_array(device, array, &arrays, options)?,
            None => match efi::boot_from_disk(options.variables, device) {
                // Partition images have an empty EFI system partition, which GRUB fills.
                Err(efi::EfiError::NoLoader { .. }) if has_root_uuid(options) => Vec::new(),
                entries => entries?,
            },
        };
        if !entries.is_empty() {
            return Ok(BootloaderOutcome::Entries(
                entries.into_iter().map(|entry| entry.label).collect(),
            ));
        }
    }
    if !options.allow_image_programs {
        return Err(BootloaderError::Forbidden);
    }
    let disks: Vec<PathBuf> = match array {
        Some(array) => array.disks.clone(),
        None => vec![device.to_owned()],
    };
    if array.is_some() && !options.uefi {
        for disk in &disks {
            add_boot_partition(disk, BIOS_BOOT_SIZE, partition_type::BIOS_BOOT, "bios-boot-part")?;
        }
    }
    install_grub(device, &disks, options)?;
    if options.uefi {
        let entries = efi::boot_from_disk(options.variables, device)?;
        return Ok(BootloaderOutcome::Entries(
            entries.into_iter().map(|entry| entry.label).collect(),
        ));
    }
    Ok(BootloaderOutcome::Grub(disks.iter().map(|disk| disk.display().to_string()).collect()))
}

/// Whether the UUID of the root file system is known. `0x…` is a disk identifier, which is all that is
/// known of a whole-disk image.
fn has_root_uuid(options: &BootloaderOptions<'_>) -> bool {
    options.root_uuid.is_some_and(|uuid| !uuid.starts_with("0x"))
}

/// Copies the image's EFI system partition to a RAID-1 with a member on each disk of the array, and adds
/// a boot entry for each disk.
fn boot_from_array(
    device: &Path,
    array: &ExistingArray,
    arrays: &[ExistingArray],
    options: &BootloaderOptions<'_>,
) -> Result<Vec<efi::BootEntry>, BootloaderError> {
    let no_partition = || efi::EfiError::NoPartition { device: device.display().to_string() };
    let source_partition = efi::system_partition(device)?.ok_or_else(no_partition)?;
    let source_partition = partition_path(device, source_partition.number);
    let existing_esp = arrays.iter().find(|array| array.name.as_deref() == Some(ESP_NAME));
    let (esp, members) = match existing_esp {
        Some(esp) => (esp.device.clone(), esp.members.clone()),
        None => make_esp_array(array, arrays)?,
    };
    // After the copy the original is wiped, so a repeated call has nothing to copy.
    let has_filesystem =
        identify(&Device::read_only(&source_partition)?)?.is_some_and(|it| it.fs_type == "vfat");
    if has_filesystem {
        move_filesystem(&source_partition, &esp)?;
    }
    let mounted = MountedFilesystem::read_only(&esp, Some("vfat"))?;
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
) -> Result<(PathBuf, Vec<PathBuf>), BootloaderError> {
    let mut members = Vec::new();
    for (index, disk) in array.disks.iter().enumerate() {
        let name = format!("uefi-holder-{index}");
        let number = add_boot_partition(disk, ESP_SIZE, partition_type::EFI_SYSTEM, &name)?;
        let member = partition_path(disk, number);
        wait_for_device(&member)?;
        members.push(member);
    }
    let is_free = |path: &PathBuf| arrays.iter().all(|array| array.device != *path);
    let mut names = (0..128).map(|number| PathBuf::from(format!("/dev/md{number}")));
    let esp = names.find(is_free).unwrap_or_else(|| PathBuf::from("/dev/md127"));
    let command = raid::create_command(&PlannedArray {
        device: esp.display().to_string(),
        name: ESP_NAME.to_owned(),
        level: "1".to_owned(),
        gib: None,
        disks: array.disks.iter().map(|disk| disk.display().to_string()).collect(),
        members: members.clone(),
        // Metadata at the end, so that the firmware sees a plain FAT file system on each disk.
        metadata: "--metadata=1.0",
    });
    raid::run("mdadm", &command)?;
    Ok((esp, members))
}

/// Adds a partition in the space reserved in front of the arrays, or reuses the one with this name.
/// Returns its number.
fn add_boot_partition(
    disk: &Path,
    size: u64,
    type_guid: uuid::Uuid,
    name: &str,
) -> Result<u32, BootloaderError> {
    let device = Device::writable(disk)?;
    let no_room = || BootloaderError::NoRoom { disk: disk.display().to_string() };
    let Some(mut table) = Gpt::read(&device)? else {
        // With an MBR, GRUB needs no partition.
        return if type_guid == crate::gpt::partition_type::BIOS_BOOT {
            Ok(0)
        } else {
            Err(no_room())
        };
    };
    if let Some(partition) = table.partitions.iter().find(|partition| partition.name == name) {
        return Ok(partition.number);
    }
    let number =
        table.add(Some(size), type_guid, uuid::Uuid::new_v4(), name).map_err(|_| no_room())?;
    table.write(&device)?;
    device.sync()?;
    // The kernel does not reread the whole table while partitions are in use.
    let added = table.partitions.iter().find(|partition| partition.number == number);
    if let Some(partition) = added {
        device.add_partition(number, table.range(partition))?;
    }
    Ok(number)
}

fn move_filesystem(source_partition: &Path, to: &Path) -> Result<(), BootloaderError> {
    let source = Device::read_only(source_partition)?;
    let target = Device::exclusive(to)?;
    if source.size() > target.size() {
        return Err(BootloaderError::EspTooLarge { size: source.size() });
    }
    let mut at = 0;
    while at < source.size() {
        let length = usize::try_from((source.size() - at).min(1 << 20)).expect("a megabyte");
        target.write(at, &source.read(at, length)?)?;
        at += length as u64;
    }
    target.sync()?;
    // Two file systems with the same UUID would be ambiguous, so wipe the original.
    let source = Device::writable(source_partition)?;
    source.zero(0, 1 << 20)?;
    Ok(source.sync()?)
}

/// Runs the GRUB of the deployed system for the disks.
fn install_grub(
    device: &Path,
    disks: &[PathBuf],
    options: &BootloaderOptions<'_>,
) -> Result<(), BootloaderError> {
    let uuid = options.root_uuid.unwrap_or_default();
    let no_root =
        || BootloaderError::NoRoot { device: device.display().to_string(), uuid: uuid.to_owned() };
    let root = partitions::find(device, uuid)?.ok_or_else(no_root)?;
    let type_guid = root.identity.as_ref().map_or("ext4", |identity| identity.fs_type);
    let mut system = MountedFilesystem::read_write(&root.path, type_guid)?;
    // Without /run, which contains the agent's token.
    for directory in ["dev", "proc", "sys"] {
        system.bind(&Path::new("/").join(directory), directory)?;
    }
    if options.uefi {
        let found = options.efi_system_partition_uuid.map(|uuid| partitions::find(device, uuid));
        let by_uuid = found.transpose()?.flatten().map(|found| found.path);
        let by_table = || -> Result<_, BootloaderError> {
            Ok(efi::system_partition(device)?.map(|it| partition_path(device, it.number)))
        };
        if let Some(esp) = by_uuid.map_or_else(by_table, |path| Ok(Some(path)))? {
            let type_guid =
                identify(&Device::read_only(&esp)?)?.map_or("vfat", |identity| identity.fs_type);
            system.mount_inside(&esp, type_guid, "boot/efi")?;
        }
    }
    let names = [
        ("grub2-install", "grub2-mkconfig", "boot/grub2"),
        ("grub-install", "grub-mkconfig", "boot/grub"),
    ];
    let has = |program: &str| {
        let mut paths = SEARCH_PATH.split(':').map(|directory| format!("{directory}/{program}"));
        paths.any(|path| system_root::resolve_file(system.path(), path).is_some())
    };
    let (install, configure, directory) =
        names.into_iter().find(|(install, ..)| has(install)).ok_or(BootloaderError::NoGrub)?;
    for command in grub_commands(install, disks, options.uefi) {
        run_in_chroot(system.path(), &command)?;
    }
    let menu = format!("/{directory}/grub.cfg");
    run_in_chroot(system.path(), &[configure.to_owned(), "-o".to_owned(), menu])?;
    Ok(system.unmount()?)
}

/// Returns the `grub-install` commands: for UEFI, to the EFI system partition, also under the removable
/// media path; for BIOS, to every disk.
fn grub_commands(install: &str, disks: &[PathBuf], uefi: bool) -> Vec<Vec<String>> {
    let command = |rest: &[&str]| {
        std::iter::once(install).chain(rest.iter().copied()).map(str::to_owned).collect()
    };
    if uefi {
        return vec![command(&["--no-nvram"]), command(&["--no-nvram", "--removable"])];
    }
    disks.iter().map(|disk| command(&[&disk.display().to_string()])).collect()
}

fn run_in_chroot(root: &Path, command: &[String]) -> Result<(), BootloaderError> {
    let text = command.join(" ");
    let failed = |output: String| BootloaderError::Grub { command: text.clone(), output };
    let start = |mut program: Command| {
        program.arg(root).args(command).env("PATH", SEARCH_PATH).env("LC_ALL", "C").output()
    };
    let mut busybox = Command::new("busybox");
    busybox.arg("chroot");
    // The ramdisk has busybox; other systems have chroot.
    let output = match start(busybox) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => start(Command::new("chroot")),
        output => output,
    };
    let output = output.map_err(|error| failed(format!("chroot cannot be started ({error})")))?;
    if output.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&output.stderr);
    Err(failed(output.chars().take(2000).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installs_grub_on_every_disk_or_on_esp() {
        let disks = [PathBuf::from("/dev/sda"), PathBuf::from("/dev/sdb")];
        let commands = |uefi| {
            let commands = grub_commands("grub-install", &disks, uefi);
            commands.into_iter().map(|command| command.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(commands(false), ["grub-install /dev/sda", "grub-install /dev/sdb"]);
        assert_eq!(
            commands(true),
            ["grub-install --no-nvram", "grub-install --no-nvram --removable"]
        );
    }

    #[test]
    fn runs_image_programs_only_if_allowed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16 << 20).unwrap();
        let empty_directory = tempfile::tempdir().unwrap();
        let options = BootloaderOptions {
            uefi: false,
            root_uuid: Some("0b4a7e8e-3c5f-4a86-9f62-8d6f2f0a3c11"),
            efi_system_partition_uuid: None,
            allow_image_programs: false,
            variables: empty_directory.path(),
            sys: empty_directory.path(),
        };
        let refused = install(file.path(), &options).unwrap_err();
        assert!(refused.to_string().contains("enable_bios_bootloader_install"), "{refused}");
        let options = BootloaderOptions { allow_image_programs: true, ..options };
        assert!(matches!(install(file.path(), &options), Err(BootloaderError::NoRoot { .. })));
    }

    #[test]
    fn runs_programs_in_chroot() {
        let root = tempfile::tempdir().unwrap();
        let error =
            run_in_chroot(root.path(), &["grub-install".to_owned()]).unwrap_err().to_string();
        // The error is that the program is missing, not that chroot does not start.
        assert!(error.contains("grub-install") && !error.contains("cannot be started"), "{error}");
    }

    #[test]
    fn adds_boot_partition_in_reserved_space_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 << 30).unwrap();
        let device = Device::writable(file.path()).unwrap();
        let mut table = Gpt::new(&device, uuid::Uuid::from_u128(1));
        table.add(Some(ESP_SIZE), partition_type::LINUX, uuid::Uuid::nil(), "reserved").unwrap();
        table.add(None, partition_type::RAID, uuid::Uuid::from_u128(2), "").unwrap();
        table.partitions.remove(0);
        table.write(&device).unwrap();
        for _ in 0..2 {
            let number = add_boot_partition(
                file.path(),
                ESP_SIZE,
                partition_type::EFI_SYSTEM,
                "uefi-holder-0",
            );
            assert_eq!(number.unwrap(), 1);
        }
        let table = Gpt::read(&device).unwrap().unwrap();
        assert_eq!(table.partitions.len(), 2);
        assert_eq!(table.range(&table.partitions[0]), (1 << 20, ESP_SIZE));
        let result =
            add_boot_partition(file.path(), ESP_SIZE, partition_type::EFI_SYSTEM, "another");
        assert!(matches!(result, Err(BootloaderError::NoRoom { .. })));
    }
}
