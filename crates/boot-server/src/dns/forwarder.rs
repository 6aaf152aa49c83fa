// SPDX-License-Identifier: Apache-2.0
//! Forwards DNS queries to resolvers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::{DnsQuestion, decode_question};

/// The file with the resolvers of this host.
pub const RESOLVER_CONFIGURATION: &str = "/etc/resolv.conf";
/// The timeout of one resolver. Clients repeat a query after five seconds.
const RESOLVER_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of resolvers that are tried for one query.
const MAX_RESOLVERS: usize = 3;
/// The time between two checks whether the file has changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum size of the file.
const MAX_CONFIGURATION_BYTES: u64 = 64 * 1024;
/// The maximum size of a response over UDP. Resolvers send at most what the query states, usually 1232.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;
const DNS_PORT: u16 = 53;

/// The resolvers to which queries are forwarded.
#[derive(Debug)]
pub struct DnsUpstreams {
    source: UpstreamSource,
    /// Addresses of this server, to which queries are not forwarded.
    own: Vec<IpAddr>,
    /// When it was last logged that no resolver responds.
    warned_at: Mutex<Option<Instant>>,
}

#[derive(Debug)]
enum UpstreamSource {
    Fixed(Vec<SocketAddr>),
    File { path: PathBuf, content: Mutex<ResolverFile> },
}

#[derive(Debug, Default)]
struct ResolverFile {
    checked_at: Option<Instant>,
    modified_at: Option<SystemTime>,
    resolvers: Vec<SocketAddr>,
}

/// How a query was received, and is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DnsTransport {
    Udp,
    Tcp,
}

impl DnsUpstreams {
    /// Returns upstreams with these resolvers.
    #[must_use]
    pub fn fixed(resolvers: Vec<SocketAddr>) -> Self {
        Self {
            source: UpstreamSource::Fixed(resolvers),
            own: Vec::new(),
            warned_at: Mutex::default(),
        }
    }

    /// Returns upstreams with the resolvers of a file such as `/etc/resolv.conf`, which is read again when it
    /// changes.
    #[must_use]
    pub fn from_file(path: &Path) -> Self {
        let source = UpstreamSource::File { path: path.to_owned(), content: Mutex::default() };
        Self { source, own: Vec::new(), warned_at: Mutex::default() }
    }

    /// Excludes addresses on which this server listens, so that queries do not loop.
    #[must_use]
    pub fn without(mut self, own: Vec<IpAddr>) -> Self {
        self.own = own;
        self
    }

    fn resolvers(&self) -> Vec<SocketAddr> {
        let mut resolvers = match &self.source {
            UpstreamSource::Fixed(resolvers) => resolvers.clone(),
            UpstreamSource::File { path, content } => {
                let mut content = content.lock().unwrap_or_else(PoisonError::into_inner);
                content.update(path, Instant::now());
                content.resolvers.clone()
            }
        };
        resolvers
            .retain(|resolver| resolver.port() != DNS_PORT || !self.own.contains(&resolver.ip()));
        resolvers.truncate(MAX_RESOLVERS);
        resolvers
    }

    /// Forwards a query and returns the response, with the ID of the query. Returns a response with an error if
    /// no resolver responds.
    pub(super) async fn forward(
        &self,
        message: &[u8],
        question: &DnsQuestion,
        transport: DnsTransport,
    ) -> Option<Vec<u8>> {
        let mut last_error = None;
        for resolver in self.resolvers() {
            let exchange = async {
                match transport {
                    DnsTransport::Udp => exchange_udp(message, question, resolver).await,
                    DnsTransport::Tcp => exchange_tcp(message, question, resolver).await,
                }
            };
            match tokio::time::timeout(RESOLVER_TIMEOUT, exchange).await {
                Ok(Ok(response)) => return Some(response),
                Ok(Err(error)) => last_error = Some((resolver, error.to_string())),
                Err(_) => last_error = Some((resolver, "no response".to_owned())),
            }
        }
        self.warn(last_error);
        question.server_failure()
    }

    /// Logs that no resolver responds, at most once per minute.
    fn warn(&self, last_error: Option<(SocketAddr, String)>) {
        const WARNING_INTERVAL: Duration = Duration::from_secs(60);
        let mut warned_at = self.warned_at.lock().unwrap_or_else(PoisonError::into_inner);
        if warned_at.is_some_and(|at| at.elapsed() < WARNING_INTERVAL) {
            return;
        }
        *warned_at = Some(Instant::now());
        match last_error {
            Some((resolver, error)) => {
                tracing::warn!(%resolver, error, "no DNS resolver responds to forwarded queries");
            }
            None => tracing::warn!("DNS queries cannot be forwarded: no resolver is configured"),
        }
    }
}

impl ResolverFile {
    /// Reads the file if it has changed.
    fn update(&mut self, path: &Path, now: Instant) {
        if self.checked_at.is_some_and(|at| now.saturating_duration_since(at) < CHECK_INTERVAL) {
            return;
        }
        self.checked_at = Some(now);
        match self.read(path) {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "list of DNS resolvers cannot be read");
            }
        }
    }

    fn read(&mut self, path: &Path) -> io::Result<()> {
        use std::io::Read as _;
        let file = std::fs::File::open(path)?;
        let modified_at = file.metadata()?.modified()?;
        if self.modified_at != Some(modified_at) {
            let mut text = String::new();
            file.take(MAX_CONFIGURATION_BYTES).read_to_string(&mut text)?;
            self.resolvers = parse_resolvers(&text);
            self.modified_at = Some(modified_at);
        }
        Ok(())
    }
}

/// Returns the addresses in `nameserver` lines. Link-local addresses with a zone are skipped.
pub(super) fn parse_resolvers(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        Some(SocketAddr::new(address.parse().ok()?, DNS_PORT))
    });
    servers.collect()
}

/// Replaces the ID of a message.
fn with_id(message: &[u8], id: u16) -> Vec<u8> {
    let mut changed = message.to_vec();
    if let Some(bytes) = changed.first_chunk_mut::<2>() {
        *bytes = id.to_be_bytes();
    }
    changed
}

/// A new ID, so that a client cannot choose the one that an attacker has to guess.
fn random_id() -> io::Result<u16> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    Ok(u16::from_be_bytes(id))
}

/// Sends a query from a socket of its own, whose port is as unpredictable as the ID. Other messages are
/// ignored.
async fn exchange_udp(
    message: &[u8],
    question: &DnsQuestion,
    resolver: SocketAddr,
) -> io::Result<Vec<u8>> {
    let any: IpAddr = match resolver {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    let id = random_id()?;
    socket.send(&with_id(message, id)).await?;
    let mut buffer = vec![0; MAX_RESPONSE_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let response = &buffer[..length];
        if decode_question(response).is_some_and(|other| question.is_response(id, &other)) {
            return Ok(with_id(response, question.metadata.id));
        }
    }
}

async fn exchange_tcp(
    message: &[u8],
    question: &DnsQuestion,
    resolver: SocketAddr,
) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(resolver).await?;
    let id = random_id()?;
    write_message(&mut stream, &with_id(message, id)).await?;
    let response = read_message(&mut stream, usize::from(u16::MAX)).await?;
    match decode_question(&response) {
        Some(other) if question.is_response(id, &other) => {
            Ok(with_id(&response, question.metadata.id))
        }
        Some(_) | None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Writes a message with its length.
pub(super) async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await
}

/// Reads a message with its length. Fails if it is longer than `limit`.
pub(super) async fn read_message(stream: &mut TcpStream, limit: usize) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > limit {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
