// SPDX-License-Identifier: Apache-2.0
//! Unpacks Debian packages: `ar` archives whose member `data.tar` contains the files.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

use tar::EntryType;

use crate::decompress::CompressionFormat;

const MAGIC: &[u8] = b"!<arch>\n";
const MEMBER_HEADER_SIZE: usize = 60;
/// The maximum unpacked size of a package.
const MAX_UNPACKED_SIZE: u64 = 8 << 30;

/// A package cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The package cannot be read, or its files cannot be written.
    #[error("cannot unpack the package")]
    Io(#[from] io::Error),
    /// Another format, or damaged.
    #[error("not a valid Debian package: {0}")]
    Damaged(&'static str),
}

/// Unpacks the files for which `filter` returns true. Writes nothing outside of `folder`.
pub(crate) fn unpack(
    package: &Path,
    folder: &Path,
    filter: impl Fn(&Path) -> bool,
) -> Result<(), PackageError> {
    let file = BufReader::new(File::open(package)?);
    unpack_from(file, folder, filter)
}

fn unpack_from(
    mut file: impl Read,
    folder: &Path,
    filter: impl Fn(&Path) -> bool,
) -> Result<(), PackageError> {
    let mut magic = [0; MAGIC.len()];
    read_exact(&mut file, &mut magic)?;
    if magic != MAGIC {
        return Err(PackageError::Damaged("wrong magic number"));
    }
    loop {
        let mut header = [0; MEMBER_HEADER_SIZE];
        read_exact(&mut file, &mut header)?;
        let (name, size) = parse_member_header(&header)?;
        if let Some(suffix) = name.strip_prefix("data.tar") {
            let (format, rest) = CompressionFormat::from_file_name(suffix);
            if !rest.is_empty() {
                return Err(PackageError::Damaged("unknown compression of data.tar"));
            }
            let data = format.reader(file.take(size))?;
            return unpack_tar(data.take(MAX_UNPACKED_SIZE), folder, filter);
        }
        // Members are aligned to two bytes.
        let skipped = size.saturating_add(size % 2);
        if io::copy(&mut file.by_ref().take(skipped), &mut io::sink())? < skipped {
            return Err(PackageError::Damaged("truncated"));
        }
    }
}

/// Parses the name and the size of a member.
fn parse_member_header(header: &[u8; MEMBER_HEADER_SIZE]) -> Result<(String, u64), PackageError> {
    let text = std::str::from_utf8(header)
        .map_err(|_| PackageError::Damaged("a member header is not text"))?;
    // ASCII, so slicing by byte offsets cannot panic.
    if !text.is_ascii() || !text.ends_with("`\n") {
        return Err(PackageError::Damaged("invalid member header"));
    }
    let name = text[..16].trim_end().trim_end_matches('/').to_owned();
    let size = text[48..58].trim_end().parse();
    Ok((name, size.map_err(|_| PackageError::Damaged("invalid size of a member"))?))
}

fn unpack_tar(
    data: impl Read,
    folder: &Path,
    filter: impl Fn(&Path) -> bool,
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
        if !stays || !filter(path) {
            continue;
        }
        // Skips entries that would be written outside of the folder, also through links.
        entry.unpack_in(folder)?;
    }
    // Reads to the end, because the checksum of the compressed data is last.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

fn read_exact(file: &mut impl Read, into: &mut [u8]) -> Result<(), PackageError> {
    file.read_exact(into).map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            PackageError::Damaged("truncated")
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
    fn unpacks_selected_files() {
        let package = fixtures::package_with_files(&[
            ("./boot/vmlinuz-6", b"kernel"),
            ("./usr/share/doc/readme", b"skipped"),
        ]);
        let folder = unpacked(&package).unwrap();
        assert_eq!(fs::read(folder.path().join("boot/vmlinuz-6")).unwrap(), b"kernel");
        assert!(!folder.path().join("usr").exists());
    }

    #[test]
    fn rejects_paths_outside_destination() {
        let elsewhere = tempfile::tempdir().unwrap();
        let to = elsewhere.path().to_str().unwrap();
        let package = fixtures::package_with_link("./lib", to, "./lib/evil", b"evil");
        let _ = unpacked(&package);
        assert!(!elsewhere.path().join("evil").exists());
        let inside = tempfile::tempdir().unwrap();
        let folder = inside.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let package = fixtures::package_with_files(&[("./../evil", b"evil")]);
        unpack_from(package.as_slice(), &folder, |_| true).unwrap();
        assert!(!inside.path().join("evil").exists());
    }

    #[test]
    fn damaged_packages_do_not_panic() {
        let package = fixtures::package_with_files(&[("./boot/vmlinuz-6", b"kernel")]);
        for end in 0..package.len().min(400) {
            unpacked(&package[..end]).unwrap_err();
        }
        for at in 0..package.len().min(400) {
            let mut bytes = package.clone();
            bytes[at] = 0xff;
            let _ = unpacked(&bytes);
        }
        let error = unpacked(b"!<arch>\n").unwrap_err().to_string();
        assert_eq!(error, "not a valid Debian package: truncated");
    }
}
