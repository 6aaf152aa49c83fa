// SPDX-License-Identifier: Apache-2.0
//! The browser page and its assets.
//!
//! The files of `page/` are served as they are written: no build step stands between what is read
//! here and what a browser runs. They are embedded, compressed once, and named by a digest of all of
//! them (`@0123…/app/main.js`), so that browsers keep them for as long as they like and still never
//! mix two versions. Only `index.html`, which says the digest, is asked for every time.

mod modules;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Every file of `page/`, by its path there.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// What stands in `index.html` for the digest, and for the modules to fetch at once.
const VERSION_MARK: &str = "@version";
const MODULES_MARK: &str = "<!-- modules -->";

/// A file of the page, ready to be sent.
#[derive(Debug)]
pub struct Asset {
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// Its `ETag`, with quotes.
    pub etag: String,
    /// Its bytes.
    pub plain: Cow<'static, [u8]>,
    /// The same, compressed with gzip.
    pub gzip: Vec<u8>,
}

/// How long a browser may keep what it got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// For good: the path has the digest of its content.
    ForGood,
    /// Until it asks next time whether it is still the same.
    AskAgain,
}

/// The file under a path below `/ui/`, and how long it may be kept. A path with a digest finds its
/// file whatever the digest is, so that a page loaded before an upgrade can still load the rest of
/// itself; it is kept for good only if the digest is right. None where there is no such file.
#[must_use]
pub fn asset(path: &str) -> Option<(&'static Asset, Keep)> {
    let page = &*PAGE;
    let Some((version, name)) = path.strip_prefix('@').and_then(|rest| rest.split_once('/')) else {
        return page.assets.get(path).map(|asset| (asset, Keep::AskAgain));
    };
    let keep = if version == page.version { Keep::ForGood } else { Keep::AskAgain };
    page.assets.get(name).map(|asset| (asset, keep))
}

/// What every address without a file gets: the page finds its way from there.
#[must_use]
pub fn index() -> &'static Asset {
    PAGE.assets.get("index.html").expect("a test reads it")
}

struct Page {
    version: String,
    assets: BTreeMap<&'static str, Asset>,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let version = digest(FILES.iter().flat_map(|(name, bytes)| [name.as_bytes(), bytes]));
    let assets = FILES
        .iter()
        .map(|(name, bytes)| {
            let plain = if *name == "index.html" {
                Cow::Owned(framed(bytes, &version))
            } else {
                Cow::Borrowed(*bytes)
            };
            (*name, made(name, plain))
        })
        .collect();
    Page { version, assets }
});

/// The frame with the digest and the modules that the first view needs: a browser would otherwise
/// learn of each only from the one before.
fn framed(index: &[u8], version: &str) -> Vec<u8> {
    let links: String = modules::needed_at_first(FILES)
        .iter()
        .map(|name| format!("<link rel=\"modulepreload\" href=\"/ui/{VERSION_MARK}/{name}\">\n"))
        .collect();
    String::from_utf8_lossy(index)
        .replace(MODULES_MARK, links.trim_end())
        .replace(VERSION_MARK, &format!("@{version}"))
        .into_bytes()
}

fn made(name: &str, plain: Cow<'static, [u8]>) -> Asset {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let gzip = encoder.write_all(&plain).and_then(|()| encoder.finish());
    Asset {
        content_type: content_type(name),
        etag: format!("\"{}\"", digest([&*plain])),
        plain,
        gzip: gzip.expect("memory takes everything"),
    }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests;
