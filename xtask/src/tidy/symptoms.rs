// SPDX-License-Identifier: Apache-2.0
//! The errors that the guide explains are errors that the program says.

use crate::repository::TextFile;

/// How tables begin whose first column has words of errors.
const HEAD: &str = "| `last_error` says |";

/// Words of errors in documents that nothing in the program says.
pub(super) fn complaints(files: &[TextFile]) -> Vec<String> {
    let sources: Vec<String> = files
        .iter()
        .filter(|file| file.has_ending("rs") && file.path.starts_with("crates/"))
        .map(|file| in_one_line(&file.text))
        .collect();
    let mut complaints = Vec::new();
    for document in files.iter().filter(|file| file.has_ending("md")) {
        for words in symptoms(&document.text) {
            if !sources.iter().any(|source| source.contains(words)) {
                complaints.push(format!("{}: nothing says '{words}'", document.path));
            }
        }
    }
    complaints
}

/// The first cells of the tables of errors.
fn symptoms(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    text.lines().filter_map(move |line| {
        let is_head = line.starts_with(HEAD);
        is_inside = line.starts_with('|') && (is_inside || is_head);
        let cell = line.strip_prefix('|')?.split('|').next()?.trim();
        (is_inside && !is_head && !cell.starts_with("---")).then_some(cell)
    })
}

/// Literals go on in the next line after a backslash.
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
    fn words_are_looked_for_in_what_the_program_says() {
        let guide = "| it says | do |\n|---|---|\n| no such word | |\n\n\
                     | `last_error` says | do |\n|---|---|\n| the disk is full | |\n| the moon is full | |\n";
        let source = "#[error(\"the disk \\\n        is full\")]";
        let files = [file("docs/guide.md", guide), file("crates/disk/src/lib.rs", source)];
        assert_eq!(complaints(&files), ["docs/guide.md: nothing says 'the moon is full'"]);
    }
}
