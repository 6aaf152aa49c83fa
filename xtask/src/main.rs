// SPDX-License-Identifier: Apache-2.0
//! Developer commands: `cargo xtask test`, `simulate`, `tidy`, `docs`, `bench`, `package`.
//!
//! `cargo xtask test` is all of CI in one command: it installs and starts the servers, emulators and
//! virtual machines that the tests need, and stops them again.

mod bench;
mod book;
mod install;
mod interrupt;
mod package;
mod print;
mod random;
mod repository;
mod shell;
mod simulate;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use test::TestScope;

/// Developer commands of Ferrite.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct XtaskArguments {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run everything CI runs: formatting, tidiness, lints, tests.
    Test {
        /// Only what needs no root, no database servers, no lab and no browser.
        #[arg(long, conflicts_with = "all")]
        quick: bool,
        /// Also the full matrix of boot method, BMC and agent.
        #[arg(long)]
        all: bool,
    },
    /// Run a command with temporary PostgreSQL and MariaDB servers and the variables that point
    /// tests at them.
    WithServers {
        /// The command, e.g. `cargo test -p store`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run a command with the lab (virtual machines behind Redfish and IPMI BMCs) and the variables
    /// that point tests at it.
    WithLab {
        /// The command, e.g. `cargo test -p ferrite real_bmcs`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run a command with a Kubernetes control plane for tests, built from Go modules, and with the
    /// servers of `with-servers`, in a network of its own.
    WithKube {
        /// The command, e.g. `cargo test -p ferrite --test kube`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Simulate three replicas with faults, with one seed or with new ones.
    Simulate(simulate::SimulateOptions),
    /// Check the rules of the code base: dependencies, file headers, retired words, links.
    Tidy,
    /// Check licences, sources, duplicate versions and known vulnerabilities of the dependencies.
    Deny,
    /// Measure the processor time of each operation, alone or next to another Ironic.
    Bench(bench::ApiBenchOptions),
    /// Regenerate the generated pages in `docs/`.
    Docs,
    /// Build the book of the documents with mdBook.
    Book,
    /// Build static programs, a container image, a Debian package, the operator's manifests and
    /// chart, a software bill of materials and checksums.
    Package(package::PackageOptions),
}

fn main() -> ExitCode {
    let arguments = XtaskArguments::parse();
    let outcome = match arguments.command {
        XtaskCommand::Test { quick: true, .. } => test::run(TestScope::Quick),
        XtaskCommand::Test { all: true, .. } => test::run(TestScope::All),
        XtaskCommand::Test { .. } => test::run(TestScope::Ci),
        XtaskCommand::WithServers { command } => test::with_servers(&command),
        XtaskCommand::WithLab { command } => test::with_lab(&command),
        XtaskCommand::WithKube { command } => test::with_kube(&command),
        XtaskCommand::Simulate(options) => simulate::run(&options),
        XtaskCommand::Tidy => tidy::run(),
        XtaskCommand::Deny => test::cargo_deny::run(),
        XtaskCommand::Bench(options) => bench::run(&options),
        XtaskCommand::Docs => tidy::regenerate_documents(),
        XtaskCommand::Book => book::build(),
        XtaskCommand::Package(options) => package::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print::problem(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
