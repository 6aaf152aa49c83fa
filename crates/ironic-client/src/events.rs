// SPDX-License-Identifier: Apache-2.0
//! A client for server-sent events.

use reqwest::Response;
use serde_json::Value;

use crate::error::IronicClientError;

/// A stream of events.
pub struct EventStream {
    response: Response,
    url: String,
    request: String,
    /// Received bytes of an incomplete event.
    buffer: Vec<u8>,
}

/// One event with JSON data.
#[derive(Debug, PartialEq)]
pub struct ServerSentEvent {
    /// The id to resume after, if the connection is lost.
    pub id: Option<u64>,
    /// The payload.
    pub data: Value,
}

impl EventStream {
    pub(crate) fn new(response: Response, url: String, request: String) -> Self {
        Self { response, url, request, buffer: Vec::new() }
    }

    /// Returns the next event; `None` when the server ends the stream.
    pub async fn next(&mut self) -> Result<Option<ServerSentEvent>, IronicClientError> {
        loop {
            if let Some(event) = take_event(&mut self.buffer) {
                return Ok(Some(event));
            }
            let chunk =
                self.response.chunk().await.map_err(|error| IronicClientError::Interrupted {
                    url: self.url.clone(),
                    request: self.request.clone(),
                    source: error.without_url(),
                })?;
            match chunk {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

/// Removes the first complete event from the buffer. Comments and events without JSON are skipped.
fn take_event(text: &mut Vec<u8>) -> Option<ServerSentEvent> {
    loop {
        let end = text.windows(2).position(|pair| pair == b"\n\n")?;
        let block: Vec<u8> = text.drain(..end + 2).collect();
        let block = String::from_utf8_lossy(&block);
        let field = |name: &'static str| {
            block.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let data: Vec<&str> = field("data").map(str::trim_start).collect();
        if let Ok(data) = serde_json::from_str(&data.join("\n")) {
            let id = field("id").next().and_then(|id| id.trim().parse().ok());
            return Some(ServerSentEvent { id, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_events_in_chunks_of_any_size() {
        let stream =
            b": following\n\nid: 7\ndata: {\"a\": 1}\n\n: heartbeat\n\ndata: {\"b\":\ndata: 2}\n\n";
        for size in 1..stream.len() {
            let (mut text, mut events) = (Vec::new(), Vec::new());
            for piece in stream.chunks(size) {
                text.extend_from_slice(piece);
                while let Some(event) = take_event(&mut text) {
                    events.push(event);
                }
            }
            let expected = [
                ServerSentEvent { id: Some(7), data: json!({"a": 1}) },
                ServerSentEvent { id: None, data: json!({"b": 2}) },
            ];
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }
}
