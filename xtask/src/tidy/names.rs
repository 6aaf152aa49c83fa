// SPDX-License-Identifier: Apache-2.0
//! Type names are unique in the workspace, no crate re-exports another one, and there are no
//! doctests.

use std::collections::BTreeMap;

use crate::repository::TextFile;

/// Re-exports of data types that are part of a crate's own API.
const ALLOWED_RE_EXPORTS: &[(&str, &str)] = &[
    ("crates/boot-server/src/lib.rs", "dhcp_codec"),
    ("crates/boot-server/src/dhcp4/mod.rs", "dhcp_codec"),
    ("crates/boot-server/src/dhcp6/mod.rs", "dhcp_codec"),
    ("crates/drivers/src/lib.rs", "node_model"),
];

/// Returns a complaint for every type name that is defined in more than one file, every re-export
/// of a workspace crate, and every doctest.
pub(super) fn complaints(files: &[TextFile], workspace_crates: &[String]) -> Vec<String> {
    let rust: Vec<&TextFile> = files.iter().filter(|file| file.has_ending("rs")).collect();
    let mut complaints = duplicate_types(&rust);
    for file in rust {
        complaints.extend(re_exports(file, workspace_crates));
        complaints.extend(doctests(file));
    }
    complaints
}

fn duplicate_types(files: &[&TextFile]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        for name in file.text.lines().filter_map(defined_type) {
            let paths = places.entry(name).or_default();
            if !paths.contains(&file.path.as_str()) {
                paths.push(&file.path);
            }
        }
    }
    places.retain(|_, paths| paths.len() > 1);
    let complaint = |(name, paths): (&str, Vec<&str>)| {
        format!("{}: type `{name}` is also defined in {}", paths[0], paths[1..].join(", "))
    };
    places.into_iter().map(complaint).collect()
}

/// The name of the type that a line defines. Type aliases count only at the top level, because
/// traits name associated types.
fn defined_type(line: &str) -> Option<&str> {
    let is_top_level = !line.starts_with(' ');
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(restricted) => restricted.split_once(") ")?.1,
            None => after.strip_prefix(' ')?,
        };
    }
    let (keyword, rest) = rest.split_once(' ')?;
    let defines = matches!(keyword, "struct" | "enum" | "trait" | "union")
        || (keyword == "type" && is_top_level);
    let name = rest.split(|character: char| !character.is_alphanumeric()).next()?;
    (defines && name.starts_with(char::is_uppercase)).then_some(name)
}

fn re_exports(file: &TextFile, workspace_crates: &[String]) -> Vec<String> {
    let is_allowed = |name: &str| ALLOWED_RE_EXPORTS.contains(&(file.path.as_str(), name));
    let mut complaints = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let Some(rest) = line.strip_prefix("pub use ") else { continue };
        let name = rest.split("::").next().unwrap_or(rest);
        let is_crate = workspace_crates.iter().any(|other| other.replace('-', "_") == name);
        // A module of the crate itself may have the name of another crate.
        let is_own_module = file.text.contains(&format!("mod {name};"));
        if is_crate && !is_own_module && !is_allowed(name) {
            let at = index + 1;
            complaints.push(format!("{}:{at}: re-exports the crate `{name}`", file.path));
        }
    }
    complaints
}

/// `cargo xtask test` does not run rustdoc, so an example in a comment would never be compiled.
fn doctests(file: &TextFile) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_inside = false;
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let Some(comment) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_inside = false;
            continue;
        };
        let Some(language) = comment.trim().strip_prefix("```") else { continue };
        if !is_inside && (language.is_empty() || language.starts_with("rust")) {
            complaints.push(format!(
                "{}:{}: a doctest, which is never run: write a test, or mark the block `text`",
                file.path,
                index + 1
            ));
        }
        is_inside = !is_inside;
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn check(files: &[TextFile]) -> String {
        complaints(files, &["drivers".to_owned(), "node-model".to_owned()]).join("\n")
    }

    #[test]
    fn reports_types_that_are_defined_twice() {
        let one = file("a.rs", "pub(crate) struct Lease;\nimpl X {\n    type Error = ();\n}\n");
        let other = file("b.rs", "enum Lease {}\nimpl Y {\n    type Error = ();\n}\n");
        assert_eq!(check(&[one, other]), "a.rs: type `Lease` is also defined in b.rs");
    }

    #[test]
    fn reports_re_exports_of_workspace_crates() {
        let foreign = file("a/src/lib.rs", "pub use node_model::Node;\n");
        assert_eq!(check(&[foreign]), "a/src/lib.rs:1: re-exports the crate `node_model`");
        assert_eq!(check(&[file("a/src/lib.rs", "mod drivers;\npub use drivers::Driver;\n")]), "");
    }

    #[test]
    fn reports_doctests() {
        let text =
            "/// Example:\n/// ```text\n/// x\n/// ```\n/// ```\n/// y();\n/// ```\nfn y() {}\n";
        assert!(check(&[file("a.rs", text)]).starts_with("a.rs:5: a doctest"));
    }
}
