// SPDX-License-Identifier: Apache-2.0
//! The sockets of the DNS forwarder.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::client_limits::{DnsClientLimits, DnsQuerySlot};
use super::forwarder::{DnsTransport, DnsUpstreams, read_message, write_message};
use super::{DnsAction, MAX_QUERY_BYTES, OwnDnsNames};
use crate::sockets::{self, SocketBindError};

/// The time that a connection may wait for its next query.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of one DNS forwarder.
#[derive(Clone)]
pub struct DnsServerSettings {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// The interface to which the sockets are bound, if any.
    pub interface: Option<Arc<str>>,
    /// Names for which the server responds itself.
    pub names: OwnDnsNames,
    /// Returns whether a client is on a served network. Others get no response.
    pub is_client: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

/// A DNS forwarder with bound sockets.
pub struct DnsListener {
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
    server: Arc<DnsServer>,
}

struct DnsServer {
    settings: DnsServerSettings,
    upstreams: Arc<DnsUpstreams>,
    limits: DnsClientLimits,
}

impl DnsListener {
    /// Binds the sockets.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(
        settings: DnsServerSettings,
        upstreams: Arc<DnsUpstreams>,
    ) -> Result<Self, SocketBindError> {
        let interface = settings.interface.as_deref();
        let udp = sockets::udp(settings.listen, interface)?;
        let fail = |source| SocketBindError::Address { address: settings.listen, source };
        // The same port for both if it is chosen by the system.
        let address = udp.local_addr().map_err(fail)?;
        let tcp = sockets::tcp(address, interface)?;
        let server = DnsServer { settings, upstreams, limits: DnsClientLimits::default() };
        Ok(Self { udp: Arc::new(udp), tcp, server: Arc::new(server) })
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// If the system does not return it.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Serves until the future is dropped.
    pub async fn run(self) {
        tokio::join!(
            serve_udp(self.udp, Arc::clone(&self.server)),
            serve_tcp(self.tcp, self.server)
        );
    }
}

impl std::fmt::Debug for DnsListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DnsListener").field("listen", &self.server.settings.listen).finish()
    }
}

impl DnsServer {
    /// Admits a query of a client, `None` if it gets no response.
    fn admit(&self, from: SocketAddr) -> Option<DnsQuerySlot> {
        let client = from.ip().to_canonical();
        if !(self.settings.is_client)(client) {
            tracing::debug!(%client, "DNS query from another network ignored");
            return None;
        }
        let slot = self.limits.admit(client, Instant::now());
        if slot.is_none() {
            tracing::debug!(%client, "DNS query dropped, too many queries");
        }
        slot
    }

    async fn response(&self, message: &[u8], transport: DnsTransport) -> Option<Vec<u8>> {
        match self.settings.names.decide(message) {
            DnsAction::Respond(response) => Some(response),
            DnsAction::Forward(question) => {
                self.upstreams.forward(message, &question, transport).await
            }
            DnsAction::Drop => None,
        }
    }
}

async fn serve_udp(socket: Arc<UdpSocket>, server: Arc<DnsServer>) {
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; MAX_QUERY_BYTES];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "DNS receive failed");
                // An interface that is down reports this error continuously.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while tasks.try_join_next().is_some() {}
        let Some(slot) = server.admit(from) else { continue };
        let (message, socket, server) =
            (buffer[..length].to_vec(), Arc::clone(&socket), Arc::clone(&server));
        tasks.spawn(async move {
            if let Some(response) = server.response(&message, DnsTransport::Udp).await
                && let Err(error) = socket.send_to(&response, from).await
            {
                tracing::debug!(%from, %error, "sending a DNS response failed");
            }
            drop(slot);
        });
    }
}

async fn serve_tcp(listener: TcpListener, server: Arc<DnsServer>) {
    let mut tasks = JoinSet::new();
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "DNS accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while tasks.try_join_next().is_some() {}
        // A connection counts as a query, so that idle ones are limited too.
        let Some(slot) = server.admit(from) else { continue };
        let server = Arc::clone(&server);
        tasks.spawn(async move {
            if let Err(error) = serve_connection(stream, from, &server).await {
                tracing::debug!(%from, %error, "DNS connection ended");
            }
            drop(slot);
        });
    }
}

async fn serve_connection(
    mut stream: TcpStream,
    from: SocketAddr,
    server: &DnsServer,
) -> io::Result<()> {
    loop {
        let read = read_message(&mut stream, MAX_QUERY_BYTES);
        let message = match tokio::time::timeout(IDLE_TIMEOUT, read).await {
            Ok(Ok(message)) => message,
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        let Some(_slot) = server.admit(from) else { return Ok(()) };
        let Some(response) = server.response(&message, DnsTransport::Tcp).await else {
            return Ok(());
        };
        let write = write_message(&mut stream, &response);
        match tokio::time::timeout(IDLE_TIMEOUT, write).await {
            Ok(written) => written?,
            Err(_) => return Ok(()),
        }
    }
}
