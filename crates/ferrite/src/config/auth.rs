// SPDX-License-Identifier: Apache-2.0
//! The configured authentication methods.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use authentication::{AuthSettings, LocalUserSettings};
use serde::{Deserialize, Serialize};

use super::AuthSection;

/// How clients authenticate: one mode, or several separated by commas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct AuthModes(Vec<AuthMode>);

/// One way to authenticate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuthMode {
    /// `none` on loopback, `basic` elsewhere.
    Auto,
    /// No authentication: every client has full access.
    None,
    /// Passwords of an htpasswd file.
    Basic,
    /// Passwords and API tokens of users in the database.
    Local,
    /// Tokens of an OpenID Connect provider.
    Oidc,
    /// Tokens of Keystone.
    Keystone,
}

/// The text is not a list of modes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseAuthModesError {
    #[error(
        "unknown authentication {0:?}; use auto, none, or some of basic, local, oidc and keystone, separated by commas"
    )]
    Unknown(String),
    #[error("{0} cannot be combined with other kinds of authentication")]
    Combined(AuthMode),
}

impl AuthModes {
    /// Whether clients are authenticated if the API listens on `address`.
    pub(crate) fn is_required(&self, address: IpAddr) -> bool {
        let services = AuthSection::default();
        let settings = self.settings(address, PathBuf::new(), Path::new(""), &services);
        settings != AuthSettings::default()
    }

    /// Whether clients authenticate with the htpasswd file if the API listens on `address`.
    pub(crate) fn uses_htpasswd(&self, address: IpAddr) -> bool {
        self.0.iter().any(|mode| match mode {
            AuthMode::Basic => true,
            AuthMode::Auto => !address.is_loopback(),
            AuthMode::None | AuthMode::Local | AuthMode::Oidc | AuthMode::Keystone => false,
        })
    }

    /// The settings of the authenticator.
    pub(crate) fn settings(
        &self,
        address: IpAddr,
        htpasswd_file: PathBuf,
        data_dir: &Path,
        services: &AuthSection,
    ) -> AuthSettings {
        let first_password_file = data_dir.join("admin-password");
        AuthSettings {
            htpasswd: self.uses_htpasswd(address).then_some(htpasswd_file),
            local: self
                .0
                .contains(&AuthMode::Local)
                .then_some(LocalUserSettings { first_password_file }),
            openid_connect: self.0.contains(&AuthMode::Oidc).then(|| services.oidc.settings()),
            keystone: self.0.contains(&AuthMode::Keystone).then(|| services.keystone.settings()),
        }
    }
}

impl AuthMode {
    const ALL: [Self; 6] =
        [Self::Auto, Self::None, Self::Basic, Self::Local, Self::Oidc, Self::Keystone];

    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Basic => "basic",
            Self::Local => "local",
            Self::Oidc => "oidc",
            Self::Keystone => "keystone",
        }
    }
}

impl From<AuthMode> for AuthModes {
    fn from(mode: AuthMode) -> Self {
        Self(vec![mode])
    }
}

impl fmt::Display for AuthMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<AuthModes> for String {
    fn from(modes: AuthModes) -> Self {
        let names: Vec<&str> = modes.0.iter().map(|mode| mode.name()).collect();
        names.join(",")
    }
}

impl TryFrom<String> for AuthModes {
    type Error = ParseAuthModesError;

    fn try_from(text: String) -> Result<Self, ParseAuthModesError> {
        text.parse()
    }
}

impl FromStr for AuthModes {
    type Err = ParseAuthModesError;

    fn from_str(text: &str) -> Result<Self, ParseAuthModesError> {
        let mut modes = Vec::new();
        for name in text.split(',').map(str::trim) {
            let mode = AuthMode::ALL.into_iter().find(|mode| mode.name() == name);
            let mode = mode.ok_or_else(|| ParseAuthModesError::Unknown(name.to_owned()))?;
            if !modes.contains(&mode) {
                modes.push(mode);
            }
        }
        let alone = modes.iter().find(|mode| matches!(mode, AuthMode::Auto | AuthMode::None));
        match alone {
            Some(mode) if modes.len() > 1 => Err(ParseAuthModesError::Combined(*mode)),
            Some(_) | None => Ok(Self(modes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn parses_modes() {
        for (text, shown) in [
            ("auto", Ok("auto")),
            ("local", Ok("local")),
            ("basic, local", Ok("basic,local")),
            ("basic,basic", Ok("basic")),
            ("local,oidc,keystone", Ok("local,oidc,keystone")),
            ("none,basic", Err("none cannot be combined with other kinds of authentication")),
            (
                "kerberos",
                Err(
                    "unknown authentication \"kerberos\"; use auto, none, or some of basic, local, oidc and keystone, separated by commas",
                ),
            ),
        ] {
            let parsed = text.parse::<AuthModes>().map(String::from).map_err(|it| it.to_string());
            assert_eq!(parsed.as_deref().map_err(String::as_str), shown, "{text}");
        }
    }

    #[test]
    fn selects_methods() {
        let remote = IpAddr::from([192, 0, 2, 1]);
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for (modes, address, htpasswd, users) in [
            ("auto", local, false, false),
            ("auto", remote, true, false),
            ("none", remote, false, false),
            ("basic", local, true, false),
            ("local", remote, false, true),
            ("basic,local", local, true, true),
        ] {
            let modes: AuthModes = modes.parse().unwrap();
            let services = AuthSection::default();
            let settings = modes.settings(address, "f".into(), Path::new("d"), &services);
            assert_eq!((settings.htpasswd.is_some(), settings.local.is_some()), (htpasswd, users));
            assert_eq!(modes.is_required(address), htpasswd || users);
        }
        for (modes, has_oidc, has_keystone) in
            [("oidc", true, false), ("local,keystone", false, true)]
        {
            let modes: AuthModes = modes.parse().unwrap();
            let services = AuthSection::default();
            let settings = modes.settings(local, "f".into(), Path::new("d"), &services);
            assert_eq!(settings.openid_connect.is_some(), has_oidc);
            assert_eq!(settings.keystone.is_some(), has_keystone);
            assert!(modes.is_required(local));
        }
    }
}
