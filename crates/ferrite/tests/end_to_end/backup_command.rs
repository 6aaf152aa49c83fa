// SPDX-License-Identifier: Apache-2.0
//! `ferrite backup` and `ferrite restore`: beside a running server, to another engine, and rejected.

use std::process::{Command, Output};

use http_probe::ServerProcess;
use serde_json::json;

use crate::test_database::{EndToEndDatabase, SERVER_VARIABLES};
use crate::test_process::{TestHome, ferrite, output_of};

/// Exit code of rejected backups.
const REJECTED: i32 = 4;

fn command(home: &TestHome, name: &str, file: &str) -> Command {
    let mut command = ferrite();
    command.arg(name).arg(home.path(file)).arg("--data-dir").arg(home.path("data"));
    command
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn error_of(output: &Output, code: i32) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

/// Creates a node with a password.
fn enrol(server: &ServerProcess, name: &str) {
    let body = json!({
        "driver": "fake-hardware", "name": name,
        "driver_info": {"fake_password": "sesame"},
    });
    let created = server.client().send_json("POST", "/v1/nodes", Some(&body)).unwrap();
    assert_eq!(created.status, 201, "{}", created.text());
}

fn node_names(server: &ServerProcess) -> Vec<String> {
    let mut client = server.client().with_microversion("1.80");
    let listed = client.send("GET", "/v1/nodes?sort_key=name", None).unwrap().json();
    let nodes = listed["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn sqlite_is_backed_up_beside_its_server_and_restored() {
    let home = TestHome::new();
    let server = home.serve();
    enrol(&server, "one");
    let first = printed(&output_of(&mut command(&home, "backup", "one.backup")));
    assert!(first.contains("1 nodes"), "{first}");
    assert!(first.contains("its secrets need the sealing key "), "{first}");
    enrol(&server, "two");
    // Not while the server runs.
    let rejected = output_of(&mut command(&home, "restore", "one.backup"));
    let error = error_of(&rejected, 2);
    assert!(error.contains("another ferrite uses the data directory"), "{error}");
    // A backup is not overwritten.
    let error = error_of(&output_of(&mut command(&home, "backup", "one.backup")), 2);
    assert!(error.contains("exists already"), "{error}");
    drop(server);

    let dry = printed(&output_of(command(&home, "restore", "one.backup").arg("--dry-run")));
    assert!(dry.starts_with("the backup can be restored: 1 nodes"), "{dry}");
    let restored = printed(&output_of(&mut command(&home, "restore", "one.backup")));
    assert!(restored.contains("the previous database is kept as "), "{restored}");
    let server = home.serve();
    assert_eq!(node_names(&server), ["one"]);
}

#[test]
fn rejected_restores_change_nothing() {
    let home = TestHome::new();
    let server = home.serve();
    enrol(&server, "one");
    printed(&output_of(&mut command(&home, "backup", "one.backup")));
    drop(server);
    let good = std::fs::read_to_string(home.path("one.backup")).unwrap();
    std::fs::write(home.path("truncated"), &good[..good.len() / 2]).unwrap();
    std::fs::write(home.path("changed"), good.replacen("\"one\"", "\"two\"", 1)).unwrap();
    std::fs::write(home.path("newer"), good.replacen("\"version\":1", "\"version\":7", 1)).unwrap();
    for (file, expected) in [
        ("truncated", "the file is truncated"),
        ("changed", "the checksum differs"),
        ("newer", "format 7, but this version supports 1 at most"),
    ] {
        let error = error_of(&output_of(&mut command(&home, "restore", file)), REJECTED);
        assert!(error.contains(expected), "{file}: {error}");
    }
    // Without the key.
    std::fs::rename(home.path("data/secrets.key"), home.path("key")).unwrap();
    let error = error_of(&output_of(&mut command(&home, "restore", "one.backup")), REJECTED);
    assert!(error.contains("the backup needs the sealing key"), "{error}");
    std::fs::rename(home.path("key"), home.path("data/secrets.key")).unwrap();
    let error = error_of(&output_of(&mut command(&home, "restore", "missing")), 2);
    assert!(error.contains("missing"), "{error}");
    assert_eq!(node_names(&home.serve()), ["one"]);
}

/// A backup of SQLite is restored on each server, and a backup of the server on SQLite.
#[test]
fn databases_are_moved_between_engines() {
    for variable in SERVER_VARIABLES {
        let Some(database) = EndToEndDatabase::create(variable) else { continue };
        let home = TestHome::new();
        let server = home.serve();
        enrol(&server, "one");
        printed(&output_of(&mut command(&home, "backup", "sqlite.backup")));
        drop(server);
        let to_server = ["--database", database.url.as_str()];
        let restore = || output_of(command(&home, "restore", "sqlite.backup").args(to_server));
        printed(&restore());
        let error = error_of(&restore(), REJECTED);
        assert!(error.contains("create a new, empty database"), "{variable}: {error}");

        let server = home.serve_with(&["--auth", "none", "--database", database.url.as_str()]);
        enrol(&server, "two");
        assert_eq!(node_names(&server), ["one", "two"], "{variable}");
        printed(&output_of(command(&home, "backup", "server.backup").args(to_server)));
        drop(server);
        printed(&output_of(&mut command(&home, "restore", "server.backup")));
        assert_eq!(node_names(&home.serve()), ["one", "two"], "{variable}");
    }
}
