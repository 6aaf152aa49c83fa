// SPDX-License-Identifier: Apache-2.0
//! One connection: reads requests and sends the responses in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use connection_limits::ConnectionSlot;
use tokio::time::{Instant, timeout, timeout_at};

use super::client_stream::ClientStream;
use super::files::{HttpFileRefusal, HttpRefusalReason};
use super::request::{
    BootHttpMethod, BootHttpRequest, BootHttpRequestError, ConnectionPersistence, MAX_HEAD_BYTES,
    ParsedHttpRequest, parse_request,
};
use super::response::{BootHttpResponse, error_response, file_response, refusal_response};
use super::server::{BootHttpLimits, BootHttpServices};
use crate::{BootEvent, BootEventDetail};

/// A connection and its client.
pub(super) struct HttpConnection {
    pub(super) stream: ClientStream,
    pub(super) client: SocketAddr,
    slot: Arc<ConnectionSlot>,
    had_request: bool,
    pub(super) limits: BootHttpLimits,
    pub(super) services: BootHttpServices,
    /// The `User-Agent` of the last request. Kept, because clients send the same one in every request.
    user_agent: Arc<str>,
    /// The head that is being sent. Kept to reuse its allocation.
    head: Vec<u8>,
}

/// The event data of one request.
struct ExchangeInfo {
    title: Arc<str>,
    machine: Option<Arc<str>>,
    started: Instant,
}

/// Enough for the requests of firmware; the buffer grows for longer ones.
const INITIAL_INPUT_CAPACITY: usize = 1 << 10;
/// The number of bytes that are read from a client that still sends after it was refused.
const MAX_DRAINED_BYTES: usize = 64 << 10;
const LINGER: Duration = Duration::from_secs(2);

impl HttpConnection {
    pub(super) fn new(
        stream: ClientStream,
        client: SocketAddr,
        slot: Arc<ConnectionSlot>,
        limits: BootHttpLimits,
        services: BootHttpServices,
    ) -> Self {
        Self {
            stream,
            client,
            slot,
            had_request: false,
            limits,
            services,
            user_agent: Arc::default(),
            head: Vec::new(),
        }
    }

    /// Serves until either side closes the connection.
    pub(super) async fn run(mut self) {
        let mut input = Vec::with_capacity(INITIAL_INPUT_CAPACITY);
        while let Some(persistence) = self.serve_next(&mut input).await {
            match persistence {
                ConnectionPersistence::KeepAlive | ConnectionPersistence::KeepAliveHeader => {}
                ConnectionPersistence::Close => return self.close(input).await,
            }
        }
    }

    /// Reads one request and responds. Returns `None` if the connection is closed or failed.
    async fn serve_next(&mut self, input: &mut Vec<u8>) -> Option<ConnectionPersistence> {
        // One deadline for the whole head, so that sending it byte by byte does not extend it.
        let head_timeout =
            if self.had_request { self.limits.idle_timeout } else { self.limits.head_timeout };
        let deadline = Instant::now() + head_timeout;
        loop {
            match parse_request(input, self.client) {
                Ok(Some(parsed)) => {
                    let length = parsed.length;
                    self.had_request = true;
                    if !self.slot.start_work() {
                        return None;
                    }
                    let persistence = self.handle(parsed).await.ok()?;
                    self.slot.finish_work();
                    input.drain(..length);
                    return Some(persistence);
                }
                Ok(None) => {}
                Err(error) => {
                    let is_head = input.starts_with(b"HEAD ");
                    let method = if is_head { BootHttpMethod::Head } else { BootHttpMethod::Get };
                    self.reject_malformed(method, error).await.ok()?;
                    return Some(ConnectionPersistence::Close);
                }
            }
            let read = timeout_at(deadline, self.stream.read(input, MAX_HEAD_BYTES)).await;
            if !matches!(read, Ok(Ok(1..))) {
                return None;
            }
        }
    }

    async fn handle(&mut self, parsed: ParsedHttpRequest<'_>) -> io::Result<ConnectionPersistence> {
        let request = &parsed.request;
        let started = Instant::now();
        self.set_user_agent(request);
        let lookup = timeout(self.limits.lookup_timeout, self.services.files.file(request)).await;
        let file = lookup.unwrap_or_else(|_| {
            let reason = "the lookup of the file timed out; try again".into();
            Err(HttpFileRefusal::new(HttpRefusalReason::Unavailable {
                reason,
                retry_after: Duration::from_secs(5),
            }))
        });
        let (response, title, machine) = match file {
            Ok(file) => {
                let (title, machine) = (file.title.clone(), file.machine.clone());
                if machine.is_some() {
                    self.slot.mark_known(Instant::now().into_std());
                }
                (file_response(request, file), title, machine)
            }
            Err(HttpFileRefusal { reason, title, machine }) => {
                let title = title.unwrap_or_else(|| request.redacted_path().into());
                (refusal_response(request.method, &reason), title, machine)
            }
        };
        self.send(&response, parsed.persistence, ExchangeInfo { title, machine, started }).await?;
        Ok(parsed.persistence)
    }

    async fn reject_malformed(
        &mut self,
        method: BootHttpMethod,
        error: BootHttpRequestError,
    ) -> io::Result<()> {
        let response = error_response(method, error);
        let title = format!("refused: {error}").into();
        let exchange = ExchangeInfo { title, machine: None, started: Instant::now() };
        self.send(&response, ConnectionPersistence::Close, exchange).await
    }

    async fn send(
        &mut self,
        response: &BootHttpResponse,
        persistence: ConnectionPersistence,
        exchange: ExchangeInfo,
    ) -> io::Result<()> {
        let mut sent = 0;
        self.head.clear();
        response.write_head(persistence, (self.services.clock)(), &mut self.head);
        let stall = self.limits.stall_timeout;
        let outcome = self.stream.send(&mut self.head, &response.content, stall, &mut sent).await;
        if let Err(error) = &outcome {
            tracing::debug!(client = %self.client, title = %exchange.title, %error, "HTTP send failed");
        }
        self.services.events.record(BootEvent {
            at: (self.services.clock)(),
            interface: Arc::default(),
            hardware: None,
            address: Some(self.client.ip()),
            architecture: None,
            stage: None,
            is_known: exchange.machine.is_some(),
            no_loadable_boot_file: false,
            machine: exchange.machine,
            detail: BootEventDetail::Http {
                title: exchange.title,
                status: response.status.code(),
                bytes_sent: sent,
                is_complete: outcome.is_ok(),
                duration: exchange.started.elapsed(),
                user_agent: self.user_agent.clone(),
            },
        });
        outcome
    }

    fn set_user_agent(&mut self, request: &BootHttpRequest<'_>) {
        let user_agent = truncate_user_agent(request.user_agent.unwrap_or_default());
        if *self.user_agent != *user_agent {
            self.user_agent = user_agent.into();
        }
    }

    /// Closes the connection. A refused client may still be sending. Closing with unread bytes resets
    /// the connection, and the client may lose the response, so the bytes are read for a while.
    async fn close(mut self, mut input: Vec<u8>) {
        let _ = timeout(LINGER, async {
            self.stream.shutdown().await?;
            let mut drained = 0;
            while drained < MAX_DRAINED_BYTES {
                input.clear();
                match self.stream.read(&mut input, MAX_HEAD_BYTES).await? {
                    0 => break,
                    count => drained += count,
                }
            }
            io::Result::Ok(())
        })
        .await;
    }
}

/// Returns the first 64 characters.
fn truncate_user_agent(user_agent: &str) -> &str {
    const MAX_CHARS: usize = 64;
    match user_agent.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => &user_agent[..end],
        None => user_agent,
    }
}
