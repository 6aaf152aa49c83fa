// SPDX-License-Identifier: Apache-2.0
//! The volume descriptors, one sector each.

use super::record::{self, both_u16, both_u32};
use super::{IsoExtent, SECTOR};

type Sector = [u8; SECTOR as usize];

const APPLICATION: &str = "FERRITE";
const SYSTEM: &str = "LINUX";
/// 1 January 1980, to hundredths of seconds; constant, so that the same files give the same bytes.
const CREATION_DATE: &[u8; 17] = b"1980010100000000\0";
const UNSET_DATE: &[u8; 17] = b"0000000000000000\0";
/// UCS-2, level 3: the escape sequence that marks a Joliet volume.
const JOLIET_ESCAPE_SEQUENCE: &[u8; 3] = b"%/E";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsoVolumeKind {
    /// ISO 9660 with Rock Ridge.
    Primary,
    /// Joliet: names in UCS-2.
    Joliet,
}

/// The texts of a volume descriptor.
pub(super) struct VolumeTexts<'a> {
    pub(super) label: &'a str,
    pub(super) publisher: &'a str,
}

/// The sizes and locations in a volume descriptor.
#[derive(Debug, Clone, Default)]
pub(super) struct IsoVolume {
    pub(super) total_sectors: u32,
    pub(super) path_table_size: u32,
    pub(super) path_table_little: u32,
    pub(super) path_table_big: u32,
    /// The folders; the root is the first.
    pub(super) folders: Vec<IsoExtent>,
}

pub(super) fn volume(kind: IsoVolumeKind, texts: &VolumeTexts<'_>, volume: &IsoVolume) -> Sector {
    let mut sector = match kind {
        IsoVolumeKind::Primary => blank(1),
        IsoVolumeKind::Joliet => blank(2),
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
    if kind == IsoVolumeKind::Joliet {
        put(&mut sector, 88, JOLIET_ESCAPE_SEQUENCE);
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
    put(&mut sector, 813, CREATION_DATE);
    put(&mut sector, 830, CREATION_DATE);
    put(&mut sector, 847, UNSET_DATE);
    put(&mut sector, 864, UNSET_DATE);
    sector[881] = 1;
    sector
}

/// Returns the descriptor with the location of the boot catalogue.
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

/// Writes a text, truncated or padded with spaces.
fn write_text(field: &mut [u8], kind: IsoVolumeKind, text: &str) {
    match kind {
        IsoVolumeKind::Primary => {
            let padded = text.bytes().chain(std::iter::repeat(b' '));
            field.iter_mut().zip(padded).for_each(|(byte, value)| *byte = value);
        }
        IsoVolumeKind::Joliet => {
            // Three fields have an odd length; their last byte is zero.
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
