// SPDX-License-Identifier: Apache-2.0
//! Paths and queries, with everything in them escaped that must be.

use std::fmt::Write as _;

/// The part of a URL behind the question mark.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Nothing asked for in particular.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one more parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    /// Adds a parameter.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// A path with this query.
    #[must_use]
    pub fn on(&self, path: &str) -> String {
        let pairs: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}={}", segment(value))).collect();
        if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
    }
}

/// A text as a part of a path, or as a value in a query.
#[must_use]
pub fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b',' => {
                escaped.push(char::from(byte));
            }
            _ => {
                // Writing to a text does not fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

/// The text that was escaped; what is no escape stays as it is.
pub(crate) fn unescaped(text: &str) -> String {
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

/// A value in the query of a URL.
pub(crate) fn value_in(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(other, _)| *other == name).map(|(_, value)| unescaped(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_urls_do_not_allow_is_escaped() {
        let query = Query::new().with("provision_state", "wait call-back").with("owner", "a&b=ü");
        assert_eq!(
            query.on("/v1/nodes"),
            "/v1/nodes?provision_state=wait%20call-back&owner=a%26b%3D%C3%BC"
        );
        assert_eq!(segment("../nodes"), "..%2Fnodes");
        assert_eq!(unescaped("p%40ss%2"), "p@ss%2");
        let url = "http://h/v1/nodes?limit=2&marker=a%20b";
        assert_eq!(value_in(url, "marker").as_deref(), Some("a b"));
        assert_eq!(value_in(url, "owner"), None);
    }
}
