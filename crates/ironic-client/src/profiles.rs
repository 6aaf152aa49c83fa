// SPDX-License-Identifier: Apache-2.0
//! Ferrite's own file of servers, `~/.config/ferrite/profiles.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::clouds;
use crate::error::SettingsError;
use crate::secret::Secret;
use crate::target::{Surroundings, Target, password_in};

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiles {
    default: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

/// One server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    url: Option<String>,
    user: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
    /// A cloud of `clouds.yaml` under another name.
    cloud: Option<String>,
    cacert: Option<PathBuf>,
    #[serde(default)]
    insecure: bool,
}

/// The profile of a name.
pub(crate) fn named(surroundings: &Surroundings, name: &str) -> Result<Target, SettingsError> {
    let mut read = match &surroundings.profiles {
        Some(path) => (read(path)?, Some(path)),
        None => (None, None),
    };
    let unknown = |profiles: Option<&Profiles>| SettingsError::Unknown {
        what: "profile",
        name: name.to_owned(),
        known: match (profiles, &surroundings.profiles) {
            (Some(profiles), _) => clouds::known(profiles.profiles.keys()),
            (None, Some(path)) => format!(": there is no file {}", path.display()),
            (None, None) => String::new(),
        },
    };
    let Some(profiles) = &mut read.0 else { return Err(unknown(None)) };
    match profiles.profiles.remove(name) {
        Some(profile) => profile.target(surroundings, name),
        None => Err(unknown(Some(profiles))),
    }
}

/// The profile to use when nothing is said.
pub(crate) fn usual(surroundings: &Surroundings) -> Result<Option<Target>, SettingsError> {
    let Some(path) = &surroundings.profiles else { return Ok(None) };
    match read(path)?.and_then(|profiles| profiles.default) {
        Some(name) => named(surroundings, &name).map(Some),
        None => Ok(None),
    }
}

fn read(path: &Path) -> Result<Option<Profiles>, SettingsError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(SettingsError::Unreadable { path: path.to_owned(), source }),
    };
    // The message without the line it is about: there may be a password in it.
    toml::from_str(&text).map(Some).map_err(|error| SettingsError::Malformed {
        path: path.to_owned(),
        problem: error.message().to_owned(),
    })
}

impl Profile {
    fn target(self, surroundings: &Surroundings, name: &str) -> Result<Target, SettingsError> {
        let origin = format!("profile {name}");
        let mut target = match (&self.url, &self.cloud) {
            (Some(url), _) => {
                let password = match (self.password, &self.password_file) {
                    (Some(password), _) => Some(Secret::new(password)),
                    (None, Some(file)) => Some(password_in(file)?),
                    (None, None) => None,
                };
                Target::at(url, self.user.as_deref(), password, &origin)?
            }
            (None, Some(cloud)) => clouds::named(surroundings, cloud)?,
            (None, None) => {
                return Err(SettingsError::Incomplete { by: origin, missing: "its url or cloud" });
            }
        };
        if self.cacert.is_some() {
            target.trust.authorities = self.cacert;
        }
        target.trust.anybody |= self.insecure;
        Ok(Target { origin, ..target })
    }
}
