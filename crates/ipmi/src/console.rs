// SPDX-License-Identifier: Apache-2.0
//! A machine's serial console over a session of its own.

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Duration, Instant, sleep_until};

use crate::commands::{ActivateSol, Ask, DeactivateSol, GetDeviceId};
use crate::completion;
use crate::endpoint::{Endpoint, Timeouts};
use crate::error::Error;
use crate::link::{Failure, LONGEST_DATAGRAM, Link, Said};
use crate::session::{Command, Event};
use crate::sol::{End, Line};
use crate::suite::CipherSuite;

/// An open serial console.
#[derive(Debug)]
pub struct SolConsole {
    endpoint: Endpoint,
    timeouts: Timeouts,
    link: Link,
    line: Line,
}

/// What a user does at a console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SolInput {
    /// Types.
    Bytes(Vec<u8>),
    /// Sends a break.
    Break,
}

impl SolConsole {
    /// Opens a session and makes it carry the console. Another session that carries it loses it:
    /// it is most likely one that died without saying so.
    pub async fn open(
        endpoint: Endpoint,
        timeouts: Timeouts,
        turns: &Semaphore,
    ) -> Result<Self, Error> {
        let _turn = turns.acquire().await;
        let deadline = Instant::now() + timeouts.total;
        let suites = endpoint.cipher_suite.map_or(CipherSuite::ALL.to_vec(), |suite| vec![suite]);
        let (link, _) = Link::open(&endpoint, &suites, &timeouts, deadline).await?;
        let mut console =
            Self { endpoint, timeouts, link, line: Line::new(End::Console, SMALLEST_PACKET) };
        let activated = match console.ask(&ActivateSol, deadline).await {
            Err(Error::Completion { code: ALREADY_ACTIVE, .. }) => {
                console.deactivate(deadline).await?;
                console.ask(&ActivateSol, deadline).await?
            }
            other => other?,
        };
        console.line = Line::new(End::Console, packet_size(activated.inbound_size));
        Ok(console)
    }

    /// Carries the console until `input` ends, which ends the console in good order, or until
    /// the BMC ends it or is gone, which is an error. `output` is given what the machine prints.
    pub async fn run(
        mut self,
        input: &mut mpsc::Receiver<SolInput>,
        output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<(), Error> {
        let mut datagram = vec![0; LONGEST_DATAGRAM];
        let mut packet = Vec::new();
        let mut heartbeat = Instant::now() + HEARTBEAT;
        // Since when the BMC owes us a word.
        let mut unheard_since = None;
        loop {
            while self.line.transmit(&mut packet) {
                // A packet that the network refuses is a packet lost: it is sent again.
                let _ = self.link.send_sol(&packet).await;
            }
            let mut is_waiting = self.line.is_waiting();
            if is_waiting {
                unheard_since.get_or_insert_with(Instant::now);
            }
            is_waiting |= unheard_since.is_some();
            let silence = Instant::now() + self.timeouts.first_retransmission;
            tokio::select! {
                received = self.link.socket.recv(&mut datagram) => {
                    let Ok(length) = received else {
                        // The network says that nobody is there. It may be wrong in a moment.
                        unheard_since.get_or_insert_with(Instant::now);
                        sleep_until(silence).await;
                        continue;
                    };
                    match self.link.session.on_datagram(&mut datagram[..length]) {
                        Ok(Event::Sol(bytes)) => {
                            unheard_since = None;
                            let Ok(received) = self.line.on_packet(bytes) else { continue };
                            if !received.data.is_empty() {
                                output(received.data);
                            }
                            if received.is_end {
                                return Err(self.gone());
                            }
                        }
                        Ok(Event::Answer { .. }) => unheard_since = None,
                        Ok(Event::Ignored(_) | Event::Offered | Event::Repeated | Event::Advanced | Event::Opened) | Err(_) => {}
                    }
                }
                typed = input.recv(), if self.line.room() >= LARGEST_INPUT => match typed {
                    None => {
                        let deadline = Instant::now() + self.timeouts.first_retransmission * 3;
                        return self.deactivate(deadline).await;
                    }
                    Some(SolInput::Bytes(bytes)) => {
                        self.line.push(&bytes);
                    }
                    Some(SolInput::Break) => self.line.push_break(),
                },
                () = sleep_until(silence), if is_waiting => {
                    if unheard_since.is_some_and(|since| since.elapsed() >= self.timeouts.total) {
                        return Err(self.gone());
                    }
                    self.line.on_silence();
                    let _ = self.link.send_request().await;
                }
                () = sleep_until(heartbeat) => {
                    // Keeps the session alive and tells whether it is.
                    let command = Command {
                        netfn: GetDeviceId::NETFN,
                        lun: 0,
                        command: GetDeviceId::COMMAND,
                        data: &[],
                    };
                    self.link.session.submit(command, None);
                    let _ = self.link.send_request().await;
                    unheard_since.get_or_insert_with(Instant::now);
                    heartbeat = Instant::now() + HEARTBEAT;
                }
            }
        }
    }

    async fn deactivate(&mut self, deadline: Instant) -> Result<(), Error> {
        const NOT_ACTIVE: u8 = 0x80;
        match self.ask(&DeactivateSol, deadline).await {
            Err(Error::Completion { code: NOT_ACTIVE, .. }) => Ok(()),
            other => other,
        }
    }

    async fn ask<A: Ask>(&mut self, ask: &A, deadline: Instant) -> Result<A::Answer, Error> {
        let mut data = Vec::new();
        ask.emit(&mut data);
        let (netfn, command) = (A::NETFN, A::COMMAND);
        self.link.session.submit(Command { netfn, lun: 0, command, data: &data }, None);
        let first_wait = self.timeouts.first_retransmission;
        match self.link.converse(&self.timeouts, first_wait, deadline).await {
            Ok(Said::Answer { completion: completion::OK, data }) => Ok(A::parse(&data)?),
            Ok(Said::Answer { completion, .. }) => {
                Err(Error::Completion { netfn, command, code: completion })
            }
            Ok(Said::Opened) | Err(Failure::Refused(_) | Failure::Silence { .. }) => {
                Err(self.gone())
            }
        }
    }

    fn gone(&self) -> Error {
        Error::Unreachable {
            address: format!("{}:{}", self.endpoint.address, self.endpoint.port),
            waited: self.timeouts.total,
            source: None,
        }
    }
}

const ALREADY_ACTIVE: u8 = 0x80;
/// How often the BMC is asked something, so that it does not forget the session.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// How much room there must be before more is read from the user.
const LARGEST_INPUT: usize = 8 * 1024;
const SMALLEST_PACKET: usize = 16;
const LARGEST_PACKET: usize = 200;

/// How many bytes to send at a time to a BMC that says it takes so many with their header. Some
/// say nonsense.
fn packet_size(inbound_size: u16) -> usize {
    match usize::from(inbound_size).saturating_sub(Line::HEADER_LENGTH) {
        size @ SMALLEST_PACKET..=LARGEST_PACKET => size,
        0..SMALLEST_PACKET => SMALLEST_PACKET,
        _ => LARGEST_PACKET,
    }
}
