// SPDX-License-Identifier: Apache-2.0
//! The address, credentials, TLS settings and timeouts of a BMC.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use crate::{RedfishError, path};

/// The service root, unless the address contains another path.
const DEFAULT_ROOT: &str = "/redfish/v1/";

/// The address, credentials and TLS requirements of a BMC.
#[derive(Clone, PartialEq, Eq)]
pub struct RedfishEndpoint {
    /// Scheme and authority, such as `https://192.0.2.7` or `http://[2001:db8::7]:8000`.
    pub address: String,
    /// The path of the service root; starts and ends with a slash.
    pub root: String,
    /// The user name; `None` for a service without authentication.
    pub username: Option<String>,
    /// The password. `Debug` masks it.
    pub password: Option<String>,
    /// The authentication method.
    pub auth: RedfishAuth,
    /// The accepted certificates.
    pub trust: CertificateTrust,
    /// The minimum TLS version.
    pub min_tls: MinTlsVersion,
}

/// The authentication method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedfishAuth {
    /// A session if the service supports sessions, otherwise [`RedfishAuth::Basic`].
    Auto,
    /// User name and password with every request.
    Basic,
    /// Only a session.
    Session,
}

/// The certificates that are accepted from a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CertificateTrust {
    /// Certificates signed by the CAs of the operating system.
    System,
    /// Certificates signed by a CA in this PEM file, or in a PEM file of this directory.
    File(PathBuf),
    /// Any certificate: the identity of the BMC is not verified.
    AnyCertificate,
}

/// The minimum TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MinTlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// Timeouts of requests to a BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedfishTimeouts {
    /// For a connection, including TLS.
    pub connect: Duration,
    /// For a request, until the last byte of the response.
    pub request: Duration,
}

/// Delays between retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedfishRetryPolicy {
    /// Before the second and the third attempt.
    pub pauses: [Duration; 2],
    /// The upper limit for `Retry-After`.
    pub longest: Duration,
    /// After the BMC has rejected the credentials, every call fails without a request for this long,
    /// because wrong passwords lock accounts. See
    /// [`RedfishClient::clear_rejection`](crate::RedfishClient::clear_rejection).
    pub after_rejection: Duration,
}

impl Default for RedfishTimeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), request: Duration::from_secs(60) }
    }
}

impl Default for RedfishRetryPolicy {
    fn default() -> Self {
        Self {
            pauses: [Duration::from_millis(500), Duration::from_secs(2)],
            longest: Duration::from_secs(10),
            after_rejection: Duration::from_secs(300),
        }
    }
}

impl RedfishEndpoint {
    /// Parses an address: a host with optional scheme, port and path. The default scheme is https;
    /// a path is that of the service root.
    pub fn parse(address: &str) -> Result<Self, RedfishError> {
        let address = address.trim();
        let whole = match (address.contains("://"), address.parse::<Ipv6Addr>()) {
            (true, _) => address.to_owned(),
            (false, Ok(ip)) => format!("https://[{ip}]"),
            (false, Err(_)) => format!("https://{address}"),
        };
        let bad = |why: &str| RedfishError::BadAddress {
            address: path::shown(address),
            why: why.to_owned(),
        };
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
            auth: RedfishAuth::Auto,
            trust: CertificateTrust::System,
            min_tls: MinTlsVersion::V1_2,
        })
    }

    /// The host, and the port unless it is the default.
    #[must_use]
    pub fn host_and_port(&self) -> (&str, Option<u16>) {
        let authority = self.address.split_once("://").map_or(&*self.address, |(_, rest)| rest);
        match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            Some(_) | None => (authority, None),
        }
    }

    /// Returns the endpoint with these credentials.
    #[must_use]
    pub fn with_login(mut self, username: &str, password: &str) -> Self {
        self.username = Some(username.to_owned());
        self.password = Some(password.to_owned());
        self
    }
}

impl fmt::Debug for RedfishEndpoint {
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
    fn parses_addresses() {
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
            let endpoint = RedfishEndpoint::parse(given).unwrap();
            assert_eq!((endpoint.address.as_str(), endpoint.root.as_str()), (address, root));
        }
    }

    #[test]
    fn rejects_bad_addresses() {
        for (given, expected) in [
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
            assert_eq!(RedfishEndpoint::parse(given).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn debug_masks_the_password() {
        let endpoint = RedfishEndpoint::parse("bmc").unwrap().with_login("admin", "hunter2");
        assert!(!format!("{endpoint:?}").contains("hunter2"));
    }
}
