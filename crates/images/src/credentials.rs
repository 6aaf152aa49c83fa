// SPDX-License-Identifier: Apache-2.0
//! Credentials for image servers. They are not printed.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Deserialize;

/// Credentials for an image server.
#[derive(Clone, PartialEq, Eq)]
pub enum ImageCredentials {
    /// A user and a password.
    Basic {
        /// The user.
        user: String,
        /// Not printed.
        password: String,
    },
    /// The value of an `Authorization` header. Not printed.
    Header(String),
}

/// Credentials for container registries from Docker's `config.json` or Podman's `auth.json`.
#[derive(Clone, Default)]
pub struct DockerConfig {
    /// By registry, or by registry and prefix of the repository.
    credentials: HashMap<String, ImageCredentials>,
}

/// Why such a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DockerConfigError {
    /// It is not valid JSON, or has other members.
    #[error("it is not a Docker config.json")]
    Malformed(#[source] serde_json::Error),
    /// An `auth` is not the base64 of `user:password`.
    #[error("the entry of {registry} is not the base64 of user:password; run `podman login` again")]
    BadAuth {
        /// The registry.
        registry: String,
    },
}

impl ImageCredentials {
    /// Parses a pull secret: `user:password`, or a token, which registries accept as the password of an
    /// empty user name.
    pub fn pull_secret(secret: &str) -> Self {
        let (user, password) = secret.trim().split_once(':').unwrap_or(("", secret.trim()));
        Self::Basic { user: user.to_owned(), password: password.to_owned() }
    }

    /// Returns the `Authorization` header; `None` if it would contain characters that headers cannot contain.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let text = match self {
            Self::Basic { user, password } => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Header(text) => text.clone(),
        };
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for ImageCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl DockerConfig {
    /// Parses the text of the file.
    pub fn parse(text: &str) -> Result<Self, DockerConfigError> {
        #[derive(Deserialize)]
        struct DockerConfigFile {
            #[serde(default)]
            auths: HashMap<String, DockerAuth>,
        }
        #[derive(Deserialize)]
        struct DockerAuth {
            auth: Option<String>,
            username: Option<String>,
            password: Option<String>,
        }
        let whole: DockerConfigFile =
            serde_json::from_str(text).map_err(DockerConfigError::Malformed)?;
        let mut users = HashMap::new();
        for (place, auth) in whole.auths {
            let found = match (auth.auth, auth.username, auth.password) {
                (Some(encoded), _, _) if !encoded.is_empty() => {
                    let text = STANDARD.decode(encoded.trim()).ok();
                    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
                    let pair = text.as_deref().and_then(|text| text.split_once(':'));
                    let Some((user, password)) = pair else {
                        return Err(DockerConfigError::BadAuth { registry: place });
                    };
                    ImageCredentials::Basic { user: user.to_owned(), password: password.to_owned() }
                }
                (_, Some(user), Some(password)) => ImageCredentials::Basic { user, password },
                // The login is in a credential helper and cannot be read here.
                _ => continue,
            };
            users.insert(normalized_registry(&place), found);
        }
        Ok(Self { credentials: users })
    }

    /// Returns the credentials of the longest matching prefix of registry and repository.
    pub(crate) fn credentials_for(
        &self,
        registry: &str,
        repository: &str,
    ) -> Option<&ImageCredentials> {
        let whole = format!("{registry}/{repository}");
        let mut place = whole.as_str();
        loop {
            if let Some(user) = self.credentials.get(place) {
                return Some(user);
            }
            place = place.rsplit_once('/')?.0;
        }
    }
}

impl fmt::Debug for DockerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.credentials.keys()).finish()
    }
}

/// Docker writes places as `https://index.docker.io/v1/`, Podman as `docker.io`.
fn normalized_registry(place: &str) -> String {
    let place = place.trim_start_matches("https://").trim_start_matches("http://");
    let place = place.trim_end_matches('/');
    let place = place.trim_end_matches("/v1").trim_end_matches("/v2");
    if place == "index.docker.io" { "docker.io".to_owned() } else { place.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{DockerConfig, ImageCredentials};

    #[test]
    fn longest_matching_prefix_wins() {
        let config = DockerConfig::parse(
            r#"{"auths": {"https://index.docker.io/v1/": {"auth": "aHViOnB3"},
                "quay.io": {"auth": "YWxsOnB3"},
                "quay.io/org": {"username": "org", "password": "p:w"},
                "helped.example": {}}, "credsStore": "x"}"#,
        )
        .unwrap();
        let user =
            |registry: &str, repository: &str| match config.credentials_for(registry, repository) {
                Some(ImageCredentials::Basic { user, .. }) => user.clone(),
                Some(ImageCredentials::Header(_)) | None => "none".to_owned(),
            };
        assert_eq!(user("docker.io", "library/x"), "hub");
        assert_eq!(user("quay.io", "org/os"), "org");
        assert_eq!(user("quay.io", "organs/os"), "all");
        assert_eq!(user("helped.example", "x"), "none");
        assert_eq!(user("other", "x"), "none");
        assert!(DockerConfig::parse(r#"{"auths": {"x": {"auth": "%%%"}}}"#).is_err());
        assert!(DockerConfig::parse("[").is_err());
    }

    #[test]
    fn debug_hides_secrets() {
        let secret = ImageCredentials::pull_secret("me:hush");
        assert_eq!(secret.header().unwrap().to_str().unwrap(), "Basic bWU6aHVzaA==");
        assert!(!format!("{secret:?} {:?}", secret.header()).contains("hush"));
        assert!(!format!("{:?}", secret.header()).contains("bWU6"));
        let token = ImageCredentials::pull_secret("token");
        assert_eq!(token.header().unwrap().to_str().unwrap(), "Basic OnRva2Vu");
        assert!(ImageCredentials::Header("a\nb".to_owned()).header().is_none());
    }
}
