// SPDX-License-Identifier: Apache-2.0
//! Sign-in of browsers: authorisation code with PKCE (RFC 7636).
//!
//! What the server needs when the browser returns is sealed in a cookie of the browser, so
//! that any replica can continue.

use std::time::{Duration, Instant};

use access_policy::AuthMethod;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use node_model::{Secret, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use store::Store;
use uuid::Uuid;

use super::json_web_token::{TokenProblem, UnverifiedToken};
use super::provider::{OpenIdProvider, TokenRejection};
use crate::identity_service_client::form;
use crate::roles::Principal;
use crate::token_format::{RandomError, push_random_digits};

/// How long a user has to sign in at the provider.
const LOGIN_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// What the sealed cookies belong to: they cannot be confused with other sealed data.
const COOKIE_OWNER: Uuid = Uuid::from_u128(0x6f69_6463_2d6c_6f67_696e_2d63_6f6f_6b69);
/// 238 random bits.
const RANDOM_CHARS: usize = 40;
/// PKCE requires at least 43 characters.
const VERIFIER_CHARS: usize = 64;
/// Longer parameters of the provider are rejected.
const MAX_PARAMETER_BYTES: usize = 8 * 1024;

/// Where a browser is sent to sign in.
#[derive(Debug)]
pub struct LoginRedirect {
    /// The page of the provider.
    pub url: String,
    /// The value of the cookie that the browser has to return.
    pub cookie: Secret<String>,
    /// The lifetime of the cookie.
    pub lifetime: Duration,
}

/// What a browser brings back from the provider.
#[derive(Debug, Default)]
pub struct LoginResponse {
    /// `code`.
    pub code: Option<Secret<String>>,
    /// `state`.
    pub state: Option<String>,
    /// `iss`.
    pub issuer: Option<String>,
    /// `error`, if the provider refused.
    pub error: Option<String>,
    /// The cookie of [`LoginRedirect`].
    pub cookie: Option<Secret<String>>,
}

/// Why a browser is not signed in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginRejection {
    #[error("the provider has no {0}")]
    NoEndpoint(&'static str),
    #[error("the provider does not respond")]
    ProviderDown,
    #[error("the provider refused: {0}")]
    Refused(String),
    #[error("the sign-in was not started by this browser, or more than ten minutes ago")]
    OtherBrowser,
    #[error("the ID token is not accepted: {0}")]
    IdToken(TokenProblem),
    #[error("the response of the provider has no valid ID token")]
    NoIdToken,
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// What the server needs when the browser returns.
#[derive(Serialize, Deserialize)]
struct PendingLogin {
    state: String,
    nonce: String,
    verifier: String,
    redirect_uri: String,
    expires_at: Timestamp,
}

impl OpenIdProvider {
    /// Starts a sign-in. The provider sends the browser to `redirect_uri` afterwards.
    pub(crate) async fn start_login(
        &self,
        store: &Store,
        redirect_uri: String,
        now: Timestamp,
        instant: Instant,
    ) -> Result<LoginRedirect, LoginRejection> {
        let client_id = self.browser_client()?;
        let metadata = self.metadata(instant).await.map_err(|_| LoginRejection::ProviderDown)?;
        let endpoint = metadata.authorization_endpoint.as_ref();
        let endpoint = endpoint.ok_or(LoginRejection::NoEndpoint("authorization_endpoint"))?;
        let pending = PendingLogin {
            state: random(RANDOM_CHARS)?,
            nonce: random(RANDOM_CHARS)?,
            verifier: random(VERIFIER_CHARS)?,
            redirect_uri,
            expires_at: now.plus(LOGIN_LIFETIME),
        };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(pending.verifier.as_bytes()));
        let query = form(&[
            ("response_type", "code"),
            ("client_id", client_id),
            ("redirect_uri", &pending.redirect_uri),
            ("scope", &self.settings.scopes.join(" ")),
            ("state", &pending.state),
            ("nonce", &pending.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let mut url = endpoint.clone();
        let query = match endpoint.query() {
            Some(own) if !own.is_empty() => format!("{own}&{query}"),
            Some(_) | None => query,
        };
        url.set_query(Some(&query));
        let plain = serde_json::to_vec(&pending).unwrap_or_default();
        let cookie = URL_SAFE_NO_PAD.encode(store.seal(COOKIE_OWNER, &plain));
        Ok(LoginRedirect { url: url.into(), cookie: Secret::new(cookie), lifetime: LOGIN_LIFETIME })
    }

    /// The user who signed in at the provider.
    pub(crate) async fn finish_login(
        &self,
        store: &Store,
        response: LoginResponse,
        now: Timestamp,
        instant: Instant,
    ) -> Result<Principal, LoginRejection> {
        let client_id = self.browser_client()?;
        let pending = response
            .cookie
            .and_then(|cookie| unseal(store, cookie.reveal()))
            .filter(|pending| pending.expires_at > now)
            .filter(|pending| response.state.as_deref() == Some(&pending.state))
            .ok_or(LoginRejection::OtherBrowser)?;
        // RFC 9207: the response may be of another provider.
        if response.issuer.is_some_and(|issuer| issuer != self.settings.issuer) {
            return Err(LoginRejection::IdToken(TokenProblem::Issuer));
        }
        if let Some(error) = response.error {
            return Err(LoginRejection::Refused(short(&error)));
        }
        let code = response.code.filter(|code| code.reveal().len() <= MAX_PARAMETER_BYTES);
        let code = code.ok_or_else(|| LoginRejection::Refused("there is no code".to_owned()))?;
        let id_token = self.exchange_code(client_id, &code, &pending, instant).await?;
        let token = UnverifiedToken::parse(&id_token).ok_or(LoginRejection::NoIdToken)?;
        let audiences = [client_id.to_owned()];
        let verified = match self.verify(&token, &audiences, now, instant).await {
            Ok(verified) => verified,
            Err(TokenRejection::ProviderDown) => return Err(LoginRejection::ProviderDown),
            Err(TokenRejection::Invalid(problem)) => return Err(LoginRejection::IdToken(problem)),
        };
        let claims = &verified.claims;
        if claims["nonce"].as_str() != Some(&pending.nonce) {
            return Err(LoginRejection::IdToken(TokenProblem::Nonce));
        }
        if claims["azp"].as_str().is_some_and(|party| party != client_id) {
            return Err(LoginRejection::IdToken(TokenProblem::Audience));
        }
        Ok(self.settings.claims.principal(claims, AuthMethod::Session))
    }

    async fn exchange_code(
        &self,
        client_id: &str,
        code: &Secret<String>,
        pending: &PendingLogin,
        instant: Instant,
    ) -> Result<String, LoginRejection> {
        let metadata = self.metadata(instant).await.map_err(|_| LoginRejection::ProviderDown)?;
        let endpoint = metadata.token_endpoint.as_ref();
        let endpoint = endpoint.ok_or(LoginRejection::NoEndpoint("token_endpoint"))?;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code.reveal().as_str()),
            ("redirect_uri", pending.redirect_uri.as_str()),
            ("code_verifier", pending.verifier.as_str()),
        ];
        let secret = self.client_secret.as_ref().map(|secret| (client_id, &**secret.reveal()));
        if secret.is_none() {
            fields.push(("client_id", client_id));
        }
        let response = self.client.post_form(endpoint, &fields, secret).await.map_err(|error| {
            tracing::warn!(error, "the OpenID Connect provider does not respond to a sign-in");
            LoginRejection::ProviderDown
        })?;
        match response.status {
            StatusCode::OK => {
                let token = response.body["id_token"].as_str();
                token.map(str::to_owned).ok_or(LoginRejection::NoIdToken)
            }
            status if status.is_server_error() => Err(LoginRejection::ProviderDown),
            status => {
                let error =
                    response.body["error"].as_str().map_or_else(|| status.to_string(), short);
                Err(LoginRejection::Refused(error))
            }
        }
    }

    fn browser_client(&self) -> Result<&str, LoginRejection> {
        self.settings
            .client_id
            .as_deref()
            .ok_or(LoginRejection::NoEndpoint("client id for the web UI in the configuration"))
    }
}

fn unseal(store: &Store, cookie: &str) -> Option<PendingLogin> {
    let sealed = URL_SAFE_NO_PAD.decode(cookie).ok()?;
    serde_json::from_slice(&store.unseal(COOKIE_OWNER, &sealed).ok()?).ok()
}

fn random(chars: usize) -> Result<String, RandomError> {
    let mut text = String::new();
    push_random_digits(&mut text, chars)?;
    Ok(text)
}

/// The beginning of a text of the provider, for messages.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
