// SPDX-License-Identifier: Apache-2.0
//! The firmware that drivers load into their cards, as far as it can be had.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use tempfile::TempDir;

use crate::debian::Archive;
use crate::expand::expanded;
use crate::modules::Selection;
use crate::package;

/// What of the firmware there is.
#[derive(Debug, Default)]
pub(crate) struct Firmware {
    /// By path below `/lib/firmware/`.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// What is not there, by driver.
    pub(crate) missing: BTreeMap<String, Vec<String>>,
}

/// Looks for what the drivers may ask for in folders such as `/lib/firmware`.
pub(crate) fn collect(selection: &Selection, folders: &[PathBuf]) -> Firmware {
    let mut firmware = Firmware::default();
    for (module, about) in &selection.modules {
        for name in &about.firmware {
            // A few drivers name whole families by pattern, which no card of theirs asks for.
            let plain = |part| matches!(part, Component::Normal(_));
            if name.contains('*') || !Path::new(name).components().all(plain) {
                continue;
            }
            if firmware.files.contains_key(name) {
                continue;
            }
            match folders.iter().find_map(|folder| read(folder, name)) {
                Some(bytes) => {
                    firmware.files.insert(name.clone(), bytes);
                }
                None => firmware.missing.entry(module.clone()).or_default().push(name.clone()),
            }
        }
    }
    firmware
}

/// Unpacks the packages with firmware that apt knows; whether it knows any is up to the archives it
/// was told of (`non-free-firmware`).
pub(crate) fn from_debian(packages: &[String], archive: &Archive) -> Option<TempDir> {
    let root = tempfile::tempdir().ok()?;
    for package in packages {
        let Ok(about) = archive.about(package) else { continue };
        let Ok(path) = archive.fetch(&about) else { continue };
        let wanted =
            |path: &Path| path.starts_with("lib/firmware") || path.starts_with("usr/lib/firmware");
        // Firmware is taken as far as it is there: what is not is told by the drivers that miss it.
        let _ = package::unpack(&path, root.path(), wanted);
    }
    Some(root)
}

fn read(folder: &Path, name: &str) -> Option<Vec<u8>> {
    ["", ".xz", ".zst"]
        .iter()
        .find_map(|end| expanded(fs::read(folder.join(format!("{name}{end}"))).ok()?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::Module;

    #[test]
    fn what_is_there_is_taken_and_the_rest_told() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bnx2x")).unwrap();
        let packed = zstd::encode_all(&b"blob"[..], 1).unwrap();
        fs::write(folder.path().join("bnx2x/e2.fw.zst"), packed).unwrap();
        fs::write(folder.path().join("secret"), "outside").unwrap();
        let module = Module {
            path: "kernel/bnx2x.ko".to_owned(),
            bytes: Vec::new(),
            aliases: Vec::new(),
            firmware: ["bnx2x/e2.fw", "bnx2x/e1.fw", "bnx2x/*.fw", "../secret", "/etc/passwd"]
                .map(str::to_owned)
                .to_vec(),
            needs: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
        };
        let mut selection = Selection::default();
        selection.modules.insert("bnx2x".to_owned(), module);
        let folders = [folder.path().join("none"), folder.path().to_owned()];
        let firmware = collect(&selection, &folders);
        assert_eq!(
            firmware.files.into_iter().collect::<Vec<_>>(),
            [("bnx2x/e2.fw".to_owned(), b"blob".to_vec())]
        );
        assert_eq!(firmware.missing["bnx2x"], ["bnx2x/e1.fw"]);
    }
}
