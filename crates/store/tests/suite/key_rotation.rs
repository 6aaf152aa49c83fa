// SPDX-License-Identifier: Apache-2.0
//! The sealing key is replaced while other processes run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node_model::{AgentLogKind, AgentLogLimits, Node, NodeId, Secret, Sensitive, Timestamp};
use serde_json::json;
use store::{
    KeySource, KeyStatus, NodeSecrets, RotationError, RotationPhase, RotationProgress,
    RotationSummary, SealError, Store, StoreError, StoreOpenError, StoreSettings, StoredAuthority,
};

use crate::boot_plans::plan;
use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! {
    running_processes_follow_a_rotation process_without_the_new_key_is_named
    interrupted_rotation_continues damaged_values_are_skipped
    keys_of_other_sources_are_rotated
}

const SECRET_ARGUMENTS: &str = r#"{"password":"sesame"}"#;
const LONG: Duration = Duration::from_secs(60);

fn file(settings: &StoreSettings) -> std::path::PathBuf {
    settings.data_dir.join("secrets.key")
}

/// Another process with its own copy of the key file.
fn other_process(db: &TestDatabase, folder: &std::path::Path) -> Result<Store, StoreOpenError> {
    let mut settings = db.settings.clone();
    settings.data_dir = folder.to_owned();
    if settings.url.is_none() {
        let path = db.settings.data_dir.join("ferrite.sqlite");
        settings.url = Some(format!("sqlite:{}", path.display()));
    }
    let now = db.now();
    Store::open_with_clock(&settings, Arc::new(move || now))
}

fn seal_password(db: &TestDatabase, name: &str, password: &str) -> NodeId {
    let (name, password) = (name.to_owned(), password.to_owned());
    db.write(move |w| {
        let mut machine = node(&name);
        let driver_info = json!({"password": password}).as_object().unwrap().clone();
        w.seal_node(&mut machine, NodeSecrets { driver_info, ..NodeSecrets::default() })?;
        w.insert(&machine)?;
        Ok(machine.id)
    })
    .unwrap()
}

fn password(db: &TestDatabase, store: &Store, id: NodeId) -> Result<String, StoreError> {
    db.runtime.block_on(store.read(move |r| {
        let node: Node = r.get(id)?.unwrap();
        let full = r.reveal(&node)?;
        Ok(full.driver_info["password"].as_str().unwrap().to_owned())
    }))
}

/// Runs transactions of these processes, as heartbeats do, while `action` runs.
fn while_running<T>(db: &TestDatabase, stores: &[Store], action: impl FnOnce() -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = stores
        .iter()
        .map(|store| {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            db.runtime.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    store.follow_keys().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
        })
        .collect();
    let result = action();
    stop.store(true, Ordering::SeqCst);
    tasks.into_iter().for_each(|task| db.runtime.block_on(task).unwrap());
    result
}

fn rotate(db: &TestDatabase, store: &Store) -> Result<RotationSummary, RotationError> {
    db.runtime.block_on(store.rotate_key(LONG, &mut |_| {}))
}

fn status(db: &TestDatabase, store: &Store) -> KeyStatus {
    db.runtime.block_on(store.key_status()).unwrap()
}

fn running_processes_follow_a_rotation(db: &TestDatabase) {
    // A value of every kind.
    let id = seal_password(db, "one", "sesame");
    let authority = StoredAuthority {
        certificate: "c".to_owned(),
        key: Secret::new("sesame".to_owned()),
        expires_at: Timestamp(7),
    };
    let machine = db.read(move |r| r.get(id)).unwrap().unwrap();
    let (plan, log) = (plan(&machine, "key"), b"log".to_vec());
    let (mut template, rule) = (template("CUSTOM_T"), rule(Sensitive::Yes));
    template.steps[0].args = object(SECRET_ARGUMENTS);
    let ids = (template.id, rule.id);
    let (stored, stored_plan, stored_rule) = (authority.clone(), plan.clone(), rule.clone());
    let log_id = db
        .write(move |w| {
            w.set_certificate_authority(&stored)?;
            w.set_boot_plan(&stored_plan)?;
            w.insert(&template)?;
            w.insert(&stored_rule)?;
            let limits = AgentLogLimits { per_node: 1, bytes: 100 };
            w.insert_agent_log(id, AgentLogKind::Deploy, "why", &log, limits)
        })
        .unwrap()
        .unwrap();
    let before = status(db, &db.store);
    assert_eq!(before.own_key_ids, std::slice::from_ref(&before.sealing_key_id));
    let loaded = db.read(move |r| r.get(id)).unwrap().unwrap();

    let (other, command) = (db.open_again().unwrap(), db.open_again().unwrap());
    let summary = while_running(db, &[db.store.clone(), other.clone()], || {
        let mut messages = Vec::new();
        let summary = db
            .runtime
            .block_on(command.rotate_key(LONG, &mut |progress| messages.push(progress)))
            .unwrap();
        let last = messages.last().unwrap();
        assert!(matches!(last, RotationProgress::Resealing { done: 6, total: 6 }), "{messages:?}");
        summary
    });
    assert_eq!((summary.resealed, summary.damaged), (6, 0));
    let after = status(db, &command);
    assert_ne!(after.sealing_key_id, before.sealing_key_id);
    assert_eq!(summary.key_id, after.sealing_key_id);
    assert_eq!(after.other_keys, [(before.sealing_key_id.clone(), 0)]);
    assert_eq!(after.rotation, None);
    assert!(after.processes.iter().all(|process| process.sealing_key_id == summary.key_id));

    // Processes that were running, and a new one, read everything.
    let new = db.open_again().unwrap();
    for store in [&db.store, &other, &command, &new] {
        assert_eq!(password(db, store, id).unwrap(), "sesame");
        let (plan, authority, rule) = (plan.clone(), authority.clone(), rule.clone());
        db.runtime
            .block_on(store.read(move |r| {
                assert_eq!(r.boot_plan(id)?.unwrap(), plan);
                assert_eq!(r.certificate_authority()?.unwrap(), authority);
                assert_eq!(r.get(ids.0)?.unwrap().steps[0].args.as_str(), SECRET_ARGUMENTS);
                assert_eq!(r.get(ids.1)?.unwrap().actions, rule.actions);
                assert_eq!(r.agent_log(id, log_id)?.unwrap().1, b"log");
                Ok::<_, StoreError>(())
            }))
            .unwrap();
    }
    // A record that was loaded before is saved with the new key.
    db.write(move |w| w.save(&mut loaded.clone())).unwrap();
    seal_password(db, "two", "sesame");
    assert_eq!(status(db, &command).other_keys[0].1, 0);

    // The old key is kept until it is removed.
    assert_eq!(std::fs::read_to_string(file(&db.settings)).unwrap().lines().count(), 2);
    let removed = db.runtime.block_on(command.remove_old_keys(&mut |_| {})).unwrap().unwrap();
    assert_eq!(removed.resealed, 0);
    assert_eq!(std::fs::read_to_string(file(&db.settings)).unwrap().lines().count(), 1);
    let last = db.open_again().unwrap();
    assert_eq!(password(db, &last, id).unwrap(), "sesame");
    for store in [other, command, new, last] {
        store.close();
    }
    // Only the first process is left.
    assert_eq!(status(db, &db.store).processes.len(), 1);
}

fn process_without_the_new_key_is_named(db: &TestDatabase) {
    let id = seal_password(db, "one", "sesame");
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(file(&db.settings), folder.path().join("secrets.key")).unwrap();
    let other = other_process(db, folder.path()).unwrap();
    let command = db.open_again().unwrap();
    let refused = while_running(db, std::slice::from_ref(&db.store), || {
        // Waits until the processes with the same key file have read it again.
        let end = std::time::Instant::now() + LONG;
        loop {
            match db.runtime.block_on(command.rotate_key(Duration::ZERO, &mut |_| {})) {
                Err(RotationError::ProcessesWithoutKey { processes, key_id })
                    if processes.len() == 1 =>
                {
                    break key_id;
                }
                Err(RotationError::ProcessesWithoutKey { .. }) => {}
                end => panic!("{end:?}"),
            }
            assert!(std::time::Instant::now() < end);
        }
    });
    let rotation = status(db, &command).rotation.unwrap();
    assert_eq!((rotation.phase, rotation.key_id), (RotationPhase::Announced, refused.clone()));
    // Nothing has changed for the process, but one that starts is refused.
    assert_eq!(password(db, &other, id).unwrap(), "sesame");
    db.runtime.block_on(other.follow_keys()).unwrap();
    match other_process(db, folder.path()) {
        Err(StoreOpenError::Key { source: SealError::NewKeyMissing { key_id }, .. }) => {
            assert_eq!(key_id, refused);
        }
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("opened"),
    }
    // The keys cannot be removed yet.
    let error = db.runtime.block_on(command.remove_old_keys(&mut |_| {})).unwrap_err();
    assert!(matches!(error, RotationError::Unfinished { .. }), "{error:?}");

    std::fs::copy(file(&db.settings), folder.path().join("secrets.key")).unwrap();
    let summary =
        while_running(db, &[db.store.clone(), other.clone()], || rotate(db, &command).unwrap());
    assert_eq!(summary.key_id, refused);
    assert_eq!(password(db, &other, id).unwrap(), "sesame");
    other.close();
    command.close();
}

/// The rotation is stopped after its first batch.
fn interrupted_rotation_continues(db: &TestDatabase) {
    let ids: Vec<NodeId> =
        (0..150).map(|number| seal_password(db, &format!("n{number}"), "sesame")).collect();
    let command = db.open_again().unwrap();
    while_running(db, std::slice::from_ref(&db.store), || {
        let (sender, first) = std::sync::mpsc::channel();
        let store = command.clone();
        let task = db.runtime.spawn(async move {
            let mut report = |progress| {
                if matches!(progress, RotationProgress::Resealing { .. }) {
                    let _ = sender.send(());
                }
            };
            store.rotate_key(LONG, &mut report).await
        });
        first.recv_timeout(LONG).unwrap();
        task.abort();
        let _ = db.runtime.block_on(task);
    });
    command.close();
    // Old and new values are readable.
    for id in [ids[0], ids[149]] {
        assert_eq!(password(db, &db.store, id).unwrap(), "sesame");
    }
    let command = db.open_again().unwrap();
    if status(db, &command).rotation.is_some() {
        while_running(db, std::slice::from_ref(&db.store), || rotate(db, &command).unwrap());
    }
    let after = status(db, &command);
    assert_eq!(after.rotation, None);
    assert_eq!(after.own_key_ids.len(), 2);
    assert_eq!(after.other_keys[0].1, 0);
    for id in ids {
        assert_eq!(password(db, &command, id).unwrap(), "sesame");
    }
    command.close();
}

fn damaged_values_are_skipped(db: &TestDatabase) {
    let (one, two) = (seal_password(db, "one", "sesame"), seal_password(db, "two", "sesame"));
    // Sealed for another node.
    db.write(move |w| {
        let (from, mut to) = (w.get(one)?.unwrap(), w.get(two)?.unwrap());
        to.sealed = from.sealed;
        w.save(&mut to)
    })
    .unwrap();
    let command = db.open_again().unwrap();
    let summary =
        while_running(db, std::slice::from_ref(&db.store), || rotate(db, &command).unwrap());
    assert_eq!((summary.resealed, summary.damaged), (1, 1));
    assert_eq!(password(db, &db.store, one).unwrap(), "sesame");
    assert!(matches!(password(db, &db.store, two), Err(StoreError::Unseal { .. })));
    command.close();
}

/// A source that cannot be written.
#[derive(Debug)]
struct ReadOnlyKeys(Mutex<String>);

impl KeySource for ReadOnlyKeys {
    fn describe(&self) -> String {
        "the test".to_owned()
    }

    fn load(&self) -> Result<Option<Secret<String>>, SealError> {
        Ok(Some(Secret::new(self.0.lock().unwrap().clone())))
    }
}

fn keys_of_other_sources_are_rotated(db: &TestDatabase) {
    let id = seal_password(db, "one", "sesame");
    let text = std::fs::read_to_string(file(&db.settings)).unwrap();
    let source = Arc::new(ReadOnlyKeys(Mutex::new(String::new())));
    let mut settings = db.settings.clone();
    settings.key_source = Some(source.clone());
    let now = db.now();
    let open = || Store::open_with_clock(&settings, Arc::new(move || now));
    match open() {
        Err(StoreOpenError::Key { from, source: SealError::Missing }) => {
            assert_eq!(from, "the test");
        }
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("opened"),
    }
    source.0.lock().unwrap().clone_from(&text);
    db.store.clone().close();
    let store = open().unwrap();
    assert_eq!(password(db, &store, id).unwrap(), "sesame");
    assert!(matches!(rotate(db, &store), Err(RotationError::NoNewKey { .. })));
    let key = || format!("{}\n", store::new_key().reveal());
    *source.0.lock().unwrap() = [key(), text.clone(), key()].concat();
    assert!(matches!(rotate(db, &store), Err(RotationError::SeveralNewKeys { .. })));
    store.close();
    *source.0.lock().unwrap() = [key(), text].concat();
    let store = open().unwrap();
    assert_eq!(rotate(db, &store).unwrap().resealed, 1);
    assert_eq!(password(db, &store, id).unwrap(), "sesame");
    assert!(db.runtime.block_on(store.remove_old_keys(&mut |_| {})).unwrap().is_none());
    store.close();
}
