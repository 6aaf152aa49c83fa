// SPDX-License-Identifier: Apache-2.0
//! The TFTP server's sockets: one task that listens, and one per transfer.
//!
//! A task and a socket per transfer is what RFC 1350 asks for (a port per transfer) and what tokio is
//! good at: a waiting transfer costs a few kilobytes. How many there may be is bounded, in all and per
//! client, so that a flood of requests with false senders costs a bounded number of sockets.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use node_model::Timestamp;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::files::{Content, Files, OpenError, netascii};
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
    socket: UdpSocket,
    settings: Settings,
    services: Services,
    running: Arc<Running>,
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
    running: Arc<Running>,
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
        // Room for the first requests of some thousand machines; with less they only ask again.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20);
        Ok(Self { socket, settings, services, running: Arc::default() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until it is dropped; running transfers end with it.
    pub async fn run(self) {
        let mut transfers = JoinSet::new();
        let mut buffer = vec![0; 2048];
        loop {
            tokio::select! {
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok((length, client)) => self.request(&buffer[..length], client, &mut transfers).await,
                    // An ICMP error of an earlier answer; the socket itself is fine.
                    Err(error) => tracing::debug!(%error, "TFTP receive"),
                },
                Some(_) = transfers.join_next() => {}
            }
        }
    }

    async fn request(&self, message: &[u8], client: SocketAddr, transfers: &mut JoinSet<()>) {
        let request = match Request::decode(message) {
            Ok(request) => request,
            Err(RequestError::Malformed) => return,
            Err(refused @ (RequestError::Write | RequestError::Mode)) => {
                self.refuse(client, ErrorCode::IllegalOperation, &refused.to_string()).await;
                return self.tell(String::new(), client, Outcome::Malformed);
            }
        };
        let place = match self.running.enter(client, &self.settings) {
            Entrance::Granted => Place { running: self.running.clone(), client },
            // The first reply was lost or crossed with this; the running transfer sends it again.
            Entrance::Running => return,
            Entrance::Full => {
                self.refuse(client, ErrorCode::Undefined, "too many transfers; try again").await;
                return self.tell(request.file, client, Outcome::TooMany);
            }
        };
        let content = match self.open(&request, client) {
            Ok(content) => content,
            Err(error) => {
                let (code, outcome) = match error {
                    OpenError::NotFound => (ErrorCode::NotFound, Outcome::NotFound),
                    OpenError::Forbidden => (ErrorCode::AccessViolation, Outcome::Forbidden),
                };
                self.refuse(client, code, &error.to_string()).await;
                return self.tell(request.file, client, outcome);
            }
        };
        let services = self.services.clone();
        let limits = self.settings.limits;
        let interface = self.settings.interface.clone();
        let local = SocketAddr::new(self.settings.listen.ip(), 0);
        transfers.spawn(async move {
            let outcome = match interface::udp(local, interface.as_deref()) {
                Ok(socket) => serve(&socket, client, &request, content, &limits)
                    .await
                    .unwrap_or(Outcome::Silent),
                Err(error) => {
                    tracing::warn!(%client, %error, "no socket for a TFTP transfer");
                    Outcome::TooMany
                }
            };
            drop(place);
            tell(&services, interface.unwrap_or_default(), request.file, client, outcome);
        });
    }

    fn open(&self, request: &Request, client: SocketAddr) -> Result<Arc<dyn Content>, OpenError> {
        let content = self.services.files.open(&request.file, client)?;
        if !request.netascii {
            return Ok(content);
        }
        let text = netascii(&*content).ok_or(OpenError::Forbidden)?;
        Ok(Arc::new(text))
    }

    async fn refuse(&self, client: SocketAddr, code: ErrorCode, text: &str) {
        // Lost refusals are asked for again by the client.
        let _ = self.socket.send_to(&error(code, text), client).await;
    }

    fn tell(&self, file: String, client: SocketAddr, outcome: Outcome) {
        let interface = self.settings.interface.clone().unwrap_or_default();
        tell(&self.services, interface, file, client, outcome);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
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
        let mut table = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    content: Arc<dyn Content>,
    limits: &Limits,
) -> io::Result<Outcome> {
    socket.connect(client).await?;
    let mut out = Outbox::default();
    let mut buffer = [0; 1024];
    let now = Instant::now().into_std();
    let (mut transfer, mut progress) = Transfer::start(request, content, limits, now, &mut out);
    loop {
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
        let received = tokio::time::timeout_at(deadline.into(), socket.recv(&mut buffer)).await;
        let now = Instant::now().into_std();
        progress = match received {
            Ok(Ok(length)) => transfer.receive(&buffer[..length], now, &mut out),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Ok(Outcome::Ended);
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => transfer.remind(now, &mut out),
        };
    }
}

fn tell(
    services: &Services,
    interface: Arc<str>,
    file: String,
    client: SocketAddr,
    outcome: Outcome,
) {
    services.sightings.seen(Sighting {
        at: (services.clock)(),
        interface,
        hardware: None,
        address: Some(client.ip()),
        architecture: None,
        stage: None,
        known: false,
        what: What::Tftp { file, outcome },
    });
}
