// SPDX-License-Identifier: Apache-2.0
//! What a machine boots from, laid out in process: unified kernel images, UEFI-bootable ISOs,
//! config drives and the parameter floppy.
//!
//! Nothing here copies a kernel or a ramdisk. Every builder answers with a [`Content`]: a list of
//! segments, each a few bytes in memory, a range of an open file, or zeros. So the boot ISO of a
//! node costs its head (about 60 KiB for a 60 MiB ramdisk), the big parts are shared between all
//! nodes, its size is known before the first byte is sent, and any range of it can be read alone.
//!
//! The same parts give the same bytes: no clock and no chance goes in.
//!
//! This crate knows no nodes, no HTTP and no database, and runs no other program.
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

pub use content::{Content, ContentReader, Segment};
pub use file_tree::{FileTree, PathError};
