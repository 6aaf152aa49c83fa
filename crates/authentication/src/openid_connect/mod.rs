// SPDX-License-Identifier: Apache-2.0
//! OpenID Connect: access tokens and ID tokens of a provider, and sign-in of browsers.

mod browser_login;
mod claim_mapping;
mod json_web_token;
mod provider;
mod signing_keys;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use access_policy::AuthMethod;
use node_model::Timestamp;

pub(crate) use browser_login::LoginRejection;
pub use browser_login::{LoginRedirect, LoginResponse};
pub use claim_mapping::ClaimMapping;
pub(crate) use json_web_token::{TokenProblem, UnverifiedToken};
pub(crate) use provider::OpenIdProvider;
pub use signing_keys::SigningAlgorithm;

use self::provider::TokenRejection;
use crate::error::AuthError;
use crate::roles::Principal;

/// Name of the provider in error messages.
pub(crate) const SERVICE: &str = "OpenID Connect provider";

/// Settings of OpenID Connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenIdSettings {
    /// The issuer: an https URL, exactly as in tokens.
    pub issuer: String,
    /// The client id of the web UI; `None` if browsers do not sign in with the provider.
    pub client_id: Option<String>,
    /// File with the secret of the client; public clients have none.
    pub client_secret_file: Option<PathBuf>,
    /// The client id of `ferrite login`.
    pub device_client_id: Option<String>,
    /// The accepted audiences of tokens, besides the client ids.
    pub audiences: Vec<String>,
    /// The requested scopes.
    pub scopes: Vec<String>,
    /// The accepted signature algorithms.
    pub algorithms: Vec<SigningAlgorithm>,
    /// Tolerated difference of the clocks.
    pub leeway: Duration,
    /// Which claims are user, roles and projects.
    pub claims: ClaimMapping,
    /// CA certificates (PEM) that verify the provider; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
}

/// What clients need to know to sign in with the provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenIdClientSettings<'s> {
    /// The issuer.
    pub issuer: &'s str,
    /// The client id of `ferrite login`.
    pub device_client_id: Option<&'s str>,
    /// The requested scopes.
    pub scopes: &'s [String],
    /// Whether browsers can sign in with the provider.
    pub has_browser_login: bool,
}

/// A token that was verified.
#[derive(Debug)]
pub(crate) struct ValidJwt {
    pub(crate) principal: Principal,
    pub(crate) expires_at: Timestamp,
}

impl OpenIdSettings {
    /// All accepted audiences.
    fn audiences(&self) -> Vec<String> {
        let clients = [&self.client_id, &self.device_client_id];
        let clients = clients.into_iter().filter_map(Option::clone);
        self.audiences.iter().cloned().chain(clients).collect()
    }
}

impl OpenIdProvider {
    /// The user of a token.
    pub(crate) async fn check_token(
        &self,
        token: &UnverifiedToken<'_>,
        now: Timestamp,
        instant: Instant,
    ) -> Result<ValidJwt, AuthError> {
        let audiences = self.settings.audiences();
        match self.verify(token, &audiences, now, instant).await {
            Ok(verified) => Ok(ValidJwt {
                principal: self
                    .settings
                    .claims
                    .principal(&verified.claims, AuthMethod::OpenIdConnect),
                expires_at: verified.expires_at,
            }),
            Err(TokenRejection::ProviderDown) => {
                Err(AuthError::IdentityServiceDown { service: SERVICE })
            }
            Err(TokenRejection::Invalid(problem)) => {
                tracing::debug!(%problem, "token of the OpenID Connect provider rejected");
                Err(AuthError::RejectedToken { problem: problem.text() })
            }
        }
    }

    /// The user name in a token that is not verified, for the record of a failed sign-in.
    pub(crate) fn claimed_user<'t>(&self, token: &'t UnverifiedToken<'_>) -> &'t str {
        let name = token.unverified_text(&self.settings.claims.user);
        name.or_else(|| token.unverified_text("sub")).unwrap_or_default()
    }

    /// What clients need to know to sign in with the provider.
    pub(crate) fn client_settings(&self) -> OpenIdClientSettings<'_> {
        OpenIdClientSettings {
            issuer: &self.settings.issuer,
            device_client_id: self.settings.device_client_id.as_deref(),
            scopes: &self.settings.scopes,
            has_browser_login: self.settings.client_id.is_some(),
        }
    }
}
