// SPDX-License-Identifier: Apache-2.0
//! Directory records, and their Rock Ridge entries with the original names and permissions.

use super::IsoExtent;

/// 1 January 1980, UTC; constant, so that the same files give the same bytes.
const RECORDING_DATE: [u8; 7] = [80, 1, 1, 0, 0, 0, 0];
const FOLDER_FLAG: u8 = 2;
/// Read-only for all, since the medium is read-only.
const FILE_MODE: u32 = 0o100_444;
const FOLDER_MODE: u32 = 0o040_555;

/// Returns the record of a folder. `[0]` and `[1]` are the identifiers of the folder itself and of its
/// parent.
pub(super) fn folder(identifier: &[u8], extent: IsoExtent, system_use: &[u8]) -> Vec<u8> {
    record(identifier, extent, FOLDER_FLAG, system_use)
}

/// Returns the record of a file.
pub(super) fn file(identifier: &[u8], extent: IsoExtent, system_use: &[u8]) -> Vec<u8> {
    record(identifier, extent, 0, system_use)
}

/// Returns the Rock Ridge entries of a folder, with its name unless it is `.` or `..`.
pub(super) fn rock_ridge_folder(name: Option<&str>) -> Vec<u8> {
    let mut entries = posix(FOLDER_MODE, 2);
    entries.extend(name.map(alternate_name).unwrap_or_default());
    entries
}

/// Returns the Rock Ridge entries of a file.
pub(super) fn rock_ridge_file(name: &str) -> Vec<u8> {
    let mut entries = posix(FILE_MODE, 1);
    entries.extend(alternate_name(name));
    entries
}

/// Returns the Rock Ridge entries of the root, including the one that identifies Rock Ridge.
pub(super) fn rock_ridge_root() -> Vec<u8> {
    let mut entries = vec![b'S', b'P', 7, 1, 0xBE, 0xEF, 0];
    entries.extend(posix(FOLDER_MODE, 2));
    let (identifier, description, source) = (b"RRIP_1991A", b"ROCK RIDGE", b"IEEE P1282");
    let length = 8 + identifier.len() + description.len() + source.len();
    entries.extend([b'E', b'R', length as u8, 1]);
    entries.extend([identifier.len() as u8, description.len() as u8, source.len() as u8, 1]);
    entries.extend_from_slice(identifier);
    entries.extend_from_slice(description);
    entries.extend_from_slice(source);
    entries
}

/// Returns a number in both byte orders, as ISO 9660 requires.
pub(super) fn both_u32(value: u32) -> [u8; 8] {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&value.to_le_bytes());
    both[4..].copy_from_slice(&value.to_be_bytes());
    both
}

/// Returns a 16-bit number in both byte orders.
pub(super) fn both_u16(value: u16) -> [u8; 4] {
    let [low, high] = value.to_le_bytes();
    [low, high, high, low]
}

fn record(identifier: &[u8], extent: IsoExtent, flags: u8, system_use: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 33];
    record[2..10].copy_from_slice(&both_u32(extent.sector));
    record[10..18].copy_from_slice(&both_u32(extent.size));
    record[18..25].copy_from_slice(&RECORDING_DATE);
    record[25] = flags;
    record[28..32].copy_from_slice(&both_u16(1));
    record[32] = u8::try_from(identifier.len()).expect("names are at most 64 characters");
    record.extend_from_slice(identifier);
    pad_to_even(&mut record);
    record.extend_from_slice(system_use);
    pad_to_even(&mut record);
    record[0] = u8::try_from(record.len()).expect("names of 64 bytes leave a record below 255");
    record
}

fn pad_to_even(record: &mut Vec<u8>) {
    if !record.len().is_multiple_of(2) {
        record.push(0);
    }
}

fn posix(mode: u32, links: u32) -> Vec<u8> {
    let mut entry = vec![b'P', b'X', 36, 1];
    for value in [mode, links, 0, 0] {
        entry.extend(both_u32(value));
    }
    entry
}

fn alternate_name(name: &str) -> Vec<u8> {
    let mut entry = vec![b'N', b'M', 5 + name.len() as u8, 1, 0];
    entry.extend_from_slice(name.as_bytes());
    entry
}
