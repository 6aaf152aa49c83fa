// SPDX-License-Identifier: Apache-2.0
//! The hardware type `ipmi` and its supported implementations, best first.

use drivers::HardwareType;
use node_model::InterfaceKind;

pub(crate) const HARDWARE_TYPE: &HardwareType = &HardwareType {
    name: "ipmi",
    supported: &[
        (InterfaceKind::Bios, &["no-bios"]),
        (InterfaceKind::Boot, &["ipxe", "pxe", "http-ipxe", "http", "automatic"]),
        (InterfaceKind::Console, &["ipmitool-socat", "no-console"]),
        (
            InterfaceKind::Deploy,
            &["direct", "ramdisk", "anaconda", "custom-agent", "bootc", "autodetect"],
        ),
        (InterfaceKind::Firmware, &["no-firmware"]),
        (InterfaceKind::Inspect, &["agent", "no-inspect"]),
        (InterfaceKind::Management, &["ipmitool", "noop"]),
        (InterfaceKind::Network, &["noop"]),
        (InterfaceKind::Power, &["ipmitool"]),
        (InterfaceKind::Raid, &["no-raid", "agent"]),
        (InterfaceKind::Rescue, &["no-rescue", "agent"]),
        (InterfaceKind::Storage, &["noop"]),
        (InterfaceKind::Vendor, &["ipmitool", "no-vendor"]),
    ],
    accepts_any: false,
};
