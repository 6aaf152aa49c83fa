// SPDX-License-Identifier: Apache-2.0
//! Manufacturer, product and firmware.
//!
//! IPA takes these from `lshw`, which appends the SKU in brackets to the product name. The same is done
//! here, because inspection rules match it.

use agent_protocol::{InventoryFirmware, SystemVendor};

use crate::kernel_files::KernelFiles;
use crate::smbios::Smbios;

pub(crate) fn read(files: &KernelFiles, smbios: &Smbios) -> SystemVendor {
    if smbios.is_empty() && files.is_directory("proc/device-tree") {
        return read_device_tree(files);
    }
    let id = |name: &str| files.text(format!("sys/class/dmi/id/{name}")).unwrap_or_default();
    let mut product_name = id("product_name");
    let sku = id("product_sku");
    if !sku.is_empty() {
        product_name = format!("{product_name} ({sku})").trim_start().to_owned();
    }
    SystemVendor {
        product_name,
        serial_number: id("product_serial"),
        manufacturer: id("sys_vendor"),
        firmware: InventoryFirmware {
            vendor: id("bios_vendor"),
            version: id("bios_version"),
            build_date: id("bios_date"),
        },
    }
}

/// Reads the device tree of boards without SMBIOS, most of them ARM.
fn read_device_tree(files: &KernelFiles) -> SystemVendor {
    let property = |name: &str| files.text(format!("proc/device-tree/{name}")).unwrap_or_default();
    // `raspberrypi,4-model-b`, then further entries after NUL bytes, which `text` drops.
    let compatible = property("compatible");
    let manufacturer = compatible.split(',').next().unwrap_or_default();
    SystemVendor {
        product_name: property("model"),
        serial_number: property("serial-number"),
        manufacturer: manufacturer.to_owned(),
        firmware: InventoryFirmware::default(),
    }
}
