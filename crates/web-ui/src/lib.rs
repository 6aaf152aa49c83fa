// SPDX-License-Identifier: Apache-2.0
//! The web UI's files, embedded and ready to be served.
//!
//! The files of `page/` are served as they are in the repository; there is no build step
//! (docs/decisions/0008). They are compressed once and served below a digest of all of them
//! (`@0123…/app/main.js`), so browsers cache them without limit and never mix two versions. Only
//! `index.html`, which contains the digest, is revalidated on each load.

mod modules;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// All files of `page/`, by their path below it.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Placeholders in `index.html` for the digest and for the modules to preload.
const VERSION_MARK: &str = "@version";
const MODULES_MARK: &str = "<!-- modules -->";

/// A file of the web UI, ready to be sent.
#[derive(Debug)]
pub struct WebUiAsset {
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// Its `ETag`, with quotes.
    pub etag: String,
    /// Its bytes.
    pub plain: Cow<'static, [u8]>,
    /// The same, compressed with gzip.
    pub gzip: Vec<u8>,
}

/// How long a browser may cache a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssetCaching {
    /// Without limit: the path contains the digest of the content.
    Immutable,
    /// Until the next request, which revalidates it by its `ETag`.
    Revalidate,
}

/// Returns the file at a path below `/ui/`, and how long it may be cached; `None` if there is no
/// such file. An outdated digest still finds the file, so that a page loaded before an upgrade can
/// load its other modules, but that response is not cached without limit.
#[must_use]
pub fn asset(path: &str) -> Option<(&'static WebUiAsset, AssetCaching)> {
    let bundle = &*BUNDLE;
    let Some((version, name)) = path.strip_prefix('@').and_then(|rest| rest.split_once('/')) else {
        return bundle.assets.get(path).map(|asset| (asset, AssetCaching::Revalidate));
    };
    let caching =
        if version == bundle.version { AssetCaching::Immutable } else { AssetCaching::Revalidate };
    bundle.assets.get(name).map(|asset| (asset, caching))
}

/// Returns `index.html`, the response for every path that is not a file: the application resolves
/// the path.
#[must_use]
pub fn index() -> &'static WebUiAsset {
    BUNDLE.assets.get("index.html").expect("index.html is embedded")
}

struct AssetBundle {
    version: String,
    assets: BTreeMap<&'static str, WebUiAsset>,
}

static BUNDLE: LazyLock<AssetBundle> = LazyLock::new(|| {
    let version = digest(FILES.iter().flat_map(|(name, bytes)| [name.as_bytes(), bytes]));
    let assets = FILES
        .iter()
        .map(|(name, bytes)| {
            let plain = if *name == "index.html" {
                Cow::Owned(fill_index(bytes, &version))
            } else {
                Cow::Borrowed(*bytes)
            };
            (*name, compress(name, plain))
        })
        .collect();
    AssetBundle { version, assets }
});

/// Inserts the digest, and preload links for the modules of the first view, which a browser would
/// otherwise discover one after another.
fn fill_index(index: &[u8], version: &str) -> Vec<u8> {
    let links: String = modules::initial_modules(FILES)
        .iter()
        .map(|name| format!("<link rel=\"modulepreload\" href=\"/ui/{VERSION_MARK}/{name}\">\n"))
        .collect();
    String::from_utf8_lossy(index)
        .replace(MODULES_MARK, links.trim_end())
        .replace(VERSION_MARK, &format!("@{version}"))
        .into_bytes()
}

fn compress(name: &str, plain: Cow<'static, [u8]>) -> WebUiAsset {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let gzip = encoder.write_all(&plain).and_then(|()| encoder.finish());
    WebUiAsset {
        content_type: content_type(name),
        etag: format!("\"{}\"", digest([&*plain])),
        plain,
        gzip: gzip.expect("writing to memory cannot fail"),
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

/// Returns the first 128 bits of the SHA-256 of all parts, in hexadecimal. Each part is preceded by
/// its length, so that moving a byte between parts changes the digest.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
