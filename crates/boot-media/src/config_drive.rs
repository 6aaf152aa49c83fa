// SPDX-License-Identifier: Apache-2.0
//! Config drives: parses their three forms, packs and unpacks the encoded one, and builds the `config-2`
//! image from the JSON one. The caller fetches the form that is a URL.

use std::io::{self, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderStringWriter;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

use crate::iso::{IsoError, IsoImage};
use crate::{Content, FileTree, MediaPathError};

/// The volume label that instances search for.
pub const LABEL: &str = "config-2";
/// Maximum size of an image: the size of the agent's partition for a config drive.
pub const MAX_IMAGE_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum size of a packed image: an incompressible image in base64, with line breaks and a margin.
const MAX_PACKED_BYTES: usize = 96 * 1024 * 1024;
/// The versions of the metadata folder, as OpenStack's own tools write them.
const VERSIONS: [&str; 2] = ["2012-08-10", "latest"];

/// A config drive in one of its three forms. Not `Debug`, like its parts: they contain passwords and
/// keys.
#[derive(Clone, PartialEq)]
pub enum ConfigDrive<'a> {
    /// Where to fetch the packed form from.
    Url(&'a str),
    /// An image, compressed with gzip, in base64.
    Packed(&'a str),
    /// The contents, to be built into an image.
    Parts(ConfigDriveParts<'a>),
}

/// The contents of a config drive. Absent or empty parts have no file.
#[derive(Clone, Default, PartialEq)]
pub struct ConfigDriveParts<'a> {
    /// `meta_data.json`.
    pub meta_data: Option<&'a Map<String, Value>>,
    /// `network_data.json`.
    pub network_data: Option<&'a Map<String, Value>>,
    /// `user_data`.
    pub user_data: Option<UserData<'a>>,
    /// `vendor_data2.json`.
    pub vendor_data: Option<&'a Map<String, Value>>,
}

/// User data: text, or a document that is written as JSON, such as Ignition.
#[derive(Clone, PartialEq)]
pub enum UserData<'a> {
    /// Text.
    Text(&'a str),
    /// A JSON object or list.
    Document(&'a Value),
}

/// The owner of the drive: defaults for `meta_data.json`.
#[derive(Debug, Clone, Copy)]
pub struct ConfigDriveOwner<'a> {
    /// The node's UUID.
    pub uuid: &'a str,
    /// The node's name, if it has one.
    pub name: Option<&'a str>,
}

/// The format of an unpacked image, detected from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveFormat {
    /// ISO 9660, the default.
    Iso9660,
    /// FAT, which OpenStack can be configured to use.
    Fat,
    /// Another format, which instances cannot read.
    Unknown,
}

/// Why a value is not a config drive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigDriveParseError {
    /// Neither a string nor an object.
    #[error(
        "a config drive must be a string (a URL or a gzipped image in base64) or a JSON object"
    )]
    Type,
    /// A string that can be neither a URL nor base64.
    #[error(
        "the config drive is a string that is neither a URL nor base64; to give contents, send a JSON object"
    )]
    Text,
    /// An object with an unknown key.
    #[error(
        "a config drive has no {key:?}; it may have meta_data, network_data, user_data and vendor_data"
    )]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A part of the wrong type.
    #[error("{key} of the config drive must be {expected}")]
    PartType {
        /// The part.
        key: &'static str,
        /// The expected types.
        expected: &'static str,
    },
}

/// Why a packed image could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ConfigDriveUnpackError {
    /// Not base64.
    #[error("the config drive is not valid base64")]
    Base64(#[source] base64::DecodeError),
    /// Not gzip, or damaged.
    #[error("the config drive is not a gzip stream, or a damaged one")]
    Gzip(#[source] io::Error),
    /// The unpacked image is larger than an agent can store.
    #[error("the config drive is larger than {} MiB when unpacked; make it smaller", MAX_IMAGE_BYTES >> 20)]
    TooLarge,
}

/// Why an image could not be built from its parts.
#[derive(Debug, thiserror::Error)]
pub enum ConfigDriveBuildError {
    /// Cannot happen with the built-in paths.
    #[error("the path of a file of the config drive is invalid")]
    Path(#[from] MediaPathError),
    /// The ISO image cannot be built.
    #[error("cannot build the config drive")]
    Iso(#[from] IsoError),
    /// The image is larger than an agent can store.
    #[error("the config drive would be larger than {} MiB; shorten the user data", MAX_IMAGE_BYTES >> 20)]
    TooLarge,
}

// === impl ConfigDrive ===

impl<'a> ConfigDrive<'a> {
    /// Parses a config drive; `None` for `null`, an empty string and an empty object, which mean "no
    /// config drive".
    pub fn parse(value: &'a Value) -> Result<Option<ConfigDrive<'a>>, ConfigDriveParseError> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) if text.is_empty() => Ok(None),
            // Base64 has no colon.
            Value::String(text) if text.contains("://") => Ok(Some(ConfigDrive::Url(text))),
            Value::String(text) if text.bytes().all(is_base64_byte) => {
                Ok(Some(ConfigDrive::Packed(text)))
            }
            Value::String(_) => Err(ConfigDriveParseError::Text),
            Value::Object(parts) if parts.is_empty() => Ok(None),
            Value::Object(parts) => {
                ConfigDriveParts::parse(parts).map(ConfigDrive::Parts).map(Some)
            }
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(ConfigDriveParseError::Type),
        }
    }
}

// === impl ConfigDriveParts ===

impl<'a> ConfigDriveParts<'a> {
    /// Builds the image labelled `config-2`.
    pub fn build(&self, owner: ConfigDriveOwner<'_>) -> Result<Content, ConfigDriveBuildError> {
        let mut meta_data = self.meta_data.cloned().unwrap_or_default();
        meta_data.entry("uuid").or_insert_with(|| owner.uuid.into());
        if let Some(name) = owner.name.filter(|name| !name.is_empty()) {
            meta_data.entry("name").or_insert_with(|| name.into());
        }
        let files = [
            ("meta_data.json", json_bytes(Some(&meta_data))),
            ("network_data.json", json_bytes(self.network_data)),
            ("vendor_data2.json", json_bytes(self.vendor_data)),
            ("user_data", self.user_data.as_ref().map(UserData::bytes).unwrap_or_default()),
        ];
        let mut tree = FileTree::new();
        for (name, bytes) in files {
            let content = Content::from(bytes);
            if content.is_empty() {
                continue;
            }
            for version in VERSIONS {
                tree.insert(&format!("openstack/{version}/{name}"), content.clone())?;
            }
        }
        let image = IsoImage::new(LABEL, tree).layout()?;
        if image.length() > MAX_IMAGE_BYTES {
            Err(ConfigDriveBuildError::TooLarge)
        } else {
            Ok(image)
        }
    }

    fn parse(
        object: &'a Map<String, Value>,
    ) -> Result<ConfigDriveParts<'a>, ConfigDriveParseError> {
        let mut parts = ConfigDriveParts::default();
        for (key, value) in object {
            match key.as_str() {
                "meta_data" => parts.meta_data = Some(json_object("meta_data", value)?),
                "network_data" => parts.network_data = Some(json_object("network_data", value)?),
                "vendor_data" => parts.vendor_data = Some(json_object("vendor_data", value)?),
                "user_data" => parts.user_data = UserData::parse(value)?,
                _ => return Err(ConfigDriveParseError::UnknownKey { key: key.clone() }),
            }
        }
        Ok(parts)
    }
}

impl<'a> UserData<'a> {
    fn parse(value: &'a Value) -> Result<Option<UserData<'a>>, ConfigDriveParseError> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(UserData::Text(text))),
            Value::Object(_) | Value::Array(_) => Ok(Some(UserData::Document(value))),
            Value::Bool(_) | Value::Number(_) => Err(ConfigDriveParseError::PartType {
                key: "user_data",
                expected: "a string, an object, a list or null",
            }),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            UserData::Text(text) => text.as_bytes().to_vec(),
            UserData::Document(value) => value.to_string().into_bytes(),
        }
    }
}

// === packed images ===

/// Packs an image in the form that agents and clients exchange.
pub fn pack(image: &Content) -> io::Result<String> {
    let encoder = EncoderStringWriter::new(&STANDARD);
    // The image is mostly zeros, so the fastest level compresses nearly as well as the best.
    let mut gzip = GzEncoder::new(encoder, Compression::fast());
    image.write_to(&mut gzip)?;
    gzip.flush()?;
    Ok(gzip.finish()?.into_inner())
}

/// Unpacks an image; memory is limited to the largest image plus its packed form.
pub fn unpack(packed: &str) -> Result<Vec<u8>, ConfigDriveUnpackError> {
    if packed.len() > MAX_PACKED_BYTES {
        return Err(ConfigDriveUnpackError::TooLarge);
    }
    let letters: Vec<u8> = packed.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let compressed = STANDARD.decode(&letters).map_err(ConfigDriveUnpackError::Base64)?;
    drop(letters);
    let mut image = Vec::new();
    let mut bounded = MultiGzDecoder::new(compressed.as_slice()).take(MAX_IMAGE_BYTES + 1);
    bounded.read_to_end(&mut image).map_err(ConfigDriveUnpackError::Gzip)?;
    if image.len() as u64 > MAX_IMAGE_BYTES {
        Err(ConfigDriveUnpackError::TooLarge)
    } else {
        Ok(image)
    }
}

/// Detects the format by the signatures of ISO 9660 and FAT.
pub fn detect_format(image: &[u8]) -> DriveFormat {
    let is_iso = image.get(0x8001..0x8006) == Some(b"CD001");
    let fat_name = |at: usize| image.get(at..at + 3) == Some(b"FAT");
    if is_iso {
        DriveFormat::Iso9660
    } else if image.get(510..512) == Some(&[0x55, 0xAA]) && (fat_name(54) || fat_name(82)) {
        DriveFormat::Fat
    } else {
        DriveFormat::Unknown
    }
}

fn is_base64_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=\n\r\t ".contains(&byte)
}

fn json_object<'a>(
    key: &'static str,
    value: &'a Value,
) -> Result<&'a Map<String, Value>, ConfigDriveParseError> {
    value.as_object().ok_or(ConfigDriveParseError::PartType { key, expected: "an object" })
}

fn json_bytes(document: Option<&Map<String, Value>>) -> Vec<u8> {
    let Some(document) = document.filter(|document| !document.is_empty()) else {
        return Vec::new();
    };
    serde_json::to_vec(document).expect("a JSON object can be written as JSON")
}

#[cfg(test)]
mod tests;
