// SPDX-License-Identifier: Apache-2.0
//! Sign-in at Keystone version 3, and the endpoint of Ironic in its catalogue.

use serde_json::{Value, json};

use crate::error::{IronicClientError, error_message};
use crate::secret::HiddenText;
use crate::target::strip_version_path;

/// Service types of Ironic in catalogues.
const SERVICE_TYPES: [&str; 2] = ["baremetal", "bare-metal"];

/// A Keystone server and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeystoneLogin {
    /// URL including `/v3`.
    pub(crate) url: String,
    pub(crate) identity: KeystoneIdentity,
    pub(crate) scope: KeystoneScope,
    pub(crate) region: Option<String>,
    /// `public`, `internal` or `admin`.
    pub(crate) interface: String,
}

/// The identity to sign in with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeystoneIdentity {
    Password {
        user: Value,
        password: HiddenText,
    },
    Token(HiddenText),
    ApplicationCredential {
        id: Option<String>,
        name: Option<String>,
        user: Option<Value>,
        secret: HiddenText,
    },
}

/// The scope of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeystoneScope {
    Project(Value),
    System(bool),
    /// An application credential has its own scope.
    Unscoped,
}

/// The result of a sign-in.
pub(crate) struct KeystoneToken {
    pub(crate) token: HiddenText,
    /// The Ironic endpoint, if it was requested.
    pub(crate) endpoint: Option<String>,
}

impl KeystoneLogin {
    /// Signs in. The endpoint is not looked up if `knows_endpoint`.
    pub(crate) async fn sign_in(
        &self,
        http: &reqwest::Client,
        knows_endpoint: bool,
    ) -> Result<KeystoneToken, IronicClientError> {
        let url = format!("{}/auth/tokens", self.url);
        let unreachable = |error: reqwest::Error| {
            IronicClientError::unreachable(self.url.clone(), error.without_url())
        };
        let response = http.post(&url).json(&self.request()).send().await.map_err(unreachable)?;
        let status = response.status();
        let token = response
            .headers()
            .get("x-subject-token")
            .and_then(|token| token.to_str().ok())
            .map(HiddenText::new);
        let body = response.bytes().await.map_err(unreachable)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some(token) = token.filter(|_| status.is_success()) else {
            let message = match error_message(&body) {
                message if message.is_empty() => format!("status {status}"),
                message => message,
            };
            return Err(IronicClientError::KeystoneRejected { url: self.url.clone(), message });
        };
        let endpoint = match knows_endpoint {
            true => None,
            false => Some(self.endpoint(&body["token"]["catalog"])?),
        };
        Ok(KeystoneToken { token, endpoint })
    }

    fn request(&self) -> Value {
        let identity = match &self.identity {
            KeystoneIdentity::Password { user, password } => {
                let mut user = user.clone();
                user["password"] = json!(password.reveal());
                json!({ "methods": ["password"], "password": { "user": user } })
            }
            KeystoneIdentity::Token(token) => {
                json!({ "methods": ["token"], "token": { "id": token.reveal() } })
            }
            KeystoneIdentity::ApplicationCredential { id, name, user, secret } => {
                let mut credential = json!({ "secret": secret.reveal() });
                for (key, value) in
                    [("id", json!(id)), ("name", json!(name)), ("user", json!(user))]
                {
                    if !value.is_null() {
                        credential[key] = value;
                    }
                }
                json!({ "methods": ["application_credential"], "application_credential": credential })
            }
        };
        let mut auth = json!({ "identity": identity });
        match &self.scope {
            KeystoneScope::Project(project) => auth["scope"] = json!({ "project": project }),
            KeystoneScope::System(all) => auth["scope"] = json!({ "system": { "all": all } }),
            KeystoneScope::Unscoped => {}
        }
        json!({ "auth": auth })
    }

    fn endpoint(&self, catalogue: &Value) -> Result<String, IronicClientError> {
        let services = catalogue.as_array().into_iter().flatten();
        let baremetal = services.filter(|service| {
            service["type"].as_str().is_some_and(|it| SERVICE_TYPES.contains(&it))
        });
        let mut endpoints =
            baremetal.flat_map(|service| service["endpoints"].as_array().into_iter().flatten());
        let matches = |endpoint: &&Value| {
            let region = endpoint["region_id"].as_str().or(endpoint["region"].as_str());
            endpoint["interface"] == self.interface.as_str()
                && (self.region.is_none() || self.region.as_deref() == region)
        };
        let url = endpoints.find(matches).and_then(|endpoint| endpoint["url"].as_str());
        url.map(strip_version_path).ok_or_else(|| IronicClientError::NoEndpoint {
            url: self.url.clone(),
            interface: self.interface.clone(),
            region: self.region.as_ref().map(|name| format!(" in {name}")).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keystone(identity: KeystoneIdentity, scope: KeystoneScope) -> KeystoneLogin {
        let (url, interface) = ("http://k/v3".to_owned(), "internal".to_owned());
        KeystoneLogin { url, identity, scope, region: Some("two".to_owned()), interface }
    }

    #[test]
    fn builds_sign_in_requests() {
        let password = KeystoneIdentity::Password {
            user: json!({"name": "a", "domain": {"id": "default"}}),
            password: HiddenText::new("p"),
        };
        let project = json!({"name": "x", "domain": {"id": "default"}});
        assert_eq!(
            keystone(password, KeystoneScope::Project(project.clone())).request(),
            json!({"auth": {
                "identity": {"methods": ["password"], "password": {"user":
                    {"name": "a", "domain": {"id": "default"}, "password": "p"}}},
                "scope": {"project": project},
            }})
        );
        let credential = KeystoneIdentity::ApplicationCredential {
            id: Some("i".to_owned()),
            name: None,
            user: None,
            secret: HiddenText::new("s"),
        };
        assert_eq!(
            keystone(credential, KeystoneScope::Unscoped).request(),
            json!({"auth": {"identity": {
                "methods": ["application_credential"],
                "application_credential": {"id": "i", "secret": "s"},
            }}})
        );
    }

    #[test]
    fn selects_endpoint_by_interface_and_region() {
        let endpoint = |interface: &str, region: &str, url: &str| json!({"interface": interface, "region_id": region, "region": region, "url": url});
        let catalogue = json!([
            {"type": "compute", "endpoints": [endpoint("internal", "two", "http://nova")]},
            {"type": "baremetal", "endpoints": [
                endpoint("public", "two", "http://public"),
                endpoint("internal", "one", "http://elsewhere"),
                endpoint("internal", "two", "http://right/baremetal/v1/"),
            ]},
        ]);
        let login =
            keystone(KeystoneIdentity::Token(HiddenText::new("t")), KeystoneScope::System(true));
        assert_eq!(login.endpoint(&catalogue).unwrap(), "http://right/baremetal");
        let error = login.endpoint(&json!([])).unwrap_err().to_string();
        assert!(error.contains("no internal endpoint of a baremetal service in two"), "{error}");
    }
}
