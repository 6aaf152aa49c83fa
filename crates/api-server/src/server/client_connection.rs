// SPDX-License-Identifier: Apache-2.0
//! The connection of a request: the client's address, and its place among all connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use connection_limits::ConnectionSlot;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use ironic_wire::WireError;

use crate::config::ApiConfig;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// An open connection.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    peer: SocketAddr,
    slot: ConnectionSlot,
    had_request: AtomicBool,
}

/// Keeps the connection of a request open until the response is sent.
#[derive(Debug)]
pub(crate) struct RequestInProgress(Arc<ClientConnection>);

/// The connection of a request that is being received.
#[derive(Debug)]
pub(crate) struct RequestConnection {
    /// `None` for clients over the Unix socket.
    connection: Option<Arc<ClientConnection>>,
    /// Set as soon as the connection must stay open until the response is sent.
    pub(crate) in_progress: Option<RequestInProgress>,
}

impl RequestConnection {
    /// The connection of a request whose head was received.
    pub(crate) fn new(head: &Parts) -> Self {
        let connection = head.extensions.get::<Arc<ClientConnection>>().cloned();
        if let Some(connection) = &connection {
            connection.had_request.store(true, Ordering::Relaxed);
        }
        Self { connection, in_progress: None }
    }

    /// Keeps the connection open until the response is sent. Before that, it is closed if others need its
    /// place. Fails if it is already being closed.
    pub(crate) fn start_work(&mut self) -> Result<(), WireError> {
        if self.in_progress.is_none()
            && let Some(connection) = &self.connection
        {
            let closing = || WireError::unavailable("The server has too many connections.");
            self.in_progress = Some(connection.start_work().ok_or_else(closing)?);
        }
        Ok(())
    }

    /// Records that the client has authenticated.
    pub(crate) fn mark_known(&self) {
        if let Some(connection) = &self.connection {
            connection.mark_known();
        }
    }
}

impl ClientConnection {
    pub(crate) fn new(peer: SocketAddr, slot: ConnectionSlot) -> Arc<Self> {
        Arc::new(Self { peer, slot, had_request: AtomicBool::new(false) })
    }

    /// Waits until the connection has to be closed: to make room for others, or because the head of the
    /// first request did not arrive in time.
    pub(crate) async fn closing(&self, head_timeout: Duration) {
        let no_request = async {
            tokio::time::sleep(head_timeout).await;
            if self.had_request.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.slot.closing() => {}
            () = no_request => {}
        }
    }

    /// Protects the connection from being closed until the result is dropped; `None` if it is being
    /// closed.
    fn start_work(self: &Arc<Self>) -> Option<RequestInProgress> {
        self.slot.start_work().then(|| RequestInProgress(Arc::clone(self)))
    }

    /// Records that the client has authenticated.
    pub(crate) fn mark_known(&self) {
        self.slot.mark_known(Instant::now());
    }

    /// The address of the client: that of the connection, or behind a trusted proxy the one that the proxy
    /// appended to `X-Forwarded-For`.
    pub(crate) fn client_address(&self, config: &ApiConfig, headers: &HeaderMap) -> IpAddr {
        let forwarded = || {
            let last = headers.get_all(FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
            last.rsplit(',').next()?.trim().parse::<IpAddr>().ok()
        };
        let forwarded = config.trust_forwarded_headers.then(forwarded).flatten();
        forwarded.unwrap_or(self.peer.ip()).to_canonical()
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.slot.finish_work();
    }
}
