// SPDX-License-Identifier: Apache-2.0
//! Small modules, programs, kernels and packages for tests.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use tar::{EntryType, Header};

/// The type of a kernel module, and of a program.
const RELOCATABLE: u16 = 1;
const SHARED: u16 = 3;
const SECTION_HEADER: usize = 64;
const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// A section to be: its name, type, linked section, size of an entry and content.
struct Section<'a> {
    name: &'a str,
    kind: u32,
    link: u32,
    entry: u64,
    data: Vec<u8>,
}

/// A kernel module with these notes.
pub(crate) fn module(notes: &[&str]) -> Vec<u8> {
    let data = notes.iter().flat_map(|note| [note.as_bytes(), &[0]].concat()).collect();
    elf(RELOCATABLE, None, vec![Section { name: ".modinfo", kind: 1, link: 0, entry: 0, data }])
}

/// A program for x86-64 with this loader, that needs these libraries.
pub(crate) fn program(loader: Option<&str>, libraries: &[&str]) -> Vec<u8> {
    let mut names = vec![0];
    let mut dynamic = Vec::new();
    for library in libraries {
        dynamic.extend(1_u64.to_le_bytes());
        dynamic.extend((names.len() as u64).to_le_bytes());
        names.extend(library.as_bytes());
        names.push(0);
    }
    dynamic.extend([0; 16]);
    let sections = vec![
        Section { name: ".dynstr", kind: 3, link: 0, entry: 0, data: names },
        Section { name: ".dynamic", kind: 6, link: 1, entry: 16, data: dynamic },
    ];
    elf(SHARED, loader, sections)
}

fn elf(kind: u16, loader: Option<&str>, mut sections: Vec<Section<'_>>) -> Vec<u8> {
    sections.push(Section { name: ".shstrtab", kind: 3, link: 0, entry: 0, data: Vec::new() });
    let mut names = vec![0];
    let places: Vec<usize> = sections
        .iter()
        .map(|section| {
            let at = names.len();
            names.extend(section.name.as_bytes());
            names.push(0);
            at
        })
        .collect();
    sections.last_mut().unwrap().data = names;

    let segments = usize::from(loader.is_some());
    let mut body = Vec::new();
    let start = FILE_HEADER + segments * PROGRAM_HEADER;
    let mut program_headers = Vec::new();
    if let Some(loader) = loader {
        let size = loader.len() as u64 + 1;
        program_headers.extend(3_u32.to_le_bytes());
        program_headers.extend(4_u32.to_le_bytes());
        for field in [start as u64, 0, 0, size, size, 1] {
            program_headers.extend(field.to_le_bytes());
        }
        body.extend(loader.as_bytes());
        body.push(0);
    }
    let mut headers = vec![0; SECTION_HEADER];
    for (section, name) in sections.iter().zip(places) {
        body.resize(body.len().next_multiple_of(8), 0);
        headers.extend(u32::try_from(name).unwrap().to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        let size = section.data.len() as u64;
        for field in [0, 0, (start + body.len()) as u64, size] {
            headers.extend(field.to_le_bytes());
        }
        headers.extend(section.link.to_le_bytes());
        headers.extend(0_u32.to_le_bytes());
        headers.extend(8_u64.to_le_bytes());
        headers.extend(section.entry.to_le_bytes());
        body.extend(&section.data);
    }
    body.resize((start + body.len()).next_multiple_of(8) - start, 0);

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(kind.to_le_bytes());
    file.extend(62_u16.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    file.extend(0_u64.to_le_bytes());
    file.extend(if segments == 0 { 0 } else { FILE_HEADER as u64 }.to_le_bytes());
    file.extend(((start + body.len()) as u64).to_le_bytes());
    file.extend(0_u32.to_le_bytes());
    let count = u16::try_from(sections.len() + 1).unwrap();
    let half = |size: usize| u16::try_from(size).unwrap();
    for field in [
        half(FILE_HEADER),
        half(PROGRAM_HEADER),
        half(segments),
        half(SECTION_HEADER),
        count,
        count - 1,
    ] {
        file.extend(field.to_le_bytes());
    }
    [file, program_headers, body, headers].concat()
}

/// The start of a kernel for x86-64.
pub(crate) fn kernel(version: &str) -> Vec<u8> {
    let mut bytes = vec![0; 0x400];
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    let text = format!("{version} (somebody@debian) #1 SMP\0");
    bytes[0x300..0x300 + text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// A folder of modules: their paths and notes.
pub(crate) fn modules(folder: &Path, modules: &[(&str, &[&str])], builtin: &[&str]) {
    for (path, notes) in modules {
        let path = folder.join("kernel").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut notes = notes.to_vec();
        notes.push("vermagic=6.1.0-test SMP preempt mod_unload modversions ");
        let bytes = module(&notes);
        let bytes = match path.extension().unwrap().to_str().unwrap() {
            "zst" => zstd::encode_all(bytes.as_slice(), 1).unwrap(),
            "xz" => {
                let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
                xz.write_all(&bytes).unwrap();
                xz.finish().unwrap()
            }
            _ => bytes,
        };
        fs::write(path, bytes).unwrap();
    }
    let builtin: String = builtin.iter().map(|path| format!("kernel/{path}\n")).collect();
    fs::write(folder.join("modules.builtin"), builtin).unwrap();
}

/// A package of Debian with these files.
pub(crate) fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        add(&mut tar, EntryType::Regular, path, "", bytes);
    }
    package_of(tar.into_inner().unwrap())
}

/// A package with a link and a file behind it.
pub(crate) fn package_with_link(link: &str, to: &str, path: &str, bytes: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    add(&mut tar, EntryType::Symlink, link, to, b"");
    add(&mut tar, EntryType::Regular, path, "", bytes);
    package_of(tar.into_inner().unwrap())
}

/// Adds an entry as it is; the crate itself would refuse odd ones.
fn add(tar: &mut tar::Builder<Vec<u8>>, kind: EntryType, path: &str, to: &str, bytes: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(bytes.len() as u64);
    let fields = header.as_gnu_mut().unwrap();
    fields.name[..path.len()].copy_from_slice(path.as_bytes());
    fields.linkname[..to.len()].copy_from_slice(to.as_bytes());
    header.set_cksum();
    tar.append(&header, bytes).unwrap();
}

fn package_of(data: Vec<u8>) -> Vec<u8> {
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&data).unwrap();
    let mut package = b"!<arch>\n".to_vec();
    for (name, data) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.xz", b"odd".to_vec()),
        ("data.tar.xz", xz.finish().unwrap()),
    ] {
        let header =
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100_644, data.len());
        package.extend(header.as_bytes());
        package.extend(&data);
        package.resize(package.len().next_multiple_of(2), b'\n');
    }
    package
}
