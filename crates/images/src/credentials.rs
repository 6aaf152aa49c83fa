// SPDX-License-Identifier: Apache-2.0
//! Who we say we are to a server that has images. Secrets here do not print.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Deserialize;

/// What a server of images wants to see.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user and a password.
    Basic {
        /// The user.
        user: String,
        /// Not printed.
        password: String,
    },
    /// The whole of an `Authorization` header. Not printed.
    Header(String),
}

/// A container registry's users as Docker and Podman keep them in `config.json` and `auth.json`.
#[derive(Clone, Default)]
pub struct DockerConfig {
    /// By registry, or by registry and the beginning of a repository's name.
    users: HashMap<String, Credentials>,
}

/// Why such a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DockerConfigError {
    /// It is not JSON of the right shape.
    #[error("it is not a Docker config.json")]
    Malformed(#[source] serde_json::Error),
    /// An `auth` is not the base64 of `user:password`.
    #[error(
        "what it says of {registry} is not the base64 of user:password; run `podman login` again"
    )]
    BadAuth {
        /// Whose it is.
        registry: String,
    },
}

impl Credentials {
    /// From a pull secret: `user:password`, or a bare token, which registries take as the password
    /// of a user without a name.
    pub fn pull_secret(secret: &str) -> Self {
        let (user, password) = secret.trim().split_once(':').unwrap_or(("", secret.trim()));
        Self::Basic { user: user.to_owned(), password: password.to_owned() }
    }

    /// The `Authorization` header; `None` when it would have characters no header may have.
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

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl DockerConfig {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Self, DockerConfigError> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(default)]
            auths: HashMap<String, Auth>,
        }
        #[derive(Deserialize)]
        struct Auth {
            auth: Option<String>,
            username: Option<String>,
            password: Option<String>,
        }
        let whole: Whole = serde_json::from_str(text).map_err(DockerConfigError::Malformed)?;
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
                    Credentials::Basic { user: user.to_owned(), password: password.to_owned() }
                }
                (_, Some(user), Some(password)) => Credentials::Basic { user, password },
                // Logged in through a credential helper: nothing to be had here.
                _ => continue,
            };
            users.insert(plain_place(&place), found);
        }
        Ok(Self { users })
    }

    /// Who we are at this registry: the longest place that holds the repository says.
    pub(crate) fn user(&self, registry: &str, repository: &str) -> Option<&Credentials> {
        let whole = format!("{registry}/{repository}");
        let mut place = whole.as_str();
        loop {
            if let Some(user) = self.users.get(place) {
                return Some(user);
            }
            place = place.rsplit_once('/')?.0;
        }
    }
}

impl fmt::Debug for DockerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.users.keys()).finish()
    }
}

/// Docker writes places as `https://index.docker.io/v1/`, Podman as `docker.io`.
fn plain_place(place: &str) -> String {
    let place = place.trim_start_matches("https://").trim_start_matches("http://");
    let place = place.trim_end_matches('/');
    let place = place.trim_end_matches("/v1").trim_end_matches("/v2");
    if place == "index.docker.io" { "docker.io".to_owned() } else { place.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{Credentials, DockerConfig};

    #[test]
    fn the_longest_place_says_who_we_are() {
        let config = DockerConfig::parse(
            r#"{"auths": {"https://index.docker.io/v1/": {"auth": "aHViOnB3"},
                "quay.io": {"auth": "YWxsOnB3"},
                "quay.io/org": {"username": "org", "password": "p:w"},
                "helped.example": {}}, "credsStore": "x"}"#,
        )
        .unwrap();
        let user = |registry: &str, repository: &str| match config.user(registry, repository) {
            Some(Credentials::Basic { user, .. }) => user.clone(),
            Some(Credentials::Header(_)) | None => "nobody".to_owned(),
        };
        assert_eq!(user("docker.io", "library/x"), "hub");
        assert_eq!(user("quay.io", "org/os"), "org");
        assert_eq!(user("quay.io", "organs/os"), "all");
        assert_eq!(user("helped.example", "x"), "nobody");
        assert_eq!(user("other", "x"), "nobody");
        assert!(DockerConfig::parse(r#"{"auths": {"x": {"auth": "%%%"}}}"#).is_err());
        assert!(DockerConfig::parse("[").is_err());
    }

    #[test]
    fn secrets_do_not_print() {
        let secret = Credentials::pull_secret("me:hush");
        assert_eq!(secret.header().unwrap().to_str().unwrap(), "Basic bWU6aHVzaA==");
        assert!(!format!("{secret:?} {:?}", secret.header()).contains("hush"));
        assert!(!format!("{:?}", secret.header()).contains("bWU6"));
        let token = Credentials::pull_secret("token");
        assert_eq!(token.header().unwrap().to_str().unwrap(), "Basic OnRva2Vu");
        assert!(Credentials::Header("a\nb".to_owned()).header().is_none());
    }
}
