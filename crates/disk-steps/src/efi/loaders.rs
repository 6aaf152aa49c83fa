// SPDX-License-Identifier: Apache-2.0
//! Finds boot loaders on an EFI system partition.

use std::fs;
use std::path::Path;

/// A boot loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EfiLoader {
    /// Path as used by firmware: `\EFI\BOOT\BOOTX64.EFI`.
    pub(super) path: String,
    /// Label of its boot entry.
    pub(super) label: String,
}

/// Names of CSV files and of loaders by architecture, in order of preference.
const LOADER_NAMES: &[(&str, &[&str], &[&str])] = &[
    ("x86_64", &["bootx64.csv", "boot.csv"], &["bootx64.efi", "winload.efi"]),
    ("aarch64", &["bootaa64.csv", "boot.csv"], &["bootaa64.efi", "grubaa64.efi"]),
    ("riscv64", &["bootriscv64.csv", "boot.csv"], &["bootriscv64.efi"]),
];

/// Maximum directory depth.
const MAX_DEPTH: usize = 8;

/// Returns the loader named by a CSV file among `files`, else the loaders with the default names of the
/// architecture.
pub(super) fn find(files: &Path, architecture: &str) -> Vec<EfiLoader> {
    let Some((_, lists, loaders)) = LOADER_NAMES.iter().find(|(name, ..)| *name == architecture)
    else {
        return Vec::new();
    };
    let mut paths = Vec::new();
    list_files(files, "", MAX_DEPTH, &mut paths);
    paths.sort();
    let files_named = |name: &str| {
        let same = |path: &&String| {
            path.rsplit('\\').next().is_some_and(|file| file.eq_ignore_ascii_case(name))
        };
        paths.iter().filter(same).cloned().collect::<Vec<_>>()
    };
    for list in lists.iter().flat_map(|name| files_named(name)) {
        let on_disk = files.join(list.trim_start_matches('\\').replace('\\', "/"));
        let loader = fs::read(on_disk).ok().and_then(|bytes| from_csv(&list, &bytes));
        if let Some(loader) =
            loader.filter(|loader| paths.iter().any(|path| path.eq_ignore_ascii_case(&loader.path)))
        {
            return vec![loader];
        }
    }
    let matches = loaders.iter().flat_map(|name| files_named(name));
    matches
        .zip(1..)
        .map(|(path, number)| EfiLoader { path, label: format!("ironic{number}") })
        .collect()
}

/// Parses the first line of a CSV file: a loader in the same directory, and its label.
fn from_csv(list: &str, bytes: &[u8]) -> Option<EfiLoader> {
    let wide = bytes.get(1) == Some(&0) || bytes.starts_with(&[0xff, 0xfe]);
    let text = if wide {
        let units = bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
        char::decode_utf16(units).map(|character| character.unwrap_or('?')).collect()
    } else {
        String::from_utf8_lossy(bytes).into_owned()
    };
    let line = text.trim_start_matches('\u{feff}').lines().next()?;
    let mut fields = line.split(',').map(str::trim);
    let (file, label) = (fields.next()?, fields.next()?);
    if file.is_empty() || label.is_empty() || file.contains(['\\', '/']) {
        return None;
    }
    let (directory, _) = list.rsplit_once('\\')?;
    Some(EfiLoader { path: format!("{directory}\\{file}"), label: label.to_owned() })
}

fn list_files(directory: &Path, path: &str, depth: usize, matches: &mut Vec<String>) {
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = format!("{path}\\{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => list_files(&entry.path(), &path, depth - 1, matches),
            Ok(kind) if kind.is_file() => matches.push(path),
            Ok(_) | Err(_) => {}
        }
    }
}
