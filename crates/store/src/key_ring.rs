// SPDX-License-Identifier: Apache-2.0
//! The sealing keys of this process: one seals, all unseal.
//!
//! The database contains the id of the key that seals. A process without this key fails at start, instead
//! of finding unreadable secrets later. While `ferrite secrets rotate` runs, every process reads from the
//! database which key seals now, and records there which keys it has (see [`crate::key_rotation`]).

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use node_model::{SEALED_ARGUMENTS, Secret, Timestamp};
use uuid::Uuid;

use crate::engine::{DatabaseSession, Dialect};
use crate::error::{StoreError, StoreOpenError};
use crate::key_rotation::{KeyState, forget_ended_processes, forget_process, record_process};
use crate::key_source::KeySource;
use crate::reader::decode_field;
use crate::sealing_key::{SealError, SealingKey, new_key, parse_keys};
use crate::value::SqlParam;

/// How often a process reads from the database which key seals, in a transaction that it runs anyway.
pub(crate) const FOLLOW_INTERVAL: Duration = Duration::from_secs(5);

/// The sealing keys of this process.
pub struct KeyRing {
    source: Arc<dyn KeySource>,
    keys: Arc<RwLock<Arc<LoadedKeys>>>,
    /// When the state of the keys was last read from the database, in microseconds.
    followed_at: AtomicI64,
    /// Held while the sealing key is read and replaced.
    reading: Mutex<()>,
    is_loading: Arc<AtomicBool>,
    /// This process in the table of processes.
    process: Uuid,
}

/// The keys, and the one that seals.
#[derive(Clone)]
struct LoadedKeys {
    keys: Vec<Arc<SealingKey>>,
    sealing: Arc<SealingKey>,
}

impl KeyRing {
    /// Loads the keys. Creates one if the database has no sealed data yet and the source can be written.
    pub(crate) fn load_or_create(
        session: &mut dyn DatabaseSession,
        source: &Arc<dyn KeySource>,
    ) -> Result<Self, StoreOpenError> {
        let refuse = |error| StoreOpenError::Key { from: source.describe(), source: error };
        let recorded = recorded_key_id(session).map_err(StoreOpenError::Prepare)?;
        let mut keys = load_keys(&**source).map_err(refuse)?;
        let mut recorded = recorded.as_deref();
        if keys.is_empty() {
            if recorded.is_some() {
                // On a server, other processes may be about to seal data with their key.
                let in_use = match session.dialect() {
                    Dialect::Sqlite => has_sealed_data(session).map_err(StoreOpenError::Prepare)?,
                    Dialect::Postgres | Dialect::MariaDb => true,
                };
                if in_use {
                    return Err(refuse(SealError::Missing));
                }
                session.run("DELETE FROM vault").map_err(StoreOpenError::Prepare)?;
                recorded = None;
            }
            if !source.replace(&[new_key()]).map_err(refuse)? {
                return Err(refuse(SealError::NoKey));
            }
            tracing::info!(source = source.describe(), "sealing key created; back it up");
            keys = load_keys(&**source).map_err(refuse)?;
        }
        let sealing = match recorded {
            Some(id) => find(&keys, id).ok_or_else(|| refuse(SealError::WrongKey))?,
            None => {
                let first = keys.first().cloned().ok_or_else(|| refuse(SealError::NoKey))?;
                record_key_id(session, &first.key_id()).map_err(StoreOpenError::Prepare)?;
                first
            }
        };
        Ok(Self {
            source: Arc::clone(source),
            keys: Arc::new(RwLock::new(Arc::new(LoadedKeys { keys, sealing }))),
            followed_at: AtomicI64::new(i64::MIN),
            reading: Mutex::new(()),
            is_loading: Arc::new(AtomicBool::new(false)),
            process: Uuid::new_v4(),
        })
    }

    /// Encrypts `plain` for `owner`.
    pub(crate) fn seal(&self, owner: Uuid, plain: &[u8]) -> Vec<u8> {
        self.loaded().sealing.seal(owner, plain)
    }

    /// Decrypts what `seal` returned for `owner`, in this or another process.
    pub(crate) fn unseal(&self, owner: Uuid, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let loaded = self.loaded();
        let key = loaded.keys.iter().find(|key| sealed.starts_with(&key.header()));
        key.ok_or(SealError::CannotUnseal)?.unseal(owner, sealed)
    }

    /// Whether these bytes start with the version and the id of one of the keys.
    pub(crate) fn has_own_header(&self, sealed: &[u8]) -> bool {
        self.loaded().keys.iter().any(|key| sealed.starts_with(&key.header()))
    }

    /// The value sealed with the key that seals now; `None` if it is already, or cannot be decrypted.
    pub(crate) fn resealed(&self, owner: Uuid, sealed: &[u8]) -> Option<Vec<u8>> {
        if sealed.is_empty() || sealed.starts_with(&self.loaded().sealing.header()) {
            return None;
        }
        self.unseal(owner, sealed).ok().map(|plain| self.seal(owner, &plain))
    }

    /// The ids of all keys.
    pub(crate) fn key_ids(&self) -> Vec<String> {
        self.loaded().keys.iter().map(|key| key.key_id()).collect()
    }

    /// The keys other than the one that seals.
    pub(crate) fn other_keys(&self) -> Vec<Arc<SealingKey>> {
        let loaded = self.loaded();
        let sealing = loaded.sealing.header();
        loaded.keys.iter().filter(|key| key.header() != sealing).cloned().collect()
    }

    /// Reads again from the source. Keys that this process has already are kept.
    pub(crate) fn reload(&self) -> Result<(), SealError> {
        let found = load_keys(&*self.source)?;
        merge(&self.keys, found);
        Ok(())
    }

    /// Adds a key to the source, after the existing ones. Returns its id, or `None` if the source cannot
    /// be written.
    pub(crate) fn add_new_key(&self) -> Result<Option<String>, SealError> {
        let new = new_key();
        let mut texts = self.key_texts()?;
        let id = parse_keys(new.reveal())?.first().map(SealingKey::key_id);
        texts.push(new);
        if !self.source.replace(&texts)? {
            return Ok(None);
        }
        self.reload()?;
        Ok(id)
    }

    /// Removes all keys but the one that seals from the source. Returns false if the source cannot be
    /// written.
    pub(crate) fn keep_only_sealing_key(&self) -> Result<bool, SealError> {
        let sealing = self.loaded().sealing.key_id();
        let mut kept = self.key_texts()?;
        kept.retain(|text| {
            parse_keys(text.reveal())
                .is_ok_and(|keys| keys.iter().any(|key| key.key_id() == sealing))
        });
        if kept.is_empty() {
            return Err(SealError::WrongKey);
        }
        self.source.replace(&kept)
    }

    /// Names the source of the keys in messages.
    pub(crate) fn describe_source(&self) -> String {
        self.source.describe()
    }

    /// Reads which key seals now, and records which keys this process has, unless it did so recently.
    /// Called at the start of every transaction, so that a process that was suspended or without a
    /// connection does not seal with a key that was replaced meanwhile.
    pub(crate) fn follow(
        &self,
        session: &mut dyn DatabaseSession,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let before = self.followed_at.load(Ordering::Acquire);
        let next = before.saturating_add(i64::try_from(FOLLOW_INTERVAL.as_micros()).unwrap_or(0));
        if before != i64::MIN && (before..next).contains(&now.0) {
            return Ok(());
        }
        // Concurrent transactions all do this: none may seal with an old key while another one reads.
        self.follow_now(session, now)?;
        self.followed_at.store(now.0, Ordering::Release);
        Ok(())
    }

    /// Like [`KeyRing::follow`], at once.
    pub(crate) fn follow_now(
        &self,
        session: &mut dyn DatabaseSession,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let state = self.replace_sealing_key(session)?;
        record_process(session, self.process, &self.key_ids(), state.sealing(), now)
    }

    /// Reads which key seals now, and uses it.
    fn replace_sealing_key(
        &self,
        session: &mut dyn DatabaseSession,
    ) -> Result<KeyState, StoreError> {
        // The read is the first statement of the transaction, so that a later read is never older. No
        // statement waits for another transaction while the lock is held.
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let state = KeyState::read(session)?;
        if let Some(missing) = state.required().find(|id| self.key(id).is_none()) {
            tracing::info!(key = missing, "sealing keys are read again for a new key");
            self.reload_in_background();
        }
        let Some(sealing) = self.key(state.sealing()) else {
            return Err(StoreError::KeyMissing { key_id: state.sealing().to_owned() });
        };
        let loaded = self.loaded();
        if loaded.sealing.header() != sealing.header() {
            tracing::info!(key = state.sealing(), "sealing key replaced");
            let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
            *keys = Arc::new(LoadedKeys { keys: keys.keys.clone(), sealing });
        }
        Ok(state)
    }

    /// Checks at start that this process has all keys that others use, and records it.
    pub(crate) fn join(
        &self,
        session: &mut dyn DatabaseSession,
        now: Timestamp,
    ) -> Result<(), StoreOpenError> {
        let state = KeyState::read(session).map_err(StoreOpenError::Prepare)?;
        if let Some(id) = state.required().find(|id| self.key(id).is_none()) {
            return Err(StoreOpenError::Key {
                from: self.source.describe(),
                source: SealError::NewKeyMissing { key_id: id.to_owned() },
            });
        }
        forget_ended_processes(session, now)
            .and_then(|()| self.follow(session, now))
            .map_err(StoreOpenError::Prepare)
    }

    /// Removes this process from the table of processes.
    pub(crate) fn leave(&self, session: &mut dyn DatabaseSession) -> Result<(), StoreError> {
        forget_process(session, self.process)
    }

    /// The keys of the source as texts.
    fn key_texts(&self) -> Result<Vec<Secret<String>>, SealError> {
        let text = self.source.load()?.unwrap_or_else(|| Secret::new(String::new()));
        let lines = text.reveal().lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let words = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || c == ','));
        Ok(words.filter(|word| !word.is_empty()).map(|word| Secret::new(word.to_owned())).collect())
    }

    /// A source may block, and a transaction must not wait for it.
    fn reload_in_background(&self) {
        if self.is_loading.swap(true, Ordering::AcqRel) {
            return;
        }
        let (source, keys) = (Arc::clone(&self.source), Arc::clone(&self.keys));
        let is_loading = Arc::clone(&self.is_loading);
        let load = move || {
            match load_keys(&*source) {
                Ok(found) => merge(&keys, found),
                Err(error) => {
                    let from = source.describe();
                    tracing::warn!(%error, source = from, "sealing keys cannot be read");
                }
            }
            is_loading.store(false, Ordering::Release);
        };
        let started = std::thread::Builder::new().name("sealing-keys".to_owned()).spawn(load);
        if let Err(error) = started {
            tracing::warn!(%error, "thread for sealing keys cannot be started");
            self.is_loading.store(false, Ordering::Release);
        }
    }

    fn key(&self, id: &str) -> Option<Arc<SealingKey>> {
        find(&self.loaded().keys, id)
    }

    fn loaded(&self) -> Arc<LoadedKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The ids of the keys in a source.
pub(crate) fn loaded_key_ids(source: &dyn KeySource) -> Result<Vec<String>, SealError> {
    Ok(load_keys(source)?.iter().map(|key| key.key_id()).collect())
}

fn load_keys(source: &dyn KeySource) -> Result<Vec<Arc<SealingKey>>, SealError> {
    let text = source.load()?;
    let keys = text.map_or(Ok(Vec::new()), |text| parse_keys(text.reveal()))?;
    Ok(keys.into_iter().map(Arc::new).collect())
}

/// Adds the keys that are not there yet.
fn merge(keys: &RwLock<Arc<LoadedKeys>>, found: Vec<Arc<SealingKey>>) {
    let mut keys = keys.write().unwrap_or_else(PoisonError::into_inner);
    let mut all = LoadedKeys::clone(&keys);
    let new = found.into_iter().filter(|key| find(&keys.keys, &key.key_id()).is_none());
    all.keys.extend(new);
    *keys = Arc::new(all);
}

fn find(keys: &[Arc<SealingKey>], id: &str) -> Option<Arc<SealingKey>> {
    keys.iter().find(|key| key.key_id() == id).cloned()
}

fn record_key_id(session: &mut dyn DatabaseSession, id: &str) -> Result<(), StoreError> {
    session.execute("INSERT INTO vault (key_id) VALUES (?)", &[SqlParam::Text(id)]).map(drop)
}

/// The id of the key with which the database was written, except during a rotation.
pub(crate) fn recorded_key_id(
    session: &mut dyn DatabaseSession,
) -> Result<Option<String>, StoreError> {
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
        ("certificate_authorities", is_set("sealed")),
        ("deploy_templates", has_sealed_arguments("steps")),
        ("deployments", is_set("sealed")),
        ("inspection_rules", "is_sensitive = 1 AND actions IS NOT NULL".to_owned()),
        ("nodes", is_set("sealed")),
        ("nodes", has_sealed_arguments("work")),
        ("runbooks", has_sealed_arguments("steps")),
        ("volume_targets", is_set("sealed")),
    ] {
        // Migrations also call this, and some tables are newer than some of them.
        let mut exists = false;
        let tables = "SELECT 1 FROM sqlite_master WHERE name = ?";
        session.query(tables, &[SqlParam::Text(table)], &mut |_| {
            exists = true;
            Ok(())
        })?;
        if !exists {
            continue;
        }
        let sql = format!("SELECT id FROM {table} WHERE {condition} LIMIT 1");
        session.query(&sql, &[], &mut |_| {
            found = true;
            Ok(())
        })?;
    }
    Ok(found)
}
