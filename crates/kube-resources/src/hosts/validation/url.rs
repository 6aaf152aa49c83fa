// SPDX-License-Identifier: Apache-2.0
//! Rules for URLs.

use crate::field_error::FieldError;

/// Schemes of images and firmware files.
const DOWNLOAD_SCHEMES: &[&str] = &["http", "https", "ftp", "gopher", "oci"];

/// The parts of an absolute URL that rules use.
pub(super) struct UrlParts<'a> {
    pub(super) scheme: String,
    /// Host and port.
    pub(super) authority: &'a str,
    pub(super) path: &'a str,
}

/// Splits an absolute URL; `None` if it is relative or has characters that no URL has.
pub(super) fn split(url: &str) -> Option<UrlParts<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let starts_with_letter = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_scheme =
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let has_invalid = url.chars().any(|character| character.is_control() || character == ' ');
    if !starts_with_letter || !is_scheme || has_invalid {
        return None;
    }
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (authority, path) = match rest[..end].find('/') {
        Some(at) => rest[..end].split_at(at),
        None => (&rest[..end], ""),
    };
    Some(UrlParts { scheme: scheme.to_ascii_lowercase(), authority, path })
}

/// Checks a URL that a file is downloaded from.
pub(super) fn downloadable(path: &str, url: &str) -> Option<FieldError> {
    let problem = match split(url) {
        _ if url.is_empty() => "is empty; set it to the URL of the file".to_owned(),
        None => format!("{url:?} is not an absolute URL; use one such as https://host/file"),
        Some(parts) if !DOWNLOAD_SCHEMES.contains(&parts.scheme.as_str()) => {
            let schemes = DOWNLOAD_SCHEMES.join(", ");
            format!("has the scheme {:?}; use one of {schemes}", parts.scheme)
        }
        Some(parts) if parts.authority.is_empty() => {
            format!("{url:?} has no host; add it after {}://", parts.scheme)
        }
        Some(_) => return None,
    };
    Some(FieldError::new(path, problem))
}
