// SPDX-License-Identifier: Apache-2.0
//! Checks that the errors which the guide explains exist in the program.

use crate::repository::TextFile;

/// The first line of tables whose first column has error messages.
const HEAD: &str = "| `last_error` contains |";

/// Returns the explained errors that no source file contains.
pub(super) fn complaints(files: &[TextFile]) -> Vec<String> {
    let sources: Vec<String> = files
        .iter()
        .filter(|file| file.has_ending("rs") && file.path.starts_with("crates/"))
        .map(|file| in_one_line(&file.text))
        .collect();
    let mut complaints = Vec::new();
    for document in files.iter().filter(|file| file.has_ending("md")) {
        for message in symptoms(&document.text) {
            if !sources.iter().any(|source| source.contains(message)) {
                complaints.push(format!("{}: no error contains '{message}'", document.path));
            }
        }
    }
    complaints
}

/// The first column of the error tables.
fn symptoms(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    text.lines().filter_map(move |line| {
        let is_head = line.starts_with(HEAD);
        is_inside = line.starts_with('|') && (is_inside || is_head);
        let cell = line.strip_prefix('|')?.split('|').next()?.trim();
        (is_inside && !is_head && !cell.starts_with("---")).then_some(cell)
    })
}

/// Joins lines; string literals continue after a backslash.
fn in_one_line(source: &str) -> String {
    let lines = source.lines().map(|line| line.trim().trim_end_matches('\\'));
    lines.collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn reports_explained_errors_that_do_not_exist() {
        let guide = "| message | do |\n|---|---|\n| no such word | |\n\n\
                     | `last_error` contains | do |\n|---|---|\n| the disk is full | |\n| the moon is full | |\n";
        let source = "#[error(\"the disk \\\n        is full\")]";
        let files = [file("docs/guide.md", guide), file("crates/disk/src/lib.rs", source)];
        assert_eq!(complaints(&files), ["docs/guide.md: no error contains 'the moon is full'"]);
    }
}
