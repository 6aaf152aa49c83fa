// SPDX-License-Identifier: Apache-2.0
//! How files open, how long they are, and what must not be left in them.

use crate::repository::TextFile;

/// Past this many lines a file has a second subject.
const LONGEST_FILE: usize = 800;
/// Files that may be longer: tables, and what programs write.
const LONG_FILES: &[&str] = &[];
/// Words that say nothing about what a file is for.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "misc"];

const LICENCE: &str = "// SPDX-License-Identifier: Apache-2.0";
const STYLE_LICENCE: &str = "/* SPDX-License-Identifier: Apache-2.0 */";
/// What others wrote is as they wrote it.
const VENDORED: &str = "/vendor/";

/// Something that must not be in a Rust file. The patterns are cut in two so that this file does
/// not contain them.
const UNFINISHED: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it, or give the caller an error"),
    (concat!("unimple", "mented!("), "finish it, or give the caller an error"),
    (concat!("db", "g!("), "log it with tracing, or remove it"),
    (concat!("#[ig", "nore"), "a test that does not run is no test: repair or remove it"),
];

/// Places on somebody's own machine.
const LOCAL_PLACES: &[&str] = &[
    concat!("/wo", "rk/main"),
    concat!("/wo", "rk/shared"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/t", "mp/"),
    concat!(".cache/ferrite", "-kit"),
];
/// Where such a place is an example for the reader or data of a test, with the text that holds it.
const LOCAL_PLACES_MEANT: &[(&str, &str)] = &[];

/// The only place Cargo.lock may name.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Everything wrong with single files.
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
        places(file, &mut complaints);
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
        complaints.push(format!("{path}:1: does not open with `{LICENCE}`"));
    }
    if !lines.next().is_some_and(|line| line.starts_with("//! ") && line.len() > 10) {
        complaints.push(format!("{path}:2: no `//!` sentence that says what the file is for"));
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

/// What a browser runs opens as our Rust does: licence, then what it is for.
fn browser(file: &TextFile, licence: &str, comment: &str, complaints: &mut Vec<String>) {
    let path = &file.path;
    let mut lines = file.text.lines();
    if lines.next() != Some(licence) {
        complaints.push(format!("{path}:1: does not open with `{licence}`"));
    }
    if !lines.next().is_some_and(|line| line.starts_with(comment) && line.len() > 10) {
        complaints.push(format!("{path}:2: no comment that says what the file is for"));
    }
    length_and_name(file, complaints);
}

fn length_and_name(file: &TextFile, complaints: &mut Vec<String>) {
    let path = &file.path;
    let count = file.text.lines().count();
    if count > LONGEST_FILE && !LONG_FILES.contains(&path.as_str()) {
        complaints.push(format!(
            "{path}: {count} lines; past {LONGEST_FILE}, ask which second subject crept in"
        ));
    }
    let name = path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or(path);
    if EMPTY_NAMES.contains(&name) {
        complaints.push(format!("{path}: `{name}` does not say what the file is for"));
    }
}

fn places(file: &TextFile, complaints: &mut Vec<String>) {
    for (number, line) in numbered(&file.text) {
        for place in LOCAL_PLACES {
            let meant = LOCAL_PLACES_MEANT
                .iter()
                .any(|(path, text)| *path == file.path && line.contains(text));
            if names_place(line, place) && !meant {
                complaints.push(format!(
                    "{}:{number}: names {place}, a place on one machine only",
                    file.path
                ));
            }
        }
    }
}

/// Whether the place stands in the line as an absolute path, not as the end of a longer one.
fn names_place(line: &str, place: &str) -> bool {
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

/// A lock that names no registry is good behind every one.
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
            complaints.push(format!("{}:{number}: only `name==version` may stand here", file.path));
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
    fn each_rule_finds_its_offender() {
        let long = format!("{GOOD}{}", "\n".repeat(900));
        let unfinished = format!("{GOOD}fn f() {{ {}) }}", UNFINISHED[0].0);
        let local = format!("see {}notes", LOCAL_PLACES[2]);
        let mirror = "source = \"registry+https://mirror.example/index\"";
        for (path, text, expected) in [
            ("a.rs", GOOD, ""),
            ("a.rs", "fn main() {}", "does not open with"),
            ("a.rs", &GOOD.replace("//! What", "// What"), "no `//!` sentence"),
            ("a.rs", &long, "second subject"),
            ("src/helpers.rs", GOOD, "does not say what the file is for"),
            ("a.rs", &unfinished, "finish it"),
            ("a.js", "// SPDX-License-Identifier: Apache-2.0\n// What this is for.", ""),
            ("a.js", "export {};", "does not open with"),
            ("a.css", "/* SPDX-License-Identifier: Apache-2.0 */\n* {}", "no comment"),
            ("page/utils.js", "", "does not say what the file is for"),
            ("page/vendor/a.js", "export {};", ""),
            ("x/package-lock.json", "\"resolved\": \"https://npm.example/\"", "names a registry"),
            ("README.md", &local, "a place on one machine only"),
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
