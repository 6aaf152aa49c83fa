// SPDX-License-Identifier: Apache-2.0
//! The hardware type `redfish`: which implementations it supports, in order of preference.

use drivers::HardwareType;
use node_model::InterfaceKind;

pub(crate) const HARDWARE_TYPE: &HardwareType = &HardwareType {
    name: "redfish",
    supported: &[
        (InterfaceKind::Bios, &["redfish", "no-bios"]),
        (
            InterfaceKind::Boot,
            &["ipxe", "pxe", "http-ipxe", "http", "redfish-virtual-media", "automatic"],
        ),
        // A serial console by IPMI needs the keys of that driver, so it is a choice.
        (InterfaceKind::Console, &["no-console", "ipmitool-socat"]),
        (
            InterfaceKind::Deploy,
            &["direct", "ramdisk", "anaconda", "custom-agent", "bootc", "autodetect"],
        ),
        (InterfaceKind::Firmware, &["redfish", "no-firmware"]),
        (InterfaceKind::Inspect, &["redfish", "agent", "no-inspect"]),
        (InterfaceKind::Management, &["redfish", "noop"]),
        (InterfaceKind::Network, &["noop"]),
        (InterfaceKind::Power, &["redfish"]),
        (InterfaceKind::Raid, &["redfish", "agent", "no-raid"]),
        (InterfaceKind::Rescue, &["no-rescue", "agent"]),
        (InterfaceKind::Storage, &["noop"]),
        (InterfaceKind::Vendor, &["redfish", "no-vendor"]),
    ],
    accepts_any: false,
};
