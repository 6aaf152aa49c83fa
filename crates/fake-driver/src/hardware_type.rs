// SPDX-License-Identifier: Apache-2.0
//! The hardware type `fake-hardware` and its supported implementations, best first.

use drivers::HardwareType;
use node_model::InterfaceKind;

pub(crate) const HARDWARE_TYPE: &HardwareType = &HardwareType {
    name: "fake-hardware",
    supported: &[
        (InterfaceKind::Bios, &["fake", "no-bios"]),
        (InterfaceKind::Boot, &["fake"]),
        (InterfaceKind::Console, &["fake", "no-console"]),
        (InterfaceKind::Deploy, &["fake", "direct"]),
        (InterfaceKind::Firmware, &["fake", "no-firmware"]),
        (InterfaceKind::Inspect, &["fake", "agent", "no-inspect"]),
        (InterfaceKind::Management, &["fake"]),
        (InterfaceKind::Network, &["noop"]),
        (InterfaceKind::Power, &["fake"]),
        (InterfaceKind::Raid, &["fake", "no-raid"]),
        (InterfaceKind::Rescue, &["fake", "no-rescue"]),
        (InterfaceKind::Storage, &["fake", "noop"]),
        (InterfaceKind::Vendor, &["fake", "no-vendor"]),
    ],
    accepts_any: true,
};
