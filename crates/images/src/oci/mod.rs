// SPDX-License-Identifier: Apache-2.0
//! Images in container registries: which blob an `oci://` address means, and how to get it.
//!
//! A tag or digest leads to a manifest, perhaps through an index with one for each architecture
//! and disk format; an image's manifest has one layer, and that is the image. Everything that has
//! a digest is checked against it, so what comes is what the address (or the tag, at this moment)
//! says it is.

mod auth;
mod manifest;
mod reference;
mod registry;

pub use reference::Reference;
pub(crate) use registry::{Wish, resolve};

use crate::fetch::FetchError;

/// Why an `oci://` address leads to no image.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// The registry cannot be asked.
    #[error("the registry cannot be asked")]
    Fetch(#[source] FetchError),
    /// The registry wants somebody else.
    #[error(
        "the registry {registry} does not let us read {repository}: give an image_pull_secret, or credentials for it in the Docker config.json"
    )]
    Denied {
        /// Which.
        registry: String,
        /// What of it.
        repository: String,
    },
    /// There is no such image.
    #[error("there is no {reference} in its registry: check the address")]
    NotFound {
        /// What was looked for.
        reference: String,
    },
    /// The registry says something that makes no sense.
    #[error("the registry's answer about {reference} makes no sense: {what}")]
    BadAnswer {
        /// What was asked for.
        reference: String,
        /// What is wrong.
        what: String,
    },
    /// What came is not what its digest says.
    #[error(
        "what the registry gave for {digest} has another digest ({actual}): somebody changed it"
    )]
    WrongDigest {
        /// What it should be.
        digest: String,
        /// What it is.
        actual: String,
    },
    /// The index has nothing for this machine.
    #[error(
        "{reference} has no disk image for {wanted} (it has: {there}): choose another tag, or name a manifest by its digest"
    )]
    NothingFits {
        /// What was asked for.
        reference: String,
        /// The architecture.
        wanted: String,
        /// What is there.
        there: String,
    },
    /// It is a container and no disk image.
    #[error(
        "{reference} has {layers} layers and a disk image has one: it is a container image, which only the bootc deploy interface takes"
    )]
    NotADiskImage {
        /// What was asked for.
        reference: String,
        /// How many layers it has.
        layers: usize,
    },
}
