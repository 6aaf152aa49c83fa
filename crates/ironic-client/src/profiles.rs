// SPDX-License-Identifier: Apache-2.0
//! Ferrite's own server profiles, `~/.config/ferrite/profiles.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::clouds;
use crate::error::TargetError;
use crate::secret::HiddenText;
use crate::target::{ApiTarget, ClientCertificatePaths, ClientEnvironment, read_password_file};

/// The content of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfilesFile {
    default: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, ServerProfile>,
}

/// One server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerProfile {
    url: Option<String>,
    user: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
    /// An API token.
    token: Option<String>,
    token_file: Option<PathBuf>,
    /// The name of a cloud in `clouds.yaml`.
    cloud: Option<String>,
    cacert: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_key: Option<PathBuf>,
    #[serde(default)]
    insecure: bool,
}

/// Finds a profile by name. Fails with the available names if it does not exist.
pub(crate) fn find_profile(
    environment: &ClientEnvironment,
    name: &str,
) -> Result<ApiTarget, TargetError> {
    let mut read = match &environment.profiles {
        Some(path) => (read_file(path)?, Some(path)),
        None => (None, None),
    };
    let unknown = |profiles: Option<&ProfilesFile>| TargetError::UnknownName {
        kind: "profile",
        name: name.to_owned(),
        available: match (profiles, &environment.profiles) {
            (Some(profiles), _) => clouds::format_available(profiles.profiles.keys()),
            (None, Some(path)) => format!(": {} does not exist", path.display()),
            (None, None) => String::new(),
        },
    };
    let Some(profiles) = &mut read.0 else { return Err(unknown(None)) };
    match profiles.profiles.remove(name) {
        Some(profile) => profile.target(environment, name),
        None => Err(unknown(Some(profiles))),
    }
}

/// Returns the profile that the file names as default.
pub(crate) fn default_profile(
    environment: &ClientEnvironment,
) -> Result<Option<ApiTarget>, TargetError> {
    let Some(path) = &environment.profiles else { return Ok(None) };
    match read_file(path)?.and_then(|profiles| profiles.default) {
        Some(name) => find_profile(environment, &name).map(Some),
        None => Ok(None),
    }
}

fn read_file(path: &Path) -> Result<Option<ProfilesFile>, TargetError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TargetError::Unreadable { path: path.to_owned(), source }),
    };
    // The message without the quoted line, which may contain a password.
    toml::from_str(&text).map(Some).map_err(|error| TargetError::Malformed {
        path: path.to_owned(),
        problem: error.message().to_owned(),
    })
}

impl ServerProfile {
    fn target(self, environment: &ClientEnvironment, name: &str) -> Result<ApiTarget, TargetError> {
        let origin = format!("profile {name}");
        let mut target = match (&self.url, &self.cloud) {
            (Some(url), _) => {
                let password = match (self.password, &self.password_file) {
                    (Some(password), _) => Some(HiddenText::new(password)),
                    (None, Some(file)) => Some(read_password_file(file)?),
                    (None, None) => None,
                };
                let token = match (self.token, &self.token_file) {
                    (Some(token), _) => Some(HiddenText::new(token)),
                    (None, Some(file)) => Some(read_password_file(file)?),
                    (None, None) => None,
                };
                ApiTarget::at(url, self.user.as_deref(), password, &origin)?.with_token(token)
            }
            (None, Some(cloud)) => clouds::find_cloud(environment, cloud)?,
            (None, None) => {
                return Err(TargetError::Incomplete { origin, missing: "url or cloud" });
            }
        };
        if self.cacert.is_some() {
            target.trust.ca_file = self.cacert;
        }
        let certificate = ClientCertificatePaths::new(self.client_certificate, self.client_key);
        if certificate.is_some() {
            target.trust.client_certificate = certificate;
        }
        target.trust.accept_any |= self.insecure;
        Ok(ApiTarget { origin, ..target })
    }
}
