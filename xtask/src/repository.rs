// SPDX-License-Identifier: Apache-2.0
//! Where the repository is and which files it consists of.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders that are made by builds and runs, not written by people.
const NOT_OURS: &[&str] = &["target", ".git", "data"];

/// The root of the repository.
///
/// Cargo says at run time where xtask's manifest is; the path is not compiled in, so a moved
/// checkout keeps working.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    match manifest.as_deref().and_then(Path::parent) {
        Some(root) => root.to_owned(),
        None => PathBuf::from("."),
    }
}

/// Where cargo puts what it builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// A file of the repository that can be read as text.
pub(crate) struct TextFile {
    /// Path from the root, with forward slashes.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) text: String,
}

impl TextFile {
    /// Whether the file name ends in `.ending`.
    pub(crate) fn has_ending(&self, ending: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == ending)
    }
}

/// Every text file of the repository, in order of path.
pub(crate) fn text_files(root: &Path) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<TextFile>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let name = entry.file_name();
            let made = folder == root && NOT_OURS.iter().any(|not_ours| name == *not_ours);
            if !made && name != "__pycache__" && name != "node_modules" {
                collect(root, &path, files)?;
            }
        } else if kind.is_file() {
            // What is not UTF-8 (images, recordings) has no lines to check.
            if let Ok(text) = fs::read_to_string(&path) {
                let relative = path.strip_prefix(root).unwrap_or(&path);
                files.push(TextFile { path: relative.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    Ok(())
}
