// SPDX-License-Identifier: Apache-2.0
//! Settings of all drivers, with Ironic's names.

use agent_driver::{AgentDriverSettings, AgentSettings};
use drivers::EnabledDrivers;
use fake_driver::FakeSettings;
use ipmi_driver::{ConsoleSettings, IpmiSettings};
use node_model::InterfaceKind;
use redfish_driver::RedfishSettings;
use serde::{Deserialize, Serialize};

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
            /// Number of concurrent requests to one BMC. Most BMCs support only one.
            pub requests_per_bmc: usize,
            /// Whether running agents are used where the node has no `fast_track`. Set from the
            /// lifecycle's settings.
            #[serde(skip)]
            pub fast_track: bool,
            /// Timeout of an installer of the deploy interface `anaconda` in seconds, from its first
            /// heartbeat to its last; 0 waits forever.
            pub install_timeout: u64,
            /// Seconds after its last heartbeat that an agent still counts as running. Set from the
            /// conductor's settings.
            #[serde(skip)]
            pub heartbeat_validity: u64,
            /// Settings of agents.
            pub agent: AgentSettings,
            /// Settings of Redfish BMCs.
            pub redfish: RedfishSettings,
            /// Settings of IPMI BMCs.
            pub ipmi: IpmiSettings,
            /// Settings of serial consoles.
            pub console: ConsoleSettings,
            /// Settings of fake hardware.
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
                    enabled_hardware_types: ["fake-hardware", "ipmi", "redfish", "idrac"].map(str::to_owned).to_vec(),
                    $(
                        $enabled: vec![$($name.to_owned()),*],
                        $default: None$(.or(Some($chosen.to_owned())))?,
                    )*
                    requests_per_bmc: 1,
                    fast_track: false,
                    install_timeout: 3600,
                    heartbeat_validity: 300,
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
    enabled_bios_interfaces, default_bios_interface, Bios = ["fake", "redfish", "idrac-redfish", "no-bios"];
    enabled_boot_interfaces, default_boot_interface, Boot = ["fake", "ipxe", "pxe", "http-ipxe", "http", "redfish-virtual-media", "idrac-redfish-virtual-media", "redfish-https", "automatic"];
    enabled_console_interfaces, default_console_interface, Console = ["fake", "ipmitool-socat", "no-console"];
    enabled_deploy_interfaces, default_deploy_interface, Deploy = ["fake", "direct", "ramdisk", "custom-agent", "bootc", "autodetect", "noop"];
    enabled_firmware_interfaces, default_firmware_interface, Firmware = ["fake", "redfish", "no-firmware"];
    enabled_inspect_interfaces, default_inspect_interface, Inspect = ["fake", "redfish", "idrac-redfish", "agent", "no-inspect"];
    enabled_management_interfaces, default_management_interface, Management = ["fake", "ipmitool", "redfish", "idrac-redfish", "noop"];
    enabled_network_interfaces, default_network_interface, Network = ["noop"];
    enabled_power_interfaces, default_power_interface, Power = ["fake", "ipmitool", "redfish", "idrac-redfish"];
    enabled_raid_interfaces, default_raid_interface, Raid = ["fake", "redfish", "idrac-redfish", "agent", "no-raid"];
    enabled_rescue_interfaces, default_rescue_interface, Rescue = ["fake", "agent", "no-rescue"];
    enabled_storage_interfaces, default_storage_interface, Storage = ["noop", "fake"], "noop";
    enabled_vendor_interfaces, default_vendor_interface, Vendor = ["fake", "ipmitool", "redfish", "idrac-redfish", "no-vendor"];
}

impl DriverSettings {
    /// The enabled hardware types and implementations.
    #[must_use]
    pub fn enabled_drivers(&self) -> EnabledDrivers {
        EnabledDrivers::new(&self.enabled_hardware_types, |kind| {
            (self.enabled(kind).to_vec(), self.default_interface(kind).map(str::to_owned))
        })
    }

    /// The settings of the agent driver.
    #[must_use]
    pub fn agent_driver(&self) -> AgentDriverSettings {
        AgentDriverSettings {
            agent: self.agent.clone(),
            fast_track: self.fast_track,
            heartbeat_validity: self.heartbeat_validity,
            install_timeout: self.install_timeout,
        }
    }
}
