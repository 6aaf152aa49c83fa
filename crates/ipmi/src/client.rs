// SPDX-License-Identifier: Apache-2.0
//! Requests to a BMC, with a session that is opened when first needed and kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Duration, Instant, sleep};

use crate::commands::{Ask, GetDeviceId, Repetition};
use crate::completion;
use crate::endpoint::{Endpoint, Timeouts};
use crate::error::Error;
use crate::link::{Failure, Link, Said};
use crate::sensors::SensorCache;
use crate::session::Command;
use crate::suite::CipherSuite;

/// A BMC, as one talks to it.
///
/// One request at a time: who comes later waits. The session is kept for the next request and
/// opened anew where the BMC has forgotten it.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    timeouts: Timeouts,
    /// One permit is held during every request; shared with whoever else talks to this BMC.
    turns: Arc<Semaphore>,
    kept: Mutex<Option<Kept>>,
    /// The number of the suite that worked last; zero if none did yet.
    suite: AtomicU8,
    pub(crate) sensors: Mutex<SensorCache>,
}

#[derive(Debug)]
struct Kept {
    link: Link,
    used: Instant,
}

/// A command, and whether it may be sent again in another session.
#[derive(Clone, Copy)]
struct Order<'a> {
    command: Command<'a>,
    repetition: Repetition,
}

const ARE_YOU_THERE: Order<'static> = Order {
    command: Command {
        netfn: GetDeviceId::NETFN,
        lun: 0,
        command: GetDeviceId::COMMAND,
        data: &[],
    },
    repetition: Repetition::Harmless,
};

impl Client {
    /// A client; nothing is sent yet.
    #[must_use]
    pub fn new(endpoint: Endpoint, timeouts: Timeouts, turns: Arc<Semaphore>) -> Self {
        Self {
            endpoint,
            timeouts,
            turns,
            kept: Mutex::new(None),
            suite: AtomicU8::new(0),
            sensors: Mutex::new(SensorCache::default()),
        }
    }

    /// Who it talks to.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks something whose answer has a type.
    pub async fn ask<A: Ask>(&self, ask: &A) -> Result<A::Answer, Error> {
        self.ask_within(ask, self.timeouts.total).await
    }

    /// Asks something for which there is less time than usual.
    pub async fn ask_within<A: Ask>(&self, ask: &A, total: Duration) -> Result<A::Answer, Error> {
        let mut data = Vec::new();
        ask.emit(&mut data);
        let command = Command { netfn: A::NETFN, lun: ask.lun(), command: A::COMMAND, data: &data };
        let total = total.min(self.timeouts.total);
        let answer = self.carry_out(Order { command, repetition: ask.repetition() }, total).await?;
        Ok(A::parse(&answer)?)
    }

    /// Sends any command; the answer is what follows the completion code. Waits and asks again
    /// where the BMC says that it is busy. Since nobody knows what the command does, it is not sent
    /// again where the BMC may have carried it out: then the outcome is [`Error::Uncertain`].
    pub async fn request(
        &self,
        netfn: u8,
        lun: u8,
        command: u8,
        data: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let command = Command { netfn, lun, command, data };
        let order = Order { command, repetition: Repetition::Harmful };
        self.carry_out(order, self.timeouts.total).await
    }

    /// Ends the session, if there is one. The next request opens a new one.
    pub async fn close(&self) {
        *self.kept.lock().await = None;
    }

    /// Ends the session if it has not been used for so long that the BMC will have forgotten it,
    /// and nobody is using it. True if there is no session now.
    pub fn close_if_idle(&self) -> bool {
        let Ok(mut kept) = self.kept.try_lock() else { return false };
        if kept.as_ref().is_some_and(|kept| kept.used.elapsed() >= self.timeouts.idle) {
            *kept = None;
        }
        kept.is_none()
    }

    async fn carry_out(&self, order: Order<'_>, total: Duration) -> Result<Vec<u8>, Error> {
        let Order { command: Command { netfn, command, .. }, repetition } = order;
        let mut kept = self.kept.lock().await;
        let _turn = self.turns.acquire().await;
        let deadline = Instant::now() + total;
        let mut pause = self.timeouts.first_retransmission;
        loop {
            let (code, data) = self.exchange(&mut kept, order, deadline).await?;
            if code == completion::OK {
                return Ok(data);
            }
            let is_worth_it = completion::is_passing(code, repetition);
            if !is_worth_it || Instant::now() + pause >= deadline {
                return Err(Error::Completion { netfn, command, code });
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.timeouts.longest_wait);
        }
    }

    async fn exchange(
        &self,
        kept: &mut Option<Kept>,
        order: Order<'_>,
        deadline: Instant,
    ) -> Result<(u8, Vec<u8>), Error> {
        // The BMC may have forgotten the session. What must not be sent in a second one is only
        // sent in one that has just shown that it lives.
        let first = match order.repetition {
            Repetition::Harmless => order,
            Repetition::Harmful => ARE_YOU_THERE,
        };
        if let Some(answer) = self.try_kept(kept, first, deadline).await
            && order.repetition == Repetition::Harmless
        {
            return Ok(answer);
        }
        let session = match kept {
            Some(session) => session,
            None => kept.insert(self.open(deadline).await?),
        };
        let started = Instant::now();
        let failure = match self.converse(session, order, deadline).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        *kept = None;
        let waited = started.elapsed();
        Err(match (failure, order.repetition) {
            (Failure::Refused(_), _) => Error::PrivilegeTooLow { wanted: self.endpoint.privilege },
            (Failure::Silence { .. }, Repetition::Harmful) => {
                Error::Uncertain { command: order.command.command, waited }
            }
            (Failure::Silence { garbled: Some(source), .. }, Repetition::Harmless) => {
                Error::Garbled { source }
            }
            (Failure::Silence { garbled: None, network }, Repetition::Harmless) => {
                let address = format!("{}:{}", self.endpoint.address, self.endpoint.port);
                Error::Unreachable { address, waited, source: network }
            }
        })
    }

    /// The answer in the session that was kept. None if there is no such session any more: the BMC
    /// has forgotten it, or is gone, and a new one will tell which.
    async fn try_kept(
        &self,
        kept: &mut Option<Kept>,
        order: Order<'_>,
        deadline: Instant,
    ) -> Option<(u8, Vec<u8>)> {
        if kept.as_ref()?.used.elapsed() >= self.timeouts.idle {
            *kept = None;
        }
        // A BMC that is busy may keep one waiting for seconds, and a new session would not help.
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now) / 2;
        let answer = self.converse(kept.as_mut()?, order, until).await.ok();
        if answer.is_none() {
            *kept = None;
        }
        answer
    }

    async fn open(&self, deadline: Instant) -> Result<Kept, Error> {
        let (link, suite) =
            Link::open(&self.endpoint, &self.suites(), &self.timeouts, deadline).await?;
        self.suite.store(suite.number(), Ordering::Relaxed);
        Ok(Kept { link, used: Instant::now() })
    }

    async fn converse(
        &self,
        kept: &mut Kept,
        order: Order<'_>,
        until: Instant,
    ) -> Result<(u8, Vec<u8>), Failure> {
        const NOT_OPEN: Failure = Failure::Silence { garbled: None, network: None };
        if !kept.link.session.submit(order.command, self.endpoint.bridging.as_ref()) {
            return Err(NOT_OPEN);
        }
        // BMCs know a repetition for one by its number. Some do not, and those are more often slow
        // than deaf.
        let first_wait = match order.repetition {
            Repetition::Harmless => self.timeouts.first_retransmission,
            Repetition::Harmful => self.timeouts.longest_wait,
        };
        match kept.link.converse(&self.timeouts, first_wait, until).await? {
            Said::Opened => Err(NOT_OPEN),
            Said::Answer { completion, data } => {
                kept.used = Instant::now();
                Ok((completion, data))
            }
        }
    }

    /// The suites to try, the one that worked last first.
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
