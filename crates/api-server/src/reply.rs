// SPDX-License-Identifier: Apache-2.0
//! What a handler answers, and the body it becomes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// How many events may wait for a client that reads slowly before its reader is paused.
const EVENTS_IN_FLIGHT: usize = 16;

/// A handler's answer.
#[derive(Debug)]
pub struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: ReplyBody,
}

/// The end into which events are put. Dropping it ends the response.
pub type EventSender = mpsc::Sender<Bytes>;

/// A response body: all there, or arriving.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// All of it; empty for none.
    Whole(Bytes),
    /// Pieces as they come.
    Events(mpsc::Receiver<Bytes>),
}

impl Reply {
    /// 200 with a JSON body.
    #[must_use]
    pub fn ok(json: Vec<u8>) -> Self {
        Self::json(StatusCode::OK, json)
    }

    /// 201 with a JSON body and where to find what was created.
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

    /// A JSON body under any status.
    #[must_use]
    pub fn json(status: StatusCode, json: Vec<u8>) -> Self {
        Self::with_type(status, HeaderValue::from_static("application/json"), json)
    }

    /// A body of another type.
    #[must_use]
    pub fn with_type(status: StatusCode, content_type: HeaderValue, body: Vec<u8>) -> Self {
        Self::with_bytes(status, content_type, Bytes::from(body))
    }

    /// A body that is shared and not copied.
    #[must_use]
    pub fn with_bytes(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Self {
        Self {
            status,
            content_type: Some(content_type),
            headers: Vec::new(),
            body: ReplyBody::Whole(body),
        }
    }

    /// A status and nothing else.
    #[must_use]
    pub fn empty(status: StatusCode) -> Self {
        Self {
            status,
            content_type: None,
            headers: Vec::new(),
            body: ReplyBody::Whole(Bytes::new()),
        }
    }

    /// An open-ended stream of server-sent events, and the end to put them into.
    #[must_use]
    pub fn events() -> (Self, EventSender) {
        let (sender, receiver) = mpsc::channel(EVENTS_IN_FLIGHT);
        let reply = Self {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static("text/event-stream")),
            headers: vec![(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"))],
            body: ReplyBody::Events(receiver),
        };
        (reply, sender)
    }

    /// The same with a `Location` header. An address that cannot be a header value is left out.
    #[must_use]
    pub fn with_location(self, location: &str) -> Self {
        match HeaderValue::from_str(location) {
            Ok(value) => self.with_header(http::header::LOCATION, value),
            Err(_) => self,
        }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Events(receiver) => {
                receiver.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(_) => SizeHint::default(),
        }
    }
}
