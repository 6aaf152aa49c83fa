// SPDX-License-Identifier: Apache-2.0
//! Ferrite with virtual machines behind BMC emulators of other projects.
//!
//! `cargo xtask test` starts the lab (see `xtask/src/test/lab.rs`) and passes the path of its inventory in
//! `FERRITE_TEST_LAB`; `cargo xtask with-lab cargo test -p ferrite real_bmcs` runs only these. The tests
//! compare Ferrite's state with that of libvirt, the emulators and `ipmitool`. Every test has its own
//! machine.

pub(crate) mod api_operator;
mod baremetal;
mod driver_info;
mod ipmi;
pub(crate) mod lab;
mod redfish;
mod redfish_setup;
