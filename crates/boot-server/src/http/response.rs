// SPDX-License-Identifier: Apache-2.0
//! What is answered: the status, the head, and which bytes follow it. No sockets.

use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use boot_media::Content;
use node_model::Timestamp;

use super::pages::{Page, Reason};
use super::range::{none_match_names, range_is_current};
use super::request::{Malformed, Method, Persistence, Request};
use super::status::Status;

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Its status.
    pub status: Status,
    /// The bytes that follow the head; none for HEAD and for 304.
    pub content: Content,
    /// What `Content-Length` says, which for HEAD is not the length of `content`.
    pub length: Option<u64>,
    /// Which part of how much this is.
    pub part: Option<Part>,
    /// What the content is.
    pub media_type: &'static str,
    /// The tag of the page.
    pub etag: Option<Arc<str>>,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

/// Which part of a page an answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The bytes; `None` if there are none of those asked for.
    pub range: Option<Range<u64>>,
    /// The length of the page.
    pub of: u64,
}

/// The answer to a request for which there is a page.
#[must_use]
pub fn respond(request: &Request<'_>, page: Page) -> Response {
    let etag = page.etag.as_deref();
    let whole = page.content.length();
    let is_known = request.if_none_match.is_some_and(|named| none_match_names(named, etag));
    let range_counts = request.if_range.is_none_or(|named| range_is_current(named, etag));
    let asked = request.range.filter(|_| range_counts).map(|asked| asked.within(whole));
    let (status, length, part) = match asked {
        _ if is_known => (Status::NotModified, None, None),
        None => (Status::Ok, Some(whole), None),
        Some(None) => (Status::RangeNotSatisfiable, Some(0), Some(Part { range: None, of: whole })),
        Some(Some(range)) => {
            let length = range.end - range.start;
            (Status::PartialContent, Some(length), Some(Part { range: Some(range), of: whole }))
        }
    };
    let content = match (request.method, status, &part) {
        (Method::Head, ..) | (_, Status::NotModified, _) => Content::new(),
        (Method::Get, _, Some(part)) => page.content.slice(part.range.clone().unwrap_or(0..0)),
        (Method::Get, _, None) => page.content,
    };
    Response {
        status,
        content,
        length,
        part,
        media_type: page.media_type,
        etag: page.etag,
        retry_after: None,
    }
}

/// The answer to a request for which there is none.
#[must_use]
pub fn refuse(method: Method, reason: &Reason) -> Response {
    let (status, sentence) = reason.said();
    let retry_after = match reason {
        Reason::Unavailable { retry_after, .. } => Some(*retry_after),
        Reason::NotFound | Reason::Gone | Reason::Forbidden => None,
    };
    Response { retry_after, ..text(method, status, sentence) }
}

/// The answer to what is no proper request.
#[must_use]
pub fn reject(method: Method, malformed: Malformed) -> Response {
    text(method, malformed.status(), &malformed.to_string())
}

impl Response {
    /// Writes the head behind what is in `out`.
    pub fn write_head(&self, persistence: Persistence, now: Timestamp, out: &mut Vec<u8>) {
        let (code, words) = self.status.code_and_words();
        let now = UNIX_EPOCH + now.since(Timestamp(0));
        let mut line = |words: std::fmt::Arguments<'_>| {
            out.write_fmt(words).expect("a vector takes every byte");
        };
        line(format_args!(
            "HTTP/1.1 {code} {words}\r\nDate: {}\r\n",
            httpdate::HttpDate::from(now)
        ));
        if let Some(length) = self.length {
            line(format_args!("Content-Length: {length}\r\n"));
        }
        if self.length.is_some_and(|length| length > 0) {
            line(format_args!("Content-Type: {}\r\n", self.media_type));
        }
        if let Some(etag) = &self.etag {
            line(format_args!("ETag: \"{etag}\"\r\n"));
        }
        match &self.part {
            Some(Part { range: Some(range), of }) => {
                let (first, last) = (range.start, range.end - 1);
                line(format_args!("Content-Range: bytes {first}-{last}/{of}\r\n"));
            }
            Some(Part { range: None, of }) => {
                line(format_args!("Content-Range: bytes */{of}\r\n"));
            }
            None => {}
        }
        if matches!(self.status, Status::Ok | Status::PartialContent) {
            line(format_args!("Accept-Ranges: bytes\r\n"));
        }
        if self.status == Status::MethodNotAllowed {
            line(format_args!("Allow: GET, HEAD\r\n"));
        }
        if let Some(wait) = self.retry_after {
            line(format_args!("Retry-After: {}\r\n", wait.as_secs().max(1)));
        }
        match persistence {
            Persistence::Stays => {}
            Persistence::StaysAndSaysSo => line(format_args!("Connection: keep-alive\r\n")),
            Persistence::Ends => line(format_args!("Connection: close\r\n")),
        }
        line(format_args!("\r\n"));
    }
}

fn text(method: Method, status: Status, sentence: &str) -> Response {
    let body = format!("{sentence}\n").into_bytes();
    let length = Some(body.len() as u64);
    let content = match method {
        Method::Get => Content::from(body),
        Method::Head => Content::new(),
    };
    let media_type = "text/plain; charset=utf-8";
    Response { status, content, length, part: None, media_type, etag: None, retry_after: None }
}
