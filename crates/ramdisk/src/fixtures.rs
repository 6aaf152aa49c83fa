// SPDX-License-Identifier: Apache-2.0
//! Small modules, programs, kernels and Debian packages for tests.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use tar::{EntryType, Header};

/// ELF types of a kernel module and of a program.
const RELOCATABLE: u16 = 1;
const SHARED: u16 = 3;
const SECTION_HEADER: usize = 64;
const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// A section of an ELF file to write.
struct ElfSection<'a> {
    name: &'a str,
    kind: u32,
    link: u32,
    entry: u64,
    data: Vec<u8>,
}

/// Returns a kernel module with these `.modinfo` entries.
pub(crate) fn kernel_module(modinfo: &[&str]) -> Vec<u8> {
    let data = modinfo.iter().flat_map(|entry| [entry.as_bytes(), &[0]].concat()).collect();
    elf(RELOCATABLE, None, vec![ElfSection { name: ".modinfo", kind: 1, link: 0, entry: 0, data }])
}

/// Returns an x86-64 program with this loader and these libraries.
pub(crate) fn elf_program(loader: Option<&str>, libraries: &[&str]) -> Vec<u8> {
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
        ElfSection { name: ".dynstr", kind: 3, link: 0, entry: 0, data: names },
        ElfSection { name: ".dynamic", kind: 6, link: 1, entry: 16, data: dynamic },
    ];
    elf(SHARED, loader, sections)
}

fn elf(kind: u16, loader: Option<&str>, mut sections: Vec<ElfSection<'_>>) -> Vec<u8> {
    sections.push(ElfSection { name: ".shstrtab", kind: 3, link: 0, entry: 0, data: Vec::new() });
    let mut names = vec![0];
    let name_offsets: Vec<usize> = sections
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
    for (section, name) in sections.iter().zip(name_offsets) {
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

/// Returns the header of an x86-64 kernel.
pub(crate) fn kernel_image(version: &str) -> Vec<u8> {
    let mut bytes = vec![0; 0x400];
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    let text = format!("{version} (builder@debian) #1 SMP\0");
    bytes[0x300..0x300 + text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// Writes a directory of modules, given their paths and `.modinfo` entries.
pub(crate) fn write_modules(folder: &Path, modules: &[(&str, &[&str])], builtin: &[&str]) {
    for (path, modinfo) in modules {
        let path = folder.join("kernel").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut modinfo = modinfo.to_vec();
        modinfo.push("vermagic=6.1.0-test SMP preempt mod_unload modversions ");
        let bytes = kernel_module(&modinfo);
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

/// Returns a Debian package with these files.
pub(crate) fn package_with_files(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        append_entry(&mut tar, EntryType::Regular, path, "", bytes);
    }
    debian_package(tar.into_inner().unwrap())
}

/// Returns a Debian package with a symbolic link and a file below it.
pub(crate) fn package_with_link(link: &str, to: &str, path: &str, bytes: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    append_entry(&mut tar, EntryType::Symlink, link, to, b"");
    append_entry(&mut tar, EntryType::Regular, path, "", bytes);
    debian_package(tar.into_inner().unwrap())
}

/// Appends an entry without the checks of the `tar` crate, which rejects invalid paths.
fn append_entry(
    tar: &mut tar::Builder<Vec<u8>>,
    kind: EntryType,
    path: &str,
    to: &str,
    bytes: &[u8],
) {
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

fn debian_package(data: Vec<u8>) -> Vec<u8> {
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&data).unwrap();
    let mut package = b"!<arch>\n".to_vec();
    for (name, data) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.xz", b"ignored".to_vec()),
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
