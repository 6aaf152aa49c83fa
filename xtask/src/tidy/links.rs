// SPDX-License-Identifier: Apache-2.0
//! Checks that links in documents have targets and that the book contains every page.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use crate::repository::TextFile;

/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";
/// These pages are linked from a page of the book.
const NOT_IN_BOOK: &str = "docs/decisions/";

/// Returns broken links, and pages that are missing in the book.
pub(super) fn complaints(root: &Path, files: &[TextFile]) -> Vec<String> {
    let documents: Vec<&TextFile> = files.iter().filter(|file| file.has_ending("md")).collect();
    let mut complaints = Vec::new();
    let mut in_book = HashSet::new();
    for document in &documents {
        for link in links(&document.text) {
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let Some(path) = resolve(&document.path, path) else {
                complaints.push(format!("{}: {link} leads out of the repository", document.path));
                continue;
            };
            if document.path == SUMMARY {
                in_book.insert(path.clone());
            }
            let target = documents.iter().find(|other| Path::new(&other.path) == path);
            let exists = match target {
                Some(page) => heading.is_empty() || headings(&page.text).any(|it| it == heading),
                None => root.join(&path).exists(),
            };
            if !exists {
                complaints.push(format!("{}: {link} has no target", document.path));
            }
        }
    }
    let pages = documents.iter().map(|document| &document.path);
    let missing = pages.filter(|path| {
        path.starts_with("docs/")
            && *path != SUMMARY
            && (!path.starts_with(NOT_IN_BOOK) || path.ends_with("README.md"))
            && !in_book.contains(Path::new(path))
    });
    complaints.extend(missing.map(|path| format!("{path} is not in {SUMMARY}")));
    complaints
}

/// The targets of the links of a page, except links to other sites and in code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for rest in plain.split("](").skip(1) {
            let link = rest.split([')', ' ']).next().unwrap_or_default();
            if !link.contains("://") && !link.starts_with("mailto:") {
                found.push(link.to_owned());
            }
        }
    }
    found
}

/// The anchors of the headings of a page.
fn headings(text: &str) -> impl Iterator<Item = String> + '_ {
    prose(text).filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len() && heading.starts_with(' ')).then(|| {
            let kept = heading.trim().chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                _ => letter.is_alphanumeric().then(|| letter.to_ascii_lowercase()),
            });
            kept.collect()
        })
    })
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_example = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_example ^= fence;
        !in_example && !fence
    })
}

/// Resolves a path relative to a file. Returns `None` if it is outside of the repository.
fn resolve(file: &str, path: &str) -> Option<PathBuf> {
    if path.is_empty() {
        return Some(PathBuf::from(file));
    }
    let mut found: PathBuf = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => found.push(name),
            Component::ParentDir => {
                if !found.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_broken_links() {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        let files = [
            file(
                "docs/SUMMARY.md",
                "- [A](guide/a.md)\n- [Out](../../x.md)\n- [None](guide/none.md)\n",
            ),
            file(
                "docs/guide/a.md",
                "# A `b`, and c\n[b](../b.md#two-words) [self](#a-b-and-c) [bad](#nothing)\n\
                 `[code](none.md)` [site](https://example.com)\n```\n[example](none.md)\n```\n",
            ),
            file("docs/b.md", "## Two words\n"),
        ];
        assert_eq!(
            complaints(Path::new("/nowhere"), &files),
            [
                "docs/SUMMARY.md: ../../x.md leads out of the repository",
                "docs/SUMMARY.md: guide/none.md has no target",
                "docs/guide/a.md: #nothing has no target",
                "docs/b.md is not in docs/SUMMARY.md",
            ]
        );
    }
}
