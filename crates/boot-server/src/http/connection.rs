// SPDX-License-Identifier: Apache-2.0
//! One connection: requests are read one after the other, and answered in that order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::pages::{Reason, Refusal};
use super::request::{LONGEST_HEAD, Malformed, Method, Parsed, Persistence, Request, parse};
use super::response::{Response, refuse, reject, respond};
use super::server::{Limits, Services};
use super::wire::Wire;
use crate::{Sighting, What};

/// A connection, and what is known of who is at its other end.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) client: SocketAddr,
    pub(super) limits: Limits,
    pub(super) services: Services,
    /// What the last request said the client is; it says the same in every one.
    agent: Arc<str>,
    /// The head that is being sent; kept for its room.
    head: Vec<u8>,
}

/// What is told of one exchange.
struct Told {
    title: Arc<str>,
    subject: Option<Arc<str>>,
    started: Instant,
}

/// Room for what firmware sends; longer heads make more.
const FIRST_ROOM: usize = 1 << 10;
/// The most bytes that are taken from a client that still sends when it was refused, and for how long.
const LEFT_OVER: usize = 64 << 10;
const LINGER: Duration = Duration::from_secs(2);

impl Connection {
    pub(super) fn new(wire: Wire, client: SocketAddr, limits: Limits, services: Services) -> Self {
        Self { wire, client, limits, services, agent: Arc::default(), head: Vec::new() }
    }

    /// Serves until the client or this side has had enough.
    pub(super) async fn run(mut self) {
        let mut input = Vec::with_capacity(FIRST_ROOM);
        while let Some(answered) = self.serve_next(&mut input).await {
            match answered {
                Persistence::Stays | Persistence::StaysAndSaysSo => {}
                Persistence::Ends => return self.end(input).await,
            }
        }
    }

    /// Reads and answers one request. `None` if the connection is broken, or over without a word.
    async fn serve_next(&mut self, input: &mut Vec<u8>) -> Option<Persistence> {
        // One deadline for the whole head: a client that sends it byte by byte gains nothing.
        let deadline = Instant::now() + self.limits.idle;
        loop {
            match parse(input, self.client) {
                Ok(Some(parsed)) => {
                    let length = parsed.length;
                    let persistence = self.answer(parsed).await.ok()?;
                    input.drain(..length);
                    return Some(persistence);
                }
                Ok(None) => {}
                Err(malformed) => {
                    let is_head = input.starts_with(b"HEAD ");
                    let method = if is_head { Method::Head } else { Method::Get };
                    self.turn_away(method, malformed).await.ok()?;
                    return Some(Persistence::Ends);
                }
            }
            let read = timeout_at(deadline, self.wire.read(input, LONGEST_HEAD)).await;
            if !matches!(read, Ok(Ok(1..))) {
                return None;
            }
        }
    }

    async fn answer(&mut self, parsed: Parsed<'_>) -> io::Result<Persistence> {
        let request = &parsed.request;
        let started = Instant::now();
        self.recognise(request);
        let asked = timeout(self.limits.page, self.services.pages.page(request)).await;
        let page = asked.unwrap_or_else(|_| {
            let why = "the page was not found in time; try again".into();
            Err(Refusal::new(Reason::Unavailable { why, retry_after: Duration::from_secs(5) }))
        });
        let (response, title, subject) = match page {
            Ok(page) => {
                let (title, subject) = (page.title.clone(), page.subject.clone());
                (respond(request, page), title, subject)
            }
            Err(Refusal { reason, title, subject }) => {
                let title = title.unwrap_or_else(|| request.told_path().into());
                (refuse(request.method, &reason), title, subject)
            }
        };
        self.send(&response, parsed.persistence, Told { title, subject, started }).await?;
        Ok(parsed.persistence)
    }

    async fn turn_away(&mut self, method: Method, malformed: Malformed) -> io::Result<()> {
        let response = reject(method, malformed);
        let title = format!("refused: {malformed}").into();
        let told = Told { title, subject: None, started: Instant::now() };
        self.send(&response, Persistence::Ends, told).await
    }

    async fn send(
        &mut self,
        response: &Response,
        persistence: Persistence,
        told: Told,
    ) -> io::Result<()> {
        let mut sent = 0;
        self.head.clear();
        response.write_head(persistence, (self.services.clock)(), &mut self.head);
        let stall = self.limits.stall;
        let outcome = self.wire.send(&mut self.head, &response.content, stall, &mut sent).await;
        if let Err(error) = &outcome {
            tracing::debug!(client = %self.client, title = %told.title, %error, "HTTP send");
        }
        self.services.sightings.seen(Sighting {
            at: (self.services.clock)(),
            interface: Arc::default(),
            hardware: None,
            address: Some(self.client.ip()),
            architecture: None,
            stage: None,
            known: told.subject.is_some(),
            nothing_to_load: false,
            subject: told.subject,
            what: What::Http {
                title: told.title,
                status: response.status.code(),
                sent,
                whole: outcome.is_ok(),
                took: told.started.elapsed(),
                agent: self.agent.clone(),
            },
        });
        outcome
    }

    fn recognise(&mut self, request: &Request<'_>) {
        let agent = shortened(request.user_agent.unwrap_or_default());
        if *self.agent != *agent {
            self.agent = agent.into();
        }
    }

    /// Ends the connection. A client that was refused may still be sending, and an end with bytes
    /// unread would reach it as an error and take the answer with it; so they are read for a while.
    async fn end(mut self, mut input: Vec<u8>) {
        let _ = timeout(LINGER, async {
            self.wire.finish().await?;
            let mut taken = 0;
            while taken < LEFT_OVER {
                input.clear();
                match self.wire.read(&mut input, LONGEST_HEAD).await? {
                    0 => break,
                    count => taken += count,
                }
            }
            io::Result::Ok(())
        })
        .await;
    }
}

/// At most so much of what a client calls itself.
fn shortened(agent: &str) -> &str {
    const LONGEST: usize = 64;
    match agent.char_indices().nth(LONGEST) {
        Some((end, _)) => &agent[..end],
        None => agent,
    }
}
