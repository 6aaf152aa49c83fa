// SPDX-License-Identifier: Apache-2.0
//! Paths and query strings: percent-decoding and Ironic's path aliases.

use std::borrow::Cow;

/// Maximum length of a path in bytes.
const MAX_PATH_LENGTH: usize = 2048;

/// The path or query is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    /// The path is too long.
    #[error("the path is longer than 2048 bytes")]
    PathTooLong,
    /// `%` is not followed by two hexadecimal digits.
    #[error("the URL has a % that is not followed by two hexadecimal digits")]
    BadEscape,
    /// The decoded text is not UTF-8.
    #[error("the URL is not UTF-8 once decoded")]
    NotUtf8,
    /// An escaped slash or control character in the path.
    #[error("the path has an escaped slash or control character")]
    BadCharacter,
    /// A NUL character in the query. No stored text has one, and PostgreSQL rejects it.
    #[error("the query has a NUL character")]
    NulInQuery,
}

/// Decodes a path and removes the trailing slash.
///
/// An escaped slash is rejected: no name contains one, and decoding it would change the route.
pub(crate) fn decode_path(raw: &str) -> Result<Cow<'_, str>, UrlError> {
    if raw.len() > MAX_PATH_LENGTH {
        return Err(UrlError::PathTooLong);
    }
    let trimmed = raw.strip_suffix('/').unwrap_or(raw);
    if !trimmed.contains('%') {
        return Ok(Cow::Borrowed(trimmed));
    }
    let bytes = unescape(trimmed, |byte| {
        if byte == b'/' || byte.is_ascii_control() { Err(UrlError::BadCharacter) } else { Ok(()) }
    })?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| UrlError::NotUtf8)
}

/// The key of a path in the route table: the path without the `/v1` prefix, which clients may omit.
/// `/v1` itself stays.
pub(crate) fn route_key(path: &str) -> &str {
    match path {
        "" => "/",
        "/v1" => "/v1",
        _ => match path.strip_prefix("/v1") {
            Some(rest) if rest.starts_with('/') => rest,
            Some(_) | None => path,
        },
    }
}

/// The first segment of a route key.
pub(crate) fn first_segment(key: &str) -> &str {
    key.trim_start_matches('/').split('/').next().unwrap_or_default()
}

/// The decoded key-value pairs of a query string, in order.
pub(crate) fn decode_query(raw: &str) -> Result<Vec<(String, String)>, UrlError> {
    let mut pairs = Vec::new();
    for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        pairs.push((decode_form_value(key)?, decode_form_value(value)?));
    }
    Ok(pairs)
}

fn decode_form_value(text: &str) -> Result<String, UrlError> {
    if !text.contains(['%', '+']) {
        return Ok(text.to_owned());
    }
    let spaced = text.replace('+', " ");
    let bytes =
        unescape(&spaced, |byte| if byte == 0 { Err(UrlError::NulInQuery) } else { Ok(()) })?;
    String::from_utf8(bytes).map_err(|_| UrlError::NotUtf8)
}

fn unescape(text: &str, allowed: impl Fn(u8) -> Result<(), UrlError>) -> Result<Vec<u8>, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            rest.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(UrlError::BadEscape)
        };
        let decoded = u8::try_from(digit()? << 4 | digit()?).map_err(|_| UrlError::BadEscape)?;
        allowed(decoded)?;
        bytes.push(decoded);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_paths_to_route_keys() {
        for (raw, key) in [
            ("/", "/"),
            ("/v1", "/v1"),
            ("/v1/", "/v1"),
            ("/v1/nodes", "/nodes"),
            ("/nodes/", "/nodes"),
            ("/v1/nodes/a%2Db", "/nodes/a-b"),
            ("/v1nodes", "/v1nodes"),
            ("/v1/v1/nodes", "/v1/nodes"),
        ] {
            assert_eq!(route_key(&decode_path(raw).unwrap()), key, "{raw}");
        }
    }

    #[test]
    fn rejects_malformed_paths() {
        for (raw, error) in [
            ("/v1/nodes/%", UrlError::BadEscape),
            ("/v1/nodes/%4", UrlError::BadEscape),
            ("/v1/nodes/%zz", UrlError::BadEscape),
            ("/v1/nodes/%+1", UrlError::BadEscape),
            ("/v1/nodes/%ff", UrlError::NotUtf8),
            ("/v1/nodes/a%2Fb", UrlError::BadCharacter),
            ("/v1/nodes/a%00", UrlError::BadCharacter),
        ] {
            assert_eq!(decode_path(raw), Err(error), "{raw}");
        }
        assert_eq!(decode_path(&"/a".repeat(2000)), Err(UrlError::PathTooLong));
    }

    #[test]
    fn decodes_queries() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        for (raw, pairs) in [
            ("", vec![]),
            ("a=1&b=2&a=3", vec![pair("a", "1"), pair("b", "2"), pair("a", "3")]),
            ("fault=power%20failure&x=a+b", vec![pair("fault", "power failure"), pair("x", "a b")]),
            ("flag&&=v", vec![pair("flag", ""), pair("", "v")]),
        ] {
            assert_eq!(decode_query(raw), Ok(pairs), "{raw}");
        }
        assert_eq!(decode_query("a=%f"), Err(UrlError::BadEscape));
        assert_eq!(decode_query("a=%ff"), Err(UrlError::NotUtf8));
        assert_eq!(decode_query("a=1&b=x%00"), Err(UrlError::NulInQuery));
    }
}
