// SPDX-License-Identifier: Apache-2.0
//! The store: opened once, cloned freely.

use std::path::Path;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};

use node_model::{NodeId, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use uuid::Uuid;

use crate::engine::Session;
use crate::engine::job::{Reading, Writing, read};
use crate::engine::sqlite::{MOST_SCANS, Readers, Sqlite, SqliteSession, translate};
use crate::engine::workers::{Server, Workers};
use crate::error::{Error, OpenError};
use crate::journal::{self, Members};
use crate::migrate::migrate;
use crate::reader::Reader;
use crate::settings::{Address, Settings};
use crate::vault::Vault;
use crate::writer::{Pending, Writer};

/// Where the store gets the time from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Ferrite's memory.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    engine: Engine,
    wakes: Mutex<Option<mpsc::UnboundedReceiver<NodeId>>>,
}

enum Engine {
    Sqlite { sqlite: Arc<Sqlite>, scans: Arc<Semaphore> },
    Server(Workers),
}

/// What every connection needs.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) vault: Vault,
    /// Up to where the journal is known to have no gaps that may still be filled.
    pub(crate) settled: AtomicI64,
    /// Who fills them.
    pub(crate) members: Mutex<Members>,
    position: watch::Sender<i64>,
    wakes: mpsc::UnboundedSender<NodeId>,
}

impl Store {
    /// Connects, brings the schema up to date, and loads the key file, or makes one on the very
    /// first start.
    pub fn open(settings: &Settings, clock: Clock) -> Result<Self, OpenError> {
        std::fs::create_dir_all(&settings.data_dir)
            .map_err(|source| OpenError::DataDir { path: settings.data_dir.clone(), source })?;
        match settings.address()? {
            Address::Sqlite(path) => Self::open_sqlite(settings, &path, clock),
            Address::Postgres(url) => Self::open_server(settings, Server::Postgres(url), clock),
            Address::MariaDb(url) => Self::open_server(settings, Server::MariaDb(url), clock),
        }
    }

    /// Runs `closure` with a view of the database.
    ///
    /// On SQLite it runs right here: a read is over sooner than another thread would be awake. On
    /// a server it runs on a thread of its own, so it must bring along what it needs.
    ///
    /// This is for single resources and the like, which take microseconds; what goes over many rows
    /// belongs into [`Store::scan`].
    pub async fn read<T, E>(
        &self,
        closure: impl FnOnce(&mut Reader<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        match &self.0.engine {
            Engine::Sqlite { sqlite, .. } => sqlite
                .with_reader(Readers::Points, |session| read(closure, session, &self.0.shared))?,
            Engine::Server(workers) => on_server(workers, closure).await,
        }
    }

    /// Runs `closure` with a view of the database, for lists and everything else that goes over
    /// many rows.
    ///
    /// On SQLite it runs on a thread that may block, with a connection of a set of its own: however
    /// many scans there are, they hold up neither the async runtime nor [`Store::read`]. On a
    /// server it is the same as a read.
    pub async fn scan<T, E>(
        &self,
        closure: impl FnOnce(&mut Reader<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (sqlite, scans) = match &self.0.engine {
            Engine::Sqlite { sqlite, scans } => (Arc::clone(sqlite), Arc::clone(scans)),
            Engine::Server(workers) => return on_server(workers, closure).await,
        };
        // Waiting here is free; waiting for a connection would be a thread that does nothing.
        let permit = scans.acquire_owned().await.map_err(|_| Error::Closed)?;
        let shared = Arc::clone(&self.0.shared);
        let scan = tokio::task::spawn_blocking(move || {
            let scanned =
                sqlite.with_reader(Readers::Scans, |session| read(closure, session, &shared));
            // Kept until the end even if nobody waits for the answer any more.
            drop(permit);
            scanned?
        });
        scan.await.unwrap_or_else(|_| Err(E::from(Error::Closed)))
    }

    /// Runs `closure` as one transaction, which is durable when this returns `Ok`. If the closure
    /// gives an error, nothing of it is kept.
    ///
    /// It may run more than once: a server asks for that when transactions get in each other's way.
    /// Once asked, it runs to its end even if nobody waits for the answer any more.
    pub async fn write<T, E>(
        &self,
        closure: impl FnMut(&mut Writer<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Writing::new(closure, reply));
        match &self.0.engine {
            Engine::Sqlite { sqlite, .. } => sqlite.write(job),
            Engine::Server(workers) => workers.write(job),
        }
        answer.await.unwrap_or_else(|_| Err(E::from(Error::Closed)))
    }

    /// The highest number of the journal that this process knows to be committed; at first, the
    /// journal's end when the store was opened. It is marked as changed whenever there may be
    /// something new to read, at times without being higher.
    ///
    /// On servers the entries of other processes are looked for once a second, while somebody has
    /// such a receiver. Where the journal ends right now is known to [`Reader::journal_end`].
    #[must_use]
    pub fn journal_position(&self) -> watch::Receiver<i64> {
        self.0.shared.position.subscribe()
    }

    /// Nodes whose committed changes asked for attention. There is one receiver; none the second
    /// time.
    #[must_use]
    pub fn take_wakes(&self) -> Option<mpsc::UnboundedReceiver<NodeId>> {
        self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Seals bytes as [`Reader::seal`] does, without looking at the database.
    #[must_use]
    pub fn seal(&self, owner: Uuid, plain: &[u8]) -> Vec<u8> {
        self.0.shared.vault.seal(owner, plain)
    }

    /// Opens what [`Store::seal`] made for `owner`.
    pub fn unseal(&self, owner: Uuid, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let opened = self.0.shared.vault.open_sealed(owner, sealed);
        opened.map_err(|source| Error::Vault { owner: owner.to_string(), source })
    }

    /// Finishes what was asked, and closes the database for every clone of this store.
    pub fn close(self) {
        match &self.0.engine {
            Engine::Sqlite { sqlite, .. } => sqlite.stop(),
            Engine::Server(workers) => workers.stop(),
        }
    }

    fn open_sqlite(settings: &Settings, path: &Path, clock: Clock) -> Result<Self, OpenError> {
        let connection = Sqlite::connect(path, settings.synchronous)?;
        let run = |sql: &str| {
            connection.execute_batch(sql).map_err(|error| OpenError::Prepare(translate(error)))
        };
        run("BEGIN IMMEDIATE")?;
        let prepared = prepare(&mut SqliteSession(&connection), settings, &clock)?;
        run("COMMIT")?;
        Ok(Self::new(prepared, clock, |shared| Engine::Sqlite {
            sqlite: Arc::new(Sqlite::start(path, connection, shared)),
            scans: Arc::new(Semaphore::new(MOST_SCANS)),
        }))
    }

    fn open_server(settings: &Settings, server: Server, clock: Clock) -> Result<Self, OpenError> {
        let prepared = server.with_first_session(|session| prepare(session, settings, &clock))?;
        let connections = settings.connections.max(1);
        Ok(Self::new(prepared, clock, |shared| {
            Engine::Server(Workers::start(server, connections, &shared))
        }))
    }

    fn new(prepared: Prepared, clock: Clock, engine: impl FnOnce(Arc<Shared>) -> Engine) -> Self {
        let (wakes, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            clock,
            vault: prepared.vault,
            settled: AtomicI64::new(prepared.journal_end),
            members: Mutex::new(prepared.members),
            position: watch::Sender::new(prepared.journal_end),
            wakes,
        });
        let engine = engine(Arc::clone(&shared));
        Self(Arc::new(Inner { shared, engine, wakes: Mutex::new(Some(receiver)) }))
    }
}

impl Shared {
    /// Tells those who wait what has been committed.
    pub(crate) fn committed(&self, pending: &Pending) {
        if pending.last_seq > 0 {
            self.journal_grew_to(pending.last_seq);
        }
        for node in &pending.wakes {
            // Nobody listening is fine: a wake is only a hint.
            let _ = self.wakes.send(*node);
        }
    }

    /// Tells those who follow the journal that there may be something new to read. That can be so
    /// without a higher number: on servers a lower one may be committed after a higher one, and
    /// what waited behind it is shown from then on.
    pub(crate) fn journal_grew_to(&self, seq: i64) {
        self.position.send_modify(|position| *position = seq.max(*position));
    }

    /// Whether anybody follows the journal.
    pub(crate) fn is_followed(&self) -> bool {
        self.position.receiver_count() > 0
    }
}

/// What opening finds out before there is a store.
struct Prepared {
    vault: Vault,
    journal_end: i64,
    members: Members,
}

/// Schema, key and the journal's end, under whatever lock the caller holds.
fn prepare(
    session: &mut dyn Session,
    settings: &Settings,
    clock: &Clock,
) -> Result<Prepared, OpenError> {
    let now = clock();
    migrate(session, &settings.data_dir, now.0)?;
    let vault = Vault::open(session, &settings.data_dir)?;
    let mut members = Members::default();
    let journal_end =
        journal::end_after(session, 0, now, &mut members).map_err(OpenError::Prepare)?;
    Ok(Prepared { vault, journal_end, members })
}

async fn on_server<T, E>(
    workers: &Workers,
    closure: impl FnOnce(&mut Reader<'_>) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    workers.read(Box::new(Reading { closure, reply }));
    answer.await.unwrap_or_else(|_| Err(E::from(Error::Closed)))
}
