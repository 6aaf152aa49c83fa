// SPDX-License-Identifier: Apache-2.0
//! Reads the files out of a small ISO 9660 image in memory, by their Joliet or Rock Ridge names.

/// The ISO is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the ISO is damaged: {what}")]
pub struct IsoReadError {
    what: &'static str,
}

const SECTOR: usize = 2048;
/// Limits of the depth of folders and of the number of files.
const MAX_DEPTH: usize = 16;
const MAX_FILES: usize = 10_000;

/// Returns all files with their paths, which are relative and contain no `..`.
pub fn files(iso: &[u8]) -> Result<Vec<(String, &[u8])>, IsoReadError> {
    let mut root = None;
    for number in 16..64 {
        let sector = sector(iso, number)?;
        if &sector[1..6] != b"CD001" {
            return Err(IsoReadError { what: "it has no descriptor" });
        }
        let joliet = sector[0] == 2 && &sector[88..90] == b"%/";
        match sector[0] {
            1 => root = root.or(Some((&sector[156..190], false))),
            2 if joliet => root = Some((&sector[156..190], true)),
            255 => break,
            _ => {}
        }
    }
    let (root, joliet) = root.ok_or(IsoReadError { what: "it has no root" })?;
    let mut found = Vec::new();
    let root = extent(iso, root)?;
    folder(&Reader { iso, joliet }, root, "", MAX_DEPTH, &mut found)?;
    Ok(found)
}

struct Reader<'a> {
    iso: &'a [u8],
    joliet: bool,
}

fn folder<'a>(
    reader: &Reader<'a>,
    records: &'a [u8],
    path: &str,
    depth: usize,
    found: &mut Vec<(String, &'a [u8])>,
) -> Result<(), IsoReadError> {
    if depth == 0 || found.len() > MAX_FILES {
        return Err(IsoReadError { what: "it has folders without end" });
    }
    for sector in records.chunks(SECTOR) {
        let mut rest = sector;
        while let Some(&length) = rest.first().filter(|length| **length >= 34) {
            let length = usize::from(length);
            let record =
                rest.get(..length).ok_or(IsoReadError { what: "an entry is cut short" })?;
            rest = &rest[length..];
            let Some(name) = name(record, reader.joliet) else { continue };
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            let content = extent(reader.iso, record)?;
            if record[25] & 2 != 0 {
                folder(reader, content, &path, depth - 1, found)?;
            } else {
                found.push((path, content));
            }
        }
    }
    Ok(())
}

/// Returns the name in a record; `None` for the folder itself, for its parent, and for names that are not
/// safe in a path.
fn name(record: &[u8], joliet: bool) -> Option<String> {
    let length = usize::from(record[32]);
    let name = record.get(33..33 + length)?;
    if name == [0] || name == [1] {
        return None;
    }
    let plain = if joliet {
        let letters = name.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        char::decode_utf16(letters).map(|it| it.unwrap_or('_')).collect()
    } else {
        let rest = record.get(33 + length + (1 - length % 2)..).unwrap_or_default();
        rock_ridge(rest).unwrap_or_else(|| String::from_utf8_lossy(name).to_lowercase())
    };
    let plain = plain.split(';').next().unwrap_or_default().trim_end_matches('.').to_owned();
    let safe = !plain.is_empty() && plain != ".." && !plain.contains(['/', '\0']);
    safe.then_some(plain)
}

fn rock_ridge(mut fields: &[u8]) -> Option<String> {
    let mut name = String::new();
    while fields.len() >= 5 {
        let length = usize::from(fields[2]);
        let field = fields.get(..length).filter(|field| field.len() >= 5)?;
        if &field[..2] == b"NM" {
            name.push_str(&String::from_utf8_lossy(&field[5..]));
        }
        fields = &fields[length..];
    }
    Some(name).filter(|name| !name.is_empty())
}

fn extent<'a>(iso: &'a [u8], record: &[u8]) -> Result<&'a [u8], IsoReadError> {
    let number = |at: usize| {
        let bytes = record[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let (start, length) = (number(2).saturating_mul(SECTOR), number(10));
    let content = iso.get(start..).and_then(|rest| rest.get(..length));
    content.ok_or(IsoReadError { what: "a file lies beyond its end" })
}

fn sector(iso: &[u8], number: usize) -> Result<&[u8], IsoReadError> {
    let sector = iso.get(number * SECTOR..(number + 1) * SECTOR);
    sector.ok_or(IsoReadError { what: "it ends too early" })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn xorriso(arguments: &[&str]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("tree/openstack/latest");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("meta_data.json"), b"{}").unwrap();
        std::fs::write(deep.join("User Data.txt"), b"#!/bin/sh").unwrap();
        let iso = folder.path().join("iso");
        let mut command = std::process::Command::new("xorriso");
        command.args(["-as", "mkisofs", "-quiet", "-V", "config-2"]).args(arguments);
        command.arg("-o").arg(&iso).arg(folder.path().join("tree"));
        assert!(command.output().expect("xorriso is installed for tests").status.success());
        std::fs::read(iso).unwrap()
    }

    #[test]
    fn reads_joliet_and_rock_ridge_names() {
        for arguments in [&["-J"][..], &["-r"], &["-J", "-r"]] {
            let iso = xorriso(arguments);
            let mut found = files(&iso).unwrap();
            found.sort();
            assert_eq!(found.len(), 2);
            assert_eq!(found[0], ("openstack/latest/User Data.txt".to_owned(), &b"#!/bin/sh"[..]));
            assert_eq!(found[1], ("openstack/latest/meta_data.json".to_owned(), &b"{}"[..]));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(noise in proptest::collection::vec(any::<(u16, u8)>(), 0..60)) {
            let mut iso = vec![0; 64 * SECTOR];
            iso[16 * SECTOR..16 * SECTOR + 6].copy_from_slice(b"\x01CD001");
            for (at, byte) in noise {
                iso[16 * SECTOR + 6 + usize::from(at)] = byte;
            }
            let _ = files(&iso);
        }
    }
}
