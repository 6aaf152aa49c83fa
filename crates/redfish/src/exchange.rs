// SPDX-License-Identifier: Apache-2.0
//! Carrying a request to the BMC and its answer back, with the manners and the tolerance BMCs need.
//!
//! Every HTTP request takes one turn of the BMC's, and gives it back before anything is waited
//! for. Redirects are followed on the same host only. What can be repeated without harm is.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderName, HeaderValue, IF_MATCH, LOCATION, RETRY_AFTER,
};
use http::{Method, StatusCode};
use reqwest::Url;

use crate::login::Ticket;
use crate::refusal::Refusal;
use crate::transport::{self, Failure, Reached};
use crate::{Client, Error, body, path};

/// The largest answer that is read: the largest resources come near a tenth of it.
const LARGEST: usize = 2 * 1024 * 1024;
/// The largest registry that is read: registries of BIOS settings come near a tenth of it.
const LARGEST_REGISTRY: usize = 16 * 1024 * 1024;
/// How often a request may be sent on to another path.
const MOST_REDIRECTS: usize = 5;

static ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");
static X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// One HTTP request that was made, and what came of it.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, with query.
    pub path: &'a str,
    /// The status of the answer, or why there is none.
    pub result: Result<u16, &'a Error>,
    /// How long it took, waiting for a turn not counted.
    pub took: Duration,
}

/// Is told of every HTTP request: for timelines, metrics and tests.
pub trait Observer: Send + Sync {
    /// The exchange has just happened. Called between requests: must not block.
    fn exchanged(&self, exchange: &Exchange<'_>);
}

/// A request that is to be made.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// A path on the BMC, as [`path::local`] gives them.
    pub(crate) path: &'a str,
    /// JSON.
    pub(crate) body: Option<Bytes>,
    pub(crate) if_match: Option<&'a str>,
    /// Whether the answer may be compressed. Not at first: etags of compressed answers are weak,
    /// and some BMCs then refuse them.
    pub(crate) compressed: bool,
    /// Texts that must not come back to us in a message.
    pub(crate) secrets: &'a [&'a str],
}

/// What the BMC answered.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// Where the answer came from, after redirects.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl<'a> Call<'a> {
    pub(crate) const fn get(path: &'a str) -> Self {
        Self::plain(Method::GET, path)
    }

    /// A request without a body.
    pub(crate) const fn plain(method: Method, path: &'a str) -> Self {
        Self { method, path, body: None, if_match: None, compressed: false, secrets: &[] }
    }

    /// Method and path.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Reply {
    /// The answer, or the error it stands for.
    pub(crate) fn accepted(self, call: &Call<'_>) -> Result<Self, Error> {
        let path = || call.path.to_owned();
        let method = || call.method.as_str().to_owned();
        match self.status {
            status if status.is_success() => Ok(self),
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(Error::NotFound { path: path() }),
            StatusCode::FORBIDDEN => {
                let Refusal { message, .. } = Refusal::read(&self.body, call.secrets);
                Err(Error::Forbidden { method: method(), path: path(), message })
            }
            status => {
                let Refusal { code, message } = Refusal::read(&self.body, call.secrets);
                let status = status.as_u16();
                Err(Error::Refused { method: method(), path: path(), status, code, message })
            }
        }
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok().map(str::trim).filter(|value| !value.is_empty())
    }

    pub(crate) fn etag(&self) -> Option<&str> {
        self.header(&ETAG)
    }

    pub(crate) fn location(&self) -> Option<&str> {
        self.header(&LOCATION)
    }

    pub(crate) fn token(&self) -> Option<HeaderValue> {
        let mut token = self.headers.get(&X_AUTH_TOKEN)?.clone();
        token.set_sensitive(true);
        Some(token)
    }

    /// How long the BMC wants to be left alone. Dates, which need its clock to be right, are not
    /// read.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.header(&RETRY_AFTER)?.parse().ok().map(Duration::from_secs)
    }

    /// Whether the same request may fare better in a moment.
    fn may_pass(&self) -> bool {
        self.status.is_server_error()
            && !matches!(
                self.status,
                StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED
            )
    }
}

impl Client {
    /// Makes the request as the user we are, logging in (again) where that is needed.
    pub(crate) async fn authorised(&self, call: &Call<'_>) -> Result<Reply, Error> {
        let Some(ticket) = self.ticket().await? else {
            let reply = self.repeated(call, None).await?;
            return self.admitted(None, reply);
        };
        let reply = self.repeated(call, Some(&ticket)).await?;
        if !self.should_renew(&ticket, call, &reply) {
            return self.admitted(Some(&ticket), reply);
        }
        let Some(renewed) = self.renewed(&ticket).await? else {
            return self.admitted(Some(&ticket), reply);
        };
        let reply = self.repeated(call, Some(&renewed)).await?;
        self.note_forbidden(call, &reply);
        self.admitted(Some(&renewed), reply)
    }

    /// Makes the request without saying who we are, or with the given ticket only.
    pub(crate) async fn repeated(
        &self,
        call: &Call<'_>,
        ticket: Option<&Ticket>,
    ) -> Result<Reply, Error> {
        let mut call = call.clone();
        let mut pauses = self.patience.pauses.into_iter();
        let (mut broken, mut refused) = (false, false);
        loop {
            let pause = match self.redirected(&call, ticket).await {
                // HPE Gen10 Plus has its registries compressed only.
                Ok(reply) if reply.status == StatusCode::NOT_ACCEPTABLE && !call.compressed => {
                    call.compressed = true;
                    continue;
                }
                Ok(reply) if call.method == Method::GET && reply.may_pass() => {
                    let Some(pause) = pauses.next() else { return Ok(reply) };
                    reply.retry_after().map_or(pause, |after| after.min(self.patience.longest))
                }
                Ok(reply) => return Ok(reply),
                Err(Failure { error, reached: Reached::Broken }) => {
                    if broken || call.method != Method::GET {
                        return Err(error);
                    }
                    broken = true;
                    continue;
                }
                Err(Failure { error, reached: Reached::NotConnected }) => {
                    // A BMC with one connection to give refuses the next one for an instant.
                    let Some(pause) = pauses.next().filter(|_| !refused) else { return Err(error) };
                    refused = true;
                    pause
                }
                Err(Failure { error, reached: Reached::Hopeless }) => return Err(error),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Makes the request and follows where it is sent on to.
    async fn redirected(&self, call: &Call<'_>, ticket: Option<&Ticket>) -> Result<Reply, Failure> {
        let mut path = call.path.to_owned();
        for _ in 0..=MOST_REDIRECTS {
            let reply = self.observed_once(call, &path, ticket).await?;
            let Some(to) = reply.location().filter(|_| sends_on(call, reply.status)) else {
                return Ok(reply);
            };
            path = self
                .same_host(&path, to)
                .map_err(|error| Failure { error, reached: Reached::Hopeless })?;
        }
        let why = format!("it is redirected more than {MOST_REDIRECTS} times");
        let error = Error::Garbled { path: call.path.to_owned(), why };
        Err(Failure { error, reached: Reached::Hopeless })
    }

    async fn observed_once(
        &self,
        call: &Call<'_>,
        path: &str,
        ticket: Option<&Ticket>,
    ) -> Result<Reply, Failure> {
        let turn = self.shared.turns.acquire().await.map_err(|_| Failure {
            error: Error::Closed { address: self.shared.endpoint.address.clone() },
            reached: Reached::Hopeless,
        })?;
        let start = Instant::now();
        let result = self.once(call, path, ticket).await;
        drop(turn);
        let exchange = Exchange {
            method: call.method.as_str(),
            path,
            result: result
                .as_ref()
                .map(|reply| reply.status.as_u16())
                .map_err(|failure| &failure.error),
            took: start.elapsed(),
        };
        tracing::trace!(
            address = %self.shared.endpoint.address,
            method = exchange.method,
            path,
            status = exchange.result.as_ref().ok(),
            took = ?exchange.took,
            "redfish exchange"
        );
        if let Some(observer) = &self.observer {
            observer.exchanged(&exchange);
        }
        result
    }

    async fn once(
        &self,
        call: &Call<'_>,
        path: &str,
        ticket: Option<&Ticket>,
    ) -> Result<Reply, Failure> {
        let shared = &self.shared;
        let hopeless = |error| Failure { error, reached: Reached::Hopeless };
        let url = self.url(path).map_err(hopeless)?;
        let http = transport::client(&shared.endpoint, &shared.timeouts).map_err(hopeless)?;
        let mut request = http
            .request(call.method.clone(), url)
            .timeout(shared.timeouts.request)
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .header(&ODATA_VERSION, HeaderValue::from_static("4.0"));
        match ticket {
            Some(Ticket::Session { token, .. }) => {
                request = request.header(&X_AUTH_TOKEN, token.clone());
            }
            Some(Ticket::Basic { header, .. }) => {
                request = request.header(AUTHORIZATION, header.clone());
            }
            None => {}
        }
        if call.compressed {
            request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Some(etag) = call.if_match {
            request = request.header(IF_MATCH, etag);
        }
        if let Some(body) = &call.body {
            let json = HeaderValue::from_static("application/json");
            request = request.header(CONTENT_TYPE, json).body(body.clone());
        }
        let failed =
            |error: reqwest::Error| Failure::of(&error, &shared.endpoint.address, &shared.timeouts);
        let mut answer = request.send().await.map_err(failed)?;
        let limit = largest(path);
        let too_large = || hopeless(Error::TooLarge { path: path.to_owned(), limit });
        let announced = answer.content_length().unwrap_or_default();
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > limit {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            if body.is_empty() {
                body.reserve(announced.max(chunk.len()));
            }
            body.extend_from_slice(&chunk);
        }
        let status = answer.status();
        let headers = std::mem::take(answer.headers_mut());
        let mut body = body.freeze();
        if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip") {
            body = body::inflated(&body, limit)
                .map_err(|error| {
                    let why = format!("it is badly compressed: {error}");
                    hopeless(Error::Garbled { path: path.to_owned(), why })
                })?
                .ok_or_else(too_large)?;
        }
        Ok(Reply { status, path: path.to_owned(), headers, body })
    }

    /// The whole address of a path. It starts with the slash that ends the host, so whatever the
    /// path says, the host stays what it is.
    fn url(&self, path: &str) -> Result<Url, Error> {
        let whole = format!("{}{path}", self.shared.endpoint.address);
        let garbled = |why: String| Error::Garbled { path: path.to_owned(), why };
        if !path.starts_with('/') {
            return Err(garbled("the link is no path".to_owned()));
        }
        Url::parse(&whole).map_err(|error| garbled(error.to_string()))
    }

    /// The path a redirect leads to, if it stays on the host.
    fn same_host(&self, from: &str, to: &str) -> Result<String, Error> {
        let elsewhere = || Error::Redirected { path: from.to_owned(), to: path::shown(to) };
        let here = self.url(from)?;
        let there = here.join(to).map_err(|_| elsewhere())?;
        if there.origin() != here.origin() {
            return Err(elsewhere());
        }
        Ok(path::local(&self.shared.endpoint.root, there.as_str()))
    }
}

/// How large the answer for this path may be. Registries are told by their paths, which have the
/// word in them on all BMCs.
fn largest(path: &str) -> usize {
    const WORD: &[u8] = b"registr";
    let is_registry =
        path.as_bytes().windows(WORD.len()).any(|part| part.eq_ignore_ascii_case(WORD));
    if is_registry { LARGEST_REGISTRY } else { LARGEST }
}

/// Whether this status sends this request on. What changes something is only sent on where the
/// standard says that the method stays what it is.
fn sends_on(call: &Call<'_>, status: StatusCode) -> bool {
    match status {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            call.method == Method::GET
        }
        _ => false,
    }
}
