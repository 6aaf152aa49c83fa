// SPDX-License-Identifier: Apache-2.0
//! A killed process loses no write that was acknowledged.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use node_model::{NodeId, Timestamp};
use store::{JournalQuery, Store, StoreError, StoreSettings};

use crate::samples::*;

const DIRECTORY: &str = "FERRITE_TEST_KILL_DIRECTORY";

#[test]
fn committed_writes_survive_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child_process_that_is_killed", "--nocapture"])
        .env(DIRECTORY, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ids = |line: std::io::Result<String>| {
        line.ok()?.strip_prefix("committed ")?.parse::<NodeId>().ok()
    };
    let mut committed: Vec<NodeId> = lines.by_ref().filter_map(ids).take(200).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    committed.extend(lines.filter_map(ids));
    assert!(committed.len() >= 200);

    let store = open(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let found = committed.clone();
    let missing: Vec<NodeId> = runtime
        .block_on(store.read(move |r| {
            let mut missing = Vec::new();
            for id in found {
                let entries =
                    r.journal(&JournalQuery { node: Some(id), after: 0, limit: 2 })?.len();
                // The change and its journal entry are committed together.
                if r.get(id)?.is_none() || entries != 1 {
                    missing.push(id);
                }
            }
            Ok::<_, StoreError>(missing)
        }))
        .unwrap();
    assert!(missing.is_empty(), "{} of {}", missing.len(), committed.len());
}

/// The child process of the test above; does nothing on its own.
#[test]
fn child_process_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let store = open(directory.as_ref());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            runtime.spawn(async move {
                loop {
                    let mut machine = node("");
                    machine.name = None;
                    let id = machine.id;
                    let write = move |w: &mut store::StoreWriter<'_>| {
                        w.append(entry(id, Timestamp(0), "x"));
                        w.insert(&machine)
                    };
                    if store.write(write).await.is_err() {
                        break;
                    }
                    println!("\ncommitted {id}");
                }
            })
        })
        .collect();
    for writer in writers {
        let _ = runtime.block_on(writer);
    }
}

fn open(directory: &std::path::Path) -> Store {
    Store::open_with_clock(&StoreSettings::in_dir(directory), Arc::new(|| Timestamp(0))).unwrap()
}
