// SPDX-License-Identifier: Apache-2.0
//! Replacement of the sealing key while processes run.
//!
//! A rotation has three phases, recorded in the database:
//! - `announced`: every process reads its key source again until it has the new key.
//! - `sealing`: all processes have it; they seal with it, and the values of the old key are re-sealed.
//! - `done`: no value of the old key is left.
//!
//! Each step can be repeated, so an interrupted rotation is continued by starting it again.

use std::time::Duration;

use node_model::Timestamp;
use uuid::Uuid;

use crate::boot_plans::upsert;
use crate::engine::DatabaseSession;
use crate::error::StoreError;
use crate::key_ring::recorded_key_id;
use crate::reader::{StoreReader, decode_field};
use crate::reseal::{SEALED_COLUMNS, count_values, reseal_batch};
use crate::sealing_key::SealError;
use crate::store::Store;
use crate::value::{ColumnType as _, SqlParam};
use crate::writer::StoreWriter;

const ROTATIONS: &str = "key_rotations";
const PROCESSES: &str = "key_processes";

/// A process that did not run a transaction for so long is not waited for. When it runs one, it reads first
/// which key seals.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// When the row of a process that was killed is removed.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Interval at which other processes are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of passes over the database. One pass is enough unless other processes were unreachable.
const MAX_PASSES: usize = 5;

/// The phase of a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RotationPhase {
    /// Processes load the new key.
    Announced,
    /// Processes seal with the new key, and values of the old key are re-sealed.
    Sealing,
}

/// A rotation that has not finished.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRotation {
    /// The id of the new key.
    pub key_id: String,
    /// The id of the old key.
    pub old_key_id: String,
    /// How far it is.
    pub phase: RotationPhase,
}

/// A process that uses the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyProcess {
    /// Host and process id.
    pub name: String,
    /// The ids of its keys.
    pub key_ids: Vec<String>,
    /// The key that it seals with.
    pub sealing_key_id: String,
}

/// The sealing keys of an installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyStatus {
    /// The id of the key that seals.
    pub sealing_key_id: String,
    /// The keys of this process.
    pub own_key_ids: Vec<String>,
    /// The rotation that has not finished.
    pub rotation: Option<KeyRotation>,
    /// Processes that use the database, including this one.
    pub processes: Vec<KeyProcess>,
    /// How many values each other key of this process has sealed.
    pub other_keys: Vec<(String, u64)>,
    /// The ids of keys that a finished rotation has replaced.
    pub replaced_key_ids: Vec<String>,
}

/// Progress of a rotation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RotationProgress {
    /// These processes do not have the new key yet, or do not use it yet.
    Waiting {
        /// Their hosts and process ids.
        processes: Vec<String>,
    },
    /// Values are re-sealed.
    Resealing {
        /// How many values are done.
        done: u64,
        /// How many there were at the start.
        total: u64,
    },
}

/// The result of a rotation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RotationSummary {
    /// The id of the key that seals now.
    pub key_id: String,
    /// How many values were re-sealed.
    pub resealed: u64,
    /// How many values could not be decrypted with the old key. They were unreadable before.
    pub damaged: u64,
}

/// The key was not replaced, or not completely.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// The database failed.
    #[error("the database failed; start the rotation again to continue it")]
    Store(#[from] StoreError),
    /// The source of the keys failed.
    #[error("cannot use {from}")]
    Source {
        /// The source.
        from: String,
        /// The cause.
        #[source]
        source: SealError,
    },
    /// The source cannot be written and has no new key.
    #[error(
        "there is no new key in {from}; create one with `ferrite secrets new-key`, add it there \
         without removing the old one, and repeat this command"
    )]
    NoNewKey {
        /// The source.
        from: String,
    },
    /// There are several new keys.
    #[error("there are several new keys: {}; remove all but one", key_ids.join(", "))]
    SeveralNewKeys {
        /// Their ids.
        key_ids: Vec<String>,
    },
    /// Processes do not have the new key.
    #[error(
        "these processes do not have or use the key {key_id} yet: {}; give them the key and repeat \
         this command", processes.join(", ")
    )]
    ProcessesWithoutKey {
        /// The id of the key.
        key_id: String,
        /// Hosts and process ids.
        processes: Vec<String>,
    },
    /// A rotation has to be finished first.
    #[error("a rotation to the key {key_id} has not finished; run `ferrite secrets rotate` first")]
    Unfinished {
        /// The id of the key.
        key_id: String,
    },
    /// Values of the old key kept appearing.
    #[error(
        "values sealed with an old key keep appearing; check that all processes run the same version \
         of ferrite"
    )]
    OldKeyInUse,
}

/// The keys as the database knows them.
pub(crate) struct KeyState {
    recorded: String,
    rotation: Option<KeyRotation>,
}

impl KeyState {
    pub(crate) fn read(session: &mut dyn DatabaseSession) -> Result<Self, StoreError> {
        let recorded = recorded_key_id(session)?
            .ok_or(StoreError::Corrupt { table: "vault", column: "key_id" })?;
        let sql = "SELECT key_id, old_key_id, phase FROM key_rotations WHERE phase <> 'done'";
        let mut rotation = None;
        session.query(sql, &[], &mut |row| {
            let phase: String = decode_field(row, 2, ROTATIONS, "phase")?;
            rotation = Some(KeyRotation {
                key_id: decode_field(row, 0, ROTATIONS, "key_id")?,
                old_key_id: decode_field(row, 1, ROTATIONS, "old_key_id")?,
                phase: match phase.as_str() {
                    "announced" => RotationPhase::Announced,
                    "sealing" => RotationPhase::Sealing,
                    _ => return Err(StoreError::Corrupt { table: ROTATIONS, column: "phase" }),
                },
            });
            Ok(())
        })?;
        Ok(Self { recorded, rotation })
    }

    /// The id of the key that seals.
    pub(crate) fn sealing(&self) -> &str {
        match &self.rotation {
            Some(KeyRotation { key_id, phase: RotationPhase::Sealing, .. }) => key_id,
            Some(KeyRotation { phase: RotationPhase::Announced, .. }) | None => &self.recorded,
        }
    }

    /// The ids of the keys that every process needs.
    pub(crate) fn required(&self) -> impl Iterator<Item = &str> {
        let new = self.rotation.as_ref().map(|rotation| rotation.key_id.as_str());
        std::iter::once(self.recorded.as_str()).chain(new)
    }
}

/// Records that a process uses the database with these keys.
pub(crate) fn record_process(
    session: &mut dyn DatabaseSession,
    process: Uuid,
    key_ids: &[String],
    sealing_key_id: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let sql = upsert(
        session.dialect(),
        "INSERT INTO key_processes (uuid, name, key_ids, sealing_key_id, seen_at)
         VALUES (?, ?, ?, ?, ?)",
        "uuid",
        "key_ids = {new:key_ids}, sealing_key_id = {new:sealing_key_id}, seen_at = {new:seen_at}",
    );
    session.execute(
        &sql,
        &[
            SqlParam::id(process),
            SqlParam::Owned(process_name()),
            SqlParam::Owned(key_ids.join(" ")),
            SqlParam::Text(sealing_key_id),
            now.bind(),
        ],
    )?;
    Ok(())
}

/// Removes processes that have ended without [`forget_process`].
pub(crate) fn forget_ended_processes(
    session: &mut dyn DatabaseSession,
    now: Timestamp,
) -> Result<(), StoreError> {
    let ended = Timestamp(now.0 - i64::try_from(FORGET_AFTER.as_micros()).unwrap_or(0));
    session.execute("DELETE FROM key_processes WHERE seen_at < ?", &[ended.bind()]).map(drop)
}

/// Removes a process that ends.
pub(crate) fn forget_process(
    session: &mut dyn DatabaseSession,
    process: Uuid,
) -> Result<(), StoreError> {
    let sql = "DELETE FROM key_processes WHERE uuid = ?";
    session.execute(sql, &[SqlParam::id(process)]).map(drop)
}

impl StoreReader<'_> {
    fn key_status(&mut self) -> Result<KeyStatus, StoreError> {
        let state = KeyState::read(self.session)?;
        let live =
            Timestamp(self.now().0 - i64::try_from(PROCESS_TIMEOUT.as_micros()).unwrap_or(0));
        let sql = "SELECT name, key_ids, sealing_key_id FROM key_processes WHERE seen_at >= ? \
                   ORDER BY name";
        let mut processes = Vec::new();
        self.session.query(sql, &[live.bind()], &mut |row| {
            let key_ids: String = decode_field(row, 1, PROCESSES, "key_ids")?;
            processes.push(KeyProcess {
                name: decode_field(row, 0, PROCESSES, "name")?,
                key_ids: key_ids.split(' ').map(str::to_owned).collect(),
                sealing_key_id: decode_field(row, 2, PROCESSES, "sealing_key_id")?,
            });
            Ok(())
        })?;
        let sql = "SELECT old_key_id FROM key_rotations WHERE phase = 'done' ORDER BY id";
        let mut replaced_key_ids = Vec::new();
        self.session.query(sql, &[], &mut |row| {
            replaced_key_ids.push(decode_field(row, 0, ROTATIONS, "old_key_id")?);
            Ok(())
        })?;
        let mut other_keys = Vec::new();
        for key in self.shared.keys.other_keys() {
            other_keys.push((key.key_id(), count_values(self.session, &key)?));
        }
        Ok(KeyStatus {
            sealing_key_id: state.sealing().to_owned(),
            own_key_ids: self.shared.keys.key_ids(),
            rotation: state.rotation,
            processes,
            other_keys,
            replaced_key_ids,
        })
    }
}

impl StoreWriter<'_> {
    /// Starts a rotation unless one has started.
    fn announce_key(&mut self, key_id: &str) -> Result<(), StoreError> {
        let state = KeyState::read(self.session)?;
        if state.rotation.is_some() {
            return Ok(());
        }
        let now = self.now();
        self.session
            .execute(
                "INSERT INTO key_rotations (key_id, old_key_id, phase, started_at)
                 VALUES (?, ?, 'announced', ?)",
                &[SqlParam::Text(key_id), SqlParam::Text(&state.recorded), now.bind()],
            )
            .map(drop)
    }

    fn set_rotation_phase(&mut self, key_id: &str, phase: &'static str) -> Result<(), StoreError> {
        let sql = "UPDATE key_rotations SET phase = ? WHERE key_id = ? AND phase <> 'done'";
        self.session.execute(sql, &[SqlParam::Text(phase), SqlParam::Text(key_id)]).map(drop)
    }

    fn finish_rotation(&mut self, key_id: &str) -> Result<(), StoreError> {
        let now = self.now();
        self.session.execute("UPDATE vault SET key_id = ?", &[SqlParam::Text(key_id)])?;
        let sql = "UPDATE key_rotations SET phase = 'done', finished_at = ? WHERE key_id = ?";
        self.session.execute(sql, &[now.bind(), SqlParam::Text(key_id)]).map(drop)
    }
}

impl Store {
    /// The sealing keys of the installation.
    pub async fn key_status(&self) -> Result<KeyStatus, StoreError> {
        self.scan(|reader| reader.key_status()).await
    }

    /// Reads from the database which key seals now, and records which keys this process has. Every process
    /// does so with its transactions every few seconds.
    pub async fn follow_keys(&self) -> Result<(), StoreError> {
        self.write(|writer| {
            let now = writer.now();
            writer.shared.keys.follow_now(writer.session, now)
        })
        .await
    }

    /// Replaces the sealing key, or continues an interrupted rotation: waits until all processes have the
    /// new key, at most for `wait`, and re-seals everything. The old key stays in the source, see
    /// [`Store::remove_old_keys`].
    pub async fn rotate_key(
        &self,
        wait: Duration,
        progress: &mut (dyn FnMut(RotationProgress) + Send),
    ) -> Result<RotationSummary, RotationError> {
        let key_id = self.new_key_id().await?;
        let id = key_id.clone();
        self.write(move |writer| writer.announce_key(&id)).await?;
        self.wait_for_processes(&key_id, wait, progress, |process| {
            process.key_ids.contains(&key_id)
        })
        .await?;
        let id = key_id.clone();
        self.write(move |writer| writer.set_rotation_phase(&id, "sealing")).await?;
        self.wait_for_processes(&key_id, wait, progress, |process| {
            process.sealing_key_id == key_id
        })
        .await?;
        let summary = self.reseal_everything(&key_id, progress).await?;
        let id = key_id.clone();
        self.write(move |writer| writer.finish_rotation(&id)).await?;
        Ok(summary)
    }

    /// Removes all keys but the one that seals from the source, after it has re-sealed what a process has
    /// sealed with an old key since. `None` if the source cannot be written.
    pub async fn remove_old_keys(
        &self,
        progress: &mut (dyn FnMut(RotationProgress) + Send),
    ) -> Result<Option<RotationSummary>, RotationError> {
        let status = self.key_status().await?;
        if let Some(rotation) = status.rotation {
            return Err(RotationError::Unfinished { key_id: rotation.key_id });
        }
        self.follow_keys().await?;
        let summary = self.reseal_everything(&status.sealing_key_id, progress).await?;
        let kept = self.with_keys(|keys| keys.keep_only_sealing_key())?;
        Ok(kept.then_some(summary))
    }

    /// The id of the key to rotate to: of the interrupted rotation, of the only new key in the source, or of
    /// a key that is added to it.
    async fn new_key_id(&self) -> Result<String, RotationError> {
        self.with_keys(|keys| keys.reload())?;
        let status = self.key_status().await?;
        if let Some(rotation) = status.rotation {
            return Ok(rotation.key_id);
        }
        let mut new = status.own_key_ids;
        new.retain(|id| *id != status.sealing_key_id && !status.replaced_key_ids.contains(id));
        match new.len() {
            0 => {
                let added = self.with_keys(|keys| keys.add_new_key())?;
                added.ok_or_else(|| RotationError::NoNewKey { from: self.keys().describe_source() })
            }
            1 => Ok(new.remove(0)),
            _ => Err(RotationError::SeveralNewKeys { key_ids: new }),
        }
    }

    async fn wait_for_processes(
        &self,
        key_id: &str,
        wait: Duration,
        progress: &mut (dyn FnMut(RotationProgress) + Send),
        is_ready: impl Fn(&KeyProcess) -> bool + Send,
    ) -> Result<(), RotationError> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            self.follow_keys().await?;
            let status = self.key_status().await?;
            let waiting = status.processes.into_iter().filter(|process| !is_ready(process));
            let processes: Vec<String> = waiting.map(|process| process.name).collect();
            if processes.is_empty() {
                return Ok(());
            }
            if tokio::time::Instant::now() >= deadline {
                let key_id = key_id.to_owned();
                return Err(RotationError::ProcessesWithoutKey { key_id, processes });
            }
            progress(RotationProgress::Waiting { processes });
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Re-seals all values of other keys, until a pass finds none.
    async fn reseal_everything(
        &self,
        key_id: &str,
        progress: &mut (dyn FnMut(RotationProgress) + Send),
    ) -> Result<RotationSummary, RotationError> {
        let mut summary = RotationSummary { key_id: key_id.to_owned(), ..Default::default() };
        let status = self.key_status().await?;
        let total: u64 = status.other_keys.iter().map(|(_, count)| count).sum();
        for _ in 0..MAX_PASSES {
            let (mut resealed, mut damaged) = (0, 0);
            for key in self.keys().other_keys() {
                for column in SEALED_COLUMNS {
                    let mut last = 0;
                    loop {
                        let key = key.clone();
                        let batch = self
                            .write(move |writer| {
                                let shared = writer.shared;
                                reseal_batch(writer.session, &shared.keys, &key, column, last)
                            })
                            .await?;
                        resealed += batch.resealed;
                        damaged += batch.damaged;
                        if batch.resealed > 0 {
                            let done = summary.resealed + resealed;
                            progress(RotationProgress::Resealing { done, total: total.max(done) });
                        }
                        match batch.last {
                            Some(id) => last = id,
                            None => break,
                        }
                    }
                }
            }
            summary.resealed += resealed;
            summary.damaged = damaged;
            if resealed == 0 {
                return Ok(summary);
            }
        }
        Err(RotationError::OldKeyInUse)
    }

    fn with_keys<T>(
        &self,
        action: impl FnOnce(&crate::key_ring::KeyRing) -> Result<T, SealError>,
    ) -> Result<T, RotationError> {
        let keys = self.keys();
        action(keys)
            .map_err(|source| RotationError::Source { from: keys.describe_source(), source })
    }
}

/// Host name and process id.
fn process_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} (process {})", host.trim(), std::process::id())
}
