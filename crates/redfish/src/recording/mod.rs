// SPDX-License-Identifier: Apache-2.0
//! Recordings of BMCs: all resources of a service in one file, without anything that identifies the
//! machine or its owner.
//!
//! Users attach a recording to a report about their hardware, and tests replay it as that hardware.
//! Recording only reads. Identifying values are replaced consistently, so that links stay valid.

mod crawl;
mod patterns;
mod replacements;
mod sanitise;
mod sensitive_keys;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{RedfishClient, RedfishError};

pub use sanitise::sanitise;

/// The file format version that is written, and the only one that can be read.
pub const VERSION: u32 = 1;

/// The resources of a BMC.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BmcRecording {
    /// The file format version.
    #[serde(rename = "ferrite_recording")]
    pub version: u32,
    /// The kind of machine.
    #[serde(default)]
    pub about: RecordedMachine,
    /// The resources by path, without a trailing slash.
    pub resources: BTreeMap<String, RecordedResponse>,
    /// Paths that exist but are not in the recording, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, String>,
}

/// The kind of machine. Fields are empty if the BMC does not report them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedMachine {
    /// The manufacturer.
    pub vendor: String,
    /// The model.
    pub model: String,
    /// The version of the BMC's firmware.
    pub firmware: String,
    /// The reported Redfish version.
    pub redfish_version: String,
}

/// One response of the BMC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedResponse {
    /// The HTTP status.
    pub status: u16,
    /// The relevant headers, `etag` and `allow`, with lower-case names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body; null if it was empty or not JSON.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingFileError {
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
    /// The file is not a recording.
    #[error("{} is not a recording", path.display())]
    NotOne {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// The file has another format version.
    #[error("the recording {} has version {version}, and only {VERSION} can be read", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// Reads all resources of the service and removes what identifies the machine. `progress` is called
/// with the number of resources read so far.
pub async fn record(
    client: &RedfishClient,
    progress: impl FnMut(usize),
) -> Result<BmcRecording, RedfishError> {
    let walked = crawl::walk(client, progress).await?;
    Ok(sanitise(walked))
}

impl BmcRecording {
    /// Reads a recording from a file.
    pub fn read(path: &Path) -> Result<Self, RecordingFileError> {
        let bytes = std::fs::read(path)
            .map_err(|source| RecordingFileError::Read { path: path.to_owned(), source })?;
        let recording: Self = serde_json::from_slice(&bytes)
            .map_err(|source| RecordingFileError::NotOne { path: path.to_owned(), source })?;
        if recording.version == VERSION {
            Ok(recording)
        } else {
            Err(RecordingFileError::Version { path: path.to_owned(), version: recording.version })
        }
    }

    /// Writes the recording to a file, formatted for diffs.
    pub fn write(&self, path: &Path) -> Result<(), RecordingFileError> {
        std::fs::write(path, self.to_text())
            .map_err(|source| RecordingFileError::Write { path: path.to_owned(), source })
    }

    /// The content of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("a recording is made of JSON and maps of texts");
        text.push('\n');
        text
    }

    /// The first resource of this type, in any version.
    fn first_of(&self, kind: &str) -> Option<&Value> {
        let prefix = format!("#{kind}.");
        self.resources.values().map(|recorded| &recorded.body).find(|body| {
            let found = body.get("@odata.type").and_then(Value::as_str).unwrap_or_default();
            found.starts_with(&prefix) && !found.contains("Collection")
        })
    }

    /// The kind of machine, from its resources.
    fn describe(&self) -> RecordedMachine {
        let text = |body: Option<&Value>, key: &str| {
            body.and_then(|body| body.get(key)?.as_str()).unwrap_or_default().trim().to_owned()
        };
        let (system, root) = (self.first_of("ComputerSystem"), self.first_of("ServiceRoot"));
        let mut vendor = text(system, "Manufacturer");
        if vendor.is_empty() {
            vendor = text(root, "Vendor");
        }
        RecordedMachine {
            vendor,
            model: text(system, "Model"),
            firmware: text(self.first_of("Manager"), "FirmwareVersion"),
            redfish_version: text(root, "RedfishVersion"),
        }
    }
}
