// SPDX-License-Identifier: Apache-2.0
//! Debian packages: an `ar` archive whose member `data.tar` holds the files.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

use tar::EntryType;

use crate::expand::Packing;

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER: usize = 60;
/// The most that is unpacked from one package.
const LARGEST_PACKAGE: u64 = 8 << 30;

/// Why a package cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// It, or where its files go, cannot be read or written.
    #[error("it cannot be read, or not be unpacked")]
    Io(#[from] io::Error),
    /// It is something else, or damaged.
    #[error("it is no whole Debian package: {0}")]
    Damaged(&'static str),
}

/// Unpacks the files that are `wanted` into a folder. Nothing is written outside of it.
pub(crate) fn unpack(
    package: &Path,
    folder: &Path,
    wanted: impl Fn(&Path) -> bool,
) -> Result<(), PackageError> {
    let file = BufReader::new(File::open(package)?);
    unpack_from(file, folder, wanted)
}

fn unpack_from(
    mut file: impl Read,
    folder: &Path,
    wanted: impl Fn(&Path) -> bool,
) -> Result<(), PackageError> {
    let mut magic = [0; MAGIC.len()];
    read_whole(&mut file, &mut magic)?;
    if magic != MAGIC {
        return Err(PackageError::Damaged("it does not begin as one"));
    }
    loop {
        let mut header = [0; HEADER];
        read_whole(&mut file, &mut header)?;
        let (name, size) = member(&header)?;
        if let Some(end) = name.strip_prefix("data.tar") {
            let (packing, rest) = Packing::of_name(end);
            if !rest.is_empty() {
                return Err(PackageError::Damaged("its data are compressed in an unknown way"));
            }
            let data = packing.reader(file.take(size))?;
            return unpack_files(data.take(LARGEST_PACKAGE), folder, wanted);
        }
        // Members begin at even places.
        let skipped = size.saturating_add(size % 2);
        if io::copy(&mut file.by_ref().take(skipped), &mut io::sink())? < skipped {
            return Err(PackageError::Damaged("it ends early"));
        }
    }
}

/// The name and the size of a member of the archive.
fn member(header: &[u8; HEADER]) -> Result<(String, u64), PackageError> {
    let text = std::str::from_utf8(header)
        .map_err(|_| PackageError::Damaged("the header of a member is no text"))?;
    // All of it is ASCII, so that every place is the start of a letter.
    if !text.is_ascii() || !text.ends_with("`\n") {
        return Err(PackageError::Damaged("a member has no header"));
    }
    let name = text[..16].trim_end().trim_end_matches('/').to_owned();
    let size = text[48..58].trim_end().parse();
    Ok((name, size.map_err(|_| PackageError::Damaged("the size of a member is no number"))?))
}

fn unpack_files(
    data: impl Read,
    folder: &Path,
    wanted: impl Fn(&Path) -> bool,
) -> Result<(), PackageError> {
    let mut archive = tar::Archive::new(data);
    archive.set_preserve_mtime(false);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let is_file =
            [EntryType::Regular, EntryType::Continuous, EntryType::Symlink, EntryType::Link];
        if !is_file.contains(&kind) {
            continue;
        }
        let path = entry.path()?.into_owned();
        let mut parts = path.components();
        let stays = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let path = path.strip_prefix(".").unwrap_or(&path);
        if !stays || !wanted(path) {
            continue;
        }
        // Refuses what would lead outside of the folder, be it through links.
        entry.unpack_in(folder)?;
    }
    // The last checksum is behind the last file.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

fn read_whole(file: &mut impl Read, into: &mut [u8]) -> Result<(), PackageError> {
    file.read_exact(into).map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            PackageError::Damaged("it ends early")
        } else {
            error.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fixtures;

    fn unpacked(package: &[u8]) -> Result<tempfile::TempDir, PackageError> {
        let folder = tempfile::tempdir().unwrap();
        unpack_from(package, folder.path(), |path| !path.starts_with("usr/share"))?;
        Ok(folder)
    }

    #[test]
    fn wanted_files_are_unpacked() {
        let package = fixtures::package(&[
            ("./boot/vmlinuz-6", b"kernel"),
            ("./usr/share/doc/readme", b"not wanted"),
        ]);
        let folder = unpacked(&package).unwrap();
        assert_eq!(fs::read(folder.path().join("boot/vmlinuz-6")).unwrap(), b"kernel");
        assert!(!folder.path().join("usr").exists());
    }

    #[test]
    fn nothing_leaves_the_folder() {
        let elsewhere = tempfile::tempdir().unwrap();
        let to = elsewhere.path().to_str().unwrap();
        let package = fixtures::package_with_link("./lib", to, "./lib/evil", b"evil");
        let _ = unpacked(&package);
        assert!(!elsewhere.path().join("evil").exists());
        let inside = tempfile::tempdir().unwrap();
        let folder = inside.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let package = fixtures::package(&[("./../evil", b"evil")]);
        unpack_from(package.as_slice(), &folder, |_| true).unwrap();
        assert!(!inside.path().join("evil").exists());
    }

    #[test]
    fn damage_is_an_error_and_no_panic() {
        let package = fixtures::package(&[("./boot/vmlinuz-6", b"kernel")]);
        for end in 0..package.len().min(400) {
            unpacked(&package[..end]).unwrap_err();
        }
        for at in 0..package.len().min(400) {
            let mut bytes = package.clone();
            bytes[at] = 0xff;
            let _ = unpacked(&bytes);
        }
        let told = unpacked(b"!<arch>\n").unwrap_err().to_string();
        assert_eq!(told, "it is no whole Debian package: it ends early");
    }
}
