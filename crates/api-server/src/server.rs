// SPDX-License-Identifier: Apache-2.0
//! Sockets: accepting connections, serving requests on them, stopping.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::answer::answer;
use crate::app::App;

/// How many connections the kernel keeps for us while we are busy: every agent of a large fleet
/// may call in the same second.
const BACKLOG: u32 = 4096;
/// Requests have few headers and short ones; what is larger is not meant for us.
const LARGEST_HEAD: usize = 32 * 1024;
/// Waited after an error that will not go away by itself at once, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound server that does not serve yet.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
}

/// A running server. Dropping it stops the server without waiting for requests in flight.
#[derive(Debug)]
pub struct ServerHandle {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    /// Binds the configured address.
    ///
    /// # Errors
    /// When the address is taken or not ours.
    pub fn bind(app: Arc<App>) -> io::Result<Self> {
        let address = app.config.listen;
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted server must not wait for connections of its predecessor to time out.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        Ok(Self { app, listener })
    }

    /// Where the server listens: the port is a real one even when port 0 was asked for.
    ///
    /// # Errors
    /// When the kernel cannot say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Starts serving.
    ///
    /// # Errors
    /// When the kernel cannot say where the server listens.
    pub fn spawn(self) -> io::Result<ServerHandle> {
        let address = self.address()?;
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(self.run(stopped));
        Ok(ServerHandle { address, stop, task })
    }

    async fn run(self, mut stopped: watch::Receiver<bool>) {
        let Self { app, listener } = self;
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(app.config.idle_timeout)
            .max_buf_size(LARGEST_HEAD);
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(app.config.max_connections));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &places) => accepted,
                _ = stopped.wait_for(|stop| *stop) => break,
            };
            let (stream, place) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let app = Arc::clone(&app);
            let service = service_fn(move |request| {
                let app = Arc::clone(&app);
                async move { Ok::<_, Infallible>(answer(app, request).await) }
            });
            let connection =
                graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                // Clients go away, send nonsense or fall silent: no news to anybody.
                if let Err(error) = connection.await {
                    tracing::trace!(%error, "connection ended");
                }
                drop(place);
            });
        }
        drop(listener);
        let patience = app.config.shutdown_timeout;
        app.stopping();
        if tokio::time::timeout(patience, graceful.shutdown()).await.is_err() {
            tracing::warn!(?patience, "requests still in flight are given up");
        }
    }
}

impl ServerHandle {
    /// Where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, waits for requests in flight (no longer than configured) and returns.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the server task ended badly");
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, place))
}
