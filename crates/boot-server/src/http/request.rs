// SPDX-License-Identifier: Apache-2.0
//! What a client asks: the head of an HTTP/1 request, read from bytes. No sockets.

use std::borrow::Cow;
use std::net::SocketAddr;

use super::path::{self, PathError};
use super::range::AskedRange;
use super::status::Status;

/// The longest head of a request. Firmware sends a few hundred bytes.
pub const LONGEST_HEAD: usize = 8 << 10;
/// The longest target: a path and a query.
pub const LONGEST_TARGET: usize = 4 << 10;
const MOST_FIELDS: usize = 64;

/// How a page is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// With its content.
    Get,
    /// Without.
    Head,
}

/// One request. Header values that are not UTF-8 are as if they were not there.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// How it is asked.
    pub method: Method,
    /// The decoded path. It begins with a slash and has no empty, `.` or `..` segment.
    pub path: Cow<'a, str>,
    /// What stands behind the question mark, as it was sent.
    pub query: Option<&'a str>,
    /// The part that is asked for.
    pub range: Option<AskedRange>,
    /// The tags of what the client has already.
    pub if_none_match: Option<&'a str>,
    /// The tag that must still be true for the range to be sent.
    pub if_range: Option<&'a str>,
    /// The name by which the client knows this server, with the port if it wrote one.
    pub host: Option<&'a str>,
    /// What the client calls itself.
    pub user_agent: Option<&'a str>,
    /// Who asks.
    pub client: SocketAddr,
}

/// What becomes of the connection after the answer, and how that is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// It stays; HTTP/1.1 takes this for granted.
    Stays,
    /// It stays, and an HTTP/1.0 client that asked for this must be told.
    StaysAndSaysSo,
    /// It ends.
    Ends,
}

/// A request, and where the next one begins.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// The request.
    pub request: Request<'a>,
    /// What becomes of the connection.
    pub persistence: Persistence,
    /// The length of its head.
    pub length: usize,
}

/// Why a request is refused before anybody is asked for a page. The connection ends after it: where the
/// next request would begin is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is not HTTP/1.
    #[error("this is not a request of HTTP/1")]
    Syntax,
    /// Another version of HTTP.
    #[error("only HTTP/1.0 and HTTP/1.1 are spoken here")]
    Version,
    /// Neither GET nor HEAD.
    #[error("only GET and HEAD are served here")]
    Method,
    /// The target is longer than [`LONGEST_TARGET`].
    #[error("the target of the request is too long")]
    TargetTooLong,
    /// The head is longer than [`LONGEST_HEAD`], or has too many fields.
    #[error("the head of the request is too long")]
    HeadTooLong,
    /// The path is not one that is served.
    #[error("{0}")]
    Path(PathError),
    /// HTTP/1.1 asks for exactly one.
    #[error("the request must name one host")]
    Host,
    /// A body comes with it.
    #[error("requests with a body are not served here")]
    Body,
    /// `Expect` asks for something.
    #[error("expectations are not met here")]
    Expectation,
}

/// Reads one request from the front of `bytes`; `None` while its end has not come.
///
/// # Errors
/// If it can be refused already.
pub fn parse(bytes: &[u8], client: SocketAddr) -> Result<Option<Parsed<'_>>, Malformed> {
    let head = &bytes[..bytes.len().min(LONGEST_HEAD)];
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let length = match parsed.parse(head) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if head.len() < LONGEST_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) if parsed.version.is_none() => {
            return Err(Malformed::TargetTooLong);
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Malformed::HeadTooLong);
        }
        Err(httparse::Error::Version) => return Err(Malformed::Version),
        Err(_) => return Err(Malformed::Syntax),
    };
    let method = match parsed.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => return Err(Malformed::Method),
    };
    let target = parsed.path.ok_or(Malformed::Syntax)?;
    if target.len() > LONGEST_TARGET {
        return Err(Malformed::TargetTooLong);
    }
    let (target, authority) = origin_form(target);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let is_1_1 = parsed.version == Some(1);
    let seen = Fields::read(parsed.headers)?;
    if seen.hosts > 1 || (is_1_1 && seen.hosts == 0) {
        return Err(Malformed::Host);
    }
    let persistence = match (is_1_1, seen.close, seen.keep_alive) {
        (_, true, _) | (false, _, false) => Persistence::Ends,
        (true, ..) => Persistence::Stays,
        (false, ..) => Persistence::StaysAndSaysSo,
    };
    let request = Request {
        method,
        path: path::decode(path).map_err(Malformed::Path)?,
        query,
        range: seen.range.filter(|_| seen.ranges == 1).and_then(AskedRange::parse),
        if_none_match: seen.if_none_match,
        if_range: seen.if_range,
        host: authority.or(seen.host),
        user_agent: seen.user_agent,
        client,
    };
    Ok(Some(Parsed { request, persistence, length }))
}

impl Request<'_> {
    /// The path for somebody to read: segments that are long enough to be a secret are left out.
    #[must_use]
    pub fn told_path(&self) -> String {
        path::told(&self.path)
    }
}

impl Malformed {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::Syntax | Self::Path(_) | Self::Host => Status::BadRequest,
            Self::Version => Status::VersionNotSupported,
            Self::Method => Status::MethodNotAllowed,
            Self::TargetTooLong => Status::UriTooLong,
            Self::HeadTooLong => Status::HeadTooLong,
            Self::Body => Status::ContentTooLarge,
            Self::Expectation => Status::ExpectationFailed,
        }
    }
}

/// What the header fields say, as far as anybody cares.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a str>,
    hosts: usize,
    range: Option<&'a str>,
    ranges: usize,
    if_none_match: Option<&'a str>,
    if_range: Option<&'a str>,
    user_agent: Option<&'a str>,
    close: bool,
    keep_alive: bool,
}

impl<'a> Fields<'a> {
    fn read(headers: &[httparse::Header<'a>]) -> Result<Self, Malformed> {
        let mut seen = Self::default();
        for field in headers {
            let value = std::str::from_utf8(field.value).ok().map(str::trim);
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("host") {
                seen.host = value;
                seen.hosts += 1;
            } else if is("range") {
                seen.range = value;
                seen.ranges += 1;
            } else if is("if-none-match") {
                seen.if_none_match = value;
            } else if is("if-range") {
                seen.if_range = value;
            } else if is("user-agent") {
                seen.user_agent = value;
            } else if is("connection") {
                for word in value.unwrap_or_default().split(',').map(str::trim) {
                    seen.close |= word.eq_ignore_ascii_case("close");
                    seen.keep_alive |= word.eq_ignore_ascii_case("keep-alive");
                }
            } else if is("expect") {
                return Err(Malformed::Expectation);
            } else if is("transfer-encoding") || (is("content-length") && value != Some("0")) {
                return Err(Malformed::Body);
            }
        }
        Ok(seen)
    }
}

/// Proxies write the whole URL; what counts is the path, and the host they write there.
fn origin_form(target: &str) -> (&str, Option<&str>) {
    let after = |scheme: &str| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let Some(rest) = after("http://").or_else(|| after("https://")) else {
        return (target, None);
    };
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => (&rest[at..], Some(&rest[..at])),
        Some(at) => ("/", Some(&rest[..at])),
        None => ("/", Some(rest)),
    }
}
