// SPDX-License-Identifier: Apache-2.0
//! The few calls to a registry that lead from an address to a blob.

use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::Url;
use ring::digest;
use serde::Deserialize;

use super::auth::Challenge;
use super::manifest::{self, Contents, Document};
use super::reference::parse_digest;
use super::{OciError, Reference};
use crate::checksum::{Algorithm, Checksum};
use crate::credentials::{Credentials, DockerConfig};
use crate::fetch::{FetchError, Fetcher, Small};

/// The longest manifest that is read: what registries themselves accept.
const MANIFEST: usize = 4 << 20;

/// The longest token that is read.
const TOKEN: usize = 256 << 10;

/// What is wanted of a registry.
pub(crate) struct Wish<'a> {
    pub(crate) reference: &'a Reference,
    /// The machine's architecture, to choose from an index.
    pub(crate) architecture: Option<&'a str>,
    /// Who we are, before what the configuration says.
    pub(crate) credentials: Option<&'a Credentials>,
    /// Who we are at which registry.
    pub(crate) config: &'a DockerConfig,
    /// Registries without TLS.
    pub(crate) plain_http: &'a [String],
}

/// An image's blob, and how to get it.
pub(crate) struct Blob {
    pub(crate) url: Url,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) digest: Checksum,
    pub(crate) size: u64,
}

/// Asks the registry which blob is meant.
pub(crate) async fn resolve(fetcher: &Fetcher, wish: Wish<'_>) -> Result<Blob, OciError> {
    let mut session = Session::new(fetcher, &wish)?;
    let mut contents = session.manifest(&wish.reference.wanted()).await?;
    if let Contents::Index(manifests) = &contents {
        let chosen = manifest::choose(manifests, wish.architecture);
        let chosen = chosen.ok_or_else(|| OciError::NothingFits {
            reference: wish.reference.to_string(),
            wanted: wish.architecture.unwrap_or("any architecture").to_owned(),
            there: manifest::listed(manifests),
        })?;
        let digest = session.digest(&chosen.digest)?;
        contents = session.manifest(&digest.to_string()).await?;
    }
    let layers = match contents {
        Contents::Manifest(layers) => layers,
        Contents::Index(_) => return Err(session.bad("an index leads to another index")),
    };
    let [layer] = layers.as_slice() else {
        let reference = wish.reference.to_string();
        return Err(OciError::NotADiskImage { reference, layers: layers.len() });
    };
    let digest = session.digest(&layer.digest)?;
    let url = session.url(&format!("blobs/{digest}"))?;
    Ok(Blob { url, authorization: session.authorization, digest, size: layer.size })
}

/// Calls to one registry about one repository.
struct Session<'a> {
    fetcher: &'a Fetcher,
    reference: &'a Reference,
    user: Option<&'a Credentials>,
    base: String,
    /// What the registry wanted to see, once it has said so.
    authorization: Option<HeaderValue>,
}

impl<'a> Session<'a> {
    fn new(fetcher: &'a Fetcher, wish: &Wish<'a>) -> Result<Self, OciError> {
        let reference = wish.reference;
        let scheme = if wish.plain_http.contains(&reference.registry) { "http" } else { "https" };
        let user = wish
            .credentials
            .or_else(|| wish.config.user(&reference.registry, &reference.repository));
        let base = format!("{scheme}://{}/v2/{}", reference.host(), reference.repository);
        Ok(Self { fetcher, reference, user, base, authorization: None })
    }

    /// The manifest or index under a tag or digest. Whatever has a digest must have that digest.
    async fn manifest(&mut self, wanted: &str) -> Result<Contents, OciError> {
        let answer = self.ask(&format!("manifests/{wanted}")).await?;
        if let Ok(digest) = parse_digest(wanted) {
            verify(&digest, &answer.body)?;
        }
        let document: Document =
            serde_json::from_slice(&answer.body).map_err(|error| self.bad(&error.to_string()))?;
        document.contents().ok_or_else(|| self.bad("it is neither a manifest nor an index"))
    }

    /// Asks, and once more with what the registry wants to see.
    async fn ask(&mut self, path: &str) -> Result<Small, OciError> {
        let url = self.url(path)?;
        let mut answer = self.get(&url).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            self.authorization = Some(self.authorize(&answer.headers).await?);
            answer = self.get(&url).await?;
        }
        match answer.status {
            StatusCode::OK => Ok(answer),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.denied()),
            StatusCode::NOT_FOUND => {
                Err(OciError::NotFound { reference: self.reference.to_string() })
            }
            status => {
                let url = url.to_string();
                Err(OciError::Fetch(FetchError::Refused { url, status }))
            }
        }
    }

    async fn get(&self, url: &Url) -> Result<Small, OciError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        self.fetcher.small(url, &headers, MANIFEST).await.map_err(OciError::Fetch)
    }

    /// What the registry wants to see.
    async fn authorize(&self, headers: &HeaderMap) -> Result<HeaderValue, OciError> {
        let asked = headers.get_all(WWW_AUTHENTICATE).iter();
        let challenge = asked.filter_map(|it| Challenge::parse(it.to_str().ok()?)).next();
        match challenge {
            Some(Challenge::Basic) => {
                self.user.and_then(Credentials::header).ok_or_else(|| self.denied())
            }
            Some(Challenge::Bearer { realm, service, scope }) => {
                let scope = scope
                    .unwrap_or_else(|| format!("repository:{}:pull", self.reference.repository));
                self.token(&realm, service.as_deref(), &scope).await
            }
            None => Err(self.denied()),
        }
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: &str,
    ) -> Result<HeaderValue, OciError> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let mut url = Url::parse(realm).map_err(|_| self.bad("it sends us to no address"))?;
        // A password does not leave over plain HTTP because a registry over TLS says so.
        if url.scheme() != "https" && self.base.starts_with("https:") {
            return Err(self.bad("it sends us for a token to a place without TLS"));
        }
        url.query_pairs_mut().extend_pairs(service.map(|it| ("service", it)));
        url.query_pairs_mut().append_pair("scope", scope);
        let mut headers = HeaderMap::new();
        if let Some(user) = self.user {
            headers.insert(AUTHORIZATION, user.header().ok_or_else(|| self.denied())?);
        }
        let answer = self.fetcher.small(&url, &headers, TOKEN).await.map_err(OciError::Fetch)?;
        if answer.status != StatusCode::OK {
            return Err(self.denied());
        }
        let token: Token = serde_json::from_slice(&answer.body)
            .map_err(|_| self.bad("what should be a token is none"))?;
        let token = token.token.or(token.access_token);
        let header = token.map(|token| Credentials::Header(format!("Bearer {token}")).header());
        header.flatten().ok_or_else(|| self.bad("what should be a token is none"))
    }

    fn url(&self, path: &str) -> Result<Url, OciError> {
        Url::parse(&format!("{}/{path}", self.base))
            .map_err(|error| self.bad(&format!("its address is none: {error}")))
    }

    fn digest(&self, text: &str) -> Result<Checksum, OciError> {
        parse_digest(text).map_err(|_| self.bad("something in it has no digest"))
    }

    fn bad(&self, what: &str) -> OciError {
        OciError::BadAnswer { reference: self.reference.to_string(), what: what.to_owned() }
    }

    fn denied(&self) -> OciError {
        OciError::Denied {
            registry: self.reference.registry.clone(),
            repository: self.reference.repository.clone(),
        }
    }
}

fn verify(expected: &Checksum, body: &[u8]) -> Result<(), OciError> {
    let algorithm = match expected.algorithm() {
        Algorithm::Sha512 => &digest::SHA512,
        Algorithm::Sha256 | Algorithm::Md5 => &digest::SHA256,
    };
    let actual = digest::digest(algorithm, body);
    if actual.as_ref() == expected.value() {
        return Ok(());
    }
    let actual = Checksum::new(expected.algorithm(), actual.as_ref().to_vec()).to_string();
    Err(OciError::WrongDigest { digest: expected.to_string(), actual })
}
