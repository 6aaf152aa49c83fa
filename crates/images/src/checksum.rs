// SPDX-License-Identifier: Apache-2.0
//! Checksums: given as hexadecimal digits, with the algorithm stated or inferred from their length, or
//! read from a checksum file.

use std::fmt;

use reqwest::Url;

/// The algorithm of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumAlgorithm {
    /// MD5: detects damage, but can be forged. Only if allowed.
    Md5,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// A checksum an image must have.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    value: Vec<u8>,
}

/// The expected checksum of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ExpectedChecksum {
    /// The checksum itself.
    Value(Checksum),
    /// The URL of a checksum file that contains it.
    File(Url),
}

/// Why a checksum cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChecksumError {
    /// The digits are not those of any known algorithm.
    #[error(
        "{text:?} is no checksum: give the hexadecimal digits of a SHA-256 (64) or SHA-512 (128), or the http(s) address of a checksum file"
    )]
    Malformed {
        /// The text.
        text: String,
    },
    /// The algorithm is unknown.
    #[error("checksum algorithm {name:?} is not known: use sha256 or sha512")]
    UnknownAlgorithm {
        /// The text.
        name: String,
    },
    /// The number of digits does not match the algorithm.
    #[error("{text:?} is no {algorithm} checksum: it must have {} hexadecimal digits", algorithm.length() * 2)]
    WrongLength {
        /// The text.
        text: String,
        /// The expected number of digits.
        algorithm: ChecksumAlgorithm,
    },
    /// An MD5 checksum where the configuration does not allow them.
    #[error(
        "MD5 checksums are not allowed here: give a SHA-256 or SHA-512 one, or allow MD5 in the configuration"
    )]
    Md5NotAllowed,
    /// The checksum file has no line for the image.
    #[error(
        "the checksum file at {url} has no checksum for {name:?}: add a line for it, or give the checksum itself"
    )]
    NotInFile {
        /// The URL of the file.
        url: String,
        /// The name of the image.
        name: String,
    },
}

impl ChecksumAlgorithm {
    /// Returns the length of its checksums in bytes.
    pub fn length(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Parses the name of an algorithm: `sha256` or `SHA-256`.
    pub fn from_name(name: &str) -> Result<Self, ChecksumError> {
        let plain = name.trim().replace('-', "").to_ascii_lowercase();
        match plain.as_str() {
            "md5" => Ok(Self::Md5),
            "sha256" => Ok(Self::Sha256),
            "sha512" => Ok(Self::Sha512),
            _ => Err(ChecksumError::UnknownAlgorithm { name: name.to_owned() }),
        }
    }

    fn from_length(bytes: usize) -> Option<Self> {
        [Self::Md5, Self::Sha256, Self::Sha512].into_iter().find(|it| it.length() == bytes)
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5 => "md5",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        })
    }
}

impl Checksum {
    /// Parses hexadecimal digits; the algorithm is inferred from their number, or stated by a prefix such
    /// as `sha256:`.
    pub fn parse(text: &str) -> Result<Self, ChecksumError> {
        let text = text.trim();
        if let Some((name, digits)) = text.split_once(':') {
            return Self::with_algorithm(ChecksumAlgorithm::from_name(name)?, digits);
        }
        let malformed = || ChecksumError::Malformed { text: truncated(text) };
        let value = hex::decode(text).map_err(|_| malformed())?;
        let algorithm = ChecksumAlgorithm::from_length(value.len()).ok_or_else(malformed)?;
        Ok(Self { algorithm, value })
    }

    /// Parses the digits of a checksum of this algorithm.
    pub fn with_algorithm(
        algorithm: ChecksumAlgorithm,
        digits: &str,
    ) -> Result<Self, ChecksumError> {
        match hex::decode(digits.trim()) {
            Ok(value) if value.len() == algorithm.length() => Ok(Self { algorithm, value }),
            _ => Err(ChecksumError::WrongLength { text: truncated(digits), algorithm }),
        }
    }

    pub(crate) fn new(algorithm: ChecksumAlgorithm, value: Vec<u8>) -> Self {
        debug_assert_eq!(value.len(), algorithm.length(), "made by the algorithm itself");
        Self { algorithm, value }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// Returns the bytes.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Returns the hexadecimal digits, in lower case.
    pub fn to_hex(&self) -> String {
        hex::encode(&self.value)
    }

    /// Rejects MD5 unless it is allowed.
    pub fn check_allowed(self, md5: bool) -> Result<Self, ChecksumError> {
        if self.algorithm == ChecksumAlgorithm::Md5 && !md5 {
            return Err(ChecksumError::Md5NotAllowed);
        }
        Ok(self)
    }
}

/// Formats it as OCI does: `sha256:0123…`.
impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.to_hex())
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ExpectedChecksum {
    /// Parses a checksum, or the HTTP URL of a checksum file.
    pub fn parse(text: &str) -> Result<Self, ChecksumError> {
        let text = text.trim();
        if text.contains("://") {
            let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            return url
                .map(Self::File)
                .ok_or_else(|| ChecksumError::Malformed { text: truncated(text) });
        }
        Checksum::parse(text).map(Self::Value)
    }
}

/// Returns the checksum of the file called `name` in a checksum file.
///
/// Three forms are parsed: a single line with only the checksum (for any name), `<digits>  [*]<name>` as
/// written by coreutils, and `<ALGORITHM> (<name>) = <digits>` as written by BSD tools. Other lines, such
/// as comments and signatures around the list, are ignored.
pub fn find_in_checksum_file(text: &str, name: &str) -> Option<Checksum> {
    let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let mut first_two = lines();
    if let (Some(only), None) = (first_two.next(), first_two.next())
        && !only.contains(char::is_whitespace)
    {
        return Checksum::parse(only).ok();
    }
    lines().find_map(|line| bsd_line(line, name).or_else(|| coreutils_line(line, name)))
}

fn bsd_line(line: &str, name: &str) -> Option<Checksum> {
    let (algorithm, rest) = line.split_once(" (")?;
    let (named, digits) = rest.rsplit_once(") = ")?;
    if !same_file(named, name) {
        return None;
    }
    Checksum::with_algorithm(ChecksumAlgorithm::from_name(algorithm).ok()?, digits).ok()
}

fn coreutils_line(line: &str, name: &str) -> Option<Checksum> {
    let (digits, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    // A star marks binary mode, but a name may also start with one.
    let named = rest.strip_prefix('*').unwrap_or(rest);
    if !same_file(named, name) && !same_file(rest, name) {
        return None;
    }
    Checksum::parse(digits).ok()
}

/// Lists that were created in another folder have `./` or a path before the name.
fn same_file(listed: &str, name: &str) -> bool {
    listed == name || listed.rsplit('/').next() == Some(name)
}

fn truncated(text: &str) -> String {
    text.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        Checksum, ChecksumAlgorithm, ChecksumError, ExpectedChecksum, find_in_checksum_file,
    };

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn infers_algorithm_from_length_or_name() {
        assert_eq!(Checksum::parse(A).unwrap().algorithm(), ChecksumAlgorithm::Sha256);
        assert_eq!(Checksum::parse(&A.repeat(2)).unwrap().algorithm(), ChecksumAlgorithm::Sha512);
        assert_eq!(Checksum::parse(&A[..32]).unwrap().algorithm(), ChecksumAlgorithm::Md5);
        assert_eq!(Checksum::parse(&format!("SHA-256:{A}")).unwrap().to_hex(), A);
        assert!(matches!(Checksum::parse(&A[..40]), Err(ChecksumError::Malformed { .. })));
        assert!(matches!(Checksum::parse("sha512:aa"), Err(ChecksumError::WrongLength { .. })));
        assert!(matches!(Checksum::parse("crc32:aa"), Err(ChecksumError::UnknownAlgorithm { .. })));
        let md5 = Checksum::parse(&A[..32]).unwrap();
        assert_eq!(md5.clone().check_allowed(false), Err(ChecksumError::Md5NotAllowed));
        assert!(md5.check_allowed(true).is_ok());
    }

    #[test]
    fn urls_are_checksum_files() {
        assert!(matches!(
            ExpectedChecksum::parse("https://h/SHA256SUMS"),
            Ok(ExpectedChecksum::File(_))
        ));
        assert!(ExpectedChecksum::parse("file:///etc/passwd").is_err());
        assert!(matches!(ExpectedChecksum::parse(A), Ok(ExpectedChecksum::Value(_))));
    }

    #[test]
    fn parses_checksum_file_forms() {
        let check = |text: &str, name: &str, found: Option<&str>| {
            let it = find_in_checksum_file(text, name).map(|checksum| checksum.to_hex());
            assert_eq!(it.as_deref(), found, "{text}");
        };
        check(&format!("# a comment\n{A}\n"), "any", Some(A));
        check(&format!("{A}  one.img\n{B}  two.img\n"), "two.img", Some(B));
        check(&format!("{A} *one.img\r\n{B} *two.img\r\n"), "two.img", Some(B));
        check(&format!("{A}  ./deep/one.img\n"), "one.img", Some(A));
        check(
            &format!("SHA256 (one.img) = {A}\nSHA256 (two (2).img) = {B}"),
            "two (2).img",
            Some(B),
        );
        check(&format!("SHA512 (one.img) = {A}"), "one.img", None);
        check(&format!("{A}  one.img"), "two.img", None);
        check(&format!("{A}\n{B}\n"), "two.img", None);
        check("", "x", None);
        let clear_signed = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{A}  one.img\n-----BEGIN PGP"
        );
        check(&clear_signed, "one.img", Some(A));
    }

    proptest! {
        #[test]
        fn arbitrary_checksum_files_never_panic(text in "\\PC*", name in "\\PC{0,8}") {
            let _ = find_in_checksum_file(&text, &name);
            let _ = ExpectedChecksum::parse(&text);
        }

        #[test]
        fn listed_names_are_found(
            name in "[a-z*][a-z0-9 ._()-]{0,20}[a-z]", digits in "[0-9a-f]{64}"
        ) {
            let listed = format!("{B}  another\n{digits}  {name}\n");
            prop_assert_eq!(find_in_checksum_file(&listed, &name).unwrap().to_hex(), digits.clone());
            let listed = format!("SHA256 (another) = {B}\nSHA256 ({name}) = {digits}\n");
            prop_assert_eq!(find_in_checksum_file(&listed, &name).unwrap().to_hex(), digits);
        }
    }
}
