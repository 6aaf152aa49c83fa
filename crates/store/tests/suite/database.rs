// SPDX-License-Identifier: Apache-2.0
//! A database of its own for every test, on the engine asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mysql::prelude::Queryable as _;
use node_model::Timestamp;
use store::{Clock, Error, OpenError, Reader, Settings, Store, Writer};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Which engine a test runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    MariaDb,
}

/// A fresh database with a clock that only moves when told to.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) settings: Settings,
    pub(crate) runtime: Runtime,
    pub(crate) store: Store,
    clock: Arc<AtomicI64>,
    _dir: TempDir,
}

/// One test per engine for each of these functions.
macro_rules! on_every_engine {
    ($($name:ident)*) => {$(
        mod $name {
            use crate::database::{Kind, run};

            #[test]
            fn sqlite() {
                run(Kind::Sqlite, super::$name);
            }

            #[test]
            fn postgres() {
                run(Kind::Postgres, super::$name);
            }

            #[test]
            fn mariadb() {
                run(Kind::MariaDb, super::$name);
            }
        }
    )*};
}
pub(crate) use on_every_engine;

/// Runs `test` on a new database, which is removed afterwards even if the test fails.
pub(crate) fn run(kind: Kind, test: fn(&Database)) {
    let Some(server) = Server::of(kind) else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings::in_dir(dir.path());
    settings.url = server.as_ref().map(|server| server.url.clone());
    let clock = Arc::new(AtomicI64::new(1_800_000_000_000_000));
    let store = open(&settings, &clock).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let database = Database { kind, settings, runtime, store, clock, _dir: dir };
    test(&database);
    database.store.clone().close();
}

impl Database {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.clock.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// Another process on the same database.
    pub(crate) fn open_again(&self) -> Result<Store, OpenError> {
        open(&self.settings, &self.clock)
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        closure: impl FnOnce(&mut Reader<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.runtime.block_on(self.store.read(closure))
    }

    pub(crate) fn write<T: Send + 'static>(
        &self,
        closure: impl FnMut(&mut Writer<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.runtime.block_on(self.store.write(closure))
    }

    /// Runs a statement of the test's own, past the store.
    pub(crate) fn sql(&self, sql: &str) {
        match (self.kind, self.settings.url.clone()) {
            (Kind::Postgres, Some(url)) => {
                let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
                client.batch_execute(sql).unwrap();
            }
            (Kind::MariaDb, Some(url)) => {
                mysql::Conn::new(url.as_str()).unwrap().query_drop(sql).unwrap();
            }
            (Kind::Sqlite, _) => {
                let path = self.settings.data_dir.join("ferrite.sqlite");
                rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
            }
            (Kind::Postgres | Kind::MariaDb, None) => unreachable!("servers have an address"),
        }
    }
}

fn open(settings: &Settings, clock: &Arc<AtomicI64>) -> Result<Store, OpenError> {
    let clock = Arc::clone(clock);
    let clock: Clock = Arc::new(move || Timestamp(clock.load(Ordering::SeqCst)));
    Store::open(settings, clock)
}

/// A database on a server, dropped with this.
struct Server {
    kind: Kind,
    base: String,
    name: String,
    url: String,
}

impl Server {
    /// The outer none: no such server here, and none required. The inner none: no server needed.
    #[allow(clippy::option_option, reason = "two different kinds of nothing, told apart once")]
    fn of(kind: Kind) -> Option<Option<Self>> {
        let variable = match kind {
            Kind::Sqlite => return Some(None),
            Kind::Postgres => "FERRITE_TEST_POSTGRES",
            Kind::MariaDb => "FERRITE_TEST_MARIADB",
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
            Kind::Sqlite => {}
            Kind::Postgres => {
                let mut client = postgres::Client::connect(&self.base, postgres::NoTls).unwrap();
                client.batch_execute(sql).unwrap();
            }
            Kind::MariaDb => {
                mysql::Conn::new(self.base.as_str()).unwrap().query_drop(sql).unwrap();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let force = if self.kind == Kind::Postgres { " WITH (FORCE)" } else { "" };
        self.on_base(&format!("DROP DATABASE {}{force}", self.name));
    }
}
