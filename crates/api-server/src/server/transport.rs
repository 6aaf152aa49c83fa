// SPDX-License-Identifier: Apache-2.0
//! The transport of a connection: plain TCP, TLS, or the Unix socket of this host.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::Watcher;
use ironic_wire::WireError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::client_certificate::ClientCertificate;
use super::client_connection::ClientConnection;
use super::dispatch::dispatch;
use super::response::{ApiResponse, ResponseBody};
use crate::app::App;

/// Timeout of a TLS handshake, including the wait for its first byte.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// How a request arrived. Every request has it as an extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ApiTransport {
    /// TCP without TLS.
    Plain,
    /// TLS.
    Tls,
    /// The Unix socket: a process of root or of our own user on this host.
    UnixSocket,
}

/// The result of a handshake.
pub(super) enum TlsHandshake {
    /// The client uses TLS.
    Done(Box<TlsStream<TcpStream>>),
    /// The client sends plain HTTP to the TLS port.
    PlainHttp(TcpStream),
}

/// Performs the TLS handshake of a new connection.
///
/// # Errors
/// If the client ends the connection, is too slow, or has no version or cipher in common with us.
pub(super) async fn tls_handshake(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
) -> io::Result<TlsHandshake> {
    let handshake = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] == TLS_HANDSHAKE {
            let stream = acceptor.accept(stream).await?;
            return Ok(TlsHandshake::Done(Box::new(stream)));
        }
        Ok(TlsHandshake::PlainHttp(stream))
    };
    tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await?
}

/// Serves the requests of a connection until it ends. `client` is `None` for the Unix socket.
pub(super) async fn serve_connection<S>(
    app: Arc<App>,
    builder: &http1::Builder,
    watcher: Watcher,
    stream: S,
    transport: ApiTransport,
    client: Option<Arc<ClientConnection>>,
    certificate: Option<Arc<ClientCertificate>>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(transport);
        if let Some(client) = &client {
            request.extensions_mut().insert(Arc::clone(client));
        }
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(Arc::clone(certificate));
        }
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(dispatch(app, request).await) }
    });
    let connection = watcher.watch(builder.serve_connection(TokioIo::new(stream), service));
    // Broken or idle connections are normal: log at trace level only.
    if let Err(error) = connection.await {
        tracing::trace!(%error, "connection ended");
    }
}

/// Responds to one plain HTTP request on the TLS port, and closes the connection.
pub(super) async fn refuse_plain_http(
    builder: &http1::Builder,
    watcher: Watcher,
    stream: TcpStream,
) {
    let service = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(https_required(&request))
    });
    let mut builder = builder.clone();
    let connection = builder.keep_alive(false).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::trace!(%error, "connection ended");
    }
}

/// Redirects browsers to HTTPS. Other clients get an error with the right URL: a redirect would hide
/// that they send their credentials in clear text.
fn https_required<B>(request: &Request<B>) -> Response<ResponseBody> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let is_browser = matches!(*request.method(), Method::GET | Method::HEAD)
        && request
            .headers()
            .get(ACCEPT)
            .and_then(|accept| accept.to_str().ok())
            .is_some_and(|accept| accept.contains("text/html"));
    let location =
        host.and_then(|host| HeaderValue::try_from(format!("https://{host}{path}")).ok());
    let response = match location {
        Some(location) if is_browser => {
            ApiResponse::empty(StatusCode::TEMPORARY_REDIRECT).with_header(LOCATION, location)
        }
        Some(_) | None => {
            let host = host.unwrap_or("HOST:PORT");
            let text = format!("This port uses TLS; use https://{host} instead of http://{host}.");
            ApiResponse::json(StatusCode::BAD_REQUEST, WireError::invalid(text).body())
        }
    };
    let ApiResponse { status, content_type, headers, body } = response;
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    response.headers_mut().extend(headers);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_on_the_tls_port_is_refused_with_the_right_url() {
        let request = |method: &str, accept: &str| {
            Request::builder()
                .method(method)
                .uri("/ui?x=1")
                .header(HOST, "api.example:6385")
                .header(ACCEPT, accept)
                .body(())
                .unwrap()
        };
        let response = https_required(&request("GET", "text/html,*/*"));
        assert_eq!(response.status(), 307);
        assert_eq!(response.headers()[LOCATION], "https://api.example:6385/ui?x=1");
        for (method, accept) in [("POST", "text/html"), ("GET", "application/json")] {
            let response = https_required(&request(method, accept));
            assert_eq!(response.status(), 400);
            assert!(response.headers().get(LOCATION).is_none());
        }
    }
}
