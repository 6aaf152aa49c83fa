// SPDX-License-Identifier: Apache-2.0
//! Signing in at Keystone, version 3, and finding Ironic in its catalogue.

use serde_json::{Value, json};

use crate::error::{ApiError, message_in};
use crate::secret::Secret;
use crate::target::plain_base;

/// The names Ironic goes by in catalogues.
const SERVICE_TYPES: [&str; 2] = ["baremetal", "bare-metal"];

/// A Keystone and what to say to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keystone {
    /// Its address, with `/v3`.
    pub(crate) url: String,
    pub(crate) identity: Identity,
    pub(crate) scope: Scope,
    pub(crate) region: Option<String>,
    /// `public`, `internal` or `admin`.
    pub(crate) interface: String,
}

/// Who signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Password {
        user: Value,
        password: Secret,
    },
    Token(Secret),
    ApplicationCredential {
        id: Option<String>,
        name: Option<String>,
        user: Option<Value>,
        secret: Secret,
    },
}

/// What for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Project(Value),
    System(bool),
    /// An application credential brings its own.
    Unsaid,
}

/// What Keystone gave us.
pub(crate) struct Ticket {
    pub(crate) token: Secret,
    /// Where Ironic is, if nobody said so before.
    pub(crate) endpoint: Option<String>,
}

impl Keystone {
    /// Signs in; `knows_endpoint` if the catalogue does not matter.
    pub(crate) async fn sign_in(
        &self,
        http: &reqwest::Client,
        knows_endpoint: bool,
    ) -> Result<Ticket, ApiError> {
        let url = format!("{}/auth/tokens", self.url);
        let unreachable =
            |error: reqwest::Error| ApiError::unreachable(self.url.clone(), error.without_url());
        let response = http.post(&url).json(&self.request()).send().await.map_err(unreachable)?;
        let status = response.status();
        let token = response
            .headers()
            .get("x-subject-token")
            .and_then(|token| token.to_str().ok())
            .map(Secret::new);
        let body = response.bytes().await.map_err(unreachable)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some(token) = token.filter(|_| status.is_success()) else {
            let told = message_in(&body);
            let message = if told.is_empty() { format!("it answers {status}") } else { told };
            return Err(ApiError::SignIn { url: self.url.clone(), message });
        };
        let endpoint = match knows_endpoint {
            true => None,
            false => Some(self.endpoint(&body["token"]["catalog"])?),
        };
        Ok(Ticket { token, endpoint })
    }

    fn request(&self) -> Value {
        let identity = match &self.identity {
            Identity::Password { user, password } => {
                let mut user = user.clone();
                user["password"] = json!(password.reveal());
                json!({ "methods": ["password"], "password": { "user": user } })
            }
            Identity::Token(token) => {
                json!({ "methods": ["token"], "token": { "id": token.reveal() } })
            }
            Identity::ApplicationCredential { id, name, user, secret } => {
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
            Scope::Project(project) => auth["scope"] = json!({ "project": project }),
            Scope::System(all) => auth["scope"] = json!({ "system": { "all": all } }),
            Scope::Unsaid => {}
        }
        json!({ "auth": auth })
    }

    fn endpoint(&self, catalogue: &Value) -> Result<String, ApiError> {
        let services = catalogue.as_array().into_iter().flatten();
        let ours = services.filter(|service| {
            service["type"].as_str().is_some_and(|it| SERVICE_TYPES.contains(&it))
        });
        let mut endpoints =
            ours.flat_map(|service| service["endpoints"].as_array().into_iter().flatten());
        let fits = |endpoint: &&Value| {
            let region = endpoint["region_id"].as_str().or(endpoint["region"].as_str());
            endpoint["interface"] == self.interface.as_str()
                && (self.region.is_none() || self.region.as_deref() == region)
        };
        let found = endpoints.find(fits).and_then(|endpoint| endpoint["url"].as_str());
        found.map(plain_base).ok_or_else(|| ApiError::NoEndpoint {
            url: self.url.clone(),
            interface: self.interface.clone(),
            region: self.region.as_ref().map(|name| format!(" in {name}")).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keystone(identity: Identity, scope: Scope) -> Keystone {
        let (url, interface) = ("http://k/v3".to_owned(), "internal".to_owned());
        Keystone { url, identity, scope, region: Some("two".to_owned()), interface }
    }

    #[test]
    fn keystone_is_asked_in_its_words() {
        let password = Identity::Password {
            user: json!({"name": "a", "domain": {"id": "default"}}),
            password: Secret::new("p"),
        };
        let project = json!({"name": "x", "domain": {"id": "default"}});
        assert_eq!(
            keystone(password, Scope::Project(project.clone())).request(),
            json!({"auth": {
                "identity": {"methods": ["password"], "password": {"user":
                    {"name": "a", "domain": {"id": "default"}, "password": "p"}}},
                "scope": {"project": project},
            }})
        );
        let credential = Identity::ApplicationCredential {
            id: Some("i".to_owned()),
            name: None,
            user: None,
            secret: Secret::new("s"),
        };
        assert_eq!(
            keystone(credential, Scope::Unsaid).request(),
            json!({"auth": {"identity": {
                "methods": ["application_credential"],
                "application_credential": {"id": "i", "secret": "s"},
            }}})
        );
    }

    #[test]
    fn the_endpoint_of_the_right_kind_and_region_is_taken() {
        let endpoint = |interface: &str, region: &str, url: &str| json!({"interface": interface, "region_id": region, "region": region, "url": url});
        let catalogue = json!([
            {"type": "compute", "endpoints": [endpoint("internal", "two", "http://nova")]},
            {"type": "baremetal", "endpoints": [
                endpoint("public", "two", "http://public"),
                endpoint("internal", "one", "http://elsewhere"),
                endpoint("internal", "two", "http://right/baremetal/v1/"),
            ]},
        ]);
        let asking = keystone(Identity::Token(Secret::new("t")), Scope::System(true));
        assert_eq!(asking.endpoint(&catalogue).unwrap(), "http://right/baremetal");
        let error = asking.endpoint(&json!([])).unwrap_err().to_string();
        assert!(error.contains("no internal endpoint of a baremetal service in two"), "{error}");
    }
}
