// SPDX-License-Identifier: Apache-2.0
//! What `OS_*` variables and clouds say: the same keys in two places.

use std::collections::BTreeMap;

use crate::error::SettingsError;
use crate::keystone::{Identity, Keystone, Scope};
use crate::secret::Secret;
use crate::target::{Login, Target, Trust};

/// Keys and values, such as `auth_url`.
pub(crate) struct Settings {
    pub(crate) keys: BTreeMap<String, String>,
    /// Where they come from, for messages.
    pub(crate) origin: String,
}

/// What the environment says, if it says anything about whom to ask.
pub(crate) fn environment(variables: &BTreeMap<String, String>) -> Option<Settings> {
    let keys: BTreeMap<String, String> = variables
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, value)| Some((name.strip_prefix("OS_")?.to_lowercase(), value.clone())))
        .collect();
    let settings = Settings { keys, origin: "the environment (OS_*)".to_owned() };
    let says_who = settings.endpoint().is_some() || settings.get("auth_url").is_some();
    says_who.then_some(settings)
}

impl Settings {
    /// Whom they mean.
    pub(crate) fn target(&self) -> Result<Target, SettingsError> {
        let login = match self.get("auth_type").unwrap_or(self.likely_type()) {
            "none" | "noauth" => Login::Nobody,
            "http_basic" => Login::Basic {
                user: self.needed("username", "a username")?.to_owned(),
                password: Secret::new(self.needed("password", "a password")?),
            },
            "password" | "v3password" => self.keystone(self.password()?)?,
            "token" | "v3token" => {
                let token = self.needed("token", "a token")?;
                self.keystone(Identity::Token(Secret::new(token)))?
            }
            "v3applicationcredential" => self.keystone(self.application_credential()?)?,
            other => {
                let (by, name) = (self.origin.clone(), other.to_owned());
                return Err(SettingsError::UnknownLogin { by, name });
            }
        };
        // A name and a password in the address are for signing in, and not to be seen.
        let endpoint = self.endpoint().map(|url| Target::at(url, None, None, &self.origin));
        let (url, login) = match (endpoint.transpose()?, login) {
            (Some(at), Login::Nobody) => (at.url, at.login),
            (Some(at), login @ (Login::Basic { .. } | Login::Keystone(_))) => (at.url, login),
            (None, login) => (None, login),
        };
        if url.is_none() && !matches!(login, Login::Keystone(_)) {
            let missing = "the address of the API (endpoint, baremetal_endpoint_override)";
            return Err(SettingsError::Incomplete { by: self.origin.clone(), missing });
        }
        Ok(Target { url, login, trust: self.trust(), origin: self.origin.clone() })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    fn needed(&self, key: &str, missing: &'static str) -> Result<&str, SettingsError> {
        self.get(key).ok_or_else(|| SettingsError::Incomplete { by: self.origin.clone(), missing })
    }

    fn endpoint(&self) -> Option<&str> {
        ["baremetal_endpoint_override", "endpoint_override", "endpoint"]
            .iter()
            .find_map(|key| self.get(key))
    }

    /// The kind of login that what is there would do for.
    fn likely_type(&self) -> &'static str {
        let has = |key: &str| self.get(key).is_some();
        match () {
            () if has("application_credential_secret") => "v3applicationcredential",
            () if has("token") => "token",
            () if has("auth_url") => "password",
            () if has("username") && has("password") => "http_basic",
            () => "none",
        }
    }

    fn trust(&self) -> Trust {
        let is = |key: &str, wanted: &[&str]| {
            self.get(key).is_some_and(|value| wanted.contains(&value.to_lowercase().as_str()))
        };
        Trust {
            authorities: self.get("cacert").map(Into::into),
            anybody: is("verify", &["false", "no", "0"]) || is("insecure", &["true", "yes", "1"]),
        }
    }

    fn password(&self) -> Result<Identity, SettingsError> {
        Ok(Identity::Password {
            user: self.user()?,
            password: Secret::new(self.needed("password", "a password")?),
        })
    }

    fn application_credential(&self) -> Result<Identity, SettingsError> {
        let secret =
            Secret::new(self.needed("application_credential_secret", "the credential's secret")?);
        let id = self.get("application_credential_id").map(str::to_owned);
        let (name, user) = match id {
            Some(_) => (None, None),
            None => {
                let what = "which application credential (application_credential_id)";
                (Some(self.needed("application_credential_name", what)?), Some(self.user()?))
            }
        };
        Ok(Identity::ApplicationCredential { id, name: name.map(str::to_owned), user, secret })
    }

    /// Who it is, as Keystone wants it said.
    fn user(&self) -> Result<serde_json::Value, SettingsError> {
        if let Some(id) = self.get("user_id") {
            return Ok(serde_json::json!({ "id": id }));
        }
        let name = self.needed("username", "a username")?;
        Ok(serde_json::json!({ "name": name, "domain": self.domain("user_domain") }))
    }

    fn domain(&self, of: &str) -> serde_json::Value {
        let either = |end: &str| {
            self.get(&format!("{of}_{end}")).or_else(|| self.get(&format!("default_domain_{end}")))
        };
        match (self.get(&format!("{of}_id")), either("name"), either("id")) {
            (Some(id), _, _) | (None, None, Some(id)) => serde_json::json!({ "id": id }),
            (None, Some(name), _) => serde_json::json!({ "name": name }),
            (None, None, None) => serde_json::json!({ "id": "default" }),
        }
    }

    fn keystone(&self, identity: Identity) -> Result<Login, SettingsError> {
        let scope = if let Some(system) = self.get("system_scope") {
            Scope::System(system == "all")
        } else if let Some(id) = self.get("project_id").or_else(|| self.get("tenant_id")) {
            Scope::Project(serde_json::json!({ "id": id }))
        } else if let Some(name) = self.get("project_name").or_else(|| self.get("tenant_name")) {
            let domain = self.domain("project_domain");
            Scope::Project(serde_json::json!({ "name": name, "domain": domain }))
        } else {
            Scope::Unsaid
        };
        let interface = self.get("interface").or_else(|| self.get("endpoint_type"));
        Ok(Login::Keystone(Box::new(Keystone {
            url: {
                let url = self.needed("auth_url", "the address of Keystone (auth_url)")?;
                keystone_base(&Target::at(url, None, None, &self.origin)?.url.unwrap_or_default())
            },
            identity,
            scope,
            region: self.get("region_name").map(str::to_owned),
            interface: interface.unwrap_or("public").trim_end_matches("URL").to_owned(),
        })))
    }
}

fn keystone_base(url: &str) -> String {
    let url = url.trim_end_matches('/');
    if url.ends_with("/v3") { url.to_owned() } else { format!("{url}/v3") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(variables: &[(&str, &str)]) -> Option<Result<Target, SettingsError>> {
        let variables =
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        environment(&variables).map(|settings| settings.target())
    }

    #[test]
    fn variables_say_whom_to_ask() {
        let basic = target(&[
            ("OS_AUTH_TYPE", "http_basic"),
            ("OS_ENDPOINT", "http://h:6385/"),
            ("OS_USERNAME", "admin"),
            ("OS_PASSWORD", "p"),
        ]);
        let basic = basic.unwrap().unwrap();
        assert_eq!(basic.url.as_deref(), Some("http://h:6385"));
        assert!(matches!(basic.login, Login::Basic { .. }));
        // Variables that other tools use say nothing of whom to ask.
        assert!(target(&[("OS_USERNAME", "admin"), ("OS_TYPE", "linux")]).is_none());
    }

    #[test]
    fn a_password_in_an_address_is_used_and_not_seen() {
        for (kind, user) in [("none", "inside"), ("http_basic", "outside")] {
            let target = target(&[
                ("OS_AUTH_TYPE", kind),
                ("OS_ENDPOINT", "http://inside:hush@h:6385/v1"),
                ("OS_USERNAME", "outside"),
                ("OS_PASSWORD", "p"),
            ]);
            let target = target.unwrap().unwrap();
            assert_eq!(target.url.as_deref(), Some("http://h:6385"));
            let Login::Basic { user: known, .. } = target.login else { panic!("{kind}") };
            assert_eq!(known, user);
        }
        for variables in [
            &[("OS_ENDPOINT", "ftp://inside:hush@h")][..],
            &[("OS_AUTH_URL", "ftp://inside:hush@h"), ("OS_TOKEN", "t")],
        ] {
            let error = target(variables).unwrap().unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
        let keystone = target(&[("OS_AUTH_URL", "http://a:hush@k/v3"), ("OS_TOKEN", "t")]);
        assert!(!format!("{:?}", keystone.unwrap().unwrap()).contains("hush"));
    }

    #[test]
    fn what_is_missing_is_said() {
        for (variables, expected) in [
            (
                &[("OS_AUTH_URL", "http://k"), ("OS_USERNAME", "a")][..],
                "the environment (OS_*) does not say a password",
            ),
            (
                &[("OS_AUTH_TYPE", "kerberos"), ("OS_ENDPOINT", "http://h")],
                "the environment (OS_*) asks for auth_type \"kerberos\"; known are none, http_basic, \
                 password, token and v3applicationcredential",
            ),
            (&[("OS_ENDPOINT", "h:6385")], "\"h:6385\" is not an http:// or https:// address"),
        ] {
            assert_eq!(target(variables).unwrap().unwrap_err().to_string(), expected);
        }
    }
}
