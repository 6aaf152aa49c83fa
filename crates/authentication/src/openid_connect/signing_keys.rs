// SPDX-License-Identifier: Apache-2.0
//! The signature keys of a provider (RFC 7517) and signature algorithms (RFC 7518).
//!
//! Written by hand over ring: the crate `jsonwebtoken` reads the clock itself, and needs aws-lc or
//! pure-Rust RSA (RUSTSEC-2023-0071) as a second cryptography library.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of keys in a set; further ones are ignored.
const MAX_KEYS: usize = 64;

/// A signature algorithm with a public key. There is neither `none` nor an algorithm with a shared
/// secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SigningAlgorithm {
    /// RSA PKCS#1 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSA PKCS#1 with SHA-384.
    #[serde(rename = "RS384")]
    Rs384,
    /// RSA PKCS#1 with SHA-512.
    #[serde(rename = "RS512")]
    Rs512,
    /// RSA PSS with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// RSA PSS with SHA-384.
    #[serde(rename = "PS384")]
    Ps384,
    /// RSA PSS with SHA-512.
    #[serde(rename = "PS512")]
    Ps512,
    /// ECDSA with P-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA with P-384.
    #[serde(rename = "ES384")]
    Es384,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// The keys of a provider that can verify signatures.
#[derive(Clone, Debug, Default)]
pub(super) struct SigningKeys(Vec<SigningKey>);

/// One key.
#[derive(Clone)]
struct SigningKey {
    id: Option<String>,
    /// The only algorithm of this key, if the provider restricts it.
    algorithm: Option<String>,
    material: KeyMaterial,
}

#[derive(Clone)]
enum KeyMaterial {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl SigningAlgorithm {
    /// The algorithm with this name in RFC 7518.
    pub(super) fn named(name: &str) -> Option<Self> {
        serde_json::from_value(Value::String(name.to_owned())).ok()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({:?})", self.id)
    }
}

impl SigningKeys {
    /// Parses a key set. Keys for encryption and unknown kinds of keys are ignored.
    pub(super) fn parse(key_set: &Value) -> Self {
        let keys = key_set["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self(keys.iter().filter_map(SigningKey::parse).take(MAX_KEYS).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a token with this key id and algorithm can be verified.
    pub(super) fn contains(&self, key_id: Option<&str>, algorithm: SigningAlgorithm) -> bool {
        self.candidates(key_id, algorithm).next().is_some()
    }

    /// Whether one of the keys made the signature. Only the key with the id is tried, if there is an
    /// id.
    pub(super) fn verify(
        &self,
        key_id: Option<&str>,
        algorithm: SigningAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        self.candidates(key_id, algorithm)
            .any(|key| key.material.verify(algorithm, message, signature))
    }

    fn candidates(
        &self,
        key_id: Option<&str>,
        algorithm: SigningAlgorithm,
    ) -> impl Iterator<Item = &SigningKey> {
        self.0.iter().filter(move |key| {
            let has_id = key_id.is_none_or(|id| key.id.as_deref() == Some(id));
            let name = key.algorithm.as_deref();
            let allows = name.is_none_or(|name| SigningAlgorithm::named(name) == Some(algorithm));
            has_id && allows && key.material.supports(algorithm)
        })
    }
}

impl SigningKey {
    fn parse(key: &Value) -> Option<Self> {
        let text = |name: &str| key[name].as_str();
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let point = || {
            let (mut point, x, y) = (vec![4], bytes("x")?, bytes("y")?);
            point.extend(x);
            point.extend(y);
            Some(point)
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let trimmed = |number: Vec<u8>| {
                    number.into_iter().skip_while(|byte| *byte == 0).collect::<Vec<u8>>()
                };
                KeyMaterial::Rsa { modulus: trimmed(bytes("n")?), exponent: trimmed(bytes("e")?) }
            }
            ("EC", Some("P-256")) => KeyMaterial::P256(point()?),
            ("EC", Some("P-384")) => KeyMaterial::P384(point()?),
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes("x")?),
            _ => return None,
        };
        Some(Self {
            id: text("kid").map(str::to_owned),
            algorithm: text("alg").map(str::to_owned),
            material,
        })
    }
}

impl KeyMaterial {
    fn supports(&self, algorithm: SigningAlgorithm) -> bool {
        use SigningAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        match algorithm {
            Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512 => matches!(self, Self::Rsa { .. }),
            Es256 => matches!(self, Self::P256(_)),
            Es384 => matches!(self, Self::P384(_)),
            EdDsa => matches!(self, Self::Ed25519(_)),
        }
    }

    fn verify(&self, algorithm: SigningAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rsa { modulus, exponent } => {
                let parameters = match algorithm {
                    SigningAlgorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    SigningAlgorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    SigningAlgorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    SigningAlgorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    SigningAlgorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    SigningAlgorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    SigningAlgorithm::Es256 | SigningAlgorithm::Es384 | SigningAlgorithm::EdDsa => {
                        return false;
                    }
                };
                RsaPublicKeyComponents { n: modulus, e: exponent }
                    .verify(parameters, message, signature)
            }
            Self::P256(point) => UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                .verify(message, signature),
            Self::P384(point) => UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                .verify(message, signature),
            Self::Ed25519(key) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
            }
        };
        verified.is_ok()
    }
}
