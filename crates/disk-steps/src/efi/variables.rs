// SPDX-License-Identifier: Apache-2.0
//! `BootXXXX` and `BootOrder` variables in efivarfs: four bytes of attributes, then the value.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::{EfiError, device_path};

const GLOBAL_VARIABLE_GUID: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Non-volatile, boot service access, runtime access.
const ATTRIBUTES: u32 = 7;
/// `LOAD_OPTION_ACTIVE`
const ACTIVE: u32 = 1;

/// A boot entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootEntry {
    /// Number of the variable.
    pub number: u16,
    /// Label.
    pub label: String,
    /// Device path as text.
    pub path: String,
}

/// All boot entries and the boot order.
pub(super) struct BootVariables {
    directory: PathBuf,
    entries: Vec<BootEntry>,
    order: Vec<u16>,
}

impl BootVariables {
    /// Reads the variables.
    pub(super) fn open(directory: &Path) -> Result<Self, EfiError> {
        let no_variables = |_| EfiError::NoVariables { path: directory.to_owned() };
        let mut variables_store =
            Self { directory: directory.to_owned(), entries: Vec::new(), order: Vec::new() };
        for file in fs::read_dir(directory).map_err(no_variables)?.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let Some(number) = entry_number(&name) else { continue };
            let value = variables_store.read(&name)?;
            let (label, path) = parse_load_option(value.as_deref().unwrap_or_default());
            variables_store.entries.push(BootEntry { number, label, path });
        }
        variables_store.entries.sort_by_key(|entry| entry.number);
        let order = variables_store.read(&variable_name("BootOrder"))?.unwrap_or_default();
        variables_store.order =
            order.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
        Ok(variables_store)
    }

    /// Returns the entries by number.
    #[cfg(test)]
    pub(super) fn entries(&self) -> &[BootEntry] {
        &self.entries
    }

    /// Returns the boot order.
    #[cfg(test)]
    pub(super) fn order(&self) -> &[u16] {
        &self.order
    }

    /// Adds an entry, without adding it to the boot order.
    pub(super) fn add(&mut self, label: &str, path: &[u8]) -> Result<BootEntry, EfiError> {
        let is_used = |number: &u16| {
            self.entries.iter().any(|entry| entry.number == *number) || self.order.contains(number)
        };
        let number = (0..u16::MAX).find(|number| !is_used(number)).ok_or(EfiError::Full)?;
        self.write(&variable_name(&format!("Boot{number:04X}")), &load_option(label, path))?;
        let entry = BootEntry { number, label: label.to_owned(), path: device_path::text(path) };
        self.entries.push(entry.clone());
        Ok(entry)
    }

    /// Removes matching entries and returns them.
    pub(super) fn remove_where(
        &mut self,
        matches: impl Fn(&BootEntry) -> bool,
    ) -> Result<Vec<BootEntry>, EfiError> {
        let (removed, kept): (Vec<_>, Vec<_>) = self.entries.drain(..).partition(|it| matches(it));
        self.entries = kept;
        if removed.is_empty() {
            return Ok(removed);
        }
        for entry in &removed {
            let name = variable_name(&format!("Boot{:04X}", entry.number));
            make_mutable(&self.directory.join(&name));
            fs::remove_file(self.directory.join(&name))
                .map_err(|source| EfiError::Write { name, source })?;
        }
        let order = self.order.iter().copied();
        let remaining =
            order.filter(|number| removed.iter().all(|entry| entry.number != *number)).collect();
        self.write_order(remaining)?;
        Ok(removed)
    }

    /// Moves entries to the front of the boot order.
    pub(super) fn move_to_front(&mut self, first: &[BootEntry]) -> Result<(), EfiError> {
        if first.is_empty() {
            return Ok(());
        }
        let first: Vec<u16> = first.iter().map(|entry| entry.number).collect();
        let rest = self.order.iter().copied().filter(|number| !first.contains(number));
        let order = first.iter().copied().chain(rest).collect();
        self.write_order(order)
    }

    fn write_order(&mut self, order: Vec<u16>) -> Result<(), EfiError> {
        if order != self.order {
            let value: Vec<u8> = order.iter().flat_map(|number| number.to_le_bytes()).collect();
            self.write(&variable_name("BootOrder"), &value)?;
            self.order = order;
        }
        Ok(())
    }

    /// Returns the value of a variable; `None` if it is missing.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, EfiError> {
        match fs::read(self.directory.join(name)) {
            Ok(bytes) => Ok(Some(bytes.get(4..).unwrap_or_default().to_vec())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(EfiError::Read { name: name.to_owned(), source }),
        }
    }

    /// Writes a variable in a single call, as efivarfs requires.
    fn write(&self, name: &str, value: &[u8]) -> Result<(), EfiError> {
        let path = self.directory.join(name);
        make_mutable(&path);
        let bytes = [&ATTRIBUTES.to_le_bytes()[..], value].concat();
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
            file.write_all(&bytes)?;
            // A write to efivarfs replaces the value; a regular file must be truncated.
            if file.metadata()?.len() > bytes.len() as u64 {
                file.set_len(bytes.len() as u64)?;
            }
            Ok(())
        };
        write().map_err(|source| EfiError::Write { name: name.to_owned(), source })
    }
}

fn variable_name(name: &str) -> String {
    format!("{name}-{GLOBAL_VARIABLE_GUID}")
}

fn entry_number(name: &str) -> Option<u16> {
    let digits =
        name.strip_suffix(GLOBAL_VARIABLE_GUID)?.strip_suffix('-')?.strip_prefix("Boot")?;
    let is_hex = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// Clears the immutable flag, which the kernel sets to protect variables from `rm -rf`.
fn make_mutable(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    if let Ok(flags) = ioctl_getflags(&file)
        && flags.contains(IFlags::IMMUTABLE)
    {
        let _ = ioctl_setflags(&file, flags - IFlags::IMMUTABLE);
    }
}

/// Encodes an `EFI_LOAD_OPTION`.
fn load_option(label: &str, path: &[u8]) -> Vec<u8> {
    let mut load_option = ACTIVE.to_le_bytes().to_vec();
    load_option.extend(u16::try_from(path.len()).unwrap_or(u16::MAX).to_le_bytes());
    load_option.extend(label.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
    load_option.extend(path);
    load_option
}

/// Parses label and device path of an `EFI_LOAD_OPTION`, as far as it is valid.
fn parse_load_option(load_option: &[u8]) -> (String, String) {
    let length =
        load_option.get(4..6).map_or(0, |two| usize::from(u16::from_le_bytes([two[0], two[1]])));
    let rest = load_option.get(6..).unwrap_or_default();
    let units: Vec<u16> = rest
        .chunks_exact(2)
        .map(|two| u16::from_le_bytes([two[0], two[1]]))
        .take_while(|unit| *unit != 0)
        .collect();
    let path = rest.get(2 * (units.len() + 1)..).unwrap_or_default();
    let path = path.get(..length).unwrap_or(path);
    (String::from_utf16_lossy(&units), device_path::text(path))
}
