// SPDX-License-Identifier: Apache-2.0
//! A process killed in the middle of its writes has kept every one that was answered.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use node_model::{NodeId, Timestamp};
use store::{Error, JournalQuery, Settings, Store};

use crate::samples::*;

const DIRECTORY: &str = "FERRITE_TEST_KILL_DIRECTORY";

#[test]
fn committed_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::the_process_that_is_killed", "--nocapture"])
        .env(DIRECTORY, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ids =
        |line: std::io::Result<String>| line.ok()?.strip_prefix("kept ")?.parse::<NodeId>().ok();
    let mut kept: Vec<NodeId> = lines.by_ref().filter_map(ids).take(200).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    kept.extend(lines.filter_map(ids));
    assert!(kept.len() >= 200);

    let store = open(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let found = kept.clone();
    let missing: Vec<NodeId> = runtime
        .block_on(store.read(move |r| {
            let mut missing = Vec::new();
            for id in found {
                let told = r.journal(&JournalQuery { node: Some(id), after: 0, limit: 2 })?.len();
                // The change and what the journal tells of it are there together.
                if r.get(id)?.is_none() || told != 1 {
                    missing.push(id);
                }
            }
            Ok::<_, Error>(missing)
        }))
        .unwrap();
    assert!(missing.is_empty(), "{} of {}", missing.len(), kept.len());
}

/// Not a test by itself: the child of the one above.
#[test]
fn the_process_that_is_killed() {
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
                    let write = move |w: &mut store::Writer<'_>| {
                        w.append(entry(id, Timestamp(0), "x"));
                        w.insert(&machine)
                    };
                    if store.write(write).await.is_err() {
                        break;
                    }
                    println!("\nkept {id}");
                }
            })
        })
        .collect();
    for writer in writers {
        let _ = runtime.block_on(writer);
    }
}

fn open(directory: &std::path::Path) -> Store {
    Store::open(&Settings::in_dir(directory), Arc::new(|| Timestamp(0))).unwrap()
}
