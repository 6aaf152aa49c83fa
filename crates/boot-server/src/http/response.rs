// SPDX-License-Identifier: Apache-2.0
//! Builds responses: status, head and body, without sockets.

use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use boot_media::Content;
use node_model::Timestamp;

use super::files::{HttpFile, HttpRefusalReason};
use super::range::{if_none_match_matches, if_range_matches};
use super::request::{
    BootHttpMethod, BootHttpRequest, BootHttpRequestError, ConnectionPersistence,
};
use super::status::BootHttpStatus;

/// A response.
#[derive(Debug, Clone)]
pub struct BootHttpResponse {
    /// The status.
    pub status: BootHttpStatus,
    /// The body; empty for HEAD and 304.
    pub content: Content,
    /// The `Content-Length`, which for HEAD is not the length of `content`.
    pub content_length: Option<u64>,
    /// The `Content-Range`.
    pub content_range: Option<HttpContentRange>,
    /// The `Content-Type`.
    pub media_type: &'static str,
    /// The entity tag, without quotes.
    pub etag: Option<Arc<str>>,
    /// The `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// The part of a file that a response contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpContentRange {
    /// The range; `None` if the requested range is outside the file.
    pub range: Option<Range<u64>>,
    /// The length of the file.
    pub total: u64,
}

/// Returns the response to a request for which there is a file.
#[must_use]
pub fn file_response(request: &BootHttpRequest<'_>, file: HttpFile) -> BootHttpResponse {
    let etag = file.etag.as_deref();
    let total = file.content.length();
    let is_not_modified =
        request.if_none_match.is_some_and(|value| if_none_match_matches(value, etag));
    let is_range_valid = request.if_range.is_none_or(|value| if_range_matches(value, etag));
    let range = request.range.filter(|_| is_range_valid).map(|range| range.resolve(total));
    let (status, content_length, content_range) = match range {
        _ if is_not_modified => (BootHttpStatus::NotModified, None, None),
        None => (BootHttpStatus::Ok, Some(total), None),
        Some(None) => (
            BootHttpStatus::RangeNotSatisfiable,
            Some(0),
            Some(HttpContentRange { range: None, total }),
        ),
        Some(Some(range)) => {
            let length = range.end - range.start;
            (
                BootHttpStatus::PartialContent,
                Some(length),
                Some(HttpContentRange { range: Some(range), total }),
            )
        }
    };
    let content = match (request.method, status, &content_range) {
        (BootHttpMethod::Head, ..) | (_, BootHttpStatus::NotModified, _) => Content::new(),
        (BootHttpMethod::Get, _, Some(part)) => {
            file.content.slice(part.range.clone().unwrap_or(0..0))
        }
        (BootHttpMethod::Get, _, None) => file.content,
    };
    BootHttpResponse {
        status,
        content,
        content_length,
        content_range,
        media_type: file.media_type,
        etag: file.etag,
        retry_after: None,
    }
}

/// Returns the response to a request that gets no file.
#[must_use]
pub fn refusal_response(method: BootHttpMethod, reason: &HttpRefusalReason) -> BootHttpResponse {
    let (status, text) = reason.status_and_text();
    let retry_after = match reason {
        HttpRefusalReason::Unavailable { retry_after, .. } => Some(*retry_after),
        HttpRefusalReason::NotFound | HttpRefusalReason::Gone | HttpRefusalReason::Forbidden => {
            None
        }
    };
    BootHttpResponse { retry_after, ..text_response(method, status, text) }
}

/// Returns the response to a error request.
#[must_use]
pub fn error_response(method: BootHttpMethod, error: BootHttpRequestError) -> BootHttpResponse {
    text_response(method, error.status(), &error.to_string())
}

impl BootHttpResponse {
    /// Appends the head to `out`.
    pub fn write_head(
        &self,
        persistence: ConnectionPersistence,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        let (code, phrase) = self.status.code_and_phrase();
        let now = UNIX_EPOCH + now.since(Timestamp(0));
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("writing to a vector does not fail");
        };
        line(format_args!(
            "HTTP/1.1 {code} {phrase}\r\nDate: {}\r\n",
            httpdate::HttpDate::from(now)
        ));
        if let Some(length) = self.content_length {
            line(format_args!("Content-Length: {length}\r\n"));
        }
        if self.content_length.is_some_and(|length| length > 0) {
            line(format_args!("Content-Type: {}\r\n", self.media_type));
        }
        if let Some(etag) = &self.etag {
            line(format_args!("ETag: \"{etag}\"\r\n"));
        }
        match &self.content_range {
            Some(HttpContentRange { range: Some(range), total }) => {
                let (first, last) = (range.start, range.end - 1);
                line(format_args!("Content-Range: bytes {first}-{last}/{total}\r\n"));
            }
            Some(HttpContentRange { range: None, total }) => {
                line(format_args!("Content-Range: bytes */{total}\r\n"));
            }
            None => {}
        }
        if matches!(self.status, BootHttpStatus::Ok | BootHttpStatus::PartialContent) {
            line(format_args!("Accept-Ranges: bytes\r\n"));
        }
        if self.status == BootHttpStatus::MethodNotAllowed {
            line(format_args!("Allow: GET, HEAD\r\n"));
        }
        if let Some(wait) = self.retry_after {
            line(format_args!("Retry-After: {}\r\n", wait.as_secs().max(1)));
        }
        match persistence {
            ConnectionPersistence::KeepAlive => {}
            ConnectionPersistence::KeepAliveHeader => {
                line(format_args!("Connection: keep-alive\r\n"))
            }
            ConnectionPersistence::Close => line(format_args!("Connection: close\r\n")),
        }
        line(format_args!("\r\n"));
    }
}

fn text_response(method: BootHttpMethod, status: BootHttpStatus, text: &str) -> BootHttpResponse {
    let body = format!("{text}\n").into_bytes();
    let content_length = Some(body.len() as u64);
    let content = match method {
        BootHttpMethod::Get => Content::from(body),
        BootHttpMethod::Head => Content::new(),
    };
    let media_type = "text/plain; charset=utf-8";
    BootHttpResponse {
        status,
        content,
        content_length,
        content_range: None,
        media_type,
        etag: None,
        retry_after: None,
    }
}
