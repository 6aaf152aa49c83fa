// SPDX-License-Identifier: Apache-2.0
//! Bodies that are too large or too slow, heads that never end, stopping.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Fixture, Response, exchange};

async fn small() -> Fixture {
    Fixture::with(|config| {
        config.body_limits.small = 1000;
        config.body_limits.provision = 3000;
    })
    .await
}

#[tokio::test]
async fn bodies_up_to_the_limit() {
    let fixture = small().await;
    for (method, size, status) in
        [("POST", 1000, 200), ("POST", 1001, 413), ("PUT", 3000, 200), ("PUT", 3001, 413)]
    {
        let response = fixture.send(method, "/v1/probe/x", "", &vec![b'x'; size]).await;
        assert_eq!(response.status, status, "{method} {size}");
        if status == 413 {
            // Flat: not wrapped in error_message.
            let body: serde_json::Value = serde_json::from_str(&response.body).unwrap();
            assert_eq!(body["faultcode"], "Client");
        }
    }
}

#[tokio::test]
async fn bodies_in_chunks_are_counted() {
    let fixture = small().await;
    for (chunks, status) in [(2, 200), (3, 413)] {
        let chunk = format!("190\r\n{}\r\n", "x".repeat(400));
        let request = format!(
            "POST /v1/probe/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{}0\r\n\r\n",
            chunk.repeat(chunks)
        );
        let response =
            Response::parse(&exchange(fixture.server.address(), request.as_bytes()).await);
        assert_eq!(response.status, status, "{chunks} chunks");
    }
}

#[tokio::test]
async fn slow_bodies_and_heads_are_given_up() {
    let fixture = Fixture::with(|config| {
        config.body_timeout = Duration::from_millis(50);
        config.idle_timeout = Duration::from_millis(50);
    })
    .await;
    let unfinished = "POST /v1/probe/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab";
    let answer = exchange(fixture.server.address(), unfinished.as_bytes()).await;
    assert_eq!(Response::parse(&answer).status, 408);
    // The head never ends: the server hangs up without an answer.
    let answer = exchange(fixture.server.address(), b"GET /v1/probe/x HTTP/1.1\r\nHost:").await;
    assert!(answer.is_empty() || Response::parse(&answer).status == 408);
    // An idle connection is closed as well.
    assert!(exchange(fixture.server.address(), b"").await.is_empty());
}

#[tokio::test]
async fn stopping_finishes_requests_in_flight() {
    let fixture = Fixture::start().await;
    let address = fixture.server.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The 100 says that the server is reading this request now.
    let head =
        "POST /v1/probe/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"));

    let stopped = tokio::spawn(fixture.server.stop());
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(b"abcd").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(Response::parse(&answer).status, 200);
    stopped.await.unwrap();
}

/// Many clients send everything before they listen, and take a connection that is reset under them
/// for a server that has gone.
#[tokio::test]
async fn refusals_are_heard_by_those_who_talk_first() {
    const SIZE: usize = 20 * 1024 * 1024;
    let fixture = small().await;
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
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            assert_eq!(Response::parse(&answer).status, status, "{method} {path} {framing}");
        }
    }
}
