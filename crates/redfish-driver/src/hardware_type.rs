// SPDX-License-Identifier: Apache-2.0
//! The hardware types `redfish` and `idrac`: which implementations they support, in order of preference.

use drivers::HardwareType;
use node_model::InterfaceKind;

pub(crate) const REDFISH: &HardwareType = &HardwareType {
    name: "redfish",
    supported: &[
        (InterfaceKind::Bios, &["redfish", "no-bios"]),
        (
            InterfaceKind::Boot,
            &[
                "ipxe",
                "pxe",
                "http-ipxe",
                "http",
                "redfish-virtual-media",
                "redfish-https",
                "automatic",
            ],
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

/// Machines with a Dell iDRAC. As in Ironic, it is `redfish` with other defaults, and without the
/// implementations that do not work with every iDRAC.
pub(crate) const IDRAC: &HardwareType = &HardwareType {
    name: "idrac",
    supported: &[
        (InterfaceKind::Bios, &["idrac-redfish", "redfish", "no-bios"]),
        (
            InterfaceKind::Boot,
            &[
                "ipxe",
                "pxe",
                "http-ipxe",
                "http",
                "idrac-redfish-virtual-media",
                "redfish-https",
                "automatic",
            ],
        ),
        (InterfaceKind::Console, &["no-console", "ipmitool-socat"]),
        (
            InterfaceKind::Deploy,
            &["direct", "ramdisk", "anaconda", "custom-agent", "bootc", "autodetect"],
        ),
        (InterfaceKind::Firmware, &["redfish", "no-firmware"]),
        (InterfaceKind::Inspect, &["idrac-redfish", "agent", "no-inspect"]),
        (InterfaceKind::Management, &["idrac-redfish"]),
        (InterfaceKind::Network, &["noop"]),
        (InterfaceKind::Power, &["idrac-redfish", "redfish"]),
        (InterfaceKind::Raid, &["idrac-redfish", "no-raid", "agent"]),
        (InterfaceKind::Rescue, &["no-rescue", "agent"]),
        (InterfaceKind::Storage, &["noop"]),
        (InterfaceKind::Vendor, &["idrac-redfish", "redfish", "no-vendor"]),
    ],
    accepts_any: false,
};
