// SPDX-License-Identifier: Apache-2.0
//! Validates tokens with `GET /v3/auth/tokens`, and caches the results.
//!
//! Concurrent requests with the same token share one validation. Invalid tokens are cached, too, so
//! that a client with an old token does not load Keystone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderName, StatusCode};
use node_model::{Secret, Timestamp};
use reqwest::Url;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OnceCell, Semaphore};

use super::subject_token::SubjectToken;
use super::{KeystoneServiceUser, KeystoneSettings, SERVICE};
use crate::error::{AuthError, AuthSetupError};
use crate::identity_service_client::{IdentityServiceClient, IdentityServiceResponse, service_url};
use crate::roles::Principal;
use crate::sign_in_queue::AddressKey;

const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const SUBJECT_TOKEN: HeaderName = HeaderName::from_static("x-subject-token");

/// The role of services that send requests for users.
const SERVICE_ROLE: &str = "service";

/// Timeout of a request to Keystone.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for which a result is cached.
const MAX_CACHE_TIME: Duration = Duration::from_secs(300);
/// For how long an invalid token is cached.
const NEGATIVE_CACHE_TIME: Duration = Duration::from_secs(30);
/// For how long Keystone is not contacted after it did not respond.
const DOWN_TIME: Duration = Duration::from_secs(2);
/// Maximum number of cached tokens.
const MAX_TOKENS: usize = 10_000;
/// Maximum number of concurrent requests to Keystone.
const MAX_CONCURRENT: usize = 16;
/// Maximum number of those for one client.
const MAX_CONCURRENT_PER_CLIENT: usize = 4;
/// From this number of clients on, those without validations are removed.
const MAX_IDLE_CLIENTS: usize = 1024;
/// Fernet tokens have about 200 bytes, JWS tokens about 1,000.
const MAX_TOKEN_BYTES: usize = 4096;
/// The own token is replaced this long before it expires.
const RENEWAL_MARGIN: Duration = Duration::from_secs(60);

/// Validates tokens.
pub(crate) struct KeystoneValidator {
    settings: KeystoneSettings,
    secret: Secret<String>,
    tokens_url: Url,
    /// For requests of services: also validates tokens that expired recently.
    expired_tokens_url: Url,
    client: IdentityServiceClient,
    entries: Mutex<HashMap<[u8; 32], TokenEntry>>,
    own_token: tokio::sync::Mutex<Option<OwnToken>>,
    down_until: Mutex<Option<Instant>>,
    permits: Semaphore,
    clients: ClientTurns,
}

/// Limits the concurrent validations of each client, so that made-up tokens of one client do not delay the
/// tokens of others.
#[derive(Default)]
struct ClientTurns(Mutex<HashMap<AddressKey, Arc<Semaphore>>>);

/// A token that was validated or is being validated.
#[derive(Clone)]
struct TokenEntry {
    result: Arc<OnceCell<ValidationResult>>,
    /// When the validation began: a revocation after that is noticed after the cache time.
    started_at: Instant,
    use_of_expired: ExpiredTokens,
}

/// Whether a token is accepted after it expired. A service that carries out the request of a user may take
/// longer than the user's token is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExpiredTokens {
    Rejected,
    /// For as long as Keystone allows it.
    Accepted,
}

/// A user whose token is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeystoneUser {
    pub(crate) principal: Arc<Principal>,
    /// Whether Keystone validated it for this request; otherwise the result is from the cache.
    pub(crate) is_validated_now: bool,
}

#[derive(Clone, Debug)]
enum ValidationResult {
    Valid(SubjectToken),
    Invalid,
    /// Keystone does not respond, or rejects this service.
    Failed,
}

/// The token of this service.
struct OwnToken {
    token: Secret<String>,
    expires_at: Timestamp,
}

impl KeystoneValidator {
    /// URL of Keystone.
    pub(crate) fn url(&self) -> &str {
        &self.settings.url
    }

    /// Checks the settings. Keystone is contacted when the first token is validated, so that the server
    /// starts while Keystone is down.
    pub(crate) fn new(settings: KeystoneSettings) -> Result<Self, AuthSetupError> {
        let invalid = |problem: String| AuthSetupError::Keystone { problem };
        let mut tokens_url = service_url(&settings.url).map_err(invalid)?;
        let path = tokens_url.path().trim_end_matches('/');
        let path = path.strip_suffix("/v3").unwrap_or(path);
        tokens_url.set_path(&format!("{path}/v3/auth/tokens"));
        tokens_url.set_query(Some("nocatalog"));
        let mut expired_tokens_url = tokens_url.clone();
        expired_tokens_url.set_query(Some("nocatalog&allow_expired=1"));
        let secret = std::fs::read_to_string(&settings.secret_file)
            .map_err(|error| invalid(format!("{}: {error}", settings.secret_file.display())))?;
        let client =
            IdentityServiceClient::new(settings.ca_file.as_deref(), TIMEOUT).map_err(invalid)?;
        Ok(Self {
            settings,
            secret: Secret::new(secret.trim().to_owned()),
            tokens_url,
            expired_tokens_url,
            client,
            entries: Mutex::default(),
            own_token: tokio::sync::Mutex::new(None),
            down_until: Mutex::default(),
            permits: Semaphore::new(MAX_CONCURRENT),
            clients: ClientTurns::default(),
        })
    }

    /// Number of further validations that could start.
    #[cfg(test)]
    pub(super) fn free_turns(&self) -> usize {
        self.permits.available_permits()
    }

    /// The user of a token. A service that sends the request for the user adds its own token, as with
    /// `keystonemiddleware`: it must be valid and have the role `service`, and then the token of the user
    /// may have expired.
    ///
    /// # Errors
    /// Fails if a token is not valid, or Keystone does not respond.
    pub(crate) async fn check_token(
        &self,
        token: &Secret<String>,
        service_token: Option<&Secret<String>>,
        client: IpAddr,
        now: Timestamp,
        instant: Instant,
    ) -> Result<KeystoneUser, AuthError> {
        let expired = match service_token {
            None => ExpiredTokens::Rejected,
            Some(service) => {
                self.check_service_token(service, client, now, instant).await?;
                ExpiredTokens::Accepted
            }
        };
        self.check(token, expired, client, now, instant).await
    }

    async fn check_service_token(
        &self,
        token: &Secret<String>,
        client: IpAddr,
        now: Timestamp,
        instant: Instant,
    ) -> Result<(), AuthError> {
        match self.check(token, ExpiredTokens::Rejected, client, now, instant).await {
            Ok(service) if service.principal.has_fixed_role(SERVICE_ROLE) => Ok(()),
            Ok(_) => Err(AuthError::RejectedToken {
                problem: "the token in X-Service-Token does not have the role service",
            }),
            Err(AuthError::WrongToken) => Err(AuthError::RejectedToken {
                problem: "the token in X-Service-Token is unknown, expired or revoked",
            }),
            Err(error) => Err(error),
        }
    }

    async fn check(
        &self,
        token: &Secret<String>,
        expired: ExpiredTokens,
        client: IpAddr,
        now: Timestamp,
        instant: Instant,
    ) -> Result<KeystoneUser, AuthError> {
        if !is_token(token.reveal()) {
            return Err(AuthError::WrongToken);
        }
        let entry = self.entry(cache_key(token, expired), expired, now, instant);
        let mut is_validated_now = false;
        // If the first request is cancelled, one of the others continues.
        let validation = || {
            is_validated_now = true;
            self.validate(token, expired, client, now, instant)
        };
        let result = entry.result.get_or_init(validation).await;
        match result {
            ValidationResult::Valid(valid) if valid.is_accepted(expired, now) => {
                Ok(KeystoneUser { principal: Arc::clone(&valid.principal), is_validated_now })
            }
            ValidationResult::Valid(_) | ValidationResult::Invalid => Err(AuthError::WrongToken),
            ValidationResult::Failed => Err(AuthError::IdentityServiceDown { service: SERVICE }),
        }
    }

    /// The entry of a token; a new one if there is none that is recent enough.
    fn entry(
        &self,
        key: [u8; 32],
        use_of_expired: ExpiredTokens,
        now: Timestamp,
        instant: Instant,
    ) -> TokenEntry {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(&key)
            && self.is_current(entry, now, instant)
        {
            return entry.clone();
        }
        if entries.len() >= MAX_TOKENS {
            entries.retain(|_, entry| self.is_current(entry, now, instant));
        }
        if entries.len() >= MAX_TOKENS {
            // Valid tokens are kept: invalid ones can be made up by every client.
            entries
                .retain(|_, entry| matches!(entry.result.get(), Some(ValidationResult::Valid(_))));
        }
        if entries.len() >= MAX_TOKENS {
            entries.clear();
        }
        let entry = TokenEntry { result: Arc::default(), started_at: instant, use_of_expired };
        entries.insert(key, entry.clone());
        entry
    }

    fn is_current(&self, entry: &TokenEntry, now: Timestamp, instant: Instant) -> bool {
        let age = instant.saturating_duration_since(entry.started_at);
        match entry.result.get() {
            None => true,
            Some(ValidationResult::Valid(valid)) => {
                age < self.settings.cache_time.min(MAX_CACHE_TIME)
                    && valid.is_accepted(entry.use_of_expired, now)
            }
            Some(ValidationResult::Invalid) => age < NEGATIVE_CACHE_TIME,
            Some(ValidationResult::Failed) => false,
        }
    }

    async fn validate(
        &self,
        token: &Secret<String>,
        expired: ExpiredTokens,
        client: IpAddr,
        now: Timestamp,
        instant: Instant,
    ) -> ValidationResult {
        let started = Instant::now();
        let turn = self.clients.turns_of(AddressKey::of(client));
        let Ok(_turn) = turn.acquire().await else { return ValidationResult::Failed };
        let Ok(_permit) = self.permits.acquire().await else { return ValidationResult::Failed };
        // Checked after the wait: those who waited need not try again what failed for the others.
        let current = instant + started.elapsed();
        if lock(&self.down_until).is_some_and(|until| current < until) {
            return ValidationResult::Failed;
        }
        match self.request_validation(token, expired, now).await {
            Ok(result) => result,
            Err(error) => {
                tracing::warn!(url = %self.tokens_url, error, "validating a Keystone token failed");
                *lock(&self.down_until) = Some(instant + started.elapsed() + DOWN_TIME);
                ValidationResult::Failed
            }
        }
    }

    async fn request_validation(
        &self,
        token: &Secret<String>,
        expired: ExpiredTokens,
        now: Timestamp,
    ) -> Result<ValidationResult, String> {
        let own = self.own_token(None, now).await?;
        let mut response = self.send_validation(&own, token, expired).await?;
        if response.status == StatusCode::UNAUTHORIZED {
            // The own token was revoked, or Keystone has new keys.
            let renewed = self.own_token(Some(&own), now).await?;
            response = self.send_validation(&renewed, token, expired).await?;
        }
        match response.status {
            StatusCode::OK => Ok(ValidationResult::Valid(SubjectToken::parse(response.body)?)),
            StatusCode::NOT_FOUND => Ok(ValidationResult::Invalid),
            StatusCode::FORBIDDEN => Err(
                "Keystone does not allow the service user to validate tokens (403); give it the role \
                 service or admin"
                    .to_owned(),
            ),
            status => Err(format!("Keystone returned {status}")),
        }
    }

    async fn send_validation(
        &self,
        own: &Secret<String>,
        token: &Secret<String>,
        expired: ExpiredTokens,
    ) -> Result<IdentityServiceResponse, String> {
        let headers =
            [(AUTH_TOKEN, own.reveal().as_str()), (SUBJECT_TOKEN, token.reveal().as_str())];
        let url = match expired {
            ExpiredTokens::Rejected => &self.tokens_url,
            ExpiredTokens::Accepted => &self.expired_tokens_url,
        };
        self.client.get(url, &headers).await
    }

    /// The token of this service. A new one is requested if it is about to expire or is `rejected`.
    async fn own_token(
        &self,
        rejected: Option<&Secret<String>>,
        now: Timestamp,
    ) -> Result<Secret<String>, String> {
        let mut current = self.own_token.lock().await;
        if let Some(own) = &*current {
            let is_rejected = rejected.is_some_and(|it| it.reveal() == own.token.reveal());
            if !is_rejected && own.expires_at > now.plus(RENEWAL_MARGIN) {
                return Ok(own.token.clone());
            }
        }
        let response = self.client.post_json(&self.tokens_url, &self.sign_in_request()).await?;
        if response.status != StatusCode::CREATED {
            return Err(format!(
                "Keystone rejects the service user with {}; check its name, project and secret",
                response.status
            ));
        }
        let token = response.headers.get(SUBJECT_TOKEN).and_then(|value| value.to_str().ok());
        let token = token.ok_or("Keystone's response has no X-Subject-Token")?;
        let expires_at = response.body["token"]["expires_at"].as_str();
        let expires_at = expires_at.and_then(|text| text.parse().ok());
        let token = Secret::new(token.to_owned());
        *current = Some(OwnToken {
            token: token.clone(),
            expires_at: expires_at.ok_or("Keystone's response has no valid expires_at")?,
        });
        Ok(token)
    }

    fn sign_in_request(&self) -> Value {
        let secret = self.secret.reveal();
        match &self.settings.service_user {
            KeystoneServiceUser::Password { user, user_domain, project, project_domain } => {
                let user =
                    json!({"name": user, "domain": {"name": user_domain}, "password": secret});
                json!({"auth": {
                    "identity": {"methods": ["password"], "password": {"user": user}},
                    "scope": {"project": {"name": project, "domain": {"name": project_domain}}},
                }})
            }
            KeystoneServiceUser::ApplicationCredential { id } => json!({"auth": {"identity": {
                "methods": ["application_credential"],
                "application_credential": {"id": id, "secret": secret},
            }}}),
        }
    }
}

impl ClientTurns {
    fn turns_of(&self, client: AddressKey) -> Arc<Semaphore> {
        let mut clients = lock(&self.0);
        if clients.len() >= MAX_IDLE_CLIENTS {
            clients.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let turns = clients.entry(client);
        Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(MAX_CONCURRENT_PER_CLIENT))))
    }
}

impl SubjectToken {
    fn is_accepted(&self, expired: ExpiredTokens, now: Timestamp) -> bool {
        expired == ExpiredTokens::Accepted || self.expires_at > now
    }
}

/// The results for expired tokens are cached separately.
fn cache_key(token: &Secret<String>, expired: ExpiredTokens) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update([u8::from(expired == ExpiredTokens::Accepted)]);
    hasher.update(token.reveal().as_bytes());
    hasher.finalize().into()
}

/// Whether a text can be a token of Keystone: Fernet, JWS or UUID.
fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=.".contains(&byte);
    (16..=MAX_TOKEN_BYTES).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
