// SPDX-License-Identifier: Apache-2.0
//! GUID partition tables: read, mended, changed and written, with both copies.

use uuid::Uuid;

use crate::device::{Device, DeviceError};

/// What partitions are for.
pub(crate) mod kind {
    use uuid::{Uuid, uuid};

    pub(crate) const EFI_SYSTEM: Uuid = uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
    pub(crate) const BIOS_BOOT: Uuid = uuid!("21686148-6449-6e6f-744e-656564454649");
    pub(crate) const LINUX: Uuid = uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4");
    pub(crate) const SWAP: Uuid = uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f");
    pub(crate) const RAID: Uuid = uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e");
}

const SIGNATURE: &[u8; 8] = b"EFI PART";
const HEADER: usize = 92;
/// Partitions begin at multiples of this many bytes.
const ALIGN: u64 = 1 << 20;
/// More entries than anybody has; a table that says more is damaged.
const MOST_ENTRIES: u32 = 1024;

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gpt {
    /// The disk's identity.
    pub(crate) disk: Uuid,
    /// Its partitions, by number from 1.
    pub(crate) partitions: Vec<Partition>,
    sector: u64,
    /// Sectors of the disk now.
    sectors: u64,
    slots: u32,
    entry_size: u32,
    first_usable: u64,
    /// Where the other copy is said to be.
    alternate: u64,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    /// From 1.
    pub(crate) number: u32,
    /// What it is for.
    pub(crate) kind: Uuid,
    /// Its identity.
    pub(crate) guid: Uuid,
    /// Its first sector.
    pub(crate) first: u64,
    /// Its last sector.
    pub(crate) last: u64,
    /// Its flags.
    pub(crate) attributes: u64,
    /// Its name.
    pub(crate) name: String,
}

/// There is no room for another partition.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the partition table has no room for a partition of {wanted} bytes")]
pub struct NoRoom {
    /// How large it was to be.
    pub wanted: u64,
}

impl Gpt {
    /// An empty table for a disk.
    pub(crate) fn new(device: &Device, disk: Uuid) -> Self {
        let (sector, slots, entry_size) = (device.sector(), 128, 128);
        let sectors = device.size() / sector;
        let first_usable = 2 + u64::from(slots * entry_size).div_ceil(sector);
        let alternate = sectors.saturating_sub(1);
        let partitions = Vec::new();
        Self { disk, partitions, sector, sectors, slots, entry_size, first_usable, alternate }
    }

    /// The table of a disk; none if there is none. The second copy counts only if the first sector
    /// says that there is a GPT: what is left at the end of a disk that was given another table or an
    /// image without one is nobody's.
    pub(crate) fn read(device: &Device) -> Result<Option<Self>, DeviceError> {
        let sectors = device.size() / device.sector();
        if sectors < 6 {
            return Ok(None);
        }
        match Self::read_copy(device, 1)? {
            None if is_protected(device)? => Self::read_copy(device, sectors - 1),
            found => Ok(found),
        }
    }

    fn read_copy(device: &Device, at: u64) -> Result<Option<Self>, DeviceError> {
        let sector = device.sector();
        let sectors = device.size() / sector;
        let header = device.read(at * sector, HEADER)?;
        let (u32_at, u64_at) = (|at| u32_in(&header, at), |at| u64_in(&header, at));
        if &header[..8] != SIGNATURE || u32_at(12) as usize != HEADER || u64_at(24) != at {
            return Ok(None);
        }
        let mut unsigned = header.clone();
        unsigned[16..20].fill(0);
        let (slots, entry_size) = (u32_at(80), u32_at(84));
        let sane = slots <= MOST_ENTRIES && (128..=1024).contains(&entry_size);
        if crc32fast::hash(&unsigned) != u32_at(16) || !sane {
            return Ok(None);
        }
        let array =
            device.read(u64_at(72).saturating_mul(sector), (slots * entry_size) as usize)?;
        if crc32fast::hash(&array) != u32_at(88) {
            return Ok(None);
        }
        let entries = array.chunks_exact(entry_size as usize).zip(1_u32..);
        let partitions = entries.filter_map(|(entry, number)| Partition::parse(entry, number));
        Ok(Some(Self {
            disk: uuid_in(&header, 56),
            partitions: partitions.collect(),
            sector,
            sectors,
            slots,
            entry_size,
            first_usable: u64_at(40),
            alternate: u64_at(32),
        }))
    }

    /// Whether the second copy is not at the disk's end: so it is when the image was of a smaller
    /// disk.
    pub(crate) fn is_short(&self) -> bool {
        self.alternate != self.sectors - 1
    }

    /// Where a partition is, in bytes: its beginning and its length.
    pub(crate) fn range(&self, partition: &Partition) -> (u64, u64) {
        let sectors = (partition.last + 1).saturating_sub(partition.first);
        (partition.first.saturating_mul(self.sector), sectors.saturating_mul(self.sector))
    }

    /// Adds a partition of `length` bytes at the first place that is large enough, or of all of the
    /// largest free place. Answers its number.
    pub(crate) fn add(
        &mut self,
        length: Option<u64>,
        kind: Uuid,
        guid: Uuid,
        name: &str,
    ) -> Result<u32, NoRoom> {
        let wanted = length.unwrap_or(ALIGN);
        let sectors = wanted.div_ceil(self.sector);
        let fits = |(first, last): &(u64, u64)| last + 1 - first >= sectors;
        let free = self.free();
        let place = match length {
            Some(_) => free.iter().find(|place| fits(place)),
            None => {
                free.iter().filter(|place| fits(place)).max_by_key(|(first, last)| last - first)
            }
        };
        let &(first, last) = place.ok_or(NoRoom { wanted })?;
        let last = if length.is_some() { first + sectors - 1 } else { last };
        self.put(first, last, kind, guid, name).ok_or(NoRoom { wanted })
    }

    /// Adds a partition of `length` bytes at the very end of the disk. Answers its number.
    pub(crate) fn add_at_end(
        &mut self,
        length: u64,
        kind: Uuid,
        guid: Uuid,
        name: &str,
    ) -> Result<u32, NoRoom> {
        let no_room = NoRoom { wanted: length };
        let &(low, last) = self.free().last().ok_or(NoRoom { wanted: length })?;
        let align = ALIGN / self.sector;
        let first = (last + 1).saturating_sub(length.div_ceil(self.sector)) / align * align;
        // The end of the free place must be the end of the disk.
        if first < low || last != self.last_usable() {
            return Err(no_room);
        }
        self.put(first, last, kind, guid, name).ok_or(no_room)
    }

    fn put(&mut self, first: u64, last: u64, kind: Uuid, guid: Uuid, name: &str) -> Option<u32> {
        let number = (1..=self.slots)
            .find(|number| self.partitions.iter().all(|other| other.number != *number))?;
        let name = name.to_owned();
        self.partitions.push(Partition { number, kind, guid, first, last, attributes: 0, name });
        self.partitions.sort_by_key(|partition| partition.number);
        Some(number)
    }

    /// Free places, from their first sector (aligned) to their last, in order.
    fn free(&self) -> Vec<(u64, u64)> {
        let align = ALIGN / self.sector;
        let mut used: Vec<(u64, u64)> =
            self.partitions.iter().map(|partition| (partition.first, partition.last)).collect();
        used.sort_unstable();
        used.push((self.last_usable() + 1, u64::MAX));
        let mut places = Vec::new();
        let mut next = self.first_usable;
        for (first, last) in used {
            let aligned = next.next_multiple_of(align);
            if aligned < first {
                places.push((aligned, first - 1));
            }
            next = next.max(last.saturating_add(1));
        }
        places
    }

    /// Where partitions can be, in bytes: from there to before that.
    pub(crate) fn usable(&self) -> (u64, u64) {
        (self.first_usable.saturating_mul(self.sector), (self.last_usable() + 1) * self.sector)
    }

    fn array_sectors(&self) -> u64 {
        u64::from(self.slots * self.entry_size).div_ceil(self.sector)
    }

    fn last_usable(&self) -> u64 {
        self.sectors.saturating_sub(2 + self.array_sectors())
    }

    /// Writes both copies, and the MBR that protects them. The second copy goes to the disk's end.
    pub(crate) fn write(&self, device: &Device) -> Result<(), DeviceError> {
        let mut array = vec![0; (self.slots * self.entry_size) as usize];
        for partition in &self.partitions {
            let at = ((partition.number - 1) * self.entry_size) as usize;
            partition.write(&mut array[at..at + 128]);
        }
        let array_crc = crc32fast::hash(&array);
        let last = self.sectors - 1;
        let second_array = last - self.array_sectors();
        device.write(second_array * self.sector, &array)?;
        device.write(last * self.sector, &self.header(last, 1, second_array, array_crc))?;
        device.write(2 * self.sector, &array)?;
        device.write(self.sector, &self.header(1, last, 2, array_crc))?;
        self.write_protective(device)
    }

    fn header(&self, here: u64, other: u64, array: u64, array_crc: u32) -> Vec<u8> {
        let mut header = vec![0; usize::try_from(self.sector).expect("a sector is small")];
        header[..8].copy_from_slice(SIGNATURE);
        header[8..12].copy_from_slice(&0x0001_0000_u32.to_le_bytes());
        header[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
        let numbers = [(24, here), (32, other), (40, self.first_usable), (48, self.last_usable())];
        for (at, number) in numbers.into_iter().chain([(72, array)]) {
            header[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        header[56..72].copy_from_slice(&self.disk.to_bytes_le());
        let small = [(80, self.slots), (84, self.entry_size), (88, array_crc)];
        for (at, number) in small {
            header[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32fast::hash(&header[..HEADER]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// The MBR's boot code stays; so do hybrid entries, which some images boot by.
    fn write_protective(&self, device: &Device) -> Result<(), DeviceError> {
        let mut mbr = device.read(0, usize::try_from(self.sector).expect("a sector is small"))?;
        let entries = || mbr[446..510].chunks_exact(16);
        let hybrid = mbr[510..512] == [0x55, 0xaa]
            && entries().any(|entry| entry[4] != 0 && entry[4] != 0xee);
        if hybrid {
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

impl Partition {
    fn parse(entry: &[u8], number: u32) -> Option<Self> {
        let kind = uuid_in(entry, 0);
        let (first, last) = (u64_in(entry, 32), u64_in(entry, 40));
        if kind.is_nil() || last < first {
            return None;
        }
        let letters =
            entry[56..128].chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
        let letters = letters.take_while(|letter| *letter != 0);
        let name = char::decode_utf16(letters)
            .map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        let attributes = u64_in(entry, 48);
        Some(Self { number, kind, guid: uuid_in(entry, 16), first, last, attributes, name })
    }

    fn write(&self, entry: &mut [u8]) {
        entry[..16].copy_from_slice(&self.kind.to_bytes_le());
        entry[16..32].copy_from_slice(&self.guid.to_bytes_le());
        let numbers = [(32, self.first), (40, self.last), (48, self.attributes)];
        for (at, number) in numbers {
            entry[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (letter, place) in self.name.encode_utf16().zip(entry[56..128].chunks_exact_mut(2)) {
            place.copy_from_slice(&letter.to_le_bytes());
        }
    }
}

/// Whether the first sector is the MBR that protects a GPT.
fn is_protected(device: &Device) -> Result<bool, DeviceError> {
    let mbr = device.read(0, 512)?;
    let protective = mbr[446..510].chunks_exact(16).any(|entry| entry[4] == 0xee);
    Ok(mbr[510..512] == [0x55, 0xaa] && protective)
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
mod tests {
    use super::*;

    fn disk(size: u64) -> (tempfile::NamedTempFile, Device) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        let device = Device::writable(file.path()).unwrap();
        (file, device)
    }

    #[test]
    fn a_table_comes_back_as_it_was_written() {
        let (_file, device) = disk(64 << 20);
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        let esp = Uuid::from_u128(2);
        assert_eq!(table.add(Some(8 << 20), kind::EFI_SYSTEM, esp, "ESP"), Ok(1));
        assert_eq!(table.add_at_end(4 << 20, kind::LINUX, Uuid::from_u128(3), "config-2"), Ok(2));
        assert_eq!(table.add(None, kind::LINUX, Uuid::from_u128(4), "root"), Ok(3));
        table.write(&device).unwrap();
        let read = Gpt::read(&device).unwrap().unwrap();
        assert_eq!(read, table);
        assert_eq!(read.partitions[0].first, 2048);
        assert_eq!(read.partitions[1].last, (64 << 11) - 34);
        assert_eq!(read.partitions[2].first, read.partitions[0].last + 1);
        assert_eq!(read.partitions[2].last + 1, read.partitions[1].first);
        let full = table.clone().add(Some(4 << 20), kind::LINUX, Uuid::nil(), "more");
        assert_eq!(full, Err(NoRoom { wanted: 4 << 20 }));
        // Without the first copy there is the second.
        device.zero(512, 512).unwrap();
        assert_eq!(Gpt::read(&device).unwrap().unwrap().partitions, table.partitions);
        // Without the protective MBR that is a leftover.
        device.zero(446, 64).unwrap();
        assert_eq!(Gpt::read(&device).unwrap(), None);
    }

    #[test]
    fn the_table_of_a_smaller_disk_is_short_until_written() {
        let (file, device) = disk(16 << 20);
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        table.add(None, kind::LINUX, Uuid::from_u128(2), "").unwrap();
        table.write(&device).unwrap();
        file.as_file().set_len(32 << 20).unwrap();
        let device = Device::writable(file.path()).unwrap();
        let mut table = Gpt::read(&device).unwrap().unwrap();
        assert!(table.is_short());
        assert_eq!(table.add_at_end(8 << 20, kind::LINUX, Uuid::from_u128(3), ""), Ok(2));
        table.write(&device).unwrap();
        let table = Gpt::read(&device).unwrap().unwrap();
        assert!(!table.is_short());
        assert_eq!(table.partitions.len(), 2);
    }

    #[test]
    fn damage_is_no_table() {
        let (_file, device) = disk(16 << 20);
        assert_eq!(Gpt::read(&device).unwrap(), None);
        Gpt::new(&device, Uuid::from_u128(1)).write(&device).unwrap();
        device.write(1024, b"x").unwrap();
        device.write(device.size() - 100, b"x").unwrap();
        device.write((16 << 20) - 512 + 40, b"x").unwrap();
        assert_eq!(Gpt::read(&device).unwrap(), None);
    }
}
