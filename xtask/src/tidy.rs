// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask tidy`: the rules of the house that the compiler does not know.
//!
//! The same checks run as tests, so that `cargo test` alone keeps them too.

mod dependencies;
mod documents;
mod files;
mod links;
mod symptoms;

use anyhow::{Result, bail};

use crate::{repository, say};
pub(crate) use documents::regenerate as regenerate_documents;

/// Checks everything and lists all that is wrong.
pub(crate) fn run() -> Result<()> {
    let root = repository::root();
    let files = repository::text_files(&root)?;
    let mut complaints = files::complaints(&files);
    complaints.extend(dependencies::complaints(&dependencies::read(&root)?));
    complaints.extend(documents::complaints(&root, &files)?);
    complaints.extend(links::complaints(&root, &files));
    complaints.extend(symptoms::complaints(&files));
    for complaint in &complaints {
        say::line(complaint);
    }
    if complaints.is_empty() {
        say::line(&format!("{} files are tidy", files.len()));
        Ok(())
    } else {
        bail!("{} untidy things", complaints.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(complaints: &[String]) {
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn files_are_tidy() {
        none(&files::complaints(&repository::text_files(&repository::root()).unwrap()));
    }

    #[test]
    fn crates_depend_only_on_what_they_may() {
        none(&dependencies::complaints(&dependencies::read(&repository::root()).unwrap()));
    }

    #[test]
    fn links_lead_somewhere() {
        let root = repository::root();
        none(&links::complaints(&root, &repository::text_files(&root).unwrap()));
    }

    #[test]
    fn the_guide_explains_errors_that_there_are() {
        none(&symptoms::complaints(&repository::text_files(&repository::root()).unwrap()));
    }

    #[test]
    fn documents_are_there_and_tell_of_every_crate() {
        let root = repository::root();
        let files = repository::text_files(&root).unwrap();
        none(&documents::complaints(&root, &files).unwrap());
    }
}
