// SPDX-License-Identifier: Apache-2.0
//! Parses the head of an HTTP/1 request, without sockets.

use std::borrow::Cow;
use std::net::SocketAddr;

use super::path::{self, RequestPathError};
use super::range::ByteRange;
use super::status::BootHttpStatus;

/// The limit for the head of a request. Firmware sends a few hundred bytes.
pub const MAX_HEAD_BYTES: usize = 8 << 10;
/// The limit for the target: path and query.
pub const MAX_TARGET_BYTES: usize = 4 << 10;
const MAX_HEADERS: usize = 64;

/// The request method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootHttpMethod {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
}

/// A request. Header values that are not UTF-8 are ignored.
#[derive(Debug, Clone)]
pub struct BootHttpRequest<'a> {
    /// The method.
    pub method: BootHttpMethod,
    /// The decoded path. It starts with a slash and has no empty, `.` or `..` segment.
    pub path: Cow<'a, str>,
    /// The query, not decoded.
    pub query: Option<&'a str>,
    /// The requested range.
    pub range: Option<ByteRange>,
    /// The entity tags of the versions that the client has.
    pub if_none_match: Option<&'a str>,
    /// The entity tag for which the range is valid.
    pub if_range: Option<&'a str>,
    /// The host of the URL, with the port if the client sent one.
    pub host: Option<&'a str>,
    /// The `User-Agent`.
    pub user_agent: Option<&'a str>,
    /// The client's address.
    pub client: SocketAddr,
}

/// Whether the connection stays open after the response, and the header that states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPersistence {
    /// It stays open, which is the default of HTTP/1.1.
    KeepAlive,
    /// It stays open, and an HTTP/1.0 client needs `Connection: keep-alive`.
    KeepAliveHeader,
    /// It is closed.
    Close,
}

/// A parsed request and its length.
#[derive(Debug)]
pub struct ParsedHttpRequest<'a> {
    /// The request.
    pub request: BootHttpRequest<'a>,
    /// Whether the connection stays open.
    pub persistence: ConnectionPersistence,
    /// The length of the head in bytes.
    pub length: usize,
}

/// Why a request is rejected before a file is looked up. The connection is closed after it, because the
/// start of the next request is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BootHttpRequestError {
    /// Not an HTTP/1 request.
    #[error("not an HTTP/1 request")]
    Syntax,
    /// Another version of HTTP.
    #[error("only HTTP/1.0 and HTTP/1.1 are supported")]
    Version,
    /// Neither GET nor HEAD.
    #[error("only GET and HEAD are supported")]
    Method,
    /// The target is longer than [`MAX_TARGET_BYTES`].
    #[error("the request target is too long")]
    TargetTooLong,
    /// The head is longer than [`MAX_HEAD_BYTES`], or has too many fields.
    #[error("the request head is too long")]
    HeadTooLong,
    /// The path is invalid.
    #[error("{0}")]
    Path(RequestPathError),
    /// HTTP/1.1 requires exactly one `Host`.
    #[error("the request must have one Host header")]
    Host,
    /// The request has a body.
    #[error("requests with a body are not supported")]
    Body,
    /// The request has an `Expect` header.
    #[error("the Expect header is not supported")]
    Expectation,
}

/// Parses the request at the start of `bytes`. Returns `None` if it is incomplete.
///
/// # Errors
/// If the request is invalid, which may be known before it is complete.
pub fn parse_request(
    bytes: &[u8],
    client: SocketAddr,
) -> Result<Option<ParsedHttpRequest<'_>>, BootHttpRequestError> {
    let head = &bytes[..bytes.len().min(MAX_HEAD_BYTES)];
    let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut fields);
    let length = match parsed.parse(head) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if head.len() < MAX_HEAD_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) if parsed.version.is_none() => {
            return Err(BootHttpRequestError::TargetTooLong);
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(BootHttpRequestError::HeadTooLong);
        }
        Err(httparse::Error::Version) => return Err(BootHttpRequestError::Version),
        Err(_) => return Err(BootHttpRequestError::Syntax),
    };
    let method = match parsed.method {
        Some("GET") => BootHttpMethod::Get,
        Some("HEAD") => BootHttpMethod::Head,
        _ => return Err(BootHttpRequestError::Method),
    };
    let target = parsed.path.ok_or(BootHttpRequestError::Syntax)?;
    if target.len() > MAX_TARGET_BYTES {
        return Err(BootHttpRequestError::TargetTooLong);
    }
    let (target, authority) = origin_form(target);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let is_1_1 = parsed.version == Some(1);
    let headers = RequestHeaders::read(parsed.headers)?;
    if headers.hosts > 1 || (is_1_1 && headers.hosts == 0) {
        return Err(BootHttpRequestError::Host);
    }
    let persistence = match (is_1_1, headers.close, headers.keep_alive) {
        (_, true, _) | (false, _, false) => ConnectionPersistence::Close,
        (true, ..) => ConnectionPersistence::KeepAlive,
        (false, ..) => ConnectionPersistence::KeepAliveHeader,
    };
    let request = BootHttpRequest {
        method,
        path: path::decode(path).map_err(BootHttpRequestError::Path)?,
        query,
        range: headers.range.filter(|_| headers.ranges == 1).and_then(ByteRange::parse),
        if_none_match: headers.if_none_match,
        if_range: headers.if_range,
        host: authority.or(headers.host),
        user_agent: headers.user_agent,
        client,
    };
    Ok(Some(ParsedHttpRequest { request, persistence, length }))
}

impl BootHttpRequest<'_> {
    /// Returns the path for logs and timelines, in which segments that may be secrets are replaced.
    #[must_use]
    pub fn redacted_path(&self) -> String {
        path::redacted(&self.path)
    }
}

impl BootHttpRequestError {
    /// Returns the status of the response.
    #[must_use]
    pub fn status(self) -> BootHttpStatus {
        match self {
            Self::Syntax | Self::Path(_) | Self::Host => BootHttpStatus::BadRequest,
            Self::Version => BootHttpStatus::VersionNotSupported,
            Self::Method => BootHttpStatus::MethodNotAllowed,
            Self::TargetTooLong => BootHttpStatus::UriTooLong,
            Self::HeadTooLong => BootHttpStatus::HeadTooLong,
            Self::Body => BootHttpStatus::ContentTooLarge,
            Self::Expectation => BootHttpStatus::ExpectationFailed,
        }
    }
}

/// The header fields that the server uses.
#[derive(Default)]
struct RequestHeaders<'a> {
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

impl<'a> RequestHeaders<'a> {
    fn read(fields: &[httparse::Header<'a>]) -> Result<Self, BootHttpRequestError> {
        let mut headers = Self::default();
        for field in fields {
            let value = std::str::from_utf8(field.value).ok().map(str::trim);
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("host") {
                headers.host = value;
                headers.hosts += 1;
            } else if is("range") {
                headers.range = value;
                headers.ranges += 1;
            } else if is("if-none-match") {
                headers.if_none_match = value;
            } else if is("if-range") {
                headers.if_range = value;
            } else if is("user-agent") {
                headers.user_agent = value;
            } else if is("connection") {
                for token in value.unwrap_or_default().split(',').map(str::trim) {
                    headers.close |= token.eq_ignore_ascii_case("close");
                    headers.keep_alive |= token.eq_ignore_ascii_case("keep-alive");
                }
            } else if is("expect") {
                return Err(BootHttpRequestError::Expectation);
            } else if is("transfer-encoding") || (is("content-length") && value != Some("0")) {
                return Err(BootHttpRequestError::Body);
            }
        }
        Ok(headers)
    }
}

/// Splits the absolute form that proxies send into path and authority.
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
