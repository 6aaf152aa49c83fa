// SPDX-License-Identifier: Apache-2.0
//! The `[redfish]` settings that apply to all machines.

use std::path::PathBuf;

use node_model::named_enum;
use serde::{Deserialize, Serialize};

/// Settings of the Redfish driver; a node's `driver_info` overrides some of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedfishSettings {
    /// Certificate check: `true` against the system's CAs, `false` for none, or the path of a file
    /// or folder with CA certificates.
    pub verify_ca: VerifyCaSetting,
    /// Authentication: `session`, `basic`, or `auto`, which uses sessions where the BMC has them.
    pub auth_type: AuthType,
    /// Timeout in seconds for opening a connection to a BMC.
    pub connect_timeout: u64,
    /// Timeout in seconds for the response to a request.
    pub read_timeout: u64,
    /// Maximum number of cached connections, each with its session; the least recently used is closed.
    pub connection_cache_size: usize,
    /// Seconds for which a rejected user name and password are not sent again: wrong passwords lock
    /// accounts. A changed password and a validation of the node are tried at once.
    pub rejected_password_pause: u64,
    /// Timeout in seconds for a power state change.
    pub power_state_change_timeout: u64,
    /// Timeout in seconds for a graceful shutdown of the operating system.
    pub soft_power_off_timeout: u64,
    /// Timeout in seconds for a change of boot mode or secure boot.
    pub boot_mode_config_timeout: u64,
    /// Timeout in seconds for BIOS settings to take effect after the reboot that applies them.
    pub bios_apply_timeout: u64,
    /// Timeout in seconds for the creation or deletion of a volume.
    pub raid_config_timeout: u64,
    /// Timeout in seconds for the update of one firmware component.
    pub firmware_update_timeout: u64,
    /// Interval in seconds between two polls of a long-running operation.
    pub poll_interval: u64,
    /// A folder with additional quirk files (TOML); they override the built-in ones.
    pub quirks_dir: Option<PathBuf>,
}

named_enum! {
    /// How to authenticate to a BMC.
    AuthType {
        /// With a session where the BMC has them, otherwise as `basic`.
        Auto = "auto",
        /// With user name and password in each request.
        Basic = "basic",
        /// With a session.
        Session = "session",
    }
}

/// Which CAs are trusted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VerifyCaSetting {
    /// The system's CAs if true, any certificate if false.
    Switch(bool),
    /// The CAs in this file or folder.
    Path(PathBuf),
}

impl Default for RedfishSettings {
    fn default() -> Self {
        Self {
            verify_ca: VerifyCaSetting::Switch(true),
            auth_type: AuthType::Auto,
            connect_timeout: 10,
            read_timeout: 60,
            connection_cache_size: 10_000,
            rejected_password_pause: 300,
            power_state_change_timeout: 120,
            soft_power_off_timeout: 600,
            boot_mode_config_timeout: 900,
            bios_apply_timeout: 1800,
            raid_config_timeout: 3600,
            firmware_update_timeout: 7200,
            poll_interval: 15,
            quirks_dir: None,
        }
    }
}
