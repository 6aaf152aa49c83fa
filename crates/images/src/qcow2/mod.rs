// SPDX-License-Identifier: Apache-2.0
//! Reads qcow2 images in process.
//!
//! Supports what disk images of machines need: the active layer of a self-contained image, versions 2
//! and 3, with zlib or zstd clusters. Images that reference other files (a backing file, an external data
//! file) are rejected, since opening those could expose any file of this host. Encrypted images and
//! images with unknown features are rejected as well.

mod header;
mod reader;
#[cfg(test)]
mod tests;

pub use header::{Qcow2Error, Qcow2Header};
pub use reader::{ClusterDecompressor, Qcow2Cluster};
pub(crate) use reader::{Qcow2ConvertError, convert};
