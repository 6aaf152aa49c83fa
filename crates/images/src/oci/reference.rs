// SPDX-License-Identifier: Apache-2.0
//! References to images in a registry: `oci://registry[:port]/repository[:tag][@digest]`.

use std::fmt;

use crate::checksum::{Checksum, ChecksumAlgorithm};

/// The address of an image in a registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OciReference {
    /// The host of the registry, with its port unless it is the default port.
    pub registry: String,
    /// The name of the repository.
    pub repository: String,
    /// The tag; `latest` if neither a tag nor a digest is given.
    pub tag: Option<String>,
    /// The digest. It takes precedence over the tag.
    pub digest: Option<Checksum>,
}

/// Why a reference is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct OciReferenceError(&'static str);

impl OciReference {
    /// Parses a reference with or without `oci://`.
    pub fn parse(text: &str) -> Result<Self, OciReferenceError> {
        let rest = match text.get(..6) {
            Some(scheme) if scheme.eq_ignore_ascii_case("oci://") => &text[6..],
            Some(_) | None => text,
        };
        let (registry, rest) =
            rest.split_once('/').ok_or(OciReferenceError("it names no repository"))?;
        if registry.is_empty() || !registry.bytes().all(is_host_byte) {
            return Err(OciReferenceError("its registry is not a host name"));
        }
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(parse_digest(digest)?)),
            None => (rest, None),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        // The name becomes part of a URL and must not change its path.
        let sensible = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
                && !part.starts_with('.')
        };
        if !repository.split('/').all(sensible) {
            return Err(OciReferenceError(
                "its repository's name has characters such names do not have",
            ));
        }
        if tag.is_some_and(|tag| !sensible(tag) || tag.len() > 128) {
            return Err(OciReferenceError("its tag contains invalid characters"));
        }
        let tag = match (tag, &digest) {
            (Some(tag), _) => Some(tag.to_owned()),
            (None, Some(_)) => None,
            (None, None) => Some("latest".to_owned()),
        };
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), tag, digest })
    }

    /// Returns the digest, or the tag if there is none.
    pub(crate) fn manifest_reference(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }

    /// The host to connect to: Docker Hub's registry has another name than Docker Hub.
    pub(crate) fn host(&self) -> &str {
        if self.registry == "docker.io" { "registry-1.docker.io" } else { &self.registry }
    }
}

impl fmt::Display for OciReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci://{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// Parses a digest. OCI does not allow MD5.
pub(super) fn parse_digest(text: &str) -> Result<Checksum, OciReferenceError> {
    let bad = OciReferenceError("its digest is not sha256: or sha512: and hexadecimal digits");
    if !text.contains(':') {
        return Err(bad);
    }
    match Checksum::parse(text) {
        Ok(digest) if digest.algorithm() != ChecksumAlgorithm::Md5 => Ok(digest),
        Ok(_) | Err(_) => Err(bad),
    }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::OciReference;

    #[test]
    fn parses_references() {
        let check = |text: &str, expected: Expect| {
            let shown = match OciReference::parse(text) {
                Ok(it) => {
                    format!("{it}: {} {} {}", it.host(), it.repository, it.manifest_reference())
                }
                Err(error) => format!("no: {error}"),
            };
            expected.assert_eq(&shown);
        };
        let digest = format!("sha256:{}", "0a".repeat(32));
        check("oci://quay.io/o/os:41", expect!["oci://quay.io/o/os:41: quay.io o/os 41"]);
        check(
            "OCI://localhost:5000/os",
            expect!["oci://localhost:5000/os:latest: localhost:5000 os latest"],
        );
        check(
            "oci://docker.io/library/x:1",
            expect!["oci://docker.io/library/x:1: registry-1.docker.io library/x 1"],
        );
        check(
            &format!("oci://[::1]:5000/os@{digest}"),
            expect![
                "oci://[::1]:5000/os@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a: [::1]:5000 os sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
            ],
        );
        check("oci://quay.io", expect!["no: it names no repository"]);
        check("oci://me:pw@quay.io/x", expect!["no: its registry is not a host name"]);
        check(
            "oci://quay.io/a/../b",
            expect!["no: its repository's name has characters such names do not have"],
        );
        check(
            "oci://quay.io/a?b",
            expect!["no: its repository's name has characters such names do not have"],
        );
        check("oci://quay.io/a:../x", expect!["no: its tag contains invalid characters"]);
        check(
            "oci://quay.io/a@sha256:00",
            expect!["no: its digest is not sha256: or sha512: and hexadecimal digits"],
        );
        check(
            &format!("oci://quay.io/a@md5:{}", "0".repeat(32)),
            expect!["no: its digest is not sha256: or sha512: and hexadecimal digits"],
        );
    }
}
