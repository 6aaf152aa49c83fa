// SPDX-License-Identifier: Apache-2.0
//! Listens on a socket, serves connections, shuts down gracefully.

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

use super::dispatch::dispatch;
use crate::app::App;

/// Listen backlog. Every agent of a large fleet may connect within the same second.
const BACKLOG: u32 = 4096;
/// Maximum size of a request head in bytes.
const MAX_HEAD_SIZE: usize = 32 * 1024;
/// Pause after a failed `accept`. Errors such as "too many open files" do not vanish at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server that is bound but not yet serving.
#[derive(Debug)]
pub struct ApiServer {
    app: Arc<App>,
    listener: TcpListener,
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
        Ok(Self { app, listener })
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
        let Self { app, listener } = self;
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(app.config.idle_timeout)
            .max_buf_size(MAX_HEAD_SIZE);
        let graceful = GracefulShutdown::new();
        let connection_limit = Arc::new(Semaphore::new(app.config.max_connections));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &connection_limit) => accepted,
                _ = stopped.wait_for(|stop| *stop) => break,
            };
            let (stream, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?ACCEPT_PAUSE, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let app = Arc::clone(&app);
            let service = service_fn(move |request| {
                let app = Arc::clone(&app);
                async move { Ok::<_, Infallible>(dispatch(app, request).await) }
            });
            let connection =
                graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                // Broken or idle connections are normal: log at trace level only.
                if let Err(error) = connection.await {
                    tracing::trace!(%error, "connection ended");
                }
                drop(permit);
            });
        }
        drop(listener);
        let timeout = app.config.shutdown_timeout;
        app.start_stopping();
        if tokio::time::timeout(timeout, graceful.shutdown()).await.is_err() {
            tracing::warn!(?timeout, "shutdown timed out, aborting requests in flight");
        }
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

async fn accept(
    listener: &TcpListener,
    connection_limit: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(connection_limit).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}
