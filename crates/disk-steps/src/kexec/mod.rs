// SPDX-License-Identifier: Apache-2.0
//! Starts the system on a freshly written disk without the firmware: finds its kernel, initrd and command
//! line as its boot loader would, and loads them with kexec.
//!
//! Boot Loader Specification entries take precedence, then unified kernel images, GRUB menus and
//! syslinux menus. Menus are only partly interpreted; if the result depends on something only the boot
//! loader knows, planning fails and the machine boots through its firmware.

mod bls;
mod grub;
mod syslinux;
mod uki;

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _, Seek, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::system::{RebootCommand, reboot};

use crate::device::{Device, DeviceError, partition_path};
use crate::filesystem::{FilesystemIdentity, identify_at};
use crate::gpt::Gpt;
use crate::mbr::Mbr;
use crate::mounts::MountedFilesystem;
use crate::syscalls;
use crate::system_root;

/// File systems that may contain boot loader files.
const MOUNTABLE: &[&str] = &["ext4", "xfs", "btrfs", "vfat"];
/// Maximum length of a menu.
const MAX_MENU_LENGTH: u64 = 1 << 20;
/// Maximum size of a unified kernel image or initrd.
const MAX_IMAGE_SIZE: u64 = 1 << 30;

/// The system cannot be started with kexec.
#[derive(Debug, thiserror::Error)]
pub enum KexecError {
    /// No boot loader configuration was found.
    #[error(
        "no boot loader entry, unified kernel image or menu was found on {device}; boot it through the firmware instead"
    )]
    NothingFound {
        /// Path of the disk.
        device: String,
    },
    /// A menu cannot be interpreted.
    #[error(
        "{menu} does not determine what to start: {reason}; boot it through the firmware instead"
    )]
    Unclear {
        /// The menu.
        menu: String,
        /// Cause.
        reason: String,
    },
    /// Reading a file failed.
    #[error("{file} cannot be read; boot it through the firmware instead")]
    Read {
        /// Path of the file.
        file: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The running kernel rejected the new one.
    #[error(
        "the kernel from {origin} cannot be loaded{}; boot it through the firmware instead",
        load_advice(source)
    )]
    Load {
        /// Description of the menu entry.
        origin: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Starting the loaded kernel failed.
    #[error("the loaded kernel cannot be started; reboot instead")]
    Boot(#[source] io::Error),
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Kernel, initrd and command line to start.
#[derive(Debug)]
pub struct KexecPlan {
    /// Kernel image.
    pub kernel: File,
    /// Initrd.
    pub initrd: Option<File>,
    /// Kernel command line.
    pub command_line: String,
    /// Menu and partition they were found in, for messages.
    pub origin: String,
    /// Mounts of the files. Last field, because it must be dropped after the files.
    _mounts: Vec<MountedFilesystem>,
}

/// What a menu entry boots.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BootSelection {
    kernel: PathBuf,
    initrds: Vec<PathBuf>,
    command_line: String,
}

/// A mounted partition.
struct BootPartition {
    number: u32,
    identity: FilesystemIdentity,
    path: PathBuf,
}

/// Determines what the system on a disk boots.
///
/// # Errors
/// Fails if that cannot be determined.
pub fn plan(device: &Path) -> Result<KexecPlan, KexecError> {
    let mut mounts = Vec::new();
    let mut partitions = Vec::new();
    for (number, identity) in file_systems(device)? {
        let partition = partition_path(device, number);
        match MountedFilesystem::read_only(&partition, Some(identity.fs_type)) {
            Ok(mounted) => {
                partitions.push(BootPartition {
                    number,
                    identity,
                    path: mounted.path().to_owned(),
                });
                mounts.push(mounted);
            }
            Err(error) => {
                tracing::info!(path = %partition.display(), %error, "partition cannot be mounted, skipping it")
            }
        }
    }
    let mut plan = plan_from(&partitions, &device.display().to_string())?;
    plan._mounts = mounts;
    Ok(plan)
}

/// Loads the kernel of a plan.
///
/// # Errors
/// Fails if the running kernel rejects it: it may require a signature, or lack kexec.
pub fn load(plan: &KexecPlan) -> Result<(), KexecError> {
    syscalls::kexec_file_load(&plan.kernel, plan.initrd.as_ref(), &plan.command_line)
        .map_err(|source| KexecError::Load { origin: plan.origin.clone(), source })
}

/// Starts the loaded kernel immediately, without shutting down anything.
///
/// # Errors
/// Fails if no kernel is loaded.
pub fn boot() -> Result<Infallible, KexecError> {
    rustix::fs::sync();
    match reboot(RebootCommand::Kexec) {
        Err(error) => Err(KexecError::Boot(error.into())),
        // A successful call does not return.
        Ok(()) => Err(KexecError::Boot(io::ErrorKind::Other.into())),
    }
}

/// Lists the partitions with a mountable file system.
fn file_systems(device: &Path) -> Result<Vec<(u32, FilesystemIdentity)>, KexecError> {
    let disk = Device::read_only(device)?;
    let ranges: Vec<(u32, (u64, u64))> = match Gpt::read(&disk)? {
        Some(table) => table.partitions.iter().map(|it| (it.number, table.range(it))).collect(),
        None => Mbr::read(&disk)?.map_or_else(Vec::new, |table| {
            table.partitions().map(|(number, it)| (number, table.range(it))).collect()
        }),
    };
    let mut found = Vec::new();
    for (number, (offset, length)) in ranges {
        let identity = identify_at(&disk, offset, length)?;
        if let Some(identity) = identity.filter(|it| MOUNTABLE.contains(&it.fs_type)) {
            found.push((number, identity));
        }
    }
    Ok(found)
}

/// Tries each type of boot loader in turn. An uninterpretable menu is an error only if no other boot
/// loader yields a result.
fn plan_from(partitions: &[BootPartition], device: &str) -> Result<KexecPlan, KexecError> {
    let mut unclear = None;
    let finders: [fn(&[BootPartition]) -> MenuSearch; 3] = [bls::find, grub::find, syslinux::find];
    for (index, find) in finders.into_iter().enumerate() {
        match find(partitions) {
            MenuSearch::Found { origin, selection } => return open(origin, &selection),
            MenuSearch::Unclear { menu, reason } => {
                unclear.get_or_insert(KexecError::Unclear { menu, reason });
            }
            MenuSearch::Nothing => {}
        }
        // Unified kernel images come after Boot Loader Specification entries.
        if index == 0
            && let Some(plan) = uki::find(partitions)?
        {
            return Ok(plan);
        }
    }
    Err(unclear.unwrap_or_else(|| KexecError::NothingFound { device: device.to_owned() }))
}

/// Result of the search for one type of boot loader.
enum MenuSearch {
    Found { origin: String, selection: BootSelection },
    Unclear { menu: String, reason: String },
    Nothing,
}

fn open(origin: String, selection: &BootSelection) -> Result<KexecPlan, KexecError> {
    let kernel = open_file(&selection.kernel)?;
    let initrd = match selection.initrds.as_slice() {
        [] => None,
        [one] => Some(open_file(one)?),
        many => Some(concatenate(many)?),
    };
    let command_line = selection.command_line.clone();
    Ok(KexecPlan { kernel, initrd, command_line, origin, _mounts: Vec::new() })
}

fn open_file(path: &Path) -> Result<File, KexecError> {
    File::open(path).map_err(|source| KexecError::Read { file: path.display().to_string(), source })
}

/// Concatenates initrds, as boot loaders do.
fn concatenate(paths: &[PathBuf]) -> Result<File, KexecError> {
    let mut all = Vec::new();
    for path in paths {
        let read = open_file(path)?.take(MAX_IMAGE_SIZE).read_to_end(&mut all);
        read.map_err(|source| KexecError::Read { file: path.display().to_string(), source })?;
        all.resize(all.len().next_multiple_of(4), 0);
    }
    memory_file(&all).map_err(|source| KexecError::Read { file: "the initrds".to_owned(), source })
}

/// Creates a file in memory.
fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("kexec", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Reads a menu of a partition; `None` if it is missing or too long.
fn read_menu(root: &Path, name: &str) -> Option<String> {
    let bytes = system_root::read_file(root, name, MAX_MENU_LENGTH).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Resolves a file named in a menu. Links and `..` cannot lead out of its partition.
fn find_file(root: &Path, name: &str) -> Option<PathBuf> {
    if name.split('/').any(|part| part == "..") {
        return None;
    }
    system_root::resolve_file(root, name)
}

fn load_advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EKEYREJECTED | libc::ENOKEY) => {
            ": secure boot or lockdown requires a signature that this kernel trusts"
        }
        Some(libc::ENOSYS) => ": the ramdisk's kernel was built without kexec",
        Some(libc::ENOEXEC) => ": it is no kernel for this machine",
        Some(_) | None => "",
    }
}

#[cfg(test)]
mod tests;
