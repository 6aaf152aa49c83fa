// SPDX-License-Identifier: Apache-2.0
//! The `baremetal` command line, unmodified, as an operator uses it.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::ferrite::output_of;
use crate::real_clients::{clean, clients};

/// The newest API version that this client is asked to speak.
const VERSION: &str = "1.95";

/// The client and the server it talks to.
pub(super) struct Baremetal {
    program: PathBuf,
    url: String,
}

impl Baremetal {
    /// The client, if it is installed.
    pub(super) fn at(url: &str) -> Option<Self> {
        let program = clients()?.join("bin/baremetal");
        Some(Self { program, url: url.to_owned() })
    }

    /// Runs a command that must succeed; returns what it printed.
    pub(super) fn run(&self, arguments: &[&str]) -> String {
        self.try_run(arguments).unwrap_or_else(|said| panic!("baremetal {arguments:?}: {said}"))
    }

    /// Runs a command; what it complained about is the error.
    pub(super) fn try_run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = clean(Command::new(&self.program));
        command
            .args(arguments)
            .env("OS_AUTH_TYPE", "none")
            .env("OS_ENDPOINT", &self.url)
            .env("OS_BAREMETAL_API_VERSION", VERSION);
        let output = output_of(&mut command);
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Runs a command that prints an object.
    pub(super) fn show(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-f", "json"]).collect();
        serde_json::from_str(&self.run(&arguments)).expect("-f json prints JSON")
    }
}
