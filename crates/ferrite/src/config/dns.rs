// SPDX-License-Identifier: Apache-2.0
//! The DNS forwarder on DHCP networks with `serve_dns`.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, bail};
use boot_server::dns::{DnsUpstreams, OwnDnsNames, RESOLVER_CONFIGURATION};
use serde::{Deserialize, Serialize};

/// The DNS forwarder on DHCP networks with `serve_dns`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DnsSection {
    /// Resolvers to which queries are forwarded, as address or address and port; by default those in
    /// `/etc/resolv.conf`, which is read again when it changes.
    pub(crate) resolvers: Vec<String>,
    /// Host names of this server, besides the name of this host. Machines get the address of the server on
    /// their network for them.
    pub(crate) names: Vec<String>,
}

impl DnsSection {
    /// The resolvers, without the addresses of this server.
    pub(crate) fn upstreams(&self, own: Vec<IpAddr>) -> anyhow::Result<DnsUpstreams> {
        const DNS_PORT: u16 = 53;
        if self.resolvers.is_empty() {
            return Ok(DnsUpstreams::from_file(Path::new(RESOLVER_CONFIGURATION)).without(own));
        }
        let mut resolvers = Vec::new();
        for text in &self.resolvers {
            let with_port = text.parse::<SocketAddr>().ok();
            let resolver = with_port
                .or_else(|| Some(SocketAddr::new(text.parse().ok()?, DNS_PORT)))
                .with_context(|| {
                    format!("dns.resolvers: {text:?} is neither an address nor an address and port")
                })?;
            if resolver.port() == DNS_PORT && own.contains(&resolver.ip()) {
                bail!("dns.resolvers: {text} is the address of this server");
            }
            resolvers.push(resolver);
        }
        Ok(DnsUpstreams::fixed(resolvers).without(own))
    }

    /// The names that machines on a network with this server address and domain get the address for.
    pub(crate) fn own_names(
        &self,
        host: &str,
        domain: Option<&str>,
        address: IpAddr,
    ) -> anyhow::Result<OwnDnsNames> {
        let with_domain = domain.map(|domain| format!("{host}.{domain}"));
        let configured = self.names.iter().map(String::as_str);
        // A host name with other characters than those of DNS has no record.
        let hosts = [Some(host), with_domain.as_deref()];
        let hosts =
            hosts.into_iter().flatten().filter(|name| OwnDnsNames::new([*name], address).is_ok());
        OwnDnsNames::new(configured.chain(hosts), address).context("dns.names")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_resolvers_and_names_are_rejected() {
        let own = IpAddr::from([10, 0, 0, 1]);
        let section = |resolver: &str| DnsSection {
            resolvers: vec![resolver.to_owned()],
            ..DnsSection::default()
        };
        for resolver in
            ["10.0.0.2", "10.0.0.2:5353", "fd00::53", "[fd00::53]:5353", "10.0.0.1:5353"]
        {
            section(resolver).upstreams(vec![own]).unwrap();
        }
        for (resolver, expected) in
            [("dns.example", "neither an address"), ("10.0.0.1", "the address of this server")]
        {
            let error = section(resolver).upstreams(vec![own]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let names = DnsSection { names: vec!["a..b".to_owned()], ..DnsSection::default() };
        let error = names.own_names("host", None, own).unwrap_err();
        assert!(format!("{error:#}").contains("dns.names"), "{error:#}");
        DnsSection::default().own_names("strange host_", Some("lab.example"), own).unwrap();
    }
}
