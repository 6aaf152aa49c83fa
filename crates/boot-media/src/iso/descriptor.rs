// SPDX-License-Identifier: Apache-2.0
//! The volume descriptors, one sector each.

use super::record::{self, both_u16, both_u32};
use super::{Extent, SECTOR};

type Sector = [u8; SECTOR as usize];

const APPLICATION: &str = "FERRITE";
const SYSTEM: &str = "LINUX";
/// The first of January 1980, in hundredths of seconds: the same files give the same bytes.
const MADE: &[u8; 17] = b"1980010100000000\0";
const NEVER: &[u8; 17] = b"0000000000000000\0";
/// UCS-2, level 3: how a Joliet volume says that it is one.
const JOLIET: &[u8; 3] = b"%/E";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeKind {
    /// Plain ISO 9660, with Rock Ridge in its folders.
    Primary,
    /// The second tree, with names in UCS-2.
    Joliet,
}

/// What a reader can tell an image by.
pub(super) struct Texts<'a> {
    pub(super) label: &'a str,
    pub(super) publisher: &'a str,
}

/// What the descriptor of a volume tells.
#[derive(Debug, Clone, Default)]
pub(super) struct Volume {
    pub(super) total_sectors: u32,
    pub(super) path_table_size: u32,
    pub(super) path_table_little: u32,
    pub(super) path_table_big: u32,
    /// The folders, the root first.
    pub(super) folders: Vec<Extent>,
}

pub(super) fn volume(kind: VolumeKind, texts: &Texts<'_>, volume: &Volume) -> Sector {
    let mut sector = match kind {
        VolumeKind::Primary => blank(1),
        VolumeKind::Joliet => blank(2),
    };
    let fields = [
        (8, 32, SYSTEM),
        (40, 32, texts.label),
        (190, 128, ""),
        (318, 128, texts.publisher),
        (446, 128, ""),
        (574, 128, APPLICATION),
        (702, 37, ""),
        (739, 37, ""),
        (776, 37, ""),
    ];
    for (at, length, text) in fields {
        write_text(&mut sector[at..at + length], kind, text);
    }
    if kind == VolumeKind::Joliet {
        put(&mut sector, 88, JOLIET);
    }
    put(&mut sector, 80, &both_u32(volume.total_sectors));
    put(&mut sector, 120, &both_u16(1));
    put(&mut sector, 124, &both_u16(1));
    put(&mut sector, 128, &both_u16(SECTOR as u16));
    put(&mut sector, 132, &both_u32(volume.path_table_size));
    put(&mut sector, 140, &volume.path_table_little.to_le_bytes());
    put(&mut sector, 148, &volume.path_table_big.to_be_bytes());
    let root = record::folder(&[0], volume.folders[0], &[]);
    put(&mut sector, 156, &root);
    put(&mut sector, 813, MADE);
    put(&mut sector, 830, MADE);
    put(&mut sector, 847, NEVER);
    put(&mut sector, 864, NEVER);
    sector[881] = 1;
    sector
}

/// The descriptor that leads to the boot catalogue.
pub(super) fn boot_record(catalogue: u32) -> Sector {
    let mut sector = blank(0);
    put(&mut sector, 7, b"EL TORITO SPECIFICATION");
    put(&mut sector, 71, &catalogue.to_le_bytes());
    sector
}

pub(super) fn terminator() -> Sector {
    blank(255)
}

fn blank(kind: u8) -> Sector {
    let mut sector = [0; SECTOR as usize];
    sector[0] = kind;
    put(&mut sector, 1, b"CD001");
    sector[6] = 1;
    sector
}

/// Writes as much of a text as fits, and spaces behind it.
fn write_text(field: &mut [u8], kind: VolumeKind, text: &str) {
    match kind {
        VolumeKind::Primary => {
            let padded = text.bytes().chain(std::iter::repeat(b' '));
            field.iter_mut().zip(padded).for_each(|(byte, value)| *byte = value);
        }
        VolumeKind::Joliet => {
            // Three fields have an odd length; their last byte stays zero.
            let padded = text.encode_utf16().chain(std::iter::repeat(u16::from(b' ')));
            for (pair, unit) in field.chunks_exact_mut(2).zip(padded) {
                pair.copy_from_slice(&unit.to_be_bytes());
            }
        }
    }
}

fn put(sector: &mut Sector, at: usize, value: &[u8]) {
    sector[at..at + value.len()].copy_from_slice(value);
}
