// SPDX-License-Identifier: Apache-2.0
//! Requests to a BMC, with a session that is opened when first needed and kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep};

use crate::commands::Ask;
use crate::completion;
use crate::endpoint::{Bridging, Endpoint, Timeouts};
use crate::error::Error;
use crate::link::{Failure, Link, Said, patience_with_kept};
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
        let mut data = Vec::new();
        ask.emit(&mut data);
        let answer = self.request(A::NETFN, ask.lun(), A::COMMAND, &data).await?;
        Ok(A::parse(&answer)?)
    }

    /// Sends any command; the answer is what follows the completion code. Waits and asks again
    /// where the BMC says that it is busy.
    pub async fn request(
        &self,
        netfn: u8,
        lun: u8,
        command: u8,
        data: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let mut kept = self.kept.lock().await;
        let _turn = self.turns.acquire().await;
        let deadline = Instant::now() + self.timeouts.total;
        let mut pause = self.timeouts.first_retransmission;
        let asked = Command { netfn, lun, command, data };
        loop {
            let (code, data) = self.exchange(&mut kept, asked, deadline).await?;
            if code == completion::OK {
                return Ok(data);
            }
            if !completion::is_passing(code) || Instant::now() + pause >= deadline {
                return Err(Error::Completion { netfn, command, code });
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.timeouts.longest_wait);
        }
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

    async fn exchange(
        &self,
        kept: &mut Option<Kept>,
        command: Command<'_>,
        deadline: Instant,
    ) -> Result<(u8, Vec<u8>), Error> {
        let bridging = self.endpoint.bridging.as_ref();
        if let Some(old) = kept.take_if(|old| old.used.elapsed() >= self.timeouts.idle) {
            drop(old);
        }
        if let Some(old) = kept {
            let until = deadline.min(Instant::now() + patience_with_kept(&self.timeouts));
            if let Ok(answer) = self.converse(old, command, bridging, until).await {
                return Ok(answer);
            }
            // It has forgotten the session, or is gone. A new session will tell which.
            *kept = None;
        }
        let (link, suite) =
            Link::open(&self.endpoint, &self.suites(), &self.timeouts, deadline).await?;
        self.suite.store(suite.number(), Ordering::Relaxed);
        let fresh = kept.insert(Kept { link, used: Instant::now() });
        let started = Instant::now();
        match self.converse(fresh, command, bridging, deadline).await {
            Ok(answer) => Ok(answer),
            Err(failure) => {
                *kept = None;
                Err(match failure {
                    Failure::Silence { garbled: Some(source), .. } => Error::Garbled { source },
                    Failure::Silence { garbled: None, network } => Error::Unreachable {
                        address: format!("{}:{}", self.endpoint.address, self.endpoint.port),
                        waited: started.elapsed(),
                        source: network,
                    },
                    Failure::Refused(_) => {
                        Error::PrivilegeTooLow { wanted: self.endpoint.privilege }
                    }
                })
            }
        }
    }

    async fn converse(
        &self,
        kept: &mut Kept,
        command: Command<'_>,
        bridging: Option<&Bridging>,
        until: Instant,
    ) -> Result<(u8, Vec<u8>), Failure> {
        const NOT_OPEN: Failure = Failure::Silence { garbled: None, network: None };
        if !kept.link.session.submit(command, bridging) {
            return Err(NOT_OPEN);
        }
        match kept.link.converse(&self.timeouts, until).await? {
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
