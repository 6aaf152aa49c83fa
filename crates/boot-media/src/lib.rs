// SPDX-License-Identifier: Apache-2.0
//! Boot media, built in process: unified kernel images, UEFI-bootable ISOs, config drives and the
//! parameter floppy.
//!
//! No builder copies a kernel or a ramdisk. Each returns a [`Content`]: a list of segments that are bytes
//! in memory, ranges of an open file, or zeros. So the boot ISO of a node needs memory only for its head
//! (about 60 KiB for a 60 MiB ramdisk), the large parts are shared between all nodes, its size is known
//! before the first byte is sent, and any range of it can be read alone.
//!
//! The same parts give the same bytes: neither time nor random numbers are used.
//!
//! This crate depends on neither nodes, HTTP nor the database, and runs no other program.
//!
//! Out of scope: BIOS boot from ISO (it needs isolinux, a program of its own), and signing a
//! unified kernel image (the result can be written out and signed with `sbsign`).

pub mod boot_iso;
pub mod config_drive;
mod content;
pub mod fat;
mod file_tree;
pub mod iso;
pub mod iso_reader;
pub mod parameter_floppy;
pub mod uki;

pub use content::{Content, ContentReader, ContentSegment};
pub use file_tree::{FileTree, MediaPathError};
