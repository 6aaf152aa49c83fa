// SPDX-License-Identifier: Apache-2.0
//! Checks file headers, lengths, names, unfinished code, local paths and lock files.

use crate::repository::TextFile;

/// Longer files usually have a second subject.
const LONGEST_FILE: usize = 800;
/// Tables and generated files may be longer.
const LONG_FILES: &[&str] = &[];
/// File names that do not describe the content.
const MEANINGLESS_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "misc"];

const LICENCE: &str = "// SPDX-License-Identifier: Apache-2.0";
const STYLE_LICENCE: &str = "/* SPDX-License-Identifier: Apache-2.0 */";
/// Code of other projects is not checked.
const VENDORED: &str = "/vendor/";

/// Patterns that must not be in a Rust file. They are split so that this file does not contain
/// them.
const UNFINISHED: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it, or give the caller an error"),
    (concat!("unimple", "mented!("), "finish it, or give the caller an error"),
    (concat!("db", "g!("), "log it with tracing, or remove it"),
    (concat!("#[ig", "nore"), "a test that does not run proves nothing: fix or remove it"),
];

/// Paths on a developer's machine.
const LOCAL_PATHS: &[&str] = &[
    concat!("/wo", "rk/main"),
    concat!("/wo", "rk/shared"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/t", "mp/"),
    concat!(".cache/ferrite", "-kit"),
];
/// Files and texts in which such a path is an example or test data.
const ALLOWED_LOCAL_PATHS: &[(&str, &str)] = &[];

/// The only registry that Cargo.lock may name.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns violations in single files.
pub(super) fn complaints(files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        if file.has_ending("rs") {
            rust(file, &mut complaints);
        }
        if !file.path.contains(VENDORED) {
            if file.has_ending("js") {
                browser(file, LICENCE, "// ", &mut complaints);
            }
            if file.has_ending("css") {
                browser(file, STYLE_LICENCE, "/* ", &mut complaints);
            }
        }
        local_paths(file, &mut complaints);
        if file.path.ends_with("Cargo.lock") {
            cargo_lock(file, &mut complaints);
        }
        if file.path.ends_with("package-lock.json") {
            package_lock(file, &mut complaints);
        }
        if file.path.ends_with("requirements.txt") {
            python_requirements(file, &mut complaints);
        }
    }
    complaints
}

fn rust(file: &TextFile, complaints: &mut Vec<String>) {
    let path = &file.path;
    let mut lines = file.text.lines();
    if lines.next() != Some(LICENCE) {
        complaints.push(format!("{path}:1: does not start with `{LICENCE}`"));
    }
    if !lines.next().is_some_and(|line| line.starts_with("//! ") && line.len() > 10) {
        complaints.push(format!("{path}:2: no `//!` sentence that states the purpose of the file"));
    }
    length_and_name(file, complaints);
    for (number, line) in numbered(&file.text) {
        for (pattern, advice) in UNFINISHED {
            if line.contains(pattern) {
                complaints.push(format!("{path}:{number}: {pattern}…: {advice}"));
            }
        }
    }
}

/// Checks the header of JavaScript and CSS: licence, then purpose.
fn browser(file: &TextFile, licence: &str, comment: &str, complaints: &mut Vec<String>) {
    let path = &file.path;
    let mut lines = file.text.lines();
    if lines.next() != Some(licence) {
        complaints.push(format!("{path}:1: does not start with `{licence}`"));
    }
    if !lines.next().is_some_and(|line| line.starts_with(comment) && line.len() > 10) {
        complaints.push(format!("{path}:2: no comment that states the purpose of the file"));
    }
    length_and_name(file, complaints);
}

fn length_and_name(file: &TextFile, complaints: &mut Vec<String>) {
    let path = &file.path;
    let count = file.text.lines().count();
    if count > LONGEST_FILE && !LONG_FILES.contains(&path.as_str()) {
        complaints.push(format!(
            "{path}: {count} lines; longer than {LONGEST_FILE}, split it by subject"
        ));
    }
    let name = path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or(path);
    if MEANINGLESS_NAMES.contains(&name) {
        complaints.push(format!("{path}: `{name}` does not describe the content"));
    }
}

fn local_paths(file: &TextFile, complaints: &mut Vec<String>) {
    for (number, line) in numbered(&file.text) {
        for place in LOCAL_PATHS {
            let meant = ALLOWED_LOCAL_PATHS
                .iter()
                .any(|(path, text)| *path == file.path && line.contains(text));
            if contains_path(line, place) && !meant {
                complaints.push(format!(
                    "{}:{number}: names {place}, a path on one machine only",
                    file.path
                ));
            }
        }
    }
}

/// Returns whether the line contains the path as an absolute path, not as the end of a longer one.
fn contains_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "._-~})>/".contains(before))
            || line[..at].ends_with("://")
    })
}

fn cargo_lock(file: &TextFile, complaints: &mut Vec<String>) {
    for (number, line) in numbered(&file.text) {
        if let Some(source) = line.strip_prefix("source = ")
            && source.trim_matches('"') != CRATES_IO
        {
            complaints.push(format!("{}:{number}: {source} is not crates.io", file.path));
        }
    }
}

/// A lock file without registry addresses works with every mirror.
fn package_lock(file: &TextFile, complaints: &mut Vec<String>) {
    for (number, line) in numbered(&file.text) {
        if line.contains("\"resolved\":") {
            complaints.push(format!(
                "{}:{number}: names a registry: npm install --omit-lockfile-registry-resolved",
                file.path
            ));
        }
    }
}

fn python_requirements(file: &TextFile, complaints: &mut Vec<String>) {
    for (number, line) in numbered(&file.text) {
        let pinned = line.is_empty() || line.starts_with('#') || line.contains("==");
        if !pinned || line.contains("://") || line.starts_with('-') {
            complaints.push(format!("{}:{number}: only `name==version` is allowed", file.path));
        }
    }
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "// SPDX-License-Identifier: Apache-2.0\n//! What this is for.\n";

    fn check(path: &str, text: &str) -> String {
        complaints(&[TextFile { path: path.to_owned(), text: text.to_owned() }]).join("\n")
    }

    #[test]
    fn each_rule_reports_its_violation() {
        let long = format!("{GOOD}{}", "\n".repeat(900));
        let unfinished = format!("{GOOD}fn f() {{ {}) }}", UNFINISHED[0].0);
        let local = format!("see {}notes", LOCAL_PATHS[2]);
        let mirror = "source = \"registry+https://mirror.example/index\"";
        for (path, text, expected) in [
            ("a.rs", GOOD, ""),
            ("a.rs", "fn main() {}", "does not start with"),
            ("a.rs", &GOOD.replace("//! What", "// What"), "no `//!` sentence"),
            ("a.rs", &long, "split it by subject"),
            ("src/helpers.rs", GOOD, "does not describe the content"),
            ("a.rs", &unfinished, "finish it"),
            ("a.js", "// SPDX-License-Identifier: Apache-2.0\n// What this is for.", ""),
            ("a.js", "export {};", "does not start with"),
            ("a.css", "/* SPDX-License-Identifier: Apache-2.0 */\n* {}", "no comment"),
            ("page/utils.js", "", "does not describe the content"),
            ("page/vendor/a.js", "export {};", ""),
            ("x/package-lock.json", "\"resolved\": \"https://npm.example/\"", "names a registry"),
            ("README.md", &local, "a path on one machine only"),
            ("README.md", "target/tmp/x and ~/tmp/x", ""),
            ("Cargo.lock", mirror, "is not crates.io"),
            ("Cargo.lock", &format!("source = \"{CRATES_IO}\""), ""),
            ("x/requirements.txt", "# comment\n\na==1", ""),
            ("x/requirements.txt", "a>=1", "name==version"),
            ("x/requirements.txt", "--index-url=https://mirror.example/==", "name==version"),
        ] {
            let found = check(path, text);
            if expected.is_empty() {
                assert_eq!(found, "", "{path}: {text}");
            } else {
                assert!(found.contains(expected), "{path}: expected `{expected}`, found `{found}`");
            }
        }
    }
}
