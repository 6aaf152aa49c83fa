// SPDX-License-Identifier: Apache-2.0
//! The host names and addresses that a certificate is valid for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rcgen::SanType;

/// Maximum length of a host name in the DNS.
const MAX_NAME_LENGTH: usize = 253;

/// The host names and addresses that a certificate is valid for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    hosts: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

/// A text is neither an address nor a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an IP address nor a host name")]
pub struct InvalidHostName(String);

impl CertificateNames {
    /// Adds an address. The unspecified address (0.0.0.0, [::]) is ignored: no client connects to it.
    pub fn add_address(&mut self, address: IpAddr) {
        if !address.is_unspecified() {
            self.addresses.insert(address);
        }
    }

    /// Adds a host name, or an address as text. A first label `*` is allowed.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn add_host(&mut self, host: &str) -> Result<(), InvalidHostName> {
        if let Ok(address) = host.trim_matches(['[', ']']).parse() {
            self.add_address(address);
            return Ok(());
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let is_label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let labels = name.strip_prefix("*.").unwrap_or(&name);
        if name.len() > MAX_NAME_LENGTH || !labels.split('.').all(is_label) {
            return Err(InvalidHostName(host.to_owned()));
        }
        self.hosts.insert(name);
        Ok(())
    }

    /// Whether all names of `other` are among these.
    #[must_use]
    pub fn contains_all(&self, other: &Self) -> bool {
        other.hosts.is_subset(&self.hosts) && other.addresses.is_subset(&self.addresses)
    }

    /// Adds all names of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.hosts.extend(other.hosts.iter().cloned());
        self.addresses.extend(&other.addresses);
    }

    /// Whether there is no name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.addresses.is_empty()
    }

    /// The names as subject alternative names.
    pub(crate) fn alternative_names(&self) -> Vec<SanType> {
        // `add_host` accepts only ASCII, which an IA5 string can hold.
        let hosts = self.hosts.iter().filter_map(|name| name.as_str().try_into().ok());
        let addresses = self.addresses.iter().copied().map(SanType::IpAddress);
        hosts.map(SanType::DnsName).chain(addresses).collect()
    }
}

/// Returns the host of a URL, without user, port, and the brackets of IPv6.
#[must_use]
pub fn url_host(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => host.split(':').next()?,
    };
    Some(host).filter(|host| !host.is_empty())
}
