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
    /// Every lease that was committed and not forgotten, the newest per address. What was forgotten
    /// only lately may be among them.
    ///
    /// # Errors
    /// If the book cannot be read.
    fn load(&mut self) -> Result<Vec<LeaseRecord>, LeaseBookError>;

    /// Notes a lease; it may be lost until [`commit`](Self::commit).
    fn record(&mut self, record: LeaseRecord);

    /// Drops what nobody needs any more, also of what is noted and not committed.
    fn forget(&mut self, is_over: &dyn Fn(&LeaseRecord) -> bool);

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
    /// Who: the bytes the server tells its clients apart by; empty for an address that somebody uses
    /// who did not ask us.
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
    /// How many bytes of the file are whole lines that were committed.
    length: u64,
    /// Whether a failed write may have left more than that.
    is_torn: bool,
}

/// A book in memory, for tests; clones share their pages, so one survives a "restart".
#[derive(Debug, Clone, Default)]
pub struct MemoryLeaseBook {
    committed: Arc<Mutex<BTreeMap<IpAddr, LeaseRecord>>>,
    pending: Vec<LeaseRecord>,
}

/// The leases in a file, the newest per address, without changing anything: for whoever only looks
/// while a server writes in it.
///
/// # Errors
/// If it cannot be read.
pub fn read_leases(path: &Path) -> Result<Vec<LeaseRecord>, LeaseBookError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(LeaseBookError::Read { place: path.display().to_string(), source });
        }
    };
    let mut newest = BTreeMap::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        // Half a line is being written.
        let whole = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
        if let Some(record) = whole.and_then(parse_line) {
            newest.insert(record.address, record);
        }
    }
    Ok(newest.into_values().collect())
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
            length: 0,
            is_torn: false,
        }
    }

    fn append(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.mend()?;
        }
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
        self.is_torn = true;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        self.is_torn = false;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Cuts off what a failed write left: the next line must not be glued to half a line, and a lease
    /// that was not given must not count after a restart.
    fn mend(&mut self) -> io::Result<()> {
        self.file = None;
        self.cut_off().or_else(|_| self.compact())
    }

    fn cut_off(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(self.length)?;
        file.sync_all()?;
        self.is_torn = false;
        Ok(())
    }

    fn compact(&mut self) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        let text: String = self.newest.values().map(line).collect();
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        // From here on the old file is nobody's, even if the next step fails.
        self.file = None;
        self.lines = self.newest.len();
        self.length = text.len() as u64;
        self.is_torn = false;
        sync_folder_of(&self.path)
    }
}

impl LeaseBook for FileLeaseBook {
    fn load(&mut self) -> Result<Vec<LeaseRecord>, LeaseBookError> {
        let fail = |source| LeaseBookError::Read { place: self.path.display().to_string(), source };
        self.newest.clear();
        self.lines = 0;
        self.length = 0;
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
            self.length += bytes.len() as u64;
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

    fn forget(&mut self, is_over: &dyn Fn(&LeaseRecord) -> bool) {
        self.newest.retain(|_, record| !is_over(record));
        self.pending.retain(|record| !is_over(record));
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
            let error = fail(error);
            // If this fails too, it is tried again before anything else is written.
            if self.is_torn {
                let _ = self.mend();
            }
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

    fn forget(&mut self, is_over: &dyn Fn(&LeaseRecord) -> bool) {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.retain(|_, record| !is_over(record));
        self.pending.retain(|record| !is_over(record));
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

/// `192.0.2.7 01525400aabb01 1794700000000000`; the client is `-` if there is none.
fn line(record: &LeaseRecord) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{} ", record.address);
    if record.client.is_empty() {
        text.push('-');
    }
    for byte in &record.client {
        let _ = write!(text, "{byte:02x}");
    }
    let _ = writeln!(text, " {}", record.until.0);
    text
}

fn parse_line(text: &str) -> Option<LeaseRecord> {
    let mut words = text.split_ascii_whitespace();
    let address = words.next()?.parse().ok()?;
    let hexadecimal = words.next().map(|word| if word == "-" { "" } else { word })?;
    let client = hexadecimal
        .as_bytes()
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
        assert_eq!(read_leases(&path).unwrap(), [record(1, 1, 100)]);
        assert_eq!(book.load().unwrap(), [record(1, 1, 100)]);
        book.record(record(3, 3, 300));
        book.commit().unwrap();
        let loaded = FileLeaseBook::new(&path).load().unwrap();
        assert_eq!(loaded, [record(1, 1, 100), record(3, 3, 300)]);
    }

    #[test]
    fn an_address_without_a_client_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let conflict = LeaseRecord { client: Vec::new(), ..record(1, 1, 100) };
        let mut book = FileLeaseBook::new(&path);
        book.record(conflict.clone());
        book.commit().unwrap();
        assert_eq!(FileLeaseBook::new(&path).load().unwrap(), [conflict]);
    }

    #[test]
    fn what_a_failed_write_left_is_cut_off_before_the_next() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("leases");
        let mut book = FileLeaseBook::new(&path);
        book.load().unwrap();
        book.record(record(1, 1, 100));
        book.commit().unwrap();
        // As a disk that is full leaves it: a whole line and half a line of leases that were not given.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "{}192.0.2.1 0109 1", line(&record(2, 2, 200))).unwrap();
        book.is_torn = true;
        // While it cannot be mended nothing is written, and nothing counts as written.
        let away = outer.path().join("away");
        std::fs::rename(&folder, &away).unwrap();
        book.record(record(4, 4, 400));
        book.commit().unwrap_err();
        std::fs::rename(&away, &folder).unwrap();
        book.record(record(3, 3, 300));
        book.commit().unwrap();
        let loaded = FileLeaseBook::new(&path).load().unwrap();
        assert_eq!(loaded, [record(1, 1, 100), record(3, 3, 300)]);
    }

    #[test]
    fn what_was_forgotten_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases");
        let mut book = FileLeaseBook::new(&path);
        for number in 0..200 {
            book.record(record(number, number, i64::from(number)));
        }
        book.commit().unwrap();
        book.forget(&|record| record.until < Timestamp::from_secs(190));
        for _ in 0..COMPACT_FROM {
            book.record(record(199, 199, 199));
        }
        book.commit().unwrap();
        assert_eq!(FileLeaseBook::new(&path).load().unwrap().len(), 10);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 10);
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
