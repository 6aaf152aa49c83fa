// SPDX-License-Identifier: Apache-2.0
//! What an operator may say about Redfish for all machines.

use std::path::PathBuf;

use node_model::named;
use serde::{Deserialize, Serialize};

/// How Redfish BMCs are talked to where a node's `driver_info` does not say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedfishSettings {
    /// Check certificates: `true` against the system's authorities, `false` not at all, or the path
    /// of a file or folder with the authorities' certificates.
    pub verify_ca: VerifyCa,
    /// How to sign in: `session`, `basic`, or `auto`, which is a session where the BMC has them.
    pub auth_type: AuthType,
    /// Seconds until a BMC must have accepted a connection.
    pub connect_timeout: u64,
    /// Seconds until a BMC must have answered a request.
    pub read_timeout: u64,
    /// Connections kept, each with its session; beyond that the longest unused is closed.
    pub connection_cache_size: usize,
    /// Seconds a BMC that rejected a user name and password is not shown them again: wrong passwords
    /// lock accounts. A changed password, and validating the node, are tried at once.
    pub rejected_password_pause: u64,
    /// Seconds a machine may take to reach the power state it was asked to.
    pub power_state_change_timeout: u64,
    /// Seconds an operating system may take to shut down when it was asked to.
    pub soft_power_off_timeout: u64,
    /// Seconds until a change of boot mode or secure boot must be seen.
    pub boot_mode_config_timeout: u64,
    /// Seconds until changed BIOS settings must be seen after the reboot that applies them.
    pub bios_apply_timeout: u64,
    /// Seconds until created or deleted volumes must be seen.
    pub raid_config_timeout: u64,
    /// Seconds an update of one firmware component may take.
    pub firmware_update_timeout: u64,
    /// Seconds between two looks at something that takes its time.
    pub poll_interval: u64,
    /// A folder with quirk files of your own (TOML); they win over the built-in ones.
    pub quirks_dir: Option<PathBuf>,
}

named! {
    /// How to sign in to a BMC.
    AuthType {
        /// By session where the BMC has them, else as by `basic`.
        Auto = "auto",
        /// With user and password in each request.
        Basic = "basic",
        /// By session.
        Session = "session",
    }
}

/// Whose certificates are believed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VerifyCa {
    /// The system's authorities, or anybody's.
    Switch(bool),
    /// The authorities in this file or folder.
    Path(PathBuf),
}

impl Default for RedfishSettings {
    fn default() -> Self {
        Self {
            verify_ca: VerifyCa::Switch(true),
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
