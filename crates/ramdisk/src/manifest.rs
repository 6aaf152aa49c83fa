// SPDX-License-Identifier: Apache-2.0
//! What is in a ramdisk, told in a file beside it, and where a ramdisk is found again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::compress::Compression;
use crate::digest;

/// The names of what is made.
pub(crate) const KERNEL: &str = "kernel";
pub(crate) const RAMDISK: &str = "ramdisk";
pub(crate) const MANIFEST: &str = "ramdisk.toml";

/// What is in a ramdisk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The program that made it.
    pub made_by: String,
    /// The set of drivers.
    pub drivers: String,
    /// The version of the kernel, as `uname -r` says.
    pub kernel_version: String,
    /// Where the kernel is from.
    pub kernel_origin: String,
    /// The machines it is for, as `uname -m` says.
    pub architecture: String,
    /// How the ramdisk is compressed.
    pub compression: Compression,
    /// Bytes of the ramdisk when the kernel has unpacked it, which is the memory it takes.
    pub unpacked_size: u64,
    /// The programs in it besides the agent, and where they are from.
    pub programs: BTreeMap<String, String>,
    /// The modules in it, by name.
    pub modules: Vec<String>,
    /// The modules that the agent loads at once, in that order.
    pub load_first: Vec<String>,
    /// The modules that the agent loads when there is time.
    pub load_later: Vec<String>,
    /// The firmware in it, by path below `/lib/firmware`.
    pub firmware: Vec<String>,
    /// The kernel.
    pub kernel: Facts,
    /// The ramdisk.
    pub ramdisk: Facts,
    /// The agent.
    pub agent: Facts,
    /// What it should have and has not.
    pub missing: Missing,
}

/// Size and checksum of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Bytes.
    pub size: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}

/// What a ramdisk should have and has not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Modules that the kernel does not have.
    pub modules: Vec<String>,
    /// Programs that were not found, and why.
    pub programs: BTreeMap<String, String>,
    /// Programs that scripts in it are run by and that are not in it, by script.
    pub interpreters: BTreeMap<String, String>,
    /// Firmware by driver. Most drivers name more than one machine ever needs.
    pub firmware: BTreeMap<String, Vec<String>>,
}

/// A ramdisk that was built before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The kernel.
    pub kernel: PathBuf,
    /// The ramdisk.
    pub ramdisk: PathBuf,
    /// What is in it, if that was told.
    pub manifest: Option<Manifest>,
}

/// Looks for a kernel and a ramdisk in a folder.
pub fn find(folder: &Path) -> Option<Found> {
    let (kernel, ramdisk) = (folder.join(KERNEL), folder.join(RAMDISK));
    if !kernel.is_file() || !ramdisk.is_file() {
        return None;
    }
    let told = std::fs::read_to_string(folder.join(MANIFEST)).ok();
    let manifest = told.and_then(|text| toml::from_str(&text).ok());
    Some(Found { kernel, ramdisk, manifest })
}

impl Facts {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { size: bytes.len() as u64, sha256: digest::sha256(bytes) }
    }
}
