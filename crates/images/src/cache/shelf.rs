// SPDX-License-Identifier: Apache-2.0
//! What is in the cache's folder, who uses it, and what must go when room is needed.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use serde::{Deserialize, Serialize};

use super::request::Key;
use crate::fetch::Version;
use crate::format::Format;
use crate::hex;
use crate::sink::{SinkError, Taken};
use crate::tls::TrustError;

/// Room is taken in steps of this many bytes, so that not every piece asks for it.
const STEP: u64 = 16 << 20;

/// An image on this machine. While this or a clone of it is there, so is the file.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it is. Not to be changed.
    pub path: PathBuf,
    /// How many bytes it has.
    pub size: u64,
    /// The SHA-256 of those bytes.
    pub sha256: [u8; 32],
    /// What it is.
    pub format: Format,
    _in_use: Arc<()>,
}

/// What the cache has.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Bytes of disk it takes.
    pub used: u64,
    /// Bytes of disk it may take.
    pub bound: u64,
    /// Its images, the one used last first.
    pub images: Vec<KeptImage>,
}

/// One image of the cache.
#[derive(Debug, Clone)]
pub struct KeptImage {
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// What it is, as requests found it.
    pub format: Option<Format>,
    /// How many bytes it has.
    pub size: u64,
    /// How many bytes of disk it takes.
    pub allocated: u64,
    /// When it was last used, in seconds since the epoch.
    pub last_used: Option<i64>,
    /// Whether somebody uses it now.
    pub in_use: bool,
}

/// Why the cache cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("the image cache in {} is in use by another process: stop it, or give this one another folder", folder.display())]
    InUse {
        /// Where.
        folder: PathBuf,
    },
    /// The folder cannot be used.
    #[error("the image cache in {} cannot be used: see that this user may write there", folder.display())]
    Folder {
        /// Where.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The CA certificates cannot be used.
    #[error("images cannot be fetched over https")]
    Trust(#[source] TrustError),
}

/// What a request led to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) sha256: String,
    pub(super) format: Format,
    pub(super) version: Version,
}

/// The folder and what is known of it.
pub(crate) struct Shelf {
    folder: PathBuf,
    bound: u64,
    /// Part of every key, so that nobody can guess passwords from the names of records.
    pub(super) salt: [u8; 32],
    state: Mutex<State>,
    /// Locked as long as it is open.
    _lock: File,
}

#[derive(Default)]
struct State {
    blobs: HashMap<String, Blob>,
    records: HashMap<Key, Record>,
    /// Bytes of disk the blobs take.
    used: u64,
    /// Bytes taken for what is being made.
    reserved: u64,
    /// Counts uses, to know which was first.
    turn: u64,
    temporaries: u64,
}

struct Blob {
    size: u64,
    allocated: u64,
    last_used: u64,
    users: Weak<()>,
}

/// Room for something that is being made; given back when dropped.
pub(crate) struct Reservation {
    /// None where there is no bound.
    shelf: Option<Arc<Shelf>>,
    held: u64,
}

/// A file that is being made; removed when dropped, unless it has become a blob by then.
pub(super) struct Temporary {
    pub(super) path: PathBuf,
}

impl Shelf {
    pub(super) fn open(folder: &Path, bound: u64) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Folder { folder: folder.to_owned(), source };
        for name in ["blobs", "records", "temporary"] {
            // Images may have been fetched with a password: they are not for everybody here.
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder.join(name));
            made.map_err(failed)?;
        }
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { folder: folder.to_owned() });
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let shelf = Self {
            folder: folder.to_owned(),
            bound,
            salt: salt(&folder.join("salt")).map_err(failed)?,
            state: Mutex::default(),
            _lock: lock,
        };
        shelf.load().map_err(failed)?;
        Ok(shelf)
    }

    /// The image a request led to, and the version of it that its server had.
    pub(super) fn find(&self, key: &Key) -> Option<(Entry, Version)> {
        let mut state = self.state();
        let record = state.records.get(key)?.clone();
        let path = self.blob_path(&record.sha256);
        // Tells the next process that opens the cache, and us whether it still is there.
        if !touch(&path) {
            tracing::warn!(path = %path.display(), "somebody removed an image from the cache");
            self.forget(&mut state, &record.sha256);
            return None;
        }
        let entry = self.entry(&mut state, &record)?;
        Some((entry, record.version))
    }

    /// A new file to make something in.
    pub(super) fn temporary(&self) -> io::Result<(Temporary, File)> {
        let number = {
            let mut state = self.state();
            state.temporaries += 1;
            state.temporaries
        };
        let path = self.folder.join("temporary").join(number.to_string());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok((Temporary { path }, file))
    }

    /// Keeps what was made, durably.
    pub(super) fn keep(
        &self,
        key: Key,
        made: Temporary,
        taken: Taken,
        format: Format,
        version: Version,
    ) -> io::Result<Entry> {
        let record = Record { sha256: hex::encode(&taken.sha256), format, version };
        let path = self.blob_path(&record.sha256);
        // Whatever has a blob's name is whole, also after a power failure.
        taken.file.sync_all()?;
        let entry = {
            let mut state = self.state();
            let here = state.blobs.contains_key(&record.sha256);
            if here && !touch(&path) {
                self.forget(&mut state, &record.sha256);
            }
            if !state.blobs.contains_key(&record.sha256) {
                fs::rename(&made.path, &path)?;
                let allocated = taken.file.metadata()?.blocks() * 512;
                state.used += allocated;
                let blob = Blob { size: taken.size, allocated, last_used: 0, users: Weak::new() };
                state.blobs.insert(record.sha256.clone(), blob);
            }
            // What was taken for it now counts as used.
            taken.room.release(&mut state);
            self.entry(&mut state, &record).expect("it was put there above")
        };
        File::open(self.folder.join("blobs"))?.sync_all()?;
        self.write_record(&key, &record)?;
        self.state().records.insert(key, record);
        Ok(entry)
    }

    /// Keeps in mind that another request leads to an image that is here.
    pub(super) fn keep_also(&self, key: Key, entry: &Entry) -> io::Result<()> {
        let sha256 = hex::encode(&entry.sha256);
        let record = Record { sha256, format: entry.format, version: Version::default() };
        self.write_record(&key, &record)?;
        self.state().records.insert(key, record);
        Ok(())
    }

    /// How many bytes of disk the images take.
    pub(super) fn used(&self) -> u64 {
        self.state().used
    }

    /// What there is.
    pub(super) fn kept(&self) -> Kept {
        let (used, mut images) = {
            let state = self.state();
            let formats: HashMap<&str, Format> =
                state.records.values().map(|it| (it.sha256.as_str(), it.format)).collect();
            let mut blobs: Vec<_> = state.blobs.iter().collect();
            blobs.sort_by_key(|(_, blob)| std::cmp::Reverse(blob.last_used));
            let images: Vec<KeptImage> = blobs
                .into_iter()
                .map(|(sha256, blob)| KeptImage {
                    sha256: sha256.clone(),
                    format: formats.get(sha256.as_str()).copied(),
                    size: blob.size,
                    allocated: blob.allocated,
                    last_used: None,
                    in_use: blob.in_use(),
                })
                .collect();
            (state.used, images)
        };
        // Without the lock: disks may be slow.
        for image in &mut images {
            image.last_used = fs::metadata(self.blob_path(&image.sha256)).ok().map(|it| it.mtime());
        }
        Kept { used, bound: self.bound, images }
    }

    fn entry(&self, state: &mut State, record: &Record) -> Option<Entry> {
        state.turn += 1;
        let turn = state.turn;
        let blob = state.blobs.get_mut(&record.sha256)?;
        blob.last_used = turn;
        let in_use = blob.users.upgrade().unwrap_or_default();
        blob.users = Arc::downgrade(&in_use);
        Some(Entry {
            path: self.blob_path(&record.sha256),
            size: blob.size,
            sha256: hex::decode(&record.sha256)?.try_into().ok()?,
            format: record.format,
            _in_use: in_use,
        })
    }

    /// Takes room for this many bytes more, for which what was used longest ago may have to go.
    fn reserve(&self, wanted: u64) -> Result<(), SinkError> {
        let mut state = self.state();
        let in_use: u64 =
            state.blobs.values().filter(|it| it.in_use()).map(|it| it.allocated).sum();
        let needed = in_use.saturating_add(state.reserved).saturating_add(wanted);
        if needed > self.bound {
            return Err(SinkError::NoRoom { wanted, bound: self.bound });
        }
        self.evict(&mut state, wanted);
        state.reserved += wanted;
        Ok(())
    }

    /// Removes what was used longest ago and is not in use until there is room for this many bytes,
    /// or nothing is left to remove.
    fn evict(&self, state: &mut State, wanted: u64) {
        while state.used.saturating_add(state.reserved).saturating_add(wanted) > self.bound {
            let idle = state.blobs.iter().filter(|(_, blob)| !blob.in_use());
            let Some((oldest, _)) = idle.min_by_key(|(_, blob)| blob.last_used) else { return };
            let oldest = oldest.clone();
            tracing::debug!(sha256 = oldest, "image removed from the cache to make room");
            self.forget(state, &oldest);
        }
    }

    /// Removes an image and what led to it. Records go first: none is without its image.
    fn forget(&self, state: &mut State, sha256: &str) {
        let gone: Vec<Key> = state
            .records
            .iter()
            .filter(|(_, record)| record.sha256 == sha256)
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            remove(&self.record_path(&key));
            state.records.remove(&key);
        }
        remove(&self.blob_path(sha256));
        if let Some(blob) = state.blobs.remove(sha256) {
            state.used -= blob.allocated;
        }
    }

    fn write_record(&self, key: &Key, record: &Record) -> io::Result<()> {
        let (temporary, mut file) = self.temporary()?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&temporary.path, self.record_path(key))
    }

    /// Learns what is in the folder, and removes what has no business there.
    fn load(&self) -> io::Result<()> {
        for leftover in fs::read_dir(self.folder.join("temporary"))? {
            remove(&leftover?.path());
        }
        let mut found = Vec::new();
        for blob in fs::read_dir(self.folder.join("blobs"))? {
            let blob = blob?;
            let name = blob.file_name().to_string_lossy().into_owned();
            let metadata = blob.metadata()?;
            if metadata.is_file() && hex::decode(&name).is_some_and(|it| it.len() == 32) {
                found.push((metadata.mtime(), metadata.mtime_nsec(), name, metadata));
            } else {
                tracing::warn!(name, "not an image of the cache; left alone");
            }
        }
        found.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let mut state = self.state();
        for (_, _, name, metadata) in found {
            state.turn += 1;
            let allocated = metadata.blocks() * 512;
            state.used += allocated;
            let last_used = state.turn;
            let blob = Blob { size: metadata.len(), allocated, last_used, users: Weak::new() };
            state.blobs.insert(name, blob);
        }
        for file in fs::read_dir(self.folder.join("records"))? {
            let file = file?;
            let record = fs::read(file.path()).ok();
            let record = record.and_then(|it| serde_json::from_slice::<Record>(&it).ok());
            match record.filter(|record| state.blobs.contains_key(&record.sha256)) {
                Some(record) => {
                    let key = Key(file.file_name().to_string_lossy().into_owned());
                    state.records.insert(key, record);
                }
                None => remove(&file.path()),
            }
        }
        // The bound may have been lowered since.
        self.evict(&mut state, 0);
        Ok(())
    }

    fn blob_path(&self, sha256: &str) -> PathBuf {
        self.folder.join("blobs").join(sha256)
    }

    fn record_path(&self, key: &Key) -> PathBuf {
        self.folder.join("records").join(&key.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole at every instant that a panic could come: none is while it is changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blob {
    fn in_use(&self) -> bool {
        self.users.strong_count() > 0
    }
}

impl Reservation {
    /// No room taken yet.
    pub(super) fn new(shelf: &Arc<Shelf>) -> Self {
        Self { shelf: Some(Arc::clone(shelf)), held: 0 }
    }

    /// Room without a bound.
    #[cfg(test)]
    pub(crate) fn boundless() -> Self {
        Self { shelf: None, held: 0 }
    }

    /// Takes as much more room as it takes to have this many bytes.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), SinkError> {
        let Some(shelf) = &self.shelf else { return Ok(()) };
        if bytes <= self.held {
            return Ok(());
        }
        let exact = bytes - self.held;
        let more = match shelf.reserve(exact.next_multiple_of(STEP)) {
            Ok(()) => exact.next_multiple_of(STEP),
            Err(_) => {
                shelf.reserve(exact)?;
                exact
            }
        };
        self.held += more;
        Ok(())
    }

    fn release(mut self, state: &mut State) {
        state.reserved -= std::mem::take(&mut self.held);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Nothing held any more means that it was released under the lock.
        if let (Some(shelf), 1..) = (&self.shelf, self.held) {
            shelf.state().reserved -= self.held;
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a file that may be gone already.
fn remove(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "cannot be removed"),
    }
}

/// Sets the time of last use; `false` when the file is not there.
fn touch(path: &Path) -> bool {
    let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let now = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
    let touched = rustix::fs::utimensat(CWD, path, &now, AtFlags::empty());
    touched != Err(rustix::io::Errno::NOENT)
}

/// The secret in this file, made if there is none.
fn salt(path: &Path) -> io::Result<[u8; 32]> {
    if let Ok(salt) = fs::read(path)
        && let Ok(salt) = salt.try_into()
    {
        return Ok(salt);
    }
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).map_err(io::Error::other)?;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&salt)?;
    file.sync_all()?;
    Ok(salt)
}
