// SPDX-License-Identifier: Apache-2.0
//! A small HTTP/1.1 server with limits, for probes, metrics and webhooks.
//!
//! The API server of the product is not used: it depends on the store. Limits of size, time and
//! connections apply before a request reaches its handler.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use connection_limits::{ConnectionLimits, ConnectionTable};
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the head of a request, and for the time between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);
/// Time limit for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for open requests when the process ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failed accept, such as with too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The API server opens few connections, one per replica of it.
const LIMITS: ConnectionLimits = ConnectionLimits { total: 256, reserved: 16, per_client: 64 };

/// A request whose body was received completely.
#[derive(Debug)]
pub(crate) struct BufferedRequest {
    /// The method.
    pub(crate) method: Method,
    /// The path without the query.
    pub(crate) path: String,
    /// The body.
    pub(crate) body: Bytes,
}

/// A response with a complete body.
pub(crate) type FullResponse = Response<Full<Bytes>>;

/// Handles the requests of a listener.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    /// Maximum size of a body in bytes.
    const MAX_BODY: usize;

    /// Returns the response to a request.
    fn handle(self: Arc<Self>, request: BufferedRequest) -> BoxFuture<'static, FullResponse>;
}

/// Binds a listener. If the host has no IPv6, `[::]` is `0.0.0.0`.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() => {
            debug!(%address, %error, "no IPv6, listening on IPv4");
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Serves until `shutdown` becomes true, then ends the open requests.
pub(crate) async fn serve<H: RequestHandler>(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<H>,
    mut shutdown: watch::Receiver<bool>,
) {
    let connections = ConnectionTable::new(LIMITS);
    let acceptor = tls.map(TlsAcceptor::from);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|is_stopping| *is_stopping) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, retry_in = ?ACCEPT_RETRY_DELAY, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let Some(slot) = connections.admit(peer.ip(), Instant::now()) else {
            debug!(client = %peer, "connection limit reached");
            continue;
        };
        let (acceptor, handler, watcher) =
            (acceptor.clone(), Arc::clone(&handler), graceful.watcher());
        tokio::spawn(async move {
            let serving = async {
                let Some(stream) = handshake(stream, acceptor).await else { return };
                let service = service_fn(|request| {
                    // A connection that processes a request is not closed to make room.
                    let is_open = slot.start_work();
                    let response = respond(Arc::clone(&handler), request);
                    let slot = &slot;
                    async move {
                        if !is_open {
                            return Err(ConnectionDropped);
                        }
                        let response = response.await;
                        slot.finish_work();
                        Ok(response)
                    }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_headers(64)
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = watcher.watch(connection).await {
                    debug!(client = %peer, %error, "connection ended");
                }
            };
            tokio::select! {
                () = serving => {}
                () = slot.closing() => {}
            }
        });
    }
    if timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await.is_err() {
        warn!(limit = ?SHUTDOWN_TIMEOUT, "requests did not end in time");
    }
}

/// The connection was closed to make room for another.
#[derive(Debug, thiserror::Error)]
#[error("connection closed to make room")]
struct ConnectionDropped;

/// A connection with or without TLS.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Performs the TLS handshake, if any; `None` if it fails.
async fn handshake(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
) -> Option<Box<dyn ByteStream>> {
    // Responses are small, so Nagle's algorithm would only delay them.
    stream.set_nodelay(true).ok()?;
    let Some(acceptor) = acceptor else { return Some(Box::new(stream)) };
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err(error)) => {
            debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            debug!(limit = ?HANDSHAKE_TIMEOUT, "TLS handshake timed out");
            None
        }
    }
}

/// Receives the body and calls the handler.
async fn respond<H: RequestHandler>(handler: Arc<H>, request: Request<Incoming>) -> FullResponse {
    let (parts, body) = request.into_parts();
    let declared = parts.headers.get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > H::MAX_BODY) {
        return too_large(H::MAX_BODY);
    }
    let body = match timeout(BODY_TIMEOUT, Limited::new(body, H::MAX_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
            return too_large(H::MAX_BODY);
        }
        Ok(Err(error)) => {
            debug!(%error, "receiving a request failed");
            return text(StatusCode::BAD_REQUEST, "the body of the request is incomplete\n");
        }
        Err(_) => {
            return text(StatusCode::REQUEST_TIMEOUT, "the body of the request took too long\n");
        }
    };
    let path = parts.uri.path().to_owned();
    handler.handle(BufferedRequest { method: parts.method, path, body }).await
}

fn too_large(limit: usize) -> FullResponse {
    let mut response = text(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body of the request is larger than {limit} bytes\n"),
    );
    // The rest of the body is not read.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A response with text.
pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> FullResponse {
    with_type(status, "text/plain; charset=utf-8", body)
}

/// A response with a content type.
pub(crate) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> FullResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The response to another method than GET and HEAD.
pub(crate) fn method_not_allowed(allowed: &'static str) -> FullResponse {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("use {allowed}\n"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}
