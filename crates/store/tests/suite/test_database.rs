// SPDX-License-Identifier: Apache-2.0
//! A separate database per test, on each engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mysql::prelude::Queryable as _;
use node_model::Timestamp;
use store::{
    Store, StoreClock, StoreError, StoreOpenError, StoreReader, StoreSettings, StoreWriter,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The engine a test runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineKind {
    Sqlite,
    Postgres,
    MariaDb,
}

/// A new database with a manual clock.
pub(crate) struct TestDatabase {
    pub(crate) kind: EngineKind,
    pub(crate) settings: StoreSettings,
    pub(crate) runtime: Runtime,
    pub(crate) store: Store,
    clock: Arc<AtomicI64>,
    _dir: TempDir,
}

/// Declares one test per engine for each of these functions.
macro_rules! on_every_engine {
    ($($name:ident)*) => {$(
        mod $name {
            use crate::test_database::{EngineKind, run};

            #[test]
            fn sqlite() {
                run(EngineKind::Sqlite, super::$name);
            }

            #[test]
            fn postgres() {
                run(EngineKind::Postgres, super::$name);
            }

            #[test]
            fn mariadb() {
                run(EngineKind::MariaDb, super::$name);
            }
        }
    )*};
}
pub(crate) use on_every_engine;

/// Runs `test` on a new database, which is removed afterwards even if the test fails.
pub(crate) fn run(kind: EngineKind, test: fn(&TestDatabase)) {
    let Some(server) = TestServerDatabase::create(kind) else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut settings = StoreSettings::in_dir(dir.path());
    settings.url = server.as_ref().map(|server| server.url.clone());
    let clock = Arc::new(AtomicI64::new(1_800_000_000_000_000));
    let store = open(&settings, &clock).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let database = TestDatabase { kind, settings, runtime, store, clock, _dir: dir };
    test(&database);
    database.store.clone().close();
}

impl TestDatabase {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.clock.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// Opens the same database again, like another process.
    pub(crate) fn open_again(&self) -> Result<Store, StoreOpenError> {
        open(&self.settings, &self.clock)
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        closure: impl FnOnce(&mut StoreReader<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.runtime.block_on(self.store.read(closure))
    }

    pub(crate) fn write<T: Send + 'static>(
        &self,
        closure: impl FnMut(&mut StoreWriter<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.runtime.block_on(self.store.write(closure))
    }

    /// Runs a statement directly on the database.
    pub(crate) fn sql(&self, sql: &str) {
        match (self.kind, self.settings.url.clone()) {
            (EngineKind::Postgres, Some(url)) => {
                let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
                client.batch_execute(sql).unwrap();
            }
            (EngineKind::MariaDb, Some(url)) => {
                mysql::Conn::new(url.as_str()).unwrap().query_drop(sql).unwrap();
            }
            (EngineKind::Sqlite, _) => {
                let path = self.settings.data_dir.join("ferrite.sqlite");
                rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
            }
            (EngineKind::Postgres | EngineKind::MariaDb, None) => {
                unreachable!("servers have an address")
            }
        }
    }
}

fn open(settings: &StoreSettings, clock: &Arc<AtomicI64>) -> Result<Store, StoreOpenError> {
    let clock = Arc::clone(clock);
    let clock: StoreClock = Arc::new(move || Timestamp(clock.load(Ordering::SeqCst)));
    Store::open_with_clock(settings, clock)
}

/// A database on a server, dropped at the end of the test.
pub(crate) struct TestServerDatabase {
    kind: EngineKind,
    base: String,
    name: String,
    pub(crate) url: String,
}

impl TestServerDatabase {
    /// Outer `None`: the server is not available and not required. Inner `None`: SQLite needs no
    /// server.
    #[allow(clippy::option_option, reason = "the two cases are handled at one call")]
    pub(crate) fn create(kind: EngineKind) -> Option<Option<Self>> {
        let variable = match kind {
            EngineKind::Sqlite => return Some(None),
            EngineKind::Postgres => "FERRITE_TEST_POSTGRES",
            EngineKind::MariaDb => "FERRITE_TEST_MARIADB",
        };
        let Ok(base) = std::env::var(variable) else {
            let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
            assert!(!required, "{variable} is not set, but servers are required");
            return None;
        };
        let name = format!("ferrite_{}", uuid::Uuid::new_v4().simple());
        let (server, _) = base.rsplit_once('/').expect("an address ends in a database");
        let url = format!("{server}/{name}");
        let server = Self { kind, base, name, url };
        server.on_base(&format!("CREATE DATABASE {}", server.name));
        Some(Some(server))
    }

    fn on_base(&self, sql: &str) {
        match self.kind {
            EngineKind::Sqlite => {}
            EngineKind::Postgres => {
                let mut client = postgres::Client::connect(&self.base, postgres::NoTls).unwrap();
                client.batch_execute(sql).unwrap();
            }
            EngineKind::MariaDb => {
                mysql::Conn::new(self.base.as_str()).unwrap().query_drop(sql).unwrap();
            }
        }
    }
}

impl Drop for TestServerDatabase {
    fn drop(&mut self) {
        let force = if self.kind == EngineKind::Postgres { " WITH (FORCE)" } else { "" };
        self.on_base(&format!("DROP DATABASE {}{force}", self.name));
    }
}
