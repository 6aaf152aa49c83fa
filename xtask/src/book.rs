// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask book`: builds the documents as a book, with mdBook.

use anyhow::{Context, Result};

use crate::interrupt::Interrupt;
use crate::{print, repository, shell};

/// The pinned version of mdBook.
const MDBOOK: &str = "0.5.4";

/// Installs mdBook below the build folder if necessary, and writes the book there.
pub(crate) fn build() -> Result<()> {
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    let target = std::path::absolute(repository::target(&root))?;
    let tools = target.join("tools");
    let mut install = shell::cargo(&root);
    install
        .args(["install", "--locked", "--no-default-features", "--features", "search"])
        .args(["--version", MDBOOK, "--root"])
        .arg(&tools)
        .arg("mdbook");
    shell::run(&mut install, &interrupt).context("cannot install mdBook")?;
    let book = target.join("book");
    let mut mdbook = std::process::Command::new(tools.join("bin/mdbook"));
    mdbook.arg("build").arg("--dest-dir").arg(&book).arg(&root);
    shell::run(&mut mdbook, &interrupt)?;
    print::line(&format!("{}", book.join("index.html").display()));
    Ok(())
}
