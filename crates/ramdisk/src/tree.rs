// SPDX-License-Identifier: Apache-2.0
//! The file tree of a ramdisk, and the archive (cpio, "newc") that the kernel unpacks it from.
//!
//! Archives are reproducible: entries are sorted by path, belong to root, have the modification time
//! 0, and inode numbers from 1.

use std::collections::BTreeMap;
use std::io::{self, Write};

use cpio::newc;

const DIRECTORY: u32 = 0o040_000;
const REGULAR_FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHAR_DEVICE: u32 = 0o020_000;
/// The name of the last entry of an archive.
const TRAILER: &str = "TRAILER!!!";

/// A file cannot be added to the tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A file and a directory have the same path.
    #[error("/{path} cannot be both a directory and a file")]
    Conflict {
        /// The path.
        path: String,
    },
    /// Not a valid path.
    #[error("{path:?} is not a valid path in a ramdisk; give one such as /etc/motd")]
    Path {
        /// The path.
        path: String,
    },
    /// The archive format limits files to 4 GiB.
    #[error("/{path} is larger than 4 GiB, the limit for a file in a ramdisk")]
    Size {
        /// The path.
        path: String,
    },
}

/// Files by path, without the leading slash.
#[derive(Debug, Default)]
pub(crate) struct RamdiskTree(BTreeMap<String, TreeEntry>);

#[derive(Debug)]
enum TreeEntry {
    Directory { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
    Symlink { target: String },
    CharDevice { mode: u32, major: u32, minor: u32 },
}

impl RamdiskTree {
    pub(crate) fn add_dir(&mut self, path: &str, mode: u32) -> Result<(), TreeError> {
        self.insert(path, TreeEntry::Directory { mode })
    }

    /// Adds a file, or replaces the one with this path.
    pub(crate) fn add_file(
        &mut self,
        path: &str,
        mode: u32,
        bytes: Vec<u8>,
    ) -> Result<(), TreeError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(TreeError::Size { path: path.to_owned() });
        }
        self.insert(path, TreeEntry::File { mode, bytes })
    }

    pub(crate) fn add_symlink(&mut self, path: &str, target: &str) -> Result<(), TreeError> {
        self.insert(path, TreeEntry::Symlink { target: target.to_owned() })
    }

    pub(crate) fn add_char_device(
        &mut self,
        path: &str,
        mode: u32,
        (major, minor): (u32, u32),
    ) -> Result<(), TreeError> {
        self.insert(path, TreeEntry::CharDevice { mode, major, minor })
    }

    /// Whether the path exists, also if its directory is a symbolic link.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        if self.0.contains_key(path) {
            return true;
        }
        let Some((folder, name)) = path.rsplit_once('/') else { return false };
        match self.0.get(folder) {
            Some(TreeEntry::Symlink { target }) => {
                let parent =
                    folder.rsplit_once('/').map_or(String::new(), |(up, _)| format!("{up}/"));
                self.0.contains_key(&format!("{parent}{target}/{name}"))
            }
            Some(
                TreeEntry::Directory { .. } | TreeEntry::File { .. } | TreeEntry::CharDevice { .. },
            )
            | None => false,
        }
    }

    fn insert(&mut self, path: &str, entry: TreeEntry) -> Result<(), TreeError> {
        let path = path.trim_start_matches('/');
        let is_invalid = |part: &str| part.is_empty() || part == "." || part == "..";
        if path.split('/').any(is_invalid) || path.contains('\0') || path == TRAILER {
            return Err(TreeError::Path { path: path.to_owned() });
        }
        let conflict = |path: &str| Err(TreeError::Conflict { path: path.to_owned() });
        for (at, _) in path.match_indices('/') {
            let parent = &path[..at];
            match self.0.get(parent) {
                Some(TreeEntry::Directory { .. }) => {}
                // The kernel follows links when it unpacks the entry.
                Some(TreeEntry::Symlink { .. }) => break,
                Some(TreeEntry::File { .. } | TreeEntry::CharDevice { .. }) => {
                    return conflict(parent);
                }
                None => {
                    self.0.insert(parent.to_owned(), TreeEntry::Directory { mode: 0o755 });
                }
            }
        }
        let was_directory = matches!(self.0.get(path), Some(TreeEntry::Directory { .. }));
        let is_directory = matches!(entry, TreeEntry::Directory { .. });
        if was_directory != is_directory && self.0.contains_key(path) {
            return conflict(path);
        }
        self.0.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Writes the archive.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for (inode, (path, entry)) in (1..).zip(&self.0) {
            let header = newc::Builder::new(path).ino(inode);
            let (header, content) = match entry {
                TreeEntry::Directory { mode } => (header.mode(DIRECTORY | mode).nlink(2), &[][..]),
                TreeEntry::File { mode, bytes } => {
                    (header.mode(REGULAR_FILE | mode), bytes.as_slice())
                }
                TreeEntry::Symlink { target } => (header.mode(SYMLINK | 0o777), target.as_bytes()),
                TreeEntry::CharDevice { mode, major, minor } => {
                    let header = header.mode(CHAR_DEVICE | mode);
                    (header.rdev_major(*major).rdev_minor(*minor), &[][..])
                }
            };
            let size = u32::try_from(content.len()).map_err(io::Error::other)?;
            let mut writer = header.write(&mut *out, size);
            writer.write_all(content)?;
            writer.finish()?;
        }
        newc::trailer(out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
