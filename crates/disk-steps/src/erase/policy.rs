// SPDX-License-Identifier: Apache-2.0
//! Erase settings, sent by the server in `driver_internal_info`.

use std::path::PathBuf;

use agent_protocol::parse_bool;
use serde_json::{Map, Value};

/// Erase settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasePolicy {
    /// Number of overwrites with random data.
    pub iterations: u32,
    /// Whether zeroes are written last.
    pub zeroize: bool,
    /// Whether a disk is overwritten if its secure erase fails.
    pub continue_if_secure_erase_failed: bool,
    /// Whether ATA secure erase is used.
    pub ata: bool,
    /// Whether NVMe secure erase is used.
    pub nvme: bool,
    /// Number of disks erased concurrently.
    pub concurrency: usize,
    /// Whether read-only disks are skipped instead of being an error.
    pub skip_read_only: bool,
    /// Whether disks that other machines may share are refused.
    pub protect_shared: bool,
    /// Mount point of sysfs.
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
            protect_shared: true,
            sys: PathBuf::from("/sys"),
        }
    }
}

impl ErasePolicy {
    /// Reads the settings from a node as sent with a step.
    #[must_use]
    pub fn from_node(node: &Map<String, Value>) -> Self {
        let info = node.get("driver_internal_info").and_then(Value::as_object);
        let get = |name: &str| info.and_then(|info| info.get(name));
        let is = |name: &str| get(name).and_then(parse_bool);
        let number = |name: &str| {
            let value = get(name)?;
            value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
        };
        let default = Self::default();
        Self {
            iterations: number("agent_erase_devices_iterations")
                .map_or(default.iterations, |count| u32::try_from(count).unwrap_or(u32::MAX)),
            zeroize: is("agent_erase_devices_zeroize").unwrap_or(default.zeroize),
            continue_if_secure_erase_failed: is("agent_continue_if_secure_erase_failed")
                .or_else(|| is("agent_continue_if_ata_erase_failed"))
                .unwrap_or(default.continue_if_secure_erase_failed),
            ata: is("agent_enable_ata_secure_erase").unwrap_or(default.ata),
            nvme: is("agent_enable_nvme_secure_erase").unwrap_or(default.nvme),
            concurrency: number("disk_erasure_concurrency").map_or(default.concurrency, |count| {
                usize::try_from(count).unwrap_or(1).clamp(1, 64)
            }),
            skip_read_only: is("agent_erase_skip_read_only").unwrap_or(default.skip_read_only),
            // In IPA the setting has the opposite meaning of its name.
            protect_shared: is("wipe_special_filesystems").unwrap_or(default.protect_shared),
            sys: default.sys,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_node_settings() {
        let parse = |value: Value| ErasePolicy::from_node(value.as_object().expect("an object"));
        assert_eq!(parse(json!({})), ErasePolicy::default());
        let policy = parse(json!({"driver_internal_info": {
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
                protect_shared: false,
                sys: PathBuf::from("/sys"),
            }
        );
    }
}
