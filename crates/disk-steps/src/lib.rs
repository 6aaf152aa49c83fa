// SPDX-License-Identifier: Apache-2.0
//! Everything the ramdisk agent does to disks and to the firmware's boot entries.
//!
//! * [`image`] writes an image while it is downloaded, and verifies it on the way;
//! * [`partitions`] lays out disks for images of single file systems;
//! * [`config_drive`] and [`inject`] add what belongs to one machine only;
//! * [`efi`], [`bootloader`] and [`kexec`] make the machine start from all that;
//! * [`erase`] and [`raid`] prepare disks before.
//!
//! What can be done with system calls is. Other programs are run only where the work is theirs:
//! `mdadm`, `mke2fs` (and `mkfs.vfat` on disks with sectors of 4096 bytes), and the deployed system's
//! own GRUB, through `busybox chroot`, where the server allows that. Most calls block, also for hours; the agent gives them a thread. All of
//! it also works on plain files in place of disks, which is how it is tested.

pub mod bootloader;
pub mod burn_in;
pub mod config_drive;
mod device;
pub mod efi;
pub mod erase;
mod filesystem;
mod gpt;
mod http;
pub mod image;
pub mod inject;
mod inside;
mod kernel;
pub mod kexec;
mod mbr;
mod mounts;
pub mod partitions;
pub mod raid;

pub use device::{DeviceError, partition_path};
pub use gpt::NoRoom;
pub use http::{Http, HttpError};
pub use mounts::MountError;

/// How far some work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The step.
    pub what: &'static str,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all, if that is known.
    pub total: Option<u64>,
}

/// Whom to tell.
pub type Tell<'a> = &'a (dyn Fn(Progress) + Sync);
