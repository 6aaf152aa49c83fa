// SPDX-License-Identifier: Apache-2.0
//! The image that a `write_image` step writes, and the partitions on the disk afterwards.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The source, checksums and partition layout of an image.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ImageInfo {
    /// The name of the image.
    #[serde(default)]
    pub id: String,
    /// The download URLs, tried in order.
    #[serde(default)]
    pub urls: Vec<String>,
    /// The declared format: `raw`, `qcow2`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_format: Option<String>,
    /// The container format: `bare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_format: Option<String>,
    /// Whether raw images are written to disk during the download instead of being buffered in memory.
    #[serde(default)]
    pub stream_raw_images: bool,
    /// An MD5, SHA-256 or SHA-512 checksum (distinguished by its length), or the URL of a checksum file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The algorithm of `os_hash_value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_hash_algo: Option<String>,
    /// The checksum by `os_hash_algo`, or the URL of a checksum file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_hash_value: Option<String>,
    /// The node the image is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uuid: Option<String>,
    /// `whole-disk` or `partition`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_type: Option<String>,
    /// The complete `Authorization` header for the image server, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_request_authorization: Option<String>,
    /// The authentication method of the image server: `http_basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_auth_strategy: Option<String>,
    /// The user name for `http_basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_user: Option<String>,
    /// The password for `http_basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_password: Option<String>,
    /// The proxy URL by scheme.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxies: BTreeMap<String, String>,
    /// Hosts that are contacted without a proxy, separated by commas.
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
    /// Partition images: whether the ephemeral partition is kept.
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
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl std::fmt::Debug for ImageInfo {
    /// Omits the credentials of the image server.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageInfo").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The result of `standby.get_partition_uuids`: the partitions found on or written to the root device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PartitionUuids {
    /// The UUID of the root file system, or the identifier of a whole disk.
    #[serde(rename = "root uuid", default, deserialize_with = "deserialize_identifier")]
    pub root: Option<String>,
    /// The UUID of the EFI system partition.
    #[serde(
        rename = "efi system partition uuid",
        default,
        deserialize_with = "deserialize_identifier"
    )]
    pub efi_system_partition: Option<String>,
    /// The UUID of the PReP partition (POWER).
    #[serde(
        rename = "PReP Boot partition uuid",
        default,
        deserialize_with = "deserialize_identifier"
    )]
    pub prep: Option<String>,
    /// The device file of each created partition, by its role.
    #[serde(default)]
    pub partitions: BTreeMap<String, String>,
}

/// Identifiers are stored with the node, so their length is limited.
const MAX_IDENTIFIER_BYTES: usize = 255;

fn deserialize_identifier<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    if text.as_ref().is_some_and(|text| text.len() > MAX_IDENTIFIER_BYTES) {
        return Err(D::Error::custom("identifier is longer than 255 bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_long_identifiers() {
        let parse = |root: Value| {
            serde_json::from_value::<PartitionUuids>(serde_json::json!({ "root uuid": root }))
        };
        let uuids = parse("c2f5cbb5".into()).expect("valid identifier");
        assert_eq!(uuids.root.as_deref(), Some("c2f5cbb5"));
        assert_eq!(parse(Value::Null).expect("null is valid").root, None);
        assert!(parse("x".repeat(256).into()).is_err());
    }
}
