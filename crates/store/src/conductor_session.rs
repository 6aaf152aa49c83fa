// SPDX-License-Identifier: Apache-2.0
//! Sessions: which conductors that share a database server are running.
//!
//! A running process increments a counter in its row once per second, on a connection of its own, so
//! that neither a long queue nor a slow query delays it. A process whose counter does not change is
//! dead; no clocks are compared. Another process that notices it ends its session, which releases its nodes.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use node_model::{ConductorInfo, NodeId};
use uuid::Uuid;

use crate::clock::{MonotonicClock, StoreClock};
use crate::engine::thread_time;
use crate::engine::workers::{DatabaseProduct, DatabaseServer, ServerSession};
use crate::engine::{DatabaseRow, DatabaseSession};
use crate::error::StoreError;
use crate::lease::LeaseOwner;
use crate::reader::{StoreReader, decode_field};
use crate::value::{ColumnType as _, SqlParam};
use crate::writer::StoreWriter;

/// Time between two renewals.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two observations of the other processes.
const OBSERVATION_INTERVAL: Duration = Duration::from_millis(500);
/// A renewal that takes longer is cancelled, so that the next one can succeed before the session ends.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(2);
/// How much longer a renewal waits for a server that hangs.
const RESPONSE_GRACE: Duration = Duration::from_secs(1);
/// How long a stopping process waits for a running renewal.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

const SELECT_SESSIONS: &str =
    "SELECT hostname, run_uuid, renewing_run, renewals, online FROM conductors";

/// The session of a process, as read from the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedSession {
    /// The process.
    pub hostname: String,
    /// The run of the process.
    pub run: Option<Uuid>,
    /// Whether this run renews its session. Processes of earlier versions do not.
    pub renews: bool,
    /// The number of renewals. It never decreases.
    pub renewals: i64,
    /// Whether the session has not ended.
    pub online: bool,
}

/// An event of the thread that renews a session.
#[derive(Debug)]
pub enum SessionReport {
    /// The session was renewed.
    Renewed {
        /// The monotonic clock before the statement was sent.
        submitted: Duration,
    },
    /// Another process has ended the session.
    Ended,
    /// The sessions of all processes.
    Observed {
        /// The monotonic clock after they were read.
        at: Duration,
        /// The sessions, by host name.
        sessions: Vec<ObservedSession>,
    },
    /// The database could not be used.
    Failed(StoreError),
}

/// Renews a session until it is stopped or dropped.
#[derive(Debug)]
pub struct SessionRenewals {
    stop: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
}

impl SessionRenewals {
    /// Starts a thread that renews the session of `owner` and passes all events to `report`.
    pub(crate) fn start(
        server: DatabaseServer,
        (clock, monotonic): (StoreClock, MonotonicClock),
        owner: LeaseOwner,
        report: impl FnMut(SessionReport) + Send + 'static,
    ) -> Self {
        let (stop, stopped) = mpsc::channel();
        let (alive, ended) = mpsc::channel();
        let server = DatabaseServer {
            statement_timeout: RENEWAL_TIMEOUT,
            response_grace: RESPONSE_GRACE,
            ..server
        };
        let is_simulated = matches!(server.product, DatabaseProduct::Simulated(_));
        let renew = move || {
            let _alive: mpsc::Sender<()> = alive;
            RenewalThread { server, clock, monotonic, owner, session: None, report }.run(&stopped);
        };
        if is_simulated {
            tokio::spawn(thread_time::run_simulated(renew));
        } else {
            std::thread::Builder::new()
                .name("store-session".to_owned())
                .spawn(renew)
                .expect("the process may start a few threads");
        }
        Self { stop, ended }
    }

    /// Stops renewing. Waits for a running renewal, but not for a server that does not respond.
    pub fn stop(self) {
        drop(self.stop);
        // The thread sends nothing: this ends when it does.
        let _ = self.ended.recv_timeout(STOP_TIMEOUT);
    }
}

struct RenewalThread<R> {
    server: DatabaseServer,
    clock: StoreClock,
    monotonic: MonotonicClock,
    owner: LeaseOwner,
    session: Option<Box<dyn ServerSession>>,
    report: R,
}

impl<R: FnMut(SessionReport)> RenewalThread<R> {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let mut next_renewal = Duration::ZERO;
        loop {
            let began = (self.monotonic)();
            let renews = began >= next_renewal;
            match self.step(renews, began) {
                Ok(()) if renews => next_renewal = began + RENEWAL_INTERVAL,
                Ok(()) => {}
                Err(error) => {
                    self.session = None;
                    (self.report)(SessionReport::Failed(error));
                }
            }
            let passed = (self.monotonic)().saturating_sub(began);
            if is_stopped_within(stopped, OBSERVATION_INTERVAL.saturating_sub(passed)) {
                return;
            }
        }
    }

    fn step(&mut self, renews: bool, began: Duration) -> Result<(), StoreError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => {
                let connected = self.server.connect();
                connected.map_err(|error| StoreError::Unavailable(Arc::new(error)))?
            }
        };
        if renews {
            let now = (self.clock)();
            // A COMMIT is not cancelled, so a renewal that succeeds survives a failover.
            session.begin()?;
            let found = session.execute(
                "UPDATE conductors SET renewals = renewals + 1, updated_at = ?
                 WHERE hostname = ? AND run_uuid = ? AND renewing_run = ? AND online = ?",
                &[
                    now.bind(),
                    self.owner.hostname.bind(),
                    self.owner.run.bind(),
                    self.owner.run.bind(),
                    true.bind(),
                ],
            )?;
            session.commit()?;
            (self.report)(match found {
                0 => SessionReport::Ended,
                _ => SessionReport::Renewed { submitted: began },
            });
        }
        let sessions = read_sessions(&mut *session)?;
        (self.report)(SessionReport::Observed { at: (self.monotonic)(), sessions });
        self.session = Some(session);
        Ok(())
    }
}

/// Waits for `time`. Returns whether the sender was dropped meanwhile.
fn is_stopped_within(stopped: &mpsc::Receiver<()>, time: Duration) -> bool {
    if thread_time::is_simulated() {
        thread_time::sleep(time);
        return stopped.try_recv() != Err(TryRecvError::Empty);
    }
    stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
}

fn read_sessions(session: &mut dyn DatabaseSession) -> Result<Vec<ObservedSession>, StoreError> {
    let mut sessions = Vec::new();
    session.query(&format!("{SELECT_SESSIONS} ORDER BY hostname"), &[], &mut |row| {
        sessions.push(decode_session(row)?);
        Ok(())
    })?;
    Ok(sessions)
}

fn decode_session(row: &dyn DatabaseRow) -> Result<ObservedSession, StoreError> {
    let run: Option<Uuid> = decode_field(row, 1, "conductors", "run_uuid")?;
    let renewing_run: Option<Uuid> = decode_field(row, 2, "conductors", "renewing_run")?;
    Ok(ObservedSession {
        hostname: decode_field(row, 0, "conductors", "hostname")?,
        run,
        renews: run.is_some() && run == renewing_run,
        renewals: decode_field(row, 3, "conductors", "renewals")?,
        online: decode_field(row, 4, "conductors", "online")?,
    })
}

impl StoreReader<'_> {
    /// The sessions of all processes, by host name.
    pub fn sessions(&mut self) -> Result<Vec<ObservedSession>, StoreError> {
        read_sessions(self.session)
    }

    /// Whether this run of a process has a session that has not ended.
    pub(crate) fn has_session(&mut self, hostname: &str, run: Uuid) -> Result<bool, StoreError> {
        let sessions = self.sessions()?;
        Ok(sessions.iter().any(|session| {
            session.hostname == hostname
                && session.run == Some(run)
                && session.renews
                && session.online
        }))
    }
}

impl StoreWriter<'_> {
    /// Registers a process and begins its session. Returns false if another run with the same host name
    /// has a session, unless it is `replaced`: a session that is known to be dead.
    pub fn begin_session(
        &mut self,
        conductor: &ConductorInfo,
        replaced: Option<&ObservedSession>,
    ) -> Result<bool, StoreError> {
        let lock = if self.locking { " FOR UPDATE" } else { "" };
        let sql = format!("{SELECT_SESSIONS} WHERE hostname = ?{lock}");
        let mut known = None;
        self.session.query(&sql, &[conductor.hostname.bind()], &mut |row| {
            known = Some(decode_session(row)?);
            Ok(())
        })?;
        if let Some(known) = &known
            && known.online
            && known.renews
            && known.run != conductor.run
            && Some(known) != replaced
        {
            return Ok(false);
        }
        self.record_conductor_heartbeat(conductor)?;
        self.session.execute(
            "UPDATE conductors SET renewals = renewals + 1, renewing_run = ? WHERE hostname = ?",
            &[conductor.run.bind(), conductor.hostname.bind()],
        )?;
        Ok(true)
    }

    /// Records that the only process of a database is running.
    pub fn touch_conductor(&mut self, hostname: &str, run: Uuid) -> Result<(), StoreError> {
        let now = self.now();
        self.session
            .execute(
                "UPDATE conductors SET updated_at = ? WHERE hostname = ? AND run_uuid = ?",
                &[now.bind(), SqlParam::Text(hostname), run.bind()],
            )
            .map(drop)
    }

    /// Ends the session of a process and releases its nodes, which it returns. If `observed_renewals` is
    /// given, returns `None` if the process has renewed its session since then, or if the session has
    /// ended already.
    pub fn end_session(
        &mut self,
        owner: &LeaseOwner,
        observed_renewals: Option<i64>,
    ) -> Result<Option<Vec<NodeId>>, StoreError> {
        let mut params = vec![false.bind(), owner.hostname.bind(), owner.run.bind(), true.bind()];
        let mut sql = "UPDATE conductors SET online = ?
             WHERE hostname = ? AND run_uuid = ? AND online = ?"
            .to_owned();
        if let Some(renewals) = observed_renewals {
            sql.push_str(" AND renewals = ?");
            params.push(SqlParam::Int(renewals));
        }
        let is_ended = self.session.execute(&sql, &params)? > 0;
        if !is_ended && observed_renewals.is_some() {
            return Ok(None);
        }
        const OF_THE_RUN: &str = "reservation = ? AND lease_run = ?";
        let params = [owner.hostname.bind(), owner.run.bind()];
        self.release_nodes(OF_THE_RUN, &params).map(Some)
    }
}
