// SPDX-License-Identifier: Apache-2.0
//! Tables on files in place of disks, compared with what `gptman` reads and writes.

use std::fs::File;

use proptest::prelude::*;

use super::*;

fn disk(size: u64) -> (tempfile::NamedTempFile, Device) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    let device = Device::writable(file.path()).unwrap();
    (file, device)
}

#[test]
fn reads_back_the_written_table() {
    let (_file, device) = disk(64 << 20);
    let mut table = Gpt::new(&device, Uuid::from_u128(1));
    let esp = Uuid::from_u128(2);
    assert_eq!(table.add(Some(8 << 20), partition_type::EFI_SYSTEM, esp, "ESP"), Ok(1));
    let linux = partition_type::LINUX;
    assert_eq!(table.add_at_end(4 << 20, linux, Uuid::from_u128(3), "config-2"), Ok(2));
    assert_eq!(table.add(None, linux, Uuid::from_u128(4), "root"), Ok(3));
    table.write(&device).unwrap();
    let read = Gpt::read(&device).unwrap().unwrap();
    assert_eq!(read, table);
    assert_eq!(read.partitions[0].first_lba, 2048);
    assert_eq!(read.partitions[1].last_lba, (64 << 11) - 34);
    assert_eq!(read.partitions[2].first_lba, read.partitions[0].last_lba + 1);
    assert_eq!(read.partitions[2].last_lba + 1, read.partitions[1].first_lba);
    let full = table.clone().add(Some(4 << 20), linux, Uuid::nil(), "more");
    assert_eq!(full, Err(NoFreeSpace { requested: 4 << 20 }));
    // Without the primary header the backup is used.
    device.zero(512, 512).unwrap();
    assert_eq!(Gpt::read(&device).unwrap().unwrap().partitions, table.partitions);
    // Without the protective MBR the backup is ignored.
    device.zero(446, 64).unwrap();
    assert_eq!(Gpt::read(&device).unwrap(), None);
}

#[test]
fn moves_backup_to_the_end_of_a_larger_disk() {
    let (file, device) = disk(16 << 20);
    let mut table = Gpt::new(&device, Uuid::from_u128(1));
    table.add(None, partition_type::LINUX, Uuid::from_u128(2), "").unwrap();
    table.write(&device).unwrap();
    file.as_file().set_len(32 << 20).unwrap();
    let device = Device::writable(file.path()).unwrap();
    let mut table = Gpt::read(&device).unwrap().unwrap();
    assert!(table.has_misplaced_backup());
    let added = table.add_at_end(8 << 20, partition_type::LINUX, Uuid::from_u128(3), "");
    assert_eq!(added, Ok(2));
    table.write(&device).unwrap();
    let table = Gpt::read(&device).unwrap().unwrap();
    assert!(!table.has_misplaced_backup());
    assert_eq!(table.partitions.len(), 2);
}

#[test]
fn ignores_damaged_tables() {
    let (_file, device) = disk(16 << 20);
    assert_eq!(Gpt::read(&device).unwrap(), None);
    Gpt::new(&device, Uuid::from_u128(1)).write(&device).unwrap();
    device.write(1024, b"x").unwrap();
    device.write(device.size() - 100, b"x").unwrap();
    device.write((16 << 20) - 512 + 40, b"x").unwrap();
    assert_eq!(Gpt::read(&device).unwrap(), None);
}

/// Rewrites the primary header of a table with other fields and a valid checksum.
fn patch_header(device: &Device, fields: &[(usize, &[u8])]) {
    let mut header = device.read(512, 512).unwrap();
    for (at, bytes) in fields {
        header[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    header[16..20].fill(0);
    let checksum = crc32fast::hash(&header[..HEADER_LENGTH]);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
    device.write(512, &header).unwrap();
}

#[test]
fn keeps_entries_that_are_not_at_sector_2() {
    let (_file, device) = disk(16 << 20);
    let mut table = Gpt::new(&device, Uuid::from_u128(1));
    table.first_usable_lba = 2048;
    table.add(Some(1 << 20), partition_type::LINUX, Uuid::from_u128(2), "root").unwrap();
    table.write(&device).unwrap();
    // As `sgdisk --move-main-table=1024` leaves it, with a boot loader in the sectors before.
    let entries = device.read(1024, 128 * 128).unwrap();
    device.write(1024 * 512, &entries).unwrap();
    let loader = vec![0xeb; 128 * 128];
    device.write(1024, &loader).unwrap();
    patch_header(&device, &[(72, &1024_u64.to_le_bytes())]);
    let mut table = Gpt::read(&device).unwrap().unwrap();
    table.add_at_end(1 << 20, partition_type::LINUX, Uuid::from_u128(3), "config-2").unwrap();
    table.write(&device).unwrap();
    assert_eq!(Gpt::read(&device).unwrap().unwrap(), table);
    assert!(device.read(1024, 128 * 128).unwrap() == loader, "the boot loader is intact");
}

#[test]
fn reads_and_writes_entries_of_256_bytes() {
    let (_file, device) = disk(16 << 20);
    let mut table = Gpt::new(&device, Uuid::from_u128(1));
    (table.entry_count, table.entry_size) = (64, 256);
    for number in 2..4 {
        let guid = Uuid::from_u128(number);
        table.add(Some(1 << 20), partition_type::LINUX, guid, "root").unwrap();
    }
    table.write(&device).unwrap();
    assert_eq!(Gpt::read(&device).unwrap(), Some(table));
}

/// As in ISO hybrid images: one partition starts at sector 0 and overlaps another one.
#[test]
fn finds_free_space_beside_overlapping_partitions() {
    let (_file, device) = disk(16 << 20);
    let mut table = Gpt::new(&device, Uuid::from_u128(1));
    let linux = partition_type::LINUX;
    table.insert(0, 8191, linux, Uuid::from_u128(2), "iso").unwrap();
    table.insert(3000, 3500, linux, Uuid::from_u128(2), "efi").unwrap();
    table.write(&device).unwrap();
    let mut table = Gpt::read(&device).unwrap().unwrap();
    assert_eq!(table.add(Some(1 << 20), linux, Uuid::from_u128(3), "data"), Ok(3));
    assert_eq!(table.partitions[2].first_lba, 8192);
    table.write(&device).unwrap();
    assert_eq!(Gpt::read(&device).unwrap(), Some(table));
}

#[test]
fn keeps_hybrid_mbr_and_boot_code() {
    let (_file, device) = disk(16 << 20);
    let table = Gpt::new(&device, Uuid::from_u128(1));
    device.write(0, b"boot code").unwrap();
    table.write(&device).unwrap();
    assert_eq!(device.read(0, 9).unwrap(), b"boot code");
    device.write(446 + 16 + 4, &[0x83]).unwrap();
    let hybrid = device.read(0, 512).unwrap();
    table.write(&device).unwrap();
    assert_eq!(device.read(0, 512).unwrap(), hybrid);
}

/// Partitions as `gptman` reads them.
fn partitions_by_gptman(file: &mut File) -> Vec<GptPartition> {
    let table = gptman::GPT::read_from(file, 512).unwrap();
    let used = table.iter().filter(|(_, entry)| entry.is_used());
    used.map(|(number, entry)| GptPartition {
        number,
        type_guid: Uuid::from_bytes_le(entry.partition_type_guid),
        guid: Uuid::from_bytes_le(entry.unique_partition_guid),
        first_lba: entry.starting_lba,
        last_lba: entry.ending_lba,
        attributes: entry.attribute_bits,
        name: entry.partition_name.as_str().to_owned(),
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_gptman(
        sizes in proptest::collection::vec(1_u64..9, 0..6),
        at_end in proptest::option::of(1_u64..5),
        grown in any::<bool>(),
        name in "[a-zA-Zäß€ -]{0,40}",
    ) {
        let (mut file, device) = disk(64 << 20);
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        for (size, number) in sizes.iter().zip(2_u128..) {
            let guid = Uuid::from_u128(number);
            table.add(Some(size << 20), partition_type::LINUX, guid, &name).unwrap();
        }
        table.write(&device).unwrap();
        let device = if grown {
            file.as_file().set_len(96 << 20).unwrap();
            Device::writable(file.path()).unwrap()
        } else {
            device
        };
        let mut table = Gpt::read(&device).unwrap().unwrap();
        if let Some(size) = at_end {
            let guid = Uuid::from_u128(100);
            table.add_at_end(size << 20, partition_type::LINUX, guid, "config-2").unwrap();
        }
        table.write(&device).unwrap();
        let ours = Gpt::read(&device).unwrap().unwrap();
        prop_assert_eq!(&partitions_by_gptman(file.as_file_mut()), &ours.partitions);
        // The backup alone is complete, too.
        device.zero(512, 512).unwrap();
        prop_assert_eq!(&partitions_by_gptman(file.as_file_mut()), &ours.partitions);
        // What gptman writes is read here.
        let mut theirs = gptman::GPT::read_from(file.as_file_mut(), 512).unwrap();
        theirs.write_into(file.as_file_mut()).unwrap();
        prop_assert_eq!(Gpt::read(&device).unwrap().unwrap(), ours);
    }

    /// Headers with valid checksums, as a malicious image can have them.
    #[test]
    fn never_panics(
        fields in proptest::collection::vec((0_usize..5, any::<u64>(), any::<bool>()), 0..4),
        entry in proptest::collection::vec(any::<u8>(), 128),
    ) {
        let (_file, device) = disk(8 << 20);
        let table = Gpt::new(&device, Uuid::from_u128(1));
        table.write(&device).unwrap();
        device.write(1024, &entry).unwrap();
        let checksum = crc32fast::hash(&device.read(1024, 128 * 128).unwrap());
        patch_header(&device, &[(88, &checksum.to_le_bytes())]);
        for (field, value, is_small) in fields {
            let offset = [32, 40, 48, 72, 80][field];
            let value = if is_small { value % 20_000 } else { value };
            patch_header(&device, &[(offset, &value.to_le_bytes())]);
        }
        if let Some(mut table) = Gpt::read(&device).unwrap() {
            let ranges: Vec<_> = table.partitions.iter().map(|it| table.range(it)).collect();
            drop(ranges);
            let _ = table.usable_range();
            let linux = partition_type::LINUX;
            let _ = table.add(None, linux, Uuid::from_u128(7), "a");
            let _ = table.add_at_end(1 << 20, linux, Uuid::from_u128(8), "b");
            table.write(&device).unwrap();
        }
    }
}
