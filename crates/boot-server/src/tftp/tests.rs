// SPDX-License-Identifier: Apache-2.0
//! Transfers over a simulated link that loses, duplicates and delays packets, in virtual time; the server
//! over loopback; and the directory.

use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use boot_media::Content;
use node_model::Timestamp;
use proptest::prelude::*;
use tokio::net::UdpSocket;

use super::packet::{ACK, DATA, ERROR, OACK, READ, error_message};
use super::*;
use crate::{BootEvent, BootEventDetail, BootEventRecorder};

fn request(file: &str, mode: &str, options: &[(&str, &str)]) -> Vec<u8> {
    let mut out = READ.to_be_bytes().to_vec();
    for string in
        [file, mode].into_iter().chain(options.iter().flat_map(|(name, value)| [*name, *value]))
    {
        out.extend_from_slice(string.as_bytes());
        out.push(0);
    }
    out
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// A client like that of firmware: accepts blocks in order, acknowledges at the end of a window, at a gap
/// and at the end, and repeats its last message after a timeout.
struct TestClient {
    block_size: usize,
    window: u64,
    received: Vec<u8>,
    expected: u64,
    in_window: u64,
    gap_acknowledged: bool,
    done: bool,
    last_sent: Vec<u8>,
}

impl TestClient {
    fn ack(&mut self) -> Option<Vec<u8>> {
        self.in_window = 0;
        let block = (self.expected - 1) as u16;
        self.last_sent = [ACK.to_be_bytes(), block.to_be_bytes()].concat();
        Some(self.last_sent.clone())
    }

    fn receive(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let kind = u16::from_be_bytes([message[0], message[1]]);
        if kind == OACK {
            return if self.expected == 1 { self.ack() } else { None };
        }
        assert_eq!(kind, DATA, "{message:?}");
        let block = u16::from_be_bytes([message[2], message[3]]);
        if block != self.expected as u16 {
            // An old block means that the acknowledgement was lost. Of the blocks after a gap only the first
            // is acknowledged.
            let is_old = (self.expected as u16).wrapping_sub(block) < 0x8000;
            if !is_old && self.gap_acknowledged {
                return None;
            }
            self.gap_acknowledged |= !is_old;
            return self.ack();
        }
        self.gap_acknowledged = false;
        self.received.extend_from_slice(&message[4..]);
        self.expected += 1;
        self.in_window += 1;
        self.done = message.len() < self.block_size + 4;
        if self.done || self.in_window == self.window { self.ack() } else { None }
    }
}

/// The arrival of a message. The heap returns the earliest first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: std::cmp::Reverse<Duration>,
    order: std::cmp::Reverse<u64>,
    to_client: bool,
    message: Vec<u8>,
}

struct LossyLink {
    seed: u64,
    loss_percent: u64,
    order: u64,
    queue: BinaryHeap<Arrival>,
}

impl LossyLink {
    fn random_percent(&mut self, percent: u64) -> bool {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % 100 < percent
    }

    fn send(&mut self, now: Duration, to_client: bool, message: Vec<u8>) {
        if self.random_percent(self.loss_percent) {
            return;
        }
        let copies = if self.random_percent(self.loss_percent / 4) { 2 } else { 1 };
        for copy in 0..copies {
            self.order += 1;
            let delay = Duration::from_micros(200 + copy * 900);
            self.queue.push(Arrival {
                at: std::cmp::Reverse(now + delay),
                order: std::cmp::Reverse(self.order),
                to_client,
                message: message.clone(),
            });
        }
    }
}

/// Sends `content` over the link. Returns what the client received, the outcome and the virtual time.
fn transfer(
    content: impl Into<Content>,
    options: &[(&str, &str)],
    loss_percent: u64,
    seed: u64,
) -> (Vec<u8>, TftpOutcome, Duration) {
    let decoded = TftpRequest::decode(&request("file", "octet", options)).unwrap();
    let limits = TftpLimits { block_size: 65464, window: 64, ..TftpLimits::default() };
    let mut client = TestClient {
        block_size: decoded.options.block_size.unwrap_or(512).into(),
        window: decoded.options.window.unwrap_or(1).min(64).into(),
        received: Vec::new(),
        expected: 1,
        in_window: 0,
        gap_acknowledged: false,
        done: false,
        last_sent: Vec::new(),
    };
    let mut link = LossyLink { seed: seed | 1, loss_percent, order: 0, queue: BinaryHeap::new() };
    let epoch = Instant::now();
    let mut now = Duration::ZERO;
    let mut client_timer = Duration::from_secs(3);
    let mut out = TftpOutbox::default();
    let (mut sender, mut progress) =
        TftpTransfer::start(&decoded, content.into(), &limits, epoch, &mut out);
    loop {
        for message in out.iter() {
            link.send(now, true, message.to_vec());
        }
        out.clear();
        let deadline = match progress {
            TftpProgress::Finished(outcome) => return (client.received, outcome, now),
            TftpProgress::WaitUntil(deadline) => deadline.duration_since(epoch),
        };
        let arrival = link.queue.peek().map_or(Duration::MAX, |arrival| arrival.at.0);
        now = arrival.min(deadline).min(client_timer);
        if arrival == now {
            let arrival = link.queue.pop().unwrap();
            if arrival.to_client {
                client_timer = now + Duration::from_secs(3);
                if let Some(reply) = client.receive(&arrival.message) {
                    link.send(now, false, reply);
                }
            } else {
                progress = sender.on_message(&arrival.message, epoch + now, &mut out);
            }
        } else if deadline == now {
            progress = sender.on_timeout(epoch + now, &mut out);
        } else {
            client_timer = now + Duration::from_secs(3);
            if !client.last_sent.is_empty() {
                let again = client.last_sent.clone();
                link.send(now, false, again);
            }
        }
    }
}

#[test]
fn transfers_files_of_all_boundary_sizes() {
    let options: [&[(&str, &str)]; 4] = [
        &[],
        &[("blksize", "1024"), ("tsize", "0")],
        &[("BLKSIZE", "8"), ("windowsize", "3")],
        &[("windowsize", "16"), ("timeout", "2")],
    ];
    for options in options {
        for length in [0, 1, 7, 8, 511, 512, 513, 1024, 10_240, 100_001] {
            let content = bytes(length);
            let (received, outcome, _) = transfer(content.clone(), options, 0, 1);
            assert!(received == content, "{length} bytes with {options:?}");
            assert_eq!(outcome, TftpOutcome::Completed { bytes: length as u64 });
        }
    }
}

#[test]
fn a_file_truncated_during_the_transfer_ends_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes(100_000)).unwrap();
    let content = Content::open(file.path()).unwrap();
    file.as_file().set_len(60_000).unwrap();
    let (received, outcome, _) = transfer(content, &[("blksize", "1000")], 0, 1);
    assert_eq!(outcome, TftpOutcome::Unreadable);
    assert!(bytes(60_000).starts_with(&received), "{} bytes", received.len());
}

#[test]
fn block_numbers_roll_over() {
    // 70,000 blocks of 8 bytes, and a window across the roll-over.
    for options in [&[("blksize", "8")][..], &[("blksize", "8"), ("windowsize", "7")]] {
        let content = bytes(560_003);
        let (received, outcome, _) = transfer(content.clone(), options, 0, 1);
        assert!(received == content && outcome == TftpOutcome::Completed { bytes: 560_003 });
    }
}

#[test]
fn transfers_complete_with_20_percent_loss() {
    for (window, timeout) in [("1", "6"), ("1", "0"), ("4", "1"), ("32", "0")] {
        for (seed, loss) in [(11, 5), (12, 10), (13, 20), (14, 20)] {
            let content = bytes(700_000);
            // A timeout of zero is invalid and ignored.
            let options = [("blksize", "1468"), ("windowsize", window), ("timeout", timeout)];
            let (received, outcome, took) = transfer(content.clone(), &options, loss, seed);
            assert!(received == content, "window {window}, loss {loss} %: {outcome:?}");
            assert!(took < Duration::from_secs(60), "window {window}, loss {loss} %: {took:?}");
        }
    }
}

/// Drives a transfer whose client is silent after `acknowledged` blocks. Returns the number of messages
/// after that, and the time.
fn messages_to_a_silent_client(options: &[(&str, &str)], acknowledged: u16) -> (usize, Duration) {
    let decoded = TftpRequest::decode(&request("file", "octet", options)).unwrap();
    let epoch = Instant::now();
    let mut now = epoch;
    let mut out = TftpOutbox::default();
    let content = Content::from(bytes(50_000));
    let limits = TftpLimits::default();
    let (mut sender, mut progress) = TftpTransfer::start(&decoded, content, &limits, now, &mut out);
    for block in 1..=acknowledged {
        out.clear();
        let ack = [ACK.to_be_bytes(), block.to_be_bytes()].concat();
        progress = sender.on_message(&ack, now, &mut out);
    }
    let mut sent = out.iter().count();
    while let TftpProgress::WaitUntil(deadline) = progress {
        out.clear();
        now = deadline;
        progress = sender.on_timeout(now, &mut out);
        sent += out.iter().count();
    }
    assert_eq!(progress, TftpProgress::Finished(TftpOutcome::TimedOut));
    (sent, now.duration_since(epoch))
}

/// A request with a forged sender makes the server send to a host that requested nothing.
#[test]
fn sends_few_messages_until_the_first_acknowledgement() {
    for options in [&[][..], &[("blksize", "1468"), ("windowsize", "64")]] {
        let (sent, took) = messages_to_a_silent_client(options, 0);
        assert_eq!(sent, 4, "{options:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    let (_, took) = messages_to_a_silent_client(&[], 3);
    assert!((60..65).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn duplicate_acknowledgements_do_not_duplicate_blocks() {
    let decoded = TftpRequest::decode(&request("file", "octet", &[])).unwrap();
    let now = Instant::now();
    let mut out = TftpOutbox::default();
    let (mut sender, _) = TftpTransfer::start(
        &decoded,
        Content::from(bytes(5000)),
        &TftpLimits::default(),
        now,
        &mut out,
    );
    out.clear();
    for _ in 0..2 {
        let _ = sender.on_message(&[0, 4, 0, 1], now, &mut out);
    }
    assert_eq!(out.iter().count(), 1);
}

#[test]
fn agreed_options_are_within_the_limits() {
    let options =
        [("blksize", "9000"), ("tsize", "0"), ("windowsize", "1000"), ("timeout", "5"), ("x", "y")];
    let decoded = TftpRequest::decode(&request("file", "octet", &options)).unwrap();
    let mut out = TftpOutbox::default();
    let content = Content::from(bytes(5000));
    let _ =
        TftpTransfer::start(&decoded, content, &TftpLimits::default(), Instant::now(), &mut out);
    let agreed: Vec<String> = out
        .iter()
        .map(|message| String::from_utf8_lossy(&message[2..]).replace('\0', " "))
        .collect();
    assert_eq!(agreed, ["blksize 1468 tsize 5000 timeout 5 windowsize 64 "]);
}

#[tokio::test]
async fn a_directory_serves_only_files_inside_it() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(outer.path().join("secret"), "secret").unwrap();
    std::fs::write(root.join("sub/file"), "inside").unwrap();
    std::os::unix::fs::symlink("../../secret", root.join("sub/out")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("absolute")).unwrap();
    std::os::unix::fs::symlink("sub/file", root.join("within")).unwrap();
    let directory = ServedDirectory::open(&root).unwrap();
    let client: SocketAddr = "192.0.2.9:1000".parse().unwrap();
    for valid in ["sub/file", "/sub/file", "//sub/file", "\\sub\\file", "within", "sub/../within"] {
        let content = directory.open(valid, client).await;
        assert_eq!(content.unwrap_or_else(|error| panic!("{valid}: {error}")).length(), 6);
    }
    for invalid in [
        "../secret",
        "sub/../../secret",
        "/../secret",
        "..\\secret",
        "sub/out",
        "absolute",
        "/etc/passwd",
        "sub",
        "",
        ".",
        "a\0b",
        "/proc/self/root/etc/passwd",
    ] {
        assert!(directory.open(invalid, client).await.is_err(), "{invalid}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = TftpRequest::decode(&bytes);
        let _ = TftpRequest::decode(&[&[0, 1][..], &bytes].concat());
    }

    #[test]
    fn no_message_breaks_a_transfer(messages in prop::collection::vec(
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..8),
            (0_u16..12).prop_map(|block| [ACK.to_be_bytes(), block.to_be_bytes()].concat()),
        ], 0..60), window in 1_u16..6) {
        let options = [("blksize", "8"), ("windowsize", &*window.to_string())];
        let decoded = TftpRequest::decode(&request("file", "octet", &options)).unwrap();
        let now = Instant::now();
        let mut out = TftpOutbox::default();
        let (mut sender, _) = TftpTransfer::start(&decoded, Content::from(bytes(77)), &TftpLimits::default(), now, &mut out);
        for message in messages {
            out.clear();
            let progress = sender.on_message(&message, now, &mut out);
            prop_assert!(out.iter().count() <= usize::from(window));
            if let TftpProgress::Finished(outcome) = progress {
                let is_expected = matches!(outcome, TftpOutcome::AbortedByClient | TftpOutcome::Completed { bytes: 77 });
                prop_assert!(is_expected);
                break;
            }
        }
    }
}

#[derive(Default)]
struct TftpEvents(Mutex<Vec<BootEvent>>);

impl BootEventRecorder for TftpEvents {
    fn record(&self, sighting: BootEvent) {
        self.0.lock().unwrap().push(sighting);
    }
}

struct TestTftpFiles;

#[async_trait]
impl TftpFiles for TestTftpFiles {
    async fn open(&self, name: &str, client: SocketAddr) -> Result<Content, TftpOpenError> {
        match name {
            "text" => Ok(b"one\ntwo\r\n".to_vec().into()),
            "who" => Ok(client.ip().to_string().into_bytes().into()),
            "slow" => std::future::pending().await,
            _ => Err(TftpOpenError::NotFound),
        }
    }
}

async fn exchange(server: SocketAddr, message: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(message, server).await.unwrap();
    let mut buffer = [0; 600];
    let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
    socket.send_to(&[0, 4, 0, 1], from).await.unwrap();
    buffer[..length].to_vec()
}

#[tokio::test]
async fn serves_files_and_rejects_other_requests() {
    let events = Arc::new(TftpEvents::default());
    let services = TftpServices {
        files: Arc::new(TestTftpFiles),
        events: events.clone(),
        clock: Arc::new(|| Timestamp::from_secs(5)),
    };
    let settings = TftpSettings::new("127.0.0.1:0".parse().unwrap());
    let server = TftpServer::bind(settings, services).unwrap();
    let address = server.local_address().unwrap();
    let running = tokio::spawn(server.run());
    let data = |text: &[u8]| [&[0, 3, 0, 1][..], text].concat();
    assert_eq!(exchange(address, &request("text", "octet", &[])).await, data(b"one\ntwo\r\n"));
    let translated = exchange(address, &request("text", "NetASCII", &[])).await;
    assert_eq!(translated, data(b"one\r\ntwo\r\0\r\n"));
    assert_eq!(exchange(address, &request("who", "octet", &[])).await, data(b"127.0.0.1"));
    let error = |message: Vec<u8>| {
        assert_eq!(message[..2], ERROR.to_be_bytes());
        message[3]
    };
    assert_eq!(error(exchange(address, &request("gone", "octet", &[])).await), 1);
    assert_eq!(error(exchange(address, &request("text", "mail", &[])).await), 4);
    let mut write = request("text", "octet", &[]);
    write[1] = 2;
    assert_eq!(error(exchange(address, &write).await), 4);
    running.abort();
    let events = events.0.lock().unwrap();
    let missing = BootEventDetail::Tftp { file: "gone".into(), outcome: TftpOutcome::NotFound };
    assert!(events.iter().any(|sighting| sighting.detail == missing));
}

#[tokio::test]
async fn limits_transfers_per_client() {
    let services = TftpServices {
        files: Arc::new(TestTftpFiles),
        events: Arc::new(TftpEvents::default()),
        clock: Arc::new(|| Timestamp::from_secs(5)),
    };
    let mut settings = TftpSettings::new("127.0.0.1:0".parse().unwrap());
    settings.max_transfers_per_client = 3;
    let server = TftpServer::bind(settings, services).unwrap();
    let address = server.local_address().unwrap();
    let running = tokio::spawn(server.run());
    let mut message_types = Vec::new();
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&request("text", "octet", &[]), address).await.unwrap();
        let mut buffer = [0; 600];
        let _ = socket.recv_from(&mut buffer).await.unwrap();
        message_types.push(u16::from(buffer[1]));
        sockets.push(socket);
    }
    assert_eq!(message_types, [DATA, DATA, DATA, ERROR]);
    running.abort();
}

#[tokio::test]
async fn limits_unacknowledged_transfers_per_client() {
    let events = Arc::new(TftpEvents::default());
    let services = TftpServices {
        files: Arc::new(TestTftpFiles),
        events: events.clone(),
        clock: Arc::new(|| Timestamp::from_secs(5)),
    };
    let mut settings = TftpSettings::new("127.0.0.1:0".parse().unwrap());
    settings.max_unacknowledged_per_client = 2;
    let server = TftpServer::bind(settings, services).unwrap();
    let address = server.local_address().unwrap();
    let running = tokio::spawn(server.run());
    let mut sockets = Vec::new();
    for _ in 0..2 {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&request("text", "octet", &[("blksize", "8")]), address).await.unwrap();
        let mut buffer = [0; 600];
        let (_, from) = socket.recv_from(&mut buffer).await.unwrap();
        assert_eq!(u16::from(buffer[1]), OACK);
        sockets.push((socket, from));
    }
    // A third request gets no reply.
    let third = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    third.send_to(&request("text", "octet", &[]), address).await.unwrap();
    let refused =
        BootEventDetail::Tftp { file: "text".into(), outcome: TftpOutcome::TooManyTransfers };
    let is_recorded = async {
        while !events.0.lock().unwrap().iter().any(|event| event.detail == refused) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_recorded).await.unwrap();
    let mut buffer = [0; 600];
    assert!(third.try_recv(&mut buffer).is_err());
    // After the first acknowledgement a transfer no longer counts.
    let (socket, from) = &sockets[0];
    socket.send_to(&[0, 4, 0, 0], *from).await.unwrap();
    let (_, _) = socket.recv_from(&mut buffer).await.unwrap();
    assert_eq!(u16::from(buffer[1]), DATA);
    assert_eq!(exchange(address, &request("who", "octet", &[])).await[1], DATA as u8);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_slow_open_delays_only_its_own_client() {
    let events = Arc::new(TftpEvents::default());
    let services = TftpServices {
        files: Arc::new(TestTftpFiles),
        events: events.clone(),
        clock: Arc::new(|| Timestamp::from_secs(5)),
    };
    let mut settings = TftpSettings::new("127.0.0.1:0".parse().unwrap());
    settings.max_transfers_per_client = 2;
    let server = TftpServer::bind(settings, services).unwrap();
    let address = server.local_address().unwrap();
    let running = tokio::spawn(server.run());
    let waiting = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    waiting.send_to(&request("slow", "octet", &[]), address).await.unwrap();
    // A repeated request is one transfer.
    waiting.send_to(&request("slow", "octet", &[]), address).await.unwrap();
    let quick = exchange(address, &request("who", "octet", &[])).await;
    assert_eq!(quick[1], DATA as u8);
    // The client gets an error after the timeout.
    let mut buffer = [0; 600];
    let (length, _) = waiting.recv_from(&mut buffer).await.unwrap();
    let expected =
        error_message(TftpErrorCode::Undefined, "file temporarily unavailable; try again");
    assert_eq!(buffer[..length], expected);
    running.abort();
    let slow = BootEventDetail::Tftp { file: "slow".into(), outcome: TftpOutcome::Unreadable };
    assert_eq!(events.0.lock().unwrap().iter().filter(|it| it.detail == slow).count(), 1);
}
