// SPDX-License-Identifier: Apache-2.0
//! Decodes the path of a request and rejects ambiguous ones.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Why a path is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestPathError {
    /// The path does not start with a slash.
    #[error("the target is not a path")]
    NotAPath,
    /// A percent sign without two hexadecimal digits.
    #[error("a percent sign in the path is not followed by two hexadecimal digits")]
    Escape,
    /// The decoded bytes are not UTF-8.
    #[error("the path is not UTF-8")]
    NotText,
    /// A NUL or another control character, a backslash, or a fragment.
    #[error("the path contains a control character, a backslash or a fragment")]
    Character,
    /// An empty segment, `.` or `..`.
    #[error("the path contains an empty segment, . or ..")]
    Segment,
}

/// Percent-decodes a path and rejects segments that are not valid file names. Only the root ends with a
/// slash.
pub(super) fn decode(raw: &str) -> Result<Cow<'_, str>, RequestPathError> {
    if !raw.starts_with('/') {
        return Err(RequestPathError::NotAPath);
    }
    let path = percent_decode(raw)?;
    // Check after decoding, which also covers escaped characters.
    if path.chars().any(|character| character.is_control() || character == '\\') {
        return Err(RequestPathError::Character);
    }
    if path.len() > 1 && path[1..].split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(RequestPathError::Segment);
    }
    Ok(path)
}

/// Returns the path for logs and timelines: segments of more than 32 characters may be secrets and are
/// replaced, and long paths are truncated.
pub(super) fn redacted(path: &str) -> String {
    const MAX_SEGMENT_LENGTH: usize = 32;
    const MAX_LENGTH: usize = 200;
    let mut output = String::new();
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        output.push('/');
        if output.len() > MAX_LENGTH || segment.chars().count() > MAX_SEGMENT_LENGTH {
            output.push('…');
        } else {
            output.push_str(segment);
        }
        if output.len() > MAX_LENGTH {
            break;
        }
    }
    output
}

fn percent_decode(raw: &str) -> Result<Cow<'_, str>, RequestPathError> {
    if raw.contains('#') {
        return Err(RequestPathError::Character);
    }
    if !raw.contains('%') {
        return Ok(Cow::Borrowed(raw));
    }
    // The crate keeps invalid escapes, which are errors here.
    let escapes_are_valid = raw.split('%').skip(1).all(|rest| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if !escapes_are_valid {
        return Err(RequestPathError::Escape);
    }
    percent_decode_str(raw).decode_utf8().map_err(|_| RequestPathError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_paths_once_or_rejects_them() {
        for (raw, expected) in [
            ("/", Ok("/")),
            ("/boot.ipxe", Ok("/boot.ipxe")),
            ("/a/b%20c", Ok("/a/b c")),
            ("/pxelinux.cfg/01-52-54-00-12-34-56", Ok("/pxelinux.cfg/01-52-54-00-12-34-56")),
            ("/mac/52%3a54%3A00", Ok("/mac/52:54:00")),
            ("/a%2fb", Ok("/a/b")),
            ("/%C3%A9", Ok("/é")),
            ("/...", Ok("/...")),
            ("/..a", Ok("/..a")),
            ("/%252e%252e/etc", Ok("/%2e%2e/etc")),
            ("", Err(RequestPathError::NotAPath)),
            ("*", Err(RequestPathError::NotAPath)),
            ("boot.ipxe", Err(RequestPathError::NotAPath)),
            ("/..", Err(RequestPathError::Segment)),
            ("/a/../b", Err(RequestPathError::Segment)),
            ("/%2e%2e/etc", Err(RequestPathError::Segment)),
            ("/.%2E/etc", Err(RequestPathError::Segment)),
            ("/a%2f..%2f..%2fetc", Err(RequestPathError::Segment)),
            ("/./a", Err(RequestPathError::Segment)),
            ("//a", Err(RequestPathError::Segment)),
            ("/a//b", Err(RequestPathError::Segment)),
            ("/a/", Err(RequestPathError::Segment)),
            ("/%2f", Err(RequestPathError::Segment)),
            ("/a\\b", Err(RequestPathError::Character)),
            ("/..%5c..%5cetc", Err(RequestPathError::Character)),
            ("/a%00.efi", Err(RequestPathError::Character)),
            ("/a%0d%0aSet-Cookie:x", Err(RequestPathError::Character)),
            ("/a#b", Err(RequestPathError::Character)),
            ("/%", Err(RequestPathError::Escape)),
            ("/%2", Err(RequestPathError::Escape)),
            ("/%zz", Err(RequestPathError::Escape)),
            ("/%+1", Err(RequestPathError::Escape)),
            ("/%ff", Err(RequestPathError::NotText)),
            // An overlong encoding of `.`.
            ("/%c0%ae%c0%ae/etc", Err(RequestPathError::NotText)),
        ] {
            assert_eq!(decode(raw), expected.map(Cow::Borrowed), "{raw}");
        }
    }

    #[test]
    fn redacts_segments_that_may_be_secrets() {
        let secret = "0123456789abcdef0123456789abcdef0";
        for (path, expected) in [
            ("/".to_owned(), "/".to_owned()),
            ("/boot.ipxe".to_owned(), "/boot.ipxe".to_owned()),
            (format!("/n/{secret}/kernel"), "/n/…/kernel".to_owned()),
            (format!("/{}", "a/".repeat(400)), format!("/{}…", "a/".repeat(100))),
        ] {
            assert_eq!(redacted(&path), expected);
        }
    }
}
