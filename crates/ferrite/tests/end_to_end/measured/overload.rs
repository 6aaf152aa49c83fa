// SPDX-License-Identifier: Apache-2.0
//! Attacks on the unauthenticated API: half-open connections, large bodies and web pages of other sites.
//! Health checks and other clients must not notice them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use http_probe::ServerProcess;
use socket2::{Domain, Protocol, Socket, Type};

use crate::test_process::TestHome;

/// The longest time of a health check during an attack.
const HEALTH_LIMIT: Duration = Duration::from_millis(100);
/// The largest resident memory of the server during and after an attack.
const MEMORY_LIMIT: u64 = 200 << 20;
/// The number of connections of the attack in the security review.
const HALF_OPEN_CONNECTIONS: usize = 8300;
const UPLOADS: usize = 100;
const UPLOAD_BYTES: usize = 16 << 20;
/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Connects from `127.0.0.HOST`: only 127.0.0.1 counts as a client of this host.
fn connect_from(host: u8, server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)).into())?;
    socket.connect_timeout(&server.into(), TIMEOUT)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Sends one request on a new connection. Returns the status, 0 if the connection was closed.
fn status_of(host: u8, server: SocketAddr, request: &[u8]) -> u16 {
    let Ok(mut stream) = connect_from(host, server) else { return 0 };
    let _ = stream.write_all(request);
    let mut line = [0; 12];
    let _ = stream.read_exact(&mut line);
    let line = String::from_utf8_lossy(&line);
    line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// The time of a health check on a new connection.
fn health_check(host: u8, server: SocketAddr) -> Duration {
    let started = Instant::now();
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(status_of(host, server, request), 200, "health check from 127.0.0.{host}");
    started.elapsed()
}

/// The median of several health checks: other processes may delay a single one.
fn median_health_check(host: u8, server: SocketAddr) -> Duration {
    let mut times: Vec<Duration> = (0..9).map(|_| health_check(host, server)).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn resident_bytes(server: &ServerProcess) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

fn assert_memory(server: &ServerProcess, when: &str) {
    let resident = resident_bytes(server);
    assert!(resident < MEMORY_LIMIT, "{when}: {} MiB", resident >> 20);
}

/// This process has the clients' ends of all connections.
fn raise_open_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

#[test]
fn half_open_connections_do_not_delay_others() {
    raise_open_file_limit();
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "basic"]);
    let address = server.address();
    let mut attack = Vec::with_capacity(HALF_OPEN_CONNECTIONS);
    let mut slowest = Duration::ZERO;
    for number in 0..HALF_OPEN_CONNECTIONS {
        let mut stream = connect_from(2, address).unwrap();
        let _ = stream.write_all(b"GET /v1/nodes HTTP/1.1\r\nHost: ");
        attack.push(stream);
        if number % 500 == 499 {
            slowest = slowest.max(median_health_check(3, address));
        }
    }
    // From another address, from this host, and from the attacker's own address.
    for host in [3, 1, 2] {
        slowest = slowest.max(median_health_check(host, address));
    }
    assert!(slowest < HEALTH_LIMIT, "{slowest:?}");
    assert_memory(&server, "with half-open connections");
    // Nearly all of them were closed to make room for the others.
    for stream in &attack {
        stream.set_nonblocking(true).unwrap();
    }
    let is_open = |stream: &TcpStream| {
        let read = stream.peek(&mut [0]);
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let deadline = Instant::now() + TIMEOUT;
    while attack.iter().filter(|stream| is_open(stream)).count() > 300 {
        assert!(Instant::now() < deadline, "the server keeps the connections open");
        std::thread::yield_now();
    }
}

#[test]
fn large_unauthenticated_bodies_use_bounded_memory() {
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "basic"]);
    let address = server.address();
    let before = resident_bytes(&server);
    // No node waits for inspection data, so large ones are rejected before they are received.
    let head = |length: usize| {
        format!(
            "POST /v1/continue_inspection HTTP/1.1\r\nHost: localhost\r\nContent-Type: \
             application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )
    };
    let declared = head(UPLOAD_BYTES);
    assert_eq!(status_of(2, address, declared.as_bytes()), 404);
    drop(server);
    let home = TestHome::new();
    // With automatic enrolment every machine may send data.
    let config = "[auto_discovery]\nenabled = true\ndriver = \"fake-hardware\"\n\
                  [drivers]\nenabled_hardware_types = [\"fake-hardware\"]\n";
    std::fs::write(home.path("ferrite.toml"), config).unwrap();
    let config = home.path("ferrite.toml").display().to_string();
    let server = home.serve_with(&["--auth", "basic", "--config", &config]);
    let address = server.address();
    let piece = vec![b' '; 256 << 10];
    let mut uploads: Vec<TcpStream> = Vec::new();
    for _ in 0..UPLOADS {
        let mut stream = connect_from(2, address).unwrap();
        stream.write_all(head(UPLOAD_BYTES).as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        uploads.push(stream);
    }
    // All of them send all but the last bytes, at the same time, for as long as the server reads them.
    let mut sent = vec![0_usize; UPLOADS];
    let mut slowest = Duration::ZERO;
    let deadline = Instant::now() + Duration::from_secs(8);
    let mut round = 0;
    while Instant::now() < deadline {
        let mut progress = false;
        for (stream, sent) in uploads.iter_mut().zip(&mut sent) {
            let left = (UPLOAD_BYTES - 1 - *sent).min(piece.len());
            if let Ok(count @ 1..) = stream.write(&piece[..left]) {
                *sent += count;
                progress = true;
            }
        }
        round += 1;
        if round % 20 == 0 {
            slowest = slowest.max(median_health_check(3, address));
            assert_memory(&server, "during the uploads");
        }
        if !progress {
            break;
        }
    }
    slowest = slowest.max(median_health_check(3, address)).max(median_health_check(2, address));
    assert!(slowest < HEALTH_LIMIT, "{slowest:?}");
    assert_memory(&server, "with 100 uploads");
    let rejected = metric(address, "ferrite_http_bodies_over_budget_total");
    assert!(rejected > 0.0, "no upload was rejected");
    // Bodies of many small values need the most memory and time when they are parsed.
    let values = format!("[{}0]", "0,".repeat(4 << 20));
    for _ in 0..4 {
        let mut request = head(values.len()).into_bytes();
        request.extend_from_slice(values.as_bytes());
        let status = status_of(4, address, &request);
        assert!(matches!(status, 400 | 503), "{status}");
        slowest = slowest.max(median_health_check(3, address));
    }
    assert!(slowest < HEALTH_LIMIT, "while bodies are parsed: {slowest:?}");
    drop(uploads);
    let deadline = Instant::now() + TIMEOUT;
    while metric(address, "ferrite_http_unauthenticated_body_bytes") > 0.0 {
        assert!(Instant::now() < deadline, "the memory of closed uploads is not returned");
        std::thread::yield_now();
    }
    assert_memory(&server, "afterwards");
    println!(
        "resident before {} MiB, afterwards {} MiB, slowest health check {slowest:?}",
        before >> 20,
        resident_bytes(&server) >> 20
    );
}

fn metric(server: SocketAddr, name: &str) -> f64 {
    let mut client = http_probe::ProbeClient::new(server);
    let text = client.send("GET", "/metrics", None).unwrap().text();
    let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
    line.and_then(|line| line.rsplit(' ').next())
        .and_then(|value| value.parse().ok())
        .unwrap_or(0.0)
}

#[test]
fn pages_of_other_sites_cannot_use_a_local_installation() {
    let home = TestHome::new();
    let server = home.serve();
    let address = server.address();
    let body = r#"{"driver": "fake-hardware"}"#;
    let create = |headers: &str| {
        let request = format!(
            "POST /v1/nodes HTTP/1.1\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        status_of(1, address, request.as_bytes())
    };
    let own = format!("Host: {address}\r\n");
    let json = "Content-Type: application/json\r\n";
    assert_eq!(create(&format!("{own}{json}")), 201);
    assert_eq!(create(&format!("{own}{json}Origin: http://{address}\r\n")), 201);
    assert_eq!(create(&format!("{own}{json}Origin: http://evil.example\r\n")), 403);
    assert_eq!(create(&format!("{own}{json}Sec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(create(&format!("{own}Content-Type: text/plain\r\n")), 415);
    assert_eq!(create(&format!("Host: evil.example:6385\r\n{json}")), 421);
    let read = b"GET /v1/nodes HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(status_of(1, address, read), 421);
    let nodes = server.client().send("GET", "/v1/nodes", None).unwrap();
    assert_eq!(nodes.json()["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(nodes.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(nodes.header("cache-control"), Some("no-store"));
}
