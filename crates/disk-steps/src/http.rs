// SPDX-License-Identifier: Apache-2.0
//! Files on HTTP servers: downloads that resume after an interruption, and ranges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::ImageInfo;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use images::{
    ChangedFilePolicy, DownloadFailure, DownloadMessage, DownloadRetryPolicy, RequestFailure,
    ResumableDownload, content_range, redacted_url,
};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, RANGE};
use reqwest::{Client, NoProxy, Proxy, StatusCode, Url};
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

/// A file on a server, with the client to fetch it.
#[derive(Clone)]
pub(crate) struct RemoteFile {
    client: Client,
    url: Url,
    authorization: Option<HeaderValue>,
    retry_policy: DownloadRetryPolicy,
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
        let retry_policy = DownloadRetryPolicy {
            max_failures: self.retries.saturating_add(1),
            delay: self.retry_interval,
            max_delay: self.retry_interval,
        };
        let total_timeout = self.total_timeout;
        Ok(RemoteFile { client, url: parsed, authorization, retry_policy, total_timeout })
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
        for (scheme, url) in proxies {
            let proxy = match scheme.as_str() {
                "http" => Proxy::http(url.as_str()).map_err(unusable)?,
                "https" => Proxy::https(url.as_str()).map_err(unusable)?,
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
        redacted_url(&self.url)
    }

    /// Returns the file name in the URL.
    pub(crate) fn file_name(&self) -> &str {
        self.url.path().rsplit('/').next().unwrap_or_default()
    }

    /// Downloads the whole file into `receiver`; `report` gets received bytes and total length.
    pub(crate) async fn download(
        &self,
        receiver: mpsc::Sender<DownloadMessage>,
        report: &(dyn Fn(u64, Option<u64>) + Sync),
    ) -> Result<(), DownloadError> {
        let download = ResumableDownload {
            client: &self.client,
            url: &self.url,
            authorization: self.authorization.as_ref(),
            cached_version: None,
            retry_policy: self.retry_policy,
            // The bytes received so far are on the disk.
            changed_file: ChangedFilePolicy::Fail,
            receiver: &receiver,
            report,
        };
        let outcome = match self.total_timeout {
            None => download.run().await,
            Some(total_timeout) => {
                let timed_out = |_| DownloadError::TimedOut {
                    url: self.display_url(),
                    seconds: total_timeout.as_secs(),
                };
                tokio::time::timeout(total_timeout, download.run()).await.map_err(timed_out)?
            }
        };
        outcome.map(drop).map_err(|failure| self.error(failure))
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
                Err(RequestFailure::Final(failure)) => return Err(self.error(failure)),
                Err(RequestFailure::Retryable(reason)) => reason,
            };
            failures += 1;
            if !self.retry_policy.wait(failures).await {
                let (attempts, received) = (failures, offset);
                let failure = DownloadFailure::RetriesExhausted { attempts, received, reason };
                return Err(self.error(failure));
            }
        }
    }

    async fn try_range(&self, offset: u64, length: u64) -> Result<Option<Vec<u8>>, RequestFailure> {
        let failed = |error: reqwest::Error| RequestFailure::from_error(&error);
        let last = offset + length - 1;
        let mut request = self
            .client
            .get(self.url.clone())
            .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(RANGE, format!("bytes={offset}-{last}"));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let mut response = request.send().await.map_err(failed)?;
        if response.status() != StatusCode::PARTIAL_CONTENT {
            return match RequestFailure::from_status(response.status()) {
                RequestFailure::Final(_) => Ok(None),
                retryable @ RequestFailure::Retryable(_) => Err(retryable),
            };
        }
        let start = content_range(&response).map(|(start, ..)| start);
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
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
                if let DownloadMessage::Bytes(chunk) = chunk {
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

    fn error(&self, failure: DownloadFailure) -> DownloadError {
        let url = self.display_url();
        match failure {
            DownloadFailure::Status(status) => DownloadError::Status { url, status },
            DownloadFailure::RetriesExhausted { attempts, received, reason } => {
                DownloadError::RetriesExhausted { url, attempts, received, reason }
            }
            DownloadFailure::NotRetryable(reason) => DownloadError::Failed { url, reason },
            DownloadFailure::Changed { received } => DownloadError::Changed { url, received },
            DownloadFailure::ReceiverClosed { received } => {
                DownloadError::Cancelled { url, received }
            }
        }
    }
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

fn status_advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ": check the credentials",
        StatusCode::NOT_FOUND | StatusCode::GONE => ": check the URL",
        _ => "",
    }
}

fn truncate(text: &str) -> String {
    text.chars().take(160).collect()
}
