// SPDX-License-Identifier: Apache-2.0
//! Machines boot from Ferrite alone: a kernel and a small ramdisk, by every way there is.
//!
//! The machines are the lab's (see `xtask/src/test/lab.rs`), each on a bridge of its own where nobody
//! serves but the Ferrite under test. What a machine's serial console says is compared with what
//! Ferrite says it saw. Most tests have a machine each, so that they can run side by side; what is
//! tried with one machine is tried one after the other. To run these alone:
//! `cargo xtask with-lab cargo test -p ferrite --test end_to_end boots`.

mod beside;
pub(crate) mod console;
mod interruption;
mod media;
pub(crate) mod site;
mod strangers;
mod ways;
