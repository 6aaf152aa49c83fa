// SPDX-License-Identifier: Apache-2.0
//! Runs the unmodified `baremetal` client.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::real_clients::{clients, without_user_settings};
use crate::test_process::output_of;

/// The API version that the client requests.
const VERSION: &str = "1.95";

/// The client, its server, and the CA file of the server.
pub(super) struct BaremetalClient {
    program: PathBuf,
    url: String,
    ca_file: PathBuf,
}

impl BaremetalClient {
    /// Returns `None` if the client is not installed.
    pub(super) fn new(url: &str, ca_file: PathBuf) -> Option<Self> {
        let program = clients()?.join("bin/baremetal");
        Some(Self { program, url: url.to_owned(), ca_file })
    }

    /// Runs a command that must succeed; returns its output.
    pub(super) fn run(&self, arguments: &[&str]) -> String {
        self.try_run(arguments).unwrap_or_else(|error| panic!("baremetal {arguments:?}: {error}"))
    }

    /// Runs a command; standard error is the error.
    pub(super) fn try_run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = without_user_settings(Command::new(&self.program));
        command
            .args(arguments)
            .env("OS_AUTH_TYPE", "none")
            .env("OS_ENDPOINT", &self.url)
            .env("OS_CACERT", &self.ca_file)
            .env("OS_BAREMETAL_API_VERSION", VERSION);
        let output = output_of(&mut command);
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Runs a command with JSON output.
    pub(super) fn show(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-f", "json"]).collect();
        serde_json::from_str(&self.run(&arguments)).expect("-f json prints JSON")
    }
}
