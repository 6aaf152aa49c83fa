// SPDX-License-Identifier: Apache-2.0
//! The boot loaders on an EFI system partition.

use std::fs;
use std::path::Path;

/// A boot loader, and the name its entry gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loader {
    /// Its file, as firmware writes paths: `\EFI\BOOT\BOOTX64.EFI`.
    pub(super) path: String,
    /// The name of its entry.
    pub(super) label: String,
}

/// Lists of loaders, and loaders, by architecture; in the order they are preferred.
const NAMES: &[(&str, &[&str], &[&str])] = &[
    ("x86_64", &["bootx64.csv", "boot.csv"], &["bootx64.efi", "winload.efi"]),
    ("aarch64", &["bootaa64.csv", "boot.csv"], &["bootaa64.efi", "grubaa64.efi"]),
    ("riscv64", &["bootriscv64.csv", "boot.csv"], &["bootriscv64.efi"]),
];

/// Folders are not looked into deeper than this.
const DEEPEST: usize = 8;

/// The loaders among `files` for an architecture: those that a CSV file names, else those with the
/// names that firmware looks for.
pub(super) fn find(files: &Path, architecture: &str) -> Vec<Loader> {
    let Some((_, lists, loaders)) = NAMES.iter().find(|(name, ..)| *name == architecture) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    walk(files, "", DEEPEST, &mut all);
    all.sort();
    let named = |name: &str| {
        let same = |path: &&String| {
            path.rsplit('\\').next().is_some_and(|file| file.eq_ignore_ascii_case(name))
        };
        all.iter().filter(same).cloned().collect::<Vec<_>>()
    };
    for list in lists.iter().flat_map(|name| named(name)) {
        let on_disk = files.join(list.trim_start_matches('\\').replace('\\', "/"));
        let loader = fs::read(on_disk).ok().and_then(|bytes| from_csv(&list, &bytes));
        if let Some(loader) =
            loader.filter(|loader| all.iter().any(|path| path.eq_ignore_ascii_case(&loader.path)))
        {
            return vec![loader];
        }
    }
    let found = loaders.iter().flat_map(|name| named(name));
    found.zip(1..).map(|(path, number)| Loader { path, label: format!("ironic{number}") }).collect()
}

/// What the first line of a list says: the loader next to it, and the name of its entry.
fn from_csv(list: &str, bytes: &[u8]) -> Option<Loader> {
    let wide = bytes.get(1) == Some(&0) || bytes.starts_with(&[0xff, 0xfe]);
    let text = if wide {
        let letters = bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
        char::decode_utf16(letters).map(|letter| letter.unwrap_or('?')).collect()
    } else {
        String::from_utf8_lossy(bytes).into_owned()
    };
    let line = text.trim_start_matches('\u{feff}').lines().next()?;
    let mut fields = line.split(',').map(str::trim);
    let (file, label) = (fields.next()?, fields.next()?);
    if file.is_empty() || label.is_empty() || file.contains(['\\', '/']) {
        return None;
    }
    let (folder, _) = list.rsplit_once('\\')?;
    Some(Loader { path: format!("{folder}\\{file}"), label: label.to_owned() })
}

fn walk(folder: &Path, path: &str, depth: usize, found: &mut Vec<String>) {
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = format!("{path}\\{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), &path, depth - 1, found),
            Ok(kind) if kind.is_file() => found.push(path),
            Ok(_) | Err(_) => {}
        }
    }
}
