// SPDX-License-Identifier: Apache-2.0
//! Servers of replicated databases that fail while transactions run: none is lost, none is executed
//! twice, and the store continues on another server.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use node_model::{NodeId, Timestamp};
use store::{JournalQuery, Store, StoreError, StoreSettings, StoreWriter};
use tempfile::TempDir;
use test_databases::{GaleraCluster, PostgresPair};
use tokio::runtime::Runtime;

use crate::samples::*;

const WRITERS: u32 = 4;
/// Transactions before the failure, and after it.
const TRANSACTIONS: usize = 40;
/// Failover takes a few seconds; longer on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(240);

#[test]
fn killed_primary_is_replaced_by_its_synchronous_standby() {
    if !test_databases::are_required() {
        return;
    }
    let mut pair = PostgresPair::start().unwrap();
    let workload = Workload::start(pair.url());
    workload.wait_for(TRANSACTIONS);
    pair.kill_primary().unwrap();
    pair.promote_standby().unwrap();
    workload.continues();
    workload.check(pair.url());
}

#[test]
fn killed_galera_member_is_replaced() {
    if !test_databases::are_required() {
        return;
    }
    let mut cluster = GaleraCluster::start().unwrap();
    let workload = Workload::start(cluster.url());
    workload.wait_for(TRANSACTIONS);
    // The first server of the URL.
    cluster.kill(0).unwrap();
    workload.continues();
    workload.check(cluster.member_url(2));
}

#[test]
fn galera_member_that_does_not_respond_is_replaced() {
    if !test_databases::are_required() {
        return;
    }
    let cluster = GaleraCluster::start().unwrap();
    let workload = Workload::start(cluster.url());
    workload.wait_for(TRANSACTIONS);
    cluster.pause(0).unwrap();
    workload.continues();
    workload.check(cluster.member_url(2));
}

/// Threads that insert nodes, each with a journal entry.
struct Workload {
    runtime: Runtime,
    store: Store,
    state: Arc<WorkloadState>,
    writers: Vec<tokio::task::JoinHandle<()>>,
    _dir: TempDir,
}

#[derive(Default)]
struct WorkloadState {
    stops: AtomicBool,
    /// The nodes whose transaction was acknowledged.
    acknowledged: Mutex<Vec<NodeId>>,
    /// How many transactions failed because no server was available.
    unavailable: AtomicU32,
    /// An error that no transaction may have, such as that of a repeated insert.
    unexpected: Mutex<Option<StoreError>>,
}

impl Workload {
    fn start(url: String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = StoreSettings::in_dir(dir.path());
        settings.url = Some(url);
        // A server that does not respond is left six seconds later.
        settings.statement_timeout = Duration::from_secs(1);
        let store = open(&settings);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let state = Arc::new(WorkloadState::default());
        let writers = (0..WRITERS)
            .map(|_| runtime.spawn(write_until_stopped(store.clone(), Arc::clone(&state))))
            .collect();
        Self { runtime, store, state, writers, _dir: dir }
    }

    fn acknowledged(&self) -> usize {
        self.state.acknowledged.lock().unwrap().len()
    }

    /// Waits for a number of acknowledged transactions.
    fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + TIMEOUT;
        while self.acknowledged() < count {
            let unexpected = self.state.unexpected.lock().unwrap().take();
            assert!(unexpected.is_none(), "{unexpected:?}");
            assert!(
                Instant::now() < deadline,
                "{} of {count} transactions, {} failed",
                self.acknowledged(),
                self.state.unavailable.load(Ordering::SeqCst)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for further transactions.
    fn continues(&self) {
        self.wait_for(self.acknowledged() + TRANSACTIONS);
    }

    /// Ends the writers. Every acknowledged transaction is in the database at `url`, once.
    fn check(self, url: String) {
        self.state.stops.store(true, Ordering::SeqCst);
        for writer in self.writers {
            self.runtime.block_on(writer).unwrap();
        }
        let unexpected = self.state.unexpected.lock().unwrap().take();
        assert!(unexpected.is_none(), "{unexpected:?}");
        self.store.close();
        let mut settings = StoreSettings::in_dir(self._dir.path());
        settings.url = Some(url);
        let store = open(&settings);
        let acknowledged = self.state.acknowledged.lock().unwrap().clone();
        let count = acknowledged.len();
        let wrong: Vec<(NodeId, usize)> = self
            .runtime
            .block_on(store.read(move |r| {
                let mut wrong = Vec::new();
                for id in acknowledged {
                    let query = JournalQuery { node: Some(id), after: 0, limit: 2 };
                    let entries = r.journal(&query)?.len();
                    if r.get(id)?.is_none() || entries != 1 {
                        wrong.push((id, entries));
                    }
                }
                Ok::<_, StoreError>(wrong)
            }))
            .unwrap();
        assert!(wrong.is_empty(), "{} of {count}: {wrong:?}", wrong.len());
        store.close();
    }
}

async fn write_until_stopped(store: Store, state: Arc<WorkloadState>) {
    while !state.stops.load(Ordering::SeqCst) {
        let mut machine = node("");
        machine.name = None;
        let id = machine.id;
        let write = move |w: &mut StoreWriter<'_>| {
            w.append(entry(id, Timestamp(0), "x"));
            w.insert(&machine)
        };
        match store.write(write).await {
            Ok(()) => state.acknowledged.lock().unwrap().push(id),
            // Of an unknown one only the result is not known; it is not repeated.
            Err(
                StoreError::Unavailable(_)
                | StoreError::Contended(_)
                | StoreError::CommitUnknown(_),
            ) => {
                state.unavailable.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => {
                *state.unexpected.lock().unwrap() = Some(error);
                return;
            }
        }
    }
}

fn open(settings: &StoreSettings) -> Store {
    Store::open_with_clock(settings, Arc::new(|| Timestamp(1_800_000_000_000_000))).unwrap()
}
