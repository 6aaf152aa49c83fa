// SPDX-License-Identifier: Apache-2.0
//! Unmodified clients from PyPI: the `baremetal` command line and openstacksdk.
//!
//! `cargo xtask test` installs them and passes their folder in `FERRITE_TEST_CLIENTS`. With
//! `FERRITE_TEST_AGAINST=http://…` the same scripts run against another server; they also pass on Ironic.

use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

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

/// Passwords and API tokens of users in the database, in all headers that OpenStack's clients send.
#[test]
fn baremetal_signs_in_with_passwords_and_tokens_of_local_users() {
    let Some(clients) = clients() else { return };
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "local"]);
    let password = std::fs::read_to_string(home.path("data/admin-password")).unwrap();
    let basic = STANDARD.encode(format!("admin:{}", password.trim()));
    let admin = server.client().with_header("Authorization", &format!("Basic {basic}"));
    let mut admin = admin.with_header("Content-Type", "application/json");
    let mut create = |path: &str, body: serde_json::Value| {
        let response = admin.send("POST", path, Some(body.to_string().as_bytes())).unwrap();
        assert_eq!(response.status, 201, "{path}: {}", response.text());
        response.json()
    };
    create("/v1/ferrite/projects", json!({"name": "storage"}));
    let roles = json!({"name": "ci", "kind": "service", "roles": ["reader@system"]});
    create("/v1/ferrite/users", roles);
    let token = create("/v1/ferrite/tokens", json!({"user": "ci"}));
    let token = token["token"].as_str().unwrap();
    let http_basic = |user: &'static str, password: &str| {
        vec![
            ("OS_AUTH_TYPE", "http_basic".to_owned()),
            ("OS_USERNAME", user.to_owned()),
            ("OS_PASSWORD", password.to_owned()),
        ]
    };
    let admin_token = |token: &str| {
        vec![("OS_AUTH_TYPE", "admin_token".to_owned()), ("OS_TOKEN", token.to_owned())]
    };
    for (variables, lists, creates) in [
        (http_basic("admin", password.trim()), true, true),
        (http_basic("ci", token), true, false),
        (admin_token(token), true, false),
        (http_basic("ci", "guess"), false, false),
        (admin_token("frt_0123456789ABabcdefghijklmnopqrstuvwxyzABCDEF000000"), false, false),
    ] {
        for (arguments, is_allowed) in [
            (&["node", "list", "-f", "json"][..], lists),
            (&["node", "create", "--driver", "fake-hardware", "-f", "json"], creates),
        ] {
            let mut command = baremetal(&clients);
            command.args(arguments).env("OS_ENDPOINT", server.url());
            command.envs(variables.iter().map(|(name, value)| (*name, value)));
            let output = output_of(&mut command);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), is_allowed, "{variables:?} {arguments:?}: {error}");
        }
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
    installed("FERRITE_TEST_CLIENTS")
}

/// The folder in a variable of `cargo xtask test`. Panics if it is not set and the servers are required, as in
/// CI.
pub(crate) fn installed(variable: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(variable) {
        return Some(folder.into());
    }
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|value| value == "required");
    assert!(!required, "{variable} is not set: run `cargo xtask test`");
    println!("skipped: {variable} is not set; `cargo xtask test` sets it");
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
