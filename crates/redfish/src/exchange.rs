// SPDX-License-Identifier: Apache-2.0
//! Sends requests to the BMC and reads the responses.
//!
//! Every HTTP request holds one permit and releases it before any delay. Redirects are followed on the
//! same host only. Requests that are safe to repeat are retried.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderName, HeaderValue, IF_MATCH, LOCATION, RETRY_AFTER,
};
use http::{Method, StatusCode};
use reqwest::Url;

use crate::error_body::RedfishErrorBody;
use crate::login::RequestCredentials;
use crate::transport::{self, RequestProgress, TransportFailure};
use crate::{RedfishClient, RedfishError, body, path};

/// The size limit of a response, about ten times the largest known resource.
const LARGEST: usize = 2 * 1024 * 1024;
/// The size limit of a registry, about ten times the largest known BIOS registry.
const LARGEST_REGISTRY: usize = 16 * 1024 * 1024;
/// The limit of redirects of one request.
const MOST_REDIRECTS: usize = 5;

static ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");
static X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// One HTTP request and its result.
#[derive(Debug)]
pub struct RedfishExchange<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, with query.
    pub path: &'a str,
    /// The status of the response, or the error.
    pub result: Result<u16, &'a RedfishError>,
    /// The duration without the wait for a permit.
    pub took: Duration,
}

/// Receives every HTTP exchange, for timelines, metrics and tests.
pub trait ExchangeObserver: Send + Sync {
    /// Called after each exchange. Must not block.
    fn exchanged(&self, exchange: &RedfishExchange<'_>);
}

/// A request to send.
#[derive(Clone)]
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) method: Method,
    /// A path on the BMC, from [`path::local`].
    pub(crate) path: &'a str,
    /// JSON.
    pub(crate) body: Option<Bytes>,
    pub(crate) if_match: Option<&'a str>,
    /// Whether the response may be compressed. Not at first: compressed responses have weak etags,
    /// which some BMCs reject.
    pub(crate) compressed: bool,
    /// Texts that are masked in messages.
    pub(crate) secrets: &'a [&'a str],
}

/// A response of the BMC.
pub(crate) struct BmcHttpResponse {
    pub(crate) status: StatusCode,
    /// The path of the response, after redirects.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl<'a> OutgoingRequest<'a> {
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

impl BmcHttpResponse {
    /// Fails unless the status is a success.
    pub(crate) fn accepted(self, call: &OutgoingRequest<'_>) -> Result<Self, RedfishError> {
        let path = || call.path.to_owned();
        let method = || call.method.as_str().to_owned();
        match self.status {
            status if status.is_success() => Ok(self),
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Err(RedfishError::NotFound { path: path() })
            }
            StatusCode::FORBIDDEN => {
                let RedfishErrorBody { message, .. } =
                    RedfishErrorBody::read(&self.body, call.secrets);
                Err(RedfishError::Forbidden { method: method(), path: path(), message })
            }
            status => {
                let RedfishErrorBody { code, message } =
                    RedfishErrorBody::read(&self.body, call.secrets);
                let status = status.as_u16();
                Err(RedfishError::Refused { method: method(), path: path(), status, code, message })
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

    /// The value of `Retry-After` in seconds. Dates are ignored, because the clock of the BMC may be
    /// wrong.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.header(&RETRY_AFTER)?.parse().ok().map(Duration::from_secs)
    }

    /// Returns whether a retry may succeed.
    fn may_pass(&self) -> bool {
        self.status.is_server_error()
            && !matches!(
                self.status,
                StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED
            )
    }
}

impl RedfishClient {
    /// Sends the request with credentials, and logs in (again) if necessary.
    pub(crate) async fn authorised(
        &self,
        call: &OutgoingRequest<'_>,
    ) -> Result<BmcHttpResponse, RedfishError> {
        let Some(ticket) = self.ticket().await? else {
            let reply = self.repeated(call, None).await?;
            return self.reject_unauthorized(None, reply);
        };
        let reply = self.repeated(call, Some(&ticket)).await?;
        if !self.should_renew(&ticket, call, &reply) {
            return self.reject_unauthorized(Some(&ticket), reply);
        }
        let Some(renewed) = self.renewed(&ticket).await? else {
            return self.reject_unauthorized(Some(&ticket), reply);
        };
        let reply = self.repeated(call, Some(&renewed)).await?;
        self.record_forbidden(call, &reply);
        self.reject_unauthorized(Some(&renewed), reply)
    }

    /// Sends the request without credentials, or with the given ones only, and retries it.
    pub(crate) async fn repeated(
        &self,
        call: &OutgoingRequest<'_>,
        ticket: Option<&RequestCredentials>,
    ) -> Result<BmcHttpResponse, RedfishError> {
        let mut call = call.clone();
        let mut pauses = self.retry_policy.pauses.into_iter();
        let (mut broken, mut refused) = (false, false);
        loop {
            let pause = match self.redirected(&call, ticket).await {
                // HPE Gen10 Plus offers its registries only compressed.
                Ok(reply) if reply.status == StatusCode::NOT_ACCEPTABLE && !call.compressed => {
                    call.compressed = true;
                    continue;
                }
                Ok(reply) if call.method == Method::GET && reply.may_pass() => {
                    let Some(pause) = pauses.next() else { return Ok(reply) };
                    reply.retry_after().map_or(pause, |after| after.min(self.retry_policy.longest))
                }
                Ok(reply) => return Ok(reply),
                Err(TransportFailure { error, reached: RequestProgress::Broken }) => {
                    if broken || call.method != Method::GET {
                        return Err(error);
                    }
                    broken = true;
                    continue;
                }
                Err(TransportFailure { error, reached: RequestProgress::NotConnected }) => {
                    // A BMC with a single connection refuses the next one for an instant.
                    let Some(pause) = pauses.next().filter(|_| !refused) else { return Err(error) };
                    refused = true;
                    pause
                }
                Err(TransportFailure { error, reached: RequestProgress::Hopeless }) => {
                    return Err(error);
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends the request and follows redirects.
    async fn redirected(
        &self,
        call: &OutgoingRequest<'_>,
        ticket: Option<&RequestCredentials>,
    ) -> Result<BmcHttpResponse, TransportFailure> {
        let mut path = call.path.to_owned();
        for _ in 0..=MOST_REDIRECTS {
            let reply = self.observed_once(call, &path, ticket).await?;
            let Some(to) = reply.location().filter(|_| sends_on(call, reply.status)) else {
                return Ok(reply);
            };
            path = self
                .same_host(&path, to)
                .map_err(|error| TransportFailure { error, reached: RequestProgress::Hopeless })?;
        }
        let why = format!("it is redirected more than {MOST_REDIRECTS} times");
        let error = RedfishError::Garbled { path: call.path.to_owned(), why };
        Err(TransportFailure { error, reached: RequestProgress::Hopeless })
    }

    async fn observed_once(
        &self,
        call: &OutgoingRequest<'_>,
        path: &str,
        ticket: Option<&RequestCredentials>,
    ) -> Result<BmcHttpResponse, TransportFailure> {
        let closed = || TransportFailure {
            error: RedfishError::Closed { address: self.shared.endpoint.address.clone() },
            reached: RequestProgress::Hopeless,
        };
        let turn = self.shared.request_permits.acquire().await.map_err(|_| closed())?;
        if let Some(permission) = &self.permission
            && !permission.obtain().await
        {
            return Err(closed());
        }
        let start = Instant::now();
        let result = self.once(call, path, ticket).await;
        drop(turn);
        let exchange = RedfishExchange {
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
        call: &OutgoingRequest<'_>,
        path: &str,
        ticket: Option<&RequestCredentials>,
    ) -> Result<BmcHttpResponse, TransportFailure> {
        let shared = &self.shared;
        let hopeless = |error| TransportFailure { error, reached: RequestProgress::Hopeless };
        let url = self.url(path).map_err(hopeless)?;
        let http = transport::client(&shared.endpoint, &shared.timeouts).map_err(hopeless)?;
        let mut request = http
            .request(call.method.clone(), url)
            .timeout(shared.timeouts.request)
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .header(&ODATA_VERSION, HeaderValue::from_static("4.0"));
        match ticket {
            Some(RequestCredentials::Session { token, .. }) => {
                request = request.header(&X_AUTH_TOKEN, token.clone());
            }
            Some(RequestCredentials::Basic { header, .. }) => {
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
        let failed = |error: reqwest::Error| {
            TransportFailure::of(&error, &shared.endpoint.address, &shared.timeouts)
        };
        let mut response = request.send().await.map_err(failed)?;
        let limit = largest(path);
        let too_large = || hopeless(RedfishError::TooLarge { path: path.to_owned(), limit });
        let announced = response.content_length().unwrap_or_default();
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > limit {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            if body.is_empty() {
                body.reserve(announced.max(chunk.len()));
            }
            body.extend_from_slice(&chunk);
        }
        let status = response.status();
        let headers = std::mem::take(response.headers_mut());
        let mut body = body.freeze();
        if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip") {
            body = body::inflated(&body, limit)
                .map_err(|error| {
                    let why = format!("it is badly compressed: {error}");
                    hopeless(RedfishError::Garbled { path: path.to_owned(), why })
                })?
                .ok_or_else(too_large)?;
        }
        Ok(BmcHttpResponse { status, path: path.to_owned(), headers, body })
    }

    /// The URL of a path. The path starts with a slash, so it cannot change the host.
    fn url(&self, path: &str) -> Result<Url, RedfishError> {
        let whole = format!("{}{path}", self.shared.endpoint.address);
        let garbled = |why: String| RedfishError::Garbled { path: path.to_owned(), why };
        if !path.starts_with('/') {
            return Err(garbled("the link is no path".to_owned()));
        }
        Url::parse(&whole).map_err(|error| garbled(error.to_string()))
    }

    /// The path of a redirect. Fails if it leads to another host.
    fn same_host(&self, from: &str, to: &str) -> Result<String, RedfishError> {
        let elsewhere = || RedfishError::Redirected { path: from.to_owned(), to: path::shown(to) };
        let here = self.url(from)?;
        let there = here.join(to).map_err(|_| elsewhere())?;
        if there.origin() != here.origin() {
            return Err(elsewhere());
        }
        Ok(path::local(&self.shared.endpoint.root, there.as_str()))
    }
}

/// The size limit for this path. On all BMCs the paths of registries contain the word.
fn largest(path: &str) -> usize {
    const WORD: &[u8] = b"registr";
    let is_registry =
        path.as_bytes().windows(WORD.len()).any(|part| part.eq_ignore_ascii_case(WORD));
    if is_registry { LARGEST_REGISTRY } else { LARGEST }
}

/// Returns whether this status redirects this request. Changes are only redirected if the standard
/// preserves the method.
fn sends_on(call: &OutgoingRequest<'_>, status: StatusCode) -> bool {
    match status {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            call.method == Method::GET
        }
        _ => false,
    }
}
