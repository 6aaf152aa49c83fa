// SPDX-License-Identifier: Apache-2.0
//! A sealing key, and encryption of secrets with it.
//!
//! Secrets are encrypted with AES-256-GCM-SIV: a repeated nonce reveals only whether two plain texts
//! are equal. A sealed value is `version (1) | key id (8) | nonce (12) | cipher text and tag`. It is
//! bound to its key and its owner, so a value copied to another row cannot be opened there.

use aes_gcm_siv::aead::{Aead as _, Generate as _, Key, KeyInit as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_model::Secret;
use uuid::Uuid;

use crate::key_source::KeySourceError;

const VERSION: u8 = 1;
const KEY_ID_LEN: usize = 8;
const NONCE_LEN: usize = 12;

/// Length of the start of a sealed value that names its key. In base64 it is exactly 12 characters.
pub(crate) const HEADER_LEN: usize = 1 + KEY_ID_LEN;

/// A key that seals and unseals secrets.
pub(crate) struct SealingKey {
    cipher: Aes256GcmSiv,
    key_id: [u8; KEY_ID_LEN],
}

/// The keys cannot be used, or a sealed value cannot be decrypted.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// There is no key, but the database contains sealed data.
    #[error(
        "there is no key in it, but the database contains secrets sealed with one; restore it from a \
         backup or copy it from another process that uses this database"
    )]
    Missing,
    /// There is no key, and this source cannot create one.
    #[error("there is no key in it; create one with `ferrite secrets new-key` and store it there")]
    NoKey,
    /// The key file is readable by group or others.
    #[error(
        "its mode {mode:o} makes it readable by other users; run chmod 600 on it, and consider the \
         passwords compromised"
    )]
    WorldReadable {
        /// The mode.
        mode: u32,
    },
    /// There is something else than keys.
    #[error("a key in it is not 32 bytes in base64; restore it from a backup")]
    Malformed,
    /// The keys do not include the one the database was written with.
    #[error(
        "it does not contain the key with which the database was written; copy it from a process \
         that uses this database"
    )]
    WrongKey,
    /// The keys do not include the one to which the secrets are being re-sealed.
    #[error(
        "it does not contain the key {key_id}, to which `ferrite secrets rotate` is re-sealing the \
         secrets; copy it from the host of that command"
    )]
    NewKeyMissing {
        /// The id of the key.
        key_id: String,
    },
    /// The source does not return its keys.
    #[error("the keys cannot be read or written")]
    Source(#[source] KeySourceError),
    /// A sealed value was damaged, moved, or sealed with another key.
    #[error("the sealed value cannot be decrypted; it was damaged or sealed with another key")]
    CannotUnseal,
}

/// A new random key in base64.
#[must_use]
pub fn new_key() -> Secret<String> {
    let key: [u8; 32] = Key::<Aes256GcmSiv>::generate().into();
    Secret::new(STANDARD.encode(key))
}

/// Parses the keys of a source: base64, separated by white space or commas. Lines that start with `#` are
/// comments.
pub(crate) fn parse_keys(text: &str) -> Result<Vec<SealingKey>, SealError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let words = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || c == ','));
    let keys = words.filter(|word| !word.is_empty()).map(|word| {
        let bytes = STANDARD.decode(word).map_err(|_| SealError::Malformed)?;
        let key: [u8; 32] = bytes.try_into().map_err(|_| SealError::Malformed)?;
        Ok(SealingKey::new(&key))
    });
    keys.collect()
}

impl SealingKey {
    /// Encrypts `plain` for `owner`.
    pub(crate) fn seal(&self, owner: Uuid, plain: &[u8]) -> Vec<u8> {
        let nonce = Nonce::generate();
        let payload = Payload { msg: plain, aad: &self.associated_data(owner) };
        let cipher_text =
            self.cipher.encrypt(&nonce, payload).expect("a secret is shorter than 64 GiB");
        let mut sealed = Vec::with_capacity(HEADER_LEN + NONCE_LEN + cipher_text.len());
        sealed.extend_from_slice(&self.header());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&cipher_text);
        sealed
    }

    /// Decrypts what `seal` returned for `owner`.
    pub(crate) fn unseal(&self, owner: Uuid, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let rest = sealed.strip_prefix(&self.header()).ok_or(SealError::CannotUnseal)?;
        let (nonce, cipher_text) =
            rest.split_at_checked(NONCE_LEN).ok_or(SealError::CannotUnseal)?;
        let nonce = Nonce::try_from(nonce).map_err(|_| SealError::CannotUnseal)?;
        let payload = Payload { msg: cipher_text, aad: &self.associated_data(owner) };
        self.cipher.decrypt(&nonce, payload).map_err(|_| SealError::CannotUnseal)
    }

    /// The start of every value that is sealed with this key.
    pub(crate) fn header(&self) -> [u8; HEADER_LEN] {
        let mut header = [VERSION; HEADER_LEN];
        header[1..].copy_from_slice(&self.key_id);
        header
    }

    /// The id of the key, as stored and shown.
    pub(crate) fn key_id(&self) -> String {
        STANDARD.encode(self.key_id)
    }

    fn new(key: &[u8; 32]) -> Self {
        let cipher = Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(*key));
        // The key id is the tag of an empty message, which reveals nothing about the key.
        let payload = Payload { msg: b"", aad: b"ferrite key id" };
        let tag = cipher
            .encrypt(&Nonce::default(), payload)
            .expect("an empty message is shorter than 64 GiB");
        let mut key_id = [0; KEY_ID_LEN];
        key_id.copy_from_slice(&tag[..KEY_ID_LEN]);
        Self { cipher, key_id }
    }

    fn associated_data(&self, owner: Uuid) -> [u8; HEADER_LEN + 16] {
        let mut aad = [0; HEADER_LEN + 16];
        aad[..HEADER_LEN].copy_from_slice(&self.header());
        aad[HEADER_LEN..].copy_from_slice(owner.as_bytes());
        aad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed() {
        let (one, two) = (new_key().reveal().clone(), new_key().reveal().clone());
        let ids = |text: &str| -> Option<Vec<String>> {
            Some(parse_keys(text).ok()?.iter().map(SealingKey::key_id).collect())
        };
        let both = [ids(&one).unwrap(), ids(&two).unwrap()].concat();
        assert_ne!(both[0], both[1]);
        for text in
            [format!("{one}\n{two}\n"), format!("# new\n{one}, {two}"), format!("{one},{two}")]
        {
            assert_eq!(ids(&text), Some(both.clone()), "{text}");
        }
        assert_eq!(ids(" \n# nothing\n"), Some(Vec::new()));
        for text in ["x", "AAAA", &format!("{one} x")] {
            assert_eq!(ids(text), None, "{text}");
        }
    }

    #[test]
    fn values_are_bound_to_key_and_owner() {
        let keys = parse_keys(&format!("{} {}", new_key().reveal(), new_key().reveal())).unwrap();
        let (owner, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let sealed = keys[0].seal(owner, b"sesame");
        assert_eq!(keys[0].unseal(owner, &sealed).unwrap(), b"sesame");
        assert!(keys[0].unseal(other, &sealed).is_err());
        assert!(keys[1].unseal(owner, &sealed).is_err());
        assert_eq!(sealed[..HEADER_LEN], keys[0].header());
    }
}
