// SPDX-License-Identifier: Apache-2.0
//! Signatures of containers, as cosign stores them: the tag `sha256-<digest>.sig` beside the container has
//! a manifest whose layers are signed texts, with the signature as annotation. A text names the digest of
//! the container that it was made for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use serde::Deserialize;

use super::manifest::ManifestContents;
use super::reference::OciReference;
use super::registry::{OciRequest, RegistrySession};
use super::{OciError, parse_digest};
use crate::checksum::{Checksum, ChecksumAlgorithm};
use crate::fetch::Fetcher;
use crate::signature::PublicKey;

/// The annotation with the signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Maximum number of signatures that are checked.
const MAX_SIGNATURES: usize = 32;

/// The signed text, in the format "simple signing".
#[derive(Deserialize)]
struct SignedText {
    critical: SignedClaims,
}

#[derive(Deserialize)]
struct SignedClaims {
    image: SignedImage,
}

#[derive(Deserialize)]
struct SignedImage {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// What is known about the signature of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContainerSignature {
    /// One of the keys has signed it.
    Valid,
    /// There are signatures, but none of these keys.
    Wrong,
    /// It is not signed. Contains the tag where the signature was expected.
    Missing(String),
}

/// Resolves the tag of a container to its digest, and verifies its signature.
pub(crate) async fn verify_container(
    fetcher: &Fetcher,
    wish: OciRequest<'_>,
    keys: &[PublicKey],
) -> Result<(OciReference, ContainerSignature), OciError> {
    let mut session = RegistrySession::new(fetcher, &wish)?;
    let digest = session.manifest_digest(&wish.reference.manifest_reference()).await?;
    let pinned = OciReference { digest: Some(digest.clone()), tag: None, ..wish.reference.clone() };
    let tag = format!("{}.sig", digest.to_string().replace(':', "-"));
    let layers = match session.manifest(&tag).await {
        Ok(ManifestContents::Manifest(layers)) => layers,
        Ok(ManifestContents::Index(_)) => {
            return Err(session.invalid_response("the signature is an index"));
        }
        Err(OciError::NotFound { .. }) => return Ok((pinned, ContainerSignature::Missing(tag))),
        Err(error) => return Err(error),
    };
    for layer in layers.iter().take(MAX_SIGNATURES) {
        let Some(signature) = layer.annotation(SIGNATURE) else { continue };
        let Ok(signature) = STANDARD.decode(signature.trim()) else { continue };
        let text = session.small_blob(&layer.digest).await?;
        let is_signed = keys.iter().any(|key| key.verifies(&signature, &text));
        if is_signed && signed_digest(&text).is_some_and(|signed| signed == digest) {
            return Ok((pinned, ContainerSignature::Valid));
        }
    }
    Ok((pinned, ContainerSignature::Wrong))
}

/// The digest of the container that a text is for.
fn signed_digest(text: &[u8]) -> Option<Checksum> {
    let text: SignedText = serde_json::from_slice(text).ok()?;
    parse_digest(&text.critical.image.digest).ok()
}

/// The SHA-256 of a manifest.
pub(super) fn sha256(body: &[u8]) -> Checksum {
    let actual = digest::digest(&digest::SHA256, body);
    Checksum::new(ChecksumAlgorithm::Sha256, actual.as_ref().to_vec())
}
