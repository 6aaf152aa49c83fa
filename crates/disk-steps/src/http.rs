// SPDX-License-Identifier: Apache-2.0
//! Downloads that go on after breaks: from the byte where they broke, if the server still has the
//! same file.

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

/// The longest checksum file that is read.
const LONGEST_TEXT: usize = 1 << 20;

/// How files are fetched.
#[derive(Clone)]
pub struct Http {
    /// Whom to trust, and who we are.
    pub tls: rustls::ClientConfig,
    /// What finds the addresses of names, where the system's own way does not work.
    pub resolver: Option<Arc<dyn reqwest::dns::Resolve>>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long a server may say nothing.
    pub silence: Duration,
    /// How often to try again without any progress.
    pub retries: u32,
    /// How long to wait before that.
    pub pause: Duration,
    /// How long a whole download may take, if that is bounded.
    pub longest: Option<Duration>,
}

/// Why a file did not come.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No address of a file.
    #[error("{url:?} is no http(s) address: correct it")]
    NoUrl {
        /// What was given.
        url: String,
    },
    /// Something else in the order cannot be used.
    #[error("the image's {what} cannot be used: correct it")]
    Unusable {
        /// What.
        what: &'static str,
    },
    /// The server refuses.
    #[error("{url} answers {status}{}", advice(*status))]
    Refused {
        /// Where.
        url: String,
        /// What it says.
        status: StatusCode,
    },
    /// It goes on failing.
    #[error(
        "{url} failed {attempts} times in a row, last at byte {at}: {why}; check the server and the network between"
    )]
    Failing {
        /// Where.
        url: String,
        /// How often.
        attempts: u32,
        /// How far it had come.
        at: u64,
        /// What happened.
        why: String,
    },
    /// It was replaced while it came.
    #[error("{url} was changed on its server while it was downloaded (at byte {at}): try again")]
    Changed {
        /// Where.
        url: String,
        /// How far it had come.
        at: u64,
    },
    /// Something that another attempt does not mend.
    #[error("{url} cannot be downloaded: {why}")]
    Impossible {
        /// Where.
        url: String,
        /// Why.
        why: String,
    },
    /// It takes too long.
    #[error(
        "{url} did not come whole within {seconds} seconds: allow it more time, or come nearer"
    )]
    TooSlow {
        /// Where.
        url: String,
        /// How long was allowed.
        seconds: u64,
    },
    /// It is longer than such a file can be.
    #[error("{url} has more than {limit} bytes, too many for what it should be: check the address")]
    TooLong {
        /// Where.
        url: String,
        /// How many were allowed.
        limit: usize,
    },
    /// Nobody wants the rest.
    #[error("the download of {url} was stopped at byte {at}")]
    Stopped {
        /// Where.
        url: String,
        /// How far it had come.
        at: u64,
    },
}

/// Part of a download, on its way to whoever writes it.
pub(crate) enum Piece {
    /// How long the whole is, if the server says so. Comes first.
    Length(Option<u64>),
    /// The next bytes.
    Bytes(Bytes),
    /// There is no more.
    End,
}

/// A file on a server, and how to get at it.
#[derive(Clone)]
pub(crate) struct Remote {
    client: Client,
    url: Url,
    authorization: Option<HeaderValue>,
    settings: Patience,
}

#[derive(Clone, Copy)]
struct Patience {
    retries: u32,
    pause: Duration,
    longest: Option<Duration>,
}

impl Http {
    /// The file at `url`; with the proxies and credentials of `image`, if it is for one.
    pub(crate) fn remote(&self, url: &str, image: Option<&ImageInfo>) -> Result<Remote, HttpError> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let parsed = parsed.ok_or_else(|| HttpError::NoUrl { url: shortened(url) })?;
        let (client, authorization) = match image {
            None => (self.client(&BTreeMap::new(), None)?, None),
            Some(image) => {
                (self.client(&image.proxies, image.no_proxy.as_deref())?, authorization(image)?)
            }
        };
        let settings = Patience { retries: self.retries, pause: self.pause, longest: self.longest };
        Ok(Remote { client, url: parsed, authorization, settings })
    }

    fn client(
        &self,
        proxies: &BTreeMap<String, String>,
        no_proxy: Option<&str>,
    ) -> Result<Client, HttpError> {
        let mut builder = Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::limited(10))
            .referer(false)
            .connect_timeout(self.connect_timeout)
            .read_timeout(self.silence)
            .user_agent(concat!("ferrite-agent/", env!("CARGO_PKG_VERSION")));
        if let Some(resolver) = &self.resolver {
            builder = builder.dns_resolver(Arc::clone(resolver));
        }
        let except = no_proxy.and_then(NoProxy::from_string);
        let unusable = |_| HttpError::Unusable { what: "proxies" };
        for (scheme, address) in proxies {
            let proxy = match scheme.as_str() {
                "http" => Proxy::http(address.as_str()).map_err(unusable)?,
                "https" => Proxy::https(address.as_str()).map_err(unusable)?,
                _ => continue,
            };
            builder = builder.proxy(proxy.no_proxy(except.clone()));
        }
        builder.build().map_err(|_| HttpError::Unusable { what: "proxies" })
    }
}

impl Remote {
    /// Its address, for people: without credentials and parameters.
    pub(crate) fn address(&self) -> String {
        displayed(&self.url)
    }

    /// The name of the file.
    pub(crate) fn file_name(&self) -> &str {
        self.url.path().rsplit('/').next().unwrap_or_default()
    }

    /// Downloads all of it into `pieces`, and tells how far it is.
    pub(crate) async fn download(
        &self,
        pieces: mpsc::Sender<Piece>,
        tell: &(dyn Fn(u64, Option<u64>) + Sync),
    ) -> Result<(), HttpError> {
        let work = self.attempts(&pieces, tell);
        match self.settings.longest {
            None => work.await,
            Some(longest) => tokio::time::timeout(longest, work).await.unwrap_or_else(|_| {
                Err(HttpError::TooSlow { url: self.address(), seconds: longest.as_secs() })
            }),
        }
    }

    async fn attempts(
        &self,
        pieces: &mpsc::Sender<Piece>,
        tell: &(dyn Fn(u64, Option<u64>) + Sync),
    ) -> Result<(), HttpError> {
        let mut so_far = SoFar::default();
        let mut failures = 0;
        loop {
            let before = so_far.received;
            let why = match self.attempt(&mut so_far, pieces, tell).await {
                Ok(()) => {
                    return pieces.send(Piece::End).await.map_err(|_| self.stopped(&so_far));
                }
                Err(Ended::Broken(why)) => why,
                Err(Ended::Final(error)) => return Err(error),
            };
            failures = if so_far.received > before { 1 } else { failures + 1 };
            let at = so_far.received;
            tracing::warn!(url = self.address(), at, failures, why, "the download broke");
            if failures > self.settings.retries {
                let url = self.address();
                return Err(HttpError::Failing { url, attempts: failures, at, why });
            }
            tokio::time::sleep(self.settings.pause).await;
        }
    }

    async fn attempt(
        &self,
        so_far: &mut SoFar,
        pieces: &mpsc::Sender<Piece>,
        tell: &(dyn Fn(u64, Option<u64>) + Sync),
    ) -> Result<(), Ended> {
        let mut request = self.request();
        if so_far.received > 0 {
            request = request.header(RANGE, format!("bytes={}-", so_far.received));
            if let Some(version) = so_far.version.strong() {
                request = request.header(IF_RANGE, version);
            }
        }
        let mut response = request.send().await.map_err(|error| self.ended(&error))?;
        let mut repeated = 0;
        match response.status() {
            StatusCode::OK if !so_far.started => {
                *so_far = SoFar::of(&response);
                pieces
                    .send(Piece::Length(so_far.length))
                    .await
                    .map_err(|_| Ended::Final(self.stopped(so_far)))?;
            }
            // The server gives no ranges: what is here already comes once more, and is passed over.
            StatusCode::OK if so_far.is_same(&response) => repeated = so_far.received,
            StatusCode::OK => return Err(Ended::Final(self.changed(so_far))),
            StatusCode::PARTIAL_CONTENT if so_far.goes_on(&response) => {}
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                return Err(Ended::Final(self.changed(so_far)));
            }
            status if is_passing(status) => {
                return Err(Ended::Broken(format!("it answers {status}")));
            }
            status => {
                return Err(Ended::Final(HttpError::Refused { url: self.address(), status }));
            }
        }
        while let Some(piece) = response.chunk().await.map_err(|error| self.ended(&error))? {
            let known = usize::try_from(repeated).map_or(piece.len(), |left| left.min(piece.len()));
            repeated -= known as u64;
            let piece = piece.slice(known..);
            if piece.is_empty() {
                continue;
            }
            so_far.received += piece.len() as u64;
            tell(so_far.received, so_far.length);
            pieces
                .send(Piece::Bytes(piece))
                .await
                .map_err(|_| Ended::Final(self.stopped(so_far)))?;
        }
        match so_far.length {
            Some(length) if length != so_far.received => {
                Err(Ended::Broken(format!("only {} of {length} bytes came", so_far.received)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A part of it; none if the server gives no parts.
    pub(crate) async fn range(
        &self,
        offset: u64,
        length: u64,
    ) -> Result<Option<Vec<u8>>, HttpError> {
        let mut failures = 0;
        loop {
            let why = match self.range_once(offset, length).await {
                Ok(bytes) => return Ok(bytes),
                Err(Ended::Final(error)) => return Err(error),
                Err(Ended::Broken(why)) => why,
            };
            failures += 1;
            if failures > self.settings.retries {
                let url = self.address();
                return Err(HttpError::Failing { url, attempts: failures, at: offset, why });
            }
            tokio::time::sleep(self.settings.pause).await;
        }
    }

    async fn range_once(&self, offset: u64, length: u64) -> Result<Option<Vec<u8>>, Ended> {
        let last = offset + length - 1;
        let request = self.request().header(RANGE, format!("bytes={offset}-{last}"));
        let mut response = request.send().await.map_err(|error| self.ended(&error))?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            status if is_passing(status) => {
                return Err(Ended::Broken(format!("it answers {status}")));
            }
            _ => return Ok(None),
        }
        let start = content_range(&response).map(|(start, ..)| start);
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.ended(&error))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > length {
                return Ok(None);
            }
        }
        Ok(Some(bytes).filter(|bytes| start == Some(offset) && bytes.len() as u64 == length))
    }

    /// All of a text.
    pub(crate) async fn text(&self) -> Result<String, HttpError> {
        let bytes = self.bytes(LONGEST_TEXT).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All of a small file.
    pub(crate) async fn bytes(&self, limit: usize) -> Result<Vec<u8>, HttpError> {
        let (sender, mut receiver) = mpsc::channel(4);
        let collect = async move {
            let mut bytes = Vec::new();
            while let Some(piece) = receiver.recv().await {
                if let Piece::Bytes(piece) = piece {
                    if bytes.len() + piece.len() > limit {
                        return Err(HttpError::TooLong { url: self.address(), limit });
                    }
                    bytes.extend_from_slice(&piece);
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

    fn stopped(&self, so_far: &SoFar) -> HttpError {
        HttpError::Stopped { url: self.address(), at: so_far.received }
    }

    fn changed(&self, so_far: &SoFar) -> HttpError {
        HttpError::Changed { url: self.address(), at: so_far.received }
    }

    fn ended(&self, error: &reqwest::Error) -> Ended {
        let why = words(error);
        if error.is_redirect() || error.is_builder() || server_trust::tls_error_in(error).is_some()
        {
            return Ended::Final(HttpError::Impossible { url: self.address(), why });
        }
        Ended::Broken(why)
    }
}

/// Why one attempt ended.
enum Ended {
    /// Another attempt may do better.
    Broken(String),
    /// Another attempt would end the same way.
    Final(HttpError),
}

/// How far a download is.
#[derive(Default)]
struct SoFar {
    started: bool,
    received: u64,
    length: Option<u64>,
    version: Version,
}

#[derive(Default, PartialEq, Eq)]
struct Version {
    etag: Option<String>,
    modified: Option<String>,
}

impl Version {
    fn of(response: &Response) -> Self {
        let text = |name: HeaderName| {
            response.headers().get(name).and_then(|it| it.to_str().ok()).map(str::to_owned)
        };
        Self { etag: text(ETAG), modified: text(LAST_MODIFIED) }
    }

    /// What makes sure that the rest belongs to what is here: weak tags do not.
    fn strong(&self) -> Option<&str> {
        let tag = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        tag.or(self.modified.as_deref())
    }
}

impl SoFar {
    fn of(response: &Response) -> Self {
        Self {
            started: true,
            received: 0,
            length: response.content_length(),
            version: Version::of(response),
        }
    }

    fn is_same(&self, response: &Response) -> bool {
        self.version == Version::of(response) && self.length == response.content_length()
    }

    /// Whether this is the rest of what is here.
    fn goes_on(&self, response: &Response) -> bool {
        let Some((start, end, total)) = content_range(response) else { return false };
        let same_length = total.is_none() || self.length.is_none() || total == self.length;
        let tag = Version::of(response).etag;
        let same_tag = tag.is_none() || tag == self.version.etag;
        start == self.received && end >= start && same_length && same_tag
    }
}

/// The first and the last byte of a part, and the length of the whole.
fn content_range(response: &Response) -> Option<(u64, u64, Option<u64>)> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = range.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    Some((start.parse().ok()?, end.parse().ok()?, total.parse().ok()))
}

/// What an image's server wants to see: the header that was given, or a user and a password.
fn authorization(image: &ImageInfo) -> Result<Option<HeaderValue>, HttpError> {
    let header = if let Some(given) = &image.image_request_authorization {
        let unusable = HttpError::Unusable { what: "image_request_authorization (base64)" };
        STANDARD.decode(given.trim()).map_err(|_| unusable)?
    } else if image.image_server_auth_strategy.as_deref() == Some("http_basic") {
        let given = image.image_server_user.as_deref().zip(image.image_server_password.as_deref());
        let (user, password) =
            given.ok_or(HttpError::Unusable { what: "image_server_user and _password" })?;
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
    } else {
        return Ok(None);
    };
    let mut value = HeaderValue::from_bytes(&header)
        .map_err(|_| HttpError::Unusable { what: "image_request_authorization" })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn is_passing(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
}

fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ": give credentials that may read it",
        StatusCode::NOT_FOUND | StatusCode::GONE => ": check the address",
        _ => "",
    }
}

/// An address without what may be secret in it.
fn displayed(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

fn shortened(text: &str) -> String {
    text.chars().take(160).collect()
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
