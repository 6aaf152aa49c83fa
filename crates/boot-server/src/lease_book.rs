// SPDX-License-Identifier: Apache-2.0
//! Where leases are written down before they are given, so that a restart does not give an address twice.
//!
//! Recording and making durable are two steps: a server answers all packets that are waiting, commits
//! once, and then sends the replies, so a rack that boots at once costs a few disk flushes, not one
//! per machine.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use node_model::Timestamp;

/// Keeps leases.
pub trait LeaseBook: Send {
    /// Every lease that was ever committed, the newest per address.
    ///
    /// # Errors
    /// If the book cannot be read.
    fn load(&mut self) -> Result<Vec<LeaseRecord>, LeaseBookError>;

    /// Notes a lease; it may be lost until [`commit`](Self::commit).
    fn record(&mut self, record: LeaseRecord);

    /// Makes everything noted durable. After an error nothing noted since the last commit counts.
    ///
    /// # Errors
    /// If it cannot be written.
    fn commit(&mut self) -> Result<(), LeaseBookError>;
}

/// One address and who has it until when. An `until` in the past says that the address is free again
/// and who had it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The address.
    pub address: IpAddr,
    /// Who: the bytes the server tells its clients apart by.
    pub client: Vec<u8>,
    /// Until when.
    pub until: Timestamp,
}

/// The book failed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseBookError {
    /// Reading failed.
    #[error("leases could not be read from {place}; no address is given until they can")]
    Read {
        /// The file or table.
        place: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error("leases could not be written to {place}; check its free space and permissions")]
    Write {
        /// The file or table.
        place: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A book in a file: lines are appended and flushed to disk, and the file is rewritten when it is
/// mostly history. A last line that a crash cut short is ignored.
#[derive(Debug)]
pub struct FileLeaseBook {
    path: PathBuf,
    file: Option<File>,
    newest: BTreeMap<IpAddr, LeaseRecord>,
    pending: Vec<LeaseRecord>,
    lines: usize,
}

/// A book in memory, for tests; clones share their pages, so one survives a "restart".
#[derive(Debug, Clone, Default)]
pub struct MemoryLeaseBook {
    committed: Arc<Mutex<BTreeMap<IpAddr, LeaseRecord>>>,
    pending: Vec<LeaseRecord>,
}

/// The file is rewritten when it has this many lines and four times as many as addresses.
const COMPACT_FROM: usize = 4096;

impl FileLeaseBook {
    /// The book in `path`, which is made when it is first needed.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file: None,
            newest: BTreeMap::new(),
            pending: Vec::new(),
            lines: 0,
        }
    }

    fn append(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
                // The name must be as durable as what is in the file.
                sync_folder_of(&self.path)?;
                self.file.insert(file)
            }
        };
        let text: String = self.pending.iter().map(line).collect();
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        Ok(())
    }

    fn compact(&mut self) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        let text: String = self.newest.values().map(line).collect();
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        sync_folder_of(&self.path)?;
        self.file = None;
        self.lines = self.newest.len();
        Ok(())
    }
}

impl LeaseBook for FileLeaseBook {
    fn load(&mut self) -> Result<Vec<LeaseRecord>, LeaseBookError> {
        let fail = |source| LeaseBookError::Read { place: self.path.display().to_string(), source };
        self.newest.clear();
        self.lines = 0;
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut reader = BufReader::new(file);
        let mut bytes = Vec::new();
        let mut cut_short = false;
        while reader.read_until(b'\n', &mut bytes).map_err(fail)? > 0 {
            cut_short = bytes.last() != Some(&b'\n');
            let record = std::str::from_utf8(&bytes).ok().and_then(parse_line);
            if let Some(record) = record.filter(|_| !cut_short) {
                self.newest.insert(record.address, record);
            }
            self.lines += 1;
            bytes.clear();
        }
        if cut_short {
            // Appending behind half a line would spoil the next one too.
            self.compact().map_err(|source| LeaseBookError::Write {
                place: self.path.display().to_string(),
                source,
            })?;
        }
        Ok(self.newest.values().cloned().collect())
    }

    fn record(&mut self, record: LeaseRecord) {
        self.pending.push(record);
    }

    fn commit(&mut self) -> Result<(), LeaseBookError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self.append();
        let pending = std::mem::take(&mut self.pending);
        let fail =
            |source| LeaseBookError::Write { place: self.path.display().to_string(), source };
        if let Err(error) = written {
            // Part of a line may be there; a fresh file starts clean.
            self.file = None;
            let error = fail(error);
            let _ = self.compact();
            return Err(error);
        }
        self.lines += pending.len();
        self.newest.extend(pending.into_iter().map(|record| (record.address, record)));
        if self.lines >= COMPACT_FROM && self.lines / 4 > self.newest.len() {
            // The leases are already durable; a compaction that fails is tried again later.
            if let Err(error) = self.compact() {
                tracing::warn!(path = %self.path.display(), %error, "leases were not compacted");
            }
        }
        Ok(())
    }
}

impl LeaseBook for MemoryLeaseBook {
    fn load(&mut self) -> Result<Vec<LeaseRecord>, LeaseBookError> {
        self.pending.clear();
        let committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(committed.values().cloned().collect())
    }

    fn record(&mut self, record: LeaseRecord) {
        self.pending.push(record);
    }

    fn commit(&mut self) -> Result<(), LeaseBookError> {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.extend(self.pending.drain(..).map(|record| (record.address, record)));
        Ok(())
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// `192.0.2.7 01525400aabb01 1794700000000000`.
fn line(record: &LeaseRecord) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{} ", record.address);
    for byte in &record.client {
        let _ = write!(text, "{byte:02x}");
    }
    let _ = writeln!(text, " {}", record.until.0);
    text
}

fn parse_line(text: &str) -> Option<LeaseRecord> {
    let mut words = text.split_ascii_whitespace();
    let address = words.next()?.parse().ok()?;
    let hexadecimal = words.next()?.as_bytes();
    let client = hexadecimal
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect::<Option<Vec<u8>>>()?;
    let until = Timestamp(words.next()?.parse().ok()?);
    Some(LeaseRecord { address, client, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(last: u8, client: u8, until: i64) -> LeaseRecord {
        let address = IpAddr::from([192, 0, 2, last]);
        LeaseRecord { address, client: vec![1, client], until: Timestamp::from_secs(until) }
    }

    #[test]
    fn committed_leases_are_there_after_a_restart_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let mut book = FileLeaseBook::new(&path);
        assert_eq!(book.load().unwrap(), []);
        book.record(record(1, 1, 100));
        book.record(record(2, 2, 100));
        book.record(record(1, 3, 200));
        book.commit().unwrap();
        book.record(record(9, 9, 900));
        drop(book);
        let loaded = FileLeaseBook::new(&path).load().unwrap();
        assert_eq!(loaded, [record(1, 3, 200), record(2, 2, 100)]);
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_ignored_and_does_not_spoil_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let whole = line(&record(1, 1, 100));
        std::fs::write(&path, format!("{whole}192.0.2.2 0102 1790")).unwrap();
        let mut book = FileLeaseBook::new(&path);
        assert_eq!(book.load().unwrap(), [record(1, 1, 100)]);
        book.record(record(3, 3, 300));
        book.commit().unwrap();
        let loaded = FileLeaseBook::new(&path).load().unwrap();
        assert_eq!(loaded, [record(1, 1, 100), record(3, 3, 300)]);
    }

    #[test]
    fn history_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let mut book = FileLeaseBook::new(&path);
        for round in 0..COMPACT_FROM as i64 + 1 {
            book.record(record((round % 10) as u8, 1, round));
            if round % 100 == 0 {
                book.commit().unwrap();
            }
        }
        book.commit().unwrap();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 200, "{lines} lines for 10 addresses");
        assert_eq!(FileLeaseBook::new(&path).load().unwrap().len(), 10);
    }
}
