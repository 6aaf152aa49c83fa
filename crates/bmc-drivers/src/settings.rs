// SPDX-License-Identifier: Apache-2.0
//! What an operator may say about drivers, under Ironic's names.

use node_model::InterfaceKind;
use serde::{Deserialize, Serialize};

use crate::{AgentSettings, ConsoleSettings, IpmiSettings, RedfishSettings};

/// Declares the settings with one list and one default per interface, and how to find them by kind.
macro_rules! driver_settings {
    ($($enabled:ident, $default:ident, $kind:ident = [$($name:literal),*] $(, $chosen:literal)?;)*) => {
        /// Which hardware types and implementations nodes may use.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct DriverSettings {
            /// Hardware types that nodes may have as `driver`.
            pub enabled_hardware_types: Vec<String>,
            $(
                #[doc = concat!("Implementations of the ", stringify!($kind), " interface that nodes may choose.")]
                pub $enabled: Vec<String>,
                #[doc = concat!(
                    "Implementation of the ", stringify!($kind),
                    " interface for nodes that choose none; by default the best enabled one for their hardware type."
                )]
                pub $default: Option<String>,
            )*
            /// How many requests a BMC gets at a time. Most of them cope with one only.
            pub requests_per_bmc: usize,
            /// Whether agents that run on machines are used where a node does not say. Told by the
            /// lifecycle's settings.
            #[serde(skip)]
            pub fast_track: bool,
            /// Seconds an installer of the deploy interface `anaconda` may take from its first call to
            /// its last; 0 waits for ever.
            pub install_timeout: u64,
            /// Seconds after its last call that an agent still counts as running. Told by the
            /// conductor's settings.
            #[serde(skip)]
            pub agent_is_fresh: u64,
            /// How agents are used.
            pub agent: AgentSettings,
            /// How Redfish BMCs are talked to.
            pub redfish: RedfishSettings,
            /// How IPMI BMCs are talked to.
            pub ipmi: IpmiSettings,
            /// Where serial consoles are served.
            pub console: ConsoleSettings,
            /// How fake hardware behaves.
            pub fake: FakeSettings,
        }

        impl DriverSettings {
            /// The implementations of `kind` that nodes may choose.
            #[must_use]
            pub fn enabled(&self, kind: InterfaceKind) -> &[String] {
                match kind {
                    $(InterfaceKind::$kind => &self.$enabled,)*
                }
            }

            /// The implementation of `kind` for nodes that choose none.
            #[must_use]
            pub fn default_interface(&self, kind: InterfaceKind) -> Option<&str> {
                match kind {
                    $(InterfaceKind::$kind => self.$default.as_deref(),)*
                }
            }
        }

        impl Default for DriverSettings {
            fn default() -> Self {
                Self {
                    enabled_hardware_types: ["fake-hardware", "ipmi", "redfish"].map(str::to_owned).to_vec(),
                    $(
                        $enabled: vec![$($name.to_owned()),*],
                        $default: None$(.or(Some($chosen.to_owned())))?,
                    )*
                    requests_per_bmc: 1,
                    fast_track: false,
                    install_timeout: 3600,
                    agent_is_fresh: 300,
                    agent: AgentSettings::default(),
                    redfish: RedfishSettings::default(),
                    ipmi: IpmiSettings::default(),
                    console: ConsoleSettings::default(),
                    fake: FakeSettings::default(),
                }
            }
        }
    };
}

// Storage defaults to `noop` by configuration, as in Ironic: remote volumes are the exception.
driver_settings! {
    enabled_bios_interfaces, default_bios_interface, Bios = ["fake", "redfish", "no-bios"];
    enabled_boot_interfaces, default_boot_interface, Boot = ["fake", "ipxe", "pxe", "http-ipxe", "http", "redfish-virtual-media", "automatic"];
    enabled_console_interfaces, default_console_interface, Console = ["fake", "ipmitool-socat", "no-console"];
    enabled_deploy_interfaces, default_deploy_interface, Deploy = ["fake", "direct", "ramdisk", "custom-agent", "bootc", "autodetect", "noop"];
    enabled_firmware_interfaces, default_firmware_interface, Firmware = ["fake", "redfish", "no-firmware"];
    enabled_inspect_interfaces, default_inspect_interface, Inspect = ["fake", "redfish", "agent", "no-inspect"];
    enabled_management_interfaces, default_management_interface, Management = ["fake", "ipmitool", "redfish", "noop"];
    enabled_network_interfaces, default_network_interface, Network = ["noop"];
    enabled_power_interfaces, default_power_interface, Power = ["fake", "ipmitool", "redfish"];
    enabled_raid_interfaces, default_raid_interface, Raid = ["fake", "redfish", "agent", "no-raid"];
    enabled_rescue_interfaces, default_rescue_interface, Rescue = ["fake", "agent", "no-rescue"];
    enabled_storage_interfaces, default_storage_interface, Storage = ["noop", "fake"], "noop";
    enabled_vendor_interfaces, default_vendor_interface, Vendor = ["fake", "ipmitool", "redfish", "no-vendor"];
}

/// Declares the delays of fake hardware, one per interface that has a fake implementation.
macro_rules! fake_settings {
    ($($field:ident, $kind:ident;)*) => {
        /// How fake hardware behaves where a node's `driver_info` does not say.
        ///
        /// A delay is a number of seconds, `"2"` or `"0.5"`, or two of them, `"1,10"`: then every
        /// call takes something between, the first being the most likely.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct FakeSettings {
            $(
                #[doc = concat!("How long calls of the fake ", stringify!($kind), " interface take.")]
                pub $field: String,
            )*
        }

        impl FakeSettings {
            /// The name and the value of the delay of `kind`; none for network, of which there is
            /// no fake implementation.
            #[must_use]
            pub fn delay(&self, kind: InterfaceKind) -> Option<(&'static str, &str)> {
                match kind {
                    $(InterfaceKind::$kind => Some((stringify!($field), &self.$field)),)*
                    InterfaceKind::Network => None,
                }
            }
        }

        impl Default for FakeSettings {
            fn default() -> Self {
                Self { $($field: "0".to_owned(),)* }
            }
        }
    };
}

fake_settings! {
    bios_delay, Bios;
    boot_delay, Boot;
    console_delay, Console;
    deploy_delay, Deploy;
    firmware_delay, Firmware;
    inspect_delay, Inspect;
    management_delay, Management;
    power_delay, Power;
    raid_delay, Raid;
    rescue_delay, Rescue;
    storage_delay, Storage;
    vendor_delay, Vendor;
}
