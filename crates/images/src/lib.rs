// SPDX-License-Identifier: Apache-2.0
//! Fetches, verifies, converts and caches the images that machines boot and run.
//!
//! [`Cache::get`] is the whole of it: given where an image comes from and what is known about it,
//! it answers with a file on this machine that is complete, has the checksum and the signature it
//! should have, is of a format that is allowed, and stays where it is until the [`Entry`] is
//! dropped. Everything else here serves that call:
//!
//! * [`Source`] says where an image is (`http(s)://`, `file://`, `oci://`) and [`FilePolicy`] which
//!   files of this machine may be given away;
//! * [`Expected`] is the checksum somebody wrote down, or the address of a checksum file;
//! * [`Format`] is what the bytes say they are, whatever the name claims;
//! * [`qcow2`] reads qcow2 and refuses what would lead it to other files;
//! * [`signature`] checks detached signatures against configured keys.
//!
//! Images come from strangers. Nothing here trusts a length, an offset or a name in one: sizes are
//! bounded before memory or disk is given, and what is wrong is an error and never a panic.
//!
//! This crate knows nothing of nodes, the database or HTTP servers.

mod cache;
mod checksum;
mod credentials;
mod decompress;
mod fetch;
mod format;
mod hex;
mod oci;
pub mod qcow2;
pub mod signature;
mod sink;
mod source;
mod tls;
mod writer;

pub use cache::{
    Cache, CacheSettings, Entry, Error, Kept, KeptImage, Kind, Limits, OpenError, Problem, Request,
    Signatures, Wanted,
};
pub use checksum::{Algorithm, Checksum, ChecksumError, Expected, find_in_file};
pub use credentials::{Credentials, DockerConfig, DockerConfigError};
pub use decompress::{DecompressError, decompressed};
pub use fetch::{FetchError, FetchSettings, Fetcher};
pub use format::{Compression, Format, FormatError};
pub use oci::{OciError, Reference};
pub use sink::SinkError;
pub use source::{FilePolicy, Source, SourceError};
pub use tls::{Trust, TrustError};
