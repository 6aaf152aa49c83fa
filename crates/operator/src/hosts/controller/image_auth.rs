// SPDX-License-Identifier: Apache-2.0
//! Credentials for an OCI registry, from a Secret in the format of container runtimes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use serde::Deserialize;

use super::super::provisioner::PullSecret;

/// Keys of Secrets with credentials for registries.
const CONFIG_KEY: &str = ".dockerconfigjson";
const OLD_CONFIG_KEY: &str = ".dockercfg";

/// Why a Secret cannot be used. Texts continue "the Secret NAME of spec.image.ociAuthSecretName".
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageAuthError {
    #[error("has neither the key {CONFIG_KEY} nor the key {OLD_CONFIG_KEY}")]
    Format,
    #[error("cannot be read: {0}")]
    Json(#[source] serde_json::Error),
    #[error("has no credentials for the registry {0}")]
    NoRegistry(String),
    #[error("has credentials for the registry {0} that are not text of the form user:password")]
    Credentials(String),
}

#[derive(Deserialize)]
struct RegistryLogins {
    #[serde(default)]
    auths: BTreeMap<String, RegistryAuth>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct RegistryAuth {
    username: String,
    password: String,
    auth: String,
}

/// The credentials for the registry of an image.
pub(super) fn pull_secret(
    data: &BTreeMap<String, ByteString>,
    image_url: &str,
) -> Result<PullSecret, ImageAuthError> {
    let auths = match (data.get(CONFIG_KEY), data.get(OLD_CONFIG_KEY)) {
        (Some(ByteString(text)), _) => {
            serde_json::from_slice::<RegistryLogins>(text).map(|config| config.auths)
        }
        (None, Some(ByteString(text))) => serde_json::from_slice(text),
        (None, None) => return Err(ImageAuthError::Format),
    };
    let auths = auths.map_err(ImageAuthError::Json)?;
    let registry = registry(image_url);
    let mut found = auths.iter().filter(|(name, _)| self::registry(name) == registry);
    let Some((_, auth)) = found.next() else {
        return Err(ImageAuthError::NoRegistry(registry.to_owned()));
    };
    let text = match auth.username.is_empty() {
        false => Some(format!("{}:{}", auth.username, auth.password)),
        true => STANDARD.decode(&auth.auth).ok().and_then(|bytes| String::from_utf8(bytes).ok()),
    };
    let text = text.filter(|text| text.contains(':'));
    text.map(PullSecret).ok_or_else(|| ImageAuthError::Credentials(registry.to_owned()))
}

/// Host and port of a URL, or of a name without scheme.
fn registry(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn credentials_are_found_by_registry() {
        let read = |key: &str, content: Value, url: &str| {
            let content = ByteString(content.to_string().into_bytes());
            pull_secret(&BTreeMap::from([(key.to_owned(), content)]), url)
                .map(|secret| secret.0)
                .map_err(|error| error.to_string())
        };
        let auths = json!({
            "https://registry.example:5000/v1/": {"username": "u", "password": "p"},
            "other.example": {"auth": STANDARD.encode("a:b:c")},
            "bad.example": {"auth": "%%%"},
        });
        let new = json!({"auths": auths});
        assert_eq!(
            read(CONFIG_KEY, new.clone(), "oci://registry.example:5000/a/b:1").as_deref(),
            Ok("u:p")
        );
        assert_eq!(read(OLD_CONFIG_KEY, auths, "oci://other.example/a").as_deref(), Ok("a:b:c"));
        for (url, expected) in [
            ("oci://missing.example/a", "no credentials for the registry missing.example"),
            ("oci://bad.example/a", "of the form user:password"),
        ] {
            let error = read(CONFIG_KEY, new.clone(), url).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(read("password", new, "oci://other.example/a").is_err());
        assert!(read(CONFIG_KEY, json!([]), "oci://other.example/a").is_err());
    }
}
