// SPDX-License-Identifier: Apache-2.0
//! Connections over the loopback interface, with clients that behave well and badly.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use boot_media::{Content, Segment};
use node_model::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::http::*;
use crate::{Sighting, Sightings, What};

/// Pages for every kind of behaviour.
struct Book {
    large: Content,
    mixed: Content,
}

struct Teller(UnboundedSender<Sighting>);

/// A server that runs while this lives, and what it told.
struct Running {
    address: SocketAddr,
    told: UnboundedReceiver<Sighting>,
    task: JoinHandle<()>,
}

/// More than the buffers of both ends hold while nobody reads.
const LARGE: u64 = 24 << 20;
static LARGE_FILE: LazyLock<Content> = LazyLock::new(|| file(LARGE));
const SECRET: &str = "e0b1a9c48d7f4f6f9b0a1c2d3e4f5a6b7c8d9e0f";
/// Longer than anything takes; what is waited for comes by itself.
const PATIENCE: Duration = Duration::from_secs(20);

#[async_trait]
impl Pages for Book {
    async fn page(&self, request: &Request<'_>) -> Result<Page, Refusal> {
        let content = match &*request.path {
            "/small" => Content::from(b"#!ipxe\n".to_vec()),
            "/empty" => Content::new(),
            "/large" => self.large.clone(),
            "/mixed" => self.mixed.clone(),
            "/never" => std::future::pending().await,
            "/expired" => return Err(Refusal::new(Reason::Gone).titled("an ISO").about("node-7")),
            _ => return Err(Refusal::new(Reason::NotFound)),
        };
        Ok(Page {
            content,
            media_type: "text/plain",
            etag: None,
            title: request.path[1..].into(),
            subject: Some("node-7".into()),
        })
    }
}

impl Sightings for Teller {
    fn seen(&self, sighting: Sighting) {
        let _ = self.0.send(sighting);
    }
}

impl Running {
    fn start(limits: Limits) -> Self {
        Self::with_pages(limits, Book { large: LARGE_FILE.clone(), mixed: mixed() })
    }

    fn with_pages(limits: Limits, pages: impl Pages + 'static) -> Self {
        let (sender, told) = unbounded_channel();
        let services = Services {
            pages: Arc::new(pages),
            sightings: Arc::new(Teller(sender)),
            clock: || Timestamp(0),
        };
        let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
        settings.limits = limits;
        let server = Server::bind(settings, services).unwrap();
        let address = server.local_address().unwrap();
        Self { address, told, task: tokio::spawn(server.run()) }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a connection of their own, and reads until its end.
    async fn say(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        answer
    }

    async fn told(&mut self) -> Sighting {
        timeout(PATIENCE, self.told.recv()).await.unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A file without a name whose bytes depend on their place.
fn file(length: u64) -> Content {
    let file = tempfile::tempfile().unwrap();
    let mut writer = std::io::BufWriter::new(&file);
    for at in 0..length / 8 {
        writer.write_all(&at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    let mut content = Content::new();
    content.push(Segment::File { file: Arc::new(file), offset: 0, length });
    content
}

/// Every kind of segment, at odd places.
fn mixed() -> Content {
    let mut content = Content::from(b"head".to_vec());
    content.append(&file(1 << 20).slice(5..300_005));
    content.push(Segment::Zeros(200_000));
    content.push(Segment::Bytes(vec![7; 100_000].into()));
    content.append(&file(64).slice(1..2));
    content
}

fn read_all(content: &Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).unwrap();
    bytes
}

/// The status lines and the bodies of answers that stand behind each other.
fn split(mut answers: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    while !answers.is_empty() {
        let end = answers.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let head = std::str::from_utf8(&answers[..end]).unwrap();
        let length = head.split("Content-Length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        let body = answers[end..end + length].to_vec();
        found.push((head.lines().next().unwrap().to_owned(), body));
        answers = &answers[end + length..];
    }
    found
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let mut running = Running::start(Limits::default());
    let mut said = Vec::new();
    for path in ["/small", "/mixed", "/nothing", "/empty", "/small"] {
        write!(said, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    write!(said, "GET /expired HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let answers = split(&running.say(&said).await);
    let small = b"#!ipxe\n".to_vec();
    assert_eq!(answers[0], ("HTTP/1.1 200 OK".to_owned(), small.clone()));
    assert!(answers[1].1 == read_all(&mixed()), "every kind of segment");
    assert_eq!(answers[2].0, "HTTP/1.1 404 Not Found");
    assert_eq!(answers[3], ("HTTP/1.1 200 OK".to_owned(), Vec::new()));
    assert_eq!(answers[4].1, small);
    assert_eq!(answers[5].0, "HTTP/1.1 410 Gone");
    assert_eq!(answers.len(), 6);

    let length = mixed().length();
    for (title, status, sent, subject) in [
        ("small", 200, 7, true),
        ("mixed", 200, length, true),
        ("/nothing", 404, 22, false),
        ("empty", 200, 0, true),
        ("small", 200, 7, true),
        ("an ISO", 410, 22, true),
    ] {
        let sighting = running.told().await;
        assert_eq!(sighting.subject.as_deref(), subject.then_some("node-7"), "{title}");
        let What::Http { title: told, status: code, sent: count, whole, .. } = sighting.what else {
            panic!("{sighting:?}");
        };
        assert_eq!((&*told, code, count, whole), (title, status, sent, true));
    }
}

#[tokio::test]
async fn a_range_over_every_kind_of_segment() {
    let running = Running::start(Limits::default());
    let plain = read_all(&mixed());
    for (first, last) in
        [(0, 3), (2, 6), (300_000, 500_100), (500_003, 600_004), (600_004, 600_004)]
    {
        let said = format!("GET /mixed HTTP/1.0\r\nRange: bytes={first}-{last}\r\n\r\n");
        let (status, body) = split(&running.say(said.as_bytes()).await).remove(0);
        assert_eq!(status, "HTTP/1.1 206 Partial Content");
        assert!(body == plain[first..=last], "{first}-{last}");
    }
}

/// The answer must arrive although the client's body was never read.
#[tokio::test]
async fn a_body_is_refused_politely() {
    let mut running = Running::start(Limits::default());
    let mut said = b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n".to_vec();
    said.resize(said.len() + 30_000, b'x');
    let answer = running.say(&said).await;
    assert!(answer.starts_with(b"HTTP/1.1 405 Method Not Allowed\r\n"));
    let What::Http { title, status, .. } = running.told().await.what else { panic!() };
    assert_eq!((&*title, status), ("refused: only GET and HEAD are served here", 405));
}

#[tokio::test]
async fn secrets_and_long_names_are_not_told() {
    let mut running = Running::start(Limits::default());
    let agent = "x".repeat(500);
    let said = format!("GET /media/{SECRET}/boot.iso HTTP/1.0\r\nUser-Agent: {agent}\r\n\r\n");
    running.say(said.as_bytes()).await;
    let sighting = running.told().await;
    assert!(!format!("{sighting:?}").contains(SECRET));
    let What::Http { title, agent, .. } = sighting.what else { panic!() };
    assert_eq!((&*title, agent.len()), ("/media/…/boot.iso", 64));
}

#[tokio::test]
async fn a_client_that_stops_reading_is_given_up() {
    let limits = Limits { stall: Duration::from_millis(300), ..Limits::default() };
    let mut running = Running::start(limits);
    let mut stream = running.connect().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let What::Http { status, sent, whole, .. } = running.told().await.what else { panic!() };
    assert!(status == 200 && sent > 0 && sent < LARGE && !whole, "{sent} {whole}");
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_everything() {
    let mut running = Running::start(Limits::default());
    let mut stream = running.connect().await;
    socket2::SockRef::from(&stream).set_recv_buffer_size(16 << 10).unwrap();
    stream.write_all(b"GET /large HTTP/1.0\r\nRange: bytes=-5000000\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let mut buffer = vec![0; 3000];
    loop {
        let count = timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap().unwrap();
        if count == 0 {
            break;
        }
        answer.extend_from_slice(&buffer[..count]);
        tokio::task::yield_now().await;
    }
    assert!(split(&answer)[0].1 == read_all(&LARGE_FILE.slice(LARGE - 5_000_000..LARGE)));
    let What::Http { sent, whole, .. } = running.told().await.what else { panic!() };
    assert_eq!((sent, whole), (5_000_000, true));
}

#[tokio::test]
async fn a_client_that_vanishes_is_noticed_and_harms_nobody() {
    let mut running = Running::start(Limits::default());
    let mut stream = running.connect().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 1000]).await.unwrap();
    drop(stream);
    let What::Http { sent, whole, .. } = running.told().await.what else { panic!() };
    assert!(sent < LARGE && !whole, "{sent}");
    assert!(running.say(b"GET /small HTTP/1.0\r\n\r\n").await.ends_with(b"#!ipxe\n"));
}

/// Bytes that only a disk has are read into memory first, and are the same.
#[tokio::test]
async fn a_file_that_is_not_in_memory() {
    let named = tempfile::NamedTempFile::new().unwrap();
    let bytes = read_all(&file(8 << 20));
    named.as_file().write_all_at(&bytes, 0).unwrap();
    named.as_file().sync_all().unwrap();
    rustix::fs::fadvise(named.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let folder = Folder::open(named.path().parent().unwrap()).unwrap();
    let running = Running::with_pages(Limits::default(), folder);
    let name = named.path().file_name().unwrap().to_str().unwrap();
    let answer = running.say(format!("GET /{name} HTTP/1.0\r\n\r\n").as_bytes()).await;
    assert!(split(&answer)[0].1 == bytes);
}

#[tokio::test]
async fn a_file_cut_short_ends_the_connection() {
    let named = tempfile::NamedTempFile::new().unwrap();
    named.as_file().set_len(1 << 20).unwrap();
    let mut content = Content::open(named.path()).unwrap();
    named.as_file().set_len(1000).unwrap();
    content.push(Segment::Bytes(b"never sent".to_vec().into()));
    let pages = Book { large: content, mixed: Content::new() };
    let mut running = Running::with_pages(Limits::default(), pages);
    let answer = running.say(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(!answer.ends_with(b"never sent"));
    let What::Http { sent, whole, .. } = running.told().await.what else { panic!() };
    assert_eq!((sent, whole), (1000, false));
}

#[tokio::test]
async fn pages_that_take_too_long_are_given_up() {
    let limits = Limits { page: Duration::from_millis(50), ..Limits::default() };
    let running = Running::start(limits);
    let answer = running.say(b"GET /never HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_has_one_deadline() {
    let limits = Limits { idle: Duration::from_millis(300), ..Limits::default() };
    let running = Running::start(limits);
    let (mut reader, mut writer) = running.connect().await.into_split();
    let trickle = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(10));
        while writer.write_all(b"G").await.is_ok() {
            pace.tick().await;
        }
    });
    let mut answer = Vec::new();
    // The end may come as an error: the client is still sending.
    let _ = timeout(PATIENCE, reader.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"");
    trickle.abort();
}

#[tokio::test]
async fn a_thousand_idle_connections_harm_nobody() {
    // One process has both ends here, and many systems allow 1024 files by default.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: files.maximum, ..files };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let limits = Limits { most: 1001, most_per_client: 2000, ..Limits::default() };
    let mut running = Running::start(limits);
    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(running.connect().await);
    }
    assert!(running.say(b"GET /small HTTP/1.0\r\n\r\n").await.ends_with(b"#!ipxe\n"));
    assert!(matches!(running.told().await.what, What::Http { status: 200, .. }));
    // Those that are there still work.
    let stream = idle.last_mut().unwrap();
    stream.write_all(b"GET /small HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.ends_with(b"#!ipxe\n"));
}

#[tokio::test]
async fn a_client_may_have_so_many_connections() {
    let limits = Limits { most_per_client: 2, ..Limits::default() };
    let mut running = Running::start(limits);
    let mut first = running.connect().await;
    let _second = running.connect().await;
    let mut third = running.connect().await;
    let mut answer = Vec::new();
    timeout(PATIENCE, third.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 503 "));
    let What::Http { title, status, .. } = running.told().await.what else { panic!() };
    assert_eq!((&*title, status), ("refused: too many connections", 503));
    // A place that is given back can be had again.
    first.write_all(b"GET /small HTTP/1.0\r\n\r\n").await.unwrap();
    timeout(PATIENCE, first.read_to_end(&mut answer)).await.unwrap().unwrap();
    drop(first);
    let served = async {
        while !running.say(b"GET /small HTTP/1.0\r\n\r\n").await.ends_with(b"#!ipxe\n") {}
    };
    timeout(PATIENCE, served).await.unwrap();
}
