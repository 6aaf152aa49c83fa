// SPDX-License-Identifier: Apache-2.0
//! MBR partition tables: primary partitions, and logical ones read-only.
//!
//! Written here rather than taken from a crate; `docs/decisions/0013-own-partition-tables.md` has the
//! reasons.

use crate::device::{Device, DeviceError};

/// New partitions start at multiples of this many bytes.
const ALIGNMENT: u64 = 1 << 20;
/// The first sector number that does not fit an entry.
const SECTOR_LIMIT: u64 = 1 << 32;
/// Bound on the chain of extended boot records.
const MAX_LOGICAL_PARTITIONS: usize = 64;

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mbr {
    /// Disk signature.
    pub(crate) signature: u32,
    /// Primary entries by index from 0, extended partitions included.
    pub(crate) primary: [Option<MbrPartition>; 4],
    /// Logical partitions; the first has number 5.
    pub(crate) logical: Vec<MbrPartition>,
    sector_size: u64,
    /// Size of the disk in sectors, as far as an MBR can address it.
    sectors: u64,
}

/// An entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MbrPartition {
    pub(crate) active: bool,
    pub(crate) type_code: u8,
    pub(crate) first_lba: u64,
    pub(crate) sectors: u64,
}

impl Mbr {
    /// Creates an empty table for a disk.
    pub(crate) fn new(device: &Device, signature: u32) -> Self {
        let sectors = (device.size() / device.sector()).min(SECTOR_LIMIT);
        Self {
            signature,
            primary: [None; 4],
            logical: Vec::new(),
            sector_size: device.sector(),
            sectors,
        }
    }

    /// Reads the table of a disk; `None` if it has none, or only the protective MBR of a GPT.
    pub(crate) fn read(device: &Device) -> Result<Option<Self>, DeviceError> {
        let mbr = device.read(0, 512)?;
        let Some(primary) = parse_entries(&mbr) else { return Ok(None) };
        if primary.iter().flatten().any(|partition| partition.type_code == 0xee)
            || primary.iter().all(Option::is_none)
        {
            return Ok(None);
        }
        let signature = u32::from_le_bytes([mbr[440], mbr[441], mbr[442], mbr[443]]);
        let mut table = Self { signature, primary, ..Self::new(device, signature) };
        let extended = primary.iter().flatten().find(|partition| partition.is_extended());
        if let Some(extended) = extended {
            table.logical = read_logical(device, extended.first_lba)?;
        }
        Ok(Some(table))
    }

    /// Iterates over all partitions except extended ones, with their numbers.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (u32, &MbrPartition)> {
        let primary = (1..).zip(&self.primary).filter_map(|(n, it)| Some((n, it.as_ref()?)));
        primary.filter(|(_, it)| !it.is_extended()).chain((5..).zip(&self.logical))
    }

    /// Returns offset and length of the extended partition in bytes.
    pub(crate) fn extended_range(&self) -> Option<(u64, u64)> {
        let extended = self.primary.iter().flatten().find(|partition| partition.is_extended());
        extended.map(|partition| self.range(partition))
    }

    /// Returns the number of used primary entries.
    pub(crate) fn used_entries(&self) -> usize {
        self.primary.iter().flatten().count()
    }

    /// Returns offset and length of a partition in bytes.
    pub(crate) fn range(&self, partition: &MbrPartition) -> (u64, u64) {
        (partition.first_lba * self.sector_size, partition.sectors * self.sector_size)
    }

    /// Adds a primary partition of `length` bytes after all others, or one that extends to the end of
    /// the disk. Returns its number; `None` if there is no room.
    pub(crate) fn add(&mut self, length: Option<u64>, type_code: u8, active: bool) -> Option<u32> {
        let align = ALIGNMENT / self.sector_size;
        let ends = self.primary.iter().flatten().map(|other| other.first_lba + other.sectors);
        let first_lba = ends.max().unwrap_or(1).next_multiple_of(align);
        let sectors = match length {
            Some(length) => length.div_ceil(self.sector_size),
            None => self.sectors.checked_sub(first_lba)?,
        };
        if sectors == 0 || first_lba + sectors > self.sectors {
            return None;
        }
        self.insert(MbrPartition { active, type_code, first_lba, sectors })
    }

    /// Adds a primary partition of at least `length` bytes at the end of the addressable part of the
    /// disk. Returns its number; `None` if there is no room.
    pub(crate) fn add_at_end(&mut self, length: u64, type_code: u8) -> Option<u32> {
        let align = ALIGNMENT / self.sector_size;
        let first_lba =
            self.sectors.checked_sub(length.div_ceil(self.sector_size))? / align * align;
        let sectors = self.sectors - first_lba;
        let is_free =
            self.primary.iter().flatten().all(|other| other.first_lba + other.sectors <= first_lba);
        if !is_free || first_lba == 0 {
            return None;
        }
        self.insert(MbrPartition { active: false, type_code, first_lba, sectors })
    }

    fn insert(&mut self, partition: MbrPartition) -> Option<u32> {
        let index = self.primary.iter().position(Option::is_none)?;
        self.primary[index] = Some(partition);
        u32::try_from(index + 1).ok()
    }

    /// Writes signature and primary entries. Boot code and logical partitions are kept.
    pub(crate) fn write(&self, device: &Device) -> Result<(), DeviceError> {
        let mut mbr =
            device.read(0, usize::try_from(self.sector_size).expect("a sector is small"))?;
        mbr[440..444].copy_from_slice(&self.signature.to_le_bytes());
        mbr[446..510].fill(0);
        for (partition, entry) in self.primary.iter().zip(mbr[446..510].chunks_exact_mut(16)) {
            let Some(partition) = partition else { continue };
            // The CHS address that means "use LBA".
            let no_chs = [0xfe, 0xff, 0xff];
            entry[0] = if partition.active { 0x80 } else { 0 };
            entry[1..4].copy_from_slice(&no_chs);
            entry[4] = partition.type_code;
            entry[5..8].copy_from_slice(&no_chs);
            let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
            entry[8..12].copy_from_slice(&number(partition.first_lba));
            entry[12..16].copy_from_slice(&number(partition.sectors));
        }
        mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
        device.write(0, &mbr)
    }
}

impl MbrPartition {
    fn is_extended(&self) -> bool {
        matches!(self.type_code, 0x05 | 0x0f | 0x85)
    }
}

/// Returns `None` if the sector is not a boot record; a FAT boot sector has other boot flags.
fn parse_entries(sector: &[u8]) -> Option<[Option<MbrPartition>; 4]> {
    if sector[510..512] != [0x55, 0xaa] {
        return None;
    }
    let mut entries = [None; 4];
    for (parsed, entry) in entries.iter_mut().zip(sector[446..510].chunks_exact(16)) {
        if !matches!(entry[0], 0 | 0x80) {
            return None;
        }
        let number = |at: usize| {
            u64::from(u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes")))
        };
        let partition = MbrPartition {
            active: entry[0] == 0x80,
            type_code: entry[4],
            first_lba: number(8),
            sectors: number(12),
        };
        *parsed = Some(partition).filter(|it| it.type_code != 0 && it.sectors > 0);
    }
    Some(entries)
}

/// Follows the chain of extended boot records; stops at a damaged one, and at one that points back.
fn read_logical(device: &Device, start: u64) -> Result<Vec<MbrPartition>, DeviceError> {
    let mut partitions = Vec::new();
    let mut at = start;
    while partitions.len() < MAX_LOGICAL_PARTITIONS {
        let Some(entries) = parse_entries(&device.read(at * device.sector(), 512)?) else { break };
        let Some(partition) = entries[0] else { break };
        partitions.push(MbrPartition { first_lba: at + partition.first_lba, ..partition });
        match entries[1] {
            Some(next) if next.is_extended() && start + next.first_lba > at => {
                at = start + next.first_lba;
            }
            Some(_) | None => break,
        }
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests;
