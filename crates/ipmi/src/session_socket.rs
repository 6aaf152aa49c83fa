// SPDX-License-Identifier: Apache-2.0
//! A session with its UDP socket.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{Duration, Instant, timeout_at};

use crate::MalformedIpmiMessage;
use crate::endpoint::{IpmiEndpoint, IpmiTimeouts};
use crate::error::IpmiError;
use crate::handshake::status;
use crate::packet::IV_LENGTH;
use crate::session::{
    IpmiSession, IpmiSessionRefusal, SessionEvent, SessionIdentity, SessionRandom,
};
use crate::suite::CipherSuite;

/// A session with its UDP socket. Closes the session when dropped.
#[derive(Debug)]
pub(crate) struct SessionSocket {
    pub(crate) socket: UdpSocket,
    pub(crate) session: IpmiSession,
    /// The send buffer.
    out: Vec<u8>,
}

/// The result of an exchange.
#[derive(Debug)]
pub(crate) enum SessionResult {
    /// The session is open.
    Opened,
    /// The response to the pending request.
    Response {
        /// The completion code.
        completion: u8,
        /// The data.
        data: Vec<u8>,
    },
}

/// Why an exchange failed.
#[derive(Debug)]
pub(crate) enum SessionFailure {
    /// The session was rejected.
    Refused(IpmiSessionRefusal),
    /// A timeout, with the last invalid message or network error, if any.
    Silence { garbled: Option<MalformedIpmiMessage>, network: Option<io::Error> },
}

/// The size limit of received datagrams; BMCs send at most a few hundred bytes.
pub(crate) const LONGEST_DATAGRAM: usize = 1500;

impl SessionSocket {
    /// Opens a session with one of `suites`, in this order, until `deadline`. Returns the suite.
    pub(crate) async fn open(
        endpoint: &IpmiEndpoint,
        suites: &[CipherSuite],
        timeouts: &IpmiTimeouts,
        deadline: Instant,
    ) -> Result<(Self, CipherSuite), IpmiError> {
        let started = Instant::now();
        let unreachable = |source| IpmiError::Unreachable {
            address: format!("{}:{}", endpoint.address, endpoint.port),
            waited: started.elapsed(),
            source,
        };
        let mut confusions = 0;
        let mut named_in_vain = 0;
        let mut left = suites.to_vec();
        let mut attempt = 0;
        while !left.is_empty() {
            let suite = left[attempt % left.len()];
            let socket =
                connect(endpoint, deadline).await.map_err(|source| unreachable(Some(source)))?;
            let mut link = Self::new(socket, endpoint, suite);
            let rest = deadline.saturating_duration_since(Instant::now());
            let mut attempt_time = rest / 2;
            // A BMC may ignore an unknown suite. With several suites, each gets a short time, and all
            // are tried again with more.
            if left.len() > 1 {
                let round = u32::try_from(attempt / left.len()).unwrap_or(u32::MAX);
                let factor = 2u32.saturating_pow(round).saturating_mul(7);
                attempt_time = timeouts.first_retransmission.saturating_mul(factor).min(rest);
            } else if attempt > 0 {
                attempt_time = rest;
            }
            let until = Instant::now() + attempt_time;
            match link.exchange(timeouts, timeouts.first_retransmission, until).await {
                Ok(_) => return Ok((link, suite)),
                Err(SessionFailure::Silence { garbled, network }) => {
                    attempt += 1;
                    if link.session.is_offered() {
                        left = vec![suite];
                    }
                    named_in_vain += u32::from(link.session.is_naming());
                    if Instant::now() >= deadline {
                        return Err(match garbled {
                            // A single failure may be a coincidence: the BMC became unreachable.
                            _ if named_in_vain > 1 => IpmiError::SilentToUser,
                            Some(source) => IpmiError::Garbled { source },
                            None => unreachable(network),
                        });
                    }
                }
                Err(SessionFailure::Refused(refusal)) => {
                    link.send_close();
                    match refusal {
                        IpmiSessionRefusal::Open(status) if is_about_the_suite(status) => {
                            left.retain(|other| *other != suite);
                        }
                        // A duplicate datagram confuses some BMCs: start again.
                        IpmiSessionRefusal::Confused(_) if confusions < 2 => confusions += 1,
                        // Only once: if the password is wrong, many attempts lock the user out.
                        IpmiSessionRefusal::Mismatch if confusions == 0 => confusions += 1,
                        IpmiSessionRefusal::Open(status)
                        | IpmiSessionRefusal::User(status)
                        | IpmiSessionRefusal::Confused(status) => {
                            return Err(refusal_error(endpoint, status));
                        }
                        IpmiSessionRefusal::Password | IpmiSessionRefusal::Mismatch => {
                            return Err(IpmiError::WrongPassword);
                        }
                        IpmiSessionRefusal::Kg => return Err(IpmiError::WrongKg),
                        IpmiSessionRefusal::Privilege => {
                            return Err(IpmiError::PrivilegeTooLow { wanted: endpoint.privilege });
                        }
                    }
                }
            }
        }
        let tried: Vec<_> = suites.iter().map(ToString::to_string).collect();
        Err(IpmiError::CipherSuite { tried: tried.join(", ") })
    }

    /// Sends the pending message of the session until there is a result or `deadline` is reached. The
    /// first retransmission is after `first_wait`.
    pub(crate) async fn exchange(
        &mut self,
        timeouts: &IpmiTimeouts,
        first_wait: Duration,
        deadline: Instant,
    ) -> Result<SessionResult, SessionFailure> {
        let mut datagram = vec![0; LONGEST_DATAGRAM];
        let mut wait = first_wait;
        let mut garbled = None;
        let mut network = None;
        loop {
            if self.session.transmit(random_bytes(), &mut self.out) {
                network = self.socket.send(&self.out).await.err().or(network);
            }
            let again = deadline.min(Instant::now() + wait);
            let settling = timeouts.first_retransmission;
            match self.listen(&mut datagram, again, settling, &mut garbled).await {
                Ok(Some(result)) => return Ok(result),
                // The handshake has advanced: the next message has its own delays.
                Ok(None) => {
                    wait = first_wait;
                    continue;
                }
                Err(ListenEnd::Refused(refusal)) => return Err(SessionFailure::Refused(refusal)),
                Err(ListenEnd::Network(error)) => {
                    // The network reports an unreachable host, which may be temporary.
                    network = Some(error);
                    tokio::time::sleep_until(again).await;
                }
                Err(ListenEnd::Time) => {}
            }
            if Instant::now() >= deadline {
                return Err(SessionFailure::Silence { garbled, network });
            }
            wait = (wait * 2).min(timeouts.longest_wait);
        }
    }

    /// Sends a serial console packet.
    pub(crate) async fn send_sol(&mut self, packet: &[u8]) -> io::Result<()> {
        if self.session.transmit_sol(random_bytes(), packet, &mut self.out) {
            self.socket.send(&self.out).await?;
        }
        Ok(())
    }

    /// Sends the pending request once, without waiting for the response.
    pub(crate) async fn send_request(&mut self) -> io::Result<()> {
        if self.session.transmit(random_bytes(), &mut self.out) {
            self.socket.send(&self.out).await?;
        }
        Ok(())
    }

    fn new(socket: UdpSocket, endpoint: &IpmiEndpoint, suite: CipherSuite) -> Self {
        let identity = SessionIdentity {
            credentials: endpoint.credentials.clone(),
            privilege: endpoint.privilege,
            suite,
        };
        let console_session = u32::from_le_bytes(random_bytes()).max(1);
        let random = SessionRandom { console_session, nonce: random_bytes() };
        Self { socket, session: IpmiSession::new(identity, random), out: Vec::new() }
    }

    /// Receives until `until`. Returns `None` if the session has a new message to send, which after an
    /// offer is delayed by `settling`.
    async fn listen(
        &mut self,
        datagram: &mut [u8],
        mut until: Instant,
        settling: Duration,
        garbled: &mut Option<MalformedIpmiMessage>,
    ) -> Result<Option<SessionResult>, ListenEnd> {
        let mut is_settling = false;
        loop {
            let received = timeout_at(until, self.socket.recv(datagram)).await;
            let length = match received {
                Err(_) if is_settling => return Ok(None),
                Err(_) => return Err(ListenEnd::Time),
                Ok(Err(error)) => return Err(ListenEnd::Network(error)),
                Ok(Ok(length)) => length,
            };
            match self.session.on_datagram(&mut datagram[..length]) {
                Err(refusal) => return Err(ListenEnd::Refused(refusal)),
                Ok(SessionEvent::Advanced) => return Ok(None),
                Ok(SessionEvent::Opened) => return Ok(Some(SessionResult::Opened)),
                Ok(SessionEvent::Response { completion, data }) => {
                    return Ok(Some(SessionResult::Response { completion, data: data.to_vec() }));
                }
                Ok(SessionEvent::Ignored(malformed)) => *garbled = Some(malformed),
                Ok(SessionEvent::Offered) => {
                    is_settling = true;
                    until = until.min(Instant::now() + settling);
                }
                Ok(SessionEvent::Repeated | SessionEvent::Sol(_)) => {}
            }
        }
    }

    /// Sends Close Session, so that the BMC frees it: most BMCs have four. Sends one datagram without waiting; if
    /// it is lost, the session times out.
    fn send_close(&mut self) {
        let has_words = self.session.transmit_close(random_bytes(), &mut self.out)
            || !self.session.is_open() && self.session.transmit(random_bytes(), &mut self.out);
        if has_words {
            let _ = self.socket.try_send(&self.out);
        }
    }
}

impl Drop for SessionSocket {
    fn drop(&mut self) {
        if self.session.is_open() {
            self.send_close();
        }
    }
}

enum ListenEnd {
    Time,
    Network(io::Error),
    Refused(IpmiSessionRefusal),
}

/// Returns random bytes.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    const { assert!(N <= IV_LENGTH) };
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

async fn connect(endpoint: &IpmiEndpoint, deadline: Instant) -> io::Result<UdpSocket> {
    let looked_up = lookup_host((endpoint.address.as_str(), endpoint.port));
    let addresses = timeout_at(deadline, looked_up).await.map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, "looking up the name took too long")
    })??;
    let mut last = None;
    for address in addresses {
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).await?;
        match socket.connect(address).await {
            Ok(()) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

/// Returns whether a rejection of Open Session may be due to the suite. Some BMCs return "invalid
/// role" for unknown algorithms.
const fn is_about_the_suite(status: u8) -> bool {
    matches!(
        status,
        0x03 | status::INVALID_AUTHENTICATION
            | status::INVALID_INTEGRITY
            | status::NO_AUTHENTICATION
            | status::NO_INTEGRITY
            | status::INVALID_ROLE
            | status::INVALID_CONFIDENTIALITY
            | status::NO_CIPHER_SUITE
            | status::ILLEGAL_PARAMETER
    )
}

fn refusal_error(endpoint: &IpmiEndpoint, status: u8) -> IpmiError {
    match status {
        status::UNAUTHORIZED_NAME | status::INVALID_NAME_LENGTH => IpmiError::WrongUser,
        status::UNAUTHORIZED_ROLE | status::INVALID_ROLE => {
            IpmiError::PrivilegeTooLow { wanted: endpoint.privilege }
        }
        status::INSUFFICIENT_RESOURCES | status::INSUFFICIENT_RESOURCES_FOR_ROLE => {
            IpmiError::NoFreeSession
        }
        _ => IpmiError::Refused { status },
    }
}
