// SPDX-License-Identifier: Apache-2.0
//! `ferrite database migrate`: repeated, by several processes at once, and rejected.

use std::process::{Command, Output, Stdio};

use crate::test_database::{EndToEndDatabase, SERVER_VARIABLES};
use crate::test_process::{TestHome, ferrite, output_of};

/// Exit codes of the command.
const NEWER_SCHEMA: i32 = 4;
const UNREACHABLE: i32 = 6;

fn migrate(home: &TestHome, database: Option<&str>) -> Command {
    let mut command = ferrite();
    command.args(["database", "migrate", "--data-dir"]).arg(home.path("data"));
    if let Some(url) = database {
        command.args(["--database", url]);
    }
    command
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn sqlite_is_migrated_once() {
    let home = TestHome::new();
    let first = printed(&output_of(&mut migrate(&home, None)));
    assert!(first.starts_with("the database was migrated from schema 0 to "), "{first}");
    let second = printed(&output_of(&mut migrate(&home, None)));
    assert!(second.ends_with("no migration is outstanding\n"), "{second}");
    // The server uses the database, and meanwhile the command is rejected.
    let server = home.serve();
    let rejected = output_of(&mut migrate(&home, None));
    let error = String::from_utf8_lossy(&rejected.stderr);
    assert_eq!(rejected.status.code(), Some(2), "{error}");
    assert!(error.contains("another ferrite uses the data directory"), "{error}");
    drop(server);
}

#[test]
fn newer_databases_are_rejected() {
    let home = TestHome::new();
    let planned = printed(&output_of(migrate(&home, None).arg("--dry-run")));
    assert!(planned.starts_with("the database has schema 0; outstanding migrations:"), "{planned}");
    assert!(!home.path("data/ferrite.sqlite").exists(), "a plan changes nothing");
    printed(&output_of(&mut migrate(&home, None)));
    let database = rusqlite::Connection::open(home.path("data/ferrite.sqlite")).unwrap();
    let migrate_to = |schema: i64| {
        let newer = format!(
            "INSERT INTO schema_migrations (number, name, applied_at) VALUES ({schema}, 'later', 0)"
        );
        database.execute_batch(&newer).unwrap();
    };
    // The next release only adds to the schema.
    migrate_to(1001);
    let line = printed(&output_of(&mut migrate(&home, None)));
    assert_eq!(line.trim_end(), "the database has schema 1001; no migration is outstanding");
    migrate_to(9999);
    for option in [None, Some("--dry-run")] {
        let rejected = output_of(migrate(&home, None).args(option));
        let error = String::from_utf8_lossy(&rejected.stderr);
        assert_eq!(rejected.status.code(), Some(NEWER_SCHEMA), "{error}");
        assert!(error.contains("the database has schema 9999"), "{error}");
        let errors = error.lines().filter(|line| line.starts_with("ferrite: "));
        assert_eq!(errors.count(), 1, "{error}");
    }
}

#[test]
fn unreachable_servers_are_reported() {
    let home = TestHome::new();
    // Bound and not listening, so that no other program uses the port.
    let closed = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    closed.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = closed.local_addr().unwrap().as_socket().unwrap().port();
    for scheme in ["postgresql", "mysql"] {
        let url = format!("{scheme}://ferrite:hush@127.0.0.1:{port}/ferrite");
        let failed = output_of(&mut migrate(&home, Some(&url)));
        let error = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(UNREACHABLE), "{scheme}: {error}");
        assert!(error.contains("cannot connect to database"), "{scheme}: {error}");
        assert!(!error.contains("hush"), "{scheme}: {error}");
    }
}

#[test]
fn several_processes_migrate_at_once() {
    for variable in SERVER_VARIABLES {
        let Some(database) = EndToEndDatabase::create(variable) else { continue };
        let home = TestHome::new();
        // All processes need the same sealing key.
        let key = printed(&output_of(ferrite().args(["secrets", "new-key"])));
        let running: Vec<_> = (0..4)
            .map(|_| {
                let mut command = migrate(&home, Some(&database.url));
                command.env("FERRITE_SECRETS__KEY_VARIABLE", "TEST_KEYS").env("TEST_KEYS", &key);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        let lines: Vec<String> =
            running.into_iter().map(|child| printed(&child.wait_with_output().unwrap())).collect();
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count("migrated from schema 0"), 1, "{lines:?}");
        assert_eq!(count("no migration is outstanding"), 3, "{lines:?}");
    }
}
