// SPDX-License-Identifier: Apache-2.0
//! Settings of the agent driver, with Ironic's names where they exist.

use std::path::PathBuf;

use drivers::{ImageDownloadSource, NodeChanges};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Settings of agents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Timeout of an agent's response in seconds.
    pub command_timeout: u64,
    /// Certificates (PEM) of the authorities that sign certificates of agents which do not generate one
    /// themselves.
    pub verify_ca: Option<PathBuf>,
    /// Whether agents write raw images while downloading, instead of buffering them in memory.
    pub stream_raw_images: bool,
    /// Where agents download images: `http` for the node's URL, or `local` for Ferrite's image server,
    /// which verifies and unpacks them.
    pub image_download_source: ImageDownloadSource,
    /// Whether the agent starts the deployed system with kexec, without a firmware boot, if the agent
    /// supports it. `kexec` in `driver_info` or `instance_info` overrides it.
    pub kexec: bool,
    /// Priority of erasing disks in automated cleaning; defaults to the agent's own. 0 disables it.
    pub erase_devices_priority: Option<i64>,
    /// Priority of erasing disk metadata, such as partition tables, in automated cleaning; defaults to
    /// the agent's own. 0 disables it.
    pub erase_devices_metadata_priority: Option<i64>,
    /// Number of random overwrites of a disk without secure erase.
    pub shred_random_overwrite_iterations: u32,
    /// Whether the final overwrite writes zeros.
    pub shred_final_overwrite_with_zeros: bool,
    /// Whether a disk whose secure erase fails is overwritten instead.
    pub continue_if_disk_secure_erase_fails: bool,
    /// Number of disks of a machine that are erased concurrently.
    pub disk_erasure_concurrency: u32,
    /// Whether ATA secure erase is used.
    pub enable_ata_secure_erase: bool,
    /// Whether NVMe secure erase is used.
    pub enable_nvme_secure_erase: bool,
}

/// Settings of the agent driver, including those that other sections of the configuration hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentDriverSettings {
    /// The section `drivers.agent`.
    pub agent: AgentSettings,
    /// Whether running agents are used where the node has no `fast_track`.
    pub fast_track: bool,
    /// Seconds after its last heartbeat that an agent still counts as running.
    pub heartbeat_validity: u64,
    /// Timeout of an installer in seconds, from its first heartbeat to its last; 0 waits forever.
    pub install_timeout: u64,
}

/// The HTTP client for agents cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot create the HTTP client for agents: {reason}")]
pub struct AgentDriverError {
    /// The reason.
    pub reason: String,
}

impl Default for AgentDriverSettings {
    fn default() -> Self {
        Self {
            agent: AgentSettings::default(),
            fast_track: false,
            heartbeat_validity: 300,
            install_timeout: 3600,
        }
    }
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            command_timeout: 60,
            verify_ca: None,
            stream_raw_images: true,
            image_download_source: ImageDownloadSource::Http,
            kexec: false,
            erase_devices_priority: None,
            erase_devices_metadata_priority: None,
            shred_random_overwrite_iterations: 1,
            shred_final_overwrite_with_zeros: true,
            continue_if_disk_secure_erase_fails: false,
            disk_erasure_concurrency: 4,
            enable_ata_secure_erase: true,
            enable_nvme_secure_erase: true,
        }
    }
}

impl AgentSettings {
    /// The erase options for agents, which read them from `driver_internal_info`.
    pub(super) fn erase_options(&self) -> NodeChanges {
        let continue_on_failure = self.continue_if_disk_secure_erase_fails;
        let info: [(&str, Value); 7] = [
            ("agent_erase_devices_iterations", self.shred_random_overwrite_iterations.into()),
            ("agent_erase_devices_zeroize", self.shred_final_overwrite_with_zeros.into()),
            ("agent_continue_if_secure_erase_failed", continue_on_failure.into()),
            ("agent_continue_if_ata_erase_failed", continue_on_failure.into()),
            ("agent_enable_ata_secure_erase", self.enable_ata_secure_erase.into()),
            ("agent_enable_nvme_secure_erase", self.enable_nvme_secure_erase.into()),
            ("disk_erasure_concurrency", self.disk_erasure_concurrency.into()),
        ];
        let info = info.into_iter().map(|(key, value)| (key.to_owned(), value));
        NodeChanges { driver_internal_info: Map::from_iter(info), ..NodeChanges::none() }
    }

    /// The configured priority of a clean step; `None` if not configured.
    pub(super) fn clean_priority(&self, step: &str) -> Option<i64> {
        match step {
            "erase_devices" => self.erase_devices_priority,
            "erase_devices_metadata" => self.erase_devices_metadata_priority,
            _ => None,
        }
    }
}
