// SPDX-License-Identifier: Apache-2.0
//! The HTTP client of the image cache: downloads of images, and small files beside them.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::{Client, Url};

use crate::download::{
    ChangedFilePolicy, ContentVersion, DownloadFailure, DownloadOutcome, DownloadRetryPolicy,
    RequestFailure, ResumableDownload,
};
use crate::source::redacted_url;
use crate::tls::{self, ImageServerTrust, TlsTrustError};
use crate::writer::{SinkWriter, WriterClosed};

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 10;
/// Maximum delay between two attempts, as a multiple of the first one.
const MAX_DELAY_FACTOR: u32 = 32;

/// Settings of downloads.
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
    retry_policy: DownloadRetryPolicy,
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The server rejected the request.
    #[error("{url} returned {status}{}", advice(*status))]
    Refused {
        /// The URL.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// The server failed too many times in a row.
    #[error(
        "{url} failed {attempts} times in a row, the last time because {why}: check that it can be reached from here"
    )]
    RetriesExhausted {
        /// The URL.
        url: String,
        /// The number of attempts.
        attempts: u32,
        /// The last error.
        why: String,
    },
    /// Retries are useless.
    #[error("{url} cannot be read ({why}): check the address, and for https the CA certificate")]
    NotRetryable {
        /// The URL.
        url: String,
        /// The error.
        why: String,
    },
    /// The response exceeds the size limit.
    #[error("{url} has more than {limit} bytes, which is too large: check the address")]
    TooLong {
        /// The URL.
        url: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The credentials cannot be sent.
    #[error("the credentials for {url} have characters no HTTP header may have")]
    BadCredentials {
        /// The URL.
        url: String,
    },
}

/// A download request.
pub(crate) struct DownloadRequest<'a> {
    pub(crate) url: &'a Url,
    /// The `Authorization` header.
    pub(crate) authorization: Option<HeaderValue>,
    /// The cached version: if the file is unchanged, nothing is downloaded.
    pub(crate) cached_version: Option<&'a ContentVersion>,
}

/// Why a download ended early.
pub(crate) enum DownloadStopped {
    /// The server failed.
    Fetch(FetchError),
    /// The writer closed; it returns the reason.
    Writer(WriterClosed),
}

impl Fetcher {
    /// Returns a fetcher with these settings.
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
        let retry_policy = DownloadRetryPolicy {
            max_failures: settings.max_attempts,
            delay: settings.retry_delay,
            max_delay: settings.retry_delay.saturating_mul(MAX_DELAY_FACTOR),
        };
        Ok(Self { client, retry_policy })
    }

    /// Downloads into `writer` and resumes after interruptions, until the writer closes.
    pub(crate) async fn download(
        &self,
        wanted: DownloadRequest<'_>,
        writer: &SinkWriter,
    ) -> Result<DownloadOutcome, DownloadStopped> {
        let download = ResumableDownload {
            client: &self.client,
            url: wanted.url,
            authorization: wanted.authorization.as_ref(),
            cached_version: wanted.cached_version,
            retry_policy: self.retry_policy,
            changed_file: ChangedFilePolicy::Restart,
            receiver: writer.messages(),
            report: &|_, _| {},
        };
        tokio::select! {
            biased;
            closed = writer.closed() => Err(DownloadStopped::Writer(closed)),
            ended = download.run() => ended.map_err(|failure| {
                if matches!(failure, DownloadFailure::ReceiverClosed { .. }) {
                    return DownloadStopped::Writer(WriterClosed);
                }
                DownloadStopped::Fetch(FetchError::new(wanted.url, failure))
            }),
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
            let reason = match self.get_small_once(url, headers, limit).await {
                Ok(Some(response)) => return Ok(response),
                Ok(None) => return Err(FetchError::TooLong { url: redacted_url(url), limit }),
                Err(RequestFailure::Final(failure)) => return Err(FetchError::new(url, failure)),
                Err(RequestFailure::Retryable(reason)) => reason,
            };
            failures += 1;
            if !self.retry_policy.wait(failures).await {
                let url = redacted_url(url);
                return Err(FetchError::RetriesExhausted { url, attempts: failures, why: reason });
            }
        }
    }

    /// Returns `None` if the response exceeds the limit.
    async fn get_small_once(
        &self,
        url: &Url,
        headers: &HeaderMap,
        limit: usize,
    ) -> Result<Option<SmallResponse>, RequestFailure> {
        let failed = |error: reqwest::Error| RequestFailure::from_error(&error);
        let request = self.client.get(url.clone()).headers(headers.clone());
        let mut response = request.send().await.map_err(failed)?;
        if response.status().is_server_error() {
            return Err(RequestFailure::from_status(response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > limit {
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some(SmallResponse {
            status: response.status(),
            headers: response.headers().clone(),
            body,
        }))
    }
}

impl FetchError {
    fn new(url: &Url, failure: DownloadFailure) -> Self {
        let url = redacted_url(url);
        match failure {
            DownloadFailure::Status(status) => Self::Refused { url, status },
            DownloadFailure::RetriesExhausted { attempts, reason, .. } => {
                Self::RetriesExhausted { url, attempts, why: reason }
            }
            DownloadFailure::NotRetryable(why) => Self::NotRetryable { url, why },
            DownloadFailure::Changed { received }
            | DownloadFailure::ReceiverClosed { received } => {
                Self::NotRetryable { url, why: format!("stopped at byte {received}") }
            }
        }
    }
}

/// A small response.
pub(crate) struct SmallResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ": give credentials that may read it",
        StatusCode::NOT_FOUND | StatusCode::GONE => ": check the address",
        _ => "",
    }
}
