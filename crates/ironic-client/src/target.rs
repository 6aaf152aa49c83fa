// SPDX-License-Identifier: Apache-2.0
//! Whom to ask, and as whom.
//!
//! In this order: what was said on the command line (`--url`, `--profile`, `--cloud`),
//! `FERRITE_PROFILE`, `OS_*`, the default profile, the only cloud of `clouds.yaml`, and last a server on
//! this machine. A source is taken as a whole: the password of one is never sent to the address of
//! another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::SettingsError;
use crate::keystone::Keystone;
use crate::query::unescaped;
use crate::secret::Secret;
use crate::{clouds, openstack, profiles};

const HERE: &str = "http://127.0.0.1:6385";

/// Whom to ask, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address of the API; Keystone knows it if it is not given.
    pub url: Option<String>,
    /// Who we are.
    pub login: Login,
    /// Which certificates are believed.
    pub trust: Trust,
    /// Where all this was said.
    pub origin: String,
}

/// Who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// Nobody.
    Nobody,
    /// A name and a password, with every request.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// Whoever Keystone says.
    Keystone(Box<Keystone>),
}

/// Which certificates are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Those signed by the authorities in this file, besides the usual ones.
    pub authorities: Option<PathBuf>,
    /// Any.
    pub anybody: bool,
}

/// What was said on the command line.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// An address.
    pub url: Option<String>,
    /// A name to sign in with at that address.
    pub user: Option<String>,
    /// A file with its password.
    pub password_file: Option<PathBuf>,
    /// A profile.
    pub profile: Option<String>,
    /// A cloud.
    pub cloud: Option<String>,
    /// A file of certificates.
    pub authorities: Option<PathBuf>,
    /// Whether any certificate is good enough.
    pub insecure: bool,
}

/// Everything outside of the command line that says something.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The environment.
    pub variables: BTreeMap<String, String>,
    /// Where `clouds.yaml` is looked for, best first.
    pub cloud_folders: Vec<PathBuf>,
    /// The file of profiles.
    pub profiles: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let variables: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let set = |name: &str| variables.get(name).filter(|value| !value.is_empty());
        let config = set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(set("HOME")?).join(".config")));
        let mut cloud_folders = vec![PathBuf::from(".")];
        cloud_folders.extend(config.as_ref().map(|config| config.join("openstack")));
        cloud_folders.push(PathBuf::from("/etc/openstack"));
        let profiles = config.map(|config| config.join("ferrite/profiles.toml"));
        Self { variables, cloud_folders, profiles }
    }

    /// A variable that says something.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl Target {
    /// Finds out whom to ask.
    pub fn find(flags: &Flags, surroundings: &Surroundings) -> Result<Self, SettingsError> {
        let mut target = Self::chosen(flags, surroundings)?;
        if flags.authorities.is_some() {
            target.trust.authorities.clone_from(&flags.authorities);
        }
        target.trust.anybody |= flags.insecure;
        Ok(target)
    }

    fn chosen(flags: &Flags, surroundings: &Surroundings) -> Result<Self, SettingsError> {
        if let Some(url) = &flags.url {
            let password = flags.password_file.as_deref().map(password_in).transpose()?;
            return Self::at(url, flags.user.as_deref(), password, "--url");
        }
        // A name and a password are for an address that was given with them, and for no other.
        let login =
            [("--user", flags.user.is_some()), ("--password-file", flags.password_file.is_some())];
        if let Some((option, _)) = login.into_iter().find(|(_, is_given)| *is_given) {
            return Err(SettingsError::Incomplete {
                by: option.to_owned(),
                missing: "at which --url",
            });
        }
        if let Some(name) = &flags.profile {
            return profiles::named(surroundings, name);
        }
        if let Some(name) = &flags.cloud {
            return clouds::named(surroundings, name);
        }
        let told = if let Some(name) = surroundings.variable("FERRITE_PROFILE") {
            Some(profiles::named(surroundings, name)?)
        } else if let Some(name) = surroundings.variable("OS_CLOUD") {
            Some(clouds::named(surroundings, name)?)
        } else if let Some(settings) = openstack::environment(&surroundings.variables) {
            Some(settings.target()?)
        } else if let Some(target) = profiles::usual(surroundings)? {
            Some(target)
        } else {
            clouds::only(surroundings)?
        };
        let target = match told {
            Some(target) => target,
            None => Self::at(HERE, None, None, "nothing else being said")?,
        };
        Ok(target)
    }

    /// An API at an address, which may have a name and a password in it.
    pub fn at(
        url: &str,
        user: Option<&str>,
        password: Option<Secret>,
        origin: &str,
    ) -> Result<Self, SettingsError> {
        let (scheme, rest) = url
            .split_once("://")
            .filter(|(scheme, rest)| matches!(*scheme, "http" | "https") && !rest.is_empty())
            .ok_or_else(|| SettingsError::NotAnAddress { url: without_password(url) })?;
        let (inside, place) = match rest.split_once('/').map_or(rest, |(host, _)| host).rfind('@') {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let inside = inside.map(|text| text.split_once(':').unwrap_or((text, "")));
        let user = user.map(str::to_owned).or(inside.map(|(user, _)| unescaped(user)));
        let password = password.or(inside.map(|(_, password)| Secret::new(unescaped(password))));
        let login = match (user, password) {
            (None, None) => Login::Nobody,
            (user, Some(password)) => {
                Login::Basic { user: user.unwrap_or_else(|| "admin".to_owned()), password }
            }
            (Some(_), None) => {
                return Err(SettingsError::Incomplete {
                    by: "--user".to_owned(),
                    missing: "the password (--password-file)",
                });
            }
        };
        Ok(Self {
            url: Some(plain_base(&format!("{scheme}://{place}"))),
            login,
            trust: Trust::default(),
            origin: origin.to_owned(),
        })
    }
}

/// The address without the version, which paths begin with.
pub(crate) fn plain_base(url: &str) -> String {
    url.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches('/').to_owned()
}

/// The first line of a file.
pub(crate) fn password_in(path: &Path) -> Result<Secret, SettingsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })?;
    Ok(Secret::new(text.lines().next().unwrap_or_default().trim_end()))
}

fn without_password(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, place)| place.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(user: &str, password: &str) -> Login {
        Login::Basic { user: user.to_owned(), password: Secret::new(password) }
    }

    #[test]
    fn addresses_may_carry_a_login() {
        for (given, url, login) in [
            ("http://h:6385", "http://h:6385", Login::Nobody),
            ("http://h:6385/v1/", "http://h:6385", Login::Nobody),
            ("https://h/baremetal/v1", "https://h/baremetal", Login::Nobody),
            ("http://admin:s%40cret@h:1/", "http://h:1", basic("admin", "s@cret")),
            ("http://a:p@ss@h", "http://h", basic("a", "p@ss")),
        ] {
            let target = Target::at(given, None, None, "a test").unwrap();
            assert_eq!((target.url.as_deref(), target.login), (Some(url), login), "{given}");
        }
        for wrong in ["h:6385", "ftp://h", "http://"] {
            assert!(Target::at(wrong, None, None, "a test").is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_secret_is_printed() {
        let target = Target::at("http://admin:s3cret@h", None, None, "a test").unwrap();
        assert!(!format!("{target:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_nearest_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "clouds.yaml",
            "clouds:\n  only:\n    auth_type: none\n    baremetal_endpoint_override: http://cloud\n",
        );
        write(
            "profiles.toml",
            "default = \"lab\"\n[profiles.lab]\nurl = \"http://lab\"\n[profiles.rack]\nurl = \"http://rack\"\n",
        );
        let files = |profiles: bool| Surroundings {
            cloud_folders: vec![folder.path().to_owned()],
            profiles: profiles.then(|| folder.path().join("profiles.toml")),
            ..Surroundings::default()
        };
        let with = |mut surroundings: Surroundings, variables: &[(&str, &str)]| {
            let pairs = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            surroundings.variables = pairs.collect();
            surroundings
        };
        let os = [("OS_AUTH_TYPE", "none"), ("OS_ENDPOINT", "http://os")];
        let flags = |url: Option<&str>| Flags { url: url.map(str::to_owned), ..Flags::default() };
        for (flags, surroundings, expected) in [
            (flags(Some("http://flag")), with(files(true), &os), "http://flag"),
            (flags(None), with(files(true), &os), "http://os"),
            (
                flags(None),
                with(files(true), &[os[0], os[1], ("FERRITE_PROFILE", "rack")]),
                "http://rack",
            ),
            (flags(None), with(files(true), &[("OS_CLOUD", "only")]), "http://cloud"),
            (flags(None), files(true), "http://lab"),
            (flags(None), files(false), "http://cloud"),
            (flags(None), Surroundings::default(), HERE),
            (
                Flags { profile: Some("rack".to_owned()), ..Flags::default() },
                with(files(true), &os),
                "http://rack",
            ),
        ] {
            let target = Target::find(&flags, &surroundings).unwrap();
            assert_eq!(target.url.as_deref(), Some(expected));
        }
        // A password is not sent to whomever the surroundings name.
        for profile in [None, Some("rack".to_owned())] {
            let password_file = Some(folder.path().join("profiles.toml"));
            let flags = Flags { password_file, profile, ..Flags::default() };
            let error = Target::find(&flags, &with(files(true), &os)).unwrap_err();
            assert_eq!(error.to_string(), "--password-file does not say at which --url");
        }
    }
}
