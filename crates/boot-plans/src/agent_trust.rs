// SPDX-License-Identifier: Apache-2.0
//! CA certificates for agents, as an archive in front of their ramdisk.
//!
//! The kernel unpacks all archives of a ramdisk, one after the other. This one comes first, uncompressed:
//! what follows a compressed archive is not found with every compression format. Our agent reads
//! `/etc/ferrite/server-ca.pem`. ironic-python-agent knows one bundle, `cafile`, and downloads images with
//! it too, so its bundle also has the CA certificates of this host.

use std::io;
use std::sync::Arc;

use boot_media::Content;
use bytes::Bytes;
use cpio::newc;
use node_model::{BootPlan, BootPurpose};
use sha2::{Digest as _, Sha256};

use crate::plan_files::{PlanFiles, ServedFile};
use crate::services::BootServices;

const DIRECTORY: u32 = 0o040_755;
const REGULAR_FILE: u32 = 0o100_644;
/// Archives are padded to this size, as other tools do.
const ARCHIVE_UNIT: usize = 512;
const BUNDLE_FILE: &str = "etc/ferrite/ca-bundle.pem";
/// The configuration of ironic-python-agent. Ramdisks start it with `--config-dir` and one of the first
/// directories; the last is the default of oslo.config.
const AGENT_CONFIGS: [&str; 3] = [
    "etc/ironic-python-agent.d/ferrite-ca.conf",
    "etc/ironic-python-agent/ferrite-ca.conf",
    "etc/ironic-python-agent.conf.d/ferrite-ca.conf",
];

/// The CA certificates with which agents verify the API and the file service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTrust {
    /// The certificates (PEM).
    pub certificates: String,
    /// These and all others that agents need for downloads (PEM).
    pub bundle: String,
}

/// The archive with the certificates.
#[derive(Clone)]
pub(crate) struct AgentTrustArchive {
    bytes: Bytes,
    digest: String,
    certificates: Arc<str>,
}

impl BootServices {
    /// Sets the CA certificates for agents. Must be called before any machine boots.
    pub fn set_agent_trust(&self, trust: &AgentTrust) {
        // A second call has no effect.
        let _ = self.0.plan_files.agent_trust().set(AgentTrustArchive::new(trust));
    }
}

impl AgentTrustArchive {
    fn new(trust: &AgentTrust) -> Self {
        let bytes = build_archive(trust).expect("writing to memory does not fail");
        let digest = hex::encode(&Sha256::digest(&bytes)[..8]);
        Self { bytes: bytes.into(), digest, certificates: trust.certificates.as_str().into() }
    }

    /// The archive, for the ramdisks of a unified kernel image.
    pub(crate) fn content(&self) -> Content {
        Content::from(self.bytes.clone())
    }
}

impl PlanFiles {
    /// The CA certificates for the agent of a plan; `None` if the plan boots no agent.
    pub(crate) fn trust_of(&self, plan: &BootPlan) -> Option<&AgentTrustArchive> {
        match plan.purpose {
            BootPurpose::DeployRamdisk
            | BootPurpose::InspectionRamdisk
            | BootPurpose::RescueRamdisk => self.agent_trust().get(),
            BootPurpose::Installer | BootPurpose::Instance => None,
        }
    }

    /// The CA certificates (PEM) that verify the API, if clients do not know its issuer.
    pub(crate) fn api_certificates(&self) -> Option<&str> {
        self.agent_trust().get().map(|trust| &*trust.certificates)
    }
}

/// Puts the CA certificates in front of a ramdisk.
pub(crate) fn with_trust(ramdisk: ServedFile, trust: Option<&AgentTrustArchive>) -> ServedFile {
    let Some(trust) = trust else { return ramdisk };
    let mut content = trust.content();
    content.append(&ramdisk.content);
    let etag = format!("{}-{}", ramdisk.etag, trust.digest);
    ramdisk.with_content(content, etag)
}

fn build_archive(trust: &AgentTrust) -> io::Result<Vec<u8>> {
    let config =
        format!("# Written by the boot services of Ferrite.\n[DEFAULT]\ncafile = /{BUNDLE_FILE}\n");
    let mut files = vec![
        ("etc/ferrite/server-ca.pem", trust.certificates.as_str()),
        (BUNDLE_FILE, trust.bundle.as_str()),
    ];
    files.extend(AGENT_CONFIGS.map(|path| (path, config.as_str())));
    let mut archive = Vec::new();
    let mut inodes = 1..;
    let mut directories: Vec<&str> = Vec::new();
    for (path, text) in files {
        for (at, _) in path.match_indices('/') {
            let directory = &path[..at];
            if directories.contains(&directory) {
                continue;
            }
            directories.push(directory);
            let header = newc::Builder::new(directory).mode(DIRECTORY).nlink(2);
            let header = header.ino(inodes.next().unwrap_or_default());
            archive = header.write(archive, 0).finish()?;
        }
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        let header = newc::Builder::new(path).mode(REGULAR_FILE).nlink(1);
        let mut writer = header.ino(inodes.next().unwrap_or_default()).write(archive, length);
        io::Write::write_all(&mut writer, text.as_bytes())?;
        archive = writer.finish()?;
    }
    archive = newc::trailer(archive)?;
    archive.resize(archive.len().next_multiple_of(ARCHIVE_UNIT), 0);
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn archive_contains_certificates_and_agent_configuration() {
        let trust = AgentTrust { certificates: "ca".to_owned(), bundle: "ca and more".to_owned() };
        let archive = AgentTrustArchive::new(&trust);
        assert_eq!(archive.bytes.len() % ARCHIVE_UNIT, 0);
        let mut files = BTreeMap::new();
        let mut rest = &archive.bytes[..];
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            // The kernel creates no missing directories.
            if let Some((directory, _)) = name.rsplit_once('/') {
                assert!(files.contains_key(directory), "{directory}");
            }
            files.insert(name, (mode, text));
            rest = reader.finish().unwrap();
        }
        let file = |text: &str| (REGULAR_FILE, text.to_owned());
        assert_eq!(files["etc/ferrite/server-ca.pem"], file("ca"));
        assert_eq!(files["etc/ferrite/ca-bundle.pem"], file("ca and more"));
        assert_eq!(files["etc/ferrite"], (DIRECTORY, String::new()));
        for config in AGENT_CONFIGS {
            let (_, text) = &files[config];
            assert!(text.ends_with("[DEFAULT]\ncafile = /etc/ferrite/ca-bundle.pem\n"), "{text}");
        }
    }
}
