// SPDX-License-Identifier: Apache-2.0
//! A download over HTTP that resumes after an interruption, for the image cache and for the agent.
//!
//! A download fails if the server is silent or keeps failing, never because it takes long: images are
//! large and links are slow. Received bytes are not requested again if the server can confirm that the
//! file is unchanged.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Client, Response, Url};
use tokio::sync::mpsc;

use crate::network_policy::{LocalAddressError, is_local_address_error};
use crate::source::redacted_url;

/// A file to download, and the receiver of its content.
pub struct ResumableDownload<'a> {
    /// The HTTP client.
    pub client: &'a Client,
    /// The URL.
    pub url: &'a Url,
    /// The `Authorization` header.
    pub authorization: Option<&'a HeaderValue>,
    /// If the server still has this version, nothing is downloaded.
    pub cached_version: Option<&'a ContentVersion>,
    /// How often a failed request is repeated.
    pub retry_policy: DownloadRetryPolicy,
    /// What happens if the file changes during the download.
    pub changed_file: ChangedFilePolicy,
    /// The receiver of the content.
    pub receiver: &'a mpsc::Sender<DownloadMessage>,
    /// Is called with the received bytes and the length of the file.
    pub report: &'a (dyn Fn(u64, Option<u64>) + Sync),
}

/// A message to the receiver of a download.
pub enum DownloadMessage {
    /// The length of the file, if the server reports it. Sent before the first bytes.
    Length(Option<u64>),
    /// The next bytes.
    Bytes(Bytes),
    /// All bytes received so far are to be discarded. Not sent with [`ChangedFilePolicy::Fail`].
    Restart,
    /// The file is complete.
    End,
}

/// How often a failed request is repeated.
#[derive(Debug, Clone, Copy)]
pub struct DownloadRetryPolicy {
    /// Maximum number of consecutive failures without a received byte.
    pub max_failures: u32,
    /// Delay after the first failure. It doubles with each further one.
    pub delay: Duration,
    /// Maximum delay.
    pub max_delay: Duration,
}

/// What happens if the file on the server changes during the download, or the server cannot confirm that
/// it is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangedFilePolicy {
    /// The download starts again.
    Restart,
    /// The download fails if the file is known to be another one. For receivers that cannot discard
    /// bytes and verify a checksum at the end.
    Fail,
}

/// What identifies a version of a file on its server.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ContentVersion {
    /// The server's `ETag`.
    pub etag: Option<String>,
    /// The server's `Last-Modified`.
    pub modified: Option<String>,
}

/// How a download ended.
#[derive(Debug)]
pub enum DownloadOutcome {
    /// The receiver has the whole file, of this version.
    Complete(ContentVersion),
    /// The server still has the cached version.
    Unmodified,
}

/// Why a download failed. The caller adds the URL.
#[derive(Debug)]
pub enum DownloadFailure {
    /// The server returned this status.
    Status(StatusCode),
    /// Too many consecutive failures.
    RetriesExhausted {
        /// The number of consecutive failures.
        attempts: u32,
        /// Bytes received so far.
        received: u64,
        /// The last failure.
        reason: String,
    },
    /// A retry would fail in the same way.
    NotRetryable(String),
    /// The file changed. Only with [`ChangedFilePolicy::Fail`].
    Changed {
        /// Bytes received so far.
        received: u64,
    },
    /// The receiver was dropped.
    ReceiverClosed {
        /// Bytes received so far.
        received: u64,
    },
}

/// Why one request failed.
#[derive(Debug)]
pub enum RequestFailure {
    /// Another attempt may succeed.
    Retryable(String),
    /// Another attempt would fail as well.
    Final(DownloadFailure),
}

impl DownloadRetryPolicy {
    /// Waits before the next attempt. Returns false at once if there were too many consecutive failures.
    pub async fn wait(&self, failures: u32) -> bool {
        if failures >= self.max_failures {
            return false;
        }
        let factor = 1 << failures.saturating_sub(1).min(16);
        tokio::time::sleep(self.delay.saturating_mul(factor).min(self.max_delay)).await;
        true
    }
}

impl RequestFailure {
    /// The failure to send a request or to receive its response.
    #[must_use]
    pub fn from_error(error: &reqwest::Error) -> Self {
        let is_final = error.is_redirect()
            || error.is_builder()
            || is_local_address_error(error)
            || server_trust::find_tls_error(error).is_some();
        let reason = innermost_cause(error);
        if is_final {
            Self::Final(DownloadFailure::NotRetryable(reason))
        } else {
            Self::Retryable(reason)
        }
    }

    /// The failure of a request with this status.
    #[must_use]
    pub fn from_status(status: StatusCode) -> Self {
        let is_retryable = status.is_server_error()
            || status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::REQUEST_TIMEOUT;
        if is_retryable {
            Self::Retryable(format!("the server returned {status}"))
        } else {
            Self::Final(DownloadFailure::Status(status))
        }
    }
}

impl From<LocalAddressError> for RequestFailure {
    fn from(error: LocalAddressError) -> Self {
        Self::Final(DownloadFailure::NotRetryable(error.to_string()))
    }
}

impl ResumableDownload<'_> {
    /// Downloads the file and resumes after interruptions.
    ///
    /// # Errors
    /// If the server rejects the request or fails too often, the file changes, or the receiver is
    /// dropped.
    pub async fn run(&self) -> Result<DownloadOutcome, DownloadFailure> {
        let mut progress = DownloadProgress::default();
        let mut failures = 0;
        // Bytes beyond this offset are progress; a restart receives the first ones again.
        let mut highest = 0;
        loop {
            let reason = match self.attempt(&mut progress).await {
                Ok(outcome) => return Ok(outcome),
                Err(RequestFailure::Final(failure)) => return Err(failure),
                Err(RequestFailure::Retryable(reason)) => reason,
            };
            let received = progress.received;
            failures = if received > highest { 1 } else { failures + 1 };
            highest = highest.max(received);
            let url = redacted_url(self.url);
            tracing::warn!(url, received, failures, error = reason, "download interrupted");
            if !self.retry_policy.wait(failures).await {
                let attempts = failures;
                return Err(DownloadFailure::RetriesExhausted { attempts, received, reason });
            }
        }
    }

    async fn attempt(
        &self,
        progress: &mut DownloadProgress,
    ) -> Result<DownloadOutcome, RequestFailure> {
        let failed = |error: reqwest::Error| RequestFailure::from_error(&error);
        let request = self.client.get(self.url.clone()).headers(self.headers(progress));
        let mut response = request.send().await.map_err(failed)?;
        let mut to_skip = 0;
        match response.status() {
            StatusCode::NOT_MODIFIED if self.cached_version.is_some() && progress.received == 0 => {
                return Ok(DownloadOutcome::Unmodified);
            }
            StatusCode::OK if progress.received == 0 => self.start(progress, &response).await?,
            // The server does not resume.
            StatusCode::OK => match self.changed_file {
                ChangedFilePolicy::Restart => {
                    self.send(DownloadMessage::Restart, progress).await?;
                    self.start(progress, &response).await?;
                }
                ChangedFilePolicy::Fail if progress.is_same_file(&response) => {
                    to_skip = progress.received;
                }
                ChangedFilePolicy::Fail => return Err(progress.changed()),
            },
            StatusCode::PARTIAL_CONTENT if progress.is_continuation(&response) => {}
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE
                if progress.received > 0 =>
            {
                if self.changed_file == ChangedFilePolicy::Fail {
                    return Err(progress.changed());
                }
                self.send(DownloadMessage::Restart, progress).await?;
                *progress = DownloadProgress::default();
                let reason = "the server did not continue where the download was interrupted";
                return Err(RequestFailure::Retryable(reason.to_owned()));
            }
            status => return Err(RequestFailure::from_status(status)),
        }
        while let Some(mut chunk) = response.chunk().await.map_err(failed)? {
            let skipped = usize::try_from(to_skip).unwrap_or(usize::MAX).min(chunk.len());
            to_skip -= skipped as u64;
            let chunk = chunk.split_off(skipped);
            if chunk.is_empty() {
                continue;
            }
            progress.received += chunk.len() as u64;
            (self.report)(progress.received, progress.length);
            self.send(DownloadMessage::Bytes(chunk), progress).await?;
        }
        if let Some(length) = progress.length.filter(|length| *length != progress.received) {
            let reason = format!("only {} of {length} bytes were received", progress.received);
            return Err(RequestFailure::Retryable(reason));
        }
        self.send(DownloadMessage::End, progress).await?;
        Ok(DownloadOutcome::Complete(progress.version.clone()))
    }

    /// Records the version and length of a file whose first byte follows.
    async fn start(
        &self,
        progress: &mut DownloadProgress,
        response: &Response,
    ) -> Result<(), RequestFailure> {
        *progress = DownloadProgress {
            received: 0,
            length: response.content_length(),
            version: ContentVersion::from_response(response),
        };
        self.send(DownloadMessage::Length(progress.length), progress).await
    }

    async fn send(
        &self,
        message: DownloadMessage,
        progress: &DownloadProgress,
    ) -> Result<(), RequestFailure> {
        let received = progress.received;
        let closed = |_| RequestFailure::Final(DownloadFailure::ReceiverClosed { received });
        self.receiver.send(message).await.map_err(closed)
    }

    fn headers(&self, progress: &DownloadProgress) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(authorization) = self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let mut insert = |name: HeaderName, value: Option<&str>| {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        };
        if progress.received == 0 {
            let cached = self.cached_version;
            insert(IF_NONE_MATCH, cached.and_then(|version| version.etag.as_deref()));
            insert(IF_MODIFIED_SINCE, cached.and_then(|version| version.modified.as_deref()));
            return headers;
        }
        let validator = progress.version.if_range_validator();
        // Without a validator the server cannot confirm that the file is unchanged.
        if validator.is_some() || self.changed_file == ChangedFilePolicy::Fail {
            insert(RANGE, Some(&format!("bytes={}-", progress.received)));
            insert(IF_RANGE, validator);
        }
        headers
    }
}

impl ContentVersion {
    fn from_response(response: &Response) -> Self {
        let text = |name: HeaderName| {
            response.headers().get(name).and_then(|it| it.to_str().ok()).map(str::to_owned)
        };
        Self { etag: text(ETAG), modified: text(LAST_MODIFIED) }
    }

    /// Returns the value for `If-Range`: a strong ETag, or the modification date.
    fn if_range_validator(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        strong.or(self.modified.as_deref())
    }
}

/// The state of a download across attempts.
#[derive(Default)]
struct DownloadProgress {
    received: u64,
    /// The length of the whole file.
    length: Option<u64>,
    version: ContentVersion,
}

impl DownloadProgress {
    fn is_same_file(&self, response: &Response) -> bool {
        self.version == ContentVersion::from_response(response)
            && self.length == response.content_length()
    }

    /// Returns whether a partial response continues at the received position, in the same file. It may
    /// have less than the rest; the next attempt requests what is left.
    fn is_continuation(&self, response: &Response) -> bool {
        let Some((start, end, total)) = content_range(response) else { return false };
        let is_same_length = total.is_none() || self.length.is_none() || total == self.length;
        let tag = ContentVersion::from_response(response).etag;
        let is_same_tag = tag.is_none() || tag == self.version.etag;
        let is_next = self.received > 0 && start == self.received && end >= start;
        is_next && is_same_length && is_same_tag
    }

    fn changed(&self) -> RequestFailure {
        RequestFailure::Final(DownloadFailure::Changed { received: self.received })
    }
}

/// Returns the first byte, the last byte and the total length of a partial response.
#[must_use]
pub fn content_range(response: &Response) -> Option<(u64, u64, Option<u64>)> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = range.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    Some((start.parse().ok()?, end.parse().ok()?, total.parse().ok()))
}

/// Returns the text of the innermost error, since the outer ones are generic.
fn innermost_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        let reason = if error.is_connect() {
            "the connection attempt timed out"
        } else {
            "the server sent no data in time"
        };
        return reason.to_owned();
    }
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
