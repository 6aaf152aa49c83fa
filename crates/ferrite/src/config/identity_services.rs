// SPDX-License-Identifier: Apache-2.0
//! Settings of identity services: OpenID Connect and Keystone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use authentication::{
    ClaimMapping, KeystoneServiceUser, KeystoneSettings, OpenIdSettings, SigningAlgorithm,
};
use node_model::{ParseRoleError, RoleAssignment};
use serde::{Deserialize, Serialize};

/// Identity services.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuthSection {
    /// OpenID Connect, for `api.auth = "oidc"`.
    pub(crate) oidc: OidcSection,
    /// Keystone, for `api.auth = "keystone"`.
    pub(crate) keystone: KeystoneSection,
}

/// OpenID Connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OidcSection {
    /// The issuer: an https URL, exactly as in the tokens.
    pub(crate) issuer: Option<String>,
    /// The client id of the web UI. Without it, browsers cannot sign in with the provider.
    pub(crate) client_id: Option<String>,
    /// File with the secret of this client; by default it is a public client.
    pub(crate) client_secret_file: Option<PathBuf>,
    /// The client id of `ferrite login`: a public client with the device authorization grant.
    pub(crate) device_client_id: Option<String>,
    /// Accepted audiences of tokens, besides the client ids.
    pub(crate) audiences: Vec<String>,
    /// Scopes that are requested at a sign-in.
    pub(crate) scopes: Vec<String>,
    /// Accepted signature algorithms: `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`,
    /// `EdDSA`.
    pub(crate) algorithms: Vec<SigningAlgorithm>,
    /// Tolerated difference between the clocks of the provider and of this host, in seconds.
    pub(crate) leeway: u64,
    /// The claim with the user name; `sub` is used if a token does not have it.
    pub(crate) user_claim: String,
    /// The claim with the roles: a text or a list. Dots separate nested names, such as
    /// `realm_access.roles`.
    pub(crate) roles_claim: String,
    /// The claim with the projects in which role names without a scope apply: a text or a list.
    pub(crate) projects_claim: Option<String>,
    /// Roles by value of the roles claim, such as `ops = "admin@system,member@storage"`. If it is empty, the
    /// values of the claim are roles themselves.
    pub(crate) role_map: BTreeMap<String, RoleList>,
    /// CA certificates (PEM) that verify the provider; by default those of the system.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Keystone.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KeystoneSection {
    /// URL of Keystone, such as `https://keystone.example:5000/v3`.
    pub(crate) url: Option<String>,
    /// Name of the service user that validates tokens.
    pub(crate) user: String,
    /// Domain of the service user.
    pub(crate) user_domain: String,
    /// Project of the service user.
    pub(crate) project: String,
    /// Domain of this project.
    pub(crate) project_domain: String,
    /// Id of an application credential, instead of user and project.
    pub(crate) application_credential_id: Option<String>,
    /// File with the password of the service user, or with the secret of the application credential.
    pub(crate) secret_file: Option<PathBuf>,
    /// Seconds for which a valid token is accepted without a request to Keystone, at most 300: the delay with
    /// which a revocation applies.
    pub(crate) cache_time: u64,
    /// CA certificates (PEM) that verify Keystone; by default those of the system.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Role assignments separated by commas, such as `admin@system,member@storage`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RoleList(Vec<RoleAssignment>);

impl Default for OidcSection {
    fn default() -> Self {
        Self {
            issuer: None,
            client_id: None,
            client_secret_file: None,
            device_client_id: None,
            audiences: Vec::new(),
            scopes: ["openid", "profile", "email"].map(str::to_owned).to_vec(),
            algorithms: vec![
                SigningAlgorithm::Rs256,
                SigningAlgorithm::Ps256,
                SigningAlgorithm::Es256,
                SigningAlgorithm::Es384,
                SigningAlgorithm::EdDsa,
            ],
            leeway: 60,
            user_claim: "preferred_username".to_owned(),
            roles_claim: "roles".to_owned(),
            projects_claim: None,
            role_map: BTreeMap::new(),
            ca_file: None,
        }
    }
}

impl Default for KeystoneSection {
    fn default() -> Self {
        Self {
            url: None,
            user: "ferrite".to_owned(),
            user_domain: "Default".to_owned(),
            project: "service".to_owned(),
            project_domain: "Default".to_owned(),
            application_credential_id: None,
            secret_file: None,
            cache_time: 300,
            ca_file: None,
        }
    }
}

impl OidcSection {
    /// The settings of the authenticator, which checks them.
    pub(crate) fn settings(&self) -> OpenIdSettings {
        OpenIdSettings {
            issuer: self.issuer.clone().unwrap_or_default(),
            client_id: self.client_id.clone(),
            client_secret_file: self.client_secret_file.clone(),
            device_client_id: self.device_client_id.clone(),
            audiences: self.audiences.clone(),
            scopes: self.scopes.clone(),
            algorithms: self.algorithms.clone(),
            leeway: Duration::from_secs(self.leeway),
            claims: ClaimMapping {
                user: self.user_claim.clone(),
                roles: self.roles_claim.clone(),
                projects: self.projects_claim.clone(),
                role_map: self
                    .role_map
                    .iter()
                    .map(|(value, roles)| (value.clone(), roles.0.clone()))
                    .collect(),
            },
            ca_file: self.ca_file.clone(),
        }
    }
}

impl KeystoneSection {
    /// The settings of the authenticator, which checks them.
    pub(crate) fn settings(&self) -> KeystoneSettings {
        let service_user = match &self.application_credential_id {
            Some(id) => KeystoneServiceUser::ApplicationCredential { id: id.clone() },
            None => KeystoneServiceUser::Password {
                user: self.user.clone(),
                user_domain: self.user_domain.clone(),
                project: self.project.clone(),
                project_domain: self.project_domain.clone(),
            },
        };
        KeystoneSettings {
            url: self.url.clone().unwrap_or_default(),
            service_user,
            secret_file: self.secret_file.clone().unwrap_or_default(),
            cache_time: Duration::from_secs(self.cache_time),
            ca_file: self.ca_file.clone(),
        }
    }
}

impl TryFrom<String> for RoleList {
    type Error = ParseRoleError;

    fn try_from(text: String) -> Result<Self, ParseRoleError> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl From<RoleList> for String {
    fn from(roles: RoleList) -> Self {
        let roles: Vec<String> = roles.0.iter().map(ToString::to_string).collect();
        roles.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_openid_connect() {
        let section: OidcSection = toml::from_str(
            r#"
            issuer = "https://id.example/realm"
            client_id = "ferrite-ui"
            roles_claim = "groups"
            algorithms = ["ES256"]
            role_map = { ops = "admin@system, member@storage" }
            "#,
        )
        .unwrap();
        let settings = section.settings();
        assert_eq!(settings.algorithms, [SigningAlgorithm::Es256]);
        let roles: Vec<String> =
            settings.claims.role_map["ops"].iter().map(ToString::to_string).collect();
        assert_eq!(roles, ["admin@system", "member@storage"]);
        for bad in [
            r#"algorithms = ["none"]"#,
            r#"algorithms = ["HS256"]"#,
            r#"role_map = { a = "admin" }"#,
        ] {
            assert!(toml::from_str::<OidcSection>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn application_credential_replaces_the_user() {
        let section: KeystoneSection =
            toml::from_str(r#"application_credential_id = "abc""#).unwrap();
        assert_eq!(
            section.settings().service_user,
            KeystoneServiceUser::ApplicationCredential { id: "abc".to_owned() }
        );
    }
}
