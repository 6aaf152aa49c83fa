// SPDX-License-Identifier: Apache-2.0
//! A node's serial console: recent and live output as an event stream, and input.
//!
//! Callers who may see the console's address may read it, callers who may enable it may write.

use std::time::{Duration, Instant};

use bytes::Bytes;
use conductor::{ConsoleChunk, ConsoleStream};
use http::Method;
use ironic_wire::{WireError, parse_object};
use node_model::Node;
use serde_json::Value;
use store::Store;
use tokio::sync::watch;

use super::events::{KEEP_ALIVE, StreamClient};
use crate::handler;
use crate::ironic::nodes::path_node::find_node_id;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, EventSender, UNVERSIONED};

const CONSOLE: &str = "/v1/ferrite/nodes/{node}/console";
/// Interval of checks whether the caller may still read the console.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum length of one input in bytes.
const MAX_INPUT: usize = 4 << 10;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(CONSOLE, "Follow the output of a node's console", handler!(follow))
        .resource("baremetal:node:get_console")
        .since(UNVERSIONED),
    ApiRoute::new(Method::POST, CONSOLE, "Send input to a node's console", handler!(send_input))
        .resource("baremetal:node:set_console_state")
        .since(UNVERSIONED),
];

async fn follow(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let output = request.app.conductor.watch_console(id).await?;
    let (response, sender) = ApiResponse::events();
    let stopping = request.app.watch_stopping();
    let client = StreamClient::new(&request);
    let access = ConsoleAccess {
        store: request.app.store.clone(),
        node: ResourceIdent::from_path(&request, "node"),
        checked_at: Instant::now(),
    };
    tokio::spawn(run(output, client, access, sender, stopping));
    Ok(response)
}

async fn send_input(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = parse_object(&request.body, "console")?;
    let text = match body.get("text") {
        Some(Value::String(text)) if body.len() == 1 => text,
        Some(_) | None => {
            return Err(
                WireError::invalid("The body must be an object with the string text.").into()
            );
        }
    };
    if text.len() > MAX_INPUT {
        let why = format!("it may have at most {MAX_INPUT} bytes at once");
        return Err(WireError::invalid_field("text", &why).into());
    }
    let id = find_node_id(&request).await?;
    request.app.conductor.send_console_input(id, text.clone().into_bytes()).await?;
    Ok(ApiResponse::no_content())
}

/// Streams until the client disconnects, the console is disabled or the server stops.
async fn run(
    output: ConsoleStream,
    client: StreamClient,
    access: ConsoleAccess,
    sender: EventSender,
    mut stopping: watch::Receiver<bool>,
) {
    let stopped = async {
        // An error means that the server is gone.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    tokio::select! {
        () = stream(output, &client, access, &sender) => {}
        () = sender.closed() => {}
        () = stopped => {}
    }
}

/// Whether the caller may still read the console: the node may have got another owner or lessee.
struct ConsoleAccess {
    store: Store,
    node: ResourceIdent,
    checked_at: Instant,
}

impl ConsoleAccess {
    /// Reads the node again if the last check is older than [`ACCESS_CHECK_INTERVAL`].
    async fn is_allowed(&mut self) -> bool {
        if self.checked_at.elapsed() < ACCESS_CHECK_INTERVAL {
            return true;
        }
        self.checked_at = Instant::now();
        let ident = self.node.clone();
        self.store.read(move |reader| ident.find::<Node>(reader).map(drop)).await.is_ok()
    }
}

async fn stream(
    mut output: ConsoleStream,
    client: &StreamClient,
    mut access: ConsoleAccess,
    sender: &EventSender,
) {
    let mut decoder = Utf8Decoder::default();
    let mut next = Some(decoder.event(&output.take_recent()));
    loop {
        if let Some(event) = next.take()
            && sender.send(event).await.is_err()
        {
            return;
        }
        next = Some(match tokio::time::timeout(KEEP_ALIVE, output.next()).await {
            Err(_) => Bytes::from_static(b": heartbeat\n\n"),
            Ok(Some(ConsoleChunk::Bytes(bytes))) => decoder.event(&bytes),
            Ok(Some(ConsoleChunk::Skipped)) => decoder.event(b"\r\n[some output was left out]\r\n"),
            Ok(None) => {
                // Distinguishes the end from a lost connection.
                let _ = sender.send(Bytes::from_static(b"event: end\ndata: {}\n\n")).await;
                return;
            }
        });
        if !client.is_authorized().await || !access.is_allowed().await {
            return;
        }
    }
}

/// Decodes UTF-8 whose characters may be split between chunks.
#[derive(Default)]
struct Utf8Decoder {
    rest: Vec<u8>,
}

impl Utf8Decoder {
    /// The event for these bytes. A JSON string contains no line breaks.
    fn event(&mut self, bytes: &[u8]) -> Bytes {
        let text = Value::from(self.decode(bytes));
        Bytes::from(format!("event: output\ndata: {text}\n\n"))
    }

    fn decode(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.rest.len());
        let mut read = 0;
        while read < self.rest.len() {
            let chunk = self.rest[read..].utf8_chunks().next().expect("the rest is not empty");
            text.push_str(chunk.valid());
            read += chunk.valid().len();
            let invalid = chunk.invalid();
            let is_last = read + invalid.len() == self.rest.len();
            if is_last && std::str::from_utf8(invalid).is_err_and(|it| it.error_len().is_none()) {
                // Incomplete character: the rest is in the next chunk.
                break;
            }
            if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                read += invalid.len();
            }
        }
        self.rest.drain(..read);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_characters_split_between_chunks() {
        for (pieces, expected) in [
            (&[b"plain".as_slice()][..], "plain"),
            (&[b"gr\xc3", b"\xbcn"], "grün"),
            (&[b"\xe2", b"\x94", b"\x80-"], "─-"),
            (&[b"\xff\xfe", b"x"], "\u{fffd}\u{fffd}x"),
            (&[b"\xc3", b"x"], "\u{fffd}x"),
            (&[b"\xc3(\xc3", b"\xbc"], "\u{fffd}(ü"),
        ] {
            let mut decoder = Utf8Decoder::default();
            let text: String = pieces.iter().map(|piece| decoder.decode(piece)).collect();
            assert_eq!(text, expected, "{pieces:?}");
        }
        let event = Utf8Decoder::default().event(b"\x1b[1mbold\r\n");
        assert_eq!(event, "event: output\ndata: \"\\u001b[1mbold\\r\\n\"\n\n");
    }
}
