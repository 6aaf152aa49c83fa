// SPDX-License-Identifier: Apache-2.0
//! The second layer of the image with a ramdisk: what machines boot.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::archive_tree::ArchiveTree;

/// Where `ferrite serve` finds a ramdisk if its data directory has none.
const RAMDISK_FOLDER: &str = "usr/lib/ferrite/ramdisk";
/// The output of `ferrite ramdisk build`.
const RAMDISK_FILES: &[&str] = &["kernel", "ramdisk", "ramdisk.toml"];
/// The folder itself, and those of the architectures that have their own ramdisk.
const ARCHITECTURE_FOLDERS: &[&str] = &["", "aarch64/", "x86_64/"];

/// Boot loaders of Debian packages at the paths where `ferrite serve` finds them. Those that are not
/// installed are left out.
const BOOT_LOADERS: &[&str] = &[
    "/usr/lib/ipxe/undionly.kpxe",
    "/usr/lib/ipxe/snponly.efi",
    "/usr/lib/ipxe/ipxe.efi",
    "/usr/lib/ipxe/ipxe-arm64.efi",
    "/usr/lib/PXELINUX/pxelinux.0",
    "/usr/lib/syslinux/modules/bios/ldlinux.c32",
    "/usr/lib/shim/shimx64.efi.signed",
    "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
    "/usr/lib/systemd/boot/efi/linuxx64.efi.stub",
];

/// Reads the ramdisk in `folder` and the boot loaders of this host.
pub(super) fn files(folder: &Path) -> Result<ArchiveTree> {
    let mut tree = ArchiveTree::default();
    for architecture in ARCHITECTURE_FOLDERS {
        if !folder.join(architecture).join("kernel").exists() {
            continue;
        }
        for name in RAMDISK_FILES {
            let path = folder.join(architecture).join(name);
            let content =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            tree.file(&format!("{RAMDISK_FOLDER}/{architecture}{name}"), content);
        }
    }
    if tree.files().next().is_none() {
        bail!("{} has no kernel; run `ferrite ramdisk build` first", folder.display());
    }
    for path in BOOT_LOADERS {
        if let Ok(content) = fs::read(path) {
            tree.file(path.trim_start_matches('/'), content);
        }
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_loaders_are_where_the_server_searches() {
        let path = crate::repository::root().join("crates/boot-plans/src/loaders.rs");
        let source = fs::read_to_string(path).unwrap();
        for loader in BOOT_LOADERS {
            assert!(source.contains(&format!("\"{loader}\"")), "{loader}");
        }
    }

    #[test]
    fn the_server_searches_the_ramdisk_folder() {
        let path = crate::repository::root().join("crates/ferrite/src/ramdisk.rs");
        let source = fs::read_to_string(path).unwrap();
        assert!(source.contains(&format!("\"/{RAMDISK_FOLDER}\"")));
    }

    #[test]
    fn an_incomplete_ramdisk_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = files(folder.path()).err().unwrap();
        assert!(format!("{error:#}").contains("ferrite ramdisk build"), "{error:#}");
        fs::create_dir(folder.path().join("aarch64")).unwrap();
        fs::write(folder.path().join("aarch64/kernel"), "kernel").unwrap();
        let error = files(folder.path()).err().unwrap();
        assert!(format!("{error:#}").contains("aarch64/ramdisk"), "{error:#}");
        for (architecture, name) in
            ["", "aarch64"].iter().flat_map(|one| RAMDISK_FILES.iter().map(move |name| (one, name)))
        {
            fs::write(folder.path().join(architecture).join(name), *name).unwrap();
        }
        let tree = files(folder.path()).unwrap();
        for kernel in ["usr/lib/ferrite/ramdisk/kernel", "usr/lib/ferrite/ramdisk/aarch64/kernel"] {
            assert!(tree.files().any(|file| file == (kernel, b"kernel")), "{kernel}");
        }
    }
}
