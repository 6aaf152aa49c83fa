// SPDX-License-Identifier: Apache-2.0
//! The TFTP server's sockets: one task that listens, and one per transfer.
//!
//! A task and a socket per transfer is what RFC 1350 asks for (a port per transfer) and what tokio is
//! good at: a waiting transfer costs a few kilobytes. How many there may be is bounded, in all and per
//! client, so that a flood of requests with false senders costs a bounded number of sockets.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use boot_media::Content;
use node_model::Timestamp;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::files::{Files, OpenError, netascii};
use super::packet::{ErrorCode, Request, RequestError, error};
use super::transfer::{Limits, Outbox, Outcome, Progress, Transfer};
use crate::interface::{self, BindError};
use crate::{Sighting, Sightings, What};

/// What a TFTP server is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address and port to listen on. A particular address, not the unspecified one, so that
    /// replies come from where the client sent its request.
    pub listen: SocketAddr,
    /// Listen on this interface only.
    pub interface: Option<Arc<str>>,
    /// What clients may ask for.
    pub limits: Limits,
    /// The most transfers at a time.
    pub most: usize,
    /// The most transfers at a time to one address. Firmware has one; a boot loader has a few.
    pub most_per_client: usize,
}

/// What the server works with.
#[derive(Clone)]
pub struct Services {
    /// The files.
    pub files: Arc<dyn Files>,
    /// Who is told of transfers.
    pub sightings: Arc<dyn Sightings>,
    /// The time of day.
    pub clock: fn() -> Timestamp,
}

/// A TFTP server that listens.
pub struct Server {
    listening: Arc<Listening>,
}

/// What the listening task and the transfers share.
struct Listening {
    socket: UdpSocket,
    settings: Settings,
    services: Services,
    running: Running,
}

/// The server could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("TFTP cannot listen on {listen}")]
pub struct ListenError {
    listen: SocketAddr,
    #[source]
    source: BindError,
}

/// The transfers that are going on.
#[derive(Default)]
struct Running(Mutex<Table>);

#[derive(Default)]
struct Table {
    all: usize,
    ports: HashMap<IpAddr, Vec<u16>>,
}

/// A place among the running transfers, given back when dropped.
struct Place {
    listening: Arc<Listening>,
    client: SocketAddr,
}

impl Settings {
    /// Listens on this address with the ordinary limits.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, interface: None, limits: Limits::default(), most: 4096, most_per_client: 16 }
    }
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the address or interface cannot be had.
    pub fn bind(settings: Settings, services: Services) -> Result<Self, ListenError> {
        let socket = interface::udp(settings.listen, settings.interface.as_deref())
            .map_err(|source| ListenError { listen: settings.listen, source })?;
        interface::make_room(&socket);
        let running = Running::default();
        Ok(Self { listening: Arc::new(Listening { socket, settings, services, running }) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listening.socket.local_addr()
    }

    /// Serves until it is dropped; running transfers end with it.
    pub async fn run(self) {
        let mut transfers = JoinSet::new();
        let mut buffer = vec![0; 2048];
        loop {
            tokio::select! {
                received = self.listening.socket.recv_from(&mut buffer) => match received {
                    Ok((length, client)) => self.request(&buffer[..length], client, &mut transfers).await,
                    // An ICMP error of an earlier answer; the socket itself is fine.
                    Err(error) => tracing::debug!(%error, "TFTP receive"),
                },
                Some(_) = transfers.join_next() => {}
            }
        }
    }

    async fn request(&self, message: &[u8], client: SocketAddr, transfers: &mut JoinSet<()>) {
        let listening = &self.listening;
        let request = match Request::decode(message) {
            Ok(request) => request,
            Err(RequestError::Malformed) => return,
            Err(refused @ (RequestError::Write | RequestError::Mode)) => {
                listening.refuse(client, ErrorCode::IllegalOperation, &refused.to_string()).await;
                return listening.tell(String::new(), client, Outcome::Malformed);
            }
        };
        match listening.running.enter(client, &listening.settings) {
            Entrance::Granted => {
                let place = Place { listening: listening.clone(), client };
                transfers.spawn(place.transfer(request));
            }
            // The first reply was lost or crossed with this; the running transfer sends it again.
            Entrance::Running => {}
            Entrance::Full => {
                let refused = "too many transfers; try again";
                listening.refuse(client, ErrorCode::Undefined, refused).await;
                listening.tell(request.file, client, Outcome::TooMany);
            }
        }
    }
}

impl Place {
    async fn transfer(self, request: Request) {
        let Listening { settings, .. } = &*self.listening;
        let client = self.client;
        let outcome = match self.open(&request).await {
            Ok(content) => {
                let local = SocketAddr::new(settings.listen.ip(), 0);
                match interface::udp(local, settings.interface.as_deref()) {
                    Ok(socket) => serve(&socket, client, &request, content, &settings.limits)
                        .await
                        .unwrap_or(Outcome::Silent),
                    Err(error) => {
                        tracing::warn!(%client, %error, "no socket for a TFTP transfer");
                        Outcome::TooMany
                    }
                }
            }
            Err(error) => {
                let (code, outcome) = match error {
                    OpenError::NotFound => (ErrorCode::NotFound, Outcome::NotFound),
                    OpenError::Forbidden => (ErrorCode::AccessViolation, Outcome::Forbidden),
                    OpenError::Unavailable => (ErrorCode::Undefined, Outcome::Unreadable),
                };
                self.listening.refuse(client, code, &error.to_string()).await;
                outcome
            }
        };
        let listening = self.listening.clone();
        // Who is told of the end may find the place free.
        drop(self);
        listening.tell(request.file, client, outcome);
    }

    async fn open(&self, request: &Request) -> Result<Content, OpenError> {
        let Listening { settings, services, .. } = &*self.listening;
        let opening = services.files.open(&request.file, self.client);
        let opened = tokio::time::timeout(settings.limits.patience, opening).await;
        let content = opened.unwrap_or(Err(OpenError::Unavailable))?;
        if request.netascii { netascii(&content).ok_or(OpenError::Forbidden) } else { Ok(content) }
    }
}

impl Listening {
    async fn refuse(&self, client: SocketAddr, code: ErrorCode, text: &str) {
        // Lost refusals are asked for again by the client.
        let _ = self.socket.send_to(&error(code, text), client).await;
    }

    fn tell(&self, file: String, client: SocketAddr, outcome: Outcome) {
        self.services.sightings.seen(Sighting {
            at: (self.services.clock)(),
            interface: self.settings.interface.clone().unwrap_or_default(),
            hardware: None,
            address: Some(client.ip()),
            architecture: None,
            stage: None,
            known: false,
            nothing_to_load: false,
            subject: None,
            what: What::Tftp { file, outcome },
        });
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.listening.settings).finish_non_exhaustive()
    }
}

enum Entrance {
    Granted,
    Running,
    Full,
}

impl Running {
    fn enter(&self, client: SocketAddr, settings: &Settings) -> Entrance {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *guard;
        let known = table.ports.get(&client.ip()).map_or(&[][..], Vec::as_slice);
        if known.contains(&client.port()) {
            return Entrance::Running;
        }
        if known.len() >= settings.most_per_client || table.all >= settings.most {
            return Entrance::Full;
        }
        table.ports.entry(client.ip()).or_default().push(client.port());
        table.all += 1;
        Entrance::Granted
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.listening.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.all -= 1;
        if let Some(ports) = table.ports.get_mut(&self.client.ip()) {
            ports.retain(|port| *port != self.client.port());
            if ports.is_empty() {
                table.ports.remove(&self.client.ip());
            }
        }
    }
}

async fn serve(
    socket: &UdpSocket,
    client: SocketAddr,
    request: &Request,
    content: Content,
    limits: &Limits,
) -> io::Result<Outcome> {
    socket.connect(client).await?;
    let mut out = Outbox::default();
    let mut buffer = [0; 1024];
    let now = Instant::now().into_std();
    let (mut transfer, mut progress) = Transfer::start(request, content, limits, now, &mut out);
    let mut alarm = pin!(tokio::time::sleep(limits.patience));
    loop {
        if !out.is_empty() {
            expect_silence(socket);
        }
        for message in out.iter() {
            match socket.send(message).await {
                Ok(_) => {}
                // The client's port is closed: it has what it wanted, or is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Ok(Outcome::Ended);
                }
                // A full queue or a lost route is loss like any other.
                Err(error) => tracing::debug!(%client, %error, "TFTP send"),
            }
        }
        out.clear();
        let deadline = match progress {
            Progress::Until(deadline) => deadline,
            Progress::Over(outcome) => return Ok(outcome),
        };
        // Set anew only when it must be earlier or has passed: not for every block.
        if alarm.is_elapsed() || Instant::from(deadline) < alarm.deadline() {
            alarm.as_mut().reset(deadline.into());
        }
        let received = tokio::select! {
            biased;
            received = socket.recv(&mut buffer) => Some(received),
            () = &mut alarm => None,
        };
        let now = Instant::now().into_std();
        progress = match received {
            Some(Ok(length)) => transfer.receive(&buffer[..length], now, &mut out),
            Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Ok(Outcome::Ended);
            }
            Some(Err(error)) => return Err(error),
            None => transfer.remind(now, &mut out),
        };
    }
}

/// Whoever is about to be sent something has nothing more to say before, so the next receive can wait
/// at once instead of asking the system first and being told to wait: one call in four. What comes
/// later ends the wait; something that is already there is read when the answer comes.
fn expect_silence(socket: &UdpSocket) {
    let nothing = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
    let _would_block = socket.try_io(Interest::READABLE, nothing);
}
