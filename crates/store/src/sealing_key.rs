// SPDX-License-Identifier: Apache-2.0
//! The key file, and encryption of secrets with it.
//!
//! Secrets are encrypted with AES-256-GCM-SIV: a repeated nonce reveals only whether two plain texts
//! are equal. A sealed value is `version (1) | key id (8) | nonce (12) | cipher text and tag`. It is
//! bound to its key and its owner, so a value copied to another row cannot be opened there.
//!
//! The database contains the id of the key it was written with. A process with another key file
//! fails at start, instead of finding unreadable secrets later.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use aes_gcm_siv::aead::{Aead as _, Generate as _, Key, KeyInit as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_model::SEALED_ARGUMENTS;
use uuid::Uuid;

use crate::engine::{DatabaseSession, Dialect};
use crate::error::{StoreError, StoreOpenError};
use crate::reader::decode_field;
use crate::value::SqlParam;

const KEY_FILE: &str = "secrets.key";
const VERSION: u8 = 1;
const KEY_ID_LEN: usize = 8;
const NONCE_LEN: usize = 12;

/// The key that seals and unseals secrets.
pub struct SealingKey {
    cipher: Aes256GcmSiv,
    key_id: [u8; KEY_ID_LEN],
}

/// The key file cannot be used, or a sealed value cannot be decrypted.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The key file is missing, but the database contains sealed data.
    #[error(
        "it is missing, but the database contains secrets sealed with it; restore it from a backup \
         or copy it from another process that uses this database"
    )]
    Missing,
    /// The key file is readable by group or others.
    #[error(
        "its mode {mode:o} makes it readable by other users; run chmod 600 on it, and consider the \
         passwords compromised"
    )]
    WorldReadable {
        /// The mode.
        mode: u32,
    },
    /// The key file has no valid key.
    #[error("it does not contain 32 bytes in base64; restore it from a backup")]
    Malformed,
    /// The key file is not the one the database was written with.
    #[error(
        "it contains another key than the one the database was written with; copy the file from a \
         process that uses this database"
    )]
    WrongKey,
    /// Reading or writing the key file failed.
    #[error("it cannot be read or written")]
    File(#[source] std::io::Error),
    /// A sealed value was damaged, moved, or sealed with another key.
    #[error("the sealed value cannot be decrypted; it was damaged or sealed with another key")]
    CannotUnseal,
}

impl SealingKey {
    /// Loads the key file. Creates one if the database has no sealed data yet.
    pub(crate) fn load_or_create(
        session: &mut dyn DatabaseSession,
        data_dir: &Path,
    ) -> Result<Self, StoreOpenError> {
        let path = data_dir.join(KEY_FILE);
        let refuse = |source| StoreOpenError::Key { path: path.clone(), source };
        let recorded = recorded_key_id(session).map_err(StoreOpenError::Prepare)?;
        let sealing_key = match read_key_file(&path).map_err(refuse)? {
            Some(key) => Self::new(&key),
            None => {
                if recorded.is_some() {
                    // On a server, other processes may be about to seal data with their key.
                    let in_use = match session.dialect() {
                        Dialect::Sqlite => {
                            has_sealed_data(session).map_err(StoreOpenError::Prepare)?
                        }
                        Dialect::Postgres | Dialect::MariaDb => true,
                    };
                    if in_use {
                        return Err(refuse(SealError::Missing));
                    }
                    session.run("DELETE FROM vault").map_err(StoreOpenError::Prepare)?;
                }
                return create_key_file(&path).map_err(refuse).map(|key| Self::new(&key)).and_then(
                    |sealing_key| {
                        sealing_key.record_key_id(session).map_err(StoreOpenError::Prepare)
                    },
                );
            }
        };
        match recorded {
            None => sealing_key.record_key_id(session).map_err(StoreOpenError::Prepare),
            Some(id) if id == sealing_key.key_id_text() => Ok(sealing_key),
            Some(_) => Err(refuse(SealError::WrongKey)),
        }
    }

    /// Encrypts `plain` for `owner`.
    pub(crate) fn seal(&self, owner: Uuid, plain: &[u8]) -> Vec<u8> {
        let nonce = Nonce::generate();
        let payload = Payload { msg: plain, aad: &self.associated_data(owner) };
        let cipher_text =
            self.cipher.encrypt(&nonce, payload).expect("a secret is shorter than 64 GiB");
        let mut sealed = Vec::with_capacity(1 + KEY_ID_LEN + NONCE_LEN + cipher_text.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.key_id);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&cipher_text);
        sealed
    }

    /// Decrypts what `seal` returned for `owner`.
    pub(crate) fn unseal(&self, owner: Uuid, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (version, rest) = sealed.split_first().ok_or(SealError::CannotUnseal)?;
        let (key_id, rest) = rest.split_at_checked(KEY_ID_LEN).ok_or(SealError::CannotUnseal)?;
        if *version != VERSION || key_id != self.key_id {
            return Err(SealError::CannotUnseal);
        }
        let (nonce, cipher_text) =
            rest.split_at_checked(NONCE_LEN).ok_or(SealError::CannotUnseal)?;
        let nonce = Nonce::try_from(nonce).map_err(|_| SealError::CannotUnseal)?;
        let payload = Payload { msg: cipher_text, aad: &self.associated_data(owner) };
        self.cipher.decrypt(&nonce, payload).map_err(|_| SealError::CannotUnseal)
    }

    /// Whether these bytes start with the version and the id of this key.
    pub(crate) fn has_own_header(&self, sealed: &[u8]) -> bool {
        sealed.strip_prefix(&[VERSION]).is_some_and(|rest| rest.starts_with(&self.key_id))
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

    fn associated_data(&self, owner: Uuid) -> [u8; 1 + KEY_ID_LEN + 16] {
        let mut aad = [0; 1 + KEY_ID_LEN + 16];
        aad[0] = VERSION;
        aad[1..=KEY_ID_LEN].copy_from_slice(&self.key_id);
        aad[1 + KEY_ID_LEN..].copy_from_slice(owner.as_bytes());
        aad
    }

    fn key_id_text(&self) -> String {
        STANDARD.encode(self.key_id)
    }

    fn record_key_id(self, session: &mut dyn DatabaseSession) -> Result<Self, StoreError> {
        let id = SqlParam::Owned(self.key_id_text());
        session.execute("INSERT INTO vault (key_id) VALUES (?)", &[id])?;
        Ok(self)
    }
}

fn read_key_file(path: &Path) -> Result<Option<[u8; 32]>, SealError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SealError::File(error)),
    };
    let mode = file.metadata().map_err(SealError::File)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SealError::WorldReadable { mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(SealError::File)?;
    let key = STANDARD.decode(text.trim()).map_err(|_| SealError::Malformed)?;
    key.try_into().map(Some).map_err(|_| SealError::Malformed)
}

/// Creates the key file atomically: a partly written key would make the secrets unreadable.
fn create_key_file(path: &Path) -> Result<[u8; 32], SealError> {
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
    write().map_err(SealError::File)?;
    tracing::info!(path = %path.display(), "key file created; back it up");
    Ok(key)
}

fn recorded_key_id(session: &mut dyn DatabaseSession) -> Result<Option<String>, StoreError> {
    let mut recorded = None;
    session.query("SELECT key_id FROM vault", &[], &mut |row| {
        recorded = Some(decode_field(row, 0, "vault", "key_id")?);
        Ok(())
    })?;
    Ok(recorded)
}

/// Returns whether any value in the database is sealed. The test `sealed_values` fails if a column is
/// missing here.
fn has_sealed_data(session: &mut dyn DatabaseSession) -> Result<bool, StoreError> {
    let is_set = |column: &str| format!("{column} IS NOT NULL");
    let has_sealed_arguments = |column: &str| format!("{column} LIKE '%\"{SEALED_ARGUMENTS}\":%'");
    let mut found = false;
    for (table, condition) in [
        ("agent_log_parts", is_set("sealed")),
        ("boot_plans", is_set("sealed")),
        ("deploy_templates", has_sealed_arguments("steps")),
        ("inspection_rules", "is_sensitive = 1 AND actions IS NOT NULL".to_owned()),
        ("nodes", is_set("sealed")),
        ("nodes", has_sealed_arguments("work")),
        ("runbooks", has_sealed_arguments("steps")),
        ("volume_targets", is_set("sealed")),
    ] {
        let sql = format!("SELECT id FROM {table} WHERE {condition} LIMIT 1");
        session.query(&sql, &[], &mut |_| {
            found = true;
            Ok(())
        })?;
    }
    Ok(found)
}
