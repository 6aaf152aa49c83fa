// SPDX-License-Identifier: Apache-2.0
//! GUID partition tables: reads, repairs, changes and writes both copies.
//!
//! Written here rather than taken from a crate; `docs/decisions/0013-own-partition-tables.md` has the
//! reasons. The tests compare the result with that of `gptman`.

use uuid::Uuid;

use crate::device::{Device, DeviceError};

/// Partition type GUIDs.
pub(crate) mod partition_type {
    use uuid::{Uuid, uuid};

    pub(crate) const EFI_SYSTEM: Uuid = uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
    pub(crate) const BIOS_BOOT: Uuid = uuid!("21686148-6449-6e6f-744e-656564454649");
    pub(crate) const LINUX: Uuid = uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4");
    pub(crate) const SWAP: Uuid = uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f");
    pub(crate) const RAID: Uuid = uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e");
}

const SIGNATURE: &[u8; 8] = b"EFI PART";
const HEADER_LENGTH: usize = 92;
/// New partitions start at multiples of this many bytes.
const ALIGNMENT: u64 = 1 << 20;
/// A table with more entries is considered damaged. Usual are 128.
const MAX_ENTRIES: u32 = 1024;
/// The usual position of the primary entry array: right after the header.
const USUAL_ENTRIES_LBA: u64 = 2;

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpt {
    /// Disk GUID.
    pub(crate) disk_guid: Uuid,
    /// Used entries, ordered by number.
    pub(crate) partitions: Vec<GptPartition>,
    sector_size: u64,
    /// Size of the disk, not of the table, in sectors.
    sectors: u64,
    entry_count: u32,
    entry_size: u32,
    /// First sector of the primary entry array. Images for some ARM boards have the boot loader at
    /// sector 2 and the entries after it (`sgdisk --move-main-table`).
    entries_lba: u64,
    first_usable_lba: u64,
    /// Position of the other copy according to the header.
    alternate_lba: u64,
}

/// An entry of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GptPartition {
    /// Counted from 1.
    pub(crate) number: u32,
    pub(crate) type_guid: Uuid,
    pub(crate) guid: Uuid,
    pub(crate) first_lba: u64,
    /// Inclusive.
    pub(crate) last_lba: u64,
    pub(crate) attributes: u64,
    pub(crate) name: String,
}

/// The table has no free range or no free entry for a new partition.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the partition table has no room for a partition of {requested} bytes")]
pub struct NoFreeSpace {
    /// Requested size in bytes.
    pub requested: u64,
}

impl Gpt {
    /// Creates an empty table for a disk.
    pub(crate) fn new(device: &Device, disk_guid: Uuid) -> Self {
        let (sector_size, entry_count, entry_size) = (device.sector(), 128, 128);
        let sectors = device.size() / sector_size;
        let entry_sectors = u64::from(entry_count * entry_size).div_ceil(sector_size);
        Self {
            disk_guid,
            partitions: Vec::new(),
            sector_size,
            sectors,
            entry_count,
            entry_size,
            entries_lba: USUAL_ENTRIES_LBA,
            first_usable_lba: USUAL_ENTRIES_LBA + entry_sectors,
            alternate_lba: sectors.saturating_sub(1),
        }
    }

    /// Reads the table of a disk; `None` if it has none. The backup is used only if the first sector is
    /// a protective MBR: otherwise a backup at the end of the disk is left over from earlier use.
    pub(crate) fn read(device: &Device) -> Result<Option<Self>, DeviceError> {
        let sectors = device.size() / device.sector();
        if sectors < 6 {
            return Ok(None);
        }
        match Self::read_copy(device, 1)? {
            None if has_protective_mbr(device)? => Self::read_copy(device, sectors - 1),
            table => Ok(table),
        }
    }

    /// Reads the copy whose header is at `lba`; `None` if a checksum, a position or a size is wrong.
    fn read_copy(device: &Device, lba: u64) -> Result<Option<Self>, DeviceError> {
        let sector_size = device.sector();
        let sectors = device.size() / sector_size;
        let header = device.read(lba * sector_size, HEADER_LENGTH)?;
        let (u32_at, u64_at) = (|at| u32_in(&header, at), |at| u64_in(&header, at));
        if &header[..8] != SIGNATURE || u32_at(12) as usize != HEADER_LENGTH || u64_at(24) != lba {
            return Ok(None);
        }
        let mut without_checksum = header.clone();
        without_checksum[16..20].fill(0);
        let (first_usable_lba, entries_lba) = (u64_at(40), u64_at(72));
        let (entry_count, entry_size) = (u32_at(80), u32_at(84));
        let is_plausible = entry_count <= MAX_ENTRIES
            && (128..=1024).contains(&entry_size)
            && (USUAL_ENTRIES_LBA..sectors).contains(&entries_lba)
            && first_usable_lba < sectors
            && u64::from(entry_count * entry_size).div_ceil(sector_size) * 2 + 3 <= sectors;
        if crc32fast::hash(&without_checksum) != u32_at(16) || !is_plausible {
            return Ok(None);
        }
        let entries =
            device.read(entries_lba * sector_size, (entry_count * entry_size) as usize)?;
        if crc32fast::hash(&entries) != u32_at(88) {
            return Ok(None);
        }
        let numbered = entries.chunks_exact(entry_size as usize).zip(1_u32..);
        let partitions = numbered.filter_map(|(entry, number)| GptPartition::parse(entry, number));
        Ok(Some(Self {
            disk_guid: uuid_in(&header, 56),
            partitions: partitions.collect(),
            sector_size,
            sectors,
            entry_count,
            entry_size,
            // The backup header has only the position of its own entries.
            entries_lba: if lba == 1 { entries_lba } else { USUAL_ENTRIES_LBA },
            first_usable_lba,
            alternate_lba: u64_at(32),
        }))
    }

    /// Whether the backup is not at the end of the disk, because the image was made for a smaller disk.
    pub(crate) fn has_misplaced_backup(&self) -> bool {
        self.alternate_lba != self.sectors - 1
    }

    /// Returns offset and length of a partition in bytes.
    pub(crate) fn range(&self, partition: &GptPartition) -> (u64, u64) {
        let sectors = partition.last_lba.saturating_add(1).saturating_sub(partition.first_lba);
        (
            partition.first_lba.saturating_mul(self.sector_size),
            sectors.saturating_mul(self.sector_size),
        )
    }

    /// Adds a partition of `length` bytes in the first free range that is large enough, or one that
    /// fills the largest free range. Returns its number.
    pub(crate) fn add(
        &mut self,
        length: Option<u64>,
        type_guid: Uuid,
        guid: Uuid,
        name: &str,
    ) -> Result<u32, NoFreeSpace> {
        let requested = length.unwrap_or(ALIGNMENT);
        let sectors = requested.div_ceil(self.sector_size);
        let fits = |(first, last): &(u64, u64)| last + 1 - first >= sectors;
        let free = self.free_ranges();
        let range = match length {
            Some(_) => free.iter().find(|range| fits(range)),
            None => {
                free.iter().filter(|range| fits(range)).max_by_key(|(first, last)| last - first)
            }
        };
        let &(first, last) = range.ok_or(NoFreeSpace { requested })?;
        let last = if length.is_some() { first + sectors - 1 } else { last };
        self.insert(first, last, type_guid, guid, name).ok_or(NoFreeSpace { requested })
    }

    /// Adds a partition of at least `length` bytes that ends at the last usable sector. Returns its
    /// number.
    pub(crate) fn add_at_end(
        &mut self,
        length: u64,
        type_guid: Uuid,
        guid: Uuid,
        name: &str,
    ) -> Result<u32, NoFreeSpace> {
        let no_space = NoFreeSpace { requested: length };
        let &(free_from, last) =
            self.free_ranges().last().ok_or(NoFreeSpace { requested: length })?;
        let align = ALIGNMENT / self.sector_size;
        let first = (last + 1).saturating_sub(length.div_ceil(self.sector_size)) / align * align;
        if first < free_from || last != self.last_usable_lba() {
            return Err(no_space);
        }
        self.insert(first, last, type_guid, guid, name).ok_or(no_space)
    }

    fn insert(
        &mut self,
        first_lba: u64,
        last_lba: u64,
        type_guid: Uuid,
        guid: Uuid,
        name: &str,
    ) -> Option<u32> {
        let number = (1..=self.entry_count)
            .find(|number| self.partitions.iter().all(|other| other.number != *number))?;
        self.partitions.push(GptPartition {
            number,
            type_guid,
            guid,
            first_lba,
            last_lba,
            attributes: 0,
            name: name.to_owned(),
        });
        self.partitions.sort_by_key(|partition| partition.number);
        Some(number)
    }

    /// Returns the free ranges in order, each from an aligned first sector to its last sector.
    fn free_ranges(&self) -> Vec<(u64, u64)> {
        let align = ALIGNMENT / self.sector_size;
        let mut used: Vec<(u64, u64)> = self
            .partitions
            .iter()
            .map(|partition| (partition.first_lba, partition.last_lba))
            .collect();
        used.sort_unstable();
        used.push((self.last_usable_lba() + 1, u64::MAX));
        let mut free = Vec::new();
        let mut next = self.first_usable_lba;
        for (first, last) in used {
            match next.checked_next_multiple_of(align) {
                Some(aligned) if aligned < first => free.push((aligned, first - 1)),
                Some(_) | None => {}
            }
            next = next.max(last.saturating_add(1));
        }
        free
    }

    /// Returns start and end (exclusive) of the range for partitions in bytes.
    pub(crate) fn usable_range(&self) -> (u64, u64) {
        (
            self.first_usable_lba.saturating_mul(self.sector_size),
            (self.last_usable_lba() + 1) * self.sector_size,
        )
    }

    fn entry_sectors(&self) -> u64 {
        u64::from(self.entry_count * self.entry_size).div_ceil(self.sector_size)
    }

    fn last_usable_lba(&self) -> u64 {
        self.sectors.saturating_sub(2 + self.entry_sectors())
    }

    /// Writes the backup at the end of the disk, then the primary copy, then the protective MBR, so that
    /// an interruption leaves at least one valid copy.
    pub(crate) fn write(&self, device: &Device) -> Result<(), DeviceError> {
        let mut entries = vec![0; (self.entry_count * self.entry_size) as usize];
        for partition in &self.partitions {
            let at = ((partition.number - 1) * self.entry_size) as usize;
            partition.write(&mut entries[at..at + 128]);
        }
        let checksum = crc32fast::hash(&entries);
        let last = self.sectors - 1;
        let backup_entries_lba = last - self.entry_sectors();
        device.write(backup_entries_lba * self.sector_size, &entries)?;
        let backup = self.header(last, 1, backup_entries_lba, checksum);
        device.write(last * self.sector_size, &backup)?;
        device.write(self.entries_lba * self.sector_size, &entries)?;
        let primary = self.header(1, last, self.entries_lba, checksum);
        device.write(self.sector_size, &primary)?;
        self.write_protective_mbr(device)
    }

    /// Returns the sector with the header at `own_lba`.
    fn header(
        &self,
        own_lba: u64,
        alternate_lba: u64,
        entries_lba: u64,
        entries_checksum: u32,
    ) -> Vec<u8> {
        let mut header = vec![0; usize::try_from(self.sector_size).expect("a sector is small")];
        header[..8].copy_from_slice(SIGNATURE);
        header[8..12].copy_from_slice(&0x0001_0000_u32.to_le_bytes());
        header[12..16].copy_from_slice(&(HEADER_LENGTH as u32).to_le_bytes());
        let positions = [
            (24, own_lba),
            (32, alternate_lba),
            (40, self.first_usable_lba),
            (48, self.last_usable_lba()),
            (72, entries_lba),
        ];
        for (at, lba) in positions {
            header[at..at + 8].copy_from_slice(&lba.to_le_bytes());
        }
        header[56..72].copy_from_slice(&self.disk_guid.to_bytes_le());
        let numbers = [(80, self.entry_count), (84, self.entry_size), (88, entries_checksum)];
        for (at, number) in numbers {
            header[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32fast::hash(&header[..HEADER_LENGTH]);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Writes a protective MBR. Keeps the boot code, and a hybrid MBR, which some images boot from.
    fn write_protective_mbr(&self, device: &Device) -> Result<(), DeviceError> {
        let mut mbr =
            device.read(0, usize::try_from(self.sector_size).expect("a sector is small"))?;
        let mut entries = mbr[446..510].chunks_exact(16);
        let is_hybrid =
            mbr[510..512] == [0x55, 0xaa] && entries.any(|entry| entry[4] != 0 && entry[4] != 0xee);
        if is_hybrid {
            return Ok(());
        }
        let active = mbr[446] & 0x80;
        mbr[446..510].fill(0);
        let length = u32::try_from(self.sectors - 1).unwrap_or(u32::MAX);
        mbr[446..458].copy_from_slice(&[active, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
        mbr[458..462].copy_from_slice(&length.to_le_bytes());
        mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
        device.write(0, &mbr)
    }
}

impl GptPartition {
    /// Returns `None` if the entry is unused or ends before it starts.
    fn parse(entry: &[u8], number: u32) -> Option<Self> {
        let type_guid = uuid_in(entry, 0);
        let (first_lba, last_lba) = (u64_in(entry, 32), u64_in(entry, 40));
        if type_guid.is_nil() || last_lba < first_lba {
            return None;
        }
        let units = entry[56..128].chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
        let name = char::decode_utf16(units.take_while(|unit| *unit != 0))
            .map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        let (guid, attributes) = (uuid_in(entry, 16), u64_in(entry, 48));
        Some(Self { number, type_guid, guid, first_lba, last_lba, attributes, name })
    }

    fn write(&self, entry: &mut [u8]) {
        entry[..16].copy_from_slice(&self.type_guid.to_bytes_le());
        entry[16..32].copy_from_slice(&self.guid.to_bytes_le());
        let numbers = [(32, self.first_lba), (40, self.last_lba), (48, self.attributes)];
        for (at, number) in numbers {
            entry[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (unit, bytes) in self.name.encode_utf16().zip(entry[56..128].chunks_exact_mut(2)) {
            bytes.copy_from_slice(&unit.to_le_bytes());
        }
    }
}

/// Whether the first sector is a protective MBR (or a hybrid one with a protective entry).
fn has_protective_mbr(device: &Device) -> Result<bool, DeviceError> {
    let mbr = device.read(0, 512)?;
    let is_protective = mbr[446..510].chunks_exact(16).any(|entry| entry[4] == 0xee);
    Ok(mbr[510..512] == [0x55, 0xaa] && is_protective)
}

fn u32_in(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_in(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn uuid_in(bytes: &[u8], at: usize) -> Uuid {
    Uuid::from_bytes_le(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

#[cfg(test)]
mod tests;
