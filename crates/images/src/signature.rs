// SPDX-License-Identifier: Apache-2.0
//! Detached signatures of images, verified with configured keys.
//!
//! A signature is made with Ed25519, ECDSA (P-256, SHA-256) or RSA (2048 bits or more, SHA-256, PKCS #1
//! v1.5 or PSS), and over one of two things:
//!
//! * the image's SHA-256 as 64 lower-case hexadecimal digits, which works for images of any size:
//!   `sha256sum disk.raw | head -c 64 | openssl dgst -sha256 -sign rsa.pem -out disk.raw.sig`, or
//!   `sha256sum disk.raw | head -c 64 > d; openssl pkeyutl -sign -rawin -inkey ed25519.pem -in d -out disk.raw.sig`
//! * the image's bytes themselves, for kernels and ramdisks of no more than [`MAX_IN_MEMORY_BYTES`], as
//!   they are in memory for the check: `openssl dgst -sha256 -sign rsa.pem -out vmlinuz.sig vmlinuz`.
//!
//! The signature is read from the source in the request, or from the image's URL with `.sig` appended. It
//! may be binary or base64. Signatures of containers are those of cosign.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};

/// Size limit of an image that is read into memory to verify a signature over its bytes.
pub const MAX_IN_MEMORY_BYTES: u64 = 512 << 20;

/// The DER prefix of the 32 bytes of an Ed25519 key (RFC 8410).
const ED25519_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The encoding before the 65 bytes of a public key on the curve P-256 (RFC 5480).
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The algorithm identifier of RSA: the object identifier 1.2.840.113549.1.1.1 and a NULL.
const RSA_ALGORITHM_ID: [u8; 15] =
    [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];

/// Whether an image must be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignaturePolicy {
    /// Signatures are ignored.
    #[default]
    Off,
    /// An existing signature must be valid. An attacker who can change an image can also remove its
    /// signature, so this protects against mistakes only.
    WhenPresent,
    /// A valid signature is required.
    Required,
}

/// A key for the verification of signatures.
#[derive(Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// 32 bytes.
    Ed25519(Vec<u8>),
    /// An uncompressed point of the curve P-256, 65 bytes.
    EcdsaP256(Vec<u8>),
    /// In PKCS #1 format.
    Rsa(Vec<u8>),
}

/// Why a key or a signature is rejected.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// The text contains no supported public key.
    #[error(
        "there is no Ed25519, ECDSA (P-256) or RSA public key in PEM form (-----BEGIN PUBLIC KEY-----) in it; `openssl pkey -in private.pem -pubout` writes one"
    )]
    BadKey,
    /// The required signature is missing.
    #[error(
        "the image is not signed, and only signed ones are allowed: put its signature at {place}"
    )]
    Missing {
        /// The source of the signature.
        place: String,
    },
    /// No configured key verifies the signature.
    #[error(
        "none of the {keys} configured keys verifies the signature of the image: sign the image again, or add the key to the configuration"
    )]
    Wrong {
        /// The number of keys.
        keys: usize,
    },
    /// No configured key verifies the signature, and the image is too large for a signature over its bytes.
    #[error(
        "none of the {keys} configured keys verifies the signature of the image. The signature of an image of this size must be over its SHA-256: sign the first 64 characters of the output of `sha256sum`"
    )]
    WrongForLarge {
        /// The number of keys.
        keys: usize,
    },
    /// The image cannot be read.
    #[error("the image cannot be read to check its signature")]
    Read(#[source] io::Error),
}

impl PublicKey {
    /// Parses all keys in a PEM text.
    pub fn parse_pem(text: &str) -> Result<Vec<Self>, SignatureError> {
        let keys: Result<Vec<Self>, SignatureError> =
            SubjectPublicKeyInfoDer::pem_slice_iter(text.as_bytes())
                .map(|key| Self::from_der(key.map_err(|_| SignatureError::BadKey)?.as_ref()))
                .collect();
        keys.and_then(|keys| if keys.is_empty() { Err(SignatureError::BadKey) } else { Ok(keys) })
    }

    fn from_der(der: &[u8]) -> Result<Self, SignatureError> {
        if let Some(key) = der.strip_prefix(&ED25519_PREFIX)
            && key.len() == 32
        {
            return Ok(Self::Ed25519(key.to_vec()));
        }
        if let Some(key) = der.strip_prefix(&P256_PREFIX)
            && key.len() == 65
        {
            return Ok(Self::EcdsaP256(key.to_vec()));
        }
        rsa_key(der).map(|key| Self::Rsa(key.to_vec())).ok_or(SignatureError::BadKey)
    }

    /// Returns whether the signature of the message is valid.
    pub(crate) fn verifies(&self, signature: &[u8], message: &[u8]) -> bool {
        let (key, algorithms): (&[u8], &[&'static dyn VerificationAlgorithm]) = match self {
            Self::Ed25519(key) => (key, &[&ED25519]),
            Self::EcdsaP256(key) => (key, &[&ECDSA_P256_SHA256_ASN1]),
            Self::Rsa(key) => (key, &[&RSA_PKCS1_2048_8192_SHA256, &RSA_PSS_2048_8192_SHA256]),
        };
        algorithms
            .iter()
            .any(|&it| UnparsedPublicKey::new(it, key).verify(message, signature).is_ok())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Ed25519(key) | Self::EcdsaP256(key) | Self::Rsa(key) => key,
        }
    }
}

/// Shows only the last 8 bytes of the key.
impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Ed25519(_) => "Ed25519",
            Self::EcdsaP256(_) => "EcdsaP256",
            Self::Rsa(_) => "Rsa",
        };
        let bytes = self.bytes();
        write!(f, "{kind}(…{})", hex::encode(&bytes[bytes.len().saturating_sub(8)..]))
    }
}

/// Verifies the signature of an image whose SHA-256 is known.
pub fn verify(
    keys: &[PublicKey],
    signature: &[u8],
    image: &File,
    sha256: &[u8; 32],
) -> Result<(), SignatureError> {
    let decoded = decode_base64(signature);
    let signature = decoded.as_deref().unwrap_or(signature);
    let made_over = |message: &[u8]| keys.iter().any(|key| key.verifies(signature, message));
    if made_over(hex::encode(sha256).as_bytes()) {
        return Ok(());
    }
    let size = image.metadata().map_err(SignatureError::Read)?.len();
    if size > MAX_IN_MEMORY_BYTES {
        return Err(SignatureError::WrongForLarge { keys: keys.len() });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let mut image = image;
    image.rewind().map_err(SignatureError::Read)?;
    image.take(MAX_IN_MEMORY_BYTES).read_to_end(&mut bytes).map_err(SignatureError::Read)?;
    if made_over(&bytes) { Ok(()) } else { Err(SignatureError::Wrong { keys: keys.len() }) }
}

/// Decodes a signature in base64; `None` if it is not base64.
fn decode_base64(signature: &[u8]) -> Option<Vec<u8>> {
    let text: String =
        std::str::from_utf8(signature).ok()?.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(text).ok()
}

/// Returns the PKCS #1 key in a DER SubjectPublicKeyInfo of an RSA key.
fn rsa_key(der: &[u8]) -> Option<&[u8]> {
    let (body, rest) = der_element(der, 0x30)?;
    let bits = body.strip_prefix(&RSA_ALGORITHM_ID)?;
    let (bits, after) = der_element(bits, 0x03)?;
    // The first byte of a bit string is the number of unused bits in the last byte.
    let key = bits.strip_prefix(&[0])?;
    (rest.is_empty() && after.is_empty()).then_some(key)
}

/// Returns the contents of a DER element with this tag, and the remaining bytes.
fn der_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = der.strip_prefix(&[tag])?;
    let (&first, rest) = rest.split_first()?;
    if first < 0x80 {
        return rest.split_at_checked(usize::from(first));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return None;
    }
    let (length, rest) = rest.split_at_checked(count)?;
    let length = length.iter().fold(0_usize, |length, &byte| length << 8 | usize::from(byte));
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::{ED25519_PREFIX, PublicKey, SignatureError, verify};

    fn sha256(content: &[u8]) -> [u8; 32] {
        ring::digest::digest(&ring::digest::SHA256, content).as_ref().try_into().unwrap()
    }

    fn file(content: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn pem(der: &[u8]) -> String {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
    }

    #[test]
    fn verifies_ed25519_over_digest_or_bytes() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let der = [&ED25519_PREFIX[..], pair.public_key().as_ref()].concat();
        let keys = PublicKey::parse_pem(&pem(&der)).unwrap();
        let image = b"a kernel";
        let digits = hex::encode(sha256(image));
        let check = |signature: &[u8], content: &[u8]| {
            verify(&keys, signature, &file(content), &sha256(content))
        };
        let over_digits = pair.sign(digits.as_bytes());
        check(over_digits.as_ref(), image).unwrap();
        check(pair.sign(image).as_ref(), image).unwrap();
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(over_digits.as_ref());
        check(format!("{text}\n").as_bytes(), image).unwrap();
        let wrong = check(over_digits.as_ref(), b"another kernel");
        assert!(matches!(wrong, Err(SignatureError::Wrong { keys: 1 })));
        assert!(check(b"", image).is_err());
        let anonymous = verify(&[], over_digits.as_ref(), &file(image), &sha256(image));
        assert!(matches!(anonymous, Err(SignatureError::Wrong { keys: 0 })));
    }

    /// Signatures made with `openssl`, which `cargo xtask test` installs.
    fn openssl(folder: &Path, arguments: &str) {
        let arguments = arguments.split(' ');
        let output = Command::new("openssl").args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn verifies_signatures_of_openssl() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let image = b"a ramdisk, somewhat longer than a digest is, to be sure of the difference";
        std::fs::write(at("image"), image).unwrap();
        std::fs::write(at("digits"), hex::encode(sha256(image))).unwrap();
        openssl(folder.path(), "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.pem");
        openssl(folder.path(), "pkey -in rsa.pem -pubout -out rsa.pub");
        openssl(folder.path(), "genpkey -algorithm ED25519 -out ed.pem");
        openssl(folder.path(), "pkey -in ed.pem -pubout -out ed.pub");
        openssl(folder.path(), "dgst -sha256 -sign rsa.pem -out 1.sig image");
        openssl(folder.path(), "dgst -sha256 -sign rsa.pem -out 2.sig digits");
        openssl(
            folder.path(),
            "dgst -sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest -sign rsa.pem -out 3.sig image",
        );
        openssl(folder.path(), "pkeyutl -sign -rawin -inkey ed.pem -in image -out 4.sig");
        openssl(folder.path(), "pkeyutl -sign -rawin -inkey ed.pem -in digits -out 5.sig");
        openssl(folder.path(), "dgst -sha1 -sign rsa.pem -out weak.sig image");
        let read = |name: &str| std::fs::read(at(name)).unwrap();
        let text = [read("rsa.pub"), read("ed.pub")].concat();
        let keys = PublicKey::parse_pem(&String::from_utf8(text).unwrap()).unwrap();
        assert_eq!(keys.len(), 2);
        let image_file = file(image);
        for name in ["1.sig", "2.sig", "3.sig", "4.sig", "5.sig"] {
            let outcome = verify(&keys, &read(name), &image_file, &sha256(image));
            assert!(outcome.is_ok(), "{name}");
        }
        assert!(verify(&keys, &read("weak.sig"), &image_file, &sha256(image)).is_err());
        assert!(PublicKey::parse_pem(std::str::from_utf8(&read("rsa.pem")).unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_keys_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = PublicKey::from_der(&bytes);
            let _ = PublicKey::parse_pem(&pem(&bytes));
        }
    }
}
