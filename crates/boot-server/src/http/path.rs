// SPDX-License-Identifier: Apache-2.0
//! The path of a request: decoded once, and refused when it could mean more than one thing.

use std::borrow::Cow;

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with a slash.
    #[error("the target is not a path")]
    NotAPath,
    /// A percent sign without two hexadecimal digits.
    #[error("a percent sign in the path is not followed by two hexadecimal digits")]
    Escape,
    /// The decoded bytes are not UTF-8.
    #[error("the path is not UTF-8")]
    NotText,
    /// A NUL or another control character, a backslash, or a fragment.
    #[error("the path has a character that is not served")]
    Character,
    /// An empty segment, `.` or `..`.
    #[error("the path has an empty segment, . or ..")]
    Segment,
}

/// Decodes the escapes, and refuses whatever the segments of a file's name cannot be. The root alone is
/// `/`; no other path ends with a slash.
pub(super) fn decode(raw: &str) -> Result<Cow<'_, str>, PathError> {
    if !raw.starts_with('/') {
        return Err(PathError::NotAPath);
    }
    let path = unescape(raw)?;
    // Escaped ones come out of the decoding, so that everything is checked after it.
    if path.chars().any(|character| character.is_control() || character == '\\') {
        return Err(PathError::Character);
    }
    if path.len() > 1 && path[1..].split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(PathError::Segment);
    }
    Ok(path)
}

/// The path for somebody to read: what is long enough to be a secret is left out, and what is very long
/// is cut.
pub(super) fn told(path: &str) -> String {
    const LONGEST_SEGMENT: usize = 32;
    const LONGEST: usize = 200;
    let mut told = String::new();
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        told.push('/');
        if told.len() > LONGEST || segment.chars().count() > LONGEST_SEGMENT {
            told.push('…');
        } else {
            told.push_str(segment);
        }
        if told.len() > LONGEST {
            break;
        }
    }
    told
}

fn unescape(raw: &str) -> Result<Cow<'_, str>, PathError> {
    if raw.contains('#') {
        return Err(PathError::Character);
    }
    if !raw.contains('%') {
        return Ok(Cow::Borrowed(raw));
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let (&[high, low], after) = after.split_first_chunk().ok_or(PathError::Escape)?;
        bytes.push(digit(high)? << 4 | digit(low)?);
        rest = after;
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| PathError::NotText)
}

fn digit(character: u8) -> Result<u8, PathError> {
    let value = char::from(character).to_digit(16).ok_or(PathError::Escape)?;
    Ok(value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once_or_refused() {
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
            ("", Err(PathError::NotAPath)),
            ("*", Err(PathError::NotAPath)),
            ("boot.ipxe", Err(PathError::NotAPath)),
            ("/..", Err(PathError::Segment)),
            ("/a/../b", Err(PathError::Segment)),
            ("/%2e%2e/etc", Err(PathError::Segment)),
            ("/.%2E/etc", Err(PathError::Segment)),
            ("/a%2f..%2f..%2fetc", Err(PathError::Segment)),
            ("/./a", Err(PathError::Segment)),
            ("//a", Err(PathError::Segment)),
            ("/a//b", Err(PathError::Segment)),
            ("/a/", Err(PathError::Segment)),
            ("/%2f", Err(PathError::Segment)),
            ("/a\\b", Err(PathError::Character)),
            ("/..%5c..%5cetc", Err(PathError::Character)),
            ("/a%00.efi", Err(PathError::Character)),
            ("/a%0d%0aSet-Cookie:x", Err(PathError::Character)),
            ("/a#b", Err(PathError::Character)),
            ("/%", Err(PathError::Escape)),
            ("/%2", Err(PathError::Escape)),
            ("/%zz", Err(PathError::Escape)),
            ("/%+1", Err(PathError::Escape)),
            ("/%ff", Err(PathError::NotText)),
            // An overlong `.`, which careless decoders take for one.
            ("/%c0%ae%c0%ae/etc", Err(PathError::NotText)),
        ] {
            assert_eq!(decode(raw), expected.map(Cow::Borrowed), "{raw}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_told() {
        let secret = "0123456789abcdef0123456789abcdef0";
        for (path, expected) in [
            ("/".to_owned(), "/".to_owned()),
            ("/boot.ipxe".to_owned(), "/boot.ipxe".to_owned()),
            (format!("/n/{secret}/kernel"), "/n/…/kernel".to_owned()),
            (format!("/{}", "a/".repeat(400)), format!("/{}…", "a/".repeat(100))),
        ] {
            assert_eq!(told(&path), expected);
        }
    }
}
