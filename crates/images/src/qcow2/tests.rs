// SPDX-License-Identifier: Apache-2.0
//! Handwritten images, images of QEMU, and random images.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::{Qcow2ConvertError, Qcow2Error, Qcow2Header, convert};
use crate::cache::SpaceReservation;
use crate::sink::ImageSink;

const CLUSTER: usize = 512;

/// A version 3 image with 512-byte clusters: header, L1 table, one L2 table, and one data cluster for each
/// given cluster of the disk.
fn qcow2_image(virtual_size: u64, clusters: &[Option<[u8; CLUSTER]>]) -> Vec<u8> {
    let mut image = vec![0; 3 * CLUSTER];
    image[..4].copy_from_slice(b"QFI\xfb");
    let mut set = |offset: usize, bytes: &[u8]| {
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    set(4, &3_u32.to_be_bytes());
    set(20, &9_u32.to_be_bytes());
    set(24, &virtual_size.to_be_bytes());
    set(36, &1_u32.to_be_bytes());
    set(40, &(CLUSTER as u64).to_be_bytes());
    set(100, &104_u32.to_be_bytes());
    set(CLUSTER, &(2 * CLUSTER as u64).to_be_bytes());
    for (index, content) in clusters.iter().enumerate() {
        if let Some(content) = content {
            let offset = image.len() as u64;
            image.extend(content);
            let entry = 2 * CLUSTER + 8 * index;
            image[entry..entry + 8].copy_from_slice(&offset.to_be_bytes());
        }
    }
    image
}

fn convert_bytes(image: &[u8], limit: u64) -> Result<Vec<u8>, Qcow2ConvertError> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(image).unwrap();
    convert_file(&file, limit)
}

fn convert_file(file: &File, limit: u64) -> Result<Vec<u8>, Qcow2ConvertError> {
    let output = tempfile::tempfile().unwrap();
    let mut sink = ImageSink::new(output, SpaceReservation::unlimited(), limit, &[]);
    convert(file, limit, &mut sink)?;
    let taken = sink.finish().unwrap();
    let mut disk = vec![0; usize::try_from(taken.size).unwrap()];
    taken.file.read_exact_at(&mut disk, 0).unwrap();
    Ok(disk)
}

#[test]
fn reads_clusters_and_holes() {
    let made = qcow2_image(
        4 * 512 + 100,
        &[Some([1; 512]), None, Some([3; 512]), Some([4; 512]), Some([5; 512])],
    );
    let whole = [[1; 512], [0; 512], [3; 512], [4; 512], [5; 512]].concat();
    assert_eq!(convert_bytes(&made, 1 << 20).unwrap(), whole[..4 * 512 + 100]);
    // The file may end within its last cluster.
    let cut = &made[..made.len() - 440];
    assert_eq!(convert_bytes(cut, 1 << 20).unwrap()[..4 * 512 + 72], whole[..4 * 512 + 72]);
}

#[test]
fn rejects_unsupported_and_damaged_images() {
    let good = qcow2_image(512, &[Some([1; 512])]);
    assert!(convert_bytes(&good, 512).is_ok());
    let with = |offset: usize, bytes: &[u8]| {
        let mut image = good.clone();
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
        let error = convert_bytes(&image, 1 << 30).unwrap_err();
        match error {
            Qcow2ConvertError::Image(error) => error,
            Qcow2ConvertError::Sink(error) => panic!("{error}"),
        }
    };
    let backing = with(8, &400_u64.to_be_bytes());
    assert!(matches!(backing, Qcow2Error::ReferencesFile { what: "a backing file" }));
    let nameless_backing = with(16, &9_u32.to_be_bytes());
    assert!(matches!(nameless_backing, Qcow2Error::ReferencesFile { .. }));
    let data_file = with(72, &4_u64.to_be_bytes());
    assert!(matches!(data_file, Qcow2Error::ReferencesFile { what: "an external data file" }));
    let data_file_name = with(104, b"DATA\0\0\0\x0b/etc/passwd");
    assert!(matches!(data_file_name, Qcow2Error::ReferencesFile { .. }));
    for (offset, bytes) in [
        (4, &4_u32.to_be_bytes()[..]),
        (32, &1_u32.to_be_bytes()),
        (72, &(1_u64 << 4).to_be_bytes()),
        (72, &(1_u64 << 40).to_be_bytes()),
    ] {
        assert!(matches!(with(offset, bytes), Qcow2Error::Unsupported { .. }), "{offset}");
    }
    for (offset, bytes) in [
        (20, &40_u32.to_be_bytes()[..]),
        (36, &0_u32.to_be_bytes()),
        (36, &u32::MAX.to_be_bytes()),
        (40, &(1_u64 << 62).to_be_bytes()),
        (72, &2_u64.to_be_bytes()),
        (100, &u32::MAX.to_be_bytes()),
        (104, b"ABCD\xff\xff\xff\xff"),
        (CLUSTER, &(1_u64 << 50).to_be_bytes()),
        (2 * CLUSTER, &(1_u64 << 50).to_be_bytes()),
        (2 * CLUSTER, &(1_u64 << 62 | 3).to_be_bytes()),
    ] {
        assert!(matches!(with(offset, bytes), Qcow2Error::Damaged { .. }), "{offset}");
    }
    let large = Qcow2Header::parse(&qcow2_image(1 << 40, &[]), 1 << 30);
    assert!(matches!(large, Err(Qcow2Error::TooLarge { .. })));
}

proptest! {
    #[test]
    fn arbitrary_headers_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Qcow2Header::parse(&bytes, 1 << 40);
        let mut with_magic = b"QFI\xfb\0\0\0\x03".to_vec();
        with_magic.extend(bytes);
        let _ = Qcow2Header::parse(&with_magic, 1 << 40);
    }

    #[test]
    fn damaged_images_never_panic(
        changes in proptest::collection::vec((0_usize..5 * CLUSTER, any::<u8>()), 0..6),
        entry in any::<u64>(),
    ) {
        let mut made = qcow2_image(60 * 512, &[Some([1; 512]), Some([2; 512])]);
        made[2 * CLUSTER + 16..][..8].copy_from_slice(&entry.to_be_bytes());
        for (offset, byte) in changes {
            made[offset] = byte;
        }
        let _ = convert_bytes(&made, 1 << 20);
    }
}

fn qemu_img(folder: &Path, arguments: &str) {
    let arguments = arguments.split(' ');
    let output = Command::new("qemu-img").args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Images written by `qemu-img` with common options. `cargo xtask test` installs `qemu-img`; the test is
/// skipped without it.
#[test]
fn reads_images_of_qemu_img() {
    if Command::new("qemu-img").arg("--version").output().is_err() {
        eprintln!("qemu-img is not installed: nothing compared");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut content = vec![0; 9 << 20];
    for (index, byte) in content[300_000..3_000_000].iter_mut().enumerate() {
        *byte = (index * index / 977) as u8;
    }
    content[8 << 20] = 1;
    content.truncate((9 << 20) - 1536);
    std::fs::write(at("raw"), &content).unwrap();
    let sorts = [
        "convert -O qcow2 raw x.qcow2",
        "convert -O qcow2 -o compat=0.10 raw x.qcow2",
        "convert -c -O qcow2 raw x.qcow2",
        "convert -c -O qcow2 -o cluster_size=2M raw x.qcow2",
        "convert -c -O qcow2 -o compression_type=zstd raw x.qcow2",
        "convert -O qcow2 -o cluster_size=512 raw x.qcow2",
        "convert -O qcow2 -o preallocation=metadata raw x.qcow2",
        "convert -O qcow2 -o lazy_refcounts=on,refcount_bits=1 raw x.qcow2",
    ];
    for sort in sorts {
        qemu_img(folder.path(), sort);
        let read = convert_file(&File::open(at("x.qcow2")).unwrap(), 1 << 30);
        assert!(read.unwrap() == content, "{sort}");
    }
    qemu_img(folder.path(), "create -f qcow2 -b raw -F raw overlay.qcow2");
    qemu_img(folder.path(), "create -f qcow2 -o data_file=data.raw outside.qcow2 1M");
    for name in ["overlay.qcow2", "outside.qcow2"] {
        let refused = convert_file(&File::open(at(name)).unwrap(), 1 << 30);
        let right =
            matches!(refused, Err(Qcow2ConvertError::Image(Qcow2Error::ReferencesFile { .. })));
        assert!(right, "{name}");
    }
    qemu_img(folder.path(), "create -f qcow2 -o extended_l2=on,cluster_size=128k sub.qcow2 1M");
    let refused = convert_file(&File::open(at("sub.qcow2")).unwrap(), 1 << 30);
    assert!(matches!(refused, Err(Qcow2ConvertError::Image(Qcow2Error::Unsupported { .. }))));
}

#[test]
fn unallocated_clusters_become_holes() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&qcow2_image(60 * 512, &[])).unwrap();
    let output = tempfile::tempfile().unwrap();
    let mut sink = ImageSink::new(output, SpaceReservation::unlimited(), 1 << 20, &[]);
    convert(&file, 1 << 20, &mut sink).unwrap();
    let taken = sink.finish().unwrap();
    assert_eq!((taken.size, taken.file.metadata().unwrap().blocks()), (60 * 512, 0));
}
