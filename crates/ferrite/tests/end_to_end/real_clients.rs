// SPDX-License-Identifier: Apache-2.0
//! The clients people use, unmodified, from PyPI: the `baremetal` command line and openstacksdk.
//!
//! `cargo xtask test` installs them and says where in `FERRITE_TEST_CLIENTS`. With
//! `FERRITE_TEST_AGAINST=http://…` the same walks are taken on another server, which is how they
//! were written: they pass on Ironic itself.

use std::path::PathBuf;
use std::process::Command;

use crate::ferrite::{Home, output_of};

const COMMAND_LINE_WALK: &str = "tests/end_to_end/command_line_walk.py";
const SDK_WALK: &str = "tests/end_to_end/sdk_walk.py";

#[test]
fn the_baremetal_command_line_works_unmodified() {
    walk(COMMAND_LINE_WALK);
}

#[test]
fn openstacksdk_works_unmodified() {
    walk(SDK_WALK);
}

#[test]
fn clients_sign_in_with_the_first_password() {
    let Some(clients) = clients() else { return };
    let home = Home::new();
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
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_right, "{said}");
    }
}

fn walk(script: &str) {
    let Some(clients) = clients() else { return };
    let home = Home::new();
    let other = std::env::var("FERRITE_TEST_AGAINST").ok();
    let server = if other.is_none() { Some(home.serve()) } else { None };
    let url = other.or(server.as_ref().map(http_probe::Server::url)).expect("one of them is there");
    let mut python = clean(Command::new(clients.join("bin/python")));
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

/// Where the clients are installed. They must be when the servers are required, as in CI.
pub(crate) fn clients() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("FERRITE_TEST_CLIENTS") {
        return Some(folder.into());
    }
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|value| value == "required");
    assert!(!required, "FERRITE_TEST_CLIENTS is not set: run `cargo xtask test`");
    println!("not run: FERRITE_TEST_CLIENTS is not set; `cargo xtask test` sets it");
    None
}

fn baremetal(clients: &std::path::Path) -> Command {
    clean(Command::new(clients.join("bin/baremetal")))
}

/// Without the settings of the person who runs the test.
pub(crate) fn clean(mut command: Command) -> Command {
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
