// SPDX-License-Identifier: Apache-2.0
//! Connections over the loopback interface, with correct and misbehaving clients.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use boot_media::{Content, ContentSegment};
use node_model::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::http::*;
use crate::{BootEvent, BootEventDetail, BootEventRecorder};

/// Files for every kind of behaviour.
struct TestHttpFiles {
    large: Content,
    mixed: Content,
}

struct EventChannel(UnboundedSender<BootEvent>);

/// A server that runs until this is dropped, and its events.
struct TestHttpServer {
    address: SocketAddr,
    events: UnboundedReceiver<BootEvent>,
    task: JoinHandle<()>,
}

/// More than the socket buffers of both ends hold.
const LARGE: u64 = 24 << 20;
static LARGE_FILE: LazyLock<Content> = LazyLock::new(|| file(LARGE));
const SECRET: &str = "e0b1a9c48d7f4f6f9b0a1c2d3e4f5a6b7c8d9e0f";
/// Longer than any operation takes.
const TIMEOUT: Duration = Duration::from_secs(20);

#[async_trait]
impl HttpFiles for TestHttpFiles {
    async fn file(&self, request: &BootHttpRequest<'_>) -> Result<HttpFile, HttpFileRefusal> {
        let content = match &*request.path {
            "/small" => Content::from(b"#!ipxe\n".to_vec()),
            "/empty" => Content::new(),
            "/large" => self.large.clone(),
            "/mixed" => self.mixed.clone(),
            "/never" => std::future::pending().await,
            "/expired" => {
                return Err(HttpFileRefusal::new(HttpRefusalReason::Gone)
                    .with_title("an ISO")
                    .for_machine("node-7"));
            }
            _ => return Err(HttpFileRefusal::new(HttpRefusalReason::NotFound)),
        };
        Ok(HttpFile {
            content,
            media_type: "text/plain",
            etag: None,
            title: request.path[1..].into(),
            machine: Some("node-7".into()),
        })
    }
}

impl BootEventRecorder for EventChannel {
    fn record(&self, event: BootEvent) {
        let _ = self.0.send(event);
    }
}

impl TestHttpServer {
    fn start(limits: BootHttpLimits) -> Self {
        Self::with_files(limits, TestHttpFiles { large: LARGE_FILE.clone(), mixed: mixed() })
    }

    fn with_files(limits: BootHttpLimits, files: impl HttpFiles + 'static) -> Self {
        let (sender, events) = unbounded_channel();
        let services = BootHttpServices {
            files: Arc::new(files),
            events: Arc::new(EventChannel(sender)),
            clock: Arc::new(|| Timestamp(0)),
        };
        let mut settings = BootHttpSettings::new("127.0.0.1:0".parse().unwrap());
        settings.limits = limits;
        let server = BootHttpServer::bind(settings, services).unwrap();
        let address = server.local_address().unwrap();
        Self { address, events, task: tokio::spawn(server.run()) }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a new connection and reads until it is closed.
    async fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        let mut response = Vec::new();
        timeout(TIMEOUT, stream.read_to_end(&mut response)).await.unwrap().unwrap();
        response
    }

    async fn event(&mut self) -> BootEvent {
        timeout(TIMEOUT, self.events.recv()).await.unwrap().unwrap()
    }
}

impl Drop for TestHttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns an unnamed file whose bytes depend on their offset.
fn file(length: u64) -> Content {
    let file = tempfile::tempfile().unwrap();
    let mut writer = std::io::BufWriter::new(&file);
    for at in 0..length / 8 {
        writer.write_all(&at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    let mut content = Content::new();
    content.push(ContentSegment::File { file: Arc::new(file), offset: 0, length });
    content
}

/// Returns a content with every kind of segment, at unaligned offsets.
fn mixed() -> Content {
    let mut content = Content::from(b"head".to_vec());
    content.append(&file(1 << 20).slice(5..300_005));
    content.push(ContentSegment::Zeros(200_000));
    content.push(ContentSegment::Bytes(vec![7; 100_000].into()));
    content.append(&file(64).slice(1..2));
    content
}

fn read_all(content: &Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).unwrap();
    bytes
}

/// Splits concatenated responses into status lines and bodies.
fn split(mut responses: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    while !responses.is_empty() {
        let end = responses.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let head = std::str::from_utf8(&responses[..end]).unwrap();
        let length = head.split("Content-Length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        let body = responses[end..end + length].to_vec();
        found.push((head.lines().next().unwrap().to_owned(), body));
        responses = &responses[end + length..];
    }
    found
}

#[tokio::test]
async fn pipelined_requests_get_responses_in_order() {
    let mut server = TestHttpServer::start(BootHttpLimits::default());
    let mut request = Vec::new();
    for path in ["/small", "/mixed", "/nothing", "/empty", "/small"] {
        write!(request, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    write!(request, "GET /expired HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let responses = split(&server.exchange(&request).await);
    let small = b"#!ipxe\n".to_vec();
    assert_eq!(responses[0], ("HTTP/1.1 200 OK".to_owned(), small.clone()));
    assert!(responses[1].1 == read_all(&mixed()), "every kind of segment");
    assert_eq!(responses[2].0, "HTTP/1.1 404 Not Found");
    assert_eq!(responses[3], ("HTTP/1.1 200 OK".to_owned(), Vec::new()));
    assert_eq!(responses[4].1, small);
    assert_eq!(responses[5].0, "HTTP/1.1 410 Gone");
    assert_eq!(responses.len(), 6);

    let length = mixed().length();
    for (title, status, sent, subject) in [
        ("small", 200, 7, true),
        ("mixed", 200, length, true),
        ("/nothing", 404, 22, false),
        ("empty", 200, 0, true),
        ("small", 200, 7, true),
        ("an ISO", 410, 21, true),
    ] {
        let event = server.event().await;
        assert_eq!(event.machine.as_deref(), subject.then_some("node-7"), "{title}");
        let BootEventDetail::Http {
            title: event_title,
            status: code,
            bytes_sent: count,
            is_complete,
            ..
        } = event.detail
        else {
            panic!("{event:?}");
        };
        assert_eq!((&*event_title, code, count, is_complete), (title, status, sent, true));
    }
}

#[tokio::test]
async fn serves_ranges_over_every_kind_of_segment() {
    let server = TestHttpServer::start(BootHttpLimits::default());
    let plain = read_all(&mixed());
    for (first, last) in
        [(0, 3), (2, 6), (300_000, 500_100), (500_003, 600_004), (600_004, 600_004)]
    {
        let request = format!("GET /mixed HTTP/1.0\r\nRange: bytes={first}-{last}\r\n\r\n");
        let (status, body) = split(&server.exchange(request.as_bytes()).await).remove(0);
        assert_eq!(status, "HTTP/1.1 206 Partial Content");
        assert!(body == plain[first..=last], "{first}-{last}");
    }
}

/// The response must arrive although the request's body is not read.
#[tokio::test]
async fn a_request_with_a_body_gets_a_response() {
    let mut server = TestHttpServer::start(BootHttpLimits::default());
    let mut request = b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n".to_vec();
    request.resize(request.len() + 30_000, b'x');
    let response = server.exchange(&request).await;
    assert!(response.starts_with(b"HTTP/1.1 405 Method Not Allowed\r\n"));
    let BootEventDetail::Http { title, status, .. } = server.event().await.detail else { panic!() };
    assert_eq!((&*title, status), ("refused: only GET and HEAD are supported", 405));
}

#[tokio::test]
async fn events_contain_no_secrets_and_no_long_names() {
    let mut server = TestHttpServer::start(BootHttpLimits::default());
    let agent = "x".repeat(500);
    let request = format!("GET /media/{SECRET}/boot.iso HTTP/1.0\r\nUser-Agent: {agent}\r\n\r\n");
    server.exchange(request.as_bytes()).await;
    let event = server.event().await;
    assert!(!format!("{event:?}").contains(SECRET));
    let BootEventDetail::Http { title, user_agent, .. } = event.detail else { panic!() };
    assert_eq!((&*title, user_agent.len()), ("/media/…/boot.iso", 64));
}

#[tokio::test]
async fn a_client_that_stops_reading_is_disconnected() {
    let limits =
        BootHttpLimits { stall_timeout: Duration::from_millis(300), ..BootHttpLimits::default() };
    let mut server = TestHttpServer::start(limits);
    let mut stream = server.connect().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let BootEventDetail::Http { status, bytes_sent, is_complete, .. } = server.event().await.detail
    else {
        panic!()
    };
    assert!(status == 200 && bytes_sent > 0 && bytes_sent < LARGE && !is_complete, "{bytes_sent}");
}

#[tokio::test]
async fn a_slow_client_gets_everything() {
    let mut server = TestHttpServer::start(BootHttpLimits::default());
    let mut stream = server.connect().await;
    socket2::SockRef::from(&stream).set_recv_buffer_size(16 << 10).unwrap();
    stream.write_all(b"GET /large HTTP/1.0\r\nRange: bytes=-5000000\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    let mut buffer = vec![0; 3000];
    loop {
        let count = timeout(TIMEOUT, stream.read(&mut buffer)).await.unwrap().unwrap();
        if count == 0 {
            break;
        }
        response.extend_from_slice(&buffer[..count]);
        tokio::task::yield_now().await;
    }
    assert!(split(&response)[0].1 == read_all(&LARGE_FILE.slice(LARGE - 5_000_000..LARGE)));
    let BootEventDetail::Http { bytes_sent, is_complete, .. } = server.event().await.detail else {
        panic!()
    };
    assert_eq!((bytes_sent, is_complete), (5_000_000, true));
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_affect_others() {
    let mut server = TestHttpServer::start(BootHttpLimits::default());
    let mut stream = server.connect().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 1000]).await.unwrap();
    drop(stream);
    let BootEventDetail::Http { bytes_sent, is_complete, .. } = server.event().await.detail else {
        panic!()
    };
    assert!(bytes_sent < LARGE && !is_complete, "{bytes_sent}");
    assert!(server.exchange(b"GET /small HTTP/1.0\r\n\r\n").await.ends_with(b"#!ipxe\n"));
}

/// Bytes that are not in the page cache are loaded first.
#[tokio::test]
async fn serves_a_file_that_is_not_cached() {
    let named = tempfile::NamedTempFile::new().unwrap();
    let bytes = read_all(&file(8 << 20));
    named.as_file().write_all_at(&bytes, 0).unwrap();
    named.as_file().sync_all().unwrap();
    rustix::fs::fadvise(named.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let directory = ServedDirectory::open(named.path().parent().unwrap()).unwrap();
    let server = TestHttpServer::with_files(BootHttpLimits::default(), directory);
    let name = named.path().file_name().unwrap().to_str().unwrap();
    let response = server.exchange(format!("GET /{name} HTTP/1.0\r\n\r\n").as_bytes()).await;
    assert!(split(&response)[0].1 == bytes);
}

#[tokio::test]
async fn a_truncated_file_closes_the_connection() {
    let named = tempfile::NamedTempFile::new().unwrap();
    named.as_file().set_len(1 << 20).unwrap();
    let mut content = Content::open(named.path()).unwrap();
    named.as_file().set_len(1000).unwrap();
    content.push(ContentSegment::Bytes(b"never sent".to_vec().into()));
    let files = TestHttpFiles { large: content, mixed: Content::new() };
    let mut server = TestHttpServer::with_files(BootHttpLimits::default(), files);
    let response = server.exchange(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(!response.ends_with(b"never sent"));
    let BootEventDetail::Http { bytes_sent, is_complete, .. } = server.event().await.detail else {
        panic!()
    };
    assert_eq!((bytes_sent, is_complete), (1000, false));
}

#[tokio::test]
async fn a_slow_lookup_gets_service_unavailable() {
    let limits =
        BootHttpLimits { lookup_timeout: Duration::from_millis(50), ..BootHttpLimits::default() };
    let server = TestHttpServer::start(limits);
    let response = server.exchange(b"GET /never HTTP/1.0\r\n\r\n").await;
    assert!(response.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&response));
}

#[tokio::test]
async fn a_head_that_arrives_byte_by_byte_has_one_deadline() {
    let limits =
        BootHttpLimits { head_timeout: Duration::from_millis(300), ..BootHttpLimits::default() };
    let server = TestHttpServer::start(limits);
    let (mut reader, mut writer) = server.connect().await.into_split();
    let trickle = tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(10));
        while writer.write_all(b"G").await.is_ok() {
            interval.tick().await;
        }
    });
    let mut response = Vec::new();
    // The close may be an error, because the client is still sending.
    let _ = timeout(TIMEOUT, reader.read_to_end(&mut response)).await.unwrap();
    assert_eq!(response, b"");
    trickle.abort();
}

#[tokio::test]
async fn a_thousand_idle_connections_do_not_affect_others() {
    // The process has both ends, and many systems allow 1024 files by default.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: files.maximum, ..files };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let limits = BootHttpLimits {
        max_connections: 1001,
        max_connections_per_client: 2000,
        ..BootHttpLimits::default()
    };
    let mut server = TestHttpServer::start(limits);
    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(server.connect().await);
    }
    assert!(server.exchange(b"GET /small HTTP/1.0\r\n\r\n").await.ends_with(b"#!ipxe\n"));
    assert!(matches!(server.event().await.detail, BootEventDetail::Http { status: 200, .. }));
    // Idle connections still work.
    let stream = idle.last_mut().unwrap();
    stream.write_all(b"GET /small HTTP/1.0\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut response)).await.unwrap().unwrap();
    assert!(response.ends_with(b"#!ipxe\n"));
}

/// Connects from another address of this host: 127.0.0.1 has no limit.
async fn connect_from(server: &TestHttpServer, host: u8) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((std::net::Ipv4Addr::new(127, 0, 0, host), 0).into()).unwrap();
    socket.connect(server.address).await.unwrap()
}

async fn get_small(stream: &mut TcpStream) -> Vec<u8> {
    let mut response = Vec::new();
    let _ = stream.write_all(b"GET /small HTTP/1.0\r\n\r\n").await;
    let _ = timeout(TIMEOUT, stream.read_to_end(&mut response)).await.unwrap();
    response
}

#[tokio::test]
async fn limits_connections_per_client() {
    let limits = BootHttpLimits { max_connections_per_client: 2, ..BootHttpLimits::default() };
    let mut server = TestHttpServer::start(limits);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(connect_from(&server, 2).await);
    }
    // The connection that waited longest makes room for the third.
    assert_eq!(get_small(&mut waiting[0]).await, b"");
    assert!(get_small(&mut waiting[1]).await.ends_with(b"#!ipxe\n"));
    drop(server.event().await);
    let limits = BootHttpLimits { max_connections_per_client: 0, ..limits };
    let mut server = TestHttpServer::start(limits);
    let mut refused = connect_from(&server, 2).await;
    let mut response = Vec::new();
    let _ = timeout(TIMEOUT, refused.read_to_end(&mut response)).await.unwrap();
    assert!(response.starts_with(b"HTTP/1.1 503 "));
    let BootEventDetail::Http { title, status, .. } = server.event().await.detail else { panic!() };
    assert_eq!((&*title, status), ("refused: too many connections", 503));
    let mut known = connect_from(&server, 1).await;
    assert!(get_small(&mut known).await.ends_with(b"#!ipxe\n"), "this host is known");
}

#[tokio::test]
async fn half_open_connections_of_one_client_leave_room_for_others() {
    let limits = BootHttpLimits {
        max_connections: 64,
        max_connections_per_client: 16,
        ..BootHttpLimits::default()
    };
    let server = TestHttpServer::start(limits);
    let mut attack = Vec::new();
    for _ in 0..200 {
        let mut stream = connect_from(&server, 2).await;
        let _ = stream.write_all(b"GET /small HTTP/1.0\r\n").await;
        attack.push(stream);
    }
    for host in [2, 3, 1] {
        let mut stream = connect_from(&server, host).await;
        assert!(get_small(&mut stream).await.ends_with(b"#!ipxe\n"), "127.0.0.{host}");
    }
}
