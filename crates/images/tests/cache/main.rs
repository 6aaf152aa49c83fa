// SPDX-License-Identifier: Apache-2.0
//! The cache with correct and faulty web servers, with local files, and with concurrent requests.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod downloads;
mod registry;
mod server;
mod storage;
mod tls;
mod verification;

use std::path::Path;
use std::time::Duration;

use images::{
    CacheRequest, CacheSettings, ExpectedChecksum, FetchSettings, ImageCache, ImageError,
    ImageKind, ImageNetworkPolicy, ImageSource,
};

/// Settings that do not pause, and wait long enough for a busy machine.
fn settings(folder: &Path) -> CacheSettings {
    let fetch = FetchSettings {
        network: ImageNetworkPolicy { allow_local: true },
        max_attempts: 4,
        retry_delay: Duration::ZERO,
        ..FetchSettings::default()
    };
    CacheSettings { fetch, ..CacheSettings::new(folder.to_owned()) }
}

fn open(folder: &Path) -> ImageCache {
    ImageCache::open(settings(folder)).unwrap()
}

/// A request for the disk image at this URL.
fn disk_request(url: &str) -> CacheRequest {
    CacheRequest::new(ImageSource::parse(url).unwrap(), ImageKind::DiskImage)
}

/// A request for the disk image at this URL with this checksum.
fn disk_request_with_checksum(url: &str, content: &[u8]) -> CacheRequest {
    let checksum = Some(ExpectedChecksum::parse(&sha256(content)).unwrap());
    CacheRequest { checksum, ..disk_request(url) }
}

fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes with a long period.
fn test_bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Formats an error with its causes, as for operators.
fn error_text(error: &ImageError) -> String {
    error_chain::error_chain(error)
}

/// The number of files in a folder of the cache.
fn file_count(folder: &Path, name: &str) -> usize {
    std::fs::read_dir(folder.join(name)).unwrap().count()
}
