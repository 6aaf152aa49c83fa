// SPDX-License-Identifier: Apache-2.0
//! Fetches, verifies, converts and caches the images that machines boot and run.
//!
//! [`ImageCache::get`] is the entry point: given the source of an image and what is known about it, it
//! returns a local file that is complete, has the expected checksum and signature and a permitted format,
//! and is not evicted until the [`CachedImage`] is dropped. The parts:
//!
//! * [`ImageSource`] is the URL of an image (`http(s)://`, `file://`, `oci://`), and [`FilePolicy`] limits
//!   which local files may be served;
//! * [`ExpectedChecksum`] is a checksum, or the URL of a checksum file;
//! * [`ImageFormat`] is detected from the content, not from the name;
//! * [`qcow2`] reads qcow2 and rejects images that reference other files;
//! * [`ResumableDownload`] downloads a file and resumes after interruptions; the agent uses it too;
//! * [`signature`] verifies detached signatures with configured keys.
//!
//! Images are untrusted. Lengths, offsets and names in them are checked, sizes are limited before memory
//! or disk is allocated, and invalid input is an error, never a panic.
//!
//! This crate depends on neither nodes, the database nor HTTP servers.

mod cache;
mod checksum;
mod credentials;
mod decompress;
mod download;
mod fetch;
mod format;
mod network_policy;
mod oci;
pub mod qcow2;
pub mod signature;
mod sink;
mod source;
mod tls;
mod writer;

pub use cache::{
    CacheContents, CacheOpenError, CacheRequest, CacheSettings, CachedImage, CachedImageInfo,
    ImageCache, ImageError, ImageKind, ImageLimits, ImageProblem, SignatureSettings, TargetFormat,
};
pub use checksum::{
    Checksum, ChecksumAlgorithm, ChecksumError, ExpectedChecksum, find_in_checksum_file,
};
pub use credentials::{DockerConfig, DockerConfigError, ImageCredentials};
pub use decompress::{DecompressError, decompressing_reader};
pub use download::{
    ChangedFilePolicy, ContentVersion, DownloadFailure, DownloadMessage, DownloadOutcome,
    DownloadRetryPolicy, RequestFailure, ResumableDownload, content_range,
};
pub use fetch::{FetchError, FetchSettings, Fetcher};
pub use format::{Compression, FormatError, ImageFormat};
pub use network_policy::ImageNetworkPolicy;
pub use oci::{OciError, OciReference};
pub use sink::SinkError;
pub use source::{FilePolicy, ImageSource, ImageSourceError, redacted_url};
pub use tls::{ImageServerTrust, TlsTrustError};
