// SPDX-License-Identifier: Apache-2.0
//! Connection settings of OpenStack: `OS_*` variables and `clouds.yaml` share the same keys.

use std::collections::BTreeMap;

use crate::error::TargetError;
use crate::keystone::{KeystoneIdentity, KeystoneLogin, KeystoneScope};
use crate::secret::HiddenText;
use crate::target::{ApiLogin, ApiTarget, ClientCertificatePaths, TlsTrust};

/// Keys and values, such as `auth_url`.
pub(crate) struct OpenstackSettings {
    pub(crate) keys: BTreeMap<String, String>,
    /// The source, for error messages.
    pub(crate) origin: String,
}

/// Reads `OS_*` variables; `None` unless they contain an endpoint or an `auth_url`.
pub(crate) fn from_environment(variables: &BTreeMap<String, String>) -> Option<OpenstackSettings> {
    let keys: BTreeMap<String, String> = variables
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, value)| Some((name.strip_prefix("OS_")?.to_lowercase(), value.clone())))
        .collect();
    let settings = OpenstackSettings { keys, origin: "the environment (OS_*)".to_owned() };
    let has_address = settings.endpoint().is_some() || settings.get("auth_url").is_some();
    has_address.then_some(settings)
}

impl OpenstackSettings {
    /// Builds the target.
    pub(crate) fn target(&self) -> Result<ApiTarget, TargetError> {
        let login = match self.get("auth_type").unwrap_or(self.default_auth_type()) {
            "none" | "noauth" => ApiLogin::Anonymous,
            "http_basic" => ApiLogin::Basic {
                user: self.required("username", "a username")?.to_owned(),
                password: HiddenText::new(self.required("password", "a password")?),
            },
            "admin_token" => ApiLogin::Token(HiddenText::new(self.required("token", "a token")?)),
            "password" | "v3password" => self.keystone_login(self.password_identity()?)?,
            "token" | "v3token" => {
                let token = self.required("token", "a token")?;
                self.keystone_login(KeystoneIdentity::Token(HiddenText::new(token)))?
            }
            "v3applicationcredential" => self.keystone_login(self.application_credential()?)?,
            other => {
                let (by, name) = (self.origin.clone(), other.to_owned());
                return Err(TargetError::UnknownAuthType { origin: by, name });
            }
        };
        // Credentials in the URL are used for the login and removed from the URL.
        let endpoint = self.endpoint().map(|url| ApiTarget::at(url, None, None, &self.origin));
        let (url, login) = match (endpoint.transpose()?, login) {
            (Some(at), ApiLogin::Anonymous) => (at.url, at.login),
            (
                Some(at),
                login @ (ApiLogin::Basic { .. }
                | ApiLogin::Token(_)
                | ApiLogin::Keystone(_)
                | ApiLogin::OpenIdConnect(_)),
            ) => (at.url, login),
            (None, login) => (None, login),
        };
        if url.is_none() && !matches!(login, ApiLogin::Keystone(_)) {
            let missing = "the address of the API (endpoint, baremetal_endpoint_override)";
            return Err(TargetError::Incomplete { origin: self.origin.clone(), missing });
        }
        let (trust, origin) = (self.trust(), self.origin.clone());
        Ok(ApiTarget { url, login, trust, unix_socket: None, project: None, origin })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    fn required(&self, key: &str, missing: &'static str) -> Result<&str, TargetError> {
        self.get(key)
            .ok_or_else(|| TargetError::Incomplete { origin: self.origin.clone(), missing })
    }

    fn endpoint(&self) -> Option<&str> {
        ["baremetal_endpoint_override", "endpoint_override", "endpoint"]
            .iter()
            .find_map(|key| self.get(key))
    }

    /// The `auth_type` implied by the keys that are set.
    fn default_auth_type(&self) -> &'static str {
        let has = |key: &str| self.get(key).is_some();
        match () {
            () if has("application_credential_secret") => "v3applicationcredential",
            () if has("token") => "token",
            () if has("auth_url") => "password",
            () if has("username") && has("password") => "http_basic",
            () => "none",
        }
    }

    fn trust(&self) -> TlsTrust {
        let is = |key: &str, values: &[&str]| {
            self.get(key).is_some_and(|value| values.contains(&value.to_lowercase().as_str()))
        };
        TlsTrust {
            ca_file: self.get("cacert").map(Into::into),
            ca_certificates: None,
            accept_any: is("verify", &["false", "no", "0"])
                || is("insecure", &["true", "yes", "1"]),
            client_certificate: ClientCertificatePaths::new(
                self.get("cert").map(Into::into),
                self.get("key").map(Into::into),
            ),
        }
    }

    fn password_identity(&self) -> Result<KeystoneIdentity, TargetError> {
        Ok(KeystoneIdentity::Password {
            user: self.user()?,
            password: HiddenText::new(self.required("password", "a password")?),
        })
    }

    fn application_credential(&self) -> Result<KeystoneIdentity, TargetError> {
        let secret = HiddenText::new(
            self.required("application_credential_secret", "the credential's secret")?,
        );
        let id = self.get("application_credential_id").map(str::to_owned);
        let (name, user) = match id {
            Some(_) => (None, None),
            None => {
                let missing = "the application credential (application_credential_id)";
                (Some(self.required("application_credential_name", missing)?), Some(self.user()?))
            }
        };
        Ok(KeystoneIdentity::ApplicationCredential {
            id,
            name: name.map(str::to_owned),
            user,
            secret,
        })
    }

    /// The user as a Keystone JSON object.
    fn user(&self) -> Result<serde_json::Value, TargetError> {
        if let Some(id) = self.get("user_id") {
            return Ok(serde_json::json!({ "id": id }));
        }
        let name = self.required("username", "a username")?;
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

    fn keystone_login(&self, identity: KeystoneIdentity) -> Result<ApiLogin, TargetError> {
        let scope = if let Some(system) = self.get("system_scope") {
            KeystoneScope::System(system == "all")
        } else if let Some(id) = self.get("project_id").or_else(|| self.get("tenant_id")) {
            KeystoneScope::Project(serde_json::json!({ "id": id }))
        } else if let Some(name) = self.get("project_name").or_else(|| self.get("tenant_name")) {
            let domain = self.domain("project_domain");
            KeystoneScope::Project(serde_json::json!({ "name": name, "domain": domain }))
        } else {
            KeystoneScope::Unscoped
        };
        let interface = self.get("interface").or_else(|| self.get("endpoint_type"));
        Ok(ApiLogin::Keystone(Box::new(KeystoneLogin {
            url: {
                let url = self.required("auth_url", "the address of Keystone (auth_url)")?;
                keystone_base(
                    &ApiTarget::at(url, None, None, &self.origin)?.url.unwrap_or_default(),
                )
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

    fn target(variables: &[(&str, &str)]) -> Option<Result<ApiTarget, TargetError>> {
        let variables =
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        from_environment(&variables).map(|settings| settings.target())
    }

    #[test]
    fn reads_target_from_environment() {
        let basic = target(&[
            ("OS_AUTH_TYPE", "http_basic"),
            ("OS_ENDPOINT", "http://h:6385/"),
            ("OS_USERNAME", "admin"),
            ("OS_PASSWORD", "p"),
        ]);
        let with_token = target(&[
            ("OS_AUTH_TYPE", "admin_token"),
            ("OS_ENDPOINT", "http://h:6385/"),
            ("OS_TOKEN", "t"),
        ]);
        assert_eq!(with_token.unwrap().unwrap().login, ApiLogin::Token(HiddenText::new("t")));
        let basic = basic.unwrap().unwrap();
        assert_eq!(basic.url.as_deref(), Some("http://h:6385"));
        assert!(matches!(basic.login, ApiLogin::Basic { .. }));
        // Variables of other tools do not select a server.
        assert!(target(&[("OS_USERNAME", "admin"), ("OS_TYPE", "linux")]).is_none());
    }

    #[test]
    fn credentials_in_urls_are_used_and_hidden() {
        for (kind, user) in [("none", "inside"), ("http_basic", "outside")] {
            let target = target(&[
                ("OS_AUTH_TYPE", kind),
                ("OS_ENDPOINT", "http://inside:hush@h:6385/v1"),
                ("OS_USERNAME", "outside"),
                ("OS_PASSWORD", "p"),
            ]);
            let target = target.unwrap().unwrap();
            assert_eq!(target.url.as_deref(), Some("http://h:6385"));
            let ApiLogin::Basic { user: known, .. } = target.login else { panic!("{kind}") };
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
    fn reports_missing_and_unsupported_settings() {
        for (variables, expected) in [
            (
                &[("OS_AUTH_URL", "http://k"), ("OS_USERNAME", "a")][..],
                "the environment (OS_*): a password is missing",
            ),
            (
                &[("OS_AUTH_TYPE", "kerberos"), ("OS_ENDPOINT", "http://h")],
                "the environment (OS_*): auth_type \"kerberos\" is not supported; use none, \
                 http_basic, admin_token, password, token or v3applicationcredential",
            ),
            (&[("OS_ENDPOINT", "h:6385")], "\"h:6385\" is not an http:// or https:// URL"),
        ] {
            assert_eq!(target(variables).unwrap().unwrap_err().to_string(), expected);
        }
    }
}
