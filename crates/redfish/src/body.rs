// SPDX-License-Identifier: Apache-2.0
//! Parses the JSON of BMCs, including almost valid JSON.

use std::io::{self, Read as _};

use bytes::Bytes;
use serde_json::Value;

/// Parses `bytes` as JSON. On failure it retries without known defects of BMCs: a byte order mark,
/// bytes that are not UTF-8, and raw control characters in strings (DIMM part numbers are copied from
/// an EEPROM).
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(bytes).or_else(|error| {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let repaired: String = String::from_utf8_lossy(bytes)
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .collect();
        // The first error is about what the BMC really sent.
        serde_json::from_str(&repaired).map_err(|_| error)
    })
}

/// Decompresses gzip. Returns `None` if the result is larger than `limit`.
pub(crate) fn inflated(bytes: &[u8], limit: usize) -> io::Result<Option<Bytes>> {
    let mut whole = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    let read = flate2::read::GzDecoder::new(bytes).take(limit + 1).read_to_end(&mut whole)?;
    Ok((read as u64 <= limit).then(|| Bytes::from(whole)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn almost_json() {
        for (bytes, value) in [
            (&b"{\"a\": 1}"[..], json!({"a": 1})),
            (b"\xef\xbb\xbf{\"a\": 1}", json!({"a": 1})),
            (b"{\"a\": \"x\xff\"}", json!({"a": "x\u{fffd}"})),
            (b"{\"a\": \"x\ty\"}", json!({"a": "x y"})),
            (b"{\"a\": 1}\0\0", json!({"a": 1})),
        ] {
            assert_eq!(parse(bytes).unwrap(), value);
        }
        assert!(parse(b"").is_err());
        assert!(parse(b"{\"a\": ").is_err());
    }

    #[test]
    fn deep_json_is_refused() {
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = crate::error_body::RedfishErrorBody::read(&bytes, &["x"]);
        }
    }
}
