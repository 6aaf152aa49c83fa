// SPDX-License-Identifier: Apache-2.0
//! Restores a backup into a new SQLite file, which replaces the previous one.

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use super::export::sync_folder;
use super::restore::{RestoreOptions, fill_tables};
use super::{BackupError, check_sqlite, file_error, sqlite_error};
use crate::clock::host_now;
use crate::engine::sqlite::SqliteSession;
use crate::error::{ErrorSource, StoreError};

/// Restores into a new file beside `path` and replaces `path`. Returns the new name of the previous
/// database.
pub(super) fn restore_sqlite(
    path: &Path,
    backup: &Path,
    options: RestoreOptions,
) -> Result<Option<PathBuf>, BackupError> {
    if options.dry_run {
        return Ok(None);
    }
    let new = NewDatabase::create(path)?;
    new.fill(backup, options)?;
    let previous = keep_previous(path)?;
    new.replace(path)?;
    Ok(previous)
}

/// A database file that is removed unless it replaces the previous one.
struct NewDatabase {
    path: PathBuf,
}

impl NewDatabase {
    /// Creates an empty file with the owner of the previous database or of its folder.
    fn create(target: &Path) -> Result<Self, BackupError> {
        let path = with_suffix(target, ".restoring");
        for left_over in [path.clone(), with_suffix(&path, "-journal")] {
            match std::fs::remove_file(&left_over) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(file_error(&left_over)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        let mut file_options = OpenOptions::new();
        let file = file_options.write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(file_error(&path))?;
        let new = Self { path };
        let owner = std::fs::metadata(target)
            .or_else(|_| std::fs::metadata(target.parent().unwrap_or(target)))
            .map_err(file_error(target))?;
        let created = file.metadata().map_err(file_error(&new.path))?;
        if (created.uid(), created.gid()) != (owner.uid(), owner.gid()) {
            std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))
                .map_err(file_error(&new.path))?;
        }
        Ok(new)
    }

    fn fill(&self, backup: &Path, options: RestoreOptions) -> Result<(), BackupError> {
        let failed = sqlite_error(&self.path);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags).map_err(&failed)?;
        connection.pragma_update(None, "foreign_keys", "ON").map_err(&failed)?;
        // A file that is not complete is discarded.
        connection.pragma_update(None, "synchronous", "OFF").map_err(&failed)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(&failed)?;
        fill_tables(&mut SqliteSession(&connection), backup, options)?;
        let committed = connection.execute_batch("COMMIT");
        committed.map_err(|error| {
            let cause: ErrorSource = Arc::new(error);
            BackupError::Prepare(StoreError::Unavailable(cause))
        })?;
        check_sqlite(&connection, &self.path, "integrity_check")?;
        connection.close().map_err(|(_, error)| failed(error))?;
        let file = OpenOptions::new().write(true).open(&self.path);
        file.and_then(|file| file.sync_all()).map_err(file_error(&self.path))
    }

    /// Replaces the database at `path` by this one.
    fn replace(self, path: &Path) -> Result<(), BackupError> {
        std::fs::rename(&self.path, path).map_err(file_error(path))?;
        sync_folder(path)
    }
}

impl Drop for NewDatabase {
    fn drop(&mut self) {
        // After it has replaced the previous one, there is no file with this name. Otherwise the error that
        // the caller returns is more important.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(with_suffix(&self.path, "-journal"));
    }
}

/// Gives the previous database a second name, under which it stays when it is replaced. Its write-ahead log
/// must not stay: SQLite would apply it to the new file.
fn keep_previous(path: &Path) -> Result<Option<PathBuf>, BackupError> {
    if !path.exists() {
        return Ok(None);
    }
    // Moves the log into the database. A damaged database may prevent this.
    if let Err(error) = checkpoint(path) {
        tracing::warn!(%error, "write-ahead log of the previous database is kept as it is");
    }
    let time = host_now().0 / 1_000_000;
    let kept = (0..)
        .map(|number| with_suffix(path, &format!(".before-restore-{}", time + number)))
        .find(|kept| !kept.exists())
        .unwrap_or_else(|| with_suffix(path, ".before-restore"));
    for suffix in ["-wal", "-shm"] {
        let log = with_suffix(path, suffix);
        if log.exists() {
            std::fs::rename(&log, with_suffix(&kept, suffix)).map_err(file_error(&log))?;
        }
    }
    std::fs::hard_link(path, &kept).map_err(file_error(&kept))?;
    Ok(Some(kept))
}

fn checkpoint(path: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    // The last connection removes the log.
    connection.close().map_err(|(_, error)| error)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
