// SPDX-License-Identifier: Apache-2.0
//! Recordings of BMCs: everything a service shows, in one file, without anything that identifies
//! the machine or its owner.
//!
//! A recording is how a user reports that Ferrite and their hardware do not get on, and what the
//! tests replay as that hardware ever after. Making one only ever reads. What identifies the
//! machine is replaced by stand-ins that still agree with each other, so links keep leading where
//! they led.

mod kinds;
mod patterns;
mod sanitise;
mod stand_in;
mod walk;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Client, Error};

pub use sanitise::sanitise;

/// The version of the file that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// What a BMC showed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The version of the form of this file.
    #[serde(rename = "ferrite_recording")]
    pub version: u32,
    /// What was recorded.
    #[serde(default)]
    pub about: About,
    /// The resources by path. Paths have no slash at the end.
    pub resources: BTreeMap<String, Recorded>,
    /// What was seen to exist and is not here, by path, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, String>,
}

/// Which kind of machine a recording is of. Empty where the BMC did not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Who made it.
    pub vendor: String,
    /// Which model it is.
    pub model: String,
    /// The version of the BMC's firmware.
    pub firmware: String,
    /// The version of Redfish it says it speaks.
    pub redfish_version: String,
}

/// One answer of the BMC's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// The HTTP status.
    pub status: u16,
    /// The headers that matter to a client: `etag` and `allow`, names in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body; null if it was empty or not JSON.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("the recording {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("the recording {} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is no recording.
    #[error("{} is not a recording", path.display())]
    NotOne {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The file was written by a newer Ferrite.
    #[error("the recording {} has version {version}, and only {VERSION} can be read", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// Walks the whole service, reading only, and gives what it shows without what identifies it.
/// `progress` is told how many resources have been read so far.
pub async fn record(client: &Client, progress: impl FnMut(usize)) -> Result<Recording, Error> {
    let walked = walk::walk(client, progress).await?;
    Ok(sanitise(walked))
}

impl Recording {
    /// Reads a recording from a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = std::fs::read(path)
            .map_err(|source| FileError::Read { path: path.to_owned(), source })?;
        let recording: Self = serde_json::from_slice(&bytes)
            .map_err(|source| FileError::NotOne { path: path.to_owned(), source })?;
        if recording.version == VERSION {
            Ok(recording)
        } else {
            Err(FileError::Version { path: path.to_owned(), version: recording.version })
        }
    }

    /// Writes the recording to a file, in a form whose differences read well.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        std::fs::write(path, self.to_text())
            .map_err(|source| FileError::Write { path: path.to_owned(), source })
    }

    /// The recording as it stands in a file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("a recording is made of JSON and maps of texts");
        text.push('\n');
        text
    }

    /// The first resource whose type is this, whichever version of it.
    fn first_of(&self, kind: &str) -> Option<&Value> {
        let prefix = format!("#{kind}.");
        self.resources.values().map(|recorded| &recorded.body).find(|body| {
            let found = body.get("@odata.type").and_then(Value::as_str).unwrap_or_default();
            found.starts_with(&prefix) && !found.contains("Collection")
        })
    }

    /// What the resources say about the kind of machine.
    fn describe(&self) -> About {
        let text = |body: Option<&Value>, key: &str| {
            body.and_then(|body| body.get(key)?.as_str()).unwrap_or_default().trim().to_owned()
        };
        let (system, root) = (self.first_of("ComputerSystem"), self.first_of("ServiceRoot"));
        let mut vendor = text(system, "Manufacturer");
        if vendor.is_empty() {
            vendor = text(root, "Vendor");
        }
        About {
            vendor,
            model: text(system, "Model"),
            firmware: text(self.first_of("Manager"), "FirmwareVersion"),
            redfish_version: text(root, "RedfishVersion"),
        }
    }
}
