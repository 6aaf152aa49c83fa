// SPDX-License-Identifier: Apache-2.0
//! Settings of fake hardware.

use node_model::InterfaceKind;
use serde::{Deserialize, Serialize};

/// Declares the delays of fake hardware, one per interface that has a fake implementation.
macro_rules! fake_settings {
    ($($field:ident, $kind:ident;)*) => {
        /// Settings of fake hardware; a node's `driver_info` overrides them.
        ///
        /// A delay is a number of seconds, `"2"` or `"0.5"`, or two of them, `"1,10"`: then every
        /// call takes a random time in between, with the first being the most likely.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct FakeSettings {
            $(
                #[doc = concat!("How long calls of the fake ", stringify!($kind), " interface take.")]
                pub $field: String,
            )*
        }

        impl FakeSettings {
            /// Name and value of the delay of `kind`; `None` for network, which has no fake
            /// implementation.
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

/// A delay of fake hardware cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fake.{key} is invalid: {reason}")]
pub struct FakeSettingsError {
    /// The setting.
    pub key: &'static str,
    /// The reason.
    pub reason: String,
}
