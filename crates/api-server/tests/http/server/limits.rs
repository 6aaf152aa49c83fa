// SPDX-License-Identifier: Apache-2.0
//! Body size limits, timeouts and graceful shutdown.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::fixture::{Fixture, RawResponse, exchange};

async fn start_with_small_limits() -> Fixture {
    Fixture::with(|config| {
        config.body_limits.small = 1000;
        config.body_limits.provision = 3000;
    })
    .await
}

#[tokio::test]
async fn rejects_bodies_over_the_limit() {
    let fixture = start_with_small_limits().await;
    for (method, size, status) in
        [("POST", 1000, 200), ("POST", 1001, 413), ("PUT", 3000, 200), ("PUT", 3001, 413)]
    {
        let response = fixture.send(method, "/v1/probe/x", "", &vec![b'x'; size]).await;
        assert_eq!(response.status, status, "{method} {size}");
        if status == 413 {
            // As in Ironic, this error is not wrapped in error_message.
            let body: serde_json::Value = serde_json::from_str(&response.body).unwrap();
            assert_eq!(body["faultcode"], "Client");
        }
    }
}

#[tokio::test]
async fn limits_apply_to_chunked_bodies() {
    let fixture = start_with_small_limits().await;
    for (chunks, status) in [(2, 200), (3, 413)] {
        let chunk = format!("190\r\n{}\r\n", "x".repeat(400));
        let request = format!(
            "POST /v1/probe/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{}0\r\n\r\n",
            chunk.repeat(chunks)
        );
        let response =
            RawResponse::parse(&exchange(fixture.server.address(), request.as_bytes()).await);
        assert_eq!(response.status, status, "{chunks} chunks");
    }
}

#[tokio::test]
async fn slow_requests_time_out() {
    let fixture = Fixture::with(|config| {
        config.body_timeout = Duration::from_millis(50);
        config.idle_timeout = Duration::from_millis(50);
    })
    .await;
    let unfinished = "POST /v1/probe/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab";
    let response = exchange(fixture.server.address(), unfinished.as_bytes()).await;
    assert_eq!(RawResponse::parse(&response).status, 408);
    // The head is incomplete: the server closes the connection without a response.
    let response = exchange(fixture.server.address(), b"GET /v1/probe/x HTTP/1.1\r\nHost:").await;
    assert!(response.is_empty() || RawResponse::parse(&response).status == 408);
    // An idle connection is closed, too.
    assert!(exchange(fixture.server.address(), b"").await.is_empty());
}

#[tokio::test]
async fn shutdown_completes_requests_in_flight() {
    let fixture = Fixture::start().await;
    let address = fixture.server.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    // After the 100 the server is reading this request.
    let head =
        "POST /v1/probe/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"));

    let stopped = tokio::spawn(fixture.server.stop());
    let refuses_connections = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(30), refuses_connections).await;
    refused.expect("the server stops accepting");
    stream.write_all(b"abcd").await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    assert_eq!(RawResponse::parse(&response).status, 200);
    stopped.await.unwrap();
}

/// Many clients send their whole body before they read, and would report a connection reset instead of
/// the error.
#[tokio::test]
async fn clients_that_send_the_whole_body_first_get_the_error() {
    const SIZE: usize = 20 * 1024 * 1024;
    let fixture = start_with_small_limits().await;
    let body = vec![b'x'; SIZE];
    for (method, path, status) in [
        ("POST", "/v1/probe/x", 413),
        ("POST", "/v1/nope", 404),
        ("PATCH", "/v1/probe/x", 405),
        ("PUT", "/v1/young", 406),
    ] {
        for (framing, end) in [
            (format!("Content-Length: {SIZE}\r\n\r\n"), ""),
            (format!("Transfer-Encoding: chunked\r\n\r\n{SIZE:x}\r\n"), "\r\n0\r\n\r\n"),
        ] {
            let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
            let mut stream = TcpStream::connect(fixture.server.address()).await.unwrap();
            for piece in [head.as_bytes(), framing.as_bytes(), &body, end.as_bytes()] {
                stream.write_all(piece).await.unwrap();
            }
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await.unwrap();
            assert_eq!(RawResponse::parse(&response).status, status, "{method} {path} {framing}");
        }
    }
}
