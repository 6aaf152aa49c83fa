// SPDX-License-Identifier: Apache-2.0
//! The serial console of a machine, in its own session.

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Duration, Instant, sleep_until};

use crate::commands::{ActivateSol, DeactivateSol, GetDeviceId, TypedIpmiCommand};
use crate::completion;
use crate::endpoint::{IpmiEndpoint, IpmiTimeouts};
use crate::error::IpmiError;
use crate::session::{SessionEvent, SessionRequest};
use crate::session_socket::{LONGEST_DATAGRAM, SessionFailure, SessionResult, SessionSocket};
use crate::sol::{SolEnd, SolLine};
use crate::suite::CipherSuite;

/// An open serial console.
#[derive(Debug)]
pub struct SolConsole {
    endpoint: IpmiEndpoint,
    timeouts: IpmiTimeouts,
    link: SessionSocket,
    line: SolLine,
}

/// Input of the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SolInput {
    /// Typed bytes.
    Bytes(Vec<u8>),
    /// A break.
    Break,
}

impl From<Vec<u8>> for SolInput {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl SolConsole {
    /// Opens a session and activates the console in it. Takes the console over from another session,
    /// which is most likely stale.
    pub async fn open(
        endpoint: IpmiEndpoint,
        timeouts: IpmiTimeouts,
        turns: &Semaphore,
    ) -> Result<Self, IpmiError> {
        let _turn = turns.acquire().await;
        let deadline = Instant::now() + timeouts.total;
        let suites = endpoint.cipher_suite.map_or(CipherSuite::ALL.to_vec(), |suite| vec![suite]);
        let (link, _) = SessionSocket::open(&endpoint, &suites, &timeouts, deadline).await?;
        let mut console =
            Self { endpoint, timeouts, link, line: SolLine::new(SolEnd::Console, SMALLEST_PACKET) };
        let activated = match console.execute(&ActivateSol, deadline).await {
            Err(IpmiError::Completion { code: ALREADY_ACTIVE, .. }) => {
                console.deactivate(deadline).await?;
                console.execute(&ActivateSol, deadline).await?
            }
            other => other?,
        };
        console.line = SolLine::new(SolEnd::Console, packet_size(activated.inbound_size));
        Ok(console)
    }

    /// Runs until `input` ends, which closes the console cleanly, or fails when the BMC ends it or is
    /// unreachable. `output` receives what the machine prints.
    pub async fn run(
        mut self,
        input: &mut mpsc::Receiver<impl Into<SolInput>>,
        output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<(), IpmiError> {
        let mut datagram = vec![0; LONGEST_DATAGRAM];
        let mut packet = Vec::new();
        let mut heartbeat = Instant::now() + HEARTBEAT;
        // Since when a response is outstanding.
        let mut waiting_since = None;
        loop {
            while self.line.transmit(&mut packet) {
                // A packet that could not be sent is repeated like a lost one.
                let _ = self.link.send_sol(&packet).await;
            }
            let mut is_waiting = self.line.is_waiting();
            if is_waiting {
                waiting_since.get_or_insert_with(Instant::now);
            }
            is_waiting |= waiting_since.is_some();
            let silence = Instant::now() + self.timeouts.first_retransmission;
            tokio::select! {
                received = self.link.socket.recv(&mut datagram) => {
                    let Ok(length) = received else {
                        // The network reports an unreachable host, which may be temporary.
                        waiting_since.get_or_insert_with(Instant::now);
                        sleep_until(silence).await;
                        continue;
                    };
                    match self.link.session.on_datagram(&mut datagram[..length]) {
                        Ok(SessionEvent::Sol(bytes)) => {
                            waiting_since = None;
                            let Ok(received) = self.line.on_packet(bytes) else { continue };
                            if !received.data.is_empty() {
                                output(received.data);
                            }
                            if received.is_end {
                                return Err(self.gone());
                            }
                        }
                        Ok(SessionEvent::Response { .. }) => waiting_since = None,
                        Ok(SessionEvent::Ignored(_) | SessionEvent::Offered | SessionEvent::Repeated | SessionEvent::Advanced | SessionEvent::Opened) | Err(_) => {}
                    }
                }
                typed = input.recv(), if self.line.room() >= LARGEST_INPUT => match typed.map(Into::into) {
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
                    if waiting_since.is_some_and(|since| since.elapsed() >= self.timeouts.total) {
                        return Err(self.gone());
                    }
                    self.line.on_silence();
                    let _ = self.link.send_request().await;
                }
                () = sleep_until(heartbeat) => {
                    // Keeps the session alive and checks that it is.
                    let command = SessionRequest {
                        netfn: GetDeviceId::NETFN,
                        lun: 0,
                        command: GetDeviceId::COMMAND,
                        data: &[],
                    };
                    self.link.session.submit(command, None);
                    let _ = self.link.send_request().await;
                    waiting_since.get_or_insert_with(Instant::now);
                    heartbeat = Instant::now() + HEARTBEAT;
                }
            }
        }
    }

    async fn deactivate(&mut self, deadline: Instant) -> Result<(), IpmiError> {
        const NOT_ACTIVE: u8 = 0x80;
        match self.execute(&DeactivateSol, deadline).await {
            Err(IpmiError::Completion { code: NOT_ACTIVE, .. }) => Ok(()),
            other => other,
        }
    }

    async fn execute<A: TypedIpmiCommand>(
        &mut self,
        typed: &A,
        deadline: Instant,
    ) -> Result<A::Response, IpmiError> {
        let mut data = Vec::new();
        typed.emit(&mut data);
        let (netfn, command) = (A::NETFN, A::COMMAND);
        self.link.session.submit(SessionRequest { netfn, lun: 0, command, data: &data }, None);
        let first_wait = self.timeouts.first_retransmission;
        match self.link.exchange(&self.timeouts, first_wait, deadline).await {
            Ok(SessionResult::Response { completion: completion::OK, data }) => {
                Ok(A::parse(&data)?)
            }
            Ok(SessionResult::Response { completion, .. }) => {
                Err(IpmiError::Completion { netfn, command, code: completion })
            }
            Ok(SessionResult::Opened)
            | Err(SessionFailure::Refused(_) | SessionFailure::Silence { .. }) => Err(self.gone()),
        }
    }

    fn gone(&self) -> IpmiError {
        IpmiError::Unreachable {
            address: format!("{}:{}", self.endpoint.address, self.endpoint.port),
            waited: self.timeouts.total,
            source: None,
        }
    }
}

const ALREADY_ACTIVE: u8 = 0x80;
/// The interval of keep-alive requests.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// The free buffer space that is required before more input is read.
const LARGEST_INPUT: usize = 8 * 1024;
const SMALLEST_PACKET: usize = 16;
const LARGEST_PACKET: usize = 200;

/// The number of data bytes per packet for the inbound size that a BMC reports, including the header.
/// Some BMCs report invalid sizes.
fn packet_size(inbound_size: u16) -> usize {
    match usize::from(inbound_size).saturating_sub(SolLine::HEADER_LENGTH) {
        size @ SMALLEST_PACKET..=LARGEST_PACKET => size,
        0..SMALLEST_PACKET => SMALLEST_PACKET,
        _ => LARGEST_PACKET,
    }
}
