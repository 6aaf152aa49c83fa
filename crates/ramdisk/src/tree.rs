// SPDX-License-Identifier: Apache-2.0
//! The files of a ramdisk, and the archive (cpio, "newc") that the kernel unpacks them from.
//!
//! The same files give the same bytes: they are in the order of their names, belong to root, have
//! no times, and are numbered from one.

use std::collections::BTreeMap;
use std::io::{self, Write};

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const END: &str = "TRAILER!!!";

/// Why a file cannot have its place.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A folder would have to be a file too.
    #[error("/{path} would be a folder and a file at once")]
    Taken {
        /// The place.
        path: String,
    },
    /// The path is not one in a ramdisk.
    #[error("{path:?} is no place in a ramdisk; give one such as /etc/motd")]
    Path {
        /// The path.
        path: String,
    },
    /// The archive cannot hold it.
    #[error("/{path} is larger than the 4 GiB a file in a ramdisk can have")]
    Size {
        /// The place.
        path: String,
    },
}

/// Files by path, without the first slash.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, Node>);

#[derive(Debug)]
enum Node {
    Folder { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
    Link { to: String },
    Device { mode: u32, major: u32, minor: u32 },
}

impl Tree {
    pub(crate) fn folder(&mut self, path: &str, mode: u32) -> Result<(), TreeError> {
        self.put(path, Node::Folder { mode })
    }

    /// Puts a file, instead of one that may be there.
    pub(crate) fn file(&mut self, path: &str, mode: u32, bytes: Vec<u8>) -> Result<(), TreeError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(TreeError::Size { path: path.to_owned() });
        }
        self.put(path, Node::File { mode, bytes })
    }

    pub(crate) fn link(&mut self, path: &str, to: &str) -> Result<(), TreeError> {
        self.put(path, Node::Link { to: to.to_owned() })
    }

    pub(crate) fn character_device(
        &mut self,
        path: &str,
        mode: u32,
        (major, minor): (u32, u32),
    ) -> Result<(), TreeError> {
        self.put(path, Node::Device { mode, major, minor })
    }

    /// Whether there is something, be it behind the links of folders.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        if self.0.contains_key(path) {
            return true;
        }
        let Some((folder, name)) = path.rsplit_once('/') else { return false };
        match self.0.get(folder) {
            Some(Node::Link { to }) => {
                let beside =
                    folder.rsplit_once('/').map_or(String::new(), |(up, _)| format!("{up}/"));
                self.0.contains_key(&format!("{beside}{to}/{name}"))
            }
            Some(Node::Folder { .. } | Node::File { .. } | Node::Device { .. }) | None => false,
        }
    }

    fn put(&mut self, path: &str, node: Node) -> Result<(), TreeError> {
        let path = path.trim_start_matches('/');
        let is_odd = |part: &str| part.is_empty() || part == "." || part == "..";
        if path.split('/').any(is_odd) || path.contains('\0') || path == END {
            return Err(TreeError::Path { path: path.to_owned() });
        }
        let taken = |path: &str| Err(TreeError::Taken { path: path.to_owned() });
        for (at, _) in path.match_indices('/') {
            let parent = &path[..at];
            match self.0.get(parent) {
                Some(Node::Folder { .. }) => {}
                // What is below a link goes where it leads: the kernel follows it.
                Some(Node::Link { .. }) => break,
                Some(Node::File { .. } | Node::Device { .. }) => return taken(parent),
                None => {
                    self.0.insert(parent.to_owned(), Node::Folder { mode: 0o755 });
                }
            }
        }
        let was_folder = matches!(self.0.get(path), Some(Node::Folder { .. }));
        if was_folder != matches!(node, Node::Folder { .. }) && self.0.contains_key(path) {
            return taken(path);
        }
        self.0.insert(path.to_owned(), node);
        Ok(())
    }

    /// Writes the archive.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for (number, (path, node)) in (1..).zip(&self.0) {
            let (mode, links, data, device) = match node {
                Node::Folder { mode } => (FOLDER | mode, 2, &[][..], (0, 0)),
                Node::File { mode, bytes } => (FILE | mode, 1, bytes.as_slice(), (0, 0)),
                Node::Link { to } => (LINK | 0o777, 1, to.as_bytes(), (0, 0)),
                Node::Device { mode, major, minor } => {
                    (CHARACTER_DEVICE | mode, 1, &[][..], (*major, *minor))
                }
            };
            entry(out, number, path, mode, links, data, device)?;
        }
        entry(out, 0, END, 0, 1, &[], (0, 0))
    }
}

fn entry(
    out: &mut impl Write,
    number: u32,
    path: &str,
    mode: u32,
    links: u32,
    data: &[u8],
    (major, minor): (u32, u32),
) -> io::Result<()> {
    let size = u32::try_from(data.len()).map_err(io::Error::other)?;
    let name = u32::try_from(path.len() + 1).map_err(io::Error::other)?;
    let mut header = "070701".to_owned();
    // Owner, group, time, and the device the archive was made on are nothing to the kernel.
    let fields = [number, mode, 0, 0, links, 0, size, 0, 0, major, minor, name, 0];
    for field in fields {
        header.push_str(&format!("{field:08x}"));
    }
    header.push_str(path);
    header.push('\0');
    out.write_all(header.as_bytes())?;
    out.write_all(padding(header.len()))?;
    out.write_all(data)?;
    out.write_all(padding(data.len()))
}

/// Everything begins at a multiple of four.
fn padding(length: usize) -> &'static [u8] {
    &[0; 3][..length.next_multiple_of(4) - length]
}

#[cfg(test)]
mod tests;
