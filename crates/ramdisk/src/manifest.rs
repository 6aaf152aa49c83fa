// SPDX-License-Identifier: Apache-2.0
//! The manifest of a ramdisk, stored beside it, and the search for a built ramdisk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::compress::RamdiskCompression;
use crate::digest;

/// The names of the output files.
pub(crate) const KERNEL: &str = "kernel";
pub(crate) const RAMDISK: &str = "ramdisk";
pub(crate) const MANIFEST: &str = "ramdisk.toml";

/// The content of a ramdisk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RamdiskManifest {
    /// The program that built it.
    pub made_by: String,
    /// The driver profile.
    pub drivers: String,
    /// The kernel version, as in `uname -r`.
    pub kernel_version: String,
    /// The origin of the kernel.
    pub kernel_origin: String,
    /// The architecture, as in `uname -m`.
    pub architecture: String,
    /// The compression of the ramdisk.
    pub compression: RamdiskCompression,
    /// Unpacked size in bytes, which is the memory the ramdisk takes.
    pub unpacked_size: u64,
    /// The external programs and their origins.
    pub programs: BTreeMap<String, String>,
    /// The names of the modules.
    pub modules: Vec<String>,
    /// The modules that the agent loads at start, in this order.
    pub load_first: Vec<String>,
    /// The modules that the agent loads after those of the devices.
    pub load_later: Vec<String>,
    /// The firmware files, relative to `/lib/firmware`.
    pub firmware: Vec<String>,
    /// The kernel.
    pub kernel: FileDigest,
    /// The ramdisk.
    pub ramdisk: FileDigest,
    /// The agent.
    pub agent: FileDigest,
    /// Parts that were requested and not found.
    pub missing: MissingParts,
}

/// Size and checksum of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}

/// Parts that were requested and not found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingParts {
    /// Modules that the kernel does not have.
    pub modules: Vec<String>,
    /// Programs, with the reason.
    pub programs: BTreeMap<String, String>,
    /// Missing interpreters, by script.
    pub interpreters: BTreeMap<String, String>,
    /// Firmware files by driver. Most drivers list more files than one machine needs.
    pub firmware: BTreeMap<String, Vec<String>>,
}

/// A built ramdisk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltRamdisk {
    /// The path of the kernel.
    pub kernel: PathBuf,
    /// The path of the ramdisk.
    pub ramdisk: PathBuf,
    /// The manifest, if it exists and is valid.
    pub manifest: Option<RamdiskManifest>,
}

/// Finds the kernel and the ramdisk in a directory.
pub fn find(folder: &Path) -> Option<BuiltRamdisk> {
    let (kernel, ramdisk) = (folder.join(KERNEL), folder.join(RAMDISK));
    if !kernel.is_file() || !ramdisk.is_file() {
        return None;
    }
    let text = std::fs::read_to_string(folder.join(MANIFEST)).ok();
    let manifest = text.and_then(|text| toml::from_str(&text).ok());
    Some(BuiltRamdisk { kernel, ramdisk, manifest })
}

impl FileDigest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { size: bytes.len() as u64, sha256: digest::sha256_hex(bytes) }
    }
}
