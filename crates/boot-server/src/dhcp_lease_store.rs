// SPDX-License-Identifier: Apache-2.0
//! Durable storage of DHCP leases, so that a restart does not assign an address twice.
//!
//! Recording and committing are separate steps: the server handles all waiting packets, commits once, and
//! then sends the replies. A rack that is powered on at once costs a few disk flushes instead of one per
//! machine.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use node_model::Timestamp;

/// Stores DHCP leases.
pub trait DhcpLeaseStore: Send {
    /// Returns all committed records that were not purged, the newest per address. May still return
    /// recently purged records.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn load(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError>;

    /// Records a lease. It may be lost until [`commit`](Self::commit).
    fn record(&mut self, record: DhcpLeaseRecord);

    /// Removes obsolete records, committed or not.
    fn purge(&mut self, is_obsolete: &dyn Fn(&DhcpLeaseRecord) -> bool);

    /// Makes all records durable. If it fails, the records since the last commit are discarded.
    ///
    /// A store that several processes share discards a record if another client holds an unexpired lease of
    /// the address, and returns that lease.
    ///
    /// # Errors
    /// If the store cannot be written.
    fn commit(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError>;

    /// Returns whether other processes may have committed records since the last call of
    /// [`changes`](Self::changes). Always false for a store of one process.
    fn is_stale(&self) -> bool {
        false
    }

    /// Returns at least the records that other processes committed since the last call.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn changes(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        Ok(Vec::new())
    }
}

/// The holder of an address. If `expires_at` is in the past, the address is free and `client` is its last
/// holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpLeaseRecord {
    /// The address.
    pub address: IpAddr,
    /// The server's key of the client; empty for an address that is used by a host that did not get it
    /// from this server.
    pub client: Vec<u8>,
    /// The end of the lease.
    pub expires_at: Timestamp,
}

/// The lease store failed.
#[derive(Debug, thiserror::Error)]
pub enum DhcpLeaseStoreError {
    /// Reading failed.
    #[error("cannot read DHCP leases from {location}; no address is assigned until it is readable")]
    Read {
        /// The file or table.
        location: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write DHCP leases to {location}; check its free space and permissions")]
    Write {
        /// The file or table.
        location: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A store in a file. Commits append lines and flush them to disk; the file is rewritten when most lines
/// are obsolete. A last line that a crash truncated is ignored.
#[derive(Debug)]
pub struct DhcpLeaseFile {
    path: PathBuf,
    file: Option<File>,
    newest: BTreeMap<IpAddr, DhcpLeaseRecord>,
    pending: Vec<DhcpLeaseRecord>,
    lines: usize,
    /// The number of bytes of complete, committed lines.
    committed_length: u64,
    /// Whether a failed write may have left bytes after `committed_length`.
    has_partial_write: bool,
}

/// A store in memory, for tests. Clones share the committed records, so one survives a simulated restart.
#[derive(Debug, Clone, Default)]
pub struct InMemoryDhcpLeaseStore {
    committed: Arc<Mutex<BTreeMap<IpAddr, DhcpLeaseRecord>>>,
    pending: Vec<DhcpLeaseRecord>,
}

/// Reads the records of a file, the newest per address, without changing it. Safe while a server writes to
/// it.
///
/// # Errors
/// If the file cannot be read.
pub fn read_dhcp_leases(path: &Path) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(DhcpLeaseStoreError::Read { location: path.display().to_string(), source });
        }
    };
    let mut newest = BTreeMap::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        // A line without an end is being written.
        let complete = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
        if let Some(record) = complete.and_then(parse_line) {
            newest.insert(record.address, record);
        }
    }
    Ok(newest.into_values().collect())
}

/// The file is rewritten when it has at least this many lines, and four times as many as addresses.
const COMPACT_MIN_LINES: usize = 4096;

impl DhcpLeaseFile {
    /// Returns the store in `path`. The file is created by the first commit.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file: None,
            newest: BTreeMap::new(),
            pending: Vec::new(),
            lines: 0,
            committed_length: 0,
            has_partial_write: false,
        }
    }

    fn append(&mut self) -> io::Result<()> {
        if self.has_partial_write {
            self.repair()?;
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
                // The directory entry must be as durable as the file's content.
                sync_parent_directory(&self.path)?;
                self.file.insert(file)
            }
        };
        let text: String = self.pending.iter().map(format_line).collect();
        self.has_partial_write = true;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        self.has_partial_write = false;
        self.committed_length += text.len() as u64;
        Ok(())
    }

    /// Removes what a failed write left: the next line must not be appended to half a line, and an address
    /// that was not assigned must not be loaded after a restart.
    fn repair(&mut self) -> io::Result<()> {
        self.file = None;
        self.truncate_to_committed().or_else(|_| self.compact())
    }

    fn truncate_to_committed(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(self.committed_length)?;
        file.sync_all()?;
        self.has_partial_write = false;
        Ok(())
    }

    fn compact(&mut self) -> io::Result<()> {
        let new_path = self.path.with_extension("new");
        let mut file = File::create(&new_path)?;
        let text: String = self.newest.values().map(format_line).collect();
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new_path, &self.path)?;
        // The old file handle is stale now, even if the next step fails.
        self.file = None;
        self.lines = self.newest.len();
        self.committed_length = text.len() as u64;
        self.has_partial_write = false;
        sync_parent_directory(&self.path)
    }
}

impl DhcpLeaseStore for DhcpLeaseFile {
    fn load(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        let fail = |source| DhcpLeaseStoreError::Read {
            location: self.path.display().to_string(),
            source,
        };
        self.newest.clear();
        self.lines = 0;
        self.committed_length = 0;
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut reader = BufReader::new(file);
        let mut bytes = Vec::new();
        let mut truncated = false;
        while reader.read_until(b'\n', &mut bytes).map_err(fail)? > 0 {
            truncated = bytes.last() != Some(&b'\n');
            let record = std::str::from_utf8(&bytes).ok().and_then(parse_line);
            if let Some(record) = record.filter(|_| !truncated) {
                self.newest.insert(record.address, record);
            }
            self.lines += 1;
            self.committed_length += bytes.len() as u64;
            bytes.clear();
        }
        if truncated {
            // A line that is appended to half a line would be lost too.
            self.compact().map_err(|source| DhcpLeaseStoreError::Write {
                location: self.path.display().to_string(),
                source,
            })?;
        }
        Ok(self.newest.values().cloned().collect())
    }

    fn record(&mut self, record: DhcpLeaseRecord) {
        self.pending.push(record);
    }

    fn purge(&mut self, is_over: &dyn Fn(&DhcpLeaseRecord) -> bool) {
        self.newest.retain(|_, record| !is_over(record));
        self.pending.retain(|record| !is_over(record));
    }

    fn commit(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        if self.pending.is_empty() {
            return Ok(Vec::new());
        }
        let written = self.append();
        let pending = std::mem::take(&mut self.pending);
        let fail = |source| DhcpLeaseStoreError::Write {
            location: self.path.display().to_string(),
            source,
        };
        if let Err(error) = written {
            let error = fail(error);
            // If this fails too, it is retried before the next write.
            if self.has_partial_write {
                let _ = self.repair();
            }
            return Err(error);
        }
        self.lines += pending.len();
        self.newest.extend(pending.into_iter().map(|record| (record.address, record)));
        if self.lines >= COMPACT_MIN_LINES && self.lines / 4 > self.newest.len() {
            // The records are already durable; a failed compaction is retried at a later commit.
            if let Err(error) = self.compact() {
                tracing::warn!(path = %self.path.display(), %error, "DHCP lease file compaction failed");
            }
        }
        Ok(Vec::new())
    }
}

impl DhcpLeaseStore for InMemoryDhcpLeaseStore {
    fn load(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        self.pending.clear();
        let committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(committed.values().cloned().collect())
    }

    fn record(&mut self, record: DhcpLeaseRecord) {
        self.pending.push(record);
    }

    fn purge(&mut self, is_over: &dyn Fn(&DhcpLeaseRecord) -> bool) {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.retain(|_, record| !is_over(record));
        self.pending.retain(|record| !is_over(record));
    }

    fn commit(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.extend(self.pending.drain(..).map(|record| (record.address, record)));
        Ok(Vec::new())
    }
}

fn sync_parent_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Formats `192.0.2.7 01525400aabb01 1794700000000000`. The client is `-` if it is empty.
fn format_line(record: &DhcpLeaseRecord) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{} ", record.address);
    if record.client.is_empty() {
        text.push('-');
    }
    for byte in &record.client {
        let _ = write!(text, "{byte:02x}");
    }
    let _ = writeln!(text, " {}", record.expires_at.0);
    text
}

fn parse_line(text: &str) -> Option<DhcpLeaseRecord> {
    let mut fields = text.split_ascii_whitespace();
    let address = fields.next()?.parse().ok()?;
    let hexadecimal = fields.next().map(|field| if field == "-" { "" } else { field })?;
    let client = hexadecimal
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect::<Option<Vec<u8>>>()?;
    let expires_at = Timestamp(fields.next()?.parse().ok()?);
    Some(DhcpLeaseRecord { address, client, expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(last: u8, client: u8, expires_at: i64) -> DhcpLeaseRecord {
        let address = IpAddr::from([192, 0, 2, last]);
        DhcpLeaseRecord {
            address,
            client: vec![1, client],
            expires_at: Timestamp::from_secs(expires_at),
        }
    }

    #[test]
    fn only_committed_records_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let mut store = DhcpLeaseFile::new(&path);
        assert_eq!(store.load().unwrap(), []);
        store.record(record(1, 1, 100));
        store.record(record(2, 2, 100));
        store.record(record(1, 3, 200));
        store.commit().unwrap();
        store.record(record(9, 9, 900));
        drop(store);
        let loaded = DhcpLeaseFile::new(&path).load().unwrap();
        assert_eq!(loaded, [record(1, 3, 200), record(2, 2, 100)]);
    }

    #[test]
    fn a_truncated_last_line_is_ignored_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let complete = format_line(&record(1, 1, 100));
        std::fs::write(&path, format!("{complete}192.0.2.2 0102 1790")).unwrap();
        let mut store = DhcpLeaseFile::new(&path);
        assert_eq!(read_dhcp_leases(&path).unwrap(), [record(1, 1, 100)]);
        assert_eq!(store.load().unwrap(), [record(1, 1, 100)]);
        store.record(record(3, 3, 300));
        store.commit().unwrap();
        let loaded = DhcpLeaseFile::new(&path).load().unwrap();
        assert_eq!(loaded, [record(1, 1, 100), record(3, 3, 300)]);
    }

    #[test]
    fn a_record_without_a_client_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let conflict = DhcpLeaseRecord { client: Vec::new(), ..record(1, 1, 100) };
        let mut store = DhcpLeaseFile::new(&path);
        store.record(conflict.clone());
        store.commit().unwrap();
        assert_eq!(DhcpLeaseFile::new(&path).load().unwrap(), [conflict]);
    }

    #[test]
    fn bytes_of_a_failed_write_are_removed_before_the_next_write() {
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("directory");
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("leases");
        let mut store = DhcpLeaseFile::new(&path);
        store.load().unwrap();
        store.record(record(1, 1, 100));
        store.commit().unwrap();
        // As a full disk leaves it: a complete line and half a line that were not committed.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "{}192.0.2.1 0109 1", format_line(&record(2, 2, 200))).unwrap();
        store.has_partial_write = true;
        // While the file cannot be repaired, commits fail.
        let moved = outer.path().join("moved");
        std::fs::rename(&directory, &moved).unwrap();
        store.record(record(4, 4, 400));
        store.commit().unwrap_err();
        std::fs::rename(&moved, &directory).unwrap();
        store.record(record(3, 3, 300));
        store.commit().unwrap();
        let loaded = DhcpLeaseFile::new(&path).load().unwrap();
        assert_eq!(loaded, [record(1, 1, 100), record(3, 3, 300)]);
    }

    #[test]
    fn purged_records_are_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let mut store = DhcpLeaseFile::new(&path);
        for number in 0..200 {
            store.record(record(number, number, i64::from(number)));
        }
        store.commit().unwrap();
        store.purge(&|record| record.expires_at < Timestamp::from_secs(190));
        for _ in 0..COMPACT_MIN_LINES {
            store.record(record(199, 199, 199));
        }
        store.commit().unwrap();
        assert_eq!(DhcpLeaseFile::new(&path).load().unwrap().len(), 10);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 10);
    }

    #[test]
    fn obsolete_lines_are_compacted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases");
        let mut store = DhcpLeaseFile::new(&path);
        for round in 0..COMPACT_MIN_LINES as i64 + 1 {
            store.record(record((round % 10) as u8, 1, round));
            if round % 100 == 0 {
                store.commit().unwrap();
            }
        }
        store.commit().unwrap();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 200, "{lines} lines for 10 addresses");
        assert_eq!(DhcpLeaseFile::new(&path).load().unwrap().len(), 10);
    }
}
