// SPDX-License-Identifier: Apache-2.0
//! Opening a database: migrations, schema versions, URLs and the key file.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use node_model::{ConductorInfo, Node, Timestamp};
use serde_json::json;
use store::{NodeFilter, NodeSecrets, SealError, Store, StoreOpenError, StoreSettings};

use crate::migrations::{revert_lookups, revert_renames};
use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! {
    reopening_keeps_data older_database_is_migrated newer_schema_is_rejected concurrent_opens_succeed
    key_file_is_checked foreign_tables_are_rejected running_processes_of_distant_versions_are_rejected
    a_plan_changes_nothing
}

fn refusal(db: &TestDatabase) -> SealError {
    match db.open_again() {
        Err(StoreOpenError::Key { source, .. }) => source,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}

fn reopening_keeps_data(db: &TestDatabase) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    let again = db.open_again().unwrap();
    let count =
        db.runtime.block_on(again.read(|r| r.count::<Node>(&NodeFilter::default()))).unwrap();
    assert_eq!(count, 1);
    again.close();
}

/// Reverts the migrations from the third on, and checks that they are applied again without losing
/// data.
fn older_database_is_migrated(db: &TestDatabase) {
    let machine = node("one");
    let id = machine.id;
    db.write(move |w| {
        w.insert(&machine)?;
        w.set_inventory(&inventory(id))
    })
    .unwrap();
    revert_renames(db);
    for table in [
        "agent_log_parts",
        "agent_logs",
        "stranger_reports",
        "listenings",
        "neighbours",
        "flavours",
    ] {
        db.sql(&format!("DROP TABLE {table}"));
    }
    revert_lookups(db);
    db.sql("ALTER TABLE inventories DROP COLUMN found");
    db.sql("ALTER TABLE strangers DROP COLUMN report_uuid");
    db.sql("ALTER TABLE conductors DROP COLUMN run_uuid");
    db.sql("DELETE FROM schema_migrations WHERE number >= 3");
    let again = db.open_again().unwrap();
    let found = db.runtime.block_on(again.read(move |r| r.inventory(id))).unwrap().unwrap();
    assert_eq!(found.inventory, inventory(id).inventory);
    assert!(found.derived.is_empty());
    assert!(db.runtime.block_on(again.read(|r| r.unknown_machines(9))).unwrap().is_empty());
    assert!(db.runtime.block_on(again.read(|r| r.conductors())).unwrap().is_empty());
    again.close();
}

fn newer_schema_is_rejected(db: &TestDatabase) {
    let migrate_to = |number: i64| {
        db.sql(&format!(
            "INSERT INTO schema_migrations (number, name, applied_at) VALUES ({number}, 'later', 0)"
        ));
    };
    // The next release only adds tables, indexes and columns.
    migrate_to(1999);
    db.open_again().unwrap().close();
    migrate_to(2000);
    match db.open_again() {
        Err(StoreOpenError::NewerSchema { found: 2000, known }) => assert!(known < 1000),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}

fn a_plan_changes_nothing(db: &TestDatabase) {
    let plan = || Store::migration_plan(&db.settings).unwrap();
    let complete = plan();
    assert!(complete.outstanding.is_empty(), "{complete:?}");
    db.sql(&format!("DELETE FROM schema_migrations WHERE number = {}", complete.schema));
    for _ in 0..2 {
        let found = plan();
        assert_eq!(found.schema, complete.schema - 1);
        let numbers: Vec<i64> = found.outstanding.iter().map(|it| it.number).collect();
        assert_eq!(numbers, [complete.schema]);
    }
}

fn running_processes_of_distant_versions_are_rejected(db: &TestDatabase) {
    let process = |version: &str, online: bool, age: i64| ConductorInfo {
        hostname: "other".to_owned(),
        run: None,
        version: Some(version.to_owned()),
        conductor_group: String::new(),
        drivers: Vec::new(),
        created_at: db.now(),
        updated_at: Timestamp(db.now().0 - age),
        online,
    };
    for (other, is_rejected) in [
        (process("0.2.7", true, 0), false),
        (process("0.3.0", true, 0), true),
        (process("1.1.0", true, 0), true),
        (process("0.3.0", false, 0), false),
        (process("0.3.0", true, 120_000_000), false),
    ] {
        let recorded = other.clone();
        db.write(move |w| w.record_conductor_heartbeat(&recorded)).unwrap();
        let opened = db.open_again().map(Store::close);
        let is_skew = matches!(&opened, Err(StoreOpenError::VersionSkew { .. }));
        assert_eq!(is_skew, is_rejected && db.kind != EngineKind::Sqlite, "{other:?} {opened:?}");
        assert!(is_skew || opened.is_ok(), "{opened:?}");
    }
}

/// A database with tables of another program is rejected.
fn foreign_tables_are_rejected(db: &TestDatabase) {
    db.sql("DROP TABLE schema_migrations");
    match (db.kind, db.open_again().map(Store::close)) {
        (EngineKind::MariaDb, Err(StoreOpenError::ForeignTable { .. })) => {
            // Still rejected: the first attempt created nothing.
            assert!(matches!(db.open_again(), Err(StoreOpenError::ForeignTable { .. })));
        }
        (
            EngineKind::Sqlite | EngineKind::Postgres,
            Err(StoreOpenError::Migrate { number: 1, .. }),
        ) => {}
        (kind, other) => panic!("{kind:?} {other:?}"),
    }
}

fn concurrent_opens_succeed(db: &TestDatabase) {
    let stores: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..6).map(|_| scope.spawn(|| db.open_again().unwrap())).collect();
        opening.into_iter().map(|opening| opening.join().unwrap()).collect()
    });
    for (number, store) in stores.into_iter().enumerate() {
        let insert = move |w: &mut store::StoreWriter<'_>| w.insert(&node(&number.to_string()));
        db.runtime.block_on(store.write(insert)).unwrap();
        store.close();
    }
    assert_eq!(db.read(|r| r.count::<Node>(&NodeFilter::default())).unwrap(), 6);
}

fn key_file_is_checked(db: &TestDatabase) {
    let file = db.settings.data_dir.join("secrets.key");
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let set_mode = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o640);
    assert!(matches!(refusal(db), SealError::WorldReadable { mode: 0o640 }));
    set_mode(0o600);
    db.open_again().unwrap().close();

    let key = std::fs::read(&file).unwrap();
    std::fs::write(&file, "not a key").unwrap();
    assert!(matches!(refusal(db), SealError::Malformed));
    std::fs::write(&file, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap();
    assert!(matches!(refusal(db), SealError::WrongKey));

    std::fs::remove_file(&file).unwrap();
    if db.kind == EngineKind::Sqlite {
        // Nothing was sealed with the key, so a new one is created.
        db.open_again().unwrap().close();
        assert_ne!(std::fs::read(&file).unwrap(), key);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &key).unwrap();
        set_mode(0o600);
        assert!(matches!(refusal(db), SealError::WrongKey));
        db.write(|w| {
            let mut machine = node("one");
            let driver_info = json!({"password": "x"}).as_object().unwrap().clone();
            w.seal_node(&mut machine, NodeSecrets { driver_info, ..NodeSecrets::default() })?;
            w.insert(&machine)
        })
        .unwrap();
        std::fs::remove_file(&file).unwrap();
    }
    assert!(matches!(refusal(db), SealError::Missing));
}

#[test]
fn database_urls_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let open = |url: &str| {
        let mut settings = StoreSettings::in_dir(dir.path());
        settings.url = Some(url.to_owned());
        Store::open_with_clock(&settings, Arc::new(|| Timestamp(0))).map(Store::close)
    };
    for url in ["oracle://x", "nothing", "sqlite:", "postgresql://[", "mysql://host:port/x"] {
        assert!(matches!(open(url), Err(StoreOpenError::Address { .. })), "{url}");
    }
    let there = dir.path().join("there.db");
    for url in [format!("sqlite:{}", there.display()), format!("sqlite:///{}", there.display())] {
        open(&url).unwrap();
        assert!(there.exists());
    }
    // Port 1 is closed. The error must not contain the password.
    for url in ["postgresql://u:hunter2@127.0.0.1:1/x", "mysql://u:hunter2@127.0.0.1:1/x"] {
        let error = open(url).unwrap_err();
        assert!(matches!(error, StoreOpenError::Connect { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        let message = chain(&error);
        assert!(message.contains("database x on 127.0.0.1:1;"), "{message}");
        assert!(message.ends_with("Connection refused (os error 111)"), "{message}");
        assert_readable(&message);
    }
    let error = open("postgresql://u@h/x?colour=red").unwrap_err().to_string();
    assert!(error.contains("invalid connection string: unknown option `colour`"), "{error}");
    assert!(matches!(open("sqlite:/nowhere/at/all"), Err(StoreOpenError::File { .. })));
}

/// Errors contain the server's message.
#[test]
fn server_errors_are_reported() {
    for (variable, expected) in [
        ("FERRITE_TEST_POSTGRES", "database \"nowhere\" does not exist (SQLSTATE 3D000)"),
        ("FERRITE_TEST_MARIADB", "Unknown database 'nowhere' (error 1049)"),
    ] {
        let Ok(base) = std::env::var(variable) else { continue };
        let (server, _) = base.rsplit_once('/').unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut settings = StoreSettings::in_dir(dir.path());
        settings.url = Some(format!("{server}/nowhere"));
        let error = Store::open_with_clock(&settings, Arc::new(|| Timestamp(0)))
            .map(Store::close)
            .unwrap_err();
        let message = chain(&error);
        assert!(message.ends_with(expected), "{message}");
        assert_readable(&message);
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    message
}

/// The message contains no Rust type names or debug output.
fn assert_readable(message: &str) {
    assert!(!message.contains(['{', '[', '\u{7d}']) && !message.contains("Error"), "{message}");
}
