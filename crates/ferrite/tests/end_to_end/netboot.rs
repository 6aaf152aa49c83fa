// SPDX-License-Identifier: Apache-2.0
//! Lab machines boot a kernel and a small ramdisk from Ferrite with every boot method.
//!
//! Each machine of the lab (see `xtask/src/test/lab.rs`) is on its own bridge, where only the Ferrite
//! under test serves. The tests compare the machine's serial console with the timeline. Most tests have
//! their own machine and run in parallel; tests with the same machine run one after the other. Run only
//! these with `cargo xtask with-lab cargo test -p ferrite --test end_to_end netboot`.

mod boot_methods;
pub(crate) mod boot_site;
mod interruption;
mod proxy_dhcp;
pub(crate) mod serial_console;
mod unknown_machines;
mod virtual_media;
