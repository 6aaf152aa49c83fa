// SPDX-License-Identifier: Apache-2.0
//! The archive, read back by us and by the real program.

use std::io::Write as _;
use std::process::{Command, Stdio};

use expect_test::expect;

use super::*;

fn tree() -> Tree {
    let mut tree = Tree::default();
    tree.file("/init", 0o755, b"program".to_vec()).unwrap();
    tree.folder("proc", 0o555).unwrap();
    tree.link("sbin", "usr/bin").unwrap();
    tree.file("usr/bin/mdadm", 0o755, b"mdadm".to_vec()).unwrap();
    tree.character_device("dev/console", 0o600, (5, 1)).unwrap();
    tree.file("etc/passwd", 0o644, b"old".to_vec()).unwrap();
    tree.file("etc/passwd", 0o644, b"root:x:0:0::/:\n".to_vec()).unwrap();
    tree
}

fn archive(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    tree.write(&mut bytes).unwrap();
    bytes
}

/// One line per file: mode, number, size, device, name.
fn listing(mut archive: &[u8]) -> String {
    let mut lines = String::new();
    loop {
        assert_eq!(&archive[..6], b"070701");
        let field = |number: usize| {
            let text = std::str::from_utf8(&archive[6 + number * 8..14 + number * 8]).unwrap();
            usize::from_str_radix(text, 16).unwrap()
        };
        let (number, mode, size, name) = (field(0), field(1), field(6), field(11));
        let device = format!("{},{}", field(9), field(10));
        let path = std::str::from_utf8(&archive[110..110 + name - 1]).unwrap();
        lines += &format!("{mode:06o} {number} {size} {device} {path}\n");
        if path == END {
            return lines;
        }
        archive = &archive[(110 + name).next_multiple_of(4) + size.next_multiple_of(4)..];
    }
}

#[test]
fn the_archive_holds_everything_in_order() {
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
        000000 0 0 0,0 TRAILER!!!
    "#]]
    .assert_eq(&listing(&archive(&tree())));
}

#[test]
fn the_same_files_give_the_same_bytes() {
    assert_eq!(archive(&tree()), archive(&tree()));
}

#[test]
fn the_real_program_reads_it() {
    let cpio = Command::new("cpio").arg("-tv").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    // It is not everywhere; our own reader has looked at the same bytes.
    let Ok(mut cpio) = cpio else { return };
    cpio.stdin.take().unwrap().write_all(&archive(&tree())).unwrap();
    let output = cpio.wait_with_output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> =
        told.lines().map(|line| line.split_once("1970 ").map_or(line, |(_, name)| name)).collect();
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
    assert!(told.contains("crw-------"), "{told}");
}

#[test]
fn a_place_is_one_thing() {
    let mut tree = tree();
    for (path, expected) in [
        ("/etc", "/etc would be a folder and a file at once"),
        ("/init/x", "/init would be a folder and a file at once"),
        ("/", "\"\" is no place in a ramdisk; give one such as /etc/motd"),
        ("/etc/../x", "\"etc/../x\" is no place in a ramdisk; give one such as /etc/motd"),
        ("TRAILER!!!", "\"TRAILER!!!\" is no place in a ramdisk; give one such as /etc/motd"),
    ] {
        let told = tree.file(path, 0o644, Vec::new()).unwrap_err().to_string();
        assert_eq!(told, expected);
    }
    tree.file("/sbin/more", 0o755, Vec::new()).unwrap();
    assert!(tree.has("/sbin/more") && tree.has("/sbin/mdadm") && !tree.has("/sbin/none"));
}
