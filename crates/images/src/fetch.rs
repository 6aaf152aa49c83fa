// SPDX-License-Identifier: Apache-2.0
//! Downloads over HTTP that go on where they broke.
//!
//! A download is given up when the server is silent or keeps failing, never because it takes long:
//! images are large and links are slow. What has arrived is not asked for again, as long as the
//! server can say that it still is the same file.

use std::error::Error as StdError;
use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, Response, Url};

use crate::source::displayed;
use crate::tls::{self, Trust, TrustError};
use crate::writer::{Closed, Piece, Writer};

/// How many times an address may lead to another.
const REDIRECTS: usize = 10;

/// How downloads are made.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// Who vouches for servers.
    pub trust: Trust,
    /// How long a server may take to accept a connection.
    pub connect: Duration,
    /// How long a server may say nothing.
    pub silence: Duration,
    /// How many times in a row a server may fail without a byte arriving in between.
    pub attempts: u32,
    /// How long to wait after the first failure; doubles with each one more.
    pub pause: Duration,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            trust: Trust::System,
            connect: Duration::from_secs(15),
            silence: Duration::from_secs(60),
            attempts: 5,
            pause: Duration::from_secs(1),
        }
    }
}

/// Downloads over HTTP.
#[derive(Debug, Clone)]
pub struct Fetcher {
    client: Client,
    attempts: u32,
    pause: Duration,
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server refuses.
    #[error("{url} answers {status}{}", advice(*status))]
    Refused {
        /// Where.
        url: String,
        /// How.
        status: StatusCode,
    },
    /// The server failed too many times in a row.
    #[error(
        "{url} failed {attempts} times in a row, the last time because {why}: check that it can be reached from here"
    )]
    Failing {
        /// Where.
        url: String,
        /// How many times.
        attempts: u32,
        /// What happened last.
        why: String,
    },
    /// Trying again would not help.
    #[error("{url} cannot be read ({why}): check the address, and for https who vouches for it")]
    Impossible {
        /// Where.
        url: String,
        /// What happened.
        why: String,
    },
    /// The answer is longer than such answers are.
    #[error(
        "{url} has more than {limit} bytes, which is not what was asked for: check the address"
    )]
    TooLong {
        /// Where.
        url: String,
        /// How much is taken.
        limit: usize,
    },
    /// The credentials cannot be sent.
    #[error("the credentials for {url} have characters no HTTP header may have")]
    BadCredentials {
        /// Where.
        url: String,
    },
}

/// What identifies a version of a file on its server.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Version {
    /// The server's `ETag`.
    pub(crate) etag: Option<String>,
    /// The server's `Last-Modified`.
    pub(crate) modified: Option<String>,
}

/// What to download.
pub(crate) struct Download<'a> {
    pub(crate) url: &'a Url,
    /// The `Authorization` to show.
    pub(crate) authorization: Option<HeaderValue>,
    /// The version we have: if it is still that one, nothing is downloaded.
    pub(crate) have: Option<&'a Version>,
}

/// How a download ended.
pub(crate) enum Downloaded {
    /// All of it is with the receiver.
    Whole(Version),
    /// It is still the version we have.
    NotChanged,
}

/// Why a download ended early.
pub(crate) enum Stopped {
    /// Because of the server.
    Fetch(FetchError),
    /// Because of the writer, which knows why.
    Writer(Closed),
}

impl Fetcher {
    /// Ready to download.
    pub fn new(settings: &FetchSettings) -> Result<Self, TrustError> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls::config(&settings.trust)?)
            .http1_only()
            .redirect(reqwest::redirect::Policy::limited(REDIRECTS))
            .referer(false)
            .connect_timeout(settings.connect)
            .read_timeout(settings.silence)
            .user_agent(concat!("ferrite/", env!("CARGO_PKG_VERSION")))
            .build()
            .expect("settings that fit each other");
        Ok(Self { client, attempts: settings.attempts.max(1), pause: settings.pause })
    }

    /// Downloads into `writer`, going on after breaks, until the writer wants no more.
    pub(crate) async fn download(
        &self,
        wanted: Download<'_>,
        writer: &Writer,
    ) -> Result<Downloaded, Stopped> {
        tokio::select! {
            biased;
            closed = writer.closed() => Err(Stopped::Writer(closed)),
            ended = self.attempts(wanted, writer) => ended,
        }
    }

    async fn attempts(&self, wanted: Download<'_>, writer: &Writer) -> Result<Downloaded, Stopped> {
        let mut progress = Progress::default();
        let mut failures = 0;
        loop {
            let before = progress.received;
            match self.attempt(&wanted, &mut progress, writer).await {
                Ok(end) => return Ok(end),
                Err(Ended::Writer(closed)) => return Err(Stopped::Writer(closed)),
                Err(Ended::Hopeless(why)) => {
                    let url = displayed(wanted.url);
                    return Err(Stopped::Fetch(FetchError::Impossible { url, why }));
                }
                Err(Ended::Refused(status)) => {
                    let url = displayed(wanted.url);
                    return Err(Stopped::Fetch(FetchError::Refused { url, status }));
                }
                Err(Ended::Broken(why)) => {
                    failures = if progress.received > before { 1 } else { failures + 1 };
                    tracing::debug!(url = displayed(wanted.url), why, failures, "download broke");
                    self.give_up_or_pause(wanted.url, failures, why)
                        .await
                        .map_err(Stopped::Fetch)?;
                }
            }
        }
    }

    /// The whole of a small answer, with its headers. Any status is an answer; failures to get
    /// one are tried again.
    pub(crate) async fn small(
        &self,
        url: &Url,
        headers: &HeaderMap,
        limit: usize,
    ) -> Result<Small, FetchError> {
        let mut failures = 0;
        loop {
            match self.small_once(url, headers, limit).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => return Err(FetchError::TooLong { url: displayed(url), limit }),
                Err(Ended::Hopeless(why)) => {
                    return Err(FetchError::Impossible { url: displayed(url), why });
                }
                Err(Ended::Broken(why)) => {
                    failures += 1;
                    self.give_up_or_pause(url, failures, why).await?;
                }
                Err(Ended::Writer(Closed) | Ended::Refused(_)) => {
                    unreachable!("nothing is written, and every status is an answer")
                }
            }
        }
    }

    async fn small_once(
        &self,
        url: &Url,
        headers: &HeaderMap,
        limit: usize,
    ) -> Result<Option<Small>, Ended> {
        let sent = self.client.get(url.clone()).headers(headers.clone()).send().await;
        let mut response = sent.map_err(|error| Ended::of(&error))?;
        if response.status().is_server_error() {
            return Err(Ended::Broken(format!("it answers {}", response.status())));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| Ended::of(&error))? {
            if body.len() + piece.len() > limit {
                return Ok(None);
            }
            body.extend_from_slice(&piece);
        }
        Ok(Some(Small { status: response.status(), headers: response.headers().clone(), body }))
    }

    async fn give_up_or_pause(
        &self,
        url: &Url,
        failures: u32,
        why: String,
    ) -> Result<(), FetchError> {
        if failures >= self.attempts {
            return Err(FetchError::Failing { url: displayed(url), attempts: failures, why });
        }
        let factor = 1 << (failures - 1).min(5);
        tokio::time::sleep(self.pause * factor).await;
        Ok(())
    }

    async fn attempt(
        &self,
        wanted: &Download<'_>,
        progress: &mut Progress,
        writer: &Writer,
    ) -> Result<Downloaded, Ended> {
        let mut request = self
            .client
            .get(wanted.url.clone())
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(authorization) = &wanted.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(version) = progress.resumable() {
            request = request
                .header(RANGE, format!("bytes={}-", progress.received))
                .header(IF_RANGE, version);
        } else if let Some(have) = wanted.have.filter(|_| progress.received == 0) {
            request = request.headers(conditions(have));
        }
        let mut response = request.send().await.map_err(|error| Ended::of(&error))?;
        match response.status() {
            StatusCode::NOT_MODIFIED if wanted.have.is_some() && progress.received == 0 => {
                return Ok(Downloaded::NotChanged);
            }
            StatusCode::OK => {
                if progress.received > 0 {
                    writer.send(Piece::Restart).await?;
                }
                *progress = Progress::of(&response);
                if let Some(length) = progress.length {
                    writer.send(Piece::Length(length)).await?;
                }
            }
            StatusCode::PARTIAL_CONTENT if progress.goes_on(&response) => {}
            // It is not the rest of what we have: from the beginning again.
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE
                if progress.received > 0 =>
            {
                writer.send(Piece::Restart).await?;
                *progress = Progress::default();
                return Err(Ended::Broken("it does not go on where it broke off".to_owned()));
            }
            status
                if status.is_server_error()
                    || status == StatusCode::TOO_MANY_REQUESTS
                    || status == StatusCode::REQUEST_TIMEOUT =>
            {
                return Err(Ended::Broken(format!("it answers {status}")));
            }
            status => return Err(Ended::Refused(status)),
        }
        while let Some(piece) = response.chunk().await.map_err(|error| Ended::of(&error))? {
            progress.received += piece.len() as u64;
            writer.send(Piece::Bytes(piece)).await?;
        }
        match progress.length {
            Some(length) if length != progress.received => {
                Err(Ended::Broken(format!("only {} of {length} bytes came", progress.received)))
            }
            Some(_) | None => Ok(Downloaded::Whole(progress.version.clone())),
        }
    }
}

/// A small answer.
pub(crate) struct Small {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// How far a download is.
#[derive(Default)]
struct Progress {
    received: u64,
    /// Of the whole file.
    length: Option<u64>,
    version: Version,
}

/// Why one attempt ended.
enum Ended {
    Writer(Closed),
    Refused(StatusCode),
    /// Another attempt may do better.
    Broken(String),
    /// Another attempt would end the same way.
    Hopeless(String),
}

impl Ended {
    fn of(error: &reqwest::Error) -> Self {
        let hopeless = error.is_redirect()
            || error.is_builder()
            || server_trust::tls_error_in(error).is_some();
        if hopeless { Self::Hopeless(words(error)) } else { Self::Broken(words(error)) }
    }
}

impl From<Closed> for Ended {
    fn from(closed: Closed) -> Self {
        Self::Writer(closed)
    }
}

impl Progress {
    fn of(response: &Response) -> Self {
        let text = |name: HeaderName| {
            response.headers().get(name).and_then(|it| it.to_str().ok()).map(str::to_owned)
        };
        Self {
            received: 0,
            length: response.content_length(),
            version: Version { etag: text(ETAG), modified: text(LAST_MODIFIED) },
        }
    }

    /// What makes sure that the rest belongs to what is here: weak tags do not.
    fn resumable(&self) -> Option<&str> {
        if self.received == 0 {
            return None;
        }
        let strong = self.version.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        strong.or(self.version.modified.as_deref())
    }

    /// Whether this is the rest of what is here.
    fn goes_on(&self, response: &Response) -> bool {
        let range = response.headers().get(CONTENT_RANGE).and_then(|it| it.to_str().ok());
        let parts = range
            .and_then(|range| range.strip_prefix("bytes "))
            .and_then(|range| range.split_once('/'))
            .and_then(|(range, total)| Some((range.split_once('-')?, total)));
        let Some(((start, end), total)) = parts else { return false };
        let total = total.parse().ok();
        let whole = total.is_none() || self.length.is_none() || total == self.length;
        // A server may also give less than the rest; the next attempt gets what is left.
        let sensible = end.parse::<u64>().is_ok_and(|end| end >= self.received);
        start.parse() == Ok(self.received) && whole && sensible && self.received > 0
    }
}

fn conditions(have: &Version) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let pairs = [(IF_NONE_MATCH, &have.etag), (IF_MODIFIED_SINCE, &have.modified)];
    for (name, value) in pairs {
        if let Some(value) = value.as_deref().and_then(|it| HeaderValue::from_str(it).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ": give credentials that may read it",
        StatusCode::NOT_FOUND | StatusCode::GONE => ": check the address",
        _ => "",
    }
}

/// What happened, in the words of the innermost error: the outer ones only say that there was one.
fn words(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        let what = if error.is_connect() { "takes no connection" } else { "says nothing" };
        return format!("it {what} for too long");
    }
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
