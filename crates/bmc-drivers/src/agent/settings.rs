// SPDX-License-Identifier: Apache-2.0
//! What an operator may say about work through the agent, under Ironic's names where it has them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::NodeChanges;

/// How agents are used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Seconds within which an agent has to answer a command.
    pub command_timeout: u64,
    /// Certificates (PEM) of the authorities that vouch for agents which do not make one for
    /// themselves.
    pub verify_ca: Option<PathBuf>,
    /// Whether agents write raw images while they arrive instead of keeping them in memory first.
    pub stream_raw_images: bool,
    /// Where agents take images from: `http`, from where the node says, or `local`, from us, after
    /// they were checked and unpacked here.
    pub image_download_source: ImageDownloadSource,
    /// Whether the deployed system is started by the agent itself, without a boot of the firmware,
    /// where the agent can. Nodes say it for themselves with `kexec` in `driver_info` or
    /// `instance_info`.
    pub kexec: bool,
    /// Priority of erasing disks in automated cleaning; by default the agent's own. 0 is never.
    pub erase_devices_priority: Option<i64>,
    /// Priority of erasing partition tables and the like in automated cleaning; by default the
    /// agent's own. 0 is never.
    pub erase_devices_metadata_priority: Option<i64>,
    /// How often a disk is overwritten with random data where it cannot erase itself.
    pub shred_random_overwrite_iterations: u32,
    /// Whether it is overwritten with zeros at last.
    pub shred_final_overwrite_with_zeros: bool,
    /// Whether a disk that fails to erase itself is overwritten instead.
    pub continue_if_disk_secure_erase_fails: bool,
    /// How many disks of a machine are erased at once.
    pub disk_erasure_concurrency: u32,
    /// Whether ATA disks may erase themselves.
    pub enable_ata_secure_erase: bool,
    /// Whether NVMe disks may erase themselves.
    pub enable_nvme_secure_erase: bool,
}

/// Where agents take images from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageDownloadSource {
    /// From where the node says.
    Http,
    /// From us.
    Local,
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
    /// How agents are to erase disks, where they look for it: in `driver_internal_info`.
    pub(super) fn erasing(&self) -> NodeChanges {
        let fails = self.continue_if_disk_secure_erase_fails;
        let info: [(&str, Value); 7] = [
            ("agent_erase_devices_iterations", self.shred_random_overwrite_iterations.into()),
            ("agent_erase_devices_zeroize", self.shred_final_overwrite_with_zeros.into()),
            ("agent_continue_if_secure_erase_failed", fails.into()),
            ("agent_continue_if_ata_erase_failed", fails.into()),
            ("agent_enable_ata_secure_erase", self.enable_ata_secure_erase.into()),
            ("agent_enable_nvme_secure_erase", self.enable_nvme_secure_erase.into()),
            ("disk_erasure_concurrency", self.disk_erasure_concurrency.into()),
        ];
        let info = info.into_iter().map(|(key, value)| (key.to_owned(), value));
        NodeChanges { driver_internal_info: Map::from_iter(info), ..NodeChanges::none() }
    }

    /// The priority of a clean step, if the operator has one for it.
    pub(super) fn clean_priority(&self, step: &str) -> Option<i64> {
        match step {
            "erase_devices" => self.erase_devices_priority,
            "erase_devices_metadata" => self.erase_devices_metadata_priority,
            _ => None,
        }
    }
}
