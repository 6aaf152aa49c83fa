// SPDX-License-Identifier: Apache-2.0
//! A session with a socket under it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{Duration, Instant, timeout_at};

use crate::Malformed;
use crate::endpoint::{Endpoint, Timeouts};
use crate::error::Error;
use crate::handshake::status;
use crate::packet::IV_LENGTH;
use crate::session::{Event, Identity, Random, Refusal, Session};
use crate::suite::CipherSuite;

/// A session with its socket. Says goodbye when it is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: UdpSocket,
    pub(crate) session: Session,
    /// What is sent, kept so that its memory is used again.
    out: Vec<u8>,
}

/// What came of a conversation.
#[derive(Debug)]
pub(crate) enum Said {
    /// The session is open.
    Opened,
    /// The answer to the request in flight.
    Answer {
        /// Zero, or why not.
        completion: u8,
        /// The rest.
        data: Vec<u8>,
    },
}

/// Why nothing came of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The session was refused.
    Refused(Refusal),
    /// Time ran out. Perhaps something came that made no sense, or the network said something.
    Silence { garbled: Option<Malformed>, network: Option<io::Error> },
}

/// The longest datagram that is read; BMCs send at most a few hundred bytes.
pub(crate) const LONGEST_DATAGRAM: usize = 1500;

impl Link {
    /// Opens a session with one of `suites`, the first first; gives up at `deadline`. Says which
    /// suite it became.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        suites: &[CipherSuite],
        timeouts: &Timeouts,
        deadline: Instant,
    ) -> Result<(Self, CipherSuite), Error> {
        let started = Instant::now();
        let unreachable = |source| Error::Unreachable {
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
            let mut patience = rest / 2;
            // A BMC may stay silent at a suite it does not know. So while there is more than one to
            // try, each is given little time, and all are gone round again with more.
            if left.len() > 1 {
                let round = u32::try_from(attempt / left.len()).unwrap_or(u32::MAX);
                let factor = 2u32.saturating_pow(round).saturating_mul(7);
                patience = timeouts.first_retransmission.saturating_mul(factor).min(rest);
            } else if attempt > 0 {
                patience = rest;
            }
            let until = Instant::now() + patience;
            match link.converse(timeouts, timeouts.first_retransmission, until).await {
                Ok(_) => return Ok((link, suite)),
                Err(Failure::Silence { garbled, network }) => {
                    attempt += 1;
                    if link.session.is_offered() {
                        left = vec![suite];
                    }
                    named_in_vain += u32::from(link.session.is_naming());
                    if Instant::now() >= deadline {
                        return Err(match garbled {
                            // Once may be chance: the BMC went away just then.
                            _ if named_in_vain > 1 => Error::SilentToUser,
                            Some(source) => Error::Garbled { source },
                            None => unreachable(network),
                        });
                    }
                }
                Err(Failure::Refused(refusal)) => {
                    link.say_goodbye();
                    match refusal {
                        Refusal::Open(status) if is_about_the_suite(status) => {
                            left.retain(|other| *other != suite);
                        }
                        // A datagram sent twice makes some BMCs lose track: begin anew.
                        Refusal::Confused(_) if confusions < 2 => confusions += 1,
                        // Once only: if it is the password after all, many tries lock the user out.
                        Refusal::Mismatch if confusions == 0 => confusions += 1,
                        Refusal::Open(status)
                        | Refusal::User(status)
                        | Refusal::Confused(status) => {
                            return Err(refusal_error(endpoint, status));
                        }
                        Refusal::Password | Refusal::Mismatch => return Err(Error::WrongPassword),
                        Refusal::Kg => return Err(Error::WrongKg),
                        Refusal::Privilege => {
                            return Err(Error::PrivilegeTooLow { wanted: endpoint.privilege });
                        }
                    }
                }
            }
        }
        let tried: Vec<_> = suites.iter().map(ToString::to_string).collect();
        Err(Error::CipherSuite { tried: tried.join(", ") })
    }

    /// Sends what the session has to say until something comes of it, or `deadline` comes. It is
    /// sent again for the first time after `first_wait`.
    pub(crate) async fn converse(
        &mut self,
        timeouts: &Timeouts,
        first_wait: Duration,
        deadline: Instant,
    ) -> Result<Said, Failure> {
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
                Ok(Some(said)) => return Ok(said),
                // The opening went on: the next message has its own waits.
                Ok(None) => {
                    wait = first_wait;
                    continue;
                }
                Err(ListenEnd::Refused(refusal)) => return Err(Failure::Refused(refusal)),
                Err(ListenEnd::Network(error)) => {
                    // The network says that nobody is there. It may be wrong in a moment.
                    network = Some(error);
                    tokio::time::sleep_until(again).await;
                }
                Err(ListenEnd::Time) => {}
            }
            if Instant::now() >= deadline {
                return Err(Failure::Silence { garbled, network });
            }
            wait = (wait * 2).min(timeouts.longest_wait);
        }
    }

    /// Sends a packet of the serial console.
    pub(crate) async fn send_sol(&mut self, packet: &[u8]) -> io::Result<()> {
        if self.session.transmit_sol(random_bytes(), packet, &mut self.out) {
            self.socket.send(&self.out).await?;
        }
        Ok(())
    }

    /// Sends the request in flight once, without waiting for the answer.
    pub(crate) async fn send_request(&mut self) -> io::Result<()> {
        if self.session.transmit(random_bytes(), &mut self.out) {
            self.socket.send(&self.out).await?;
        }
        Ok(())
    }

    fn new(socket: UdpSocket, endpoint: &Endpoint, suite: CipherSuite) -> Self {
        let identity = Identity {
            credentials: endpoint.credentials.clone(),
            privilege: endpoint.privilege,
            suite,
        };
        let console_session = u32::from_le_bytes(random_bytes()).max(1);
        let random = Random { console_session, nonce: random_bytes() };
        Self { socket, session: Session::new(identity, random), out: Vec::new() }
    }

    /// Listens until `until`. None if the session has something new to say, as it has `settling`
    /// after an offer.
    async fn listen(
        &mut self,
        datagram: &mut [u8],
        mut until: Instant,
        settling: Duration,
        garbled: &mut Option<Malformed>,
    ) -> Result<Option<Said>, ListenEnd> {
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
                Ok(Event::Advanced) => return Ok(None),
                Ok(Event::Opened) => return Ok(Some(Said::Opened)),
                Ok(Event::Answer { completion, data }) => {
                    return Ok(Some(Said::Answer { completion, data: data.to_vec() }));
                }
                Ok(Event::Ignored(malformed)) => *garbled = Some(malformed),
                Ok(Event::Offered) => {
                    is_settling = true;
                    until = until.min(Instant::now() + settling);
                }
                Ok(Event::Repeated | Event::Sol(_)) => {}
            }
        }
    }

    /// Tells the BMC that the session is not needed any more, so that it frees the slot: most have
    /// four. One datagram, not waited for; if it is lost the BMC finds out by itself.
    fn say_goodbye(&mut self) {
        let has_words = self.session.transmit_close(random_bytes(), &mut self.out)
            || !self.session.is_open() && self.session.transmit(random_bytes(), &mut self.out);
        if has_words {
            let _ = self.socket.try_send(&self.out);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.session.is_open() {
            self.say_goodbye();
        }
    }
}

enum ListenEnd {
    Time,
    Network(io::Error),
    Refused(Refusal),
}

/// Unpredictable bytes.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    const { assert!(N <= IV_LENGTH) };
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

async fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<UdpSocket> {
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

/// Whether a refusal of Open Session may become a grant with another suite. An invalid role is
/// what some BMCs say to algorithms they do not know.
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

fn refusal_error(endpoint: &Endpoint, status: u8) -> Error {
    match status {
        status::UNAUTHORIZED_NAME | status::INVALID_NAME_LENGTH => Error::WrongUser,
        status::UNAUTHORIZED_ROLE | status::INVALID_ROLE => {
            Error::PrivilegeTooLow { wanted: endpoint.privilege }
        }
        status::INSUFFICIENT_RESOURCES | status::INSUFFICIENT_RESOURCES_FOR_ROLE => {
            Error::NoFreeSession
        }
        _ => Error::Refused { status },
    }
}
