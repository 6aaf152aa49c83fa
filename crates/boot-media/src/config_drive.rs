// SPDX-License-Identifier: Apache-2.0
//! Config drives: telling their three forms apart, unpacking and packing the encoded one, and
//! building the `config-2` image from the JSON one.
//!
//! Fetching the form that is a URL is somebody else's work.

use std::io::{self, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderStringWriter;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

use crate::iso::{Iso, IsoError};
use crate::{Content, FileTree, PathError};

/// The label instances look for.
pub const LABEL: &str = "config-2";
/// The agent's partition for a config drive has this size, so nothing larger can be used.
pub const LARGEST_IMAGE: u64 = 64 * 1024 * 1024;

/// An incompressible image of the largest size in base64, with line breaks and some air.
const LONGEST_PACKED: usize = 96 * 1024 * 1024;
/// The versions of the metadata folder, as OpenStack's own tools write them.
const VERSIONS: [&str; 2] = ["2012-08-10", "latest"];

/// A config drive in one of its three forms, borrowed from the request or the record it stands in.
/// Not `Debug`, nor are its parts: they hold passwords and keys.
#[derive(Clone, PartialEq)]
pub enum ConfigDrive<'a> {
    /// Where to fetch the packed form from.
    Url(&'a str),
    /// An image, compressed with gzip, in base64.
    Packed(&'a str),
    /// The contents, to be built into an image.
    Parts(Parts<'a>),
}

/// The contents of a config drive. What is absent or empty gets no file.
#[derive(Clone, Default, PartialEq)]
pub struct Parts<'a> {
    /// `meta_data.json`.
    pub meta_data: Option<&'a Map<String, Value>>,
    /// `network_data.json`.
    pub network_data: Option<&'a Map<String, Value>>,
    /// `user_data`.
    pub user_data: Option<UserData<'a>>,
    /// `vendor_data2.json`.
    pub vendor_data: Option<&'a Map<String, Value>>,
}

/// User data: text as it is, or a document to be written as JSON (Ignition, say).
#[derive(Clone, PartialEq)]
pub enum UserData<'a> {
    /// Text.
    Text(&'a str),
    /// A JSON object or list.
    Document(&'a Value),
}

/// Whose drive it is: what `meta_data.json` says where the request does not.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The node's UUID.
    pub uuid: &'a str,
    /// The node's name, if it has one.
    pub name: Option<&'a str>,
}

/// What an unpacked image is, as far as its first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// ISO 9660, the usual one.
    Iso9660,
    /// FAT, which OpenStack can be told to make.
    Fat,
    /// Neither: an instance will hardly find anything in it.
    Unknown,
}

/// Why something is not a config drive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfigDrive {
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
    /// An object with a key we do not know.
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
        /// Which part.
        key: &'static str,
        /// What it may be.
        expected: &'static str,
    },
}

/// Why a packed image could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// Not base64.
    #[error("the config drive is not valid base64")]
    Base64(#[source] base64::DecodeError),
    /// Not gzip, or damaged.
    #[error("the config drive is not a gzip stream, or a damaged one")]
    Gzip(#[source] io::Error),
    /// It unpacks to more than an agent can store.
    #[error("the config drive is larger than {} MiB when unpacked; make it smaller", LARGEST_IMAGE >> 20)]
    TooLarge,
}

/// Why an image could not be built from its parts.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Cannot happen with the paths we have.
    #[error("could not name a file of the config drive")]
    Path(#[from] PathError),
    /// The image could not be laid out.
    #[error("could not lay out the config drive")]
    Iso(#[from] IsoError),
    /// More than an agent can store.
    #[error("the config drive would be larger than {} MiB; shorten the user data", LARGEST_IMAGE >> 20)]
    TooLarge,
}

// === impl ConfigDrive ===

impl<'a> ConfigDrive<'a> {
    /// Tells which form a value has; nothing for `null` and for an empty string or object, which
    /// mean "no config drive".
    pub fn parse(value: &'a Value) -> Result<Option<ConfigDrive<'a>>, InvalidConfigDrive> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) if text.is_empty() => Ok(None),
            // A colon is no letter of base64.
            Value::String(text) if text.contains("://") => Ok(Some(ConfigDrive::Url(text))),
            Value::String(text) if text.bytes().all(is_base64_byte) => {
                Ok(Some(ConfigDrive::Packed(text)))
            }
            Value::String(_) => Err(InvalidConfigDrive::Text),
            Value::Object(parts) if parts.is_empty() => Ok(None),
            Value::Object(parts) => Parts::parse(parts).map(ConfigDrive::Parts).map(Some),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(InvalidConfigDrive::Type),
        }
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    /// Lays out the image labelled `config-2`.
    pub fn build(&self, owner: Owner<'_>) -> Result<Content, BuildError> {
        let mut meta_data = self.meta_data.cloned().unwrap_or_default();
        meta_data.entry("uuid").or_insert_with(|| owner.uuid.into());
        if let Some(name) = owner.name.filter(|name| !name.is_empty()) {
            meta_data.entry("name").or_insert_with(|| name.into());
        }
        let files = [
            ("meta_data.json", written(Some(&meta_data))),
            ("network_data.json", written(self.network_data)),
            ("vendor_data2.json", written(self.vendor_data)),
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
        let image = Iso::new(LABEL, tree).layout()?;
        if image.length() > LARGEST_IMAGE { Err(BuildError::TooLarge) } else { Ok(image) }
    }

    fn parse(object: &'a Map<String, Value>) -> Result<Parts<'a>, InvalidConfigDrive> {
        let mut parts = Parts::default();
        for (key, value) in object {
            match key.as_str() {
                "meta_data" => parts.meta_data = Some(document("meta_data", value)?),
                "network_data" => parts.network_data = Some(document("network_data", value)?),
                "vendor_data" => parts.vendor_data = Some(document("vendor_data", value)?),
                "user_data" => parts.user_data = UserData::parse(value)?,
                _ => return Err(InvalidConfigDrive::UnknownKey { key: key.clone() }),
            }
        }
        Ok(parts)
    }
}

impl<'a> UserData<'a> {
    fn parse(value: &'a Value) -> Result<Option<UserData<'a>>, InvalidConfigDrive> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(UserData::Text(text))),
            Value::Object(_) | Value::Array(_) => Ok(Some(UserData::Document(value))),
            Value::Bool(_) | Value::Number(_) => Err(InvalidConfigDrive::PartType {
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

/// Packs an image the way agents and clients exchange it.
pub fn pack(image: &Content) -> io::Result<String> {
    let encoder = EncoderStringWriter::new(&STANDARD);
    // Mostly zeros: the fastest level already takes nearly all there is to win.
    let mut gzip = GzEncoder::new(encoder, Compression::fast());
    image.write_to(&mut gzip)?;
    gzip.flush()?;
    Ok(gzip.finish()?.into_inner())
}

/// Unpacks an image; never holds more than the largest image plus its packed form.
pub fn unpack(packed: &str) -> Result<Vec<u8>, UnpackError> {
    if packed.len() > LONGEST_PACKED {
        return Err(UnpackError::TooLarge);
    }
    let letters: Vec<u8> = packed.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let compressed = STANDARD.decode(&letters).map_err(UnpackError::Base64)?;
    drop(letters);
    let mut image = Vec::new();
    let mut bounded = MultiGzDecoder::new(compressed.as_slice()).take(LARGEST_IMAGE + 1);
    bounded.read_to_end(&mut image).map_err(UnpackError::Gzip)?;
    if image.len() as u64 > LARGEST_IMAGE { Err(UnpackError::TooLarge) } else { Ok(image) }
}

/// Looks at the places where ISO 9660 and FAT announce themselves.
pub fn kind_of(image: &[u8]) -> ImageKind {
    let is_iso = image.get(0x8001..0x8006) == Some(b"CD001");
    let fat_name = |at: usize| image.get(at..at + 3) == Some(b"FAT");
    if is_iso {
        ImageKind::Iso9660
    } else if image.get(510..512) == Some(&[0x55, 0xAA]) && (fat_name(54) || fat_name(82)) {
        ImageKind::Fat
    } else {
        ImageKind::Unknown
    }
}

fn is_base64_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=\n\r\t ".contains(&byte)
}

fn document<'a>(
    key: &'static str,
    value: &'a Value,
) -> Result<&'a Map<String, Value>, InvalidConfigDrive> {
    value.as_object().ok_or(InvalidConfigDrive::PartType { key, expected: "an object" })
}

fn written(document: Option<&Map<String, Value>>) -> Vec<u8> {
    let Some(document) = document.filter(|document| !document.is_empty()) else {
        return Vec::new();
    };
    serde_json::to_vec(document).expect("a JSON object can be written as JSON")
}

#[cfg(test)]
mod tests;
