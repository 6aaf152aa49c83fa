// SPDX-License-Identifier: Apache-2.0
//! HTTP downloads that resume after an interruption.
//!
//! A download fails if the server is silent or keeps failing, never because it takes long: images are
//! large and links are slow. Received bytes are not requested again if the server can confirm that the
//! file is unchanged.

use std::error::Error as StdError;
use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, Response, Url};

use crate::source::redacted_url;
use crate::tls::{self, ImageServerTrust, TlsTrustError};
use crate::writer::{SinkMessage, SinkWriter, WriterClosed};

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 10;

/// How downloads are made.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// CA certificates for image servers.
    pub trust: ImageServerTrust,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Maximum time without received data.
    pub read_timeout: Duration,
    /// Maximum number of consecutive failures without a received byte.
    pub max_attempts: u32,
    /// Delay after the first failure; it doubles with each further one.
    pub retry_delay: Duration,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            trust: ImageServerTrust::System,
            connect_timeout: Duration::from_secs(15),
            read_timeout: Duration::from_secs(60),
            max_attempts: 5,
            retry_delay: Duration::from_secs(1),
        }
    }
}

/// Downloads over HTTP.
#[derive(Debug, Clone)]
pub struct Fetcher {
    client: Client,
    max_attempts: u32,
    retry_delay: Duration,
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server refuses.
    #[error("{url} returned {status}{}", advice(*status))]
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
    RetriesExhausted {
        /// Where.
        url: String,
        /// How many times.
        attempts: u32,
        /// What happened last.
        why: String,
    },
    /// Trying again would not help.
    #[error("{url} cannot be read ({why}): check the address, and for https the CA certificate")]
    NotRetryable {
        /// Where.
        url: String,
        /// What happened.
        why: String,
    },
    /// The response exceeds the size limit.
    #[error("{url} has more than {limit} bytes, which is too large: check the address")]
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
pub(crate) struct ContentVersion {
    /// The server's `ETag`.
    pub(crate) etag: Option<String>,
    /// The server's `Last-Modified`.
    pub(crate) modified: Option<String>,
}

/// What to download.
pub(crate) struct DownloadRequest<'a> {
    pub(crate) url: &'a Url,
    /// The `Authorization` to show.
    pub(crate) authorization: Option<HeaderValue>,
    /// The version we have: if it is still that one, nothing is downloaded.
    pub(crate) cached_version: Option<&'a ContentVersion>,
}

/// How a download ended.
pub(crate) enum DownloadOutcome {
    /// All of it is with the receiver.
    Complete(ContentVersion),
    /// It is still the version we have.
    Unmodified,
}

/// Why a download ended early.
pub(crate) enum DownloadStopped {
    /// Because of the server.
    Fetch(FetchError),
    /// Because of the writer, which knows why.
    Writer(WriterClosed),
}

impl Fetcher {
    /// Ready to download.
    pub fn new(settings: &FetchSettings) -> Result<Self, TlsTrustError> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls::client_config(&settings.trust)?)
            .http1_only()
            .redirect(reqwest::redirect::Policy::limited(MAX_REDIRECTS))
            .referer(false)
            .connect_timeout(settings.connect_timeout)
            .read_timeout(settings.read_timeout)
            .user_agent(concat!("ferrite/", env!("CARGO_PKG_VERSION")))
            .build()
            .expect("settings that fit each other");
        Ok(Self {
            client,
            max_attempts: settings.max_attempts.max(1),
            retry_delay: settings.retry_delay,
        })
    }

    /// Downloads into `writer` and resumes after interruptions, until the writer closes.
    pub(crate) async fn download(
        &self,
        wanted: DownloadRequest<'_>,
        writer: &SinkWriter,
    ) -> Result<DownloadOutcome, DownloadStopped> {
        tokio::select! {
            biased;
            closed = writer.closed() => Err(DownloadStopped::Writer(closed)),
            ended = self.download_with_retries(wanted, writer) => ended,
        }
    }

    async fn download_with_retries(
        &self,
        wanted: DownloadRequest<'_>,
        writer: &SinkWriter,
    ) -> Result<DownloadOutcome, DownloadStopped> {
        let mut progress = DownloadProgress::default();
        let mut failures = 0;
        loop {
            let before = progress.received;
            match self.attempt(&wanted, &mut progress, writer).await {
                Ok(end) => return Ok(end),
                Err(DownloadAttemptError::Writer(closed)) => {
                    return Err(DownloadStopped::Writer(closed));
                }
                Err(DownloadAttemptError::Permanent(why)) => {
                    let url = redacted_url(wanted.url);
                    return Err(DownloadStopped::Fetch(FetchError::NotRetryable { url, why }));
                }
                Err(DownloadAttemptError::Refused(status)) => {
                    let url = redacted_url(wanted.url);
                    return Err(DownloadStopped::Fetch(FetchError::Refused { url, status }));
                }
                Err(DownloadAttemptError::Retryable(why)) => {
                    failures = if progress.received > before { 1 } else { failures + 1 };
                    tracing::debug!(
                        url = redacted_url(wanted.url),
                        why,
                        failures,
                        "download broke"
                    );
                    self.fail_or_wait(wanted.url, failures, why)
                        .await
                        .map_err(DownloadStopped::Fetch)?;
                }
            }
        }
    }

    /// Returns a small response with any status below 500; failed requests are retried.
    pub(crate) async fn get_small(
        &self,
        url: &Url,
        headers: &HeaderMap,
        limit: usize,
    ) -> Result<SmallResponse, FetchError> {
        let mut failures = 0;
        loop {
            match self.get_small_once(url, headers, limit).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => return Err(FetchError::TooLong { url: redacted_url(url), limit }),
                Err(DownloadAttemptError::Permanent(why)) => {
                    return Err(FetchError::NotRetryable { url: redacted_url(url), why });
                }
                Err(DownloadAttemptError::Retryable(why)) => {
                    failures += 1;
                    self.fail_or_wait(url, failures, why).await?;
                }
                Err(
                    DownloadAttemptError::Writer(WriterClosed) | DownloadAttemptError::Refused(_),
                ) => {
                    unreachable!("nothing is written, and every status is an answer")
                }
            }
        }
    }

    async fn get_small_once(
        &self,
        url: &Url,
        headers: &HeaderMap,
        limit: usize,
    ) -> Result<Option<SmallResponse>, DownloadAttemptError> {
        let sent = self.client.get(url.clone()).headers(headers.clone()).send().await;
        let mut response = sent.map_err(|error| DownloadAttemptError::from_reqwest(&error))?;
        if response.status().is_server_error() {
            return Err(DownloadAttemptError::Retryable(format!(
                "it returned {}",
                response.status()
            )));
        }
        let mut body = Vec::new();
        while let Some(piece) =
            response.chunk().await.map_err(|error| DownloadAttemptError::from_reqwest(&error))?
        {
            if body.len() + piece.len() > limit {
                return Ok(None);
            }
            body.extend_from_slice(&piece);
        }
        Ok(Some(SmallResponse {
            status: response.status(),
            headers: response.headers().clone(),
            body,
        }))
    }

    async fn fail_or_wait(&self, url: &Url, failures: u32, why: String) -> Result<(), FetchError> {
        if failures >= self.max_attempts {
            return Err(FetchError::RetriesExhausted {
                url: redacted_url(url),
                attempts: failures,
                why,
            });
        }
        let factor = 1 << (failures - 1).min(5);
        tokio::time::sleep(self.retry_delay * factor).await;
        Ok(())
    }

    async fn attempt(
        &self,
        wanted: &DownloadRequest<'_>,
        progress: &mut DownloadProgress,
        writer: &SinkWriter,
    ) -> Result<DownloadOutcome, DownloadAttemptError> {
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
        } else if let Some(have) = wanted.cached_version.filter(|_| progress.received == 0) {
            request = request.headers(conditions(have));
        }
        let mut response =
            request.send().await.map_err(|error| DownloadAttemptError::from_reqwest(&error))?;
        match response.status() {
            StatusCode::NOT_MODIFIED
                if wanted.cached_version.is_some() && progress.received == 0 =>
            {
                return Ok(DownloadOutcome::Unmodified);
            }
            StatusCode::OK => {
                if progress.received > 0 {
                    writer.send(SinkMessage::Restart).await?;
                }
                *progress = DownloadProgress::from_response(&response);
                if let Some(length) = progress.length {
                    writer.send(SinkMessage::Length(length)).await?;
                }
            }
            StatusCode::PARTIAL_CONTENT if progress.is_continuation(&response) => {}
            // The response is not the requested rest: restart the download.
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE
                if progress.received > 0 =>
            {
                writer.send(SinkMessage::Restart).await?;
                *progress = DownloadProgress::default();
                return Err(DownloadAttemptError::Retryable(
                    "the server did not continue where the download broke".to_owned(),
                ));
            }
            status
                if status.is_server_error()
                    || status == StatusCode::TOO_MANY_REQUESTS
                    || status == StatusCode::REQUEST_TIMEOUT =>
            {
                return Err(DownloadAttemptError::Retryable(format!("it returned {status}")));
            }
            status => return Err(DownloadAttemptError::Refused(status)),
        }
        while let Some(piece) =
            response.chunk().await.map_err(|error| DownloadAttemptError::from_reqwest(&error))?
        {
            progress.received += piece.len() as u64;
            writer.send(SinkMessage::Bytes(piece)).await?;
        }
        match progress.length {
            Some(length) if length != progress.received => Err(DownloadAttemptError::Retryable(
                format!("only {} of {length} bytes came", progress.received),
            )),
            Some(_) | None => Ok(DownloadOutcome::Complete(progress.version.clone())),
        }
    }
}

/// A small answer.
pub(crate) struct SmallResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// How far a download is.
#[derive(Default)]
struct DownloadProgress {
    received: u64,
    /// Of the whole file.
    length: Option<u64>,
    version: ContentVersion,
}

/// Why one attempt ended.
enum DownloadAttemptError {
    Writer(WriterClosed),
    Refused(StatusCode),
    /// Another attempt may succeed.
    Retryable(String),
    /// Another attempt would fail as well.
    Permanent(String),
}

impl DownloadAttemptError {
    fn from_reqwest(error: &reqwest::Error) -> Self {
        let hopeless = error.is_redirect()
            || error.is_builder()
            || server_trust::find_tls_error(error).is_some();
        if hopeless {
            Self::Permanent(describe_error(error))
        } else {
            Self::Retryable(describe_error(error))
        }
    }
}

impl From<WriterClosed> for DownloadAttemptError {
    fn from(closed: WriterClosed) -> Self {
        Self::Writer(closed)
    }
}

impl DownloadProgress {
    fn from_response(response: &Response) -> Self {
        let text = |name: HeaderName| {
            response.headers().get(name).and_then(|it| it.to_str().ok()).map(str::to_owned)
        };
        Self {
            received: 0,
            length: response.content_length(),
            version: ContentVersion { etag: text(ETAG), modified: text(LAST_MODIFIED) },
        }
    }

    /// Returns the validator for `If-Range`. Weak ETags do not qualify.
    fn resumable(&self) -> Option<&str> {
        if self.received == 0 {
            return None;
        }
        let strong = self.version.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        strong.or(self.version.modified.as_deref())
    }

    /// Returns whether the response continues at the received position.
    fn is_continuation(&self, response: &Response) -> bool {
        let range = response.headers().get(CONTENT_RANGE).and_then(|it| it.to_str().ok());
        let parts = range
            .and_then(|range| range.strip_prefix("bytes "))
            .and_then(|range| range.split_once('/'))
            .and_then(|(range, total)| Some((range.split_once('-')?, total)));
        let Some(((start, end), total)) = parts else { return false };
        let total = total.parse().ok();
        let whole = total.is_none() || self.length.is_none() || total == self.length;
        // A server may send less than the rest; the next attempt requests what is left.
        let sensible = end.parse::<u64>().is_ok_and(|end| end >= self.received);
        start.parse() == Ok(self.received) && whole && sensible && self.received > 0
    }
}

fn conditions(have: &ContentVersion) -> HeaderMap {
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

/// Returns the text of the innermost error, since the outer ones are generic.
fn describe_error(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        let what = if error.is_connect() { "accepts no connection" } else { "sends nothing" };
        return format!("it {what} for too long");
    }
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
