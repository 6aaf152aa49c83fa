// SPDX-License-Identifier: Apache-2.0
//! All output of xtask to the terminal.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program prints its results"
)]

/// The heading of a step.
pub(crate) fn heading(text: &str) {
    println!("\n=== {text}");
}

/// A line on standard output.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// An error message.
pub(crate) fn problem(text: &str) {
    eprintln!("error: {text}");
}
