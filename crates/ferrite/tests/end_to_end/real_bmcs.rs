// SPDX-License-Identifier: Apache-2.0
//! Ferrite on real (virtual) machines, through BMCs that nobody here wrote.
//!
//! `cargo xtask test` starts the lab (see `xtask/src/test/lab.rs`) and says in `FERRITE_TEST_LAB`
//! where its inventory is; `cargo xtask with-lab cargo test -p ferrite real_bmcs` does only that.
//! What Ferrite says it did is compared with what libvirt, the emulators' own answers and
//! `ipmitool` say. Every test has a machine of its own.

mod baremetal;
mod driver_info;
mod ipmi;
pub(crate) mod lab;
pub(crate) mod operator;
mod redfish;
mod redfish_setup;
