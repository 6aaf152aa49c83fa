// SPDX-License-Identifier: Apache-2.0
//! Checksums: written down as digits, with the algorithm known or told by their length, or found
//! in a checksum file under the image's name.

use std::fmt;

use reqwest::Url;

use crate::hex;

/// How a checksum is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Broken: proves that a download is whole and not who made it. Only where allowed.
    Md5,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// A checksum an image must have.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: Algorithm,
    value: Vec<u8>,
}

/// What is known about an image's checksum.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expected {
    /// The checksum itself.
    Is(Checksum),
    /// The address of a checksum file that has it.
    In(Url),
}

/// Why a checksum cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChecksumError {
    /// The digits are not those of any known algorithm.
    #[error(
        "{text:?} is no checksum: give the hexadecimal digits of a SHA-256 (64) or SHA-512 (128), or the http(s) address of a checksum file"
    )]
    Malformed {
        /// What was given.
        text: String,
    },
    /// The algorithm's name is not known.
    #[error("checksum algorithm {name:?} is not known: use sha256 or sha512")]
    UnknownAlgorithm {
        /// What was given.
        name: String,
    },
    /// The digits are not as many as the algorithm has.
    #[error("{text:?} is no {algorithm} checksum: it must have {} hexadecimal digits", algorithm.length() * 2)]
    WrongLength {
        /// What was given.
        text: String,
        /// What it should be.
        algorithm: Algorithm,
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
        /// Where the file is.
        url: String,
        /// The name looked for.
        name: String,
    },
}

impl Algorithm {
    /// How many bytes its checksums have.
    pub fn length(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The algorithm of this name, as `sha256` or `SHA-256`.
    pub fn named(name: &str) -> Result<Self, ChecksumError> {
        let plain = name.trim().replace('-', "").to_ascii_lowercase();
        match plain.as_str() {
            "md5" => Ok(Self::Md5),
            "sha256" => Ok(Self::Sha256),
            "sha512" => Ok(Self::Sha512),
            _ => Err(ChecksumError::UnknownAlgorithm { name: name.to_owned() }),
        }
    }

    fn of_length(bytes: usize) -> Option<Self> {
        [Self::Md5, Self::Sha256, Self::Sha512].into_iter().find(|it| it.length() == bytes)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5 => "md5",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        })
    }
}

impl Checksum {
    /// A checksum from its digits: the algorithm is told by their number, or by a prefix such as
    /// `sha256:`.
    pub fn parse(text: &str) -> Result<Self, ChecksumError> {
        let text = text.trim();
        if let Some((name, digits)) = text.split_once(':') {
            return Self::with_algorithm(Algorithm::named(name)?, digits);
        }
        let malformed = || ChecksumError::Malformed { text: shortened(text) };
        let value = hex::decode(text).ok_or_else(malformed)?;
        let algorithm = Algorithm::of_length(value.len()).ok_or_else(malformed)?;
        Ok(Self { algorithm, value })
    }

    /// A checksum from its digits and its algorithm.
    pub fn with_algorithm(algorithm: Algorithm, digits: &str) -> Result<Self, ChecksumError> {
        match hex::decode(digits.trim()) {
            Some(value) if value.len() == algorithm.length() => Ok(Self { algorithm, value }),
            _ => Err(ChecksumError::WrongLength { text: shortened(digits), algorithm }),
        }
    }

    pub(crate) fn new(algorithm: Algorithm, value: Vec<u8>) -> Self {
        debug_assert_eq!(value.len(), algorithm.length(), "made by the algorithm itself");
        Self { algorithm, value }
    }

    /// How it is computed.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its bytes.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Its hexadecimal digits, lower case.
    pub fn digits(&self) -> String {
        hex::encode(&self.value)
    }

    /// Refuses MD5 unless it is allowed.
    pub fn allowed(self, md5: bool) -> Result<Self, ChecksumError> {
        if self.algorithm == Algorithm::Md5 && !md5 {
            return Err(ChecksumError::Md5NotAllowed);
        }
        Ok(self)
    }
}

/// `sha256:0123…`, as OCI writes them.
impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.digits())
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Expected {
    /// A checksum, or the http(s) address of a checksum file.
    pub fn parse(text: &str) -> Result<Self, ChecksumError> {
        let text = text.trim();
        if text.contains("://") {
            let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            return url
                .map(Self::In)
                .ok_or_else(|| ChecksumError::Malformed { text: shortened(text) });
        }
        Checksum::parse(text).map(Self::Is)
    }
}

/// The checksum of the file called `name` in a checksum file.
///
/// Three forms are known: one line with nothing but the checksum (then it is whichever file's),
/// `<digits>  [*]<name>` as coreutils writes it, and `<ALGORITHM> (<name>) = <digits>` as BSD does.
/// Lines that are something else, such as comments and signatures around the list, are passed over.
pub fn find_in_file(text: &str, name: &str) -> Option<Checksum> {
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
    Checksum::with_algorithm(Algorithm::named(algorithm).ok()?, digits).ok()
}

fn coreutils_line(line: &str, name: &str) -> Option<Checksum> {
    let (digits, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    // A star says that the file was read as binary; also a name may begin with one.
    let named = rest.strip_prefix('*').unwrap_or(rest);
    if !same_file(named, name) && !same_file(rest, name) {
        return None;
    }
    Checksum::parse(digits).ok()
}

/// Lists made from another folder have `./` or a path before the name.
fn same_file(listed: &str, name: &str) -> bool {
    listed == name || listed.rsplit('/').next() == Some(name)
}

fn shortened(text: &str) -> String {
    text.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Algorithm, Checksum, ChecksumError, Expected, find_in_file};

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn algorithms_by_length_and_by_name() {
        assert_eq!(Checksum::parse(A).unwrap().algorithm(), Algorithm::Sha256);
        assert_eq!(Checksum::parse(&A.repeat(2)).unwrap().algorithm(), Algorithm::Sha512);
        assert_eq!(Checksum::parse(&A[..32]).unwrap().algorithm(), Algorithm::Md5);
        assert_eq!(Checksum::parse(&format!("SHA-256:{A}")).unwrap().digits(), A);
        assert!(matches!(Checksum::parse(&A[..40]), Err(ChecksumError::Malformed { .. })));
        assert!(matches!(Checksum::parse("sha512:aa"), Err(ChecksumError::WrongLength { .. })));
        assert!(matches!(Checksum::parse("crc32:aa"), Err(ChecksumError::UnknownAlgorithm { .. })));
        let md5 = Checksum::parse(&A[..32]).unwrap();
        assert_eq!(md5.clone().allowed(false), Err(ChecksumError::Md5NotAllowed));
        assert!(md5.allowed(true).is_ok());
    }

    #[test]
    fn addresses_are_of_checksum_files() {
        assert!(matches!(Expected::parse("https://h/SHA256SUMS"), Ok(Expected::In(_))));
        assert!(Expected::parse("file:///etc/passwd").is_err());
        assert!(matches!(Expected::parse(A), Ok(Expected::Is(_))));
    }

    #[test]
    fn checksum_files_in_their_forms() {
        let check = |text: &str, name: &str, found: Option<&str>| {
            let it = find_in_file(text, name).map(|checksum| checksum.digits());
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
        fn no_checksum_file_is_a_panic(text in "\\PC*", name in "\\PC{0,8}") {
            let _ = find_in_file(&text, &name);
            let _ = Expected::parse(&text);
        }

        #[test]
        fn listed_names_are_found(
            name in "[a-z*][a-z0-9 ._()-]{0,20}[a-z]", digits in "[0-9a-f]{64}"
        ) {
            let listed = format!("{B}  another\n{digits}  {name}\n");
            prop_assert_eq!(find_in_file(&listed, &name).unwrap().digits(), digits.clone());
            let listed = format!("SHA256 (another) = {B}\nSHA256 ({name}) = {digits}\n");
            prop_assert_eq!(find_in_file(&listed, &name).unwrap().digits(), digits);
        }
    }
}
