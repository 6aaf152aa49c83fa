// SPDX-License-Identifier: Apache-2.0
//! The registry requests that resolve a reference to a blob.

use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::Url;
use ring::digest;
use serde::Deserialize;

use super::auth::AuthChallenge;
use super::container_signature::sha256;
use super::manifest::{self, ManifestContents, ManifestDocument};
use super::reference::parse_digest;
use super::{OciError, OciReference};
use crate::checksum::{Checksum, ChecksumAlgorithm};
use crate::credentials::{DockerConfig, ImageCredentials};
use crate::fetch::{FetchError, Fetcher, SmallResponse};

/// Size limit of a manifest: the limit of registries themselves.
const MAX_MANIFEST_BYTES: usize = 4 << 20;

/// Size limit of a token response.
const MAX_TOKEN_BYTES: usize = 256 << 10;

/// A request to a registry.
pub(crate) struct OciRequest<'a> {
    pub(crate) reference: &'a OciReference,
    /// The machine's architecture, to choose from an index.
    pub(crate) architecture: Option<&'a str>,
    /// Credentials of the request; they take precedence over the configured ones.
    pub(crate) credentials: Option<&'a ImageCredentials>,
    /// Configured credentials.
    pub(crate) config: &'a DockerConfig,
    /// Registries without TLS.
    pub(crate) plain_http: &'a [String],
}

/// The blob of an image, and its URL and authorization.
pub(crate) struct OciBlob {
    pub(crate) url: Url,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) digest: Checksum,
    pub(crate) size: u64,
}

/// Resolves a reference to a blob.
pub(crate) async fn resolve(fetcher: &Fetcher, wish: OciRequest<'_>) -> Result<OciBlob, OciError> {
    let mut session = RegistrySession::new(fetcher, &wish)?;
    let mut contents = session.manifest(&wish.reference.manifest_reference()).await?;
    if let ManifestContents::Index(manifests) = &contents {
        let chosen = manifest::choose_manifest(manifests, wish.architecture);
        let chosen = chosen.ok_or_else(|| OciError::NoMatchingManifest {
            reference: wish.reference.to_string(),
            wanted: wish.architecture.unwrap_or("any architecture").to_owned(),
            there: manifest::describe_manifests(manifests),
        })?;
        let digest = session.digest(&chosen.digest)?;
        contents = session.manifest(&digest.to_string()).await?;
    }
    let layers = match contents {
        ManifestContents::Manifest(layers) => layers,
        ManifestContents::Index(_) => {
            return Err(session.invalid_response("an index leads to another index"));
        }
    };
    let [layer] = layers.as_slice() else {
        let reference = wish.reference.to_string();
        return Err(OciError::NotADiskImage { reference, layers: layers.len() });
    };
    let digest = session.digest(&layer.digest)?;
    let url = session.url(&format!("blobs/{digest}"))?;
    Ok(OciBlob { url, authorization: session.authorization, digest, size: layer.size })
}

/// Requests to one repository of a registry.
pub(super) struct RegistrySession<'a> {
    fetcher: &'a Fetcher,
    reference: &'a OciReference,
    user: Option<&'a ImageCredentials>,
    base: String,
    /// The `Authorization` header, once the registry required one.
    authorization: Option<HeaderValue>,
}

impl<'a> RegistrySession<'a> {
    pub(super) fn new(fetcher: &'a Fetcher, wish: &OciRequest<'a>) -> Result<Self, OciError> {
        let reference = wish.reference;
        let scheme = if wish.plain_http.contains(&reference.registry) { "http" } else { "https" };
        let user = wish
            .credentials
            .or_else(|| wish.config.credentials_for(&reference.registry, &reference.repository));
        let base = format!("{scheme}://{}/v2/{}", reference.host(), reference.repository);
        Ok(Self { fetcher, reference, user, base, authorization: None })
    }

    /// Returns the manifest or index under a tag or digest. Content requested by digest is verified.
    pub(super) async fn manifest(&mut self, wanted: &str) -> Result<ManifestContents, OciError> {
        let response = self.get_authorized(&format!("manifests/{wanted}")).await?;
        if let Ok(digest) = parse_digest(wanted) {
            verify(&digest, &response.body)?;
        }
        let document: ManifestDocument = serde_json::from_slice(&response.body)
            .map_err(|error| self.invalid_response(&error.to_string()))?;
        document
            .contents()
            .ok_or_else(|| self.invalid_response("it is neither a manifest nor an index"))
    }

    /// Returns the digest of the manifest or index under a tag or digest.
    pub(super) async fn manifest_digest(&mut self, wanted: &str) -> Result<Checksum, OciError> {
        let response = self.get_authorized(&format!("manifests/{wanted}")).await?;
        match parse_digest(wanted) {
            Ok(digest) => verify(&digest, &response.body).map(|()| digest),
            Err(_) => Ok(sha256(&response.body)),
        }
    }

    /// Returns a blob of at most the size of a manifest.
    pub(super) async fn small_blob(&mut self, digest: &str) -> Result<Vec<u8>, OciError> {
        let digest = self.digest(digest)?;
        let response = self.get_authorized(&format!("blobs/{digest}")).await?;
        verify(&digest, &response.body)?;
        Ok(response.body)
    }

    /// Sends a request, and repeats it with authorization if the registry requires it.
    async fn get_authorized(&mut self, path: &str) -> Result<SmallResponse, OciError> {
        let url = self.url(path)?;
        let mut response = self.get(&url).await?;
        if response.status == StatusCode::UNAUTHORIZED {
            self.authorization = Some(self.authorize(&response.headers).await?);
            response = self.get(&url).await?;
        }
        match response.status {
            StatusCode::OK => Ok(response),
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

    async fn get(&self, url: &Url) -> Result<SmallResponse, OciError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        self.fetcher.get_small(url, &headers, MAX_MANIFEST_BYTES).await.map_err(OciError::Fetch)
    }

    /// Returns the `Authorization` header for the registry's challenge.
    async fn authorize(&self, headers: &HeaderMap) -> Result<HeaderValue, OciError> {
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter();
        let challenge = challenges.filter_map(|it| AuthChallenge::parse(it.to_str().ok()?)).next();
        match challenge {
            Some(AuthChallenge::Basic) => {
                self.user.and_then(ImageCredentials::header).ok_or_else(|| self.denied())
            }
            Some(AuthChallenge::Bearer { realm, service, scope }) => {
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
        let mut url =
            Url::parse(realm).map_err(|_| self.invalid_response("invalid token realm URL"))?;
        // A password is not sent over plain HTTP on behalf of a registry with TLS.
        if url.scheme() != "https" && self.base.starts_with("https:") {
            return Err(self.invalid_response("the token realm does not use TLS"));
        }
        url.query_pairs_mut().extend_pairs(service.map(|it| ("service", it)));
        url.query_pairs_mut().append_pair("scope", scope);
        let mut headers = HeaderMap::new();
        if let Some(user) = self.user {
            headers.insert(AUTHORIZATION, user.header().ok_or_else(|| self.denied())?);
        }
        let response = self
            .fetcher
            .get_small(&url, &headers, MAX_TOKEN_BYTES)
            .await
            .map_err(OciError::Fetch)?;
        if response.status != StatusCode::OK {
            return Err(self.denied());
        }
        let token: Token = serde_json::from_slice(&response.body)
            .map_err(|_| self.invalid_response("invalid token response"))?;
        let token = token.token.or(token.access_token);
        let header =
            token.map(|token| ImageCredentials::Header(format!("Bearer {token}")).header());
        header.flatten().ok_or_else(|| self.invalid_response("invalid token response"))
    }

    fn url(&self, path: &str) -> Result<Url, OciError> {
        Url::parse(&format!("{}/{path}", self.base))
            .map_err(|error| self.invalid_response(&format!("invalid address: {error}")))
    }

    fn digest(&self, text: &str) -> Result<Checksum, OciError> {
        parse_digest(text).map_err(|_| self.invalid_response("a digest is invalid"))
    }

    pub(super) fn invalid_response(&self, what: &str) -> OciError {
        OciError::InvalidResponse { reference: self.reference.to_string(), what: what.to_owned() }
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
        ChecksumAlgorithm::Sha512 => &digest::SHA512,
        ChecksumAlgorithm::Sha256 | ChecksumAlgorithm::Md5 => &digest::SHA256,
    };
    let actual = digest::digest(algorithm, body);
    if actual.as_ref() == expected.value() {
        return Ok(());
    }
    let actual = Checksum::new(expected.algorithm(), actual.as_ref().to_vec()).to_string();
    Err(OciError::WrongDigest { digest: expected.to_string(), actual })
}
