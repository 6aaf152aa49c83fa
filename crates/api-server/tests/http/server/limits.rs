// SPDX-License-Identifier: Apache-2.0
//! Body size limits, timeouts and graceful shutdown.

use std::time::Duration;

use node_model::ProvisionState;
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
        config.head_timeout = Duration::from_millis(50);
        config.idle_timeout = Duration::from_secs(600);
    })
    .await;
    let unfinished = "POST /v1/probe/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab";
    let response = exchange(fixture.server.address(), unfinished.as_bytes()).await;
    assert_eq!(RawResponse::parse(&response).status, 408);
    // The head is incomplete: the server closes the connection without a response.
    let response = exchange(fixture.server.address(), b"GET /v1/probe/x HTTP/1.1\r\nHost:").await;
    assert!(response.is_empty() || RawResponse::parse(&response).status == 408);
    // A connection without a request is closed, too.
    assert!(exchange(fixture.server.address(), b"").await.is_empty());
    let fixture = Fixture::with(|config| config.idle_timeout = Duration::from_millis(50)).await;
    // An idle connection is closed after its first request.
    let response =
        exchange(fixture.server.address(), b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(RawResponse::parse(&response).status, 200);
}

/// Connects from `127.0.0.HOST`: 127.0.0.1 has no limits.
async fn connect_from(fixture: &Fixture, host: u8) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((std::net::Ipv4Addr::new(127, 0, 0, host), 0).into()).unwrap();
    socket.connect(fixture.server.address()).await.unwrap()
}

/// Sends a request and returns the status; 0 if the connection was closed.
async fn status_of(mut stream: TcpStream, request: &[u8]) -> u16 {
    let exchange = async {
        let _ = stream.write_all(request).await;
        let mut line = [0; 12];
        match stream.read_exact(&mut line).await {
            Ok(_) => String::from_utf8_lossy(&line)[9..].parse().unwrap(),
            Err(_) => 0,
        }
    };
    tokio::time::timeout(Duration::from_secs(30), exchange).await.expect("the server responds")
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn half_open_connections_make_room_for_others() {
    let fixture = Fixture::with(|config| {
        config.max_connections = 32;
        config.max_connections_per_address = 8;
    })
    .await;
    let mut attack = Vec::new();
    for number in 0..100 {
        let mut stream = connect_from(&fixture, 2 + number % 4).await;
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await;
        attack.push(stream);
    }
    for host in [9, 1, 2] {
        let stream = connect_from(&fixture, host).await;
        assert_eq!(status_of(stream, HEALTH).await, 200, "127.0.0.{host}");
    }
}

#[tokio::test]
async fn event_streams_are_not_closed_for_others() {
    let fixture = Fixture::with(|config| {
        config.max_connections = 16;
        config.max_connections_per_address = 2;
    })
    .await;
    let mut events = connect_from(&fixture, 2).await;
    let request = b"GET /v1/ferrite/events HTTP/1.1\r\nHost: x\r\n\r\n";
    events.write_all(request).await.unwrap();
    let mut start = [0; 12];
    events.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    let mut attack = Vec::new();
    for _ in 0..50 {
        attack.push(connect_from(&fixture, 2).await);
        attack.push(connect_from(&fixture, 3).await);
    }
    assert_eq!(status_of(connect_from(&fixture, 4).await, HEALTH).await, 200);
    let mut rest = [0; 4096];
    let is_open = async {
        loop {
            match tokio::time::timeout(Duration::from_millis(200), events.read(&mut rest)).await {
                Ok(Ok(0) | Err(_)) => return false,
                Ok(Ok(_)) => {}
                Err(_) => return true,
            }
        }
    };
    assert!(is_open.await, "the event stream was closed");
}

#[tokio::test]
async fn limits_the_rate_of_unauthenticated_requests() {
    let fixture = Fixture::with(|config| config.unauthenticated_requests_per_second = 1).await;
    let lookup = b"GET /v1/lookup?addresses=52:54:00:00:00:01 HTTP/1.1\r\nHost: x\r\n\
                   X-OpenStack-Ironic-API-Version: latest\r\nConnection: close\r\n\r\n";
    let mut statuses = Vec::new();
    for _ in 0..30 {
        statuses.push(status_of(connect_from(&fixture, 2).await, lookup).await);
    }
    assert_eq!(statuses[..10], [404; 10]);
    assert_eq!(*statuses.last().unwrap(), 503, "{statuses:?}");
    assert_eq!(status_of(connect_from(&fixture, 3).await, lookup).await, 404, "another client");
    assert_eq!(status_of(connect_from(&fixture, 2).await, HEALTH).await, 200, "health checks");
    // The pages of a sign-in with OpenID Connect, to which the provider links.
    for (host, path) in [(4, "/ui/oidc/login"), (5, "/ui/oidc/callback?code=c&state=s")] {
        let page = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: cross-site\r\n\
             Sec-Fetch-Mode: navigate\r\nConnection: close\r\n\r\n"
        );
        let mut statuses = Vec::new();
        for _ in 0..30 {
            statuses.push(status_of(connect_from(&fixture, host).await, page.as_bytes()).await);
        }
        assert_eq!(statuses[..10], [404; 10], "{path}: it is not enabled");
        assert_eq!(*statuses.last().unwrap(), 503, "{path}: {statuses:?}");
    }
}

fn inspection_head(length: usize) -> String {
    format!(
        "POST /v1/continue_inspection HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    )
}

#[tokio::test]
async fn large_inspection_data_are_received_only_if_a_node_waits() {
    const LENGTH: usize = 10 << 20;
    let fixture = Fixture::start().await;
    let head = inspection_head(LENGTH);
    assert_eq!(status_of(connect_from(&fixture, 2).await, head.as_bytes()).await, 404);
    fixture.node("waiting", |node| node.provision_state = ProvisionState::InspectWait).await;
    let mut body = head.into_bytes();
    body.resize(body.len() + LENGTH, b' ');
    assert_eq!(status_of(connect_from(&fixture, 2).await, &body).await, 400, "an empty body");
}

#[tokio::test]
async fn unauthenticated_bodies_share_a_budget() {
    const LENGTH: usize = 1 << 20;
    let fixture = Fixture::with(|config| {
        config.body_limits.inspection = LENGTH;
        config.unauthenticated_body_budget = 4 * LENGTH;
        config.unauthenticated_requests_per_second = 0;
    })
    .await;
    // One client may use half of the budget.
    let mut uploads = Vec::new();
    for _ in 0..2 {
        let mut stream = connect_from(&fixture, 2).await;
        stream.write_all(inspection_head(LENGTH).as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; LENGTH - 1]).await.unwrap();
        uploads.push(stream);
    }
    let mut body = inspection_head(LENGTH).into_bytes();
    body.resize(body.len() + LENGTH, b' ');
    let in_use = format!("ferrite_http_unauthenticated_body_bytes {}\n", 2 * LENGTH);
    let is_received = async { while !fixture.get("/metrics", "").await.body.contains(&in_use) {} };
    tokio::time::timeout(Duration::from_secs(30), is_received).await.unwrap();
    assert_eq!(status_of(connect_from(&fixture, 2).await, &body).await, 503);
    assert_eq!(status_of(connect_from(&fixture, 3).await, &body).await, 400, "another client");
    drop(uploads);
    let is_accepted =
        async { while status_of(connect_from(&fixture, 2).await, &body).await != 400 {} };
    tokio::time::timeout(Duration::from_secs(30), is_accepted).await.unwrap();
}

#[tokio::test]
async fn rejects_requests_of_other_sites() {
    let fixture = Fixture::start().await;
    let body = br#"{"driver": "fake-hardware"}"#;
    for (headers, status) in [
        ("Content-Type: application/json\r\n", 201),
        ("Content-Type: application/json; charset=UTF-8\r\n", 201),
        ("", 201),
        ("Content-Type: text/plain\r\n", 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 415),
        ("User-Agent: Mozilla/5.0\r\n", 415),
        ("Content-Type: application/json\r\nOrigin: http://api.example:6385\r\n", 201),
        ("Content-Type: application/json\r\nOrigin: http://evil.example\r\n", 403),
        ("Content-Type: application/json\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("Content-Type: application/json\r\nSec-Fetch-Site: same-origin\r\n", 201),
    ] {
        let response = fixture.send("POST", "/v1/nodes", headers, body).await;
        assert_eq!(response.status, status, "{headers}: {}", response.body);
    }
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    assert_eq!(fixture.get("/ui", link).await.status, 200);
    let lookup = "/v1/lookup?addresses=52:54:00:00:00:01";
    assert_eq!(fixture.get(lookup, link).await.status, 403);
    let rebound = "GET /v1/nodes HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let response = exchange(fixture.server.address(), rebound.as_bytes()).await;
    assert_eq!(RawResponse::parse(&response).status, 421);
    let health = "GET /healthz HTTP/1.1\r\nHost: load-balancer\r\nConnection: close\r\n\r\n";
    let response = exchange(fixture.server.address(), health.as_bytes()).await;
    assert_eq!(RawResponse::parse(&response).status, 200);
}

#[tokio::test]
async fn responses_are_neither_cached_nor_sniffed() {
    let fixture = Fixture::start().await;
    for path in ["/v1/nodes", "/v1/nope", "/healthz", "/"] {
        let response = fixture.get(path, "").await;
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    let page = fixture.get("/ui", "").await;
    assert_eq!(page.header("cache-control"), Some("no-cache"), "files of the web UI are cached");
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
