// SPDX-License-Identifier: Apache-2.0
//! Resolves `oci://` references to the blob of a disk image in a container registry.
//!
//! A tag or digest resolves to a manifest, possibly through an index with manifests by architecture and
//! disk format. The manifest of a disk image has one layer, which is the image. Everything that has a
//! digest is verified against it.

mod auth;
mod container_signature;
mod manifest;
mod reference;
mod registry;

pub(crate) use container_signature::{ContainerSignature, verify_container};
pub use reference::OciReference;
use reference::parse_digest;
pub(crate) use registry::{OciRequest, resolve};

use crate::fetch::FetchError;

/// Why an `oci://` reference cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// The request to the registry failed.
    #[error("the request to the registry failed")]
    Fetch(#[source] FetchError),
    /// The credentials are missing or rejected.
    #[error(
        "the registry {registry} denies access to {repository}: set an image_pull_secret, or credentials for it in the Docker config.json"
    )]
    Denied {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
    },
    /// The image does not exist.
    #[error("{reference} does not exist in its registry: check the reference")]
    NotFound {
        /// The reference.
        reference: String,
    },
    /// The response is invalid.
    #[error("the registry sent an invalid response for {reference}: {what}")]
    InvalidResponse {
        /// The reference.
        reference: String,
        /// The problem.
        what: String,
    },
    /// The digest of the content differs.
    #[error(
        "the registry's content for {digest} has another digest ({actual}): it was changed or damaged"
    )]
    WrongDigest {
        /// The expected digest.
        digest: String,
        /// The digest of the content.
        actual: String,
    },
    /// The index has no image for this machine.
    #[error(
        "{reference} has no disk image for {wanted} (it has: {there}): choose another tag, or name a manifest by its digest"
    )]
    NoMatchingManifest {
        /// The reference.
        reference: String,
        /// The architecture.
        wanted: String,
        /// The available images.
        there: String,
    },
    /// It is a container image, not a disk image.
    #[error(
        "{reference} has {layers} layers and a disk image has one: it is a container image, which only the bootc deploy interface supports"
    )]
    NotADiskImage {
        /// The reference.
        reference: String,
        /// The number of layers.
        layers: usize,
    },
}
