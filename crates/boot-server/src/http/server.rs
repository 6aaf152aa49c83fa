// SPDX-License-Identifier: Apache-2.0
//! The listening socket of the HTTP server: one accepting task, and one task per connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node_model::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::client_stream::ClientStream;
use super::connection::HttpConnection;
use super::connection_limiter::ConnectionLimiter;
use super::files::HttpFiles;
use super::status::BootHttpStatus;
use crate::sockets::{self, SocketBindError};
use crate::{BootEvent, BootEventDetail, BootEventRecorder};

/// The settings of the HTTP server.
#[derive(Debug, Clone)]
pub struct BootHttpSettings {
    /// The address and port to listen on. An IPv6 address does not accept IPv4.
    pub listen: SocketAddr,
    /// The only interface to listen on; `None` for all.
    pub interface: Option<Arc<str>>,
    /// The TLS configuration, see [`super::tls_from_files`]; `None` for plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The limits for clients.
    pub limits: BootHttpLimits,
}

/// The limits for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootHttpLimits {
    /// The number of concurrent connections. Each uses a file descriptor, and another while it sends a file.
    pub max_connections: usize,
    /// The number of concurrent connections per client address. Firmware uses one; a ramdisk a few.
    pub max_connections_per_client: usize,
    /// The time within which a complete request has to arrive on an open connection.
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
    pub clock: fn() -> Timestamp,
}

/// An HTTP server with a bound socket.
pub struct BootHttpServer {
    listener: TcpListener,
    settings: BootHttpSettings,
    services: BootHttpServices,
    tls: Option<TlsAcceptor>,
    limiter: Arc<ConnectionLimiter>,
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
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(20),
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
        Ok(Self { listener, settings, services, tls, limiter: Arc::default() })
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
        let acquired = self.limiter.acquire(
            client.ip(),
            limits.max_connections,
            limits.max_connections_per_client,
        );
        let Some(slot) = acquired else {
            if self.tls.is_none() {
                let _ = stream.try_write(TOO_MANY_CONNECTIONS);
            }
            return self.record_refused_connection(client);
        };
        // Heads and bodies are combined by this code; the end of a body must not wait for more data.
        let _ = stream.set_nodelay(true);
        let services = self.services.clone();
        let tls = self.tls.clone();
        connections.spawn(async move {
            let _slot = slot;
            let stream = match tls {
                None => ClientStream::Plain(stream),
                Some(tls) => {
                    match tokio::time::timeout(limits.handshake_timeout, tls.accept(stream)).await {
                        Ok(Ok(stream)) => ClientStream::Tls(Box::new(stream)),
                        Ok(Err(error)) => {
                            return tracing::debug!(%client, %error, "TLS handshake failed");
                        }
                        Err(_) => return,
                    }
                }
            };
            HttpConnection::new(stream, client, limits, services).run().await;
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

    /// Waits before the next accept. Without free file descriptors every accept fails at once.
    async fn pause_after_accept_error(&self, error: &io::Error) {
        tracing::warn!(%error, "HTTP accept failed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The response to a client that exceeds a connection limit.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";

impl std::fmt::Debug for BootHttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
    }
}
