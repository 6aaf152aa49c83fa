// SPDX-License-Identifier: Apache-2.0
//! The section table of images, and invalid stubs.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// A stub like systemd's: two sections, 512-byte alignment, an outdated checksum, and a symbol table at
/// the end.
fn stub_bytes() -> Vec<u8> {
    let mut stub = vec![0; 0x400];
    stub[..2].copy_from_slice(b"MZ");
    stub[0x3c] = 0x80;
    let put16 = |stub: &mut Vec<u8>, at: usize, value: u16| {
        stub[at..at + 2].copy_from_slice(&value.to_le_bytes());
    };
    let put32 = |stub: &mut Vec<u8>, at: usize, value: u32| {
        stub[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    stub[0x80..0x84].copy_from_slice(b"PE\0\0");
    put16(&mut stub, 0x84, 0x8664);
    put16(&mut stub, 0x86, 2);
    put32(&mut stub, 0x8c, 0x800);
    put32(&mut stub, 0x90, 3);
    put16(&mut stub, 0x94, 240);
    put16(&mut stub, 0x98, 0x20b);
    put32(&mut stub, 0x98 + 32, 0x200);
    put32(&mut stub, 0x98 + 36, 0x200);
    put32(&mut stub, 0x98 + 56, 0x5100);
    put32(&mut stub, 0x98 + 60, 0x400);
    put32(&mut stub, 0x98 + 64, 0x1234);
    put16(&mut stub, 0x98 + 68, 10);
    for (index, (name, address, offset)) in
        [(".text", 0x4000, 0x400), (".sdmagic", 0x5000, 0x600)].into_iter().enumerate()
    {
        let at = 0x98 + 240 + index * 40;
        stub[at..at + name.len().min(8)].copy_from_slice(&name.as_bytes()[..name.len().min(8)]);
        put32(&mut stub, at + 8, 0x100);
        put32(&mut stub, at + 12, address);
        put32(&mut stub, at + 16, 0x200);
        put32(&mut stub, at + 20, offset);
    }
    stub.extend([0x90; 0x400]);
    stub.extend(b"symbol table");
    stub
}

fn kernel(machine: u16, length: usize) -> Content {
    let mut kernel = vec![b'k'; length];
    kernel[..2].copy_from_slice(b"MZ");
    kernel[0x3c..0x40].copy_from_slice(&0x40_u32.to_le_bytes());
    kernel[0x40..0x44].copy_from_slice(b"PE\0\0");
    kernel[0x44..0x46].copy_from_slice(&machine.to_le_bytes());
    Content::from(kernel)
}

fn parts() -> UkiParts {
    UkiParts {
        kernel: kernel(0x8664, 5000),
        ramdisks: vec![Content::from(vec![b'1'; 701]), Content::from(vec![b'2'; 4096])],
        command_line: "console=ttyS0 ipa-api-url=http://[::1]:6385".to_owned(),
        os_release: "ID=ferrite\n".to_owned(),
        ..UkiParts::default()
    }
}

fn written(content: &Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).unwrap();
    bytes
}

/// Name, address, size in memory, file offset and file size of each section.
fn table(image: &[u8]) -> Vec<(String, u32, u32, u32, u32)> {
    let u32_at = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let count = usize::from(u16::from_le_bytes([image[0x86], image[0x87]]));
    (0..count)
        .map(|index| 0x98 + 240 + index * 40)
        .map(|at| {
            let name = String::from_utf8_lossy(&image[at..at + 8]);
            let name = name.trim_end_matches('\0').to_owned();
            (name, u32_at(at + 12), u32_at(at + 8), u32_at(at + 20), u32_at(at + 16))
        })
        .collect()
}

#[test]
fn sections_follow_the_stub() {
    let stub = UkiStub::parse(&Bytes::from(stub_bytes())).unwrap();
    let image = written(&stub.build(&parts()).unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let mut shown = format!("image {:#x}, checksum {}", u32_at(0x98 + 56), u32_at(0x98 + 64));
    shown += &format!(", symbols {}, file {:#x}\n", u32_at(0x8c), image.len());
    for (name, address, size, offset, raw) in table(&image) {
        shown += &format!("{name:9} {address:#x}+{size:#x} at {offset:#x}+{raw:#x}\n");
    }
    expect![[r#"
        image 0xc000, checksum 0, symbols 0, file 0x3400
        .text     0x4000+0x100 at 0x400+0x200
        .sdmagic  0x5000+0x100 at 0x600+0x200
        .osrel    0x6000+0xb at 0x800+0x200
        .cmdline  0x7000+0x2b at 0xa00+0x200
        .initrd   0x8000+0x12c0 at 0xc00+0x1400
        .linux    0xa000+0x1388 at 0x2000+0x1400
    "#]]
    .assert_eq(&shown);
    let ramdisk = &image[0xc00..0xc00 + 0x12c0];
    assert_eq!(
        &ramdisk[698..708],
        b"111\x00\x00\x002222",
        "the second ramdisk starts at a multiple of 4"
    );
    assert!(image[0x2000..].starts_with(b"MZ"));
}

fn check(change: impl FnOnce(&mut UkiParts), expected: Expect) {
    let mut parts = parts();
    change(&mut parts);
    let stub = UkiStub::parse(&Bytes::from(stub_bytes())).unwrap();
    expected.assert_eq(&stub.build(&parts).unwrap_err().to_string());
}

#[test]
fn rejects_invalid_parts() {
    check(
        |parts| parts.kernel = Content::from(vec![0x1f, 0x8b]),
        expect![
            "the kernel is not an EFI application: give an uncompressed image of a kernel built with CONFIG_EFI_STUB"
        ],
    );
    check(
        |parts| parts.kernel = kernel(0xAA64, 100),
        expect![
            "the kernel is for aarch64, the stub for x86_64: give the stub of the kernel's architecture"
        ],
    );
    check(
        |parts| parts.command_line.push('\n'),
        expect!["the kernel parameters contain a control character; write them on one line"],
    );
    check(
        |parts| parts.command_line = "x".repeat(2048),
        expect!["the kernel parameters have 2048 bytes, but the kernel accepts 2047; shorten them"],
    );
    check(
        |parts| parts.extra_sections.push((".text".to_owned(), Content::new())),
        expect![[
            r#"".text" cannot be a section's name: it must be of 1 to 8 ASCII characters and new to the image"#
        ]],
    );
    check(
        |parts| {
            parts.extra_sections =
                (0..10).map(|n| (format!(".x{n}"), Content::from(vec![1]))).collect();
        },
        expect![
            "the stub has space for 13 more sections, but 14 are requested; use fewer or a newer stub"
        ],
    );
    check(
        |parts| {
            let mut huge = Content::new();
            huge.push(ContentSegment::Zeros(4 << 30));
            parts.ramdisks.push(huge);
        },
        expect!["the image would be larger than 4 GiB; use a smaller ramdisk"],
    );
}

#[test]
fn rejects_unified_image_as_stub() {
    let stub = UkiStub::parse(&Bytes::from(stub_bytes())).unwrap();
    let image = Bytes::from(written(&stub.build(&parts()).unwrap()));
    let error = UkiStub::parse(&image).unwrap_err();
    assert_eq!(error, UkiStubError::AlreadyUnified { section: ".cmdline" });
}

proptest! {
    #[test]
    fn arbitrary_stubs_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = UkiStub::parse(&Bytes::from(bytes));
    }

    #[test]
    fn damaged_stubs_never_panic(
        damage in prop::collection::vec((0_usize..0x200, any::<u8>()), 1..6),
        length in 0_usize..2100,
    ) {
        let mut bytes = stub_bytes();
        for (at, value) in damage {
            bytes[at] = value;
        }
        bytes.truncate(length.max(0x200));
        if let Ok(stub) = UkiStub::parse(&Bytes::from(bytes)) {
            let _ = stub.build(&parts());
        }
    }

    #[test]
    fn sections_never_overlap(
        sizes in prop::collection::vec(1_usize..20_000, 0..4),
        kernel_size in 100_usize..30_000,
    ) {
        let mut parts = parts();
        parts.kernel = kernel(0x8664, kernel_size);
        parts.ramdisks = sizes.iter().map(|size| Content::from(vec![7; *size])).collect();
        let stub = UkiStub::parse(&Bytes::from(stub_bytes())).unwrap();
        let content = stub.build(&parts).unwrap();
        let image = written(&content);
        prop_assert_eq!(content.length(), image.len() as u64);
        let rows = table(&image);
        for pair in rows.windows(2) {
            prop_assert!(pair[0].1 + pair[0].2 <= pair[1].1, "in memory: {:?}", pair);
            prop_assert!(pair[0].3 + pair[0].4 <= pair[1].3, "in the file: {:?}", pair);
        }
        let last = rows.last().unwrap();
        prop_assert_eq!(last.3 as usize + last.4 as usize, image.len());
    }
}
