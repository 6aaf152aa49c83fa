// SPDX-License-Identifier: Apache-2.0
//! Percent-encoded paths, query strings and file URLs.

use std::fmt::Write as _;
use std::path::Path;

/// The query parameters of a URL.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct QueryString(Vec<(String, String)>);

impl QueryString {
    /// An empty query.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.add(name, value);
        self
    }

    /// Adds a parameter.
    pub fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Appends the query to a path.
    #[must_use]
    pub fn append_to(&self, path: &str) -> String {
        let pairs: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encode(value)))
            .collect();
        if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
    }
}

/// Percent-encodes a path segment or a query value.
#[must_use]
pub fn percent_encode(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b',' => {
                escaped.push(char::from(byte));
            }
            _ => {
                // Writing to a `String` does not fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

/// A `file://` URL of an absolute path, with special characters percent-encoded.
#[must_use]
pub fn file_url(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut url = "file://".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            // Writing to a `String` does not fail.
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

/// Decodes percent-encoding; invalid sequences are kept.
pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = (byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => {
                plain.push(escaped);
                at += 3;
            }
            None => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Returns a decoded parameter of the query of a URL.
pub(crate) fn query_value(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(other, _)| *other == name).map(|(_, value)| percent_decode(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_urls_are_percent_encoded() {
        assert_eq!(file_url(Path::new("/srv/a b%/ü")), "file:///srv/a%20b%25/%C3%BC");
    }

    #[test]
    fn encodes_and_decodes_reserved_characters() {
        let query =
            QueryString::new().with("provision_state", "wait call-back").with("owner", "a&b=ü");
        assert_eq!(
            query.append_to("/v1/nodes"),
            "/v1/nodes?provision_state=wait%20call-back&owner=a%26b%3D%C3%BC"
        );
        assert_eq!(percent_encode("../nodes"), "..%2Fnodes");
        assert_eq!(percent_decode("p%40ss%2"), "p@ss%2");
        let url = "http://h/v1/nodes?limit=2&marker=a%20b";
        assert_eq!(query_value(url, "marker").as_deref(), Some("a b"));
        assert_eq!(query_value(url, "owner"), None);
    }
}
