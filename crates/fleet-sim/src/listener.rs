// SPDX-License-Identifier: Apache-2.0
//! TCP listeners that serve HTTP/1.1, with or without TLS.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Listen backlog of one BMC.
const BACKLOG: u32 = 128;
/// Listen backlog of the agents' shared listener: all agents of a fleet may be called at once.
const SHARED_BACKLOG: u32 = 4096;
/// Time without a request after which a connection is closed, as BMCs do.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a TLS handshake.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a persistent accept error, such as too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A handler's request to close the connection without a response.
#[derive(Debug, thiserror::Error)]
#[error("connection closed without a response")]
pub(crate) struct ConnectionClosed;

/// Result of handling a request.
pub(crate) type HandlerResult = Result<Response<Full<Bytes>>, ConnectionClosed>;

/// Binds a listener; port 0 selects any free port.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    bind_with_backlog(address, BACKLOG)
}

/// Binds a listener that is shared by all agents of a fleet.
pub(crate) fn bind_shared(address: SocketAddr) -> io::Result<TcpListener> {
    bind_with_backlog(address, SHARED_BACKLOG)
}

fn bind_with_backlog(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// Accepts connections until dropped. Connections are closed when `stopped` becomes true.
pub(crate) async fn run<H, F>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    stopped: watch::Receiver<bool>,
    handler: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = HandlerResult> + Send + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                let retry_in = ACCEPT_RETRY_DELAY;
                tracing::warn!(%error, ?retry_in, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let (tls, mut stopped, handler) = (tls.clone(), stopped.clone(), handler.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve_connection(stream, tls, handler) => {}
                _ = stopped.wait_for(|stop| *stop) => {}
            }
        });
    }
}

async fn serve_connection<H, F>(stream: TcpStream, tls: Option<TlsAcceptor>, handler: H)
where
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = HandlerResult> + Send + 'static,
{
    // Responses are small, so Nagle's algorithm would only delay them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    match tls {
        None => serve_http(stream, handler).await,
        Some(tls) => match tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => serve_http(stream, handler).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!(timeout = ?TLS_HANDSHAKE_TIMEOUT, "TLS handshake timed out"),
        },
    }
}

async fn serve_http<S, H, F>(stream: S, handler: H)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = HandlerResult> + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service_fn(handler));
    // Clients that disconnect, send malformed requests or stay idle are normal.
    if let Err(error) = connection.await {
        tracing::trace!(%error, "connection ended");
    }
}
