// SPDX-License-Identifier: Apache-2.0
//! Sockets: accepting connections and serving HTTP/1.1 on them, with or without TLS.

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

/// Few call a BMC at a time.
const BACKLOG: u32 = 128;
/// All agents of a fleet may be called at once.
const BACKLOG_OF_MANY: u32 = 4096;
/// BMCs close connections on which nobody says anything.
const IDLE: Duration = Duration::from_secs(60);
/// A handshake that takes longer is none.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Waited after an error that will not go away by itself at once, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The connection is closed instead of an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed without an answer")]
pub(crate) struct Closed;

/// What a request comes to.
pub(crate) type Outcome = Result<Response<Full<Bytes>>, Closed>;

/// Binds an address; port 0 is any.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address, BACKLOG)
}

/// The same for a place that a whole fleet is called at.
pub(crate) fn bind_for_many(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address, BACKLOG_OF_MANY)
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// Accepts connections for ever; each ends by itself, or when `stopped` says so.
pub(crate) async fn run<H, F>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    stopped: watch::Receiver<bool>,
    handler: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (tls, mut stopped, handler) = (tls.clone(), stopped.clone(), handler.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = converse(stream, tls, handler) => {}
                _ = stopped.wait_for(|stop| *stop) => {}
            }
        });
    }
}

async fn converse<H, F>(stream: TcpStream, tls: Option<TlsAcceptor>, handler: H)
where
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    // Answers are small: waiting to fill a packet only costs time.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    match tls {
        None => serve(stream, handler).await,
        Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
            Ok(Ok(stream)) => serve(stream, handler).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS handshake"),
            Err(_) => tracing::debug!("the TLS handshake takes too long"),
        },
    }
}

async fn serve<S, H, F>(stream: S, handler: H)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service_fn(handler));
    // Clients go away, send nonsense or fall silent: no news to anybody.
    if let Err(error) = connection.await {
        tracing::trace!(%error, "connection ended");
    }
}
