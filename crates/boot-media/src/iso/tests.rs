// SPDX-License-Identifier: Apache-2.0
//! Reads images with a small reader, through both trees.

use super::*;
use expect_test::expect;
use proptest::prelude::*;

type IsoFiles = Vec<(String, u64, Vec<u8>)>;

fn written(content: &Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, content.length());
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Returns the files below a directory record, with their first sectors.
fn walk(image: &[u8], path: &str, record: &[u8], joliet: bool, found: &mut IsoFiles) {
    let start = u32_at(record, 2) * 2048;
    let folder = &image[start..start + u32_at(record, 10)];
    for sector in folder.chunks_exact(2048) {
        let mut at = 0;
        while at < sector.len() && sector[at] != 0 {
            let child = &sector[at..at + usize::from(sector[at])];
            at += child.len();
            let identifier = &child[33..33 + usize::from(child[32])];
            if identifier == [0] || identifier == [1] {
                continue;
            }
            let name = if joliet {
                let units = identifier.chunks_exact(2).map(|p| u16::from_be_bytes([p[0], p[1]]));
                String::from_utf16(&units.collect::<Vec<_>>()).unwrap()
            } else {
                rock_ridge_name(&child[(33 + identifier.len()).next_multiple_of(2)..])
            };
            let path = format!("{path}/{name}");
            if child[25] & 2 != 0 {
                walk(image, &path, child, joliet, found);
            } else {
                let (sector, size) = (u32_at(child, 2), u32_at(child, 10));
                let bytes = image[sector * 2048..sector * 2048 + size].to_vec();
                found.push((path, sector as u64, bytes));
            }
        }
    }
}

fn rock_ridge_name(mut entries: &[u8]) -> String {
    while entries.len() > 4 {
        let (entry, rest) = entries.split_at(usize::from(entries[2]));
        if entry.starts_with(b"NM") {
            return String::from_utf8(entry[5..].to_vec()).unwrap();
        }
        entries = rest;
    }
    panic!("no name");
}

/// Returns all files of the primary tree and of the Joliet tree.
fn both_trees(image: &[u8]) -> [IsoFiles; 2] {
    let descriptors: Vec<&[u8]> = image[16 * 2048..].chunks_exact(2048).take(4).collect();
    [1, 2].map(|kind| {
        let descriptor = descriptors.iter().find(|sector| sector[0] == kind).unwrap();
        assert_eq!(u32_at(descriptor, 80) * 2048, image.len());
        let mut found = IsoFiles::new();
        walk(image, "", &descriptor[156..190], kind == 2, &mut found);
        found.sort();
        found
    })
}

#[test]
fn both_trees_contain_the_same_files() {
    let mut files = FileTree::new();
    for (path, text) in [
        ("openstack/latest/meta_data.json", "{}"),
        ("openstack/2012-08-10/meta_data.json", "{\"a\":1}"),
        ("etc/ironic-python-agent.d/a-b", "1"),
        ("etc/ironic-python-agent.d/a+b", "2"),
        ("etc/ironic-python-agent.d/a b", "3"),
        ("Ein recht langer Name, l\u{e4}nger als ISO 9660 will.conf", "4"),
        ("empty", ""),
    ] {
        files.insert(path, Content::from(text.as_bytes().to_vec())).unwrap();
    }
    let image = written(&IsoImage::new("config-2", files).layout().unwrap());
    let [rock_ridge, joliet] = both_trees(&image);
    assert_eq!(rock_ridge, joliet);
    let mut shown = String::new();
    for (path, sector, bytes) in rock_ridge {
        shown += &format!("{sector} {path} {:?}\n", String::from_utf8(bytes).unwrap());
    }
    expect![[r#"
        40 /Ein recht langer Name, länger als ISO 9660 will.conf "4"
        41 /empty ""
        39 /etc/ironic-python-agent.d/a b "3"
        38 /etc/ironic-python-agent.d/a+b "2"
        37 /etc/ironic-python-agent.d/a-b "1"
        36 /openstack/2012-08-10/meta_data.json "{\"a\":1}"
        35 /openstack/latest/meta_data.json "{}"
    "#]]
    .assert_eq(&shown);
}

#[test]
fn boot_catalogue_refers_to_the_partition() {
    for (size, count) in [(10 * 2048, 40_u16), (40 << 20, 0)] {
        let mut esp = Content::new();
        esp.push(ContentSegment::Bytes(bytes::Bytes::from_static(b"ESP!")));
        esp.push(ContentSegment::Zeros(size - 4));
        let image =
            written(&IsoImage::new("BOOT", FileTree::new()).bootable(esp).layout().unwrap());
        assert_eq!(&image[17 * 2048 + 7..17 * 2048 + 30], b"EL TORITO SPECIFICATION");
        let catalogue = u32_at(&image, 17 * 2048 + 71) * 2048;
        let entry = &image[catalogue + 32..catalogue + 64];
        assert_eq!(
            u16::from_le_bytes([entry[6], entry[7]]),
            count,
            "0 is: to the end of the medium"
        );
        let start = u32_at(entry, 8) * 2048;
        assert!(image[start..].starts_with(b"ESP!"));
        assert_eq!(start as u64 + size, image.len() as u64, "the partition is last");
        assert_eq!(u32_at(&image, 454) * 512, start, "the partition table agrees");
        assert_eq!(u32_at(&image, 458) as u64 * 512, size);
    }
}

#[test]
fn rejects_invalid_labels_and_large_files() {
    let label =
        |label: &str| IsoImage::new(label, FileTree::new()).layout().map(|_| ()).unwrap_err();
    assert_eq!(label(""), IsoError::Label { label: String::new() });
    assert_eq!(label("a\u{e4}"), IsoError::Label { label: "a\u{e4}".to_owned() });
    let nameless = IsoImage::new("X", FileTree::new()).published_by("").layout().unwrap_err();
    assert_eq!(nameless, IsoError::Publisher { publisher: String::new() });
    let mut huge = Content::new();
    huge.push(ContentSegment::Zeros(1 << 32));
    let error = IsoImage::new("X", FileTree::new()).bootable(huge).layout().unwrap_err();
    assert_eq!(error, IsoError::FileTooLarge { size: 1 << 32 });
    let mut files = FileTree::new();
    files.insert(ESP_PATH, Content::new()).unwrap();
    let error = IsoImage::new("X", files).bootable(Content::new()).layout().unwrap_err();
    assert!(matches!(error, IsoError::Path(MediaPathError::AlreadyExists { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn arbitrary_files_are_read_back_and_never_overlap(
        sizes in prop::collection::btree_map("([a-z]{1,2}/){0,6}[a-z+.A-Z]{0,40}[a-z]", 0_usize..5000, 0..80),
        boot in any::<bool>(),
    ) {
        let mut files = FileTree::new();
        let mut expected = Vec::new();
        for (number, (path, size)) in sizes.into_iter().enumerate() {
            let bytes = vec![number as u8 + 1; size];
            if files.insert(&path, Content::from(bytes.clone())).is_ok() {
                expected.push((format!("/{path}"), bytes));
            }
        }
        let mut iso = IsoImage::new("PROPERTY", files);
        if boot {
            let esp = vec![0xEE; 7000];
            expected.push((format!("/{ESP_PATH}"), esp.clone()));
            iso = iso.bootable(Content::from(esp));
        }
        expected.sort();
        if let Ok(image) = iso.layout() {
            let [rock_ridge, joliet] = both_trees(&written(&image));
            prop_assert_eq!(&rock_ridge, &joliet);
            let mut places: Vec<(u64, u64)> = rock_ridge
                .iter()
                .map(|(_, sector, bytes)| (*sector, (bytes.len() as u64).div_ceil(2048)))
                .collect();
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            let found: Vec<_> = rock_ridge.into_iter().map(|(path, _, bytes)| (path, bytes)).collect();
            prop_assert_eq!(found, expected);
        } else {
            prop_assert!(boot, "only the partition's own path can be taken");
        }
    }
}
