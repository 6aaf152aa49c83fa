// SPDX-License-Identifier: Apache-2.0
//! MBR partition tables: the four primary partitions, and the logical ones to look at.

use crate::device::{Device, DeviceError};

const ALIGN: u64 = 1 << 20;
/// The first sector that an MBR cannot name.
const LIMIT: u64 = 1 << 32;

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mbr {
    /// The disk's identifier.
    pub(crate) signature: u32,
    /// The primary partitions by place, from 0; extended ones are among them.
    pub(crate) primary: [Option<Partition>; 4],
    /// The logical partitions, the first of which has number 5.
    pub(crate) logical: Vec<Partition>,
    sector: u64,
    sectors: u64,
}

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Whether firmware boots from it.
    pub(crate) active: bool,
    /// What it is for.
    pub(crate) kind: u8,
    /// Its first sector.
    pub(crate) first: u64,
    /// How many it has.
    pub(crate) sectors: u64,
}

impl Mbr {
    /// An empty table.
    pub(crate) fn new(device: &Device, signature: u32) -> Self {
        let sectors = (device.size() / device.sector()).min(LIMIT);
        Self {
            signature,
            primary: [None; 4],
            logical: Vec::new(),
            sector: device.sector(),
            sectors,
        }
    }

    /// The table of a disk; none if there is none, or only the one that protects a GPT.
    pub(crate) fn read(device: &Device) -> Result<Option<Self>, DeviceError> {
        let mbr = device.read(0, 512)?;
        let entries = parse_entries(&mbr);
        let Some(primary) = entries else { return Ok(None) };
        if primary.iter().flatten().any(|partition| partition.kind == 0xee)
            || primary.iter().all(Option::is_none)
        {
            return Ok(None);
        }
        let signature = u32::from_le_bytes([mbr[440], mbr[441], mbr[442], mbr[443]]);
        let mut table = Self { signature, primary, ..Self::new(device, signature) };
        let extended = primary.iter().flatten().find(|partition| partition.is_extended());
        if let Some(extended) = extended {
            table.logical = logical(device, extended.first)?;
        }
        Ok(Some(table))
    }

    /// All partitions with their numbers.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (u32, &Partition)> {
        let primary = (1..).zip(&self.primary).filter_map(|(n, it)| Some((n, it.as_ref()?)));
        primary.filter(|(_, it)| !it.is_extended()).chain((5..).zip(&self.logical))
    }

    /// Where the extended partition is, if there is one, in bytes: its beginning and its length.
    pub(crate) fn extended(&self) -> Option<(u64, u64)> {
        let extended = self.primary.iter().flatten().find(|partition| partition.is_extended());
        extended.map(|partition| self.range(partition))
    }

    /// How many primary places are taken.
    pub(crate) fn taken(&self) -> usize {
        self.primary.iter().flatten().count()
    }

    /// Where a partition is, in bytes: its beginning and its length.
    pub(crate) fn range(&self, partition: &Partition) -> (u64, u64) {
        (partition.first * self.sector, partition.sectors * self.sector)
    }

    /// Adds a primary partition of `length` bytes after all others, or up to the end. Answers its
    /// number; none if there is no room.
    pub(crate) fn add(&mut self, length: Option<u64>, kind: u8, active: bool) -> Option<u32> {
        let align = ALIGN / self.sector;
        let ends = self.primary.iter().flatten().map(|other| other.first + other.sectors);
        let first = ends.max().unwrap_or(1).next_multiple_of(align);
        let sectors = match length {
            Some(length) => length.div_ceil(self.sector),
            None => self.sectors.checked_sub(first)?,
        };
        if sectors == 0 || first + sectors > self.sectors {
            return None;
        }
        self.put(Partition { active, kind, first, sectors })
    }

    /// Adds a primary partition of `length` bytes at the end of the disk, or of what an MBR can
    /// name of it.
    pub(crate) fn add_at_end(&mut self, length: u64, kind: u8) -> Option<u32> {
        let align = ALIGN / self.sector;
        let first = self.sectors.checked_sub(length.div_ceil(self.sector))? / align * align;
        let sectors = self.sectors - first;
        let free = self.primary.iter().flatten().all(|other| other.first + other.sectors <= first);
        if !free || first == 0 {
            return None;
        }
        self.put(Partition { active: false, kind, first, sectors })
    }

    fn put(&mut self, partition: Partition) -> Option<u32> {
        let place = self.primary.iter().position(Option::is_none)?;
        self.primary[place] = Some(partition);
        u32::try_from(place + 1).ok()
    }

    /// Writes the primary partitions; boot code and logical partitions stay as they are.
    pub(crate) fn write(&self, device: &Device) -> Result<(), DeviceError> {
        let mut mbr = device.read(0, usize::try_from(self.sector).expect("a sector is small"))?;
        mbr[440..444].copy_from_slice(&self.signature.to_le_bytes());
        mbr[446..510].fill(0);
        for (partition, entry) in self.primary.iter().zip(mbr[446..510].chunks_exact_mut(16)) {
            let Some(partition) = partition else { continue };
            let place = [0xfe, 0xff, 0xff];
            entry[0] = if partition.active { 0x80 } else { 0 };
            entry[1..4].copy_from_slice(&place);
            entry[4] = partition.kind;
            entry[5..8].copy_from_slice(&place);
            let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
            entry[8..12].copy_from_slice(&number(partition.first));
            entry[12..16].copy_from_slice(&number(partition.sectors));
        }
        mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
        device.write(0, &mbr)
    }
}

impl Partition {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
}

fn parse_entries(sector: &[u8]) -> Option<[Option<Partition>; 4]> {
    if sector[510..512] != [0x55, 0xaa] {
        return None;
    }
    let mut found = [None; 4];
    for (place, entry) in found.iter_mut().zip(sector[446..510].chunks_exact(16)) {
        if !matches!(entry[0], 0 | 0x80) {
            return None;
        }
        let number = |at: usize| {
            u64::from(u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes")))
        };
        let partition = Partition {
            active: entry[0] == 0x80,
            kind: entry[4],
            first: number(8),
            sectors: number(12),
        };
        *place = Some(partition).filter(|it| it.kind != 0 && it.sectors > 0);
    }
    Some(found)
}

/// Follows the chain of logical partitions, which may be damaged or endless.
fn logical(device: &Device, start: u64) -> Result<Vec<Partition>, DeviceError> {
    let mut found = Vec::new();
    let mut at = start;
    while found.len() < 64 {
        let Some(entries) = parse_entries(&device.read(at * device.sector(), 512)?) else { break };
        let Some(partition) = entries[0] else { break };
        found.push(Partition { first: at + partition.first, ..partition });
        match entries[1] {
            Some(next) if next.is_extended() && start + next.first > at => at = start + next.first,
            Some(_) | None => break,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_come_back_and_boot_code_stays() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 20).unwrap();
        let device = Device::writable(file.path()).unwrap();
        assert_eq!(Mbr::read(&device).unwrap(), None);
        device.write(0, b"boot code").unwrap();
        let mut table = Mbr::new(&device, 0x1234_5678);
        assert_eq!(table.add(Some(8 << 20), 0x82, false), Some(1));
        assert_eq!(table.add_at_end(4 << 20, 0x83), Some(2));
        table.write(&device).unwrap();
        assert_eq!(Mbr::read(&device).unwrap(), Some(table.clone()));
        assert_eq!(device.read(0, 9).unwrap(), b"boot code");
        assert_eq!(table.primary[1].unwrap().first, 60 << 11);
        assert_eq!(table.add(Some(1 << 20), 0x83, true), None);
    }

    #[test]
    fn logical_partitions_are_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16 << 20).unwrap();
        let device = Device::writable(file.path()).unwrap();
        let entry = |kind: u8, first: u32, sectors: u32| {
            let mut entry = [0; 16];
            entry[4] = kind;
            entry[8..12].copy_from_slice(&first.to_le_bytes());
            entry[12..16].copy_from_slice(&sectors.to_le_bytes());
            entry
        };
        let sector = |first: [u8; 16], second: [u8; 16]| {
            [vec![0; 446], first.to_vec(), second.to_vec(), vec![0; 32], vec![0x55, 0xaa]].concat()
        };
        device.write(0, &sector(entry(0x83, 2048, 100), entry(5, 4096, 9000))).unwrap();
        device.write(4096 * 512, &sector(entry(0x83, 8, 50), entry(5, 100, 100))).unwrap();
        // The chain ends where it would go back.
        device.write(4196 * 512, &sector(entry(0x83, 8, 51), entry(5, 0, 100))).unwrap();
        let table = Mbr::read(&device).unwrap().unwrap();
        let found: Vec<_> = table.partitions().map(|(n, it)| (n, it.first, it.sectors)).collect();
        assert_eq!(found, [(1, 2048, 100), (5, 4104, 50), (6, 4204, 51)]);
    }
}
