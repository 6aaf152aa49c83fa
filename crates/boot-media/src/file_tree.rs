// SPDX-License-Identifier: Apache-2.0
//! The files of a medium by path, and the paths that all supported formats can store.

use std::collections::BTreeMap;

use crate::Content;

/// Maximum length of a name in a Joliet directory.
const MAX_NAME_LENGTH: usize = 64;
/// ISO 9660 allows eight levels, including the root; the file itself is on the last.
const MAX_PATH_DEPTH: usize = 8;
/// Characters that FAT and Windows reject, except the separator `/`.
const FORBIDDEN_CHARACTERS: &[char] = &['"', '*', ':', ';', '<', '>', '?', '\\', '|'];

/// Files by path. Folders exist only if they contain a file.
#[derive(Debug, Clone, Default)]
pub struct FileTree {
    files: Vec<Content>,
    root: TreeFolder,
}

/// Why a path is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaPathError {
    /// A component is empty, `.` or `..`, or contains a character that FAT or ISO 9660 does not allow.
    #[error(
        "{path:?} is not a path for boot media: give a relative path of plain names, without . and .. and without {}",
        FORBIDDEN_CHARACTERS.iter().collect::<String>()
    )]
    InvalidName {
        /// The path.
        path: String,
    },
    /// A name is longer than Joliet allows.
    #[error("a name in {path:?} is longer than {MAX_NAME_LENGTH} characters; shorten it")]
    NameTooLong {
        /// The path.
        path: String,
    },
    /// The file is deeper than ISO 9660 allows.
    #[error("{path:?} is deeper than {MAX_PATH_DEPTH} levels; put the file higher up")]
    TooDeep {
        /// The path.
        path: String,
    },
    /// The path exists already as a file or a folder. FAT ignores case.
    #[error("{path:?} collides with another file on the same medium; give it another name")]
    AlreadyExists {
        /// The path.
        path: String,
    },
}

/// A folder: its entries by lower-case name.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeFolder {
    pub(crate) entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The name, with its case.
    pub(crate) name: String,
    pub(crate) kind: TreeEntryKind,
}

#[derive(Debug, Clone)]
pub(crate) enum TreeEntryKind {
    Folder(TreeFolder),
    /// An index into the files of the tree.
    File(usize),
}

impl FileTree {
    /// Returns an empty tree.
    pub fn new() -> FileTree {
        FileTree::default()
    }

    /// Adds a file under a path like `openstack/latest/meta_data.json`.
    pub fn insert(&mut self, path: &str, content: Content) -> Result<(), MediaPathError> {
        let names = checked_names(path)?;
        let (file_name, folders) = names.split_last().expect("a path has at least one name");
        let taken = || MediaPathError::AlreadyExists { path: path.to_owned() };
        let mut folder = &mut self.root;
        for name in folders {
            let entry = folder.entries.entry(name.to_lowercase()).or_insert_with(|| Entry {
                name: (*name).to_owned(),
                kind: TreeEntryKind::Folder(TreeFolder::default()),
            });
            folder = match &mut entry.kind {
                TreeEntryKind::Folder(inner) => inner,
                TreeEntryKind::File(_) => return Err(taken()),
            };
        }
        let key = file_name.to_lowercase();
        if folder.entries.contains_key(&key) {
            return Err(taken());
        }
        let kind = TreeEntryKind::File(self.files.len());
        folder.entries.insert(key, Entry { name: (*file_name).to_owned(), kind });
        self.files.push(content);
        Ok(())
    }

    /// Returns whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn root(&self) -> &TreeFolder {
        &self.root
    }

    pub(crate) fn files(&self) -> &[Content] {
        &self.files
    }
}

fn checked_names(path: &str) -> Result<Vec<&str>, MediaPathError> {
    let names: Vec<&str> = path.split('/').collect();
    let plain = |name: &&str| {
        // FAT and Windows drop dots and spaces at the end of a name.
        !name.is_empty()
            && !name.ends_with(['.', ' '])
            && !name.chars().any(|c| c.is_control() || FORBIDDEN_CHARACTERS.contains(&c))
            // Joliet and FAT use UCS-2: one unit per character.
            && name.chars().all(|c| c.len_utf16() == 1)
    };
    if !names.iter().all(plain) {
        return Err(MediaPathError::InvalidName { path: path.to_owned() });
    }
    if names.iter().any(|name| name.len() > MAX_NAME_LENGTH) {
        return Err(MediaPathError::NameTooLong { path: path.to_owned() });
    }
    if names.len() > MAX_PATH_DEPTH {
        return Err(MediaPathError::TooDeep { path: path.to_owned() });
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert_all(paths: &[&str]) -> Result<(), MediaPathError> {
        let mut tree = FileTree::new();
        paths.iter().try_for_each(|path| tree.insert(path, Content::new()))
    }

    #[test]
    fn rejects_invalid_and_duplicate_paths() {
        let not_plain = |path: &str| Err(MediaPathError::InvalidName { path: path.to_owned() });
        let taken = |path: &str| Err(MediaPathError::AlreadyExists { path: path.to_owned() });
        assert_eq!(insert_all(&["a/b/c.txt", "a/b/d.txt", "a/.hidden"]), Ok(()));
        for bad in ["", "/a", "a/", "a//b", ".", "a/../b", "a:b", "a\nb", "a.", "a\\b", "\u{1F980}"]
        {
            assert_eq!(insert_all(&[bad]), not_plain(bad), "{bad:?}");
        }
        assert_eq!(insert_all(&["a/b", "A/B"]), taken("A/B"));
        assert_eq!(insert_all(&["a", "a/b"]), taken("a/b"));
        assert_eq!(insert_all(&["a/b", "a"]), taken("a"));
        assert!(matches!(insert_all(&["a/a/a/a/a/a/a/a/a"]), Err(MediaPathError::TooDeep { .. })));
        assert!(matches!(insert_all(&[&"n".repeat(65)]), Err(MediaPathError::NameTooLong { .. })));
    }
}
