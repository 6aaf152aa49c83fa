// SPDX-License-Identifier: Apache-2.0
//! The cache against web servers that behave and that do not, against files, and against itself.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod downloads;
mod keeping;
mod registry;
mod secure;
mod server;
mod verifying;

use std::path::Path;
use std::time::Duration;

use images::{Cache, CacheSettings, Error, Expected, FetchSettings, Kind, Request, Source};

/// Settings that do not pause, and wait for as long as a busy machine may take to answer.
fn settings(folder: &Path) -> CacheSettings {
    let fetch = FetchSettings { attempts: 4, pause: Duration::ZERO, ..FetchSettings::default() };
    CacheSettings { fetch, ..CacheSettings::new(folder.to_owned()) }
}

fn open(folder: &Path) -> Cache {
    Cache::open(settings(folder)).unwrap()
}

/// A disk image at this address.
fn disk(url: &str) -> Request {
    Request::new(Source::parse(url).unwrap(), Kind::DiskImage)
}

/// The same, with its checksum.
fn disk_of(url: &str, content: &[u8]) -> Request {
    let checksum = Some(Expected::parse(&sha256(content)).unwrap());
    Request { checksum, ..disk(url) }
}

fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that do not repeat soon.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// An error with its causes, as an operator sees it.
fn words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// How many files are in a folder of the cache.
fn count(folder: &Path, name: &str) -> usize {
    std::fs::read_dir(folder.join(name)).unwrap().count()
}
