// SPDX-License-Identifier: Apache-2.0
//! What a developer of Ferrite runs: `cargo xtask test`, `tidy`, `bench` and what they need.
//!
//! `cargo xtask test` is the whole of CI in one command: it installs and starts what the tests
//! talk to, and takes it down again.

mod bench;
mod book;
mod install;
mod interrupt;
mod random;
mod repository;
mod say;
mod shell;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Ferrite.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything CI runs: formatting, tidiness, lints, all tests.
    Test {
        /// Only what needs no database servers, no lab and nothing from PyPI.
        #[arg(long)]
        quick: bool,
    },
    /// Start throw-away PostgreSQL and MariaDB servers, run a command with the variables that
    /// point tests at them, and stop them again.
    WithServers {
        /// The command, e.g. `cargo test -p store`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Start the lab (virtual machines behind Redfish and IPMI BMCs), run a command with the
    /// variables that point tests at it, and stop it again.
    WithLab {
        /// The command, e.g. `cargo test -p ferrite real_bmcs`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Check the rules of the house: who may depend on whom, how files open, what is left behind.
    Tidy,
    /// Measure what each operation costs the server, alone or beside another Ironic.
    Bench(bench::Options),
    /// Write the generated pages in `docs/` anew.
    Docs,
    /// Make a book of the documents, with mdBook.
    Book,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Test { quick } => test::run(quick),
        Command::WithServers { command } => test::with_servers(&command),
        Command::WithLab { command } => test::with_lab(&command),
        Command::Tidy => tidy::run(),
        Command::Bench(options) => bench::run(&options),
        Command::Docs => tidy::regenerate_documents(),
        Command::Book => book::build(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::problem(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
