// SPDX-License-Identifier: Apache-2.0
//! The archive, read by the `cpio` crate and by GNU cpio.

use std::io::Write as _;
use std::process::{Command, Stdio};

use expect_test::expect;

use super::*;

fn test_tree() -> RamdiskTree {
    let mut tree = RamdiskTree::default();
    tree.add_file("/init", 0o755, b"program".to_vec()).unwrap();
    tree.add_dir("proc", 0o555).unwrap();
    tree.add_symlink("sbin", "usr/bin").unwrap();
    tree.add_file("usr/bin/mdadm", 0o755, b"mdadm".to_vec()).unwrap();
    tree.add_char_device("dev/console", 0o600, (5, 1)).unwrap();
    tree.add_file("etc/passwd", 0o644, b"old".to_vec()).unwrap();
    tree.add_file("etc/passwd", 0o644, b"root:x:0:0::/:\n".to_vec()).unwrap();
    tree
}

fn archive_bytes(tree: &RamdiskTree) -> Vec<u8> {
    let mut bytes = Vec::new();
    tree.write(&mut bytes).unwrap();
    bytes
}

/// Returns one line per entry: mode, inode, size, device, path.
fn listing(archive: &[u8]) -> String {
    let mut lines = String::new();
    let mut rest = archive;
    loop {
        let reader = newc::Reader::new(rest).unwrap();
        let entry = reader.entry();
        if entry.is_trailer() {
            return lines;
        }
        let device = format!("{},{}", entry.rdev_major(), entry.rdev_minor());
        let (mode, inode, size) = (entry.mode(), entry.ino(), entry.file_size());
        lines += &format!("{mode:06o} {inode} {size} {device} {}\n", entry.name());
        rest = reader.finish().unwrap();
    }
}

#[test]
fn archive_lists_entries_sorted_by_path() {
    expect![[r#"
        040755 1 0 0,0 dev
        020600 2 0 5,1 dev/console
        040755 3 0 0,0 etc
        100644 4 15 0,0 etc/passwd
        100755 5 7 0,0 init
        040555 6 0 0,0 proc
        120777 7 7 0,0 sbin
        040755 8 0 0,0 usr
        040755 9 0 0,0 usr/bin
        100755 10 5 0,0 usr/bin/mdadm
    "#]]
    .assert_eq(&listing(&archive_bytes(&test_tree())));
}

#[test]
fn archives_are_reproducible() {
    assert_eq!(archive_bytes(&test_tree()), archive_bytes(&test_tree()));
}

#[test]
fn gnu_cpio_reads_the_archive() {
    let cpio = Command::new("cpio").arg("-tv").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    // GNU cpio may not be installed.
    let Ok(mut cpio) = cpio else { return };
    cpio.stdin.take().unwrap().write_all(&archive_bytes(&test_tree())).unwrap();
    let output = cpio.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> =
        text.lines().map(|line| line.split_once("1970 ").map_or(line, |(_, name)| name)).collect();
    assert_eq!(
        names,
        [
            "dev",
            "dev/console",
            "etc",
            "etc/passwd",
            "init",
            "proc",
            "sbin -> usr/bin",
            "usr",
            "usr/bin",
            "usr/bin/mdadm"
        ]
    );
    assert!(text.contains("crw-------"), "{text}");
}

#[test]
fn rejects_conflicting_and_invalid_paths() {
    let mut tree = test_tree();
    for (path, expected) in [
        ("/etc", "/etc cannot be both a directory and a file"),
        ("/init/x", "/init cannot be both a directory and a file"),
        ("/", "\"\" is not a valid path in a ramdisk; give one such as /etc/motd"),
        ("/etc/../x", "\"etc/../x\" is not a valid path in a ramdisk; give one such as /etc/motd"),
        (
            "TRAILER!!!",
            "\"TRAILER!!!\" is not a valid path in a ramdisk; give one such as /etc/motd",
        ),
    ] {
        let error = tree.add_file(path, 0o644, Vec::new()).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
    tree.add_file("/sbin/more", 0o755, Vec::new()).unwrap();
    assert!(tree.contains("/sbin/more"));
    assert!(tree.contains("/sbin/mdadm"));
    assert!(!tree.contains("/sbin/none"));
}
