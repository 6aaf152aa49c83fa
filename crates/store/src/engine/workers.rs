// SPDX-License-Identifier: Apache-2.0
//! Threads with a blocking connection each, for the databases that are servers.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Session;
use super::job::{ReadJob, Reading, WriteJob};
use super::mariadb::MariaDbSession;
use super::postgres::PostgresSession;
use crate::error::{Error, OpenError};
use crate::reader::Reader;
use crate::store::Shared;
use crate::writer::Pending;

/// How often a transaction is tried when others keep getting in its way.
const ATTEMPTS: u32 = 10;

/// How often entries that other processes add to the journal are looked for.
const JOURNAL_POLL: Duration = Duration::from_secs(1);

/// Which server, and its address.
#[derive(Clone)]
pub(crate) enum Server {
    Postgres(String),
    MariaDb(String),
}

/// A connection that can carry a transaction, and knows how the last statement went.
pub(crate) trait ServerSession: Session {
    /// Starts, commits or undoes a transaction.
    fn begin(&mut self) -> Result<(), Error>;
    /// Makes it last.
    fn commit(&mut self) -> Result<(), Error>;
    /// Undoes it.
    fn rollback(&mut self) -> Result<(), Error>;
    /// What went wrong since this was last asked, if that calls for something.
    fn take_trouble(&mut self) -> Trouble;
}

/// What an error on a connection calls for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// Another attempt at the transaction.
    Again,
    /// A new connection.
    Lost,
}

/// The threads and what waits for them.
pub(crate) struct Workers {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    closed: Condvar,
}

struct Waiting {
    jobs: VecDeque<Job>,
    open: bool,
}

enum Job {
    Read(Box<dyn ReadJob>),
    Write(Box<dyn WriteJob>),
}

// === impl Server ===

impl Server {
    /// Runs `prepare` on a first connection, with a lock that makes other starting processes wait.
    pub(crate) fn with_first_session<T>(
        &self,
        prepare: impl FnOnce(&mut dyn Session) -> Result<T, OpenError> + Send,
    ) -> Result<T, OpenError>
    where
        T: Send,
    {
        // The blocking client of PostgreSQL must not be used on a thread of an async runtime, which
        // is where stores are opened.
        std::thread::scope(|scope| {
            scope
                .spawn(|| match self {
                    Self::Postgres(url) => PostgresSession::connect(url)?.alone(prepare),
                    Self::MariaDb(url) => MariaDbSession::connect(url)?.alone(prepare),
                })
                .join()
                .unwrap_or(Err(OpenError::Prepare(Error::Panicked)))
        })
    }

    fn connect(&self) -> Result<Box<dyn ServerSession>, OpenError> {
        Ok(match self {
            Self::Postgres(url) => Box::new(PostgresSession::connect(url)?),
            Self::MariaDb(url) => Box::new(MariaDbSession::connect(url)?),
        })
    }
}

// === impl Workers ===

impl Workers {
    /// Starts `connections` threads. Each connects when it gets its first job.
    pub(crate) fn start(server: Server, connections: usize, shared: &Arc<Shared>) -> Self {
        let queue = Arc::new(Queue {
            waiting: Mutex::new(Waiting { jobs: VecDeque::new(), open: true }),
            arrived: Condvar::new(),
            closed: Condvar::new(),
        });
        let mut threads: Vec<_> = (0..connections)
            .map(|_| {
                let (queue, server, shared) =
                    (Arc::clone(&queue), server.clone(), Arc::clone(shared));
                std::thread::Builder::new()
                    .name("store-worker".to_owned())
                    .spawn(move || Worker { server, shared, session: None }.run(&queue))
                    .expect("the process may start a few threads")
            })
            .collect();
        let (polled, shared) = (Arc::clone(&queue), Arc::clone(shared));
        threads.push(
            std::thread::Builder::new()
                .name("store-journal".to_owned())
                .spawn(move || watch_journal(&polled, &shared))
                .expect("the process may start a few threads"),
        );
        Self { queue, threads: Mutex::new(threads) }
    }

    /// Hands over a read.
    pub(crate) fn read(&self, job: Box<dyn ReadJob>) {
        self.queue.push(Job::Read(job));
    }

    /// Hands over a transaction.
    pub(crate) fn write(&self, job: Box<dyn WriteJob>) {
        self.queue.push(Job::Write(job));
    }

    /// Finishes what is queued and disconnects.
    pub(crate) fn stop(&self) {
        self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).open = false;
        self.queue.arrived.notify_all();
        self.queue.closed.notify_all();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // The last who held the store may have been a job: nobody waits for himself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

// === impl Queue ===

impl Queue {
    fn push(&self, job: Job) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.open {
            waiting.jobs.push_back(job);
            drop(waiting);
            self.arrived.notify_one();
        } else {
            drop(waiting);
            job.fail(Error::Closed);
        }
    }

    /// The next job; none when there will be no more.
    fn pop(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if !waiting.open {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for `time`; says whether there may still be jobs then.
    fn is_open_after(&self, time: Duration) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.closed.wait_timeout_while(waiting, time, |waiting| waiting.open);
        waited.unwrap_or_else(PoisonError::into_inner).0.open
    }
}

impl Job {
    fn fail(self, error: Error) {
        match self {
            Self::Read(job) => job.fail(error),
            Self::Write(job) => job.answer(Err(error)),
        }
    }
}

// === Threads ===

/// Tells those who follow the journal what other processes add to it. While nobody does, nothing is
/// asked.
fn watch_journal(queue: &Queue, shared: &Shared) {
    let mut told = 0;
    while queue.is_open_after(JOURNAL_POLL) {
        if !shared.is_followed() {
            continue;
        }
        let (reply, answer) = oneshot::channel();
        let closure = |reader: &mut Reader<'_>| reader.journal_end();
        queue.push(Job::Read(Box::new(Reading { closure, reply })));
        match answer.blocking_recv() {
            Ok(Ok(end)) if end > told => {
                told = end;
                shared.journal_grew_to(end);
            }
            Ok(Ok(_)) | Err(_) => {}
            // Followers who read now are told as well; there is nothing to do but ask again.
            Ok(Err(error)) => tracing::debug!(%error, "the journal's end could not be read"),
        }
    }
}

struct Worker {
    server: Server,
    shared: Arc<Shared>,
    session: Option<Box<dyn ServerSession>>,
}

impl Worker {
    fn run(mut self, queue: &Queue) {
        while let Some(job) = queue.pop() {
            match job {
                Job::Read(job) => self.read(job),
                Job::Write(job) => self.write(job),
            }
        }
    }

    fn read(&mut self, job: Box<dyn ReadJob>) {
        let shared = Arc::clone(&self.shared);
        match self.connected() {
            Err(error) => job.fail(error),
            Ok(session) => {
                job.run(session, &shared);
                if session.take_trouble() == Trouble::Lost {
                    self.session = None;
                }
            }
        }
    }

    fn write(&mut self, mut job: Box<dyn WriteJob>) {
        let mut end = Err(Error::Closed);
        for attempt in 1..=ATTEMPTS {
            let mut pending = Pending::default();
            let (ended, trouble) = self.attempt(&mut *job, &mut pending);
            end = ended;
            match trouble {
                Trouble::None => {
                    if end.is_ok() {
                        self.shared.committed(&pending);
                    }
                    break;
                }
                Trouble::Lost => {
                    self.session = None;
                    // After a lost commit nobody knows whether it happened: doing it again might
                    // do it twice.
                    if matches!(end, Err(Error::Unavailable(_))) && pending.in_commit {
                        break;
                    }
                }
                Trouble::Again => {}
            }
            // Spread those that collided, longer each time.
            std::thread::sleep(Duration::from_millis(u64::from(attempt * attempt)));
        }
        job.answer(end);
    }

    fn attempt(
        &mut self,
        job: &mut dyn WriteJob,
        pending: &mut Pending,
    ) -> (Result<(), Error>, Trouble) {
        let shared = Arc::clone(&self.shared);
        let session = match self.connected() {
            Ok(session) => session,
            Err(error) => return (Err(error), Trouble::Lost),
        };
        if let Err(error) = session.begin() {
            return (Err(error), session.take_trouble());
        }
        let end = if job.attempt(session, &shared, pending) {
            pending.in_commit = true;
            session.commit()
        } else {
            *pending = Pending::default();
            // The transaction's own error is what its caller gets.
            session.rollback()
        };
        let trouble = session.take_trouble();
        if trouble == Trouble::Again {
            // It may or may not be undone already; either way it is after this.
            let _ = session.rollback();
            let _ = session.take_trouble();
        }
        (end, trouble)
    }

    fn connected(&mut self) -> Result<&mut dyn ServerSession, Error> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.server.connect().map_err(|error| Error::Unavailable(Arc::new(error)))?,
        };
        Ok(&mut **self.session.insert(session))
    }
}
