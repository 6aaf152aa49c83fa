// SPDX-License-Identifier: Apache-2.0
//! Lab machines are enrolled, inspected, cleaned, deployed, rescued and undeployed with the real
//! `baremetal` client.
//!
//! Each machine of the lab is on its own bridge, where only the Ferrite under test serves. The deployed
//! image boots from the machine's disk, and its output on the serial console is checked. Emulated
//! machines are slow, so only a few run at a time. Run only these with
//! `cargo xtask with-lab cargo test -p ferrite --test end_to_end lab_deployments`.

mod baremetal_client;
mod boot_methods;
mod discovery;
mod disks;
mod failures;
mod fast_track;
mod interruption;
mod kubernetes_host;
mod lab_machine;
