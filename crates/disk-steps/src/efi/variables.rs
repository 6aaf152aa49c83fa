// SPDX-License-Identifier: Apache-2.0
//! `BootXXXX` and `BootOrder`, as files: four bytes of attributes, then the value.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::{Error, device_path};

const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Kept without power, and there before and after the system boots.
const ATTRIBUTES: u32 = 7;
/// The entry may be booted.
const ACTIVE: u32 = 1;

/// A boot entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEntry {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub label: String,
    /// What it boots, as text.
    pub path: String,
}

/// All boot entries, and their order.
pub(super) struct Store {
    folder: PathBuf,
    entries: Vec<BootEntry>,
    order: Vec<u16>,
}

impl Store {
    /// Reads what is there.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let no_variables = |_| Error::NoVariables { path: folder.to_owned() };
        let mut store = Self { folder: folder.to_owned(), entries: Vec::new(), order: Vec::new() };
        for file in fs::read_dir(folder).map_err(no_variables)?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let Some(number) = entry_number(&name) else { continue };
            let value = store.read(&name)?;
            let (label, path) = parse(value.as_deref().unwrap_or_default());
            store.entries.push(BootEntry { number, label, path });
        }
        store.entries.sort_by_key(|entry| entry.number);
        let order = store.read(&variable("BootOrder"))?.unwrap_or_default();
        store.order =
            order.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
        Ok(store)
    }

    /// The entries, by number.
    #[cfg(test)]
    pub(super) fn entries(&self) -> &[BootEntry] {
        &self.entries
    }

    /// The order in which they are tried.
    #[cfg(test)]
    pub(super) fn order(&self) -> &[u16] {
        &self.order
    }

    /// Adds an entry, which is not in the order yet.
    pub(super) fn add(&mut self, label: &str, path: &[u8]) -> Result<BootEntry, Error> {
        let taken = |number: &u16| {
            self.entries.iter().any(|entry| entry.number == *number) || self.order.contains(number)
        };
        let number = (0..u16::MAX).find(|number| !taken(number)).ok_or(Error::Full)?;
        self.write(&variable(&format!("Boot{number:04X}")), &option(label, path))?;
        let entry = BootEntry { number, label: label.to_owned(), path: device_path::text(path) };
        self.entries.push(entry.clone());
        Ok(entry)
    }

    /// Removes entries. Answers which.
    pub(super) fn remove_where(
        &mut self,
        unwanted: impl Fn(&BootEntry) -> bool,
    ) -> Result<Vec<BootEntry>, Error> {
        let (gone, kept): (Vec<_>, Vec<_>) = self.entries.drain(..).partition(|it| unwanted(it));
        self.entries = kept;
        if gone.is_empty() {
            return Ok(gone);
        }
        for entry in &gone {
            let name = variable(&format!("Boot{:04X}", entry.number));
            make_mutable(&self.folder.join(&name));
            fs::remove_file(self.folder.join(&name))
                .map_err(|source| Error::Write { name, source })?;
        }
        let order = self.order.iter().copied();
        let left =
            order.filter(|number| gone.iter().all(|entry| entry.number != *number)).collect();
        self.write_order(left)?;
        Ok(gone)
    }

    /// Puts entries before all others.
    pub(super) fn put_first(&mut self, first: &[BootEntry]) -> Result<(), Error> {
        if first.is_empty() {
            return Ok(());
        }
        let first: Vec<u16> = first.iter().map(|entry| entry.number).collect();
        let rest = self.order.iter().copied().filter(|number| !first.contains(number));
        let order = first.iter().copied().chain(rest).collect();
        self.write_order(order)
    }

    fn write_order(&mut self, order: Vec<u16>) -> Result<(), Error> {
        if order != self.order {
            let value: Vec<u8> = order.iter().flat_map(|number| number.to_le_bytes()).collect();
            self.write(&variable("BootOrder"), &value)?;
            self.order = order;
        }
        Ok(())
    }

    /// The value of a variable; none if it is not there.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        match fs::read(self.folder.join(name)) {
            Ok(bytes) => Ok(Some(bytes.get(4..).unwrap_or_default().to_vec())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Read { name: name.to_owned(), source }),
        }
    }

    /// Writes a variable: all of it in one call, as the firmware takes it.
    fn write(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        let path = self.folder.join(name);
        make_mutable(&path);
        let bytes = [&ATTRIBUTES.to_le_bytes()[..], value].concat();
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
            file.write_all(&bytes)?;
            // In efivarfs a write replaces the whole; a plain folder keeps what was longer.
            if file.metadata()?.len() > bytes.len() as u64 {
                file.set_len(bytes.len() as u64)?;
            }
            Ok(())
        };
        write().map_err(|source| Error::Write { name: name.to_owned(), source })
    }
}

fn variable(name: &str) -> String {
    format!("{name}-{GLOBAL}")
}

fn entry_number(name: &str) -> Option<u16> {
    let digits = name.strip_suffix(GLOBAL)?.strip_suffix('-')?.strip_prefix("Boot")?;
    let hexadecimal = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| hexadecimal)
}

/// The kernel makes variables immutable, so that nobody ruins a machine with `rm -rf`.
fn make_mutable(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    if let Ok(flags) = ioctl_getflags(&file)
        && flags.contains(IFlags::IMMUTABLE)
    {
        let _ = ioctl_setflags(&file, flags - IFlags::IMMUTABLE);
    }
}

/// An EFI_LOAD_OPTION.
fn option(label: &str, path: &[u8]) -> Vec<u8> {
    let mut option = ACTIVE.to_le_bytes().to_vec();
    option.extend(u16::try_from(path.len()).unwrap_or(u16::MAX).to_le_bytes());
    option.extend(label.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
    option.extend(path);
    option
}

/// The name and the path in an EFI_LOAD_OPTION, as far as it makes sense.
fn parse(option: &[u8]) -> (String, String) {
    let length =
        option.get(4..6).map_or(0, |two| usize::from(u16::from_le_bytes([two[0], two[1]])));
    let rest = option.get(6..).unwrap_or_default();
    let letters: Vec<u16> = rest
        .chunks_exact(2)
        .map(|two| u16::from_le_bytes([two[0], two[1]]))
        .take_while(|letter| *letter != 0)
        .collect();
    let path = rest.get(2 * (letters.len() + 1)..).unwrap_or_default();
    let path = path.get(..length).unwrap_or(path);
    (String::from_utf16_lossy(&letters), device_path::text(path))
}
