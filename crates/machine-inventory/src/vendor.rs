// SPDX-License-Identifier: Apache-2.0
//! Who made the machine and its firmware.
//!
//! The stock agent takes this from `lshw`, which puts the SKU in brackets behind the model; so do we,
//! because operators have rules that match it.

use agent_protocol::{Firmware, SystemVendor};

use crate::smbios::Smbios;
use crate::tree::Tree;

pub(crate) fn read(tree: &Tree, smbios: &Smbios) -> SystemVendor {
    if smbios.is_empty() && tree.is_folder("proc/device-tree") {
        return of_device_tree(tree);
    }
    let id = |name: &str| tree.text(format!("sys/class/dmi/id/{name}")).unwrap_or_default();
    let mut product_name = id("product_name");
    let sku = id("product_sku");
    if !sku.is_empty() {
        product_name = format!("{product_name} ({sku})").trim_start().to_owned();
    }
    SystemVendor {
        product_name,
        serial_number: id("product_serial"),
        manufacturer: id("sys_vendor"),
        firmware: Firmware {
            vendor: id("bios_vendor"),
            version: id("bios_version"),
            build_date: id("bios_date"),
        },
    }
}

/// Boards without SMBIOS, most of them ARM, tell of themselves in their device tree.
fn of_device_tree(tree: &Tree) -> SystemVendor {
    let property = |name: &str| tree.text(format!("proc/device-tree/{name}")).unwrap_or_default();
    // `raspberrypi,4-model-b` and further ones behind zero bytes, which `text` leaves out.
    let compatible = property("compatible");
    let maker = compatible.split(',').next().unwrap_or_default();
    SystemVendor {
        product_name: property("model"),
        serial_number: property("serial-number"),
        manufacturer: maker.to_owned(),
        firmware: Firmware::default(),
    }
}
