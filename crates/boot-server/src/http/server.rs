// SPDX-License-Identifier: Apache-2.0
//! The listening socket of the HTTP server: one accepting task, and one task per connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connection_limits::{ConnectionLimits, ConnectionTable};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::client_stream::ClientStream;
use super::connection::HttpConnection;
use super::files::HttpFiles;
use super::request::MAX_HEAD_BYTES;
use super::status::BootHttpStatus;
use crate::sockets::{self, SocketBindError};
use crate::{BootClock, BootEvent, BootEventDetail, BootEventRecorder};

/// The settings of the HTTP server.
#[derive(Debug, Clone)]
pub struct BootHttpSettings {
    /// The address and port to listen on. An IPv6 address does not accept IPv4.
    pub listen: SocketAddr,
    /// The only interface to listen on; `None` for all.
    pub interface: Option<Arc<str>>,
    /// The TLS configuration; `None` for plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The limits for clients.
    pub limits: BootHttpLimits,
}

/// The limits for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootHttpLimits {
    /// The number of concurrent connections. Each uses a file descriptor, and another while it sends a file.
    /// A further connection replaces one that waits for a request.
    pub max_connections: usize,
    /// The number of concurrent connections per client address. Firmware uses one; a ramdisk a few. Clients
    /// that were sent a file of a known machine have no limit for a while.
    pub max_connections_per_client: usize,
    /// The time within which the first request of a connection has to arrive completely.
    pub head_timeout: Duration,
    /// The time within which each further request has to arrive completely.
    pub idle_timeout: Duration,
    /// How long a client may accept no byte of a response.
    pub stall_timeout: Duration,
    /// The timeout of the TLS handshake.
    pub handshake_timeout: Duration,
    /// The timeout of [`HttpFiles::file`].
    pub lookup_timeout: Duration,
}

/// What the HTTP server depends on.
#[derive(Clone)]
pub struct BootHttpServices {
    /// Supplies the files.
    pub files: Arc<dyn HttpFiles>,
    /// Receives an event per request.
    pub events: Arc<dyn BootEventRecorder>,
    /// Returns the current time.
    pub clock: BootClock,
}

/// An HTTP server with a bound socket.
pub struct BootHttpServer {
    listener: TcpListener,
    settings: BootHttpSettings,
    services: BootHttpServices,
    tls: Option<TlsAcceptor>,
    connections: Arc<ConnectionTable>,
}

/// The HTTP server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("HTTP cannot listen on {listen}")]
pub struct BootHttpListenError {
    listen: SocketAddr,
    #[source]
    source: SocketBindError,
}

impl BootHttpSettings {
    /// Returns settings for this address, without TLS and with the default limits.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, interface: None, tls: None, limits: BootHttpLimits::default() }
    }
}

impl Default for BootHttpLimits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_connections_per_client: 128,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            lookup_timeout: Duration::from_secs(10),
        }
    }
}

impl BootHttpServer {
    /// Binds the socket.
    ///
    /// # Errors
    /// If the address or interface cannot be used.
    pub fn bind(
        settings: BootHttpSettings,
        services: BootHttpServices,
    ) -> Result<Self, BootHttpListenError> {
        let listener = sockets::tcp(settings.listen, settings.interface.as_deref())
            .map_err(|source| BootHttpListenError { listen: settings.listen, source })?;
        let tls = settings.tls.clone().map(TlsAcceptor::from);
        let limits = settings.limits;
        let connections = ConnectionTable::new(ConnectionLimits {
            total: limits.max_connections,
            reserved: limits.max_connections / RESERVED_PART,
            per_client: limits.max_connections_per_client,
        });
        Ok(Self { listener, settings, services, tls, connections })
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the future is dropped, which also closes open connections.
    pub async fn run(self) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, client)) => self.accept(stream, client, &mut connections),
                    Err(error) => self.pause_after_accept_error(&error).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn accept(&self, stream: TcpStream, client: SocketAddr, connections: &mut JoinSet<()>) {
        let limits = self.settings.limits;
        let Some(slot) = self.connections.admit(client.ip(), Instant::now()) else {
            if self.tls.is_none() {
                let _ = stream.try_write(TOO_MANY_CONNECTIONS);
            }
            return self.record_refused_connection(client);
        };
        // Heads and bodies are combined by this code; the end of a body must not wait for more data.
        let _ = stream.set_nodelay(true);
        let services = self.services.clone();
        let tls = self.tls.clone();
        let slot = Arc::new(slot);
        connections.spawn(async move {
            let own_slot = Arc::clone(&slot);
            let served = async {
                let stream = match tls {
                    None => ClientStream::Plain(stream),
                    Some(tls) => {
                        let handshake = tls_handshake(stream, &tls);
                        match tokio::time::timeout(limits.handshake_timeout, handshake).await {
                            Ok(Ok(stream)) => stream,
                            Ok(Err(error)) => {
                                return tracing::debug!(%client, %error, "TLS handshake failed");
                            }
                            Err(_) => return,
                        }
                    }
                };
                HttpConnection::new(stream, client, own_slot, limits, services).run().await;
            };
            tokio::select! {
                () = served => {}
                () = slot.closing() => {}
            }
        });
    }

    fn record_refused_connection(&self, client: SocketAddr) {
        self.services.events.record(BootEvent {
            at: (self.services.clock)(),
            interface: Arc::default(),
            hardware: None,
            address: Some(client.ip()),
            architecture: None,
            stage: None,
            is_known: false,
            no_loadable_boot_file: false,
            machine: None,
            detail: BootEventDetail::Http {
                title: "refused: too many connections".into(),
                status: BootHttpStatus::Unavailable.code(),
                bytes_sent: 0,
                is_complete: false,
                duration: Duration::ZERO,
                user_agent: Arc::default(),
            },
        });
    }

    /// Waits before the next accept. Without free file descriptors every accept fails at once, so a waiting
    /// connection is closed.
    async fn pause_after_accept_error(&self, error: &io::Error) {
        let has_closed = self.connections.close_one(Instant::now());
        let pause = Duration::from_millis(if has_closed { 1 } else { 50 });
        tracing::warn!(%error, retry_in = ?pause, "HTTP accept failed");
        tokio::time::sleep(pause).await;
    }
}

/// Performs the TLS handshake. A client that sends plain HTTP gets a response that it can show.
async fn tls_handshake(mut stream: TcpStream, tls: &TlsAcceptor) -> io::Result<ClientStream> {
    /// The first byte of a TLS handshake record.
    const TLS_HANDSHAKE: u8 = 0x16;
    let mut first = [0];
    if stream.peek(&mut first).await? > 0 && first[0] != TLS_HANDSHAKE {
        // Closing a connection with unread bytes resets it, and the client may lose the response.
        let _ = stream.read(&mut [0; MAX_HEAD_BYTES]).await?;
        stream.write_all(TLS_REQUIRED).await?;
        stream.shutdown().await?;
        return Err(io::Error::other("the client does not use TLS"));
    }
    Ok(ClientStream::Tls(Box::new(tls.accept(stream).await?)))
}

/// The response to a client that sends plain HTTP to a port with TLS.
const TLS_REQUIRED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 31\r\nConnection: close\r\n\r\nThis port uses TLS; use https.\n";

/// One in this many connections is reserved for known clients.
const RESERVED_PART: usize = 8;

/// The response to a client that exceeds a connection limit.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";

impl std::fmt::Debug for BootHttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
    }
}
