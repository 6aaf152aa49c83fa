// SPDX-License-Identifier: Apache-2.0
//! Prints the inventory of this machine and the data of all collectors as JSON.
//!
//! `cargo run --example inventory [ROOT]`, as root for serial numbers. With `ROOT`, of the machine whose
//! `/sys` and `/proc` were copied there.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the purpose of the example is to print"
)]

use std::path::Path;
use std::time::Instant;

use machine_inventory::{InventoryOptions, LocalMachine};
use serde_json::json;

fn main() {
    let root = std::env::args().nth(1);
    let machine =
        root.map_or_else(LocalMachine::new, |root| LocalMachine::with_root(Path::new(&root)));
    let options = InventoryOptions { hostname: "localhost".to_owned(), ..Default::default() };
    let start = Instant::now();
    let inventory = machine.inventory(&options);
    eprintln!("inventory without BMC: {:?}", start.elapsed());
    let start = Instant::now();
    let bmc = machine.bmc();
    eprintln!("BMC: {:?}", start.elapsed());
    let report = json!({
        "inventory": inventory,
        "bmc": [bmc.ipv4, bmc.ipv6, bmc.mac],
        "pci_devices": machine.pci_devices(),
        "usb_devices": machine.usb_devices(),
        "numa_topology": machine.numa_topology(),
        "dmi": machine.dmi(),
        "data": machine.extra_hardware(),
    });
    println!("{report:#}");
}
