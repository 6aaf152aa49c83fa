// SPDX-License-Identifier: Apache-2.0
//! The files of the cache: lookup, storage, reservation of disk space and eviction.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use serde::{Deserialize, Serialize};

use super::request::RequestKey;
use crate::download::ContentVersion;
use crate::format::ImageFormat;
use crate::sink::{SinkError, SinkOutput};
use crate::tls::TlsTrustError;

/// Disk space is reserved in steps of this many bytes, to avoid a reservation per write.
const RESERVATION_STEP: u64 = 16 << 20;

/// A cached image. Its file is not evicted while this or a clone exists.
#[derive(Debug, Clone)]
pub struct CachedImage {
    /// The path; the file must not be changed.
    pub path: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// The SHA-256 of the content.
    pub sha256: [u8; 32],
    /// The detected format.
    pub format: ImageFormat,
    _in_use: Arc<()>,
}

/// The contents of the cache.
#[derive(Debug, Clone)]
pub struct CacheContents {
    /// Disk usage in bytes.
    pub used: u64,
    /// Maximum disk usage in bytes.
    pub max_bytes: u64,
    /// The images, most recently used first.
    pub images: Vec<CachedImageInfo>,
}

/// A cached image, as listed by the API.
#[derive(Debug, Clone)]
pub struct CachedImageInfo {
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// The detected format, if a request recorded it.
    pub format: Option<ImageFormat>,
    /// Size in bytes.
    pub size: u64,
    /// Disk usage in bytes.
    pub allocated: u64,
    /// Time of last use, in seconds since the epoch.
    pub last_used: Option<i64>,
    /// Whether it is in use.
    pub in_use: bool,
}

/// Why the cache cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CacheOpenError {
    /// Another process has it.
    #[error("the image cache in {} is in use by another process: stop it, or give this one another folder", folder.display())]
    InUse {
        /// The directory.
        folder: PathBuf,
    },
    /// The folder cannot be used.
    #[error("the image cache in {} cannot be used: see that this user may write there", folder.display())]
    Folder {
        /// The directory.
        folder: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The CA certificates cannot be used.
    #[error("images cannot be fetched over https")]
    Trust(#[source] TlsTrustError),
}

/// The result of a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CacheRecord {
    pub(super) sha256: String,
    pub(super) format: ImageFormat,
    pub(super) version: ContentVersion,
}

/// The cache directory and its index.
pub(crate) struct BlobStore {
    folder: PathBuf,
    max_bytes: u64,
    /// Part of every key, so that passwords cannot be guessed from the names of records.
    pub(super) salt: [u8; 32],
    state: Mutex<BlobStoreState>,
    /// Locked while the cache is open.
    _lock: File,
}

#[derive(Default)]
struct BlobStoreState {
    blobs: HashMap<String, CachedBlob>,
    records: HashMap<RequestKey, CacheRecord>,
    /// Disk usage of the blobs in bytes.
    used: u64,
    /// Bytes reserved for files being written.
    reserved: u64,
    /// Number of uses, to order blobs by last use.
    use_counter: u64,
    temporary_count: u64,
}

struct CachedBlob {
    size: u64,
    allocated: u64,
    last_used: u64,
    users: Weak<()>,
}

/// Reserved disk space; released when dropped.
pub(crate) struct SpaceReservation {
    /// `None` if unlimited.
    blobs: Option<Arc<BlobStore>>,
    reserved: u64,
}

/// A file being written; removed when dropped unless it was renamed to a blob.
pub(super) struct TemporaryFile {
    pub(super) path: PathBuf,
}

impl BlobStore {
    pub(super) fn open(folder: &Path, bound: u64) -> Result<Self, CacheOpenError> {
        let failed = |source| CacheOpenError::Folder { folder: folder.to_owned(), source };
        for name in ["blobs", "records", "temporary"] {
            // Images may have been fetched with a password, so other users must not read them.
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder.join(name));
            made.map_err(failed)?;
        }
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(CacheOpenError::InUse { folder: folder.to_owned() });
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let store = Self {
            folder: folder.to_owned(),
            max_bytes: bound,
            salt: read_or_create_salt(&folder.join("salt")).map_err(failed)?,
            state: Mutex::default(),
            _lock: lock,
        };
        store.load().map_err(failed)?;
        Ok(store)
    }

    /// Returns the image of a request and its version on the server.
    pub(super) fn lookup(&self, key: &RequestKey) -> Option<(CachedImage, ContentVersion)> {
        let mut state = self.state();
        let record = state.records.get(key)?.clone();
        let path = self.blob_path(&record.sha256);
        // Stores the time of use for the next process, and checks that the file exists.
        if !touch(&path) {
            tracing::warn!(path = %path.display(), "cached image was removed from disk");
            self.remove_blob(&mut state, &record.sha256);
            return None;
        }
        let entry = self.cached_image(&mut state, &record)?;
        Some((entry, record.version))
    }

    /// Creates a temporary file.
    pub(super) fn create_temporary(&self) -> io::Result<(TemporaryFile, File)> {
        let number = {
            let mut state = self.state();
            state.temporary_count += 1;
            state.temporary_count
        };
        let path = self.folder.join("temporary").join(number.to_string());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok((TemporaryFile { path }, file))
    }

    /// Stores a temporary file as a blob, durably.
    pub(super) fn insert(
        &self,
        key: RequestKey,
        made: TemporaryFile,
        taken: SinkOutput,
        format: ImageFormat,
        version: ContentVersion,
    ) -> io::Result<CachedImage> {
        let record = CacheRecord { sha256: hex::encode(taken.sha256), format, version };
        let path = self.blob_path(&record.sha256);
        // A file with a blob's name must be complete, also after a power failure.
        taken.file.sync_all()?;
        let entry = {
            let mut state = self.state();
            let here = state.blobs.contains_key(&record.sha256);
            if here && !touch(&path) {
                self.remove_blob(&mut state, &record.sha256);
            }
            if !state.blobs.contains_key(&record.sha256) {
                fs::rename(&made.path, &path)?;
                let allocated = taken.file.metadata()?.blocks() * 512;
                state.used += allocated;
                let blob =
                    CachedBlob { size: taken.size, allocated, last_used: 0, users: Weak::new() };
                state.blobs.insert(record.sha256.clone(), blob);
            }
            // The reserved space is now counted as used.
            taken.reservation.release(&mut state);
            self.cached_image(&mut state, &record).expect("it was put there above")
        };
        File::open(self.folder.join("blobs"))?.sync_all()?;
        self.write_record(&key, &record)?;
        self.state().records.insert(key, record);
        Ok(entry)
    }

    /// Records that another request resolves to a cached image.
    pub(super) fn insert_alias(&self, key: RequestKey, entry: &CachedImage) -> io::Result<()> {
        let sha256 = hex::encode(entry.sha256);
        let record =
            CacheRecord { sha256, format: entry.format, version: ContentVersion::default() };
        self.write_record(&key, &record)?;
        self.state().records.insert(key, record);
        Ok(())
    }

    /// Returns the disk usage in bytes.
    pub(super) fn used_bytes(&self) -> u64 {
        self.state().used
    }

    /// Returns the contents of the cache.
    pub(super) fn contents(&self) -> CacheContents {
        let (used, mut images) = {
            let state = self.state();
            let formats: HashMap<&str, ImageFormat> =
                state.records.values().map(|it| (it.sha256.as_str(), it.format)).collect();
            let mut blobs: Vec<_> = state.blobs.iter().collect();
            blobs.sort_by_key(|(_, blob)| std::cmp::Reverse(blob.last_used));
            let images: Vec<CachedImageInfo> = blobs
                .into_iter()
                .map(|(sha256, blob)| CachedImageInfo {
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
        // Without the lock, since disks may be slow.
        for image in &mut images {
            image.last_used = fs::metadata(self.blob_path(&image.sha256)).ok().map(|it| it.mtime());
        }
        CacheContents { used, max_bytes: self.max_bytes, images }
    }

    fn cached_image(
        &self,
        state: &mut BlobStoreState,
        record: &CacheRecord,
    ) -> Option<CachedImage> {
        state.use_counter += 1;
        let turn = state.use_counter;
        let blob = state.blobs.get_mut(&record.sha256)?;
        blob.last_used = turn;
        let in_use = blob.users.upgrade().unwrap_or_default();
        blob.users = Arc::downgrade(&in_use);
        Some(CachedImage {
            path: self.blob_path(&record.sha256),
            size: blob.size,
            sha256: hex::decode(&record.sha256).ok()?.try_into().ok()?,
            format: record.format,
            _in_use: in_use,
        })
    }

    /// Reserves `wanted` more bytes, and evicts the least recently used images if necessary.
    fn reserve(&self, wanted: u64) -> Result<(), SinkError> {
        let mut state = self.state();
        let in_use: u64 =
            state.blobs.values().filter(|it| it.in_use()).map(|it| it.allocated).sum();
        let needed = in_use.saturating_add(state.reserved).saturating_add(wanted);
        if needed > self.max_bytes {
            return Err(SinkError::CacheFull { wanted, max_bytes: self.max_bytes });
        }
        self.evict(&mut state, wanted);
        state.reserved += wanted;
        Ok(())
    }

    /// Removes the least recently used images that are not in use, until there is space for `wanted`
    /// bytes or none is left.
    fn evict(&self, state: &mut BlobStoreState, wanted: u64) {
        while state.used.saturating_add(state.reserved).saturating_add(wanted) > self.max_bytes {
            let idle = state.blobs.iter().filter(|(_, blob)| !blob.in_use());
            let Some((oldest, _)) = idle.min_by_key(|(_, blob)| blob.last_used) else { return };
            let oldest = oldest.clone();
            tracing::debug!(sha256 = oldest, "image evicted from the cache");
            self.remove_blob(state, &oldest);
        }
    }

    /// Removes an image and its records. Records are removed first, so that none refers to a missing blob.
    fn remove_blob(&self, state: &mut BlobStoreState, sha256: &str) {
        let gone: Vec<RequestKey> = state
            .records
            .iter()
            .filter(|(_, record)| record.sha256 == sha256)
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            remove_file_if_present(&self.record_path(&key));
            state.records.remove(&key);
        }
        remove_file_if_present(&self.blob_path(sha256));
        if let Some(blob) = state.blobs.remove(sha256) {
            state.used -= blob.allocated;
        }
    }

    fn write_record(&self, key: &RequestKey, record: &CacheRecord) -> io::Result<()> {
        let (temporary, mut file) = self.create_temporary()?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&temporary.path, self.record_path(key))
    }

    /// Reads the directory into the index, and removes unfinished files and stale records.
    fn load(&self) -> io::Result<()> {
        for leftover in fs::read_dir(self.folder.join("temporary"))? {
            remove_file_if_present(&leftover?.path());
        }
        let mut found = Vec::new();
        for blob in fs::read_dir(self.folder.join("blobs"))? {
            let blob = blob?;
            let name = blob.file_name().to_string_lossy().into_owned();
            let metadata = blob.metadata()?;
            if metadata.is_file() && hex::decode(&name).is_ok_and(|it| it.len() == 32) {
                found.push((metadata.mtime(), metadata.mtime_nsec(), name, metadata));
            } else {
                tracing::warn!(name, "unknown file in the image cache ignored");
            }
        }
        found.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let mut state = self.state();
        for (_, _, name, metadata) in found {
            state.use_counter += 1;
            let allocated = metadata.blocks() * 512;
            state.used += allocated;
            let last_used = state.use_counter;
            let blob =
                CachedBlob { size: metadata.len(), allocated, last_used, users: Weak::new() };
            state.blobs.insert(name, blob);
        }
        for file in fs::read_dir(self.folder.join("records"))? {
            let file = file?;
            let record = fs::read(file.path()).ok();
            let record = record.and_then(|it| serde_json::from_slice::<CacheRecord>(&it).ok());
            match record.filter(|record| state.blobs.contains_key(&record.sha256)) {
                Some(record) => {
                    let key = RequestKey(file.file_name().to_string_lossy().into_owned());
                    state.records.insert(key, record);
                }
                None => remove_file_if_present(&file.path()),
            }
        }
        // The limit may have been lowered.
        self.evict(&mut state, 0);
        Ok(())
    }

    fn blob_path(&self, sha256: &str) -> PathBuf {
        self.folder.join("blobs").join(sha256)
    }

    fn record_path(&self, key: &RequestKey) -> PathBuf {
        self.folder.join("records").join(&key.0)
    }

    fn state(&self) -> MutexGuard<'_, BlobStoreState> {
        // No code panics between related changes, so the state is consistent after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedBlob {
    fn in_use(&self) -> bool {
        self.users.strong_count() > 0
    }
}

impl SpaceReservation {
    /// Returns an empty reservation.
    pub(super) fn new(blobs: &Arc<BlobStore>) -> Self {
        Self { blobs: Some(Arc::clone(blobs)), reserved: 0 }
    }

    /// Returns a reservation without a limit.
    #[cfg(test)]
    pub(crate) fn unlimited() -> Self {
        Self { blobs: None, reserved: 0 }
    }

    /// Extends the reservation to `bytes`.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), SinkError> {
        let Some(blobs) = &self.blobs else { return Ok(()) };
        if bytes <= self.reserved {
            return Ok(());
        }
        let exact = bytes - self.reserved;
        let more = match blobs.reserve(exact.next_multiple_of(RESERVATION_STEP)) {
            Ok(()) => exact.next_multiple_of(RESERVATION_STEP),
            Err(_) => {
                blobs.reserve(exact)?;
                exact
            }
        };
        self.reserved += more;
        Ok(())
    }

    fn release(mut self, state: &mut BlobStoreState) {
        state.reserved -= std::mem::take(&mut self.reserved);
    }
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        // Zero if it was released under the lock.
        if let (Some(blobs), 1..) = (&self.blobs, self.reserved) {
            blobs.state().reserved -= self.reserved;
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        remove_file_if_present(&self.path);
    }
}

/// Removes a file that may be gone already.
fn remove_file_if_present(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cache file could not be removed")
        }
    }
}

/// Sets the time of last use; returns `false` if the file does not exist.
fn touch(path: &Path) -> bool {
    let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let now = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
    let touched = rustix::fs::utimensat(CWD, path, &now, AtFlags::empty());
    touched != Err(rustix::io::Errno::NOENT)
}

/// Reads the secret in this file; creates it if missing.
fn read_or_create_salt(path: &Path) -> io::Result<[u8; 32]> {
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
