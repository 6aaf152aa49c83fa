// SPDX-License-Identifier: Apache-2.0
//! Server-sent events, as Ferrite tells what happens.

use reqwest::Response;
use serde_json::Value;

use crate::error::ApiError;

/// A stream of events.
pub struct Events {
    response: Response,
    url: String,
    request: String,
    /// What came and is no whole event yet.
    text: Vec<u8>,
}

/// Something that happened.
#[derive(Debug, PartialEq)]
pub struct Event {
    /// Its place in the journal, to go on from after a disconnection.
    pub id: Option<u64>,
    /// What it tells.
    pub data: Value,
}

impl Events {
    pub(crate) fn new(response: Response, url: String, request: String) -> Self {
        Self { response, url, request, text: Vec::new() }
    }

    /// The next event; none when the server ends the stream.
    pub async fn next(&mut self) -> Result<Option<Event>, ApiError> {
        loop {
            if let Some(event) = take_event(&mut self.text) {
                return Ok(Some(event));
            }
            let chunk = self.response.chunk().await.map_err(|error| ApiError::BrokenOff {
                url: self.url.clone(),
                request: self.request.clone(),
                source: error.without_url(),
            })?;
            match chunk {
                Some(chunk) => self.text.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

/// Takes the first whole event off the text, passing over what is only a sign of life.
fn take_event(text: &mut Vec<u8>) -> Option<Event> {
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
            return Some(Event { id, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_come_whole_however_they_arrive() {
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
                Event { id: Some(7), data: json!({"a": 1}) },
                Event { id: None, data: json!({"b": 2}) },
            ];
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }
}
