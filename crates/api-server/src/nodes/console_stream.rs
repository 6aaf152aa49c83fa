// SPDX-License-Identifier: Apache-2.0
//! A node's console over the API: what it said last and says now, as a stream of events, and a way to
//! type.
//!
//! Whoever may see where a console is may read it, and whoever may switch it may type. Both are asked
//! for as everything else is: those who have signed in.

use bytes::Bytes;
use conductor::{ConsoleWatch, Printed, TypingError};
use http::Method;
use ironic_wire::{WireError, parse_object};
use serde_json::Value;
use tokio::sync::watch;

use super::reach::node_id;
use crate::call::Call;
use crate::event_stream::{HEARTBEAT, Listener};
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::{EventSender, Reply};
use crate::routes::{Route, UNVERSIONED};

const CONSOLE: &str = "/v1/ferrite/nodes/{node}/console";
/// The most that is typed at once, in bytes.
const MOST_TYPED: usize = 4 << 10;

pub(crate) const ROUTES: &[Route] = &[
    Route::get(CONSOLE, "Follow what a node's console says", handler!(follow)).since(UNVERSIONED),
    Route::new(Method::POST, CONSOLE, "Type at a node's console", handler!(type_in))
        .since(UNVERSIONED),
];

async fn follow(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let feed = call.app.conductor.console_feed(id).await?;
    let Some(watching) = feed.watch() else {
        let message = format!("Too many watch the console of node {id} already.");
        return Err(WireError::unavailable(message).into());
    };
    let (reply, sender) = Reply::events();
    let stopping = call.app.watch_stopping();
    let listener = Listener::of(&call);
    tokio::spawn(run(watching, listener, sender, stopping));
    Ok(reply)
}

async fn type_in(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let body = parse_object(&call.body, "console")?;
    let text = match body.get("text") {
        Some(Value::String(text)) if body.len() == 1 => text,
        Some(_) | None => {
            return Err(
                WireError::invalid("Give what is to be typed as text, and nothing else.").into()
            );
        }
    };
    if text.len() > MOST_TYPED {
        let why = format!("it may have at most {MOST_TYPED} bytes at once");
        return Err(WireError::invalid_field("text", &why).into());
    }
    let id = node_id(&call).await?;
    let feed = call.app.conductor.console_feed(id).await?;
    feed.type_in(text.clone().into_bytes()).map_err(|error| {
        let message = format!("Nothing was typed at the console of node {id}: {error}.");
        match error {
            TypingError::NotConnected => WireError::conflict(message),
            TypingError::Busy => WireError::unavailable(message),
        }
    })?;
    Ok(Reply::no_content())
}

/// Streams until the client goes away, the console is switched off or the server stops.
async fn run(
    watching: ConsoleWatch,
    listener: Listener,
    sender: EventSender,
    mut stopping: watch::Receiver<bool>,
) {
    let stopped = async {
        // Also over when the server is gone altogether.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    tokio::select! {
        () = stream(watching, &listener, &sender) => {}
        () = sender.closed() => {}
        () = stopped => {}
    }
}

async fn stream(mut watching: ConsoleWatch, listener: &Listener, sender: &EventSender) {
    let mut decoder = Decoder::default();
    let mut next = Some(decoder.event(&watching.take_so_far()));
    loop {
        if let Some(event) = next.take()
            && sender.send(event).await.is_err()
        {
            return;
        }
        next = Some(match tokio::time::timeout(HEARTBEAT, watching.next()).await {
            Err(_) => Bytes::from_static(b": heartbeat\n\n"),
            Ok(Some(Printed::Bytes(bytes))) => decoder.event(&bytes),
            Ok(Some(Printed::Missed)) => decoder.event(b"\r\n[some output was left out]\r\n"),
            Ok(None) => {
                // Whoever is still there is told that this is no loss of connection.
                let _ = sender.send(Bytes::from_static(b"event: end\ndata: {}\n\n")).await;
                return;
            }
        });
        if !listener.may_go_on() {
            return;
        }
    }
}

/// Makes text of bytes, of which a letter may come in two parts.
#[derive(Default)]
struct Decoder {
    rest: Vec<u8>,
}

impl Decoder {
    /// The event that says these bytes: JSON text, for it has no line breaks.
    fn event(&mut self, bytes: &[u8]) -> Bytes {
        let text = Value::from(self.text(bytes));
        Bytes::from(format!("event: output\ndata: {text}\n\n"))
    }

    fn text(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.rest.len());
        let mut read = 0;
        while read < self.rest.len() {
            let chunk = self.rest[read..].utf8_chunks().next().expect("there is something left");
            text.push_str(chunk.valid());
            read += chunk.valid().len();
            let invalid = chunk.invalid();
            let is_last = read + invalid.len() == self.rest.len();
            if is_last && std::str::from_utf8(invalid).is_err_and(|it| it.error_len().is_none()) {
                // The rest of the letter is still to come.
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
    fn letters_in_two_parts_are_one() {
        for (pieces, expected) in [
            (&[b"plain".as_slice()][..], "plain"),
            (&[b"gr\xc3", b"\xbcn"], "grün"),
            (&[b"\xe2", b"\x94", b"\x80-"], "─-"),
            (&[b"\xff\xfe", b"x"], "\u{fffd}\u{fffd}x"),
            (&[b"\xc3", b"x"], "\u{fffd}x"),
            (&[b"\xc3(\xc3", b"\xbc"], "\u{fffd}(ü"),
        ] {
            let mut decoder = Decoder::default();
            let text: String = pieces.iter().map(|piece| decoder.text(piece)).collect();
            assert_eq!(text, expected, "{pieces:?}");
        }
        let event = Decoder::default().event(b"\x1b[1mbold\r\n");
        assert_eq!(event, "event: output\ndata: \"\\u001b[1mbold\\r\\n\"\n\n");
    }
}
