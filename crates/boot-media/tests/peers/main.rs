// SPDX-License-Identifier: Apache-2.0
//! Programs that are not ours read what we lay out: mtools and fsck.fat, xorriso and isoinfo,
//! objdump, and OVMF with a Linux kernel in QEMU.
//!
//! Without these programs the tests say so and pass; with `FERRITE_TEST_SERVERS=required` their
//! absence is a failure.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is tests")]

mod boots;
mod programs;
mod ramdisk;
mod readers;
