// SPDX-License-Identifier: Apache-2.0
//! The whole journey of a machine, with the real `baremetal` command line: enrolled, inspected,
//! cleaned, deployed, rescued, and taken back.
//!
//! The machines are the lab's, each on a bridge of its own where nobody serves but the Ferrite under
//! test. What is written to a machine's disk boots, and what it then says on its serial console is
//! what is believed. Machines in software emulation are slow, so only a few run at once. To run these
//! alone: `cargo xtask with-lab cargo test -p ferrite --test end_to_end journeys`.

mod client;
mod discovery;
mod disks;
mod failures;
mod interruption;
mod traveller;
mod warm;
mod ways;
