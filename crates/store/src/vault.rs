// SPDX-License-Identifier: Apache-2.0
//! The key file, and sealing bytes with it.
//!
//! Secrets are encrypted with AES-256-GCM-SIV: a nonce that repeats by accident reveals only that
//! two plain texts were equal. A sealed value is
//! `version (1) | key id (8) | nonce (12) | cipher text and tag`, bound to its key and its owner, so
//! that a value copied into another row does not open there.
//!
//! The database remembers the id of the key it was written with. A second process with another key
//! file is refused at its start instead of finding secrets it cannot read later.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use aes_gcm_siv::aead::{Aead as _, Generate as _, Key, KeyInit as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use crate::engine::{Dialect, Session};
use crate::error::{Error, OpenError};
use crate::reader::field;
use crate::value::Param;

const KEY_FILE: &str = "secrets.key";
const VERSION: u8 = 1;
const KEY_ID: usize = 8;
const NONCE: usize = 12;

/// Seals and opens secrets.
pub struct Vault {
    cipher: Aes256GcmSiv,
    key_id: [u8; KEY_ID],
}

/// The key file cannot be used, or a sealed value cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The file is gone, the secrets are there.
    #[error(
        "it is missing, but the database holds secrets sealed with it: put it back from a backup or \
         copy it from another process that uses this database"
    )]
    Missing,
    /// Others can read it.
    #[error(
        "its mode is {mode:o}, so others can read it: run chmod 600 on it, and consider the passwords known"
    )]
    Exposed {
        /// The mode found.
        mode: u32,
    },
    /// It does not hold a key.
    #[error("it does not hold 32 bytes in base64: put the right file back from a backup")]
    Malformed,
    /// It is not the database's.
    #[error(
        "it holds another key than the one the database was written with: copy the file from a process \
         that uses this database already"
    )]
    OtherKey,
    /// It cannot be read or written.
    #[error("it cannot be read or written")]
    File(#[source] std::io::Error),
    /// A sealed value has been damaged, moved, or sealed with another key.
    #[error("the sealed value does not open: it was damaged, or sealed with another key")]
    Unopenable,
}

impl Vault {
    /// Loads the key, or makes one if the database has none yet.
    pub(crate) fn open(session: &mut dyn Session, data_dir: &Path) -> Result<Self, OpenError> {
        let path = data_dir.join(KEY_FILE);
        let refuse = |source| OpenError::Key { path: path.clone(), source };
        let recorded = recorded_key(session).map_err(OpenError::Prepare)?;
        let vault = match load(&path).map_err(refuse)? {
            Some(key) => Self::new(&key),
            None => {
                if recorded.is_some() {
                    // A server's other users may be about to seal with the key they have.
                    let in_use = match session.dialect() {
                        Dialect::Sqlite => holds_secrets(session).map_err(OpenError::Prepare)?,
                        Dialect::Postgres | Dialect::MariaDb => true,
                    };
                    if in_use {
                        return Err(refuse(VaultError::Missing));
                    }
                    session.run("DELETE FROM vault").map_err(OpenError::Prepare)?;
                }
                return make(&path)
                    .map_err(refuse)
                    .map(|key| Self::new(&key))
                    .and_then(|vault| vault.record(session).map_err(OpenError::Prepare));
            }
        };
        match recorded {
            None => vault.record(session).map_err(OpenError::Prepare),
            Some(id) if id == vault.key_id_text() => Ok(vault),
            Some(_) => Err(refuse(VaultError::OtherKey)),
        }
    }

    /// Encrypts `plain` so that only this key, for this owner, opens it.
    pub(crate) fn seal(&self, owner: Uuid, plain: &[u8]) -> Vec<u8> {
        let nonce = Nonce::generate();
        let payload = Payload { msg: plain, aad: &self.bound_to(owner) };
        let cipher_text =
            self.cipher.encrypt(&nonce, payload).expect("a secret is shorter than 64 GiB");
        let mut sealed = Vec::with_capacity(1 + KEY_ID + NONCE + cipher_text.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.key_id);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&cipher_text);
        sealed
    }

    /// Decrypts what `seal` made for `owner`.
    pub(crate) fn open_sealed(&self, owner: Uuid, sealed: &[u8]) -> Result<Vec<u8>, VaultError> {
        let (version, rest) = sealed.split_first().ok_or(VaultError::Unopenable)?;
        let (key_id, rest) = rest.split_at_checked(KEY_ID).ok_or(VaultError::Unopenable)?;
        if *version != VERSION || key_id != self.key_id {
            return Err(VaultError::Unopenable);
        }
        let (nonce, cipher_text) = rest.split_at_checked(NONCE).ok_or(VaultError::Unopenable)?;
        let nonce = Nonce::try_from(nonce).map_err(|_| VaultError::Unopenable)?;
        let payload = Payload { msg: cipher_text, aad: &self.bound_to(owner) };
        self.cipher.decrypt(&nonce, payload).map_err(|_| VaultError::Unopenable)
    }

    /// Whether these bytes begin as everything that this key sealed.
    pub(crate) fn is_ours(&self, sealed: &[u8]) -> bool {
        sealed.strip_prefix(&[VERSION]).is_some_and(|rest| rest.starts_with(&self.key_id))
    }

    fn new(key: &[u8; 32]) -> Self {
        let cipher = Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(*key));
        // An id that tells keys apart and tells nothing about them: the tag of an empty message.
        let payload = Payload { msg: b"", aad: b"ferrite key id" };
        let tag = cipher
            .encrypt(&Nonce::default(), payload)
            .expect("an empty message is shorter than 64 GiB");
        let mut key_id = [0; KEY_ID];
        key_id.copy_from_slice(&tag[..KEY_ID]);
        Self { cipher, key_id }
    }

    fn bound_to(&self, owner: Uuid) -> [u8; 1 + KEY_ID + 16] {
        let mut aad = [0; 1 + KEY_ID + 16];
        aad[0] = VERSION;
        aad[1..=KEY_ID].copy_from_slice(&self.key_id);
        aad[1 + KEY_ID..].copy_from_slice(owner.as_bytes());
        aad
    }

    fn key_id_text(&self) -> String {
        STANDARD.encode(self.key_id)
    }

    fn record(self, session: &mut dyn Session) -> Result<Self, Error> {
        let id = Param::Owned(self.key_id_text());
        session.execute("INSERT INTO vault (key_id) VALUES (?)", &[id])?;
        Ok(self)
    }
}

fn load(path: &Path) -> Result<Option<[u8; 32]>, VaultError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(VaultError::File(error)),
    };
    let mode = file.metadata().map_err(VaultError::File)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(VaultError::Exposed { mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(VaultError::File)?;
    let key = STANDARD.decode(text.trim()).map_err(|_| VaultError::Malformed)?;
    key.try_into().map(Some).map_err(|_| VaultError::Malformed)
}

/// Makes the key file whole or not at all: a half-written key would lock the secrets away.
fn make(path: &Path) -> Result<[u8; 32], VaultError> {
    let key: [u8; 32] = Key::<Aes256GcmSiv>::generate().into();
    let new = path.with_extension("key.new");
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{}", STANDARD.encode(key))?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(VaultError::File)?;
    tracing::info!(file = %path.display(), "made the key that seals secrets; back it up");
    Ok(key)
}

fn recorded_key(session: &mut dyn Session) -> Result<Option<String>, Error> {
    let mut recorded = None;
    session.query("SELECT key_id FROM vault", &[], &mut |row| {
        recorded = Some(field(row, 0, "vault", "key_id")?);
        Ok(())
    })?;
    Ok(recorded)
}

fn holds_secrets(session: &mut dyn Session) -> Result<bool, Error> {
    let mut found = false;
    for sql in [
        "SELECT id FROM nodes WHERE sealed IS NOT NULL LIMIT 1",
        "SELECT id FROM volume_targets WHERE sealed IS NOT NULL LIMIT 1",
        "SELECT id FROM boot_plans LIMIT 1",
        "SELECT id FROM inspection_rules WHERE is_sensitive = 1 LIMIT 1",
    ] {
        session.query(sql, &[], &mut |_| {
            found = true;
            Ok(())
        })?;
    }
    Ok(found)
}
