// SPDX-License-Identifier: Apache-2.0
//! Tables on files in place of disks.

use proptest::prelude::*;

use super::*;

fn disk(size: u64) -> (tempfile::NamedTempFile, Device) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    let device = Device::writable(file.path()).unwrap();
    (file, device)
}

#[test]
fn reads_back_the_written_table_and_keeps_boot_code() {
    let (_file, device) = disk(64 << 20);
    assert_eq!(Mbr::read(&device).unwrap(), None);
    device.write(0, b"boot code").unwrap();
    let mut table = Mbr::new(&device, 0x1234_5678);
    assert_eq!(table.add(Some(8 << 20), 0x82, false), Some(1));
    assert_eq!(table.add_at_end(4 << 20, 0x83), Some(2));
    table.write(&device).unwrap();
    assert_eq!(Mbr::read(&device).unwrap(), Some(table.clone()));
    assert_eq!(device.read(0, 9).unwrap(), b"boot code");
    assert_eq!(table.primary[1].unwrap().first_lba, 60 << 11);
    assert_eq!(table.add(Some(1 << 20), 0x83, true), None);
}

fn entry(type_code: u8, first: u32, sectors: u32) -> [u8; 16] {
    let mut entry = [0; 16];
    entry[4] = type_code;
    entry[8..12].copy_from_slice(&first.to_le_bytes());
    entry[12..16].copy_from_slice(&sectors.to_le_bytes());
    entry
}

fn boot_record(first: [u8; 16], second: [u8; 16]) -> Vec<u8> {
    [vec![0; 446], first.to_vec(), second.to_vec(), vec![0; 32], vec![0x55, 0xaa]].concat()
}

/// Numbers, first sectors and lengths of all partitions.
fn summary(table: &Mbr) -> Vec<(u32, u64, u64)> {
    table.partitions().map(|(number, it)| (number, it.first_lba, it.sectors)).collect()
}

#[test]
fn finds_logical_partitions() {
    let (_file, device) = disk(16 << 20);
    let extended = boot_record(entry(0x83, 2048, 100), entry(5, 4096, 9000));
    device.write(0, &extended).unwrap();
    device.write(4096 * 512, &boot_record(entry(0x83, 8, 50), entry(5, 100, 100))).unwrap();
    let last = |next| boot_record(entry(0x83, 8, 51), next);
    device.write(4196 * 512, &last([0; 16])).unwrap();
    let expected = [(1, 2048, 100), (5, 4104, 50), (6, 4204, 51)];
    assert_eq!(summary(&Mbr::read(&device).unwrap().unwrap()), expected);
    // A record that points back ends the chain.
    device.write(4196 * 512, &last(entry(5, 0, 100))).unwrap();
    assert_eq!(summary(&Mbr::read(&device).unwrap().unwrap()), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reads_back_any_table(
        sizes in proptest::collection::vec(1_u64..12, 1..4),
        at_end in proptest::option::of(1_u64..5),
    ) {
        let (_file, device) = disk(64 << 20);
        let mut table = Mbr::new(&device, 7);
        for size in sizes {
            table.add(Some(size << 20), 0x83, false).unwrap();
        }
        if let Some(size) = at_end {
            table.add_at_end(size << 20, 0x0c).unwrap();
        }
        table.write(&device).unwrap();
        prop_assert_eq!(Mbr::read(&device).unwrap(), Some(table));
    }

    #[test]
    fn never_panics(
        first in any::<[u8; 16]>(),
        second in any::<[u8; 16]>(),
        active in any::<bool>(),
    ) {
        let (_file, device) = disk(1 << 20);
        let (mut first, mut second) = (first, second);
        (first[0], second[0]) = (if active { 0x80 } else { 0 }, 0);
        device.write(0, &boot_record(first, second)).unwrap();
        if let Some(mut table) = Mbr::read(&device).unwrap() {
            let _ = (summary(&table), table.extended_range(), table.used_entries());
            let _ = table.add(None, 0x83, false);
            let _ = table.add_at_end(4096, 0x83);
            table.write(&device).unwrap();
        }
    }
}
