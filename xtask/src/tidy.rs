// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask tidy`: rules of the code base that the compiler does not check.
//!
//! The same checks run as tests, so that `cargo test` finds violations too.

mod dependencies;
mod documents;
mod files;
mod links;
mod names;
mod symptoms;
mod vocabulary;

use std::path::Path;

use anyhow::{Result, bail};

use crate::{print, repository};
pub(crate) use documents::regenerate as regenerate_documents;

/// Runs all checks and prints every violation.
pub(crate) fn run() -> Result<()> {
    let root = repository::root();
    let files = repository::text_files(&root)?;
    let mut complaints = files::complaints(&files);
    complaints.extend(dependencies::complaints(&dependencies::read(&root)?));
    complaints.extend(documents::complaints(&root, &files)?);
    complaints.extend(links::complaints(&root, &files));
    complaints.extend(symptoms::complaints(&files));
    complaints.extend(names::complaints(&files, &workspace_crates(&root)?));
    complaints.extend(vocabulary::complaints(&files));
    for complaint in &complaints {
        print::line(complaint);
    }
    if complaints.is_empty() {
        print::line(&format!("{} files are tidy", files.len()));
        Ok(())
    } else {
        bail!("{} violations", complaints.len())
    }
}

/// The names of the crates of the workspace, from their folders.
fn workspace_crates(root: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(root.join("crates"))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_none(complaints: &[String]) {
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn names_are_unique_and_crates_are_not_re_exported() {
        let root = repository::root();
        let files = repository::text_files(&root).unwrap();
        assert_none(&names::complaints(&files, &workspace_crates(&root).unwrap()));
    }

    #[test]
    fn retired_words_are_not_used() {
        assert_none(&vocabulary::complaints(&repository::text_files(&repository::root()).unwrap()));
    }

    #[test]
    fn files_are_tidy() {
        assert_none(&files::complaints(&repository::text_files(&repository::root()).unwrap()));
    }

    #[test]
    fn crates_depend_only_on_what_they_may() {
        assert_none(&dependencies::complaints(&dependencies::read(&repository::root()).unwrap()));
    }

    #[test]
    fn links_have_targets() {
        let root = repository::root();
        assert_none(&links::complaints(&root, &repository::text_files(&root).unwrap()));
    }

    #[test]
    fn the_guide_explains_existing_errors() {
        assert_none(&symptoms::complaints(&repository::text_files(&repository::root()).unwrap()));
    }

    #[test]
    fn documents_exist_and_mention_every_crate() {
        let root = repository::root();
        let files = repository::text_files(&root).unwrap();
        assert_none(&documents::complaints(&root, &files).unwrap());
    }
}
