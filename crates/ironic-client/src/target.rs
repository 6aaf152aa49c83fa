// SPDX-License-Identifier: Apache-2.0
//! Selects the API server and the credentials.
//!
//! Sources in order of precedence: flags (`--url`, `--profile`, `--cloud`), `FERRITE_PROFILE`, `OS_*`,
//! the default profile, the only cloud of `clouds.yaml`, and a server on this host. Sources are not
//! mixed: the password of one is never sent to the address of another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::TargetError;
use crate::keystone::KeystoneLogin;
use crate::query::percent_decode;
use crate::secret::HiddenText;
use crate::{clouds, openstack, profiles};

const DEFAULT_URL: &str = "http://127.0.0.1:6385";

/// An API server and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTarget {
    /// Base URL of the API; `None` if Keystone's catalogue contains it.
    pub url: Option<String>,
    /// The credentials.
    pub login: ApiLogin,
    /// Which server certificates are accepted.
    pub trust: TlsTrust,
    /// The source of these settings, for error messages.
    pub origin: String,
}

/// Credentials for an API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiLogin {
    /// No credentials.
    Anonymous,
    /// HTTP basic authentication.
    Basic {
        /// User name.
        user: String,
        /// Password.
        password: HiddenText,
    },
    /// A token from Keystone.
    Keystone(Box<KeystoneLogin>),
}

/// Which server certificates are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsTrust {
    /// A file or folder of CA certificates, in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Accept any certificate.
    pub accept_any: bool,
}

/// Command-line flags that select the target.
#[derive(Clone, Debug, Default)]
pub struct TargetFlags {
    /// `--url`.
    pub url: Option<String>,
    /// `--user`, only with `--url`.
    pub user: Option<String>,
    /// `--password-file`, only with `--url`.
    pub password_file: Option<PathBuf>,
    /// `--profile`.
    pub profile: Option<String>,
    /// `--cloud`.
    pub cloud: Option<String>,
    /// `--cacert`.
    pub ca_file: Option<PathBuf>,
    /// `--insecure`.
    pub insecure: bool,
}

/// Environment variables and files that select the target.
#[derive(Clone, Debug, Default)]
pub struct ClientEnvironment {
    /// The environment variables.
    pub variables: BTreeMap<String, String>,
    /// Folders searched for `clouds.yaml`, in order.
    pub cloud_folders: Vec<PathBuf>,
    /// The profiles file.
    pub profiles: Option<PathBuf>,
}

impl ClientEnvironment {
    /// The environment of this process.
    #[must_use]
    pub fn from_process() -> Self {
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

    /// A variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl ApiTarget {
    /// Selects the target.
    pub fn find(flags: &TargetFlags, environment: &ClientEnvironment) -> Result<Self, TargetError> {
        let mut target = Self::select(flags, environment)?;
        if flags.ca_file.is_some() {
            target.trust.ca_file.clone_from(&flags.ca_file);
        }
        target.trust.accept_any |= flags.insecure;
        Ok(target)
    }

    fn select(flags: &TargetFlags, environment: &ClientEnvironment) -> Result<Self, TargetError> {
        if let Some(url) = &flags.url {
            let password = flags.password_file.as_deref().map(read_password_file).transpose()?;
            return Self::at(url, flags.user.as_deref(), password, "--url");
        }
        // User and password are accepted only together with a URL.
        let login =
            [("--user", flags.user.is_some()), ("--password-file", flags.password_file.is_some())];
        if let Some((option, _)) = login.into_iter().find(|(_, is_given)| *is_given) {
            return Err(TargetError::Incomplete { origin: option.to_owned(), missing: "--url" });
        }
        if let Some(name) = &flags.profile {
            return profiles::find_profile(environment, name);
        }
        if let Some(name) = &flags.cloud {
            return clouds::find_cloud(environment, name);
        }
        let configured = if let Some(name) = environment.variable("FERRITE_PROFILE") {
            Some(profiles::find_profile(environment, name)?)
        } else if let Some(name) = environment.variable("OS_CLOUD") {
            Some(clouds::find_cloud(environment, name)?)
        } else if let Some(settings) = openstack::from_environment(&environment.variables) {
            Some(settings.target()?)
        } else if let Some(target) = profiles::default_profile(environment)? {
            Some(target)
        } else {
            clouds::only_cloud(environment)?
        };
        let target = match configured {
            Some(target) => target,
            None => Self::at(DEFAULT_URL, None, None, "the default address")?,
        };
        Ok(target)
    }

    /// A target at a URL, which may contain user and password.
    pub fn at(
        url: &str,
        user: Option<&str>,
        password: Option<HiddenText>,
        origin: &str,
    ) -> Result<Self, TargetError> {
        let (scheme, rest) = url
            .split_once("://")
            .filter(|(scheme, rest)| matches!(*scheme, "http" | "https") && !rest.is_empty())
            .ok_or_else(|| TargetError::InvalidUrl { url: without_password(url) })?;
        let host = rest.split_once('/').map_or(rest, |(host, _)| host);
        let (userinfo, location) = match host.rfind('@') {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let userinfo = userinfo.map(|text| text.split_once(':').unwrap_or((text, "")));
        let user = user.map(str::to_owned).or(userinfo.map(|(user, _)| percent_decode(user)));
        let password =
            password.or(userinfo.map(|(_, password)| HiddenText::new(percent_decode(password))));
        let login = match (user, password) {
            (None, None) => ApiLogin::Anonymous,
            (user, Some(password)) => {
                ApiLogin::Basic { user: user.unwrap_or_else(|| "admin".to_owned()), password }
            }
            (Some(_), None) => {
                return Err(TargetError::Incomplete {
                    origin: "--user".to_owned(),
                    missing: "the password (--password-file)",
                });
            }
        };
        Ok(Self {
            url: Some(strip_version_path(&format!("{scheme}://{location}"))),
            login,
            trust: TlsTrust::default(),
            origin: origin.to_owned(),
        })
    }
}

/// Removes a trailing `/v1`, because request paths begin with it.
pub(crate) fn strip_version_path(url: &str) -> String {
    url.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches('/').to_owned()
}

/// Reads the first line of a file.
pub(crate) fn read_password_file(path: &Path) -> Result<HiddenText, TargetError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TargetError::Unreadable { path: path.to_owned(), source })?;
    Ok(HiddenText::new(text.lines().next().unwrap_or_default().trim_end()))
}

fn without_password(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, location)| location.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(user: &str, password: &str) -> ApiLogin {
        ApiLogin::Basic { user: user.to_owned(), password: HiddenText::new(password) }
    }

    #[test]
    fn parses_urls_with_credentials() {
        for (given, url, login) in [
            ("http://h:6385", "http://h:6385", ApiLogin::Anonymous),
            ("http://h:6385/v1/", "http://h:6385", ApiLogin::Anonymous),
            ("https://h/baremetal/v1", "https://h/baremetal", ApiLogin::Anonymous),
            ("http://admin:s%40cret@h:1/", "http://h:1", basic("admin", "s@cret")),
            ("http://a:p@ss@h", "http://h", basic("a", "p@ss")),
        ] {
            let target = ApiTarget::at(given, None, None, "a test").unwrap();
            assert_eq!((target.url.as_deref(), target.login), (Some(url), login), "{given}");
        }
        for wrong in ["h:6385", "ftp://h", "http://"] {
            assert!(ApiTarget::at(wrong, None, None, "a test").is_err(), "{wrong}");
        }
    }

    #[test]
    fn debug_output_hides_passwords() {
        let target = ApiTarget::at("http://admin:s3cret@h", None, None, "a test").unwrap();
        assert!(!format!("{target:?}").contains("s3cret"));
    }

    #[test]
    fn follows_the_order_of_precedence() {
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
        let files = |profiles: bool| ClientEnvironment {
            cloud_folders: vec![folder.path().to_owned()],
            profiles: profiles.then(|| folder.path().join("profiles.toml")),
            ..ClientEnvironment::default()
        };
        let with = |mut environment: ClientEnvironment, variables: &[(&str, &str)]| {
            let pairs = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            environment.variables = pairs.collect();
            environment
        };
        let os = [("OS_AUTH_TYPE", "none"), ("OS_ENDPOINT", "http://os")];
        let flags = |url: Option<&str>| TargetFlags {
            url: url.map(str::to_owned),
            ..TargetFlags::default()
        };
        for (flags, environment, expected) in [
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
            (flags(None), ClientEnvironment::default(), DEFAULT_URL),
            (
                TargetFlags { profile: Some("rack".to_owned()), ..TargetFlags::default() },
                with(files(true), &os),
                "http://rack",
            ),
        ] {
            let target = ApiTarget::find(&flags, &environment).unwrap();
            assert_eq!(target.url.as_deref(), Some(expected));
        }
        // `--password-file` is rejected without `--url`.
        for profile in [None, Some("rack".to_owned())] {
            let password_file = Some(folder.path().join("profiles.toml"));
            let flags = TargetFlags { password_file, profile, ..TargetFlags::default() };
            let error = ApiTarget::find(&flags, &with(files(true), &os)).unwrap_err();
            assert_eq!(error.to_string(), "--password-file: --url is missing");
        }
    }
}
