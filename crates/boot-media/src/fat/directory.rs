// SPDX-License-Identifier: Apache-2.0
//! FAT folders: short names, long names, and the 32-byte entries of both.

use std::collections::BTreeSet;

use super::ClusterRun;
use crate::file_tree::{TreeEntryKind, TreeFolder};
use crate::{Content, FileTree};

const ENTRY_BYTES: usize = 32;
const READ_ONLY_VOLUME: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
const ARCHIVE: u8 = 0x20;
const LONG_NAME: u8 = 0x0F;
/// UCS-2 units per long-name entry.
const UNITS_PER_ENTRY: usize = 13;
/// 1 January 1980; constant, so that the same files give the same bytes.
const DATE: u16 = (1 << 5) | 1;

/// All folders of a tree: the root first, parents before children.
pub(super) struct FlatTree<'a> {
    pub(super) folders: Vec<FlatFolder<'a>>,
}

pub(super) struct FlatFolder<'a> {
    parent: usize,
    entries: Vec<FlatEntry<'a>>,
    is_root: bool,
}

struct FlatEntry<'a> {
    name: &'a str,
    short: [u8; 11],
    /// Whether the short name equals the name, so that no long name is needed.
    is_short_name_exact: bool,
    target: FatEntryTarget,
}

#[derive(Clone, Copy)]
enum FatEntryTarget {
    Folder(usize),
    File(usize),
}

// === impl FlatTree ===

impl<'a> FlatTree<'a> {
    pub(super) fn new(files: &'a FileTree) -> FlatTree<'a> {
        let mut tree = FlatTree { folders: Vec::new() };
        let mut waiting = vec![(files.root(), 0)];
        // Breadth first: the list is also the queue.
        while !waiting.is_empty() {
            let mut below = Vec::new();
            let first_below = tree.folders.len() + waiting.len();
            for (folder, parent) in waiting {
                let own = tree.folders.len();
                let flat = flatten(folder, parent, own, first_below, &mut below);
                tree.folders.push(flat);
            }
            waiting = below;
        }
        tree
    }

    /// Returns the directory entries of one folder.
    pub(super) fn folder_entries(
        &self,
        index: usize,
        label: &[u8; 11],
        folders: &[ClusterRun],
        contents: &[ClusterRun],
        files: &[Content],
    ) -> Vec<u8> {
        let folder = &self.folders[index];
        let mut output = Vec::with_capacity(folder.size() as usize);
        if folder.is_root {
            output.extend_from_slice(&entry(label, READ_ONLY_VOLUME, 0, 0));
        } else {
            // `..` of a folder in the root is 0 for all types of FAT.
            let parent = if folder.parent == 0 { 0 } else { folders[folder.parent].first };
            output.extend_from_slice(&entry(b".          ", DIRECTORY, folders[index].first, 0));
            output.extend_from_slice(&entry(b"..         ", DIRECTORY, parent, 0));
        }
        for child in &folder.entries {
            if !child.is_short_name_exact {
                write_long_name(&mut output, child.name, &child.short);
            }
            let record = match child.target {
                FatEntryTarget::Folder(at) => entry(&child.short, DIRECTORY, folders[at].first, 0),
                FatEntryTarget::File(at) => {
                    let size =
                        u32::try_from(files[at].length()).expect("sizes were checked before");
                    entry(&child.short, ARCHIVE, contents[at].first, size)
                }
            };
            output.extend_from_slice(&record);
        }
        output
    }
}

// === impl FlatFolder ===

impl FlatFolder<'_> {
    /// Returns the size of its entries in bytes, including the label or the two dot entries.
    pub(super) fn size(&self) -> u64 {
        let first = if self.is_root { 1 } else { 2 };
        let slots: usize = self.entries.iter().map(FlatEntry::slots).sum();
        ((first + slots) * ENTRY_BYTES) as u64
    }
}

impl FlatEntry<'_> {
    fn slots(&self) -> usize {
        if self.is_short_name_exact {
            1
        } else {
            1 + self.name.encode_utf16().count().div_ceil(UNITS_PER_ENTRY)
        }
    }
}

fn flatten<'a>(
    folder: &'a TreeFolder,
    parent: usize,
    own: usize,
    first_below: usize,
    below: &mut Vec<(&'a TreeFolder, usize)>,
) -> FlatFolder<'a> {
    let mut taken = BTreeSet::new();
    let mut entries = Vec::with_capacity(folder.entries.len());
    for entry in folder.entries.values() {
        let target = match &entry.kind {
            TreeEntryKind::Folder(inner) => {
                below.push((inner, own));
                FatEntryTarget::Folder(first_below + below.len() - 1)
            }
            TreeEntryKind::File(index) => FatEntryTarget::File(*index),
        };
        let exact = exact_short_name(&entry.name).filter(|short| !taken.contains(short));
        let short = exact.unwrap_or_else(|| generated_short_name(&entry.name, &taken));
        taken.insert(short);
        entries.push(FlatEntry {
            name: &entry.name,
            short,
            is_short_name_exact: exact.is_some(),
            target,
        });
    }
    FlatFolder { parent, entries, is_root: own == 0 }
}

/// Returns the name in upper case if it has the 8.3 form.
fn exact_short_name(name: &str) -> Option<[u8; 11]> {
    let (base, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let fits = (1..=8).contains(&base.len()) && extension.len() <= 3;
    let plain = |part: &str| part.bytes().all(is_short_name_byte);
    (fits && plain(base) && plain(extension))
        .then(|| short_name(base.as_bytes(), extension.as_bytes()))
}

/// Returns a short name such as `PARAME~1.TXT` for `parameters.txt`, with the first free number.
fn generated_short_name(name: &str, taken: &BTreeSet<[u8; 11]>) -> [u8; 11] {
    let capital = |c: char| {
        let upper = c.to_ascii_uppercase();
        u8::try_from(upper).ok().filter(|byte| is_short_name_byte(*byte)).unwrap_or(b'_')
    };
    let clean = |part: &str, most: usize| -> Vec<u8> {
        part.chars().filter(|c| !matches!(c, '.' | ' ')).map(capital).take(most).collect()
    };
    let (base, extension) = match name.rsplit_once('.') {
        Some((base, extension)) if !base.is_empty() => (clean(base, 8), clean(extension, 3)),
        Some(_) | None => (clean(name, 8), Vec::new()),
    };
    let numbered = (1_u32..).map(|number| {
        let tail = format!("~{number}");
        let mut short = base[..base.len().min(8 - tail.len())].to_vec();
        short.extend_from_slice(tail.as_bytes());
        short_name(&short, &extension)
    });
    numbered
        .into_iter()
        .find(|short| !taken.contains(short))
        .expect("a folder has fewer than 10^7 entries")
}

fn is_short_name_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"!#$%&'()-@^_`{}~".contains(&byte)
}

fn short_name(base: &[u8], extension: &[u8]) -> [u8; 11] {
    let mut short = [b' '; 11];
    short[..base.len()].copy_from_slice(base);
    short[8..8 + extension.len()].copy_from_slice(extension);
    short
}

fn entry(short: &[u8; 11], attributes: u8, cluster: u32, size: u32) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    let [c0, c1, c2, c3] = cluster.to_le_bytes();
    entry[..11].copy_from_slice(short);
    entry[11] = attributes;
    for at in [16, 18, 24] {
        entry[at..at + 2].copy_from_slice(&DATE.to_le_bytes());
    }
    entry[20..22].copy_from_slice(&[c2, c3]);
    entry[26..28].copy_from_slice(&[c0, c1]);
    entry[28..].copy_from_slice(&size.to_le_bytes());
    entry
}

/// Writes the entries of a long name, which are stored in reverse order.
fn write_long_name(output: &mut Vec<u8>, name: &str, short: &[u8; 11]) {
    let checksum = short.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
    let units: Vec<u16> = name.encode_utf16().collect();
    let last = units.len().div_ceil(UNITS_PER_ENTRY);
    for (index, part) in units.chunks(UNITS_PER_ENTRY).enumerate().rev() {
        let number = index + 1;
        let mut entry = [0; ENTRY_BYTES];
        entry[0] = number as u8 | if number == last { 0x40 } else { 0 };
        entry[11] = LONG_NAME;
        entry[13] = checksum;
        for place in 0..UNITS_PER_ENTRY {
            let unit = match place.cmp(&part.len()) {
                std::cmp::Ordering::Less => part[place],
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Greater => 0xFFFF,
            };
            let at = match place {
                0..5 => 1 + place * 2,
                5..11 => 14 + (place - 5) * 2,
                _ => 28 + (place - 11) * 2,
            };
            entry[at..at + 2].copy_from_slice(&unit.to_le_bytes());
        }
        output.extend_from_slice(&entry);
    }
}
