// SPDX-License-Identifier: Apache-2.0
//! The image a `write_image` step writes, and what the machine's disk looks like afterwards.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Where an image comes from, how to tell that it arrived whole, and how it is laid out on the disk.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ImageInfo {
    /// A name for it.
    #[serde(default)]
    pub id: String,
    /// Where it is; each is tried in turn.
    #[serde(default)]
    pub urls: Vec<String>,
    /// `raw`, `qcow2`, …: what it is declared to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_format: Option<String>,
    /// `bare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_format: Option<String>,
    /// Whether raw images are written while they arrive instead of being kept in memory first.
    #[serde(default)]
    pub stream_raw_images: bool,
    /// MD5, SHA-256 or SHA-512, told by its length, or the URL of a file with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The algorithm of `os_hash_value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_hash_algo: Option<String>,
    /// A checksum by that algorithm, or the URL of a file with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_hash_value: Option<String>,
    /// The node the image is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uuid: Option<String>,
    /// `whole-disk` or `partition`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_type: Option<String>,
    /// The whole `Authorization` header for the image server, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_request_authorization: Option<String>,
    /// How to log in to the image server: `http_basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_auth_strategy: Option<String>,
    /// User for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_user: Option<String>,
    /// Password for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_password: Option<String>,
    /// Proxies by scheme.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxies: BTreeMap<String, String>,
    /// Hosts that are reached without a proxy, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Partition images: size of the root partition in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_mb: Option<u64>,
    /// Partition images: size of the swap partition in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_mb: Option<u64>,
    /// Partition images: size of the ephemeral partition in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral_mb: Option<u64>,
    /// Partition images: file system of the ephemeral partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral_format: Option<String>,
    /// Partition images: whether the ephemeral partition stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_ephemeral: Option<bool>,
    /// Partition images: `bios` or `uefi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_boot_mode: Option<String>,
    /// Partition images: `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_option: Option<String>,
    /// Partition images: `gpt` or `msdos`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_label: Option<String>,
    /// Whatever else the server said.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl std::fmt::Debug for ImageInfo {
    /// Without what opens the image server.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageInfo").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The result of `standby.get_partition_uuids`: what was found on, or written to, the root device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PartitionUuids {
    /// The root file system, or the identifier of the whole disk.
    #[serde(rename = "root uuid", default, deserialize_with = "identifier")]
    pub root: Option<String>,
    /// The EFI system partition.
    #[serde(rename = "efi system partition uuid", default, deserialize_with = "identifier")]
    pub efi_system_partition: Option<String>,
    /// The PReP partition of POWER machines.
    #[serde(rename = "PReP Boot partition uuid", default, deserialize_with = "identifier")]
    pub prep: Option<String>,
    /// The device of each partition that was made, by what it is for.
    #[serde(default)]
    pub partitions: BTreeMap<String, String>,
}

/// More than this identifies nothing. It is kept with the node.
const MAX_IDENTIFIER: usize = 255;

fn identifier<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    if text.as_ref().is_some_and(|text| text.len() > MAX_IDENTIFIER) {
        return Err(D::Error::custom("it is too long to identify anything"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_short() {
        let read = |root: Value| {
            serde_json::from_value::<PartitionUuids>(serde_json::json!({ "root uuid": root }))
        };
        let found = read("c2f5cbb5".into()).expect("an identifier");
        assert_eq!(found.root.as_deref(), Some("c2f5cbb5"));
        assert_eq!(read(Value::Null).expect("none is none").root, None);
        assert!(read("x".repeat(256).into()).is_err());
    }
}
