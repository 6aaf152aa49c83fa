// SPDX-License-Identifier: Apache-2.0
//! Bounded, error-tolerant reads of kernel files below a root that tests can choose.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A sysfs attribute is at most one page.
const MAX_ATTRIBUTE_LENGTH: usize = 4096;

/// Upper bound on directory entries, against a crafted tree.
const MAX_DIRECTORY_ENTRIES: usize = 65_536;

/// A root directory with `sys`, `proc` and `dev` below it.
#[derive(Clone, Debug)]
pub(crate) struct KernelFiles {
    root: PathBuf,
}

impl KernelFiles {
    pub(crate) fn with_root(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the path with the root prepended.
    pub(crate) fn absolute(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// Returns an attribute, trimmed; `None` if it is missing, unreadable or empty.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut file = self.open(path)?;
        // The kernel returns an attribute in a single read of at most one page.
        let mut page = [0; MAX_ATTRIBUTE_LENGTH];
        let length = file.read(&mut page).ok()?;
        let text = printable(page.get(..length)?);
        (!text.is_empty()).then_some(text)
    }

    /// Returns an attribute parsed as a decimal number.
    pub(crate) fn number<N: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<N> {
        self.text(path)?.parse().ok()
    }

    /// Returns at most the first `max` bytes of a file.
    pub(crate) fn bytes(&self, path: impl AsRef<Path>, max: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.take(max).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Opens regular files only: reading a FIFO or a device in a crafted tree could block forever.
    fn open(&self, path: impl AsRef<Path>) -> Option<File> {
        let mut options = OpenOptions::new();
        let file =
            options.read(true).custom_flags(libc::O_NONBLOCK).open(self.absolute(path)).ok()?;
        file.metadata().ok()?.is_file().then_some(file)
    }

    /// Returns the names in a directory in natural order; empty if the directory is missing. Names that
    /// are not UTF-8 are skipped, because the kernel creates none.
    pub(crate) fn file_names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.absolute(path)) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .take(MAX_DIRECTORY_ENTRIES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        crate::natural_order::sort(&mut names);
        names
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.absolute(path).exists()
    }

    pub(crate) fn is_directory(&self, path: impl AsRef<Path>) -> bool {
        self.absolute(path).is_dir()
    }

    pub(crate) fn is_character_device(&self, path: impl AsRef<Path>) -> bool {
        fs::metadata(self.absolute(path)).is_ok_and(|meta| meta.file_type().is_char_device())
    }

    /// Returns the last component of a link's target: `ixgbe` for `../../../bus/pci/drivers/ixgbe`.
    pub(crate) fn link_target_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.absolute(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Resolves all links of a path; the result is relative to the root: `sys/devices/pci0000:00/…`.
    pub(crate) fn canonical(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let root = fs::canonicalize(&self.root).ok()?;
        let path = fs::canonicalize(self.absolute(path)).ok()?;
        Some(path.strip_prefix(root).ok()?.to_owned())
    }
}

/// Decodes device text: drops invalid UTF-8 and control characters, trims blanks.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text: String = text
        .chars()
        .filter(|c| {
            (!c.is_control() || matches!(c, '\n' | '\t')) && *c != char::REPLACEMENT_CHARACTER
        })
        .collect();
    text.trim().to_owned()
}

/// Replaces each run of blanks by one, because devices pad their names.
pub(crate) fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
