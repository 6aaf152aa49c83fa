// SPDX-License-Identifier: Apache-2.0
//! Starts `ferrite serve` and other commands with a temporary folder.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use http_probe::{ServerProcess, ServerStartError};
use tempfile::TempDir;

/// The temporary folder of a server, which outlives the server.
pub(crate) struct TestHome {
    folder: TempDir,
}

impl TestHome {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("ferrite-test-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The `serve` command with this folder, on a free port.
    pub(crate) fn command(&self) -> Command {
        self.command_on("127.0.0.1:0")
    }

    /// The `serve` command with this folder, on the given address.
    pub(crate) fn command_on(&self, address: &str) -> Command {
        let mut command = ferrite();
        command.args(["serve", "--listen", address, "--data-dir"]).arg(self.path("data"));
        command
    }

    /// Starts a server without authentication. Panics with the log if it does not start.
    pub(crate) fn serve(&self) -> ServerProcess {
        self.serve_with(&["--auth", "none"])
    }

    /// Starts a server with these arguments.
    pub(crate) fn serve_with(&self, arguments: &[&str]) -> ServerProcess {
        match ServerProcess::start(self.command().args(arguments), &self.path("log")) {
            Ok(server) => server,
            Err(ServerStartError::CannotRun(error)) => panic!("cannot run the binary: {error}"),
            Err(error @ (ServerStartError::Exited { .. } | ServerStartError::NoAddress { .. })) => {
                panic!("{error}")
            }
        }
    }

    /// The standard error of all servers with this folder.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

/// The program under test, without `FERRITE_*` variables of the environment.
pub(crate) fn ferrite() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrite"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FERRITE_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end.
pub(crate) fn output_of(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}
