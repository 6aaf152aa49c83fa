// SPDX-License-Identifier: Apache-2.0
//! qcow2 images, QEMU's format, read by ourselves.
//!
//! Only what a disk image for a machine needs: the active layer of a self-contained image,
//! versions 2 and 3, with zlib or zstd clusters. An image that names other files (a backing file,
//! an external data file) is refused: whoever opened those would give away any file of this
//! machine. So are encrypted ones, and ones with features not known here.

mod header;
mod reader;
#[cfg(test)]
mod tests;

pub use header::{Header, Qcow2Error};
pub use reader::{Cluster, Unpacker};
pub(crate) use reader::{ConvertError, convert};
