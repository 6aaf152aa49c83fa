// SPDX-License-Identifier: Apache-2.0
//! The files that go onto a medium, by path, and which paths every format here can carry.

use std::collections::BTreeMap;

use crate::Content;

/// Names longer than this do not fit a Joliet directory.
const LONGEST_NAME: usize = 64;
/// ISO 9660 allows eight levels, the root among them; the file itself is on the last.
const DEEPEST_PATH: usize = 8;
/// FAT and Windows refuse these; `/` separates.
const FORBIDDEN: &[char] = &['"', '*', ':', ';', '<', '>', '?', '\\', '|'];

/// Files by path. A folder exists because a file is in it.
#[derive(Debug, Clone, Default)]
pub struct FileTree {
    files: Vec<Content>,
    root: Folder,
}

/// Why a path cannot go onto a medium.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A component is empty, `.` or `..`, or holds a character that FAT or ISO 9660 cannot carry.
    #[error(
        "{path:?} is not a path for boot media: give a relative path of plain names, without . and .. and without {}",
        FORBIDDEN.iter().collect::<String>()
    )]
    NotPlain {
        /// The path as given.
        path: String,
    },
    /// A name is longer than Joliet carries.
    #[error("a name in {path:?} is longer than {LONGEST_NAME} characters; shorten it")]
    NameTooLong {
        /// The path as given.
        path: String,
    },
    /// The file is deeper than ISO 9660 allows.
    #[error("{path:?} is deeper than {DEEPEST_PATH} levels; put the file higher up")]
    TooDeep {
        /// The path as given.
        path: String,
    },
    /// Two files of one name (upper and lower case are one on FAT), or a file where a folder is.
    #[error("{path:?} collides with another file on the same medium; give it another name")]
    Taken {
        /// The path as given.
        path: String,
    },
}

/// One folder: what is in it, by name in lower case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folder {
    pub(crate) entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The name as given.
    pub(crate) name: String,
    pub(crate) kind: EntryKind,
}

#[derive(Debug, Clone)]
pub(crate) enum EntryKind {
    Folder(Folder),
    /// An index into the files of the tree.
    File(usize),
}

impl FileTree {
    /// No files.
    pub fn new() -> FileTree {
        FileTree::default()
    }

    /// Adds a file under a path like `openstack/latest/meta_data.json`.
    pub fn insert(&mut self, path: &str, content: Content) -> Result<(), PathError> {
        let names = checked_names(path)?;
        let (file_name, folders) = names.split_last().expect("a path has at least one name");
        let taken = || PathError::Taken { path: path.to_owned() };
        let mut folder = &mut self.root;
        for name in folders {
            let entry = folder.entries.entry(name.to_lowercase()).or_insert_with(|| Entry {
                name: (*name).to_owned(),
                kind: EntryKind::Folder(Folder::default()),
            });
            folder = match &mut entry.kind {
                EntryKind::Folder(inner) => inner,
                EntryKind::File(_) => return Err(taken()),
            };
        }
        let key = file_name.to_lowercase();
        if folder.entries.contains_key(&key) {
            return Err(taken());
        }
        let kind = EntryKind::File(self.files.len());
        folder.entries.insert(key, Entry { name: (*file_name).to_owned(), kind });
        self.files.push(content);
        Ok(())
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn root(&self) -> &Folder {
        &self.root
    }

    pub(crate) fn files(&self) -> &[Content] {
        &self.files
    }
}

fn checked_names(path: &str) -> Result<Vec<&str>, PathError> {
    let names: Vec<&str> = path.split('/').collect();
    let plain = |name: &&str| {
        // A name that ends in a dot or a space loses its end on FAT and on Windows.
        !name.is_empty()
            && !name.ends_with(['.', ' '])
            && !name.chars().any(|c| c.is_control() || FORBIDDEN.contains(&c))
            // Joliet and FAT count in UCS-2: one unit for each character.
            && name.chars().all(|c| c.len_utf16() == 1)
    };
    if !names.iter().all(plain) {
        return Err(PathError::NotPlain { path: path.to_owned() });
    }
    if names.iter().any(|name| name.len() > LONGEST_NAME) {
        return Err(PathError::NameTooLong { path: path.to_owned() });
    }
    if names.len() > DEEPEST_PATH {
        return Err(PathError::TooDeep { path: path.to_owned() });
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(paths: &[&str]) -> Result<(), PathError> {
        let mut tree = FileTree::new();
        paths.iter().try_for_each(|path| tree.insert(path, Content::new()))
    }

    #[test]
    fn paths_are_judged() {
        let not_plain = |path: &str| Err(PathError::NotPlain { path: path.to_owned() });
        let taken = |path: &str| Err(PathError::Taken { path: path.to_owned() });
        assert_eq!(verdict(&["a/b/c.txt", "a/b/d.txt", "a/.hidden"]), Ok(()));
        for bad in ["", "/a", "a/", "a//b", ".", "a/../b", "a:b", "a\nb", "a.", "a\\b", "\u{1F980}"]
        {
            assert_eq!(verdict(&[bad]), not_plain(bad), "{bad:?}");
        }
        assert_eq!(verdict(&["a/b", "A/B"]), taken("A/B"));
        assert_eq!(verdict(&["a", "a/b"]), taken("a/b"));
        assert_eq!(verdict(&["a/b", "a"]), taken("a"));
        assert!(matches!(verdict(&["a/a/a/a/a/a/a/a/a"]), Err(PathError::TooDeep { .. })));
        assert!(matches!(verdict(&[&"n".repeat(65)]), Err(PathError::NameTooLong { .. })));
    }
}
