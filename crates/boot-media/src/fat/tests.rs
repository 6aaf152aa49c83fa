// SPDX-License-Identifier: Apache-2.0
//! Reads volumes with a small reader, and tests the sizes at which the type of FAT changes.

use super::geometry::FatKind;
use super::*;
use expect_test::expect;
use proptest::prelude::*;

/// The bytes of a volume.
struct FatVolumeReader {
    bytes: Vec<u8>,
    cluster_size: usize,
    table: usize,
    root: usize,
    data: usize,
    clusters: usize,
    kind: FatKind,
}

impl FatVolumeReader {
    fn new(volume: &Content) -> FatVolumeReader {
        let mut bytes = Vec::new();
        volume.write_to(&mut bytes).unwrap();
        let u16_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let u32_at = |at: usize| u16_at(at) + (u16_at(at + 2) << 16);
        let cluster_size = usize::from(bytes[13]) * 512;
        let table = u16_at(14) * 512;
        let table_size = if u16_at(22) == 0 { u32_at(36) } else { u16_at(22) } * 512;
        let root = table + 2 * table_size;
        let data = root + u16_at(17) * 32;
        let total = if u16_at(19) == 0 { u32_at(32) } else { u16_at(19) } * 512;
        assert_eq!(total, bytes.len(), "the size in the boot sector is the size written");
        assert_eq!(bytes[table..table + table_size], bytes[table + table_size..root]);
        let clusters = (total - data) / cluster_size;
        let kind = match clusters {
            0..4085 => FatKind::Fat12,
            4085..65_525 => FatKind::Fat16,
            _ => FatKind::Fat32,
        };
        FatVolumeReader { bytes, cluster_size, table, root, data, clusters, kind }
    }

    fn next(&self, cluster: usize) -> usize {
        let at = |offset: usize| usize::from(self.bytes[self.table + offset]);
        match self.kind {
            FatKind::Fat12 => {
                let both = at(cluster * 3 / 2) | at(cluster * 3 / 2 + 1) << 8;
                if cluster.is_multiple_of(2) { both & 0xFFF } else { both >> 4 }
            }
            FatKind::Fat16 => at(cluster * 2) | at(cluster * 2 + 1) << 8,
            FatKind::Fat32 => (0..4).map(|i| at(cluster * 4 + i) << (8 * i)).sum(),
        }
    }

    fn chain(&self, first: usize, used: &mut [bool]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cluster = first;
        while (2..self.clusters + 2).contains(&cluster) {
            assert!(
                !std::mem::replace(&mut used[cluster], true),
                "cluster {cluster} is used twice"
            );
            let at = self.data + (cluster - 2) * self.cluster_size;
            bytes.extend_from_slice(&self.bytes[at..at + self.cluster_size]);
            cluster = self.next(cluster);
        }
        bytes
    }

    /// Returns all files with paths and contents.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut used = vec![false; self.clusters + 2];
        let root = match self.kind {
            FatKind::Fat12 | FatKind::Fat16 => self.bytes[self.root..self.data].to_vec(),
            FatKind::Fat32 => self.chain(2, &mut used),
        };
        self.walk("", &root, &mut used, &mut found);
        found.sort();
        found
    }

    fn walk(
        &self,
        path: &str,
        folder: &[u8],
        used: &mut [bool],
        found: &mut Vec<(String, Vec<u8>)>,
    ) {
        let mut long = Vec::new();
        for entry in folder.chunks_exact(32).take_while(|entry| entry[0] != 0) {
            if entry[11] == 0x0F {
                let units = [&entry[1..11], &entry[14..26], &entry[28..32]].concat();
                let units =
                    units.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
                let part: Vec<u16> =
                    units.take_while(|unit| *unit != 0 && *unit != 0xFFFF).collect();
                long = [part, long].concat();
                continue;
            }
            let short = String::from_utf8_lossy(&entry[..11]).into_owned();
            let (base, extension) = (short[..8].trim_end(), short[8..].trim_end());
            let dot = if extension.is_empty() { "" } else { "." };
            let name = if long.is_empty() {
                format!("{base}{dot}{extension}")
            } else {
                String::from_utf16(&std::mem::take(&mut long)).unwrap()
            };
            let first = usize::from(u16::from_le_bytes([entry[26], entry[27]]))
                + (usize::from(u16::from_le_bytes([entry[20], entry[21]])) << 16);
            if entry[11] & 0x08 != 0 || entry[0] == b'.' {
                continue;
            }
            let mut bytes = self.chain(first, used);
            let path = format!("{path}/{name}");
            if entry[11] & 0x10 != 0 {
                self.walk(&path, &bytes, used, found);
            } else {
                bytes.truncate(u32::from_le_bytes(entry[28..].try_into().unwrap()) as usize);
                found.push((path, bytes));
            }
        }
    }
}

fn tree(files: &[(&str, Vec<u8>)]) -> FileTree {
    let mut tree = FileTree::new();
    for (path, bytes) in files {
        tree.insert(path, Content::from(bytes.clone())).unwrap();
    }
    tree
}

#[test]
fn names_and_contents_are_read_back() {
    let files = tree(&[
        ("EFI/BOOT/BOOTX64.EFI", vec![1; 5000]),
        ("openstack/latest/meta_data.json", b"{}".to_vec()),
        ("openstack/latest/meta_data.jso", b"other".to_vec()),
        ("parameters.txt", b"a=b".to_vec()),
        ("empty", Vec::new()),
        ("\u{e4}rger.d/.x", b"y".to_vec()),
    ]);
    for size in [FatSize::Fitting, FatSize::Exact(1440 * 1024), FatSize::Exact(40 << 20)] {
        let reader = FatVolumeReader::new(&layout("LABEL", &files, size).unwrap());
        let mut shown = format!("{:?}\n", reader.kind);
        for (path, bytes) in reader.files() {
            shown += &format!("{path} {}\n", bytes.len());
        }
        let kind = if size == FatSize::Exact(1440 * 1024) { "Fat12" } else { "Fat16" };
        let expected = expect![[r#"
            KIND
            /EFI/BOOT/BOOTX64.EFI 5000
            /empty 0
            /openstack/latest/meta_data.jso 5
            /openstack/latest/meta_data.json 2
            /parameters.txt 3
            /ärger.d/.x 1
        "#]];
        expected.assert_eq(&shown.replace(kind, "KIND"));
    }
}

#[test]
fn fat_type_follows_the_size() {
    let geometry_of = |size: u64| {
        let mut content = Content::new();
        content.push(ContentSegment::Zeros(size));
        let mut files = FileTree::new();
        files.insert("BIG", content).unwrap();
        let flat = FlatTree::new(&files);
        let demand = geometry::VolumeContents { tree: &flat, files: files.files() };
        FatGeometry::fitting(&demand).unwrap()
    };
    for (size, kind, cluster) in [
        (0, FatKind::Fat16, 2048),
        (60 << 20, FatKind::Fat16, 8192),
        (300 << 20, FatKind::Fat16, 32_768),
        (2000 << 20, FatKind::Fat16, 32_768),
        (3000 << 20, FatKind::Fat32, 32_768),
    ] {
        let geometry = geometry_of(size);
        assert_eq!((geometry.kind, geometry.cluster_size()), (kind, cluster), "{size}");
        assert!(geometry.total_size() >= size && geometry.total_size() < size + (12 << 20));
    }
}

#[test]
fn rejects_files_that_do_not_fit() {
    let mut huge = Content::new();
    huge.push(ContentSegment::Zeros(1 << 32));
    let mut files = FileTree::new();
    files.insert("A", huge).unwrap();
    assert_eq!(
        layout("L", &files, FatSize::Fitting).unwrap_err(),
        FatError::FileTooLarge { size: 1 << 32 }
    );
    let files = tree(&[("A", vec![0; 1440 * 1024])]);
    let error = layout("L", &files, FatSize::Exact(1440 * 1024)).unwrap_err();
    assert_eq!(error, FatError::DoesNotFit { size: 1440 * 1024 });
    assert!(layout("L", &files, FatSize::Exact(1000)).is_err());
    assert!(matches!(
        layout("twelve chars", &files, FatSize::Fitting),
        Err(FatError::Label { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn arbitrary_files_are_read_back(
        sizes in prop::collection::btree_map("[a-zA-Z]{1,3}/[a-z .A-Z]{0,20}[a-z]", 0_usize..9000, 0..12),
        exact in prop::option::of(300_u64..20_000),
    ) {
        let mut files = FileTree::new();
        let mut expected = Vec::new();
        for (number, (path, size)) in sizes.into_iter().enumerate() {
            let bytes = vec![number as u8; size];
            if files.insert(&path, Content::from(bytes.clone())).is_ok() {
                expected.push((format!("/{path}").to_lowercase(), bytes));
            }
        }
        expected.sort();
        let size = exact.map_or(FatSize::Fitting, |sectors| FatSize::Exact(sectors * 512));
        if let Ok(volume) = layout("PROPERTY", &files, size) {
            let mut found = FatVolumeReader::new(&volume).files();
            // A folder has the case of the first path that contains it.
            found.iter_mut().for_each(|(path, _)| *path = path.to_lowercase());
            found.sort();
            prop_assert_eq!(found, expected);
        } else {
            prop_assert!(exact.is_some());
        }
    }
}
