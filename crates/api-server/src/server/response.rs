// SPDX-License-Identifier: Apache-2.0
//! What a handler returns, and its HTTP body.

use std::convert::Infallible;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, LOCATION};
use http::{HeaderName, HeaderValue, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;
use tokio::sync::mpsc;

use super::client_connection::RequestInProgress;

/// Events buffered for a slow client before its producer waits.
const EVENTS_IN_FLIGHT: usize = 16;
/// Smaller bodies are not worth compressing.
const MIN_COMPRESSED: usize = 8 * 1024;

/// A handler's response.
#[derive(Debug)]
pub struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: ResponseBody,
}

/// Sends events into a streamed response. Dropping it ends the response.
pub type EventSender = mpsc::Sender<Bytes>;

/// A response body.
#[derive(Debug)]
pub enum ResponseBody {
    /// The complete body; may be empty.
    Complete(Bytes),
    /// Events as they arrive.
    Events(mpsc::Receiver<Bytes>),
}

impl ApiResponse {
    /// 200 with a JSON body.
    #[must_use]
    pub fn ok(json: Vec<u8>) -> Self {
        Self::json(StatusCode::OK, json)
    }

    /// 200 with a JSON value.
    #[must_use]
    pub fn ok_value(value: &Value) -> Self {
        Self::ok(value.to_string().into_bytes())
    }

    /// 201 with a JSON body and the URL of the new resource.
    #[must_use]
    pub fn created(json: Vec<u8>, location: &str) -> Self {
        Self::json(StatusCode::CREATED, json).with_location(location)
    }

    /// 202 without a body.
    #[must_use]
    pub fn accepted() -> Self {
        Self::empty(StatusCode::ACCEPTED)
    }

    /// 204.
    #[must_use]
    pub fn no_content() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    /// A JSON body with any status.
    #[must_use]
    pub fn json(status: StatusCode, json: Vec<u8>) -> Self {
        Self::with_type(status, HeaderValue::from_static("application/json"), json)
    }

    /// A body with any content type.
    #[must_use]
    pub fn with_type(status: StatusCode, content_type: HeaderValue, body: Vec<u8>) -> Self {
        Self::with_bytes(status, content_type, Bytes::from(body))
    }

    /// A body that is shared, not copied.
    #[must_use]
    pub fn with_bytes(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Self {
        Self {
            status,
            content_type: Some(content_type),
            headers: Vec::new(),
            body: ResponseBody::Complete(body),
        }
    }

    /// A status without a body.
    #[must_use]
    pub fn empty(status: StatusCode) -> Self {
        Self {
            status,
            content_type: None,
            headers: Vec::new(),
            body: ResponseBody::Complete(Bytes::new()),
        }
    }

    /// An open-ended stream of server-sent events, and the sender of its events.
    #[must_use]
    pub fn events() -> (Self, EventSender) {
        let (sender, receiver) = mpsc::channel(EVENTS_IN_FLIGHT);
        let response = Self {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static("text/event-stream")),
            headers: vec![(CACHE_CONTROL, HeaderValue::from_static("no-store"))],
            body: ResponseBody::Events(receiver),
        };
        (response, sender)
    }

    /// A stream of parts with another content type, and the sender of its parts.
    #[must_use]
    pub fn streamed(content_type: HeaderValue) -> (Self, EventSender) {
        let (response, sender) = Self::events();
        (Self { content_type: Some(content_type), ..response }, sender)
    }

    /// Adds a `Location` header. A URL that is not a valid header value is left out.
    #[must_use]
    pub fn with_location(self, location: &str) -> Self {
        match HeaderValue::from_str(location) {
            Ok(value) => self.with_header(LOCATION, value),
            Err(_) => self,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// A large body, gzip-compressed if the client accepts it and it is at least [`MIN_COMPRESSED`]
/// bytes long. Compression takes milliseconds: create it on the thread that reads the database.
pub(crate) struct MaybeCompressed {
    body: Vec<u8>,
    is_compressed: bool,
}

impl MaybeCompressed {
    pub(crate) fn new(body: Vec<u8>, accepts_gzip: bool) -> Self {
        match accepts_gzip.then(|| gzip(&body)).flatten() {
            Some(compressed) => Self { body: compressed, is_compressed: true },
            None => Self { body, is_compressed: false },
        }
    }

    /// 200 with the body as JSON, not to be cached.
    pub(crate) fn into_response(self) -> ApiResponse {
        let response = ApiResponse::ok(self.body)
            .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.is_compressed {
            response.with_header(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
        } else {
            response
        }
    }
}

fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < MIN_COMPRESSED {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).and_then(|()| encoder.finish()).ok()
}

/// A response body that keeps its connection from being closed until it is sent.
#[derive(Debug)]
pub(crate) struct TrackedBody {
    body: ResponseBody,
    _in_progress: Option<RequestInProgress>,
}

impl TrackedBody {
    pub(crate) fn new(body: ResponseBody, in_progress: Option<RequestInProgress>) -> Self {
        Self { body, _in_progress: in_progress }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Complete(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Complete(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Events(receiver) => {
                receiver.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Complete(bytes) => bytes.is_empty(),
            Self::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Complete(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(_) => SizeHint::default(),
        }
    }
}
