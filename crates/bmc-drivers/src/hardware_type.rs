// SPDX-License-Identifier: Apache-2.0
//! The hardware types there are, and which implementations fit each.

use node_model::InterfaceKind;

/// A hardware type: what a node's `driver` names.
#[derive(Debug, PartialEq, Eq)]
pub struct HardwareType {
    /// Its name.
    pub name: &'static str,
    /// The implementations that fit, per interface, best first: the first enabled one is the
    /// default.
    supported: &'static [(InterfaceKind, &'static [&'static str])],
    /// Whether every enabled implementation may be chosen, fitting or not. True only of fake
    /// hardware, which is there to try things out.
    takes_any: bool,
}

impl HardwareType {
    /// Every hardware type in this version.
    pub const ALL: &'static [Self] = &[FAKE_HARDWARE, IPMI, REDFISH];

    /// The hardware type called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|hardware_type| hardware_type.name == name)
    }

    /// The implementations of `kind` that fit, best first.
    #[must_use]
    pub fn supported(&self, kind: InterfaceKind) -> &'static [&'static str] {
        let row = self.supported.iter().find(|(supported, _)| *supported == kind);
        row.map_or(&[], |(_, names)| names)
    }

    /// Whether a node of this type may use `implementation` of `kind`.
    #[must_use]
    pub fn accepts(&self, kind: InterfaceKind, implementation: &str) -> bool {
        self.takes_any || self.supported(kind).contains(&implementation)
    }
}

const FAKE_HARDWARE: HardwareType = HardwareType {
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
    takes_any: true,
};

const REDFISH: HardwareType = HardwareType {
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
    takes_any: false,
};

const IPMI: HardwareType = HardwareType {
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
    takes_any: false,
};
