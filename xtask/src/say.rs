// SPDX-License-Identifier: Apache-2.0
//! The one place where xtask prints.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program answers here"
)]

/// A heading: what happens next.
pub(crate) fn heading(text: &str) {
    println!("\n=== {text}");
}

/// A line of the answer.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// What went wrong.
pub(crate) fn problem(text: &str) {
    eprintln!("error: {text}");
}
