// SPDX-License-Identifier: Apache-2.0
//! Requests to a BMC over a session that is opened on demand and reused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Duration, Instant, sleep};

use crate::commands::{GetDeviceId, Repetition, TypedIpmiCommand};
use crate::completion;
use crate::endpoint::{IpmiEndpoint, IpmiTimeouts};
use crate::error::IpmiError;
use crate::sensors::SensorCache;
use crate::session::SessionRequest;
use crate::session_socket::{SessionFailure, SessionResult, SessionSocket};
use crate::suite::CipherSuite;

/// A client of one BMC.
///
/// It sends one request at a time; concurrent callers wait. The session is reused for the next request
/// and reopened if the BMC has dropped it.
#[derive(Debug)]
pub struct IpmiClient {
    endpoint: IpmiEndpoint,
    timeouts: IpmiTimeouts,
    /// One permit is held during every request; shared by all clients of this BMC.
    turns: Arc<Semaphore>,
    kept: Mutex<Option<OpenIpmiSession>>,
    /// The number of the suite that worked last; zero before the first success.
    suite: AtomicU8,
    pub(crate) sensors: Mutex<SensorCache>,
}

#[derive(Debug)]
struct OpenIpmiSession {
    link: SessionSocket,
    used: Instant,
}

/// A command, and whether it may be repeated in another session.
#[derive(Clone, Copy)]
struct IpmiOperation<'a> {
    command: SessionRequest<'a>,
    repetition: Repetition,
}

const ARE_YOU_THERE: IpmiOperation<'static> = IpmiOperation {
    command: SessionRequest {
        netfn: GetDeviceId::NETFN,
        lun: 0,
        command: GetDeviceId::COMMAND,
        data: &[],
    },
    repetition: Repetition::Harmless,
};

impl IpmiClient {
    /// Creates a client. Sends nothing.
    #[must_use]
    pub fn new(endpoint: IpmiEndpoint, timeouts: IpmiTimeouts, turns: Arc<Semaphore>) -> Self {
        Self {
            endpoint,
            timeouts,
            turns,
            kept: Mutex::new(None),
            suite: AtomicU8::new(0),
            sensors: Mutex::new(SensorCache::default()),
        }
    }

    /// The address and credentials of the BMC.
    #[must_use]
    pub const fn endpoint(&self) -> &IpmiEndpoint {
        &self.endpoint
    }

    /// Sends a typed command.
    pub async fn execute<A: TypedIpmiCommand>(
        &self,
        command: &A,
    ) -> Result<A::Response, IpmiError> {
        self.execute_within(command, self.timeouts.total).await
    }

    /// Sends a typed command with a shorter timeout.
    pub async fn execute_within<A: TypedIpmiCommand>(
        &self,
        command: &A,
        total: Duration,
    ) -> Result<A::Response, IpmiError> {
        let mut data = Vec::new();
        command.emit(&mut data);
        let repetition = command.repetition();
        let command = SessionRequest {
            netfn: A::NETFN,
            lun: command.lun(),
            command: A::COMMAND,
            data: &data,
        };
        let total = total.min(self.timeouts.total);
        let response = self.carry_out(IpmiOperation { command, repetition }, total).await?;
        Ok(A::parse(&response)?)
    }

    /// Sends any command; returns the data after the completion code. Retries while the BMC is busy.
    /// The effect of the command is unknown, so it is not repeated if the BMC may have executed it:
    /// then the result is [`IpmiError::Uncertain`].
    pub async fn request(
        &self,
        netfn: u8,
        lun: u8,
        command: u8,
        data: &[u8],
    ) -> Result<Vec<u8>, IpmiError> {
        let command = SessionRequest { netfn, lun, command, data };
        let operation = IpmiOperation { command, repetition: Repetition::Harmful };
        self.carry_out(operation, self.timeouts.total).await
    }

    /// Closes the session, if there is one. The next request opens a new one.
    pub async fn close(&self) {
        *self.kept.lock().await = None;
    }

    /// Closes the session if it has been idle for longer than the BMC keeps it and is not in use.
    /// Returns whether there is no session now.
    pub fn close_if_idle(&self) -> bool {
        let Ok(mut kept) = self.kept.try_lock() else { return false };
        if kept.as_ref().is_some_and(|kept| kept.used.elapsed() >= self.timeouts.idle) {
            *kept = None;
        }
        kept.is_none()
    }

    async fn carry_out(
        &self,
        operation: IpmiOperation<'_>,
        total: Duration,
    ) -> Result<Vec<u8>, IpmiError> {
        let IpmiOperation { command: SessionRequest { netfn, command, .. }, repetition } =
            operation;
        let mut kept = self.kept.lock().await;
        let _turn = self.turns.acquire().await;
        let deadline = Instant::now() + total;
        let mut pause = self.timeouts.first_retransmission;
        loop {
            let (code, data) = self.exchange(&mut kept, operation, deadline).await?;
            if code == completion::OK {
                return Ok(data);
            }
            let is_worth_it = completion::is_transient(code, repetition);
            if !is_worth_it || Instant::now() + pause >= deadline {
                return Err(IpmiError::Completion { netfn, command, code });
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.timeouts.longest_wait);
        }
    }

    async fn exchange(
        &self,
        kept: &mut Option<OpenIpmiSession>,
        operation: IpmiOperation<'_>,
        deadline: Instant,
    ) -> Result<(u8, Vec<u8>), IpmiError> {
        // The BMC may have dropped the session. Commands that must not be repeated are only sent in a
        // session that was just verified.
        let first = match operation.repetition {
            Repetition::Harmless => operation,
            Repetition::Harmful => ARE_YOU_THERE,
        };
        if let Some(response) = self.try_kept(kept, first, deadline).await
            && operation.repetition == Repetition::Harmless
        {
            return Ok(response);
        }
        let session = match kept {
            Some(session) => session,
            None => kept.insert(self.open(deadline).await?),
        };
        let started = Instant::now();
        let failure = match self.exchange_once(session, operation, deadline).await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        *kept = None;
        let waited = started.elapsed();
        Err(match (failure, operation.repetition) {
            (SessionFailure::Refused(_), _) => {
                IpmiError::PrivilegeTooLow { wanted: self.endpoint.privilege }
            }
            (SessionFailure::Silence { .. }, Repetition::Harmful) => {
                IpmiError::Uncertain { command: operation.command.command, waited }
            }
            (SessionFailure::Silence { garbled: Some(source), .. }, Repetition::Harmless) => {
                IpmiError::Garbled { source }
            }
            (SessionFailure::Silence { garbled: None, network }, Repetition::Harmless) => {
                let address = format!("{}:{}", self.endpoint.address, self.endpoint.port);
                IpmiError::Unreachable { address, waited, source: network }
            }
        })
    }

    /// The response in the existing session. `None` if there is no such session any more: the BMC has
    /// dropped it or is unreachable, which opening a new one will show.
    async fn try_kept(
        &self,
        kept: &mut Option<OpenIpmiSession>,
        operation: IpmiOperation<'_>,
        deadline: Instant,
    ) -> Option<(u8, Vec<u8>)> {
        if kept.as_ref()?.used.elapsed() >= self.timeouts.idle {
            *kept = None;
        }
        // A busy BMC may take seconds, and a new session would not help.
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now) / 2;
        let response = self.exchange_once(kept.as_mut()?, operation, until).await.ok();
        if response.is_none() {
            *kept = None;
        }
        response
    }

    async fn open(&self, deadline: Instant) -> Result<OpenIpmiSession, IpmiError> {
        let (link, suite) =
            SessionSocket::open(&self.endpoint, &self.suites(), &self.timeouts, deadline).await?;
        self.suite.store(suite.number(), Ordering::Relaxed);
        Ok(OpenIpmiSession { link, used: Instant::now() })
    }

    /// Sends one request in an open session.
    async fn exchange_once(
        &self,
        kept: &mut OpenIpmiSession,
        operation: IpmiOperation<'_>,
        until: Instant,
    ) -> Result<(u8, Vec<u8>), SessionFailure> {
        const NOT_OPEN: SessionFailure = SessionFailure::Silence { garbled: None, network: None };
        if !kept.link.session.submit(operation.command, self.endpoint.bridging.as_ref()) {
            return Err(NOT_OPEN);
        }
        // BMCs recognise a repeated request by its sequence number. Some do not, and those are more
        // often slow than unreachable.
        let first_wait = match operation.repetition {
            Repetition::Harmless => self.timeouts.first_retransmission,
            Repetition::Harmful => self.timeouts.longest_wait,
        };
        match kept.link.exchange(&self.timeouts, first_wait, until).await? {
            SessionResult::Opened => Err(NOT_OPEN),
            SessionResult::Response { completion, data } => {
                kept.used = Instant::now();
                Ok((completion, data))
            }
        }
    }

    /// The suites to try, starting with the one that worked last.
    fn suites(&self) -> Vec<CipherSuite> {
        if let Some(suite) = self.endpoint.cipher_suite {
            return vec![suite];
        }
        let mut suites = CipherSuite::ALL.to_vec();
        let known = self.suite.load(Ordering::Relaxed);
        suites.sort_by_key(|suite| suite.number() != known);
        suites
    }
}
