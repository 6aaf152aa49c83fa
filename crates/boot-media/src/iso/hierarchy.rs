// SPDX-License-Identifier: Apache-2.0
//! The two directory trees of an image (ISO 9660 with Rock Ridge, Joliet): identifiers and path tables.

use std::collections::BTreeSet;

use super::{IsoExtent, SECTOR, record};
use crate::FileTree;
use crate::file_tree::{Entry, TreeEntryKind, TreeFolder};

/// Maximum length of an identifier in ISO 9660 level 2, without the version.
const MAX_IDENTIFIER_LENGTH: usize = 31;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsoNaming {
    /// ISO 9660 identifiers, with the original names in Rock Ridge entries. Lower-case letters and several
    /// dots are kept, as in the config drives of OpenStack: some readers expect
    /// `/openstack/latest/network_data.json;1`.
    RockRidge,
    /// The original names in UCS-2.
    Joliet,
}

/// Each path table is stored in both byte orders.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathTableByteOrder {
    Little,
    Big,
}

/// The folders in the order of the path table: by level, then by parent, then by identifier.
pub(super) struct IsoHierarchy {
    naming: IsoNaming,
    folders: Vec<IsoFolder>,
}

struct IsoFolder {
    identifier: Vec<u8>,
    parent: usize,
    children: Vec<IsoChild>,
}

struct IsoChild {
    identifier: Vec<u8>,
    name: String,
    target: IsoChildTarget,
}

#[derive(Clone, Copy)]
enum IsoChildTarget {
    Folder(usize),
    File(usize),
}

impl IsoHierarchy {
    /// Returns `None` if there are more folders than a path table can number.
    pub(super) fn new(files: &FileTree, naming: IsoNaming) -> Option<IsoHierarchy> {
        let mut folders = Vec::new();
        let mut waiting = vec![(vec![0], files.root(), 0)];
        while !waiting.is_empty() {
            let first_below = folders.len() + waiting.len();
            let mut below = Vec::new();
            for (identifier, folder, parent) in waiting {
                let own = folders.len();
                let mut children = Vec::with_capacity(folder.entries.len());
                for (identifier, entry) in entries_with_identifiers(folder, naming) {
                    let target = match &entry.kind {
                        TreeEntryKind::Folder(inner) => {
                            below.push((identifier.clone(), inner, own));
                            IsoChildTarget::Folder(first_below + below.len() - 1)
                        }
                        TreeEntryKind::File(index) => IsoChildTarget::File(*index),
                    };
                    children.push(IsoChild { identifier, name: entry.name.clone(), target });
                }
                folders.push(IsoFolder { identifier, parent, children });
            }
            waiting = below;
        }
        u16::try_from(folders.len()).ok()?;
        Some(IsoHierarchy { naming, folders })
    }

    pub(super) fn path_table_size(&self) -> u32 {
        let rows = self.folders.iter();
        let size: usize = rows.map(|f| 8 + f.identifier.len().next_multiple_of(2)).sum();
        u32::try_from(size).expect("65,535 folders of 128 bytes at most")
    }

    /// Returns the size of each folder in bytes, in whole sectors.
    pub(super) fn folder_sizes(&self) -> impl Iterator<Item = u64> + '_ {
        let nowhere = IsoExtent { sector: 0, size: 0 };
        (0..self.folders.len()).map(move |index| {
            let records = self.records(index, |_| nowhere, |_| nowhere);
            let mut size = 0;
            for record in records {
                size = record_position(size, record.len()) + record.len();
            }
            (size as u64).next_multiple_of(SECTOR)
        })
    }

    pub(super) fn write_path_table(
        &self,
        output: &mut Vec<u8>,
        folders: &[IsoExtent],
        order: PathTableByteOrder,
    ) {
        for (folder, extent) in self.folders.iter().zip(folders) {
            output.extend([folder.identifier.len() as u8, 0]);
            let parent = u16::try_from(folder.parent + 1).expect("folders were counted");
            match order {
                PathTableByteOrder::Little => {
                    output.extend(extent.sector.to_le_bytes());
                    output.extend(parent.to_le_bytes());
                }
                PathTableByteOrder::Big => {
                    output.extend(extent.sector.to_be_bytes());
                    output.extend(parent.to_be_bytes());
                }
            }
            output.extend_from_slice(&folder.identifier);
            if !folder.identifier.len().is_multiple_of(2) {
                output.push(0);
            }
        }
    }

    pub(super) fn write_folders(
        &self,
        output: &mut Vec<u8>,
        folders: &[IsoExtent],
        files: &[IsoExtent],
    ) {
        for index in 0..self.folders.len() {
            let start = output.len();
            for record in self.records(index, |folder| folders[folder], |file| files[file]) {
                let at = record_position(output.len() - start, record.len());
                output.resize(start + at, 0);
                output.extend_from_slice(&record);
            }
            output.resize(start + folders[index].size as usize, 0);
        }
    }

    /// Returns the records of a folder: itself, its parent, its children.
    fn records(
        &self,
        index: usize,
        folder_at: impl Fn(usize) -> IsoExtent,
        file_at: impl Fn(usize) -> IsoExtent,
    ) -> Vec<Vec<u8>> {
        let folder = &self.folders[index];
        let mut records = Vec::with_capacity(folder.children.len() + 2);
        let rock_ridge = self.naming == IsoNaming::RockRidge;
        let extra = |entries: fn() -> Vec<u8>| if rock_ridge { entries() } else { Vec::new() };
        let own = if index == 0 {
            extra(record::rock_ridge_root)
        } else {
            extra(|| record::rock_ridge_folder(None))
        };
        records.push(record::folder(&[0], folder_at(index), &own));
        let parent = extra(|| record::rock_ridge_folder(None));
        records.push(record::folder(&[1], folder_at(folder.parent), &parent));
        for child in &folder.children {
            let name = child.name.as_str();
            records.push(match child.target {
                IsoChildTarget::Folder(at) => {
                    let extra = rock_ridge.then(|| record::rock_ridge_folder(Some(name)));
                    record::folder(&child.identifier, folder_at(at), &extra.unwrap_or_default())
                }
                IsoChildTarget::File(at) => {
                    let extra = rock_ridge.then(|| record::rock_ridge_file(name));
                    record::file(&child.identifier, file_at(at), &extra.unwrap_or_default())
                }
            });
        }
        records
    }
}

/// Returns the offset of the next record, at or after `at`: a record must not cross a sector boundary.
fn record_position(at: usize, length: usize) -> usize {
    let sector = SECTOR as usize;
    if at % sector + length > sector { at.next_multiple_of(sector) } else { at }
}

/// Returns the entries of a folder with their identifiers, ordered by identifier.
fn entries_with_identifiers(folder: &TreeFolder, naming: IsoNaming) -> Vec<(Vec<u8>, &Entry)> {
    let mut taken = BTreeSet::new();
    let mut entries = Vec::with_capacity(folder.entries.len());
    for entry in folder.entries.values() {
        let is_file = matches!(entry.kind, TreeEntryKind::File(_));
        let identifier = match naming {
            IsoNaming::Joliet => entry.name.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            IsoNaming::RockRidge => {
                let mut identifier = plain_identifier(&entry.name, &taken);
                taken.insert(identifier.clone());
                if is_file {
                    identifier.extend_from_slice(b";1");
                }
                identifier
            }
        };
        entries.push((identifier, entry));
    }
    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    entries
}

/// Converts a name to ISO 9660 characters; shortens it and adds a number if necessary.
fn plain_identifier(name: &str, taken: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let plain: Vec<u8> = name
        .chars()
        .map(|c| u8::try_from(c).ok().filter(|b| b.is_ascii_alphanumeric() || b"-._".contains(b)))
        .map(|byte| byte.unwrap_or(b'_'))
        .collect();
    let mut identifier = plain.clone();
    identifier.truncate(MAX_IDENTIFIER_LENGTH);
    let mut number = 1_u32;
    while taken.contains(&identifier) {
        let tail = format!("_{number}");
        identifier = plain[..plain.len().min(MAX_IDENTIFIER_LENGTH - tail.len())].to_vec();
        identifier.extend_from_slice(tail.as_bytes());
        number += 1;
    }
    identifier
}
