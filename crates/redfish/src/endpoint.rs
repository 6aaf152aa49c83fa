// SPDX-License-Identifier: Apache-2.0
//! How to reach a BMC and how to be let in.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use crate::{Error, path};

/// Where Redfish services start unless the address says otherwise.
const DEFAULT_ROOT: &str = "/redfish/v1/";

/// A BMC's address, credentials and what we demand of its TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Scheme and authority, such as `https://192.0.2.7` or `http://[2001:db8::7]:8000`.
    pub address: String,
    /// The path of the service root; starts and ends with a slash.
    pub root: String,
    /// Who we are; `None` for a service that asks nobody.
    pub username: Option<String>,
    /// Our password. It does not print.
    pub password: Option<String>,
    /// How we are let in.
    pub auth: Auth,
    /// Whose certificates we accept.
    pub trust: Trust,
    /// The oldest TLS we speak.
    pub min_tls: MinTls,
}

/// How a client shows who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// A session if the service gives one, else as [`Auth::Basic`].
    Auto,
    /// User name and password with every request.
    Basic,
    /// A session, or nothing.
    Session,
}

/// Which certificates a BMC may show.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Those signed by the CAs this machine trusts.
    System,
    /// Those signed by a CA in this PEM file, or in a PEM file of this directory.
    File(PathBuf),
    /// Any certificate at all: nobody vouches for the BMC.
    Nobody,
}

/// The oldest version of TLS that is acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MinTls {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// How long a BMC may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// To take a connection, with TLS.
    pub connect: Duration,
    /// To answer a request, from asking to the last byte.
    pub request: Duration,
}

/// How a client waits before it asks the same again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Before the second and the third try.
    pub pauses: [Duration; 2],
    /// The longest `Retry-After` that is waited for; a longer one is waited for this long.
    pub longest: Duration,
    /// How long a BMC that rejected our user name and password is not shown them again: until then
    /// every call fails as the last one did, and the BMC is not asked. Wrong passwords lock
    /// accounts. See [`Client::try_again`](crate::Client::try_again).
    pub after_rejection: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), request: Duration::from_secs(60) }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            pauses: [Duration::from_millis(500), Duration::from_secs(2)],
            longest: Duration::from_secs(10),
            after_rejection: Duration::from_secs(300),
        }
    }
}

impl Endpoint {
    /// Reads an address as operators write it: a host, with or without scheme, port and path. The
    /// scheme is https unless given; the path, where there is one, is that of the service root.
    pub fn parse(address: &str) -> Result<Self, Error> {
        let address = address.trim();
        let whole = match (address.contains("://"), address.parse::<Ipv6Addr>()) {
            (true, _) => address.to_owned(),
            (false, Ok(ip)) => format!("https://[{ip}]"),
            (false, Err(_)) => format!("https://{address}"),
        };
        let bad =
            |why: &str| Error::BadAddress { address: path::shown(address), why: why.to_owned() };
        let url = Url::parse(&whole).map_err(|error| bad(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("the scheme must be https or http"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bad("there is no host in it"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("credentials belong in redfish_username and redfish_password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it must end with the path of the service root, without ? and #"));
        }
        let root = match url.path().trim_matches('/') {
            "" => DEFAULT_ROOT.to_owned(),
            path => format!("/{path}/"),
        };
        Ok(Self {
            address: url.origin().ascii_serialization(),
            root,
            username: None,
            password: None,
            auth: Auth::Auto,
            trust: Trust::System,
            min_tls: MinTls::V1_2,
        })
    }

    /// The host, and the port unless it is the usual one.
    #[must_use]
    pub fn host_and_port(&self) -> (&str, Option<u16>) {
        let authority = self.address.split_once("://").map_or(&*self.address, |(_, rest)| rest);
        match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            Some(_) | None => (authority, None),
        }
    }

    /// The same endpoint, entered as this user.
    #[must_use]
    pub fn with_login(mut self, username: &str, password: &str) -> Self {
        self.username = Some(username.to_owned());
        self.password = Some(password.to_owned());
        self
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("root", &self.root)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "******"))
            .field("auth", &self.auth)
            .field("trust", &self.trust)
            .field("min_tls", &self.min_tls)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (given, address, root) in [
            ("192.0.2.7", "https://192.0.2.7", "/redfish/v1/"),
            ("bmc.example:8443", "https://bmc.example:8443", "/redfish/v1/"),
            ("https://192.0.2.7/", "https://192.0.2.7", "/redfish/v1/"),
            ("https://192.0.2.7:443", "https://192.0.2.7", "/redfish/v1/"),
            ("http://192.0.2.7:8000", "http://192.0.2.7:8000", "/redfish/v1/"),
            ("2001:db8::7", "https://[2001:db8::7]", "/redfish/v1/"),
            ("https://[::1]:8443/redfish/v1", "https://[::1]:8443", "/redfish/v1/"),
            ("https://gate/rack1/redfish/v1/", "https://gate", "/rack1/redfish/v1/"),
        ] {
            let endpoint = Endpoint::parse(given).unwrap();
            assert_eq!((endpoint.address.as_str(), endpoint.root.as_str()), (address, root));
        }
    }

    #[test]
    fn mistakes_in_addresses() {
        for (given, said) in [
            ("", r#""" is not the address of a Redfish service: empty host"#),
            ("https://", r#""https://" is not the address of a Redfish service: empty host"#),
            (
                "ftp://bmc",
                r#""ftp://bmc" is not the address of a Redfish service: the scheme must be https or http"#,
            ),
            (
                "https://bmc:99999",
                r#""https://bmc:99999" is not the address of a Redfish service: invalid port number"#,
            ),
            (
                "https://admin:hunter2@bmc/",
                r#""https://bmc/" is not the address of a Redfish service: credentials belong in redfish_username and redfish_password"#,
            ),
            (
                "bmc/redfish?x=1",
                r#""bmc/redfish" is not the address of a Redfish service: it must end with the path of the service root, without ? and #"#,
            ),
        ] {
            assert_eq!(Endpoint::parse(given).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn passwords_do_not_print() {
        let endpoint = Endpoint::parse("bmc").unwrap().with_login("admin", "hunter2");
        assert!(!format!("{endpoint:?}").contains("hunter2"));
    }
}
