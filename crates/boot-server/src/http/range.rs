// SPDX-License-Identifier: Apache-2.0
//! `Range` and the conditions on entity tags (RFC 9110, sections 13 and 14).

use std::ops::Range;

/// The byte range of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From a first to a last byte, inclusive, or to the end.
    From {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: Option<u64>,
    },
    /// This many bytes at the end.
    Last(u64),
}

impl ByteRange {
    /// Parses the header value. Returns `None` for several ranges, other units and malformed values:
    /// the header is then ignored and the whole file is sent, as RFC 9110 allows.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (unit, range) = value.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        match (first.trim_end(), last.trim_start()) {
            ("", last) => Some(Self::Last(parse_number(last)?)),
            (first, "") => Some(Self::From { first: parse_number(first)?, last: None }),
            (first, last) => {
                let (first, last) = (parse_number(first)?, parse_number(last)?);
                (first <= last).then_some(Self::From { first, last: Some(last) })
            }
        }
    }

    /// Returns the range in a file of this length, `None` if it is outside or empty.
    #[must_use]
    pub fn resolve(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::From { first, last } => {
                let end = last.map_or(length, |last| last.saturating_add(1).min(length));
                first..end
            }
            Self::Last(count) => length.saturating_sub(count)..length,
        };
        (!range.is_empty()).then_some(range)
    }
}

/// Returns whether an `If-None-Match` value contains the tag (given without quotes) or is `*`.
pub(super) fn if_none_match_matches(value: &str, etag: Option<&str>) -> bool {
    let value = value.trim();
    if value == "*" {
        return true;
    }
    let Some(etag) = etag else { return false };
    value.split(',').any(|named| {
        let named = named.trim();
        unquoted(named.strip_prefix("W/").unwrap_or(named)) == Some(etag)
    })
}

/// Returns whether an `If-Range` value matches the tag. Dates never match, because files have no date.
pub(super) fn if_range_matches(value: &str, etag: Option<&str>) -> bool {
    etag.is_some() && unquoted(value.trim()) == etag
}

fn unquoted(tag: &str) -> Option<&str> {
    tag.strip_prefix('"')?.strip_suffix('"')
}

/// Parses digits; `u64::from_str` would accept a sign. Larger numbers than `u64::MAX` are clamped.
fn parse_number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_resolves_ranges() {
        for (value, length, expected) in [
            ("bytes=0-0", 10, Some(Some(0..1))),
            ("bytes=0-", 10, Some(Some(0..10))),
            ("bytes=2-4", 10, Some(Some(2..5))),
            ("bytes=9-9", 10, Some(Some(9..10))),
            ("bytes=5-99", 10, Some(Some(5..10))),
            ("Bytes = 5 - 6", 10, Some(Some(5..7))),
            ("bytes=-3", 10, Some(Some(7..10))),
            ("bytes=-99", 10, Some(Some(0..10))),
            ("bytes=0-18446744073709551615", 10, Some(Some(0..10))),
            ("bytes=0-99999999999999999999999999", 10, Some(Some(0..10))),
            ("bytes=99999999999999999999999999-", 10, Some(None)),
            ("bytes=10-", 10, Some(None)),
            ("bytes=10-12", 10, Some(None)),
            ("bytes=-0", 10, Some(None)),
            ("bytes=0-", 0, Some(None)),
            ("bytes=-1", 0, Some(None)),
            ("bytes=4-2", 10, None),
            ("bytes=0-1,4-5", 10, None),
            ("bytes=-", 10, None),
            ("bytes=", 10, None),
            ("bytes", 10, None),
            ("bytes=a-b", 10, None),
            ("bytes=+1-2", 10, None),
            ("bytes=--2", 10, None),
            ("lines=1-2", 10, None),
            ("", 10, None),
        ] {
            let range = ByteRange::parse(value).map(|range| range.resolve(length));
            assert_eq!(range, expected, "{value} of {length}");
        }
    }

    #[test]
    fn matches_conditions() {
        for (value, none_match, is_current) in [
            ("\"abc\"", true, true),
            ("W/\"abc\"", true, false),
            ("\"x\", \"abc\"", true, false),
            ("\"x\",W/\"abc\" , \"y\"", true, false),
            ("*", true, false),
            ("\"ab\"", false, false),
            ("abc", false, false),
            ("\"", false, false),
            ("", false, false),
            ("Sun, 06 Nov 1994 08:49:37 GMT", false, false),
        ] {
            assert_eq!(if_none_match_matches(value, Some("abc")), none_match, "{value}");
            assert_eq!(if_range_matches(value, Some("abc")), is_current, "{value}");
            assert!(!if_range_matches(value, None), "{value}");
            assert_eq!(if_none_match_matches(value, None), value == "*", "{value}");
        }
    }
}
