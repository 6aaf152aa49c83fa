// SPDX-License-Identifier: Apache-2.0
//! What can be asked of the cache, and what makes two requests the same.

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::CacheSettings;
use crate::checksum::{Checksum, Expected};
use crate::credentials::Credentials;
use crate::format::Format;
use crate::hex;
use crate::signature::{Policy, PublicKey};
use crate::source::Source;

/// An image that somebody wants.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where it is.
    pub source: Source,
    /// What it is for.
    pub kind: Kind,
    /// What is known of its checksum, which is that of the bytes at the source.
    pub checksum: Option<Expected>,
    /// What it was said to be.
    pub declared: Option<Format>,
    /// How it should be.
    pub wanted: Wanted,
    /// Who we are at its server.
    pub credentials: Option<Credentials>,
    /// Where its signature is, if not next to it with `.sig` after its name.
    pub signature: Option<Source>,
    /// The architecture of the machine it is for, to choose from a registry's index.
    pub architecture: Option<String>,
}

/// What an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A kernel to boot.
    Kernel,
    /// The ramdisk it boots with.
    Ramdisk,
    /// What is written to a disk. Only permitted formats.
    DiskImage,
    /// A CD to boot. Only ISOs.
    Iso,
}

/// How an image should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// As it is at its source.
    AsIs,
    /// Unpacked, and as it lies on a disk.
    Raw,
}

/// Whose signatures are needed for what.
#[derive(Debug, Clone, Default)]
pub struct Signatures {
    /// Who may sign.
    pub keys: Vec<PublicKey>,
    /// Whether kernels must be signed.
    pub kernel: Policy,
    /// Whether ramdisks must be signed.
    pub ramdisk: Policy,
    /// Whether disk images must be signed.
    pub disk_image: Policy,
    /// Whether boot CDs must be signed.
    pub iso: Policy,
}

/// What two requests have in common when one answer serves both.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Key(pub(super) String);

impl Request {
    /// A request for an image as it is, about which nothing more is known.
    pub fn new(source: Source, kind: Kind) -> Self {
        Self {
            source,
            kind,
            checksum: None,
            declared: None,
            wanted: Wanted::AsIs,
            credentials: None,
            signature: None,
            architecture: None,
        }
    }

    /// The key of this request with what is known from itself.
    pub(super) fn key(&self, salt: &[u8; 32], settings: &CacheSettings) -> Key {
        let checksum = self.checksum.as_ref().map(|expected| match expected {
            Expected::Is(checksum) => checksum.to_string(),
            Expected::In(url) => url.to_string(),
        });
        self.make_key(salt, settings, self.wanted, &checksum.unwrap_or_default())
    }

    /// The key under which the answer is kept, once the checksums are known.
    pub(super) fn record_key(
        &self,
        salt: &[u8; 32],
        settings: &CacheSettings,
        wanted: Wanted,
        checksums: &[Checksum],
    ) -> Key {
        let checksums: Vec<String> = checksums.iter().map(ToString::to_string).collect();
        self.make_key(salt, settings, wanted, &checksums.join(" "))
    }

    /// Everything that decides what the answer is, or who may have it: another password is another
    /// request, or somebody who has none would be given what only others may read.
    fn make_key(
        &self,
        salt: &[u8; 32],
        settings: &CacheSettings,
        wanted: Wanted,
        checksums: &str,
    ) -> Key {
        let policy = settings.signatures.policy(self.kind);
        let mut parts = vec![
            exact(&self.source),
            format!("{:?} {wanted:?} {policy:?} {:?}", self.kind, self.declared),
            checksums.to_owned(),
            self.architecture.clone().unwrap_or_default(),
        ];
        match &self.credentials {
            Some(Credentials::Basic { user, password }) => {
                parts.extend(["basic".to_owned(), user.clone(), password.clone()]);
            }
            Some(Credentials::Header(header)) => {
                parts.extend(["header".to_owned(), header.clone()])
            }
            None => parts.push("nobody".to_owned()),
        }
        // What was let in by other rules is looked at anew.
        parts.push(format!("{:?}", settings.limits));
        match self.kind {
            Kind::DiskImage => parts.push(format!("{:?}", settings.permitted)),
            Kind::Kernel | Kind::Ramdisk | Kind::Iso => {}
        }
        match &self.source {
            Source::File(_) => parts.push(format!("{:?}", settings.files)),
            Source::Http(_) | Source::Oci(_) => {}
        }
        if policy != Policy::Off {
            parts.push(self.signature.as_ref().map(exact).unwrap_or_default());
            parts.extend(settings.signatures.keys.iter().map(|key| hex::encode(key.bytes())));
        }
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, salt));
        for part in &parts {
            // Lengths first, so that no two lists of parts are the same bytes.
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        Key(hex::encode(context.sign().as_ref()))
    }
}

impl Signatures {
    /// Whether images of this kind must be signed.
    pub(super) fn policy(&self, kind: Kind) -> Policy {
        match kind {
            Kind::Kernel => self.kernel,
            Kind::Ramdisk => self.ramdisk,
            Kind::DiskImage => self.disk_image,
            Kind::Iso => self.iso,
        }
    }
}

/// A source with everything in it, also what is not for people.
fn exact(source: &Source) -> String {
    match source {
        Source::Http(url) => url.to_string(),
        // Not every path is text: what is not is escaped.
        Source::File(path) => format!("{path:?}"),
        Source::Oci(reference) => reference.to_string(),
    }
}
