// SPDX-License-Identifier: Apache-2.0
//! Threads with a blocking connection each, for the databases that are servers.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Session;
use super::job::{ReadJob, WriteJob};
use super::mariadb::MariaDbSession;
use super::postgres::PostgresSession;
use crate::error::{Error, OpenError};
use crate::store::Shared;
use crate::writer::Pending;

/// How often a transaction is tried when others keep getting in its way.
const ATTEMPTS: u32 = 10;

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
        });
        let threads = (0..connections)
            .map(|_| {
                let (queue, server, shared) =
                    (Arc::clone(&queue), server.clone(), Arc::clone(shared));
                std::thread::Builder::new()
                    .name("store-worker".to_owned())
                    .spawn(move || Worker { server, shared, session: None }.run(&queue))
                    .expect("the process may start a few threads")
            })
            .collect();
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
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
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
}

impl Job {
    fn fail(self, error: Error) {
        match self {
            Self::Read(job) => job.fail(error),
            Self::Write(job) => job.answer(Err(error)),
        }
    }
}

// === A thread ===

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
