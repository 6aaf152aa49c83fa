// SPDX-License-Identifier: Apache-2.0
//! Reads request bodies within their size and time limits.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use hyper::body::{Body, Frame, Incoming};
use ironic_wire::WireError;

use super::routes::BodyLimit;
use crate::config::ApiConfig;

/// How much of the body of a rejected request is still read, and for how long. A client that sends
/// its whole body before it reads would otherwise lose the response to a connection reset.
const MAX_DISCARDED: usize = 64 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the complete body. Leaves a rejected body in `body`, so that it can be discarded.
pub(super) async fn read_body(
    body: &mut Option<Incoming>,
    limit: BodyLimit,
    config: &ApiConfig,
) -> Result<Bytes, WireError> {
    let Some(incoming) = body.as_mut().filter(|incoming| !incoming.is_end_stream()) else {
        return Ok(Bytes::new());
    };
    let limit = match limit {
        BodyLimit::Small => config.body_limits.small,
        BodyLimit::Provision => config.body_limits.provision,
        BodyLimit::Inspection => config.body_limits.inspection,
    };
    if incoming.size_hint().lower() > limit as u64 {
        return Err(WireError::body_too_large(limit));
    }
    let collected = match tokio::time::timeout(config.body_timeout, collect(incoming, limit)).await
    {
        Ok(collected) => collected?,
        Err(_) => {
            // A client this slow is not worth discarding the rest for.
            *body = None;
            return Err(WireError::router(408, "the body did not arrive in time"));
        }
    };
    *body = None;
    Ok(collected)
}

/// Collects all data frames. A body that arrives as one frame is not copied.
async fn collect(body: &mut Incoming, limit: usize) -> Result<Bytes, WireError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = next_frame(body).await {
        let frame = frame.map_err(|_| WireError::invalid("the body ended before its time"))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + all.len() + data.len() > limit {
            return Err(WireError::body_too_large(limit));
        }
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
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
