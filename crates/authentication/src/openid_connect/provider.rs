// SPDX-License-Identifier: Apache-2.0
//! An OpenID Connect provider: its discovery document, its keys and their rotation.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::StatusCode;
use node_model::{Secret, Timestamp};
use reqwest::Url;
use serde_json::Value;

use super::OpenIdSettings;
use super::json_web_token::{TokenProblem, TokenRequirements, UnverifiedToken, VerifiedClaims};
use super::signing_keys::SigningKeys;
use crate::error::AuthSetupError;
use crate::identity_service_client::{IdentityServiceClient, service_url};

/// Timeout of a request to the provider.
const TIMEOUT: Duration = Duration::from_secs(10);
/// After how long the keys are fetched again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// For how long keys are used while the provider does not respond.
const MAX_KEY_AGE: Duration = Duration::from_secs(60 * 60);
/// Shortest time between two fetches: tokens with unknown keys must not overload the provider.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest time between a failed fetch and the next one.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// A provider.
pub(crate) struct OpenIdProvider {
    pub(super) settings: OpenIdSettings,
    pub(super) client: IdentityServiceClient,
    pub(super) client_secret: Option<Secret<String>>,
    discovery_url: Url,
    current: RwLock<Option<Arc<ProviderMetadata>>>,
    fetches: tokio::sync::Mutex<Option<FetchAttempt>>,
}

/// What the provider publishes.
#[derive(Debug)]
pub(super) struct ProviderMetadata {
    keys: SigningKeys,
    pub(super) authorization_endpoint: Option<Url>,
    pub(super) token_endpoint: Option<Url>,
    fetched_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct FetchAttempt {
    at: Instant,
    is_failed: bool,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenRejection {
    Invalid(TokenProblem),
    /// The provider does not respond, so the token cannot be verified.
    ProviderDown,
}

/// Why there is no newer metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotFetched {
    /// The last fetch was too recent.
    TooEarly,
    /// The provider does not respond.
    Down,
}

impl OpenIdProvider {
    /// Checks the settings. The provider is contacted when it is needed, so that the server starts while
    /// the provider is down.
    pub(crate) fn new(settings: OpenIdSettings) -> Result<Self, AuthSetupError> {
        let invalid = |problem: String| AuthSetupError::OpenIdConnect { problem };
        let mut discovery_url = service_url(&settings.issuer).map_err(invalid)?;
        let path = discovery_url.path().trim_end_matches('/').to_owned();
        discovery_url.set_path(&format!("{path}/.well-known/openid-configuration"));
        if settings.algorithms.is_empty() {
            return Err(invalid("no signature algorithm is allowed".to_owned()));
        }
        if settings.audiences().is_empty() {
            return Err(invalid("set the audience of tokens, or a client id".to_owned()));
        }
        let client =
            IdentityServiceClient::new(settings.ca_file.as_deref(), TIMEOUT).map_err(invalid)?;
        let client_secret = match &settings.client_secret_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| invalid(format!("{}: {error}", path.display())))?;
                Some(Secret::new(text.trim().to_owned()))
            }
        };
        Ok(Self {
            settings,
            client,
            client_secret,
            discovery_url,
            current: RwLock::new(None),
            fetches: tokio::sync::Mutex::new(None),
        })
    }

    /// The issuer in tokens.
    pub(crate) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// The claims of a token for one of these audiences.
    pub(super) async fn verify(
        &self,
        token: &UnverifiedToken<'_>,
        audiences: &[String],
        now: Timestamp,
        instant: Instant,
    ) -> Result<VerifiedClaims, TokenRejection> {
        let required = TokenRequirements {
            issuer: &self.settings.issuer,
            audiences,
            algorithms: &self.settings.algorithms,
            leeway: self.settings.leeway,
        };
        let metadata = self.metadata(instant).await?;
        match token.verify(&metadata.keys, &required, now) {
            // The provider may have a new key.
            Err(TokenProblem::UnknownKey) => {}
            verified => return verified.map_err(TokenRejection::Invalid),
        }
        match self.fetch_newer(Some(&metadata), instant).await {
            Ok(newer) => token.verify(&newer.keys, &required, now).map_err(TokenRejection::Invalid),
            Err(NotFetched::TooEarly) => Err(TokenRejection::Invalid(TokenProblem::UnknownKey)),
            Err(NotFetched::Down) => Err(TokenRejection::ProviderDown),
        }
    }

    /// The published metadata, at most [`MAX_KEY_AGE`] old.
    pub(super) async fn metadata(
        &self,
        now: Instant,
    ) -> Result<Arc<ProviderMetadata>, TokenRejection> {
        let Some(current) = self.current() else {
            return self.fetch_newer(None, now).await.map_err(|_| TokenRejection::ProviderDown);
        };
        let age = now.saturating_duration_since(current.fetched_at);
        if age < REFRESH_INTERVAL {
            return Ok(current);
        }
        // While another request fetches the keys, the old ones are used.
        if age < MAX_KEY_AGE && self.fetches.try_lock().is_err() {
            return Ok(current);
        }
        match self.fetch_newer(Some(&current), now).await {
            Ok(newer) => Ok(newer),
            Err(_) if age < MAX_KEY_AGE => Ok(current),
            Err(_) => Err(TokenRejection::ProviderDown),
        }
    }

    /// Metadata newer than `known`. Concurrent calls share one fetch.
    async fn fetch_newer(
        &self,
        known: Option<&Arc<ProviderMetadata>>,
        now: Instant,
    ) -> Result<Arc<ProviderMetadata>, NotFetched> {
        let mut last_attempt = self.fetches.lock().await;
        if let Some(current) = self.current()
            && known.is_none_or(|known| !Arc::ptr_eq(known, &current))
        {
            return Ok(current);
        }
        if let Some(FetchAttempt { at, is_failed }) = *last_attempt {
            let interval = if is_failed { MIN_RETRY_INTERVAL } else { MIN_FETCH_INTERVAL };
            if now.saturating_duration_since(at) < interval {
                return Err(if is_failed { NotFetched::Down } else { NotFetched::TooEarly });
            }
        }
        let fetched = self.fetch(now).await;
        *last_attempt = Some(FetchAttempt { at: now, is_failed: fetched.is_err() });
        match fetched {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                *self.current.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::clone(&metadata));
                Ok(metadata)
            }
            Err(error) => {
                tracing::warn!(
                    issuer = self.settings.issuer,
                    error,
                    "fetching the keys of the OpenID Connect provider failed"
                );
                Err(NotFetched::Down)
            }
        }
    }

    async fn fetch(&self, now: Instant) -> Result<ProviderMetadata, String> {
        let document = self.get(&self.discovery_url).await?;
        if document["issuer"].as_str() != Some(&self.settings.issuer) {
            return Err(format!(
                "the discovery document has the issuer {}, not {}",
                document["issuer"], self.settings.issuer
            ));
        }
        let endpoint = |name: &str| document[name].as_str().map(service_url).transpose();
        let key_set_url = endpoint("jwks_uri")?.ok_or("the discovery document has no jwks_uri")?;
        let keys = SigningKeys::parse(&self.get(&key_set_url).await?);
        if keys.is_empty() {
            return Err("the provider has no usable keys".to_owned());
        }
        Ok(ProviderMetadata {
            keys,
            authorization_endpoint: endpoint("authorization_endpoint")?,
            token_endpoint: endpoint("token_endpoint")?,
            fetched_at: now,
        })
    }

    async fn get(&self, url: &Url) -> Result<Value, String> {
        let response = self.client.get(url, &[]).await?;
        if response.status != StatusCode::OK || !response.body.is_object() {
            return Err(format!("{url} returned {} and no JSON object", response.status));
        }
        Ok(response.body)
    }

    fn current(&self) -> Option<Arc<ProviderMetadata>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
