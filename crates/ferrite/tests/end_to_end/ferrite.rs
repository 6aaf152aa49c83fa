// SPDX-License-Identifier: Apache-2.0
//! A `ferrite serve` of our own, with its data in a temporary folder.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use http_probe::{Server, StartError};
use tempfile::TempDir;

/// A folder for one server's data, which outlives the server.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("ferrite-test-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command that serves from this home, on a free port.
    pub(crate) fn command(&self) -> Command {
        self.command_on("127.0.0.1:0")
    }

    /// The same on a certain address.
    pub(crate) fn command_on(&self, address: &str) -> Command {
        let mut command = ferrite();
        command.args(["serve", "--listen", address, "--data-dir"]).arg(self.path("data"));
        command
    }

    /// Starts serving; panics with the program's own words if it does not come up.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&["--auth", "none"])
    }

    /// The same with more arguments.
    pub(crate) fn serve_with(&self, arguments: &[&str]) -> Server {
        match Server::start(self.command().args(arguments), &self.path("log")) {
            Ok(server) => server,
            Err(StartError::CannotRun(error)) => panic!("the binary cannot be run: {error}"),
            Err(error @ (StartError::Ended { .. } | StartError::Silent { .. })) => {
                panic!("{error}")
            }
        }
    }

    /// Everything servers in this home have written to standard error.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// The program under test, without the settings of the person who runs the test.
pub(crate) fn ferrite() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FERRITE_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command that is expected to end by itself.
pub(crate) fn output_of(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}
