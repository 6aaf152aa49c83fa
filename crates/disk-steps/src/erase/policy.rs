// SPDX-License-Identifier: Apache-2.0
//! How disks are to be erased, as the server says in `driver_internal_info`.

use std::path::PathBuf;

use agent_protocol::flag;
use serde_json::{Map, Value};

/// How disks are to be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasePolicy {
    /// How often a disk is written over with chance.
    pub iterations: u32,
    /// Whether zeroes are written at last.
    pub zeroize: bool,
    /// Whether a disk that fails to erase itself is written over.
    pub continue_if_secure_erase_failed: bool,
    /// Whether ATA drives erase themselves.
    pub ata: bool,
    /// Whether NVMe drives erase themselves.
    pub nvme: bool,
    /// How many disks are erased at once.
    pub concurrency: usize,
    /// Whether read-only disks are left alone instead of being an error.
    pub skip_read_only: bool,
    /// Whether disks that other machines may share are refused.
    pub guard: bool,
    /// Where the kernel tells about devices.
    pub sys: PathBuf,
}

impl Default for ErasePolicy {
    fn default() -> Self {
        Self {
            iterations: 1,
            zeroize: true,
            continue_if_secure_erase_failed: false,
            ata: true,
            nvme: true,
            concurrency: 1,
            skip_read_only: false,
            guard: true,
            sys: PathBuf::from("/sys"),
        }
    }
}

impl ErasePolicy {
    /// From a node, as it comes with a step.
    #[must_use]
    pub fn from_node(node: &Map<String, Value>) -> Self {
        let info = node.get("driver_internal_info").and_then(Value::as_object);
        let get = |name: &str| info.and_then(|info| info.get(name));
        let is = |name: &str| get(name).and_then(flag);
        let number = |name: &str| {
            let value = get(name)?;
            value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
        };
        let usual = Self::default();
        Self {
            iterations: number("agent_erase_devices_iterations")
                .map_or(usual.iterations, |count| u32::try_from(count).unwrap_or(u32::MAX)),
            zeroize: is("agent_erase_devices_zeroize").unwrap_or(usual.zeroize),
            continue_if_secure_erase_failed: is("agent_continue_if_secure_erase_failed")
                .or_else(|| is("agent_continue_if_ata_erase_failed"))
                .unwrap_or(usual.continue_if_secure_erase_failed),
            ata: is("agent_enable_ata_secure_erase").unwrap_or(usual.ata),
            nvme: is("agent_enable_nvme_secure_erase").unwrap_or(usual.nvme),
            concurrency: number("disk_erasure_concurrency").map_or(usual.concurrency, |count| {
                usize::try_from(count).unwrap_or(1).clamp(1, 64)
            }),
            skip_read_only: is("agent_erase_skip_read_only").unwrap_or(usual.skip_read_only),
            // The name says the opposite of what the setting has always meant.
            guard: is("wipe_special_filesystems").unwrap_or(usual.guard),
            sys: usual.sys,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_come_from_the_node() {
        let from = |value: Value| ErasePolicy::from_node(value.as_object().expect("an object"));
        assert_eq!(from(json!({})), ErasePolicy::default());
        let policy = from(json!({"driver_internal_info": {
            "agent_erase_devices_iterations": 3, "agent_erase_devices_zeroize": false,
            "agent_continue_if_ata_erase_failed": true, "agent_enable_ata_secure_erase": "False",
            "agent_enable_nvme_secure_erase": false, "disk_erasure_concurrency": 4,
            "agent_erase_skip_read_only": true, "wipe_special_filesystems": false,
        }}));
        assert_eq!(
            policy,
            ErasePolicy {
                iterations: 3,
                zeroize: false,
                continue_if_secure_erase_failed: true,
                ata: false,
                nvme: false,
                concurrency: 4,
                skip_read_only: true,
                guard: false,
                sys: PathBuf::from("/sys"),
            }
        );
    }
}
