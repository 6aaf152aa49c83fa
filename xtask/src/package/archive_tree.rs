// SPDX-License-Identifier: Apache-2.0
//! The files of a package, written as a tar archive whose bytes depend only on them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Context, Result, bail};

/// The longest name in a plain tar header. Our packages have no longer ones.
const LONGEST_NAME: usize = 100;

/// Files and folders by path, without a leading slash. Parent folders are added with
/// mode 755.
#[derive(Default)]
pub(crate) struct ArchiveTree(BTreeMap<String, ArchiveEntry>);

struct ArchiveEntry {
    mode: u32,
    /// Numeric user and group.
    owner: u32,
    content: ArchiveContent,
}

enum ArchiveContent {
    Folder,
    File(Vec<u8>),
}

/// How paths start in the archive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArchiveRoot {
    /// `usr/bin`, as in image layers and other archives.
    Plain,
    /// `./usr/bin` with an entry for the root, as in Debian packages.
    CurrentFolder,
}

impl ArchiveTree {
    /// Adds a file of root with mode 644.
    pub(crate) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.insert(path, 0o644, 0, ArchiveContent::File(content.into()));
    }

    /// Adds a file of root with mode 755.
    pub(crate) fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.insert(path, 0o755, 0, ArchiveContent::File(content.into()));
    }

    /// Adds a folder with a mode and an owner.
    pub(crate) fn folder(&mut self, path: &str, mode: u32, owner: u32) {
        self.insert(path, mode, owner, ArchiveContent::Folder);
    }

    /// The paths and contents of all files, sorted by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().filter_map(|(path, entry)| match &entry.content {
            ArchiveContent::File(content) => Some((path.as_str(), content.as_slice())),
            ArchiveContent::Folder => None,
        })
    }

    /// The sum of the file sizes in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.files().map(|(_, content)| content.len() as u64).sum()
    }

    /// Writes a tar archive in which every entry has the given time.
    pub(crate) fn write_tar(&self, output: impl Write, time: u64, root: ArchiveRoot) -> Result<()> {
        let mut archive = tar::Builder::new(output);
        if root == ArchiveRoot::CurrentFolder {
            let folder = ArchiveEntry { mode: 0o755, owner: 0, content: ArchiveContent::Folder };
            append(&mut archive, "./", &folder, time)?;
        }
        for (path, entry) in &self.0 {
            let prefix = if root == ArchiveRoot::CurrentFolder { "./" } else { "" };
            let suffix = if matches!(entry.content, ArchiveContent::Folder) { "/" } else { "" };
            append(&mut archive, &format!("{prefix}{path}{suffix}"), entry, time)
                .with_context(|| format!("cannot add {path} to the archive"))?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }

    /// Returns the tar archive.
    pub(crate) fn tar(&self, time: u64, root: ArchiveRoot) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_tar(&mut bytes, time, root)?;
        Ok(bytes)
    }

    fn insert(&mut self, path: &str, mode: u32, owner: u32, content: ArchiveContent) {
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(ArchiveEntry {
                mode: 0o755,
                owner: 0,
                content: ArchiveContent::Folder,
            });
        }
        self.0.insert(path.to_owned(), ArchiveEntry { mode, owner, content });
    }
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    name: &str,
    entry: &ArchiveEntry,
    time: u64,
) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    // Not with `set_path`, which removes the leading `./`.
    let field = &mut header.as_ustar_mut().context("the header is not ustar")?.name;
    if name.len() > LONGEST_NAME {
        bail!("the name is longer than {LONGEST_NAME} bytes");
    }
    field[..name.len()].copy_from_slice(name.as_bytes());
    header.set_mode(entry.mode);
    header.set_uid(entry.owner.into());
    header.set_gid(entry.owner.into());
    if entry.owner == 0 {
        header.set_username("root")?;
        header.set_groupname("root")?;
    }
    header.set_mtime(time);
    let mut content: &[u8] = &[];
    match &entry.content {
        ArchiveContent::Folder => header.set_entry_type(tar::EntryType::Directory),
        ArchiveContent::File(bytes) => {
            header.set_entry_type(tar::EntryType::Regular);
            content = bytes;
        }
    }
    header.set_size(content.len() as u64);
    header.set_cksum();
    archive.append(&header, content)?;
    Ok(())
}

/// Compresses with gzip. The header has no name and no time.
pub(crate) fn gzip(content: &[u8], level: u32) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(content)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn example() -> ArchiveTree {
        let mut tree = ArchiveTree::default();
        tree.program("usr/bin/ferrite", "program");
        tree.folder("var/lib/ferrite", 0o700, 65532);
        tree.file("etc/passwd", "root:x:0:0");
        tree
    }

    fn listing(bytes: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(bytes);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            format!(
                "{:?} {:o} {} {} {} {}",
                header.entry_type(),
                header.mode().unwrap(),
                header.uid().unwrap(),
                header.mtime().unwrap(),
                String::from_utf8_lossy(&header.path_bytes()),
                content
            )
        });
        entries.collect()
    }

    #[test]
    fn writes_entries_in_order_with_their_parents() {
        let expected = [
            "Directory 755 0 7 etc/ ",
            "Regular 644 0 7 etc/passwd root:x:0:0",
            "Directory 755 0 7 usr/ ",
            "Directory 755 0 7 usr/bin/ ",
            "Regular 755 0 7 usr/bin/ferrite program",
            "Directory 755 0 7 var/ ",
            "Directory 755 0 7 var/lib/ ",
            "Directory 700 65532 7 var/lib/ferrite/ ",
        ];
        assert_eq!(listing(&example().tar(7, ArchiveRoot::Plain).unwrap()), expected);
        let debian = listing(&example().tar(7, ArchiveRoot::CurrentFolder).unwrap());
        assert_eq!(debian[0], "Directory 755 0 7 ./ ");
        assert_eq!(debian[2], "Regular 644 0 7 ./etc/passwd root:x:0:0");
    }

    #[test]
    fn same_files_give_the_same_bytes() {
        let mut reversed = ArchiveTree::default();
        reversed.file("etc/passwd", "root:x:0:0");
        reversed.folder("var/lib/ferrite", 0o700, 65532);
        reversed.program("usr/bin/ferrite", "program");
        let first = example().tar(7, ArchiveRoot::Plain).unwrap();
        let second = reversed.tar(7, ArchiveRoot::Plain).unwrap();
        assert!(first == second, "the archives differ");
        assert_eq!(gzip(&first, 9).unwrap(), gzip(&second, 9).unwrap());
    }

    #[test]
    fn rejects_long_names() {
        let mut tree = ArchiveTree::default();
        tree.file(&"a".repeat(101), "");
        let error = tree.tar(0, ArchiveRoot::Plain).unwrap_err();
        assert!(format!("{error:#}").contains("longer than 100 bytes"), "{error:#}");
    }
}
