// SPDX-License-Identifier: Apache-2.0
//! Backups: restored from every engine into every engine, consistent, and rejected if damaged.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use node_model::{
    ConductorInfo, Deployment, DeploymentState, JournalEvent, LeaseEndAction, Node, NodeId,
    ProvisionState, Timestamp,
};
use store::{
    BackupError, JournalQuery, LeaseOwner, NodeFilter, RestoreOptions, Store, StoreError,
    StoreSettings, back_up, check_backup, restore,
};
use tempfile::TempDir;
use uuid::Uuid;

use crate::migrations::drop_key_tables;
use crate::samples::*;
use crate::sealed_values::insert_secrets;
use crate::tenancy::deployment;
use crate::test_database::{EngineKind, TestDatabase, TestServerDatabase, on_every_engine, run};

on_every_engine! {
    every_row_is_restored_on_every_engine backup_of_a_busy_database_is_consistent
    unfinished_work_is_held_in_maintenance deployments_do_not_act_after_a_restore older_schemas_are_restored empty_databases_are_rejected
    missing_keys_are_reported
}

const CONTINUE: RestoreOptions = RestoreOptions { dry_run: false, continue_work: true };
const HOLD: RestoreOptions = RestoreOptions { dry_run: false, continue_work: false };
const DRY_RUN: RestoreOptions = RestoreOptions { dry_run: true, continue_work: false };

/// An empty database with the key of another one.
struct RestoreTarget {
    settings: StoreSettings,
    dir: TempDir,
    _server: Option<TestServerDatabase>,
}

impl RestoreTarget {
    /// Returns `None` if there is no server of this kind.
    fn new(kind: EngineKind, source: &TestDatabase) -> Option<Self> {
        let server = TestServerDatabase::create(kind)?;
        let dir = tempfile::tempdir().unwrap();
        let mut settings = StoreSettings::in_dir(dir.path());
        settings.url = server.as_ref().map(|server| server.url.clone());
        let key = "secrets.key";
        std::fs::copy(source.settings.data_dir.join(key), dir.path().join(key)).unwrap();
        Some(Self { settings, dir, _server: server })
    }

    fn open(&self) -> Store {
        Store::open_with_clock(&self.settings, Arc::new(|| Timestamp(1_800_000_000_000_000)))
            .unwrap()
    }
}

fn backup_of(settings: &StoreSettings, dir: &TempDir) -> PathBuf {
    let file = dir.path().join(format!("{}.backup", Uuid::new_v4()));
    back_up(settings, &file).unwrap();
    file
}

/// The lines of tables and rows, which do not depend on the engine.
fn content(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[1..lines.len() - 1].to_vec()
}

fn fill(db: &TestDatabase) {
    let group = chassis();
    let machine = full_node(group.id);
    let id = machine.id;
    let at = db.now();
    db.write(move |w| {
        insert_secrets(w)?;
        w.insert(&group)?;
        w.insert(&machine)?;
        let bond = portgroup(id, 1);
        w.insert(&bond)?;
        w.insert(&port(id, 2))?;
        w.insert(&volume_connector(id, "iqn.2026-01.example"))?;
        w.insert(&allocation(Some(id), "one"))?;
        w.add_history(&history(id, "it \"failed\"\n\u{1F980}"))?;
        w.set_inventory(&inventory(id))?;
        w.replace_bios_settings(id, &[bios_setting("BootMode")])?;
        w.replace_firmware_components(id, &[firmware("bmc")])?;
        for number in 0..250 {
            w.append(entry(id, at, &number.to_string()));
        }
        Ok(())
    })
    .unwrap();
}

fn every_row_is_restored_on_every_engine(db: &TestDatabase) {
    fill(db);
    let dir = tempfile::tempdir().unwrap();
    let file = backup_of(&db.settings, &dir);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let summary = check_backup(&file).unwrap();
    assert_eq!((summary.nodes, summary.unfinished_nodes), (2, 2));
    assert_eq!(summary.sealing_key_ids.len(), 1);
    let key = std::fs::read_to_string(db.settings.data_dir.join("secrets.key")).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(key.trim()), "a backup contains no key");
    assert!(!text.contains("sesame"), "secrets stay sealed");

    for kind in [EngineKind::Sqlite, EngineKind::Postgres, EngineKind::MariaDb] {
        let Some(target) = RestoreTarget::new(kind, db) else { continue };
        let dry = restore(&target.settings, &file, DRY_RUN).unwrap();
        assert_eq!(dry.backup, summary);
        let report = restore(&target.settings, &file, CONTINUE).unwrap();
        assert_eq!(report.backup, summary);
        assert_eq!(report.previous_database, None);
        let again = backup_of(&target.settings, &target.dir);
        assert_eq!(content(&again), content(&file), "{kind:?}");

        // The restored database is used: secrets are readable, and new rows get new numbers.
        let store = target.open();
        let end = db.runtime.block_on(store.read(|r| r.journal_end())).unwrap();
        let added = node("after the restore");
        let id = added.id;
        let secrets = db.runtime.block_on(store.write(move |w| {
            w.insert(&added)?;
            w.append(entry(id, THEN, "new"));
            let restored: Option<Node> = w.find(store::NodeColumn::Name, "one")?;
            w.reveal(&restored.unwrap())
        }));
        assert_eq!(secrets.unwrap().driver_info["password"], "sesame", "{kind:?}");
        let query = JournalQuery { node: Some(id), after: 0, limit: 9 };
        let entries = db.runtime.block_on(store.read(move |r| r.journal(&query))).unwrap();
        assert_eq!(entries.len(), 1);
        assert!(entries[0].seq > end, "{kind:?}: {} after {end}", entries[0].seq);
        assert!(matches!(entries[0].entry.event, JournalEvent::Requested { .. }));
        store.close();
        if kind == EngineKind::Sqlite {
            continue;
        }
        match restore(&target.settings, &file, DRY_RUN) {
            Err(BackupError::NotEmpty { .. }) => {}
            other => panic!("{kind:?}: {other:?}"),
        }
    }
}

/// Ends the writer, also if the test fails.
struct WriterStop<'a>(&'a AtomicBool);

impl Drop for WriterStop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Each transaction inserts a node and its port, so a snapshot has as many ports as nodes.
fn backup_of_a_busy_database_is_consistent(db: &TestDatabase) {
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let machine = node(&format!("n{number}"));
                db.write(move |w| {
                    w.insert(&machine)?;
                    w.insert(&port(machine.id, number))
                })
                .unwrap();
                written.fetch_add(1, Ordering::SeqCst);
            }
        });
        let stop_writer = WriterStop(&stop);
        let mut files = Vec::new();
        for round in 1..=3 {
            // There are writes between and during the backups.
            while written.load(Ordering::SeqCst) < round * 20 {
                std::thread::yield_now();
            }
            files.push(backup_of(&db.settings, &dir));
        }
        drop(stop_writer);
        for file in files {
            let lines = content(&file);
            let rows_of = |table: &str| {
                let start = format!("{{\"table\":\"{table}\"");
                let rows = lines.iter().skip_while(|line| !line.starts_with(&start)).skip(1);
                rows.take_while(|line| line.starts_with('[')).count()
            };
            assert!(rows_of("nodes") >= 20);
            assert_eq!(rows_of("nodes"), rows_of("ports"));
        }
    });
}

fn unfinished_work_is_held_in_maintenance(db: &TestDatabase) {
    let group = chassis();
    let mut working = full_node(group.id);
    working.maintenance = false;
    let mut idle = node("idle");
    idle.due_at = Some(Timestamp(5));
    let (working_id, idle_id) = (working.id, idle.id);
    let owner = LeaseOwner { hostname: "one".to_owned(), run: Uuid::new_v4() };
    db.write(move |w| {
        w.insert(&group)?;
        w.insert(&working)?;
        w.insert(&idle)
    })
    .unwrap();
    let claimed =
        db.write(move |w| w.claim(working_id, &owner, Duration::from_secs(3600))).unwrap();
    assert!(claimed.is_some());
    let dir = tempfile::tempdir().unwrap();
    let file = backup_of(&db.settings, &dir);
    let target = RestoreTarget::new(db.kind, db).unwrap();
    restore(&target.settings, &file, HOLD).unwrap();
    let store = target.open();
    let get = |id: NodeId| db.runtime.block_on(store.read(move |r| r.get(id))).unwrap().unwrap();
    let node: Node = get(working_id);
    assert!(node.maintenance && node.work.is_some());
    assert_eq!((node.due_at, node.reservation.as_deref()), (None, None));
    let reason = node.maintenance_reason.unwrap();
    assert!(reason.starts_with("restored from a backup of 20"), "{reason}");
    let node = get(idle_id);
    assert!(!node.maintenance);
    assert_eq!(node.due_at, Some(Timestamp(5)));
    store.close();
}

/// What happened after the backup is not known, so nothing is given away or taken back.
fn deployments_do_not_act_after_a_restore(db: &TestDatabase) {
    let mut free = node("free");
    free.provision_state = ProvisionState::Available;
    let free_id = free.id;
    let lease = |end: i64| Deployment {
        state: DeploymentState::Active,
        expires_at: Some(Timestamp(end)),
        expired_at: None,
        expiry_action: LeaseEndAction::Undeploy,
        ..deployment(&format!("lease-{end}"), "p")
    };
    let (over, running) = (lease(50), lease(i64::MAX));
    let removed = Deployment { state: DeploymentState::Deleting, ..deployment("removed", "p") };
    let ids = [over.id, running.id, removed.id];
    let conductor = ConductorInfo {
        hostname: "one".to_owned(),
        run: Some(Uuid::new_v4()),
        version: None,
        conductor_group: String::new(),
        drivers: vec!["fake-hardware".to_owned()],
        created_at: db.now(),
        updated_at: db.now(),
        online: true,
    };
    db.write(move |w| {
        w.insert(&free)?;
        for deployment in [&over, &running, &removed] {
            w.insert(deployment)?;
        }
        w.begin_session(&conductor, None)
    })
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = backup_of(&db.settings, &dir);
    for (options, is_held) in [(HOLD, true), (CONTINUE, false)] {
        let target = RestoreTarget::new(db.kind, db).unwrap();
        restore(&target.settings, &file, options).unwrap();
        let store = target.open();
        let read = store.read(move |r| {
            let node: Option<Node> = r.get(free_id)?;
            let deployments: Vec<Option<Deployment>> =
                ids.iter().map(|id| r.get(*id)).collect::<Result<_, _>>()?;
            Ok::<_, StoreError>((node, deployments, r.conductors()?))
        });
        let (node, deployments, conductors) = db.runtime.block_on(read).unwrap();
        assert_eq!(node.unwrap().maintenance, is_held);
        let [over, running, removed] = deployments
            .try_into()
            .map(|all: [Option<Deployment>; 3]| all.map(Option::unwrap))
            .unwrap();
        assert_eq!(over.expiry_action == LeaseEndAction::Notify, is_held);
        assert_eq!(running.expiry_action, LeaseEndAction::Undeploy);
        assert_eq!(removed.state == DeploymentState::Failed, is_held);
        assert!(conductors.iter().all(|conductor| !conductor.online));
        store.close();
    }
}

/// A backup of an older schema has its tables; opening the restored database migrates it.
fn older_schemas_are_restored(db: &TestDatabase) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    drop_key_tables(db);
    db.sql("DELETE FROM schema_migrations WHERE number >= 13");
    let dir = tempfile::tempdir().unwrap();
    let file = backup_of(&db.settings, &dir);
    let summary = check_backup(&file).unwrap();
    assert_eq!((summary.schema, summary.nodes), (12, 1));
    assert_eq!(summary.sealing_key_ids.len(), 1);
    let target = RestoreTarget::new(db.kind, db).unwrap();
    restore(&target.settings, &file, HOLD).unwrap();
    let store = target.open();
    let count =
        db.runtime.block_on(store.read(|r| r.count::<Node>(&NodeFilter::default()))).unwrap();
    assert_eq!(count, 1);
    store.close();
    // The test database is used again when it is closed.
    db.open_again().unwrap().close();
}

fn empty_databases_are_rejected(db: &TestDatabase) {
    let target = RestoreTarget::new(db.kind, db).unwrap();
    if db.kind == EngineKind::Sqlite {
        std::fs::write(target.dir.path().join("ferrite.sqlite"), "").unwrap();
    }
    let file = target.dir.path().join("backup");
    match back_up(&target.settings, &file) {
        Err(BackupError::NothingToBackUp) => {}
        other => panic!("{other:?}"),
    }
    assert!(!file.exists());
    // No partial file is left.
    let names: Vec<_> = std::fs::read_dir(target.dir.path()).unwrap().collect();
    assert!(!format!("{names:?}").contains("partial"), "{names:?}");
}

fn missing_keys_are_reported(db: &TestDatabase) {
    db.write(insert_secrets).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = backup_of(&db.settings, &dir);
    let target = RestoreTarget::new(db.kind, db).unwrap();
    let key = target.dir.path().join("secrets.key");
    std::fs::remove_file(&key).unwrap();
    for content in [None, Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")] {
        if let Some(content) = content {
            std::fs::write(&key, content).unwrap();
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        match restore(&target.settings, &file, HOLD) {
            Err(BackupError::KeyMissing { key_id, .. }) => {
                assert_eq!(key_id, check_backup(&file).unwrap().sealing_key_ids[0]);
            }
            other => panic!("{other:?}"),
        }
    }
    let copied = std::fs::copy(db.settings.data_dir.join("secrets.key"), &key);
    copied.unwrap();
    restore(&target.settings, &file, HOLD).unwrap();
}

/// The restore replaces the database and keeps the previous one, with what was only in its write-ahead log.
#[test]
fn previous_sqlite_database_is_kept() {
    run(EngineKind::Sqlite, |db| {
        db.write(|w| w.insert(&node("before"))).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = backup_of(&db.settings, &dir);
        let target = RestoreTarget::new(EngineKind::Sqlite, db).unwrap();
        // A process that was killed leaves a log.
        let database = target.dir.path().join("ferrite.sqlite");
        db.write(|w| w.insert(&node("after"))).unwrap();
        for suffix in ["", "-wal"] {
            let name = format!("ferrite.sqlite{suffix}");
            let source = db.settings.data_dir.join(&name);
            std::fs::copy(source, target.dir.path().join(&name)).unwrap();
        }
        let report = restore(&target.settings, &file, HOLD).unwrap();
        let kept = report.previous_database.unwrap();
        let names = |path: &Path| {
            let connection = rusqlite::Connection::open(path).unwrap();
            let mut statement = connection.prepare("SELECT name FROM nodes ORDER BY name").unwrap();
            let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
            names.collect::<Result<Vec<_>, _>>().unwrap()
        };
        assert_eq!(names(&kept), ["after", "before"]);
        assert_eq!(names(&database), ["before"]);
        assert_eq!(std::fs::metadata(&database).unwrap().permissions().mode() & 0o777, 0o600);
        // A second restore keeps both.
        let report = restore(&target.settings, &file, HOLD).unwrap();
        assert_ne!(report.previous_database.unwrap(), kept);
        assert!(kept.exists());
    });
}

/// A file that was damaged anywhere is rejected, and the database stays as it is.
#[test]
fn damaged_backups_are_rejected() {
    run(EngineKind::Sqlite, |db| {
        fill(db);
        let dir = tempfile::tempdir().unwrap();
        let file = backup_of(&db.settings, &dir);
        let target = RestoreTarget::new(EngineKind::Sqlite, db).unwrap();
        let database = target.dir.path().join("ferrite.sqlite");
        std::fs::write(&database, "not touched").unwrap();
        let good = std::fs::read(&file).unwrap();
        let damaged = dir.path().join("damaged");
        let rejection = |bytes: &[u8]| {
            std::fs::write(&damaged, bytes).unwrap();
            let error = restore(&target.settings, &damaged, HOLD).unwrap_err();
            assert_eq!(std::fs::read(&database).unwrap(), b"not touched");
            error
        };
        // Truncated: after each of some lines, and within them.
        let ends: Vec<usize> =
            good.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|it| it.0).collect();
        for end in ends[..ends.len() - 1].iter().step_by(17) {
            for length in [*end, end + 1, end + 2] {
                let error = rejection(&good[..length]);
                let BackupError::Invalid { why, .. } = &error else { panic!("{error:?}") };
                assert!(why.contains("truncated"), "{why}");
            }
        }
        // A changed byte.
        for position in (0..good.len() - 1).step_by(997) {
            let mut bytes = good.clone();
            bytes[position] ^= 1;
            let error = rejection(&bytes);
            assert!(
                matches!(error, BackupError::Invalid { .. } | BackupError::NewerVersion { .. }),
                "{position}: {error:?}"
            );
        }
        // A changed digit of a row, which is valid JSON.
        let text = String::from_utf8(good.clone()).unwrap();
        let changed = text.replacen("ümläut", "umlaut", 1);
        let error = rejection(changed.as_bytes()).to_string();
        assert!(error.contains("the checksum differs"), "{error}");
        // A row less, another end, more after the end.
        let lines: Vec<&str> = text.lines().collect();
        let without: Vec<&str> = [&lines[..lines.len() - 2], &lines[lines.len() - 1..]].concat();
        assert!(matches!(
            rejection(format!("{}\n", without.join("\n")).as_bytes()),
            BackupError::Invalid { .. }
        ));
        let error = rejection(format!("{text}[1]\n").as_bytes()).to_string();
        assert!(error.contains("after the end"), "{error}");
        let error = rejection(b"SQLite format 3\0\n").to_string();
        assert!(error.contains("header of a backup"), "{error}");
        assert!(rejection(b"").to_string().contains("truncated"));
        // Versions of the future.
        let newer = |from: &str, to: &str| rejection(text.replacen(from, to, 1).as_bytes());
        let schema = format!("\"schema\":{}", check_backup(&file).unwrap().schema);
        assert!(matches!(
            newer("\"version\":1,", "\"version\":2,"),
            BackupError::NewerVersion { what: "format", found: 2, known: 1, .. }
        ));
        assert!(matches!(
            newer(&schema, "\"schema\":999"),
            BackupError::NewerVersion { what: "schema", found: 999, .. }
        ));
        // Nothing but the database, the key and files of this test is in the folder.
        let mut names: Vec<_> = std::fs::read_dir(target.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["ferrite.sqlite", "secrets.key"]);
        // A damaged database, in contrast, is replaced.
        restore(&target.settings, &file, HOLD).unwrap();
    });
}

#[test]
fn existing_files_are_not_overwritten() {
    run(EngineKind::Sqlite, |db| {
        let file = db.settings.data_dir.join("backup");
        std::fs::write(&file, "mine").unwrap();
        assert!(matches!(back_up(&db.settings, &file), Err(BackupError::Exists { .. })));
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    });
}

#[test]
fn damaged_databases_are_not_backed_up() {
    run(EngineKind::Sqlite, |db| {
        fill(db);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ferrite.sqlite");
        let copy = format!("VACUUM INTO '{}'", path.display());
        db.sql(&copy);
        let mut bytes = std::fs::read(&path).unwrap();
        let (start, end) = (bytes.len() / 4, bytes.len() / 2);
        bytes[start..end].fill(0xa5);
        std::fs::write(&path, bytes).unwrap();
        let file = dir.path().join("backup");
        let error = back_up(&StoreSettings::in_dir(dir.path()), &file).unwrap_err();
        assert!(
            matches!(error, BackupError::DamagedDatabase { .. } | BackupError::Open(_)),
            "{error:?}"
        );
        assert!(!file.exists());
    });
}

/// A failed restore leaves an empty database, which can be used for the next attempt.
#[test]
fn failed_restore_on_mariadb_is_undone() {
    run(EngineKind::MariaDb, |db| {
        db.write(|w| w.insert(&node("one"))).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = backup_of(&db.settings, &dir);
        // Valid as a file, and too long for a column.
        let text = std::fs::read_to_string(&file).unwrap();
        let long =
            rewritten(&text.replacen("\"fake-hardware\"", &format!("\"{}\"", "x".repeat(300)), 1));
        let bad = dir.path().join("bad");
        std::fs::write(&bad, long).unwrap();
        check_backup(&bad).unwrap();
        let target = RestoreTarget::new(EngineKind::MariaDb, db).unwrap();
        match restore(&target.settings, &bad, HOLD) {
            Err(BackupError::Write { table, source: StoreError::ValueRejected(_), .. }) => {
                assert_eq!(table, "nodes");
            }
            other => panic!("{other:?}"),
        }
        restore(&target.settings, &file, HOLD).unwrap();
    });
}

/// The text with the checksum of its lines.
fn rewritten(text: &str) -> String {
    use sha2::Digest as _;
    let body_end = text.trim_end().rfind('\n').unwrap() + 1;
    let (body, end) = text.split_at(body_end);
    let old = end.split('"').rev().nth(1).unwrap();
    let new = hex::encode(sha2::Sha256::digest(body.as_bytes()));
    format!("{body}{}", end.replace(old, &new))
}
