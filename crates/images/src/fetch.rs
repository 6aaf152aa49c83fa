// SPDX-License-Identifier: Apache-2.0
//! The HTTP client of the image cache: downloads of images, and small files beside them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::{Client, ClientBuilder, Url};

use crate::download::{
    ChangedFilePolicy, ContentVersion, DownloadFailure, DownloadOutcome, DownloadRetryPolicy,
    RequestFailure, ResumableDownload,
};
use crate::network_policy::ImageNetworkPolicy;
use crate::source::redacted_url;
use crate::tls::{self, ImageServerTrust, TlsTrustError};
use crate::writer::{SinkWriter, WriterClosed};

/// Maximum delay between two attempts, as a multiple of the first one.
const MAX_DELAY_FACTOR: u32 = 32;

/// Settings of downloads.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// CA certificates for image servers.
    pub trust: ImageServerTrust,
    /// The addresses that images may be fetched from.
    pub network: ImageNetworkPolicy,
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
            network: ImageNetworkPolicy::default(),
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
    network: ImageNetworkPolicy,
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

fn client_builder(settings: &FetchSettings) -> Result<ClientBuilder, TlsTrustError> {
    Ok(Client::builder()
        .tls_backend_preconfigured(tls::client_config(&settings.trust)?)
        .http1_only()
        .redirect(settings.network.redirects())
        .dns_resolver(Arc::new(settings.network))
        .referer(false)
        .connect_timeout(settings.connect_timeout)
        .read_timeout(settings.read_timeout)
        .user_agent(concat!("ferrite/", env!("CARGO_PKG_VERSION"))))
}

impl Fetcher {
    /// Returns a fetcher with these settings.
    pub fn new(settings: &FetchSettings) -> Result<Self, TlsTrustError> {
        let client = client_builder(settings)?.build().expect("settings that fit each other");
        let retry_policy = DownloadRetryPolicy {
            max_failures: settings.max_attempts,
            delay: settings.retry_delay,
            max_delay: settings.retry_delay.saturating_mul(MAX_DELAY_FACTOR),
        };
        Ok(Self { client, network: settings.network, retry_policy })
    }

    /// Downloads into `writer` and resumes after interruptions, until the writer closes.
    pub(crate) async fn download(
        &self,
        wanted: DownloadRequest<'_>,
        writer: &SinkWriter,
    ) -> Result<DownloadOutcome, DownloadStopped> {
        if let Err(error) = self.network.check_url(wanted.url) {
            let failure = DownloadFailure::NotRetryable(error.to_string());
            return Err(DownloadStopped::Fetch(FetchError::new(wanted.url, failure)));
        }
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
        self.network.check_url(url)?;
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::network_policy::is_local_address_error;

    /// The name of an allowed server is resolved to the test server, as it would be to one in the network.
    #[tokio::test]
    async fn redirects_to_local_addresses_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (location, paths) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(vec![])));
        let (to, seen) = (Arc::clone(&location), Arc::clone(&paths));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let length = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..length]);
                let path = head.split(' ').nth(1).unwrap().to_owned();
                let reply = match path.as_str() {
                    "/image" => format!("302 Found\r\nLocation: {}", to.lock().unwrap()),
                    _ => "200 OK".to_owned(),
                };
                seen.lock().unwrap().push(path);
                let reply =
                    format!("HTTP/1.1 {reply}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(reply.as_bytes()).await.unwrap();
            }
        });
        let client = client_builder(&FetchSettings::default()).unwrap();
        let client = client.no_proxy().resolve("images.example", address).build().unwrap();
        let port = address.port();
        let get = async |target: String| {
            *location.lock().unwrap() = target;
            let result = client.get(format!("http://images.example:{port}/image")).send().await;
            (result, std::mem::take(&mut *paths.lock().unwrap()))
        };
        for host in ["127.0.0.1", "localhost", "0.0.0.0", "127.1", "[::1]", "169.254.169.254"] {
            let (result, seen) = get(format!("http://{host}:{port}/secret")).await;
            assert!(is_local_address_error(&result.unwrap_err()), "{host}");
            assert_eq!(seen, ["/image"], "{host}");
        }
        let (result, seen) = get(format!("http://images.example:{port}/moved")).await;
        assert_eq!(result.unwrap().status(), StatusCode::OK);
        assert_eq!(seen, ["/image", "/moved"]);
    }
}
