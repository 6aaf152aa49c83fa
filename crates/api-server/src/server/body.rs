// SPDX-License-Identifier: Apache-2.0
//! Reads request bodies within their size and time limits.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::EXPECT;
use hyper::body::{Body, Frame, Incoming};
use ironic_wire::WireError;

use super::byte_budget::BudgetShare;
use super::client_limits::ClientLimits;
use super::routes::BodyLimit;
use crate::app::App;
use crate::config::BodyLimits;
use crate::ironic::continue_inspection;

/// How much of the body of a rejected request is still read, and for how long. A client that sends
/// its whole body before it reads would otherwise lose the response to a connection reset.
const MAX_DISCARDED: usize = 64 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of [`BodyLimit::Message`].
const MAX_MESSAGE: usize = 256 * 1024;
/// Inspection data for which no node waits may be this long: unknown machines are recorded.
const MAX_UNEXPECTED_INSPECTION: usize = 2 * 1024 * 1024;
/// Memory that is allocated when the first bytes of a body arrive.
const MIN_ALLOCATION: usize = 16 * 1024;

/// A received body, and its share of the budget.
struct BudgetedBody {
    bytes: Vec<u8>,
    _share: BudgetShare,
}

impl AsRef<[u8]> for BudgetedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The size in bytes that a limit stands for.
pub(super) fn max_body(limits: &BodyLimits, limit: BodyLimit) -> usize {
    match limit {
        BodyLimit::Small => limits.small,
        BodyLimit::Message => limits.small.min(MAX_MESSAGE),
        BodyLimit::Provision => limits.provision,
        BodyLimit::Inspection => limits.inspection,
    }
}

/// Reads the complete body. Leaves a rejected body in `body`, so that it can be discarded. The body uses the
/// budget of `share` until its last copy is dropped.
pub(super) async fn read_body(
    app: &App,
    body: &mut Option<Incoming>,
    limit: BodyLimit,
    is_authenticated: bool,
    share: BudgetShare,
    query: &[(String, String)],
) -> Result<Bytes, WireError> {
    let Some(incoming) = body.as_mut().filter(|incoming| !incoming.is_end_stream()) else {
        return Ok(Bytes::new());
    };
    let limits = &app.config.body_limits;
    let length = incoming.size_hint();
    let limit = match limit {
        BodyLimit::Small | BodyLimit::Message | BodyLimit::Provision => max_body(limits, limit),
        BodyLimit::Inspection => {
            // Do not receive megabytes for which no node waits.
            let may_be_large =
                length.exact().is_none_or(|exact| exact > MAX_UNEXPECTED_INSPECTION as u64);
            if may_be_large && !continue_inspection::is_expected(app, query).await {
                if length.lower() > MAX_UNEXPECTED_INSPECTION as u64 {
                    return Err(continue_inspection::no_node_waits());
                }
                limits.inspection.min(MAX_UNEXPECTED_INSPECTION)
            } else {
                limits.inspection
            }
        }
    };
    if length.lower() > limit as u64 {
        return Err(WireError::body_too_large(limit));
    }
    let declared = length.exact();
    let receiver = BodyReceiver { limit, declared, is_authenticated, share, limits: &app.limits };
    let received = tokio::time::timeout(app.config.body_timeout, receiver.run(incoming)).await;
    let Ok(received) = received else {
        // A client this slow is not worth discarding the rest for.
        *body = None;
        return Err(WireError::router(408, "the body did not arrive in time"));
    };
    let received = received?;
    *body = None;
    Ok(received)
}

/// Receives one body.
struct BodyReceiver<'a> {
    limit: usize,
    /// `Content-Length`.
    declared: Option<u64>,
    is_authenticated: bool,
    share: BudgetShare,
    limits: &'a ClientLimits,
}

impl BodyReceiver<'_> {
    /// Collects all data frames. A body of an authenticated client that arrives as one frame is not copied.
    async fn run(mut self, body: &mut Incoming) -> Result<Bytes, WireError> {
        let mut first = Bytes::new();
        let mut bytes = Vec::new();
        while let Some(frame) = next_frame(body).await {
            let frame = frame.map_err(|_| WireError::invalid("the body ended before its time"))?;
            let Ok(data) = frame.into_data() else { continue };
            if first.len() + bytes.len() + data.len() > self.limit {
                return Err(WireError::body_too_large(self.limit));
            }
            if self.is_authenticated && first.is_empty() && bytes.is_empty() {
                first = data;
                continue;
            }
            for piece in [std::mem::take(&mut first), data] {
                self.reserve(&mut bytes, piece.len())?;
                bytes.extend_from_slice(&piece);
            }
        }
        if bytes.is_empty() {
            return Ok(first);
        }
        Ok(Bytes::from_owner(BudgetedBody { bytes, _share: self.share }))
    }

    /// Makes room for `additional` bytes. Memory is allocated as bytes arrive, whatever length the client
    /// declares, and counts for the budget before it is allocated.
    fn reserve(&mut self, bytes: &mut Vec<u8>, additional: usize) -> Result<(), WireError> {
        let needed = bytes.len() + additional;
        if needed <= bytes.capacity() {
            return Ok(());
        }
        let declared = self.declared.and_then(|length| usize::try_from(length).ok());
        let most = declared.unwrap_or(self.limit).min(self.limit);
        let capacity = (bytes.capacity() * 2).max(MIN_ALLOCATION).min(most).max(needed);
        let more = capacity - bytes.capacity();
        self.share.grow(more).map_err(|_| self.limits.body_rejected())?;
        let failed = |_| WireError::unavailable("The server is out of memory; try again soon.");
        bytes.try_reserve_exact(capacity - bytes.len()).map_err(failed)
    }
}

/// Reads and drops the rest of a body in the background, so that the client reads the response.
pub(super) fn discard(mut body: Incoming, headers: &HeaderMap) {
    // Reading would send 100-continue.
    if body.is_end_stream() || headers.contains_key(EXPECT) {
        return;
    }
    tokio::spawn(tokio::time::timeout(DISCARD_TIMEOUT, async move {
        let mut discarded = 0;
        while let Some(Ok(frame)) = next_frame(&mut body).await {
            discarded += frame.data_ref().map_or(0, Bytes::len);
            if discarded > MAX_DISCARDED {
                break;
            }
        }
    }));
}

async fn next_frame(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}
