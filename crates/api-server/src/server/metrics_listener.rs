// SPDX-License-Identifier: Apache-2.0
//! A separate port for `/metrics`, without TLS and authentication, and without the API.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::health::OPENMETRICS;
use super::metrics::Metrics;
use super::response::ResponseBody;

/// Maximum number of connections. Further ones wait.
const MAX_CONNECTIONS: usize = 32;
/// Time within which a request head has to arrive, also on an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a request head in bytes.
const MAX_HEAD_SIZE: usize = 16 * 1024;
const BACKLOG: u32 = 128;
/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server for metrics that is bound and does not serve yet.
pub struct MetricsServer {
    listener: TcpListener,
    metrics: Metrics,
}

/// A running server for metrics. Dropping it stops the server.
#[derive(Debug)]
pub struct MetricsServerHandle {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl MetricsServer {
    /// Binds an address.
    ///
    /// # Errors
    /// Fails if the address is in use or not local.
    pub fn bind(address: SocketAddr, metrics: Metrics) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self { listener: socket.listen(BACKLOG)?, metrics })
    }

    /// Starts serving.
    ///
    /// # Errors
    /// Fails if the bound address cannot be read.
    pub fn spawn(self) -> io::Result<MetricsServerHandle> {
        let address = self.listener.local_addr()?;
        Ok(MetricsServerHandle { address, task: tokio::spawn(self.run()) })
    }

    async fn run(self) {
        let Self { listener, metrics } = self;
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_SIZE);
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        // The semaphore is never closed.
        while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?ACCEPT_PAUSE, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (builder, metrics) = (builder.clone(), metrics.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let response = respond(&request, &metrics);
                    async move { Ok::<_, Infallible>(response) }
                });
                if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                    tracing::debug!(%error, "metrics connection failed");
                }
                drop(permit);
            });
        }
    }
}

impl MetricsServerHandle {
    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn respond(request: &Request<Incoming>, metrics: &Metrics) -> Response<ResponseBody> {
    let empty = |status: StatusCode| {
        let mut response = Response::new(ResponseBody::Complete(Bytes::new()));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return empty(StatusCode::NOT_FOUND);
    }
    // hyper sends no body for HEAD.
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match metrics.render() {
        Ok(text) => {
            let mut response = Response::new(ResponseBody::Complete(text.into()));
            let content_type = HeaderValue::from_static(OPENMETRICS);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn request(address: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("{line} HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn only_metrics_are_served() {
        let server = MetricsServer::bind(([127, 0, 0, 1], 0).into(), Metrics::new()).unwrap();
        let server = server.spawn().unwrap();
        let address = server.address();
        let found = request(address, "GET /metrics").await;
        assert!(found.starts_with("HTTP/1.1 200 "), "{found}");
        assert!(found.contains("application/openmetrics-text"), "{found}");
        assert!(found.ends_with("# EOF\n"), "{found}");
        let head = request(address, "HEAD /metrics").await;
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
        for (line, status) in [("GET /v1", 404), ("GET /metrics/", 404), ("POST /metrics", 405)] {
            let response = request(address, line).await;
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {response}");
        }
        drop(server);
        // The port is free again as soon as the task has ended.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
