// SPDX-License-Identifier: Apache-2.0
//! Unmodified clients from PyPI: the `baremetal` command line and openstacksdk.
//!
//! `cargo xtask test` installs them and passes their folder in `FERRITE_TEST_CLIENTS`. With
//! `FERRITE_TEST_AGAINST=http://…` the same scripts run against another server; they also pass on Ironic.

use std::path::PathBuf;
use std::process::Command;

use crate::test_process::{TestHome, output_of};

const CLI_SCRIPT: &str = "tests/end_to_end/baremetal_cli.py";
const SDK_SCRIPT: &str = "tests/end_to_end/openstacksdk_client.py";

#[test]
fn baremetal_command_line_works() {
    run_script(CLI_SCRIPT);
}

#[test]
fn openstacksdk_works() {
    run_script(SDK_SCRIPT);
}

#[test]
fn baremetal_signs_in_with_the_first_password() {
    let Some(clients) = clients() else { return };
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "basic"]);
    let password = std::fs::read_to_string(home.path("data/admin-password")).unwrap();
    assert_eq!(server.client().send("GET", "/v1/nodes", None).unwrap().status, 401);
    assert_eq!(server.client().send("GET", "/v1", None).unwrap().status, 200);
    for (password, is_right) in [(password.trim(), true), ("guess", false)] {
        let mut list = baremetal(&clients);
        list.args(["node", "list", "-f", "json"])
            .env("OS_AUTH_TYPE", "http_basic")
            .env("OS_ENDPOINT", server.url())
            .env("OS_USERNAME", "admin")
            .env("OS_PASSWORD", password);
        let output = output_of(&mut list);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_right, "{error}");
    }
}

fn run_script(script: &str) {
    let Some(clients) = clients() else { return };
    let home = TestHome::new();
    let other = std::env::var("FERRITE_TEST_AGAINST").ok();
    let server = if other.is_none() { Some(home.serve()) } else { None };
    let url =
        other.or(server.as_ref().map(http_probe::ServerProcess::url)).expect("one of them is set");
    let mut python = without_user_settings(Command::new(clients.join("bin/python")));
    python.arg(script).arg(&url).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = output_of(&mut python);
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(
        output.status.success(),
        "{}\nthe server's log:\n{}",
        String::from_utf8_lossy(&output.stderr),
        home.log()
    );
}

/// The folder of the clients. Panics if it is not set and the servers are required, as in CI.
pub(crate) fn clients() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("FERRITE_TEST_CLIENTS") {
        return Some(folder.into());
    }
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|value| value == "required");
    assert!(!required, "FERRITE_TEST_CLIENTS is not set: run `cargo xtask test`");
    println!("skipped: FERRITE_TEST_CLIENTS is not set; `cargo xtask test` sets it");
    None
}

fn baremetal(clients: &std::path::Path) -> Command {
    without_user_settings(Command::new(clients.join("bin/baremetal")))
}

/// Removes variables that change the behaviour of clients.
pub(crate) fn without_user_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("OS_")
            || name.starts_with("PYTHON")
            || name.to_lowercase().ends_with("_proxy")
        {
            command.env_remove(name.as_ref());
        }
    }
    command
}
