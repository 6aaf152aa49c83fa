// SPDX-License-Identifier: Apache-2.0
//! Reads the kernel's files: bounded, forgiving, below a root that tests can choose.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The longest attribute there is: a page.
const LONGEST_TEXT: usize = 4096;

/// A folder with more entries than this is not one the kernel made.
const MOST_NAMES: usize = 65_536;

/// A root with `sys`, `proc` and `dev` below it.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where a file is for the rest of the program.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// An attribute without the blanks around it; nothing if it is missing, unreadable or empty.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut file = self.open(path)?;
        // The kernel hands out an attribute in one piece of at most a page, so one read is all it takes.
        let mut page = [0; LONGEST_TEXT];
        let length = file.read(&mut page).ok()?;
        let text = printable(page.get(..length)?);
        (!text.is_empty()).then_some(text)
    }

    /// A number in decimal.
    pub(crate) fn number<N: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<N> {
        self.text(path)?.parse().ok()
    }

    /// A file's first bytes.
    pub(crate) fn bytes(&self, path: impl AsRef<Path>, most: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.take(most).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Opens a file that is one: a fifo or a device in a made-up tree would block or never end.
    fn open(&self, path: impl AsRef<Path>) -> Option<File> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(self.path(path)).ok()?;
        file.metadata().ok()?.is_file().then_some(file)
    }

    /// The names in a folder, sorted; none if there is no such folder. Names that are not UTF-8 are
    /// none the kernel gives.
    pub(crate) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .take(MOST_NAMES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        crate::natural::sort(&mut names);
        names
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    pub(crate) fn is_folder(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).is_dir()
    }

    pub(crate) fn is_character_device(&self, path: impl AsRef<Path>) -> bool {
        fs::metadata(self.path(path)).is_ok_and(|meta| meta.file_type().is_char_device())
    }

    /// The last part of what a link points to: `../../../bus/pci/drivers/ixgbe` is `ixgbe`.
    pub(crate) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Where a path leads after all links, from the root on: `sys/devices/pci0000:00/…`.
    pub(crate) fn resolved(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let root = fs::canonicalize(&self.root).ok()?;
        let path = fs::canonicalize(self.path(path)).ok()?;
        Some(path.strip_prefix(root).ok()?.to_owned())
    }
}

/// Text of a device: what is no character or not printable becomes nothing, blanks around it go.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let kept: String = text
        .chars()
        .filter(|c| {
            (!c.is_control() || matches!(c, '\n' | '\t')) && *c != char::REPLACEMENT_CHARACTER
        })
        .collect();
    kept.trim().to_owned()
}

/// Words with one blank between them: devices pad their names.
pub(crate) fn single_blanks(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
