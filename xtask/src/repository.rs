// SPDX-License-Identifier: Apache-2.0
//! The root folder and the text files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders at the root that builds and runs create.
const GENERATED_FOLDERS: &[&str] = &["target", ".git", "data"];

/// The root of the repository.
///
/// Cargo sets the path of xtask's manifest at run time, so a moved checkout keeps working.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    match manifest.as_deref().and_then(Path::parent) {
        Some(root) => root.to_owned(),
        None => PathBuf::from("."),
    }
}

/// The build folder of cargo.
pub(crate) fn target(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// A text file of the repository.
pub(crate) struct TextFile {
    /// Path from the root, with forward slashes.
    pub(crate) path: String,
    /// The content.
    pub(crate) text: String,
}

impl TextFile {
    /// Returns whether the file name ends with `.ending`.
    pub(crate) fn has_ending(&self, ending: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == ending)
    }
}

/// Returns all text files of the repository, sorted by path.
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
            let made = folder == root && GENERATED_FOLDERS.iter().any(|folder| name == *folder);
            if !made && name != "__pycache__" && name != "node_modules" {
                collect(root, &path, files)?;
            }
        } else if kind.is_file() {
            // Files that are not UTF-8 (images, recordings) are ignored.
            if let Ok(text) = fs::read_to_string(&path) {
                let relative = path.strip_prefix(root).unwrap_or(&path);
                files.push(TextFile { path: relative.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    Ok(())
}
