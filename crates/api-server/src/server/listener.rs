// SPDX-License-Identifier: Apache-2.0
//! Listens on a TCP port, with or without TLS, and on a Unix socket; shuts down gracefully.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::client_certificate::ClientCertificate;
use super::client_connection::ClientConnection;
use super::transport::{
    ApiTransport, TlsHandshake, refuse_plain_http, serve_connection, tls_handshake,
};
use super::unix_socket::LocalSocket;
use crate::app::App;

/// Listen backlog. Every agent of a large fleet may connect within the same second.
const BACKLOG: u32 = 4096;
/// Maximum size of a request head in bytes.
const MAX_HEAD_SIZE: usize = 32 * 1024;
/// Pause after a failed `accept`. Errors such as "too many open files" do not vanish at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Pause if a waiting connection was closed to free a file descriptor.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
/// Response to a client over its connection limit.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\
    Connection: close\r\n\r\n";

/// Returns the TLS configuration for a new connection.
type TlsConfigSource = Arc<dyn Fn() -> Arc<rustls::ServerConfig> + Send + Sync>;

/// A server that is bound but not yet serving.
pub struct ApiServer {
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<TlsConfigSource>,
    local: Option<LocalSocket>,
}

/// An accepted connection and its place in the connection limit.
enum AcceptedConnection {
    Tcp(TcpStream, Arc<ClientConnection>),
    Unix(UnixStream, OwnedSemaphorePermit),
}

/// A running server. Dropping it stops the server without waiting for requests in flight.
#[derive(Debug)]
pub struct ApiServerHandle {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ApiServer {
    /// Binds the configured address.
    ///
    /// # Errors
    /// Fails if the address is in use or not local.
    pub fn bind(app: Arc<App>) -> io::Result<Self> {
        let address = app.config.listen;
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted server must not wait for its predecessor's connections in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        Ok(Self { app, listener, tls: None, local: None })
    }

    /// Serves the bound address with TLS. `config` returns the configuration for a new connection.
    #[must_use]
    pub fn with_tls(
        mut self,
        config: impl Fn() -> Arc<rustls::ServerConfig> + Send + Sync + 'static,
    ) -> Self {
        self.tls = Some(Arc::new(config));
        self
    }

    /// Also serves a Unix socket, without TLS and authentication, for root and the user of this process.
    ///
    /// # Errors
    /// Fails if the path cannot be bound, or is a file other than a socket.
    pub fn with_unix_socket(mut self, path: &Path) -> io::Result<Self> {
        self.local = Some(LocalSocket::bind(path)?);
        Ok(self)
    }

    /// The bound address, with the assigned port if port 0 was configured.
    ///
    /// # Errors
    /// Fails if `getsockname` fails.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Starts serving.
    ///
    /// # Errors
    /// Fails if the bound address cannot be read.
    pub fn spawn(self) -> io::Result<ApiServerHandle> {
        let address = self.address()?;
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(self.run(stopped));
        Ok(ApiServerHandle { address, stop, task })
    }

    async fn run(self, mut stopped: watch::Receiver<bool>) {
        let Self { app, listener, tls, local } = self;
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(app.config.idle_timeout)
            .max_buf_size(MAX_HEAD_SIZE);
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &app, tls.is_some()) => accepted,
                accepted = accept_local(local.as_ref()) => accepted,
                _ = stopped.wait_for(|stop| *stop) => break,
            };
            let accepted = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Usually all file descriptors are in use.
                    let has_closed = app.limits.connections.close_one(Instant::now());
                    let pause = if has_closed { CLOSING_PAUSE } else { ACCEPT_PAUSE };
                    tracing::warn!(%error, retry_in = ?pause, "accept failed");
                    tokio::time::sleep(pause).await;
                    continue;
                }
            };
            let (app, builder, watcher) = (Arc::clone(&app), builder.clone(), graceful.watcher());
            match accepted {
                AcceptedConnection::Unix(stream, permit) => {
                    tokio::spawn(async move {
                        let transport = ApiTransport::UnixSocket;
                        serve_connection(app, &builder, watcher, stream, transport, None, None)
                            .await;
                        drop(permit);
                    });
                }
                AcceptedConnection::Tcp(stream, client) => {
                    let (tls, stopped) = (tls.clone(), stopped.clone());
                    tokio::spawn(async move {
                        let head_timeout = app.config.head_timeout;
                        let own = Arc::clone(&client);
                        let served = serve_tcp(app, &builder, watcher, stream, own, tls, stopped);
                        tokio::select! {
                            () = served => {}
                            () = client.closing(head_timeout) => {}
                        }
                    });
                }
            }
        }
        drop(local);
        drop(listener);
        let timeout = app.config.shutdown_timeout;
        app.start_stopping();
        if tokio::time::timeout(timeout, graceful.shutdown()).await.is_err() {
            tracing::warn!(?timeout, "shutdown timed out, aborting requests in flight");
        }
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer")
            .field("listener", &self.listener)
            .field("tls", &self.tls.is_some())
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

impl ApiServerHandle {
    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections and waits for requests in flight, up to `shutdown_timeout`.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "server task failed");
        }
    }
}

impl Drop for ApiServerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts a connection. Never waits for other clients: connections over a limit are refused at once.
async fn accept(
    listener: &TcpListener,
    app: &App,
    has_tls: bool,
) -> io::Result<AcceptedConnection> {
    loop {
        let (stream, peer) = listener.accept().await?;
        let Some(slot) = app.limits.connections.admit(peer.ip(), Instant::now()) else {
            if !has_tls {
                let _ = stream.try_write(TOO_MANY_CONNECTIONS);
            }
            continue;
        };
        // Fails only if the client has closed the connection, which is found when it is read.
        let _ = stream.set_nodelay(true);
        return Ok(AcceptedConnection::Tcp(stream, ClientConnection::new(peer, slot)));
    }
}

/// Waits for a connection to the Unix socket; forever if there is none.
async fn accept_local(local: Option<&LocalSocket>) -> io::Result<AcceptedConnection> {
    match local {
        Some(local) => {
            local.accept().await.map(|(stream, permit)| AcceptedConnection::Unix(stream, permit))
        }
        None => std::future::pending().await,
    }
}

/// Serves a TCP connection, after the handshake if the port uses TLS.
async fn serve_tcp(
    app: Arc<App>,
    builder: &http1::Builder,
    watcher: Watcher,
    stream: TcpStream,
    client: Arc<ClientConnection>,
    tls: Option<TlsConfigSource>,
    mut stopped: watch::Receiver<bool>,
) {
    let Some(tls) = tls else {
        let transport = ApiTransport::Plain;
        return serve_connection(app, builder, watcher, stream, transport, Some(client), None)
            .await;
    };
    let acceptor = TlsAcceptor::from(tls());
    let handshake = tokio::select! {
        handshake = tls_handshake(stream, &acceptor) => handshake,
        _ = stopped.wait_for(|stop| *stop) => return,
    };
    match handshake {
        Ok(TlsHandshake::Done(stream)) => {
            let transport = ApiTransport::Tls;
            let certificate = ClientCertificate::of(stream.get_ref().1);
            serve_connection(app, builder, watcher, stream, transport, Some(client), certificate)
                .await;
        }
        Ok(TlsHandshake::PlainHttp(stream)) => refuse_plain_http(builder, watcher, stream).await,
        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
    }
}
