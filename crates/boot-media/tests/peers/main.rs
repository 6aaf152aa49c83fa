// SPDX-License-Identifier: Apache-2.0
//! Other programs read our images: mtools and fsck.fat, xorriso and isoinfo,
//! objdump, and OVMF with a Linux kernel in QEMU.
//!
//! Without these programs the tests print this and pass; with `FERRITE_TEST_SERVERS=required` they fail.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is tests")]

mod boots;
mod programs;
mod ramdisk;
mod readers;
