// SPDX-License-Identifier: Apache-2.0
//! Checks that required documents exist, and regenerates the generated ones.

use std::path::Path;

use anyhow::{Context, Result};

use crate::interrupt::Interrupt;
use crate::repository::{self, TextFile};
use crate::shell;

/// Files that every contributor expects.
const EXPECTED: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "docs/decisions/README.md",
    ".ci/run",
];

/// A generated page. A test of the crate compares it with the code, and writes it if `UPDATE=1` is
/// set.
struct Generated {
    page: &'static str,
    package: &'static str,
    /// A part of the test's name.
    test: &'static str,
}

const GENERATED: &[Generated] = &[
    Generated { page: "docs/lifecycle.md", package: "lifecycle", test: "generated" },
    Generated { page: "docs/openapi.json", package: "api-server", test: "openapi" },
    Generated { page: "docs/policy.md", package: "access-policy", test: "generated" },
    Generated { page: "docs/configuration.md", package: "ferrite", test: "generated" },
];

/// Returns missing documents. Whether a generated page is up to date is checked by its test; this
/// checks that there is such a test.
pub(super) fn complaints(root: &Path, files: &[TextFile]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for path in EXPECTED {
        if !files.iter().any(|file| file.path == *path) {
            complaints.push(format!("{path} is missing"));
        }
    }
    let architecture =
        files.iter().find(|file| file.path == "ARCHITECTURE.md").map_or("", |file| &file.text);
    for name in crate_names(root)? {
        if !architecture.contains(&format!("`{name}`")) {
            complaints.push(format!("ARCHITECTURE.md does not mention the crate `{name}`"));
        }
    }
    for Generated { page, package, .. } in GENERATED {
        if !files.iter().any(|file| file.path == *page) {
            complaints.push(format!("{page} is missing: `cargo xtask docs` writes it"));
        }
        let folder = format!("crates/{package}/");
        let tested = files.iter().any(|file| {
            file.has_ending("rs") && file.path.starts_with(&folder) && file.text.contains(page)
        });
        if !tested {
            complaints.push(format!("no test in crates/{package} compares {page}"));
        }
    }
    Ok(complaints)
}

/// Writes the generated pages by running their tests with `UPDATE=1`.
pub(crate) fn regenerate() -> Result<()> {
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    for Generated { package, test, .. } in GENERATED {
        let mut tests = shell::cargo(&root);
        tests.env("UPDATE", "1").args(["test", "--quiet", "--package", package, test]);
        shell::run(&mut tests, &interrupt)?;
    }
    Ok(())
}

fn crate_names(root: &Path) -> Result<Vec<String>> {
    let mut names = vec!["xtask".to_owned()];
    for entry in std::fs::read_dir(root.join("crates")).context("cannot list crates/")? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
