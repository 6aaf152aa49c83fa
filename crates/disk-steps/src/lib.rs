// SPDX-License-Identifier: Apache-2.0
//! What the ramdisk agent does to disks and to the firmware's boot entries.
//!
//! * [`image`] writes an image while it is downloaded, and verifies it;
//! * [`partitions`] partitions disks for images of a single file system;
//! * [`config_drive`] and [`inject`] add the data of one machine;
//! * [`efi`], [`bootloader`] and [`kexec`] make the machine boot the result;
//! * [`erase`], [`burn_in`] and [`raid`] prepare disks before.
//!
//! System calls are used where possible. External programs are `mdadm`, `mke2fs` (and `mkfs.vfat` on
//! disks with sectors of 4096 bytes), and, if the server allows it, the GRUB of the deployed system,
//! through `busybox chroot`. Most functions block, some for hours; the agent runs them on their own
//! threads. Everything also works on regular files in place of disks, which the tests use.

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
pub mod kexec;
mod mbr;
mod mounts;
pub mod partitions;
pub mod raid;
mod syscalls;
mod system_root;

pub use device::{DeviceError, partition_path};
pub use gpt::NoFreeSpace;
pub use http::{DownloadError, DownloadSettings};
pub use mounts::MountError;

/// Progress of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskProgress {
    /// Name of the step.
    pub step: &'static str,
    /// Bytes done.
    pub done: u64,
    /// Total bytes, if known.
    pub total: Option<u64>,
}

/// Callback for progress.
pub type ReportProgress<'a> = &'a (dyn Fn(DiskProgress) + Sync);
