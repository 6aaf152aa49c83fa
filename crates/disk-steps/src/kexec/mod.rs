// SPDX-License-Identifier: Apache-2.0
//! Starts the system on a freshly written disk without the firmware: finds its kernel, initrd and
//! command line as its boot loader would, and loads them with kexec.
//!
//! Boot Loader Specification entries come first, then unified kernel images, GRUB's menu and
//! syslinux's. A menu is read as plain text: what a script in it would find out is not known here,
//! and then there is no plan, and the machine boots through its firmware.

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
use crate::filesystem::{Identity, identify_at};
use crate::gpt::Gpt;
use crate::inside;
use crate::kernel;
use crate::mbr::Mbr;
use crate::mounts::Mounted;

/// File systems that a boot loader's files may be on.
const MOUNTABLE: &[&str] = &["ext4", "xfs", "btrfs", "vfat"];
/// The longest menu that is read.
const LONGEST_MENU: u64 = 1 << 20;
/// The largest unified image or initrd that is read.
const LARGEST: u64 = 1 << 30;

/// Why the system cannot be started without the firmware.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing a boot loader would read.
    #[error(
        "no boot loader entry, unified kernel image or menu was found on {device}; boot it through the firmware instead"
    )]
    NothingFound {
        /// The disk.
        device: String,
    },
    /// There is a menu, but it does not say enough.
    #[error("{menu} does not say what to start: {why}; boot it through the firmware instead")]
    Unclear {
        /// Which menu.
        menu: String,
        /// What is not clear.
        why: String,
    },
    /// A file cannot be read.
    #[error("{file} cannot be read; boot it through the firmware instead")]
    Read {
        /// Which.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel does not load another.
    #[error(
        "the kernel from {from} cannot be loaded{}; boot it through the firmware instead",
        load_advice(source)
    )]
    Load {
        /// What was to be loaded.
        from: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel does not start the other.
    #[error("the loaded kernel cannot be started; reboot instead")]
    Boot(#[source] io::Error),
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What is to be started.
#[derive(Debug)]
pub struct KexecPlan {
    /// The kernel.
    pub kernel: File,
    /// The initrd.
    pub initrd: Option<File>,
    /// The kernel's command line.
    pub command_line: String,
    /// Where all that was found, for people.
    pub from: String,
    /// What the files are on. After them, as it is unmounted then.
    _mounts: Vec<Mounted>,
}

/// A boot loader's choice, in words of its menu.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    kernel: PathBuf,
    initrds: Vec<PathBuf>,
    command_line: String,
}

/// A partition whose files can be read.
struct Tree {
    number: u32,
    identity: Identity,
    path: PathBuf,
}

/// Finds out what the system on a disk starts with.
///
/// # Errors
/// If that cannot be told.
pub fn plan(device: &Path) -> Result<KexecPlan, Error> {
    let mut mounts = Vec::new();
    let mut trees = Vec::new();
    for (number, identity) in file_systems(device)? {
        let partition = partition_path(device, number);
        match Mounted::read_only(&partition, Some(identity.kind)) {
            Ok(mounted) => {
                trees.push(Tree { number, identity, path: mounted.path().to_owned() });
                mounts.push(mounted);
            }
            Err(error) => tracing::info!(%error, "its files are not looked at"),
        }
    }
    let mut plan = plan_from(&trees, &device.display().to_string())?;
    plan._mounts = mounts;
    Ok(plan)
}

/// Loads what a plan says.
///
/// # Errors
/// If the kernel does not take it: it may want signatures, or be built without kexec.
pub fn load(plan: &KexecPlan) -> Result<(), Error> {
    kernel::kexec_file_load(&plan.kernel, plan.initrd.as_ref(), &plan.command_line)
        .map_err(|source| Error::Load { from: plan.from.clone(), source })
}

/// Starts what was loaded. Whatever is to be saved must be saved before: nothing is shut down.
///
/// # Errors
/// If nothing is loaded.
pub fn boot() -> Result<Infallible, Error> {
    rustix::fs::sync();
    match reboot(RebootCommand::Kexec) {
        Err(error) => Err(Error::Boot(error.into())),
        // The kernel does not come back from it.
        Ok(()) => Err(Error::Boot(io::ErrorKind::Other.into())),
    }
}

/// The partitions with a file system that can be looked at.
fn file_systems(device: &Path) -> Result<Vec<(u32, Identity)>, Error> {
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
        if let Some(identity) = identity.filter(|it| MOUNTABLE.contains(&it.kind)) {
            found.push((number, identity));
        }
    }
    Ok(found)
}

/// Asks each kind of boot loader in turn. One that is there but unclear is an error only if no
/// other knows better.
fn plan_from(trees: &[Tree], device: &str) -> Result<KexecPlan, Error> {
    let mut unclear = None;
    let finders: [fn(&[Tree]) -> Found; 3] = [bls::find, grub::find, syslinux::find];
    for (index, find) in finders.into_iter().enumerate() {
        match find(trees) {
            Found::Choice { from, choice } => return open(from, &choice),
            Found::Unclear { menu, why } => {
                unclear.get_or_insert(Error::Unclear { menu, why });
            }
            Found::Nothing => {}
        }
        // Unified kernel images come after entries that name kernels.
        if index == 0
            && let Some(plan) = uki::find(trees)?
        {
            return Ok(plan);
        }
    }
    Err(unclear.unwrap_or_else(|| Error::NothingFound { device: device.to_owned() }))
}

/// What a kind of boot loader says.
enum Found {
    Choice { from: String, choice: Choice },
    Unclear { menu: String, why: String },
    Nothing,
}

fn open(from: String, choice: &Choice) -> Result<KexecPlan, Error> {
    let kernel = open_file(&choice.kernel)?;
    let initrd = match choice.initrds.as_slice() {
        [] => None,
        [one] => Some(open_file(one)?),
        many => Some(joined(many)?),
    };
    let command_line = choice.command_line.clone();
    Ok(KexecPlan { kernel, initrd, command_line, from, _mounts: Vec::new() })
}

fn open_file(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| Error::Read { file: path.display().to_string(), source })
}

/// Several initrds, one after another, as boot loaders give them to the kernel.
fn joined(paths: &[PathBuf]) -> Result<File, Error> {
    let mut all = Vec::new();
    for path in paths {
        let read = open_file(path)?.take(LARGEST).read_to_end(&mut all);
        read.map_err(|source| Error::Read { file: path.display().to_string(), source })?;
        all.resize(all.len().next_multiple_of(4), 0);
    }
    in_memory(&all).map_err(|source| Error::Read { file: "the initrds".to_owned(), source })
}

/// A file that is only in memory.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("kexec", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// The text of a menu on a partition, if it is there and not absurdly long.
fn read_menu(root: &Path, name: &str) -> Option<String> {
    let bytes = inside::read(root, name, LONGEST_MENU).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A file named in a menu, below the root of its partition. Links and dots do not lead out of it.
fn named(root: &Path, name: &str) -> Option<PathBuf> {
    if name.split('/').any(|part| part == "..") {
        return None;
    }
    inside::file(root, name)
}

fn load_advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EKEYREJECTED | libc::ENOKEY) => {
            ": secure boot or lockdown wants a signature that this kernel trusts"
        }
        Some(libc::ENOSYS) => ": the ramdisk's kernel was built without kexec",
        Some(libc::ENOEXEC) => ": it is no kernel for this machine",
        Some(_) | None => "",
    }
}

#[cfg(test)]
mod tests;
