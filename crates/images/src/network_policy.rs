// SPDX-License-Identifier: Apache-2.0
//! The addresses that images may be fetched from. Users who may deploy choose image URLs, and get their
//! content onto a machine; services that only this host can reach must stay out of reach.

use std::error::Error as StdError;
use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect;

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 10;

/// The addresses that images may be fetched from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageNetworkPolicy {
    /// Whether loopback and link-local addresses are allowed.
    pub allow_local: bool,
}

/// An address is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} is a loopback or link-local address: use an address of the network, or set images.allow_local_urls"
)]
pub(crate) struct LocalAddressError {
    host: String,
}

#[derive(Debug, thiserror::Error)]
#[error("too many redirects")]
struct RedirectLimitError;

impl ImageNetworkPolicy {
    fn allows(self, address: IpAddr) -> bool {
        self.allow_local || !is_local(address)
    }

    /// Fails if the host of the URL is an address that is not allowed. Names are checked when they are
    /// resolved.
    pub(crate) fn check_url(self, url: &Url) -> Result<(), LocalAddressError> {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            Ok(address) if !self.allows(address) => {
                Err(LocalAddressError { host: host.to_owned() })
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Follows redirects to allowed addresses.
    pub(crate) fn redirects(self) -> redirect::Policy {
        redirect::Policy::custom(move |attempt| {
            if attempt.previous().len() > MAX_REDIRECTS {
                return attempt.error(RedirectLimitError);
            }
            match self.check_url(attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(error) => attempt.error(error),
            }
        })
    }
}

/// Resolves names to allowed addresses. The connection uses the returned addresses, so that a name cannot
/// change between the check and the use.
impl Resolve for ImageNetworkPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = *self;
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> =
                found.filter(|address| policy.allows(address.ip())).collect();
            if allowed.is_empty() {
                return Err(LocalAddressError { host }.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Returns whether an error is caused by an address that is not allowed.
pub(crate) fn is_local_address_error(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LocalAddressError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns whether packets to the address stay on this host or this link, or reach no single host.
fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback()
                || address.is_link_local()
                || address.octets()[0] == 0
                || address.is_broadcast()
                || address.is_multicast()
        }
        IpAddr::V6(address) => {
            // IPv4-compatible addresses (RFC 4291) include the unspecified one and loopback.
            address.segments()[..6] == [0; 6]
                || address.is_unicast_link_local()
                || address.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_local_addresses() {
        let policy = ImageNetworkPolicy::default();
        for (url, allowed) in [
            ("http://127.0.0.1/x", false),
            ("http://127.9.9.9:8080/x", false),
            ("http://2130706433/x", false),
            ("http://0x7f.1/x", false),
            ("http://0.0.0.0/x", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("http://[::1]/x", false),
            ("http://[::]/x", false),
            ("http://[::ffff:127.0.0.1]/x", false),
            ("http://[::127.0.0.1]/x", false),
            ("http://[fe80::1]/x", false),
            ("http://224.0.0.1/x", false),
            ("http://192.168.0.1/x", true),
            ("http://10.0.0.1/x", true),
            ("http://[fd00::1]/x", true),
            ("http://images.example/x", true),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(policy.check_url(&url).is_ok(), allowed, "{url}");
            assert!(ImageNetworkPolicy { allow_local: true }.check_url(&url).is_ok());
        }
    }

    #[tokio::test]
    async fn rejects_names_of_local_addresses() {
        let name = || "localhost".parse::<Name>().unwrap();
        let error = ImageNetworkPolicy::default().resolve(name()).await.err().unwrap();
        assert!(is_local_address_error(error.as_ref()));
        let found = ImageNetworkPolicy { allow_local: true }.resolve(name()).await;
        assert!(found.unwrap().all(|address| address.ip().is_loopback()));
    }
}
