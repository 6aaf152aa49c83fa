// SPDX-License-Identifier: Apache-2.0
//! Downloads that are resumed after an interruption from the byte reached, if the file on the server is
//! unchanged.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::ImageInfo;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use reqwest::{Client, NoProxy, Proxy, Response, StatusCode, Url};
use tokio::sync::mpsc;

/// Maximum length of a checksum file.
const MAX_TEXT_LENGTH: usize = 1 << 20;

/// Download settings.
#[derive(Clone)]
pub struct DownloadSettings {
    /// Trusted certificates, and the client certificate.
    pub tls: rustls::ClientConfig,
    /// DNS resolver; the system's if `None`.
    pub resolver: Option<Arc<dyn reqwest::dns::Resolve>>,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Maximum time without received data.
    pub read_timeout: Duration,
    /// Attempts without progress before the download fails.
    pub retries: u32,
    /// Delay between attempts.
    pub retry_interval: Duration,
    /// Maximum duration of the whole download.
    pub total_timeout: Option<Duration>,
}

/// A download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The URL is invalid.
    #[error("{url:?} is not an http or https URL: correct it")]
    InvalidUrl {
        /// Given text.
        url: String,
    },
    /// Proxies or credentials are invalid.
    #[error("the setting {setting} of the image is invalid: correct it")]
    InvalidSetting {
        /// Name of the setting.
        setting: &'static str,
    },
    /// The server returned an error status.
    #[error("{url} returned {status}{}", status_advice(*status))]
    Status {
        /// URL.
        url: String,
        /// HTTP status.
        status: StatusCode,
    },
    /// All retries failed.
    #[error(
        "{url} failed {attempts} times in a row, last at byte {received}: {reason}; check the server and the network"
    )]
    RetriesExhausted {
        /// URL.
        url: String,
        /// Number of attempts without progress.
        attempts: u32,
        /// Bytes received so far.
        received: u64,
        /// Error of the last attempt.
        reason: String,
    },
    /// The file changed during the download.
    #[error(
        "{url} was changed on its server while it was downloaded (at byte {received}): try again"
    )]
    Changed {
        /// URL.
        url: String,
        /// Bytes received so far.
        received: u64,
    },
    /// A retry would fail in the same way.
    #[error("{url} cannot be downloaded: {reason}")]
    Failed {
        /// URL.
        url: String,
        /// Cause.
        reason: String,
    },
    /// The total timeout expired.
    #[error(
        "the download of {url} did not finish within {seconds} seconds: raise the limit, or use a nearer server"
    )]
    TimedOut {
        /// URL.
        url: String,
        /// The limit.
        seconds: u64,
    },
    /// The file exceeds the size limit.
    #[error("{url} has more than {limit} bytes, which is too large for its purpose: check the URL")]
    TooLong {
        /// URL.
        url: String,
        /// The limit.
        limit: usize,
    },
    /// The receiver of the chunks was dropped.
    #[error("the download of {url} was stopped at byte {received}")]
    Cancelled {
        /// URL.
        url: String,
        /// Bytes received so far.
        received: u64,
    },
}

/// A part of a download.
pub(crate) enum DownloadChunk {
    /// Length of the file, if the server reports it. Sent first.
    Length(Option<u64>),
    /// Next bytes.
    Bytes(Bytes),
    /// End of the file.
    End,
}

/// A file on a server, with the client to fetch it.
#[derive(Clone)]
pub(crate) struct RemoteFile {
    client: Client,
    url: Url,
    authorization: Option<HeaderValue>,
    retry_policy: RetryPolicy,
}

#[derive(Clone, Copy)]
struct RetryPolicy {
    retries: u32,
    retry_interval: Duration,
    total_timeout: Option<Duration>,
}

impl DownloadSettings {
    /// Returns the file at `url`, to be fetched with the proxies and credentials of `image` if given.
    pub(crate) fn remote_file(
        &self,
        url: &str,
        image: Option<&ImageInfo>,
    ) -> Result<RemoteFile, DownloadError> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let parsed = parsed.ok_or_else(|| DownloadError::InvalidUrl { url: truncate(url) })?;
        let (client, authorization) = match image {
            None => (self.client(&BTreeMap::new(), None)?, None),
            Some(image) => {
                (self.client(&image.proxies, image.no_proxy.as_deref())?, authorization(image)?)
            }
        };
        let retry_policy = RetryPolicy {
            retries: self.retries,
            retry_interval: self.retry_interval,
            total_timeout: self.total_timeout,
        };
        Ok(RemoteFile { client, url: parsed, authorization, retry_policy })
    }

    fn client(
        &self,
        proxies: &BTreeMap<String, String>,
        no_proxy: Option<&str>,
    ) -> Result<Client, DownloadError> {
        let mut builder = Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::limited(10))
            .referer(false)
            .connect_timeout(self.connect_timeout)
            .read_timeout(self.read_timeout)
            .user_agent(concat!("ferrite-agent/", env!("CARGO_PKG_VERSION")));
        if let Some(resolver) = &self.resolver {
            builder = builder.dns_resolver(Arc::clone(resolver));
        }
        let no_proxy = no_proxy.and_then(NoProxy::from_string);
        let unusable = |_| DownloadError::InvalidSetting { setting: "proxies" };
        for (scheme, display_url) in proxies {
            let proxy = match scheme.as_str() {
                "http" => Proxy::http(display_url.as_str()).map_err(unusable)?,
                "https" => Proxy::https(display_url.as_str()).map_err(unusable)?,
                _ => continue,
            };
            builder = builder.proxy(proxy.no_proxy(no_proxy.clone()));
        }
        builder.build().map_err(|_| DownloadError::InvalidSetting { setting: "proxies" })
    }
}

impl RemoteFile {
    /// Returns the URL without credentials and query, for messages.
    pub(crate) fn display_url(&self) -> String {
        without_secrets(&self.url)
    }

    /// Returns the file name in the URL.
    pub(crate) fn file_name(&self) -> &str {
        self.url.path().rsplit('/').next().unwrap_or_default()
    }

    /// Downloads the whole file into `chunks`; `report` gets received bytes and total length.
    pub(crate) async fn download(
        &self,
        chunks: mpsc::Sender<DownloadChunk>,
        report: &(dyn Fn(u64, Option<u64>) + Sync),
    ) -> Result<(), DownloadError> {
        let work = self.attempts(&chunks, report);
        match self.retry_policy.total_timeout {
            None => work.await,
            Some(total_timeout) => {
                tokio::time::timeout(total_timeout, work).await.unwrap_or_else(|_| {
                    Err(DownloadError::TimedOut {
                        url: self.display_url(),
                        seconds: total_timeout.as_secs(),
                    })
                })
            }
        }
    }

    async fn attempts(
        &self,
        chunks: &mpsc::Sender<DownloadChunk>,
        report: &(dyn Fn(u64, Option<u64>) + Sync),
    ) -> Result<(), DownloadError> {
        let mut state = DownloadState::default();
        let mut failures = 0;
        loop {
            let before = state.received;
            let reason = match self.attempt(&mut state, chunks, report).await {
                Ok(()) => {
                    return chunks
                        .send(DownloadChunk::End)
                        .await
                        .map_err(|_| self.cancelled(&state));
                }
                Err(AttemptError::Retryable(reason)) => reason,
                Err(AttemptError::Final(error)) => return Err(error),
            };
            failures = if state.received > before { 1 } else { failures + 1 };
            let received = state.received;
            tracing::warn!(
                url = self.display_url(),
                received,
                failures,
                error = reason,
                "download interrupted"
            );
            if failures > self.retry_policy.retries {
                let url = self.display_url();
                return Err(DownloadError::RetriesExhausted {
                    url,
                    attempts: failures,
                    received,
                    reason,
                });
            }
            tokio::time::sleep(self.retry_policy.retry_interval).await;
        }
    }

    async fn attempt(
        &self,
        state: &mut DownloadState,
        chunks: &mpsc::Sender<DownloadChunk>,
        report: &(dyn Fn(u64, Option<u64>) + Sync),
    ) -> Result<(), AttemptError> {
        let mut request = self.request();
        if state.received > 0 {
            request = request.header(RANGE, format!("bytes={}-", state.received));
            if let Some(version) = state.version.if_range_validator() {
                request = request.header(IF_RANGE, version);
            }
        }
        let mut response = request.send().await.map_err(|error| self.attempt_error(&error))?;
        let mut to_skip = 0;
        match response.status() {
            StatusCode::OK if !state.started => {
                *state = DownloadState::of(&response);
                chunks
                    .send(DownloadChunk::Length(state.length))
                    .await
                    .map_err(|_| AttemptError::Final(self.cancelled(state)))?;
            }
            // The server ignores the range: skip the bytes already received.
            StatusCode::OK if state.is_same_file(&response) => to_skip = state.received,
            StatusCode::OK => return Err(AttemptError::Final(self.changed(state))),
            StatusCode::PARTIAL_CONTENT if state.is_continuation(&response) => {}
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                return Err(AttemptError::Final(self.changed(state)));
            }
            status if is_transient(status) => {
                return Err(AttemptError::Retryable(format!("the server returned {status}")));
            }
            status => {
                return Err(AttemptError::Final(DownloadError::Status {
                    url: self.display_url(),
                    status,
                }));
            }
        }
        while let Some(chunk) =
            response.chunk().await.map_err(|error| self.attempt_error(&error))?
        {
            let skipped =
                usize::try_from(to_skip).map_or(chunk.len(), |left| left.min(chunk.len()));
            to_skip -= skipped as u64;
            let chunk = chunk.slice(skipped..);
            if chunk.is_empty() {
                continue;
            }
            state.received += chunk.len() as u64;
            report(state.received, state.length);
            chunks
                .send(DownloadChunk::Bytes(chunk))
                .await
                .map_err(|_| AttemptError::Final(self.cancelled(state)))?;
        }
        match state.length {
            Some(length) if length != state.received => Err(AttemptError::Retryable(format!(
                "only {} of {length} bytes received",
                state.received
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Fetches a range; `None` if the server does not support ranges.
    pub(crate) async fn range(
        &self,
        offset: u64,
        length: u64,
    ) -> Result<Option<Vec<u8>>, DownloadError> {
        let mut failures = 0;
        loop {
            let reason = match self.try_range(offset, length).await {
                Ok(bytes) => return Ok(bytes),
                Err(AttemptError::Final(error)) => return Err(error),
                Err(AttemptError::Retryable(reason)) => reason,
            };
            failures += 1;
            if failures > self.retry_policy.retries {
                let url = self.display_url();
                return Err(DownloadError::RetriesExhausted {
                    url,
                    attempts: failures,
                    received: offset,
                    reason,
                });
            }
            tokio::time::sleep(self.retry_policy.retry_interval).await;
        }
    }

    async fn try_range(&self, offset: u64, length: u64) -> Result<Option<Vec<u8>>, AttemptError> {
        let last = offset + length - 1;
        let request = self.request().header(RANGE, format!("bytes={offset}-{last}"));
        let mut response = request.send().await.map_err(|error| self.attempt_error(&error))?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            status if is_transient(status) => {
                return Err(AttemptError::Retryable(format!("the server returned {status}")));
            }
            _ => return Ok(None),
        }
        let start = content_range(&response).map(|(start, ..)| start);
        let mut bytes = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| self.attempt_error(&error))?
        {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > length {
                return Ok(None);
            }
        }
        Ok(Some(bytes).filter(|bytes| start == Some(offset) && bytes.len() as u64 == length))
    }

    /// Downloads a text file.
    pub(crate) async fn text(&self) -> Result<String, DownloadError> {
        let bytes = self.bytes(MAX_TEXT_LENGTH).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Downloads a file of at most `limit` bytes.
    pub(crate) async fn bytes(&self, limit: usize) -> Result<Vec<u8>, DownloadError> {
        let (sender, mut receiver) = mpsc::channel(4);
        let collect = async move {
            let mut bytes = Vec::new();
            while let Some(chunk) = receiver.recv().await {
                if let DownloadChunk::Bytes(chunk) = chunk {
                    if bytes.len() + chunk.len() > limit {
                        return Err(DownloadError::TooLong { url: self.display_url(), limit });
                    }
                    bytes.extend_from_slice(&chunk);
                }
            }
            Ok(bytes)
        };
        let download = self.download(sender, &|_, _| {});
        let (collected, downloaded) = tokio::join!(collect, download);
        let bytes = collected?;
        downloaded.map(|()| bytes)
    }

    fn request(&self) -> reqwest::RequestBuilder {
        let request = self.client.get(self.url.clone());
        let request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization.clone()),
            None => request,
        }
    }

    fn cancelled(&self, state: &DownloadState) -> DownloadError {
        DownloadError::Cancelled { url: self.display_url(), received: state.received }
    }

    fn changed(&self, state: &DownloadState) -> DownloadError {
        DownloadError::Changed { url: self.display_url(), received: state.received }
    }

    fn attempt_error(&self, error: &reqwest::Error) -> AttemptError {
        let reason = innermost_cause(error);
        if error.is_redirect()
            || error.is_builder()
            || server_trust::find_tls_error(error).is_some()
        {
            return AttemptError::Final(DownloadError::Failed { url: self.display_url(), reason });
        }
        AttemptError::Retryable(reason)
    }
}

/// Result of a failed attempt.
enum AttemptError {
    /// Another attempt may succeed.
    Retryable(String),
    /// Another attempt would fail in the same way.
    Final(DownloadError),
}

/// State of a download across attempts.
#[derive(Default)]
struct DownloadState {
    started: bool,
    received: u64,
    length: Option<u64>,
    version: FileVersion,
}

#[derive(Default, PartialEq, Eq)]
struct FileVersion {
    etag: Option<String>,
    modified: Option<String>,
}

impl FileVersion {
    fn of(response: &Response) -> Self {
        let text = |name: HeaderName| {
            response.headers().get(name).and_then(|it| it.to_str().ok()).map(str::to_owned)
        };
        Self { etag: text(ETAG), modified: text(LAST_MODIFIED) }
    }

    /// Returns the value for `If-Range`: a strong ETag, or the modification date.
    fn if_range_validator(&self) -> Option<&str> {
        let tag = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        tag.or(self.modified.as_deref())
    }
}

impl DownloadState {
    fn of(response: &Response) -> Self {
        Self {
            started: true,
            received: 0,
            length: response.content_length(),
            version: FileVersion::of(response),
        }
    }

    fn is_same_file(&self, response: &Response) -> bool {
        self.version == FileVersion::of(response) && self.length == response.content_length()
    }

    /// Whether a partial response continues at the byte reached, of the same file.
    fn is_continuation(&self, response: &Response) -> bool {
        let Some((start, end, total)) = content_range(response) else { return false };
        let same_length = total.is_none() || self.length.is_none() || total == self.length;
        let tag = FileVersion::of(response).etag;
        let same_tag = tag.is_none() || tag == self.version.etag;
        start == self.received && end >= start && same_length && same_tag
    }
}

/// Parses `Content-Range`: first byte, last byte and total length.
fn content_range(response: &Response) -> Option<(u64, u64, Option<u64>)> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = range.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    Some((start.parse().ok()?, end.parse().ok()?, total.parse().ok()))
}

/// Returns the `Authorization` header of an image: the given value, or basic authentication.
fn authorization(image: &ImageInfo) -> Result<Option<HeaderValue>, DownloadError> {
    let header = if let Some(given) = &image.image_request_authorization {
        let unusable =
            DownloadError::InvalidSetting { setting: "image_request_authorization (base64)" };
        STANDARD.decode(given.trim()).map_err(|_| unusable)?
    } else if image.image_server_auth_strategy.as_deref() == Some("http_basic") {
        let given = image.image_server_user.as_deref().zip(image.image_server_password.as_deref());
        let (user, password) = given
            .ok_or(DownloadError::InvalidSetting { setting: "image_server_user and _password" })?;
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
    } else {
        return Ok(None);
    };
    let mut value = HeaderValue::from_bytes(&header)
        .map_err(|_| DownloadError::InvalidSetting { setting: "image_request_authorization" })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn is_transient(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
}

fn status_advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ": check the credentials",
        StatusCode::NOT_FOUND | StatusCode::GONE => ": check the URL",
        _ => "",
    }
}

/// Formats a URL without its secret parts.
fn without_secrets(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

fn truncate(text: &str) -> String {
    text.chars().take(160).collect()
}

/// Returns the innermost cause; the outer errors contain no further information.
fn innermost_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        let phase = if error.is_connect() { "connection attempt" } else { "read" };
        return format!("{phase} timed out");
    }
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
