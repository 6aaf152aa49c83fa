// SPDX-License-Identifier: Apache-2.0
//! Selects the API server and the credentials.
//!
//! Sources in order of precedence: flags (`--url`, `--profile`, `--cloud`), `FERRITE_URL` with
//! `FERRITE_TOKEN`, `FERRITE_PROFILE`, `OS_*`,
//! the default profile, the only cloud of `clouds.yaml`, and a server on this host: its Unix socket, or its
//! default port. Sources are not mixed: the password of one is never sent to the address of another.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::error::TargetError;
use crate::keystone::KeystoneLogin;
use crate::openid_login::OpenIdLogin;
use crate::query::percent_decode;
use crate::secret::HiddenText;
use crate::{clouds, openstack, profiles};

const DEFAULT_URL: &str = "http://127.0.0.1:6385";
/// The base URL of requests over a Unix socket.
const SOCKET_URL: &str = "http://localhost";
/// File name of the server's Unix socket in its data directory.
const SOCKET_NAME: &str = "ferrite.sock";

/// An API server and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTarget {
    /// Base URL of the API; `None` if Keystone's catalogue contains it.
    pub url: Option<String>,
    /// The credentials.
    pub login: ApiLogin,
    /// Which server certificates are accepted.
    pub trust: TlsTrust,
    /// The Unix socket of the server, instead of a connection to the host of `url`.
    pub unix_socket: Option<PathBuf>,
    /// The project whose roles apply, or `system`, if the user has several (`FERRITE_PROJECT`).
    pub project: Option<String>,
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
    /// An API token.
    Token(HiddenText),
    /// A token from Keystone.
    Keystone(Box<KeystoneLogin>),
    /// A saved token of an OpenID Connect provider.
    OpenIdConnect(OpenIdLogin),
}

/// Which server certificates are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsTrust {
    /// A file or folder of CA certificates, in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// CA certificates in PEM, in addition to the system's and those of `ca_file`.
    pub ca_certificates: Option<String>,
    /// Accept any certificate.
    pub accept_any: bool,
    /// The certificate that authenticates this client.
    pub client_certificate: Option<ClientCertificatePaths>,
}

/// The files with a client certificate and its private key (PEM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificatePaths {
    /// The certificate and its intermediate certificates.
    pub certificate: PathBuf,
    /// The private key; it may be in the same file.
    pub key: PathBuf,
}

impl ClientCertificatePaths {
    /// The files with these names, if there is a certificate. By default the key is in the file of the
    /// certificate.
    pub(crate) fn new(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Option<Self> {
        let certificate = certificate?;
        Some(Self { key: key.unwrap_or_else(|| certificate.clone()), certificate })
    }
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
    /// `--token-file`, only with `--url`.
    pub token_file: Option<PathBuf>,
    /// `--profile`.
    pub profile: Option<String>,
    /// `--cloud`.
    pub cloud: Option<String>,
    /// `--cacert`.
    pub ca_file: Option<PathBuf>,
    /// `--client-certificate`.
    pub client_certificate: Option<PathBuf>,
    /// `--client-key`, only with `--client-certificate`.
    pub client_key: Option<PathBuf>,
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
    /// Data directories of servers on this host, searched for a Unix socket in order.
    pub data_dirs: Vec<PathBuf>,
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
        let data = set("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(set("HOME")?).join(".local/share")));
        let data_dirs = set("FERRITE_DATA_DIR").map(PathBuf::from).into_iter();
        let data_dirs = data_dirs
            .chain(data.map(|data| data.join("ferrite")))
            .chain([PathBuf::from("/var/lib/ferrite")])
            .collect();
        let mut cloud_folders = vec![PathBuf::from(".")];
        cloud_folders.extend(config.as_ref().map(|config| config.join("openstack")));
        cloud_folders.push(PathBuf::from("/etc/openstack"));
        let profiles = config.map(|config| config.join("ferrite/profiles.toml"));
        Self { variables, cloud_folders, profiles, data_dirs }
    }

    /// The API token of `FERRITE_TOKEN`.
    fn token(&self) -> Option<HiddenText> {
        self.variable("FERRITE_TOKEN").map(|token| HiddenText::new(token.trim()))
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
        if target.trust.ca_file.is_none() {
            target.trust.ca_file = environment.variable("OS_CACERT").map(PathBuf::from);
        }
        target.trust.accept_any |= flags.insecure;
        target.project = environment.variable("FERRITE_PROJECT").map(str::to_owned);
        let variable = |name| environment.variable(name).map(PathBuf::from);
        let (certificate, key) = (flags.client_certificate.clone(), flags.client_key.clone());
        let given = ClientCertificatePaths::new(certificate, key);
        target.trust.client_certificate = given
            .or(target.trust.client_certificate)
            .or_else(|| ClientCertificatePaths::new(variable("OS_CERT"), variable("OS_KEY")));
        if target.login == ApiLogin::Anonymous
            && target.trust.client_certificate.is_none()
            && let Some(login) = target.openid_login(environment).filter(OpenIdLogin::is_saved)
        {
            target.login = ApiLogin::OpenIdConnect(login);
        }
        Ok(target)
    }

    /// The sign-in with OpenID Connect for this server, whether or not it is saved. Clients over the Unix
    /// socket need none.
    #[must_use]
    pub fn openid_login(&self, environment: &ClientEnvironment) -> Option<OpenIdLogin> {
        let url = self.url.as_deref().filter(|_| self.unix_socket.is_none())?;
        Some(OpenIdLogin::for_server(environment.profiles.as_deref()?, url))
    }

    fn select(flags: &TargetFlags, environment: &ClientEnvironment) -> Result<Self, TargetError> {
        if let Some(url) = &flags.url {
            let password = flags.password_file.as_deref().map(read_password_file).transpose()?;
            let target = Self::at(url, flags.user.as_deref(), password, "--url")?;
            let token = flags.token_file.as_deref().map(read_password_file).transpose()?;
            // A token in the environment belongs to the address in the environment.
            let address = environment.variable("FERRITE_URL").unwrap_or(DEFAULT_URL);
            let is_address = strip_version_path(address) == strip_version_path(url);
            let token = token.or_else(|| environment.token().filter(|_| is_address));
            return Ok(target.with_token(token));
        }
        // User and password are accepted only together with a URL.
        let login = [
            ("--user", flags.user.is_some()),
            ("--password-file", flags.password_file.is_some()),
            ("--token-file", flags.token_file.is_some()),
        ];
        if let Some((option, _)) = login.into_iter().find(|(_, is_given)| *is_given) {
            return Err(TargetError::Incomplete { origin: option.to_owned(), missing: "--url" });
        }
        if let Some(name) = &flags.profile {
            return profiles::find_profile(environment, name);
        }
        if let Some(name) = &flags.cloud {
            return clouds::find_cloud(environment, name);
        }
        let configured = if let Some(target) = Self::from_variables(environment)? {
            Some(target)
        } else if let Some(name) = environment.variable("FERRITE_PROFILE") {
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
        match configured.or_else(|| Self::local_socket(environment)) {
            Some(target) => Ok(target),
            None => Self::at(DEFAULT_URL, None, None, "the default address"),
        }
    }

    /// The target of `FERRITE_URL` and `FERRITE_TOKEN`; a token alone is for the default address.
    fn from_variables(environment: &ClientEnvironment) -> Result<Option<Self>, TargetError> {
        let (url, token) = (environment.variable("FERRITE_URL"), environment.token());
        let (url, origin) = match (url, &token) {
            (Some(url), _) => (url, "FERRITE_URL"),
            (None, Some(_)) => (DEFAULT_URL, "FERRITE_TOKEN"),
            (None, None) => return Ok(None),
        };
        Ok(Some(Self::at(url, None, None, origin)?.with_token(token)))
    }

    /// Sets an API token, unless the URL contains a password.
    pub(crate) fn with_token(mut self, token: Option<HiddenText>) -> Self {
        if let (ApiLogin::Anonymous, Some(token)) = (&self.login, token) {
            self.login = ApiLogin::Token(token);
        }
        self
    }

    /// The first Unix socket on this host that accepts a connection.
    fn local_socket(environment: &ClientEnvironment) -> Option<Self> {
        let mut sockets = environment.data_dirs.iter().map(|dir| dir.join(SOCKET_NAME));
        let socket = sockets.find(|socket| UnixStream::connect(socket).is_ok())?;
        Some(Self::on_socket(socket, "the Unix socket of this host"))
    }

    fn on_socket(socket: PathBuf, origin: &str) -> Self {
        Self {
            url: Some(SOCKET_URL.to_owned()),
            login: ApiLogin::Anonymous,
            trust: TlsTrust::default(),
            unix_socket: Some(socket),
            project: None,
            origin: origin.to_owned(),
        }
    }

    /// A target at a URL, which may contain user and password, or at a Unix socket (`unix:/path`).
    pub fn at(
        url: &str,
        user: Option<&str>,
        password: Option<HiddenText>,
        origin: &str,
    ) -> Result<Self, TargetError> {
        if let Some(socket) = url.strip_prefix("unix:") {
            let path = socket.strip_prefix("//").unwrap_or(socket);
            if path.is_empty() || user.is_some() || password.is_some() {
                return Err(TargetError::InvalidUrl { url: url.to_owned() });
            }
            return Ok(Self::on_socket(PathBuf::from(path), origin));
        }
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
            unix_socket: None,
            project: None,
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
    fn unix_socket_is_used_if_no_server_is_configured() {
        let folder = tempfile::tempdir().unwrap();
        let (stale, live) = (folder.path().join("stale"), folder.path().join("live"));
        for dir in [&stale, &live] {
            std::fs::create_dir(dir).unwrap();
        }
        drop(std::os::unix::net::UnixListener::bind(stale.join(SOCKET_NAME)).unwrap());
        let socket = live.join(SOCKET_NAME);
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let mut environment =
            ClientEnvironment { data_dirs: vec![stale, live], ..ClientEnvironment::default() };
        let find = |environment: &ClientEnvironment| {
            ApiTarget::find(&TargetFlags::default(), environment).unwrap()
        };
        assert_eq!(find(&environment).unix_socket, Some(socket));
        environment.variables.insert("OS_ENDPOINT".to_owned(), "http://os".to_owned());
        environment.variables.insert("OS_AUTH_TYPE".to_owned(), "none".to_owned());
        assert_eq!(find(&environment).unix_socket, None);
        let target = ApiTarget::at("unix:///run/f.sock", None, None, "a test").unwrap();
        assert_eq!(target.unix_socket, Some(PathBuf::from("/run/f.sock")));
        assert!(ApiTarget::at("unix:", None, None, "a test").is_err());
    }

    #[test]
    fn tokens_are_sent_only_to_their_server() {
        let environment = |variables: &[(&str, &str)]| ClientEnvironment {
            variables: variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            ..ClientEnvironment::default()
        };
        let token = ApiLogin::Token(HiddenText::new("t"));
        let flags = |url: &str| TargetFlags {
            url: (!url.is_empty()).then(|| url.to_owned()),
            ..TargetFlags::default()
        };
        let both = [("FERRITE_URL", "https://f:6385/"), ("FERRITE_TOKEN", " t ")];
        for (url, variables, expected_url, login) in [
            ("", &both[..], "https://f:6385", &token),
            ("", &both[..1], "https://f:6385", &ApiLogin::Anonymous),
            ("", &both[1..], DEFAULT_URL, &token),
            ("https://f:6385", &both, "https://f:6385", &token),
            ("https://other", &both, "https://other", &ApiLogin::Anonymous),
            ("https://other", &both[1..], "https://other", &ApiLogin::Anonymous),
            ("https://a:p@f:6385", &both, "https://f:6385", &basic("a", "p")),
        ] {
            let target = ApiTarget::find(&flags(url), &environment(variables)).unwrap();
            assert_eq!(
                (target.url.as_deref(), &target.login),
                (Some(expected_url), login),
                "{url}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, "t\n").unwrap();
        let with_file = TargetFlags { token_file: Some(token_file), ..flags("https://other") };
        assert_eq!(ApiTarget::find(&with_file, &environment(&[])).unwrap().login, token);
        let error = ApiTarget::find(&TargetFlags { url: None, ..with_file }, &environment(&[]));
        assert_eq!(error.unwrap_err().to_string(), "--token-file: --url is missing");
    }

    #[test]
    fn finds_the_client_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let profiles = folder.path().join("profiles.toml");
        let text = "default = \"lab\"\n[profiles.lab]\nurl = \"https://lab\"\n\
                    client_certificate = \"lab.pem\"\nclient_key = \"lab.key\"\n";
        std::fs::write(&profiles, text).unwrap();
        let find = |flags: &TargetFlags, variables: &[(&str, &str)], has_profile: bool| {
            let environment = ClientEnvironment {
                variables: variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
                profiles: has_profile.then(|| profiles.clone()),
                ..ClientEnvironment::default()
            };
            let found = ApiTarget::find(flags, &environment).unwrap().trust.client_certificate;
            found.map(|it| format!("{} {}", it.certificate.display(), it.key.display()))
        };
        let none = TargetFlags::default();
        let flags = TargetFlags { client_certificate: Some("f.pem".into()), ..none.clone() };
        let variables = [("OS_CERT", "e.pem"), ("OS_KEY", "e.key")];
        for (flags, variables, has_profile, expected) in [
            (&none, &[][..], false, None),
            (&none, &variables, false, Some("e.pem e.key")),
            (&none, &variables[..1], false, Some("e.pem e.pem")),
            (&none, &variables, true, Some("lab.pem lab.key")),
            (&flags, &variables, true, Some("f.pem f.pem")),
        ] {
            assert_eq!(find(flags, variables, has_profile).as_deref(), expected);
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
