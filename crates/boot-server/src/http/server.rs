// SPDX-License-Identifier: Apache-2.0
//! The HTTP server's socket: one task that listens, and one per connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node_model::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::pages::Pages;
use super::places::Places;
use super::status::Status;
use super::wire::Wire;
use crate::interface::{self, BindError};
use crate::{Sighting, Sightings, What};

/// What an HTTP server is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address and port to listen on. A v6 address is for v6 alone.
    pub listen: SocketAddr,
    /// Listen on this interface only.
    pub interface: Option<Arc<str>>,
    /// With this, every connection is TLS; see [`super::tls_from_files`].
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// What clients may use.
    pub limits: Limits,
}

/// What clients may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at a time. Each needs a file descriptor, and one more while a file is sent.
    pub most: usize,
    /// The most connections at a time from one address. Firmware has one; a ramdisk has a few.
    pub most_per_client: usize,
    /// How long a connection may be open without a request, and how long a request may take to come.
    pub idle: Duration,
    /// How long a client may take no byte of what is sent to it.
    pub stall: Duration,
    /// How long the greeting of TLS may take.
    pub handshake: Duration,
    /// How long the pages may take to answer.
    pub page: Duration,
}

/// What the server works with.
#[derive(Clone)]
pub struct Services {
    /// The pages.
    pub pages: Arc<dyn Pages>,
    /// Who is told of requests.
    pub sightings: Arc<dyn Sightings>,
    /// The time of day.
    pub clock: fn() -> Timestamp,
}

/// An HTTP server that listens.
pub struct Server {
    listener: TcpListener,
    settings: Settings,
    services: Services,
    tls: Option<TlsAcceptor>,
    places: Arc<Places>,
}

/// The server could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("HTTP cannot listen on {listen}")]
pub struct ListenError {
    listen: SocketAddr,
    #[source]
    source: BindError,
}

impl Settings {
    /// Listens on this address without TLS and with the ordinary limits.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, interface: None, tls: None, limits: Limits::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most: 4096,
            most_per_client: 128,
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            handshake: Duration::from_secs(20),
            page: Duration::from_secs(10),
        }
    }
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the address or interface cannot be had.
    pub fn bind(settings: Settings, services: Services) -> Result<Self, ListenError> {
        let listener = interface::tcp(settings.listen, settings.interface.as_deref())
            .map_err(|source| ListenError { listen: settings.listen, source })?;
        let tls = settings.tls.clone().map(TlsAcceptor::from);
        Ok(Self { listener, settings, services, tls, places: Arc::default() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is dropped; open connections end with it.
    pub async fn run(self) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, client)) => self.welcome(stream, client, &mut connections),
                    Err(error) => self.pause(&error).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn welcome(&self, stream: TcpStream, client: SocketAddr, connections: &mut JoinSet<()>) {
        let limits = self.settings.limits;
        let entered = self.places.enter(client.ip(), limits.most, limits.most_per_client);
        let Some(place) = entered else {
            if self.tls.is_none() {
                let _ = stream.try_write(FULL);
            }
            return self.tell_of_refused(client);
        };
        // Heads and contents are put together by us; the end of a content must not wait for more.
        let _ = stream.set_nodelay(true);
        let services = self.services.clone();
        let tls = self.tls.clone();
        connections.spawn(async move {
            let _place = place;
            let wire = match tls {
                None => Wire::Plain(stream),
                Some(tls) => match tokio::time::timeout(limits.handshake, tls.accept(stream)).await
                {
                    Ok(Ok(stream)) => Wire::Tls(Box::new(stream)),
                    Ok(Err(error)) => return tracing::debug!(%client, %error, "TLS greeting"),
                    Err(_) => return,
                },
            };
            Connection::new(wire, client, limits, services).run().await;
        });
    }

    fn tell_of_refused(&self, client: SocketAddr) {
        self.services.sightings.seen(Sighting {
            at: (self.services.clock)(),
            interface: Arc::default(),
            hardware: None,
            address: Some(client.ip()),
            architecture: None,
            stage: None,
            known: false,
            nothing_to_load: false,
            subject: None,
            what: What::Http {
                title: "refused: too many connections".into(),
                status: Status::Unavailable.code(),
                sent: 0,
                whole: false,
                took: Duration::ZERO,
                agent: Arc::default(),
            },
        });
    }

    /// A connection that was gone before it was taken is nothing; without file descriptors every
    /// attempt fails at once, until one is free again.
    async fn pause(&self, error: &io::Error) {
        tracing::warn!(%error, "HTTP accept");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a client is told for which there is no place.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.settings).finish_non_exhaustive()
    }
}
