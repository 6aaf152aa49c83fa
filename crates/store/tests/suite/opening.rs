// SPDX-License-Identifier: Apache-2.0
//! Opening a database: migrations, versions, addresses and the key file.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use node_model::{Node, Timestamp};
use serde_json::json;
use store::{NodeFilter, NodeSecrets, OpenError, Settings, Store, VaultError};

use crate::database::{Database, Kind, on_every_engine};
use crate::lookups::take_away;
use crate::samples::*;

on_every_engine! {
    opening_twice_keeps_everything an_older_database_is_brought_up_to_date a_newer_schema_is_refused many_open_together
    the_key_file_is_guarded tables_of_others_are_refused
}

fn refusal(db: &Database) -> VaultError {
    match db.open_again() {
        Err(OpenError::Key { source, .. }) => source,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}

fn opening_twice_keeps_everything(db: &Database) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    let again = db.open_again().unwrap();
    let count =
        db.runtime.block_on(again.read(|r| r.count::<Node>(&NodeFilter::default()))).unwrap();
    assert_eq!(count, 1);
    again.close();
}

/// What the third migration and those after it added is taken away, and comes back around what was
/// there.
fn an_older_database_is_brought_up_to_date(db: &Database) {
    let machine = node("one");
    let id = machine.id;
    db.write(move |w| {
        w.insert(&machine)?;
        w.set_inventory(&inventory(id))
    })
    .unwrap();
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
    take_away(db);
    db.sql("ALTER TABLE inventories DROP COLUMN found");
    db.sql("ALTER TABLE strangers DROP COLUMN report_uuid");
    db.sql("ALTER TABLE conductors DROP COLUMN run_uuid");
    db.sql("DELETE FROM schema_migrations WHERE number >= 3");
    let again = db.open_again().unwrap();
    let found = db.runtime.block_on(again.read(move |r| r.inventory(id))).unwrap().unwrap();
    assert_eq!(found.inventory, inventory(id).inventory);
    assert!(found.found.is_empty());
    assert!(db.runtime.block_on(again.read(|r| r.strangers(9))).unwrap().is_empty());
    assert!(db.runtime.block_on(again.read(|r| r.conductors())).unwrap().is_empty());
    again.close();
}

fn a_newer_schema_is_refused(db: &Database) {
    db.sql("INSERT INTO schema_migrations (number, name, applied_at) VALUES (999, 'later', 0)");
    match db.open_again() {
        Err(OpenError::Newer { found: 999, known }) => assert!(known < 999),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}

/// Where Ferrite would leave alone what is there already, it must be Ferrite's.
fn tables_of_others_are_refused(db: &Database) {
    db.sql("DROP TABLE schema_migrations");
    match (db.kind, db.open_again().map(Store::close)) {
        (Kind::MariaDb, Err(OpenError::Taken { .. })) => {
            // Nothing was begun that would be gone on with.
            assert!(matches!(db.open_again(), Err(OpenError::Taken { .. })));
        }
        (Kind::Sqlite | Kind::Postgres, Err(OpenError::Migrate { number: 1, .. })) => {}
        (kind, other) => panic!("{kind:?} {other:?}"),
    }
}

fn many_open_together(db: &Database) {
    let stores: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..6).map(|_| scope.spawn(|| db.open_again().unwrap())).collect();
        opening.into_iter().map(|opening| opening.join().unwrap()).collect()
    });
    for (number, store) in stores.into_iter().enumerate() {
        let insert = move |w: &mut store::Writer<'_>| w.insert(&node(&number.to_string()));
        db.runtime.block_on(store.write(insert)).unwrap();
        store.close();
    }
    assert_eq!(db.read(|r| r.count::<Node>(&NodeFilter::default())).unwrap(), 6);
}

fn the_key_file_is_guarded(db: &Database) {
    let file = db.settings.data_dir.join("secrets.key");
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let set_mode = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o640);
    assert!(matches!(refusal(db), VaultError::Exposed { mode: 0o640 }));
    set_mode(0o600);
    db.open_again().unwrap().close();

    let key = std::fs::read(&file).unwrap();
    std::fs::write(&file, "not a key").unwrap();
    assert!(matches!(refusal(db), VaultError::Malformed));
    std::fs::write(&file, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap();
    assert!(matches!(refusal(db), VaultError::OtherKey));

    std::fs::remove_file(&file).unwrap();
    if db.kind == Kind::Sqlite {
        // Nothing was sealed with it: a new one does.
        db.open_again().unwrap().close();
        assert_ne!(std::fs::read(&file).unwrap(), key);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &key).unwrap();
        set_mode(0o600);
        assert!(matches!(refusal(db), VaultError::OtherKey));
        db.write(|w| {
            let mut machine = node("one");
            let driver_info = json!({"password": "x"}).as_object().unwrap().clone();
            w.seal_node(&mut machine, NodeSecrets { driver_info, ..NodeSecrets::default() })?;
            w.insert(&machine)
        })
        .unwrap();
        std::fs::remove_file(&file).unwrap();
    }
    assert!(matches!(refusal(db), VaultError::Missing));
}

#[test]
fn addresses() {
    let dir = tempfile::tempdir().unwrap();
    let open = |url: &str| {
        let mut settings = Settings::in_dir(dir.path());
        settings.url = Some(url.to_owned());
        Store::open(&settings, Arc::new(|| Timestamp(0))).map(Store::close)
    };
    for url in ["oracle://x", "nothing", "sqlite:", "postgresql://[", "mysql://host:port/x"] {
        assert!(matches!(open(url), Err(OpenError::Address { .. })), "{url}");
    }
    let there = dir.path().join("there.db");
    for url in [format!("sqlite:{}", there.display()), format!("sqlite:///{}", there.display())] {
        open(&url).unwrap();
        assert!(there.exists());
    }
    // Port 1 is closed; the password is not in the message.
    for url in ["postgresql://u:hunter2@127.0.0.1:1/x", "mysql://u:hunter2@127.0.0.1:1/x"] {
        let error = open(url).unwrap_err();
        assert!(matches!(error, OpenError::Connect { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        let told = chain(&error);
        assert!(told.contains("database x on 127.0.0.1:1;"), "{told}");
        assert!(told.ends_with("Connection refused (os error 111)"), "{told}");
        is_said_in_words(&told);
    }
    let error = open("postgresql://u@h/x?colour=red").unwrap_err().to_string();
    assert!(error.contains("invalid connection string: unknown option `colour`"), "{error}");
    assert!(matches!(open("sqlite:/nowhere/at/all"), Err(OpenError::File { .. })));
}

/// What a server answers is told as it said it.
#[test]
fn what_servers_say() {
    for (variable, expected) in [
        ("FERRITE_TEST_POSTGRES", "database \"nowhere\" does not exist (SQLSTATE 3D000)"),
        ("FERRITE_TEST_MARIADB", "Unknown database 'nowhere' (error 1049)"),
    ] {
        let Ok(base) = std::env::var(variable) else { continue };
        let (server, _) = base.rsplit_once('/').unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::in_dir(dir.path());
        settings.url = Some(format!("{server}/nowhere"));
        let error =
            Store::open(&settings, Arc::new(|| Timestamp(0))).map(Store::close).unwrap_err();
        let told = chain(&error);
        assert!(told.ends_with(expected), "{told}");
        is_said_in_words(&told);
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        told = format!("{told}: {inner}");
        cause = inner.source();
    }
    told
}

/// No names of types and no braces of theirs.
fn is_said_in_words(told: &str) {
    assert!(!told.contains(['{', '[', '\u{7d}']) && !told.contains("Error"), "{told}");
}
