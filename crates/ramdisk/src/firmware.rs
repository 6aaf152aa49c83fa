// SPDX-License-Identifier: Apache-2.0
//! Collects the firmware files of the selected drivers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use tempfile::TempDir;

use crate::debian::DebianArchive;
use crate::decompress::decompress;
use crate::modules::ModuleSelection;
use crate::package;

/// The result of the search for firmware.
#[derive(Debug, Default)]
pub(crate) struct FirmwareFiles {
    /// The content by path below `/lib/firmware/`.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// The missing files by driver.
    pub(crate) missing: BTreeMap<String, Vec<String>>,
}

/// Searches directories such as `/lib/firmware` for the firmware of the drivers.
pub(crate) fn collect(selection: &ModuleSelection, folders: &[PathBuf]) -> FirmwareFiles {
    let mut firmware = FirmwareFiles::default();
    for (module, info) in &selection.modules {
        for name in &info.firmware {
            // A few drivers list patterns instead of files; devices do not request those.
            let plain = |part| matches!(part, Component::Normal(_));
            if name.contains('*') || !Path::new(name).components().all(plain) {
                continue;
            }
            if firmware.files.contains_key(name) {
                continue;
            }
            match folders.iter().find_map(|folder| read_firmware(folder, name)) {
                Some(bytes) => {
                    firmware.files.insert(name.clone(), bytes);
                }
                None => firmware.missing.entry(module.clone()).or_default().push(name.clone()),
            }
        }
    }
    firmware
}

/// Unpacks the available firmware packages. They are available if apt's sources include
/// `non-free-firmware`.
pub(crate) fn unpack_debian_firmware(
    packages: &[String],
    archive: &DebianArchive,
) -> Option<TempDir> {
    let root = tempfile::tempdir().ok()?;
    for package in packages {
        let Ok(info) = archive.package_info(package) else { continue };
        let Ok(path) = archive.fetch(&info) else { continue };
        let is_firmware =
            |path: &Path| path.starts_with("lib/firmware") || path.starts_with("usr/lib/firmware");
        // Best effort: missing files are reported by driver.
        let _ = package::unpack(&path, root.path(), is_firmware);
    }
    Some(root)
}

fn read_firmware(folder: &Path, name: &str) -> Option<Vec<u8>> {
    ["", ".xz", ".zst"]
        .iter()
        .find_map(|end| decompress(fs::read(folder.join(format!("{name}{end}"))).ok()?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::KernelModule;

    #[test]
    fn collects_available_firmware_and_lists_missing() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bnx2x")).unwrap();
        let packed = zstd::encode_all(&b"blob"[..], 1).unwrap();
        fs::write(folder.path().join("bnx2x/e2.fw.zst"), packed).unwrap();
        fs::write(folder.path().join("secret"), "outside").unwrap();
        let module = KernelModule {
            path: "kernel/bnx2x.ko".to_owned(),
            bytes: Vec::new(),
            aliases: Vec::new(),
            firmware: ["bnx2x/e2.fw", "bnx2x/e1.fw", "bnx2x/*.fw", "../secret", "/etc/passwd"]
                .map(str::to_owned)
                .to_vec(),
            dependencies: Vec::new(),
            pre_dependencies: Vec::new(),
            post_dependencies: Vec::new(),
        };
        let mut selection = ModuleSelection::default();
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
