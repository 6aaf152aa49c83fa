// SPDX-License-Identifier: Apache-2.0
//! DHCP settings of the configuration.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use kube_resources::ironic::address_range::{CidrNetwork, IpRange};
use kube_resources::ironic::networking::IronicDhcp;
use kube_resources::ironic::service::IronicSpec;
use kube_resources::ironic::validation::{DhcpPool, dhcp_pools};
use toml::{Table, Value};

use super::configuration::ServiceConfiguration;
use super::provisioning::ServiceAddress;
use super::support::SupportReport;

/// Every machine gets an address, as from dnsmasq.
const ALL_MACHINES: &str = "all";
/// Machines that are enrolled, or have an entry in `hosts`, get addresses.
const KNOWN_MACHINES: &str = "reserve";
/// Entry of `ignore` with which dnsmasq does not reply to machines without an entry in `hosts`.
const UNKNOWN_HOSTS: &str = "tag:!known";
/// Entry of `hosts` with which dnsmasq does not reply to a machine.
const IGNORED_HOST: &str = "ignore";

/// The network that contains the address of the service; all addresses of an IP version if only networks
/// behind relays are given.
pub(super) fn provisioning_network(spec: &IronicSpec) -> Option<CidrNetwork> {
    let pools = dhcp_pools(spec);
    let main = pools.iter().find(|pool| !pool.is_relayed).map(|pool| pool.network);
    main.or_else(|| {
        let version = if pools.first()?.network.network.is_ipv6() { "::/0" } else { "0.0.0.0/0" };
        CidrNetwork::parse(version)
    })
}

pub(super) fn configure(
    spec: &IronicSpec,
    configuration: &mut ServiceConfiguration,
    report: &mut SupportReport,
) {
    let Some(dhcp) = &spec.networking.dhcp else { return };
    let address = ServiceAddress::of(spec);
    let pools = dhcp_pools(spec);
    let mut networks = ServedNetwork::from_pools(&pools, address, report);
    if !networks.iter().any(|network| network.is_local) {
        networks.insert(0, ServedNetwork::listening(address, &pools));
        if dhcp.gateway_address.is_some() {
            let reason = "it is the gateway of networkCIDR, which is missing";
            report.notice("spec.networking.dhcp.gatewayAddress", reason);
        }
    }
    check_ip_versions(dhcp, &networks, report);
    let (hosts, mut ignored) = hosts(dhcp, &networks, report);
    let ignores_unknown = ignored_machines(dhcp, &mut ignored, report);
    let mode = if ignores_unknown { KNOWN_MACHINES } else { ALL_MACHINES };
    let tables: Vec<Value> = networks
        .iter()
        .map(|network| Value::Table(network.table(spec, dhcp, address, mode, &hosts)))
        .collect();
    if !ignored.is_empty() {
        let ignored = ignored.into_iter().map(Value::from).collect::<Vec<_>>();
        configuration.set("dhcp.ignored", ignored);
    }
    configuration.set("dhcp.networks", tables);
}

/// A `[[dhcp.networks]]`.
struct ServedNetwork {
    /// Path of the field with the network.
    path: String,
    /// `None` if it is that of the interface.
    network: Option<CidrNetwork>,
    ranges: Vec<IpRange>,
    gateway: Option<Ipv4Addr>,
    /// Whether the service has an address in it. The others are served through relays.
    is_local: bool,
    is_ipv6: bool,
}

impl ServedNetwork {
    /// Ranges of the same network belong to one entry.
    fn from_pools(
        pools: &[DhcpPool],
        address: ServiceAddress,
        report: &mut SupportReport,
    ) -> Vec<Self> {
        let mut networks: Vec<Self> = Vec::new();
        for pool in pools {
            let range = usable_range(pool, report);
            let gateway = gateway(pool, report);
            let known = networks.iter_mut().find(|known| known.network == Some(pool.network));
            if let Some(known) = known {
                if known.is_ipv6 {
                    let reason = format!("{} has a range already", pool.network);
                    report.reject(&pool.path, reason);
                }
                if gateway.is_some() && known.gateway.is_some() && gateway != known.gateway {
                    let reason = format!("{} has another gateway already", pool.network);
                    report.reject(&pool.path, reason);
                }
                known.ranges.extend(range);
                known.gateway = known.gateway.or(gateway);
                continue;
            }
            // An interface has one network per IP version, the provisioning network if it is given.
            let has_own_address = match address {
                ServiceAddress::Given(own) => {
                    pool.network.contains(own) && !networks.iter().any(|known| known.is_local)
                }
                ServiceAddress::Found | ServiceAddress::OfPod => false,
            };
            networks.push(Self {
                path: pool.path.clone(),
                network: Some(pool.network),
                ranges: range.into_iter().collect(),
                gateway,
                is_local: !pool.is_relayed || has_own_address,
                is_ipv6: pool.network.network.is_ipv6(),
            });
        }
        networks
    }

    /// The network of the interface, if only networks behind relays are served. It has no addresses for
    /// machines.
    fn listening(address: ServiceAddress, pools: &[DhcpPool]) -> Self {
        let is_ipv6 = match address {
            ServiceAddress::Given(own) => own.is_ipv6(),
            ServiceAddress::Found | ServiceAddress::OfPod => {
                pools.first().is_some_and(|pool| pool.network.network.is_ipv6())
            }
        };
        Self {
            path: "spec.networking.dhcp.networkCIDR".to_owned(),
            network: None,
            ranges: Vec::new(),
            gateway: None,
            is_local: true,
            is_ipv6,
        }
    }

    fn table(
        &self,
        spec: &IronicSpec,
        dhcp: &IronicDhcp,
        own: ServiceAddress,
        mode: &str,
        hosts: &[HostReservation],
    ) -> Table {
        let mut table = Table::new();
        let mut set = |key: &str, value: Value| table.insert(key.to_owned(), value);
        let own = own.text();
        if self.is_local {
            let interface = spec.networking.interface.as_deref();
            set("interface", interface.unwrap_or("{provisioning_interface}").into());
        }
        let address = match self.network {
            // keepalived may assign the address with another prefix length.
            Some(network) if self.is_local => format!("{own}/{}", network.prefix),
            Some(network) => network.to_string(),
            None => format!("{own}/{{provisioning_prefix}}"),
        };
        set("address", address.into());
        set("mode", if self.network.is_some() { mode } else { KNOWN_MACHINES }.into());
        let ranges: Vec<Value> = self.ranges.iter().map(|it| it.to_string().into()).collect();
        if !ranges.is_empty() {
            set("ranges", ranges.into());
        }
        if let Some(gateway) = self.gateway {
            set("gateway", gateway.to_string().into());
        }
        match &dhcp.dns_address {
            Some(dns) if dns.contains(':') == self.is_ipv6 => {
                set("dns", vec![Value::from(dns.as_str())].into());
            }
            Some(_) => {}
            None if dhcp.serve_dns && self.is_local => {
                set("serve_dns", true.into());
            }
            None if dhcp.serve_dns => {
                set("dns", vec![Value::from(own)].into());
            }
            None => {}
        }
        let hosts: Table = hosts
            .iter()
            .filter(|host| self.contains(host.address))
            .map(|host| (host.mac.clone(), Value::from(host.address.to_string())))
            .collect();
        if !hosts.is_empty() {
            set("hosts", hosts.into());
        }
        table
    }

    /// Whether the network contains an address that a machine can have.
    fn contains(&self, address: Ipv4Addr) -> bool {
        let Some(network) = self.network.filter(|network| network.contains(address.into())) else {
            return false;
        };
        host_addresses(network).is_none_or(|(first, last)| (first..=last).contains(&address))
    }
}

/// The first and last address of an IPv4 network that a machine can have.
fn host_addresses(network: CidrNetwork) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let IpAddr::V4(first) = network.network else { return None };
    let hosts = u32::MAX.checked_shr(u32::from(network.prefix)).unwrap_or(0);
    let last = Ipv4Addr::from_bits(first.to_bits() | hosts);
    if network.prefix >= 31 {
        return Some((first, last));
    }
    Some((Ipv4Addr::from_bits(first.to_bits() + 1), Ipv4Addr::from_bits(last.to_bits() - 1)))
}

/// The range without the addresses of the network itself and of broadcasts.
fn usable_range(pool: &DhcpPool, report: &mut SupportReport) -> Option<IpRange> {
    let (IpAddr::V4(begin), IpAddr::V4(end)) = (pool.range.begin, pool.range.end) else {
        return Some(pool.range);
    };
    let (first, last) = host_addresses(pool.network)?;
    let (begin, end) = (begin.max(first), end.min(last));
    if begin > end {
        report.reject(&pool.path, format!("the range {} has no address for machines", pool.range));
        return None;
    }
    Some(IpRange { begin: begin.into(), end: end.into() })
}

/// The gateway that machines get.
fn gateway(pool: &DhcpPool, report: &mut SupportReport) -> Option<Ipv4Addr> {
    const GATEWAY: &str = "spec.networking.dhcp.gatewayAddress";
    let address = pool.gateway?;
    if pool.network.network.is_ipv6() {
        let reason = "DHCPv6 has no option for gateways, routers announce themselves; remove it";
        report.reject(GATEWAY, reason);
        return None;
    }
    let is_host = |gateway: &Ipv4Addr| {
        host_addresses(pool.network).is_some_and(|(first, last)| (first..=last).contains(gateway))
    };
    match address {
        IpAddr::V4(gateway) if is_host(&gateway) => Some(gateway),
        IpAddr::V4(_) | IpAddr::V6(_) => {
            let reason = format!("{address} is not the address of a machine in {}", pool.network);
            report.reject(GATEWAY, reason);
            None
        }
    }
}

/// Relays send to an address of their IP version, and machines use DNS servers of theirs.
fn check_ip_versions(dhcp: &IronicDhcp, networks: &[ServedNetwork], report: &mut SupportReport) {
    for network in networks.iter().filter(|network| !network.is_local) {
        let same = |other: &ServedNetwork| other.is_local && other.is_ipv6 == network.is_ipv6;
        if !networks.iter().any(same) {
            report.reject(
                &network.path,
                "the service has no address of this IP version, so relays cannot reach it; remove the \
                 range",
            );
        }
    }
    if let Some(dns) = &dhcp.dns_address
        && !networks.iter().any(|network| network.is_ipv6 == dns.contains(':'))
    {
        let reason = format!("{dns} does not have the IP version of any network");
        report.reject("spec.networking.dhcp.dnsAddress", reason);
    }
}

/// A fixed address.
struct HostReservation {
    mac: String,
    address: Ipv4Addr,
}

/// Entries of `hosts` in dnsmasq's notation: fixed addresses, and machines that get no reply. Names and lease
/// times are not supported.
fn hosts(
    dhcp: &IronicDhcp,
    networks: &[ServedNetwork],
    report: &mut SupportReport,
) -> (Vec<HostReservation>, BTreeSet<String>) {
    let mut reservations: Vec<HostReservation> = Vec::new();
    let mut ignored = BTreeSet::new();
    for (index, entry) in dhcp.hosts.iter().enumerate() {
        let path = format!("spec.networking.dhcp.hosts[{index}]");
        let parts: Vec<&str> = entry.split(',').map(str::trim).collect();
        let (mac, value) = match parts.as_slice() {
            [mac, value] if is_mac_address(mac) => (mac.to_ascii_lowercase(), *value),
            _ => {
                let reason = format!(
                    "{entry:?} is not supported; use MAC address, comma, and IP address or ignore"
                );
                report.reject(path, reason);
                continue;
            }
        };
        if value == IGNORED_HOST {
            ignored.insert(mac);
            continue;
        }
        let unbracketed = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match unbracketed.unwrap_or(value).parse() {
            Ok(IpAddr::V4(address)) => {
                if let Some(reason) = conflict(&mac, address, networks, &reservations) {
                    report.reject(path, reason);
                } else {
                    reservations.push(HostReservation { mac, address });
                }
            }
            Ok(IpAddr::V6(address)) => {
                report.reject(path, format!("{address}: DHCPv6 has no fixed addresses; remove it"));
            }
            Err(_) => report.reject(path, format!("{value:?} is not an IP address")),
        }
    }
    (reservations, ignored)
}

/// Why a machine cannot have an address.
fn conflict(
    mac: &str,
    address: Ipv4Addr,
    networks: &[ServedNetwork],
    earlier: &[HostReservation],
) -> Option<String> {
    let Some(network) = networks.iter().find(|network| network.contains(address)) else {
        return Some(format!("{address} is in none of the networks"));
    };
    if earlier.iter().any(|host| host.address == address) {
        return Some(format!("{address} has another entry already"));
    }
    let is_same = |host: &&HostReservation| host.mac == mac && network.contains(host.address);
    let same = earlier.iter().find(is_same)?;
    Some(format!("{mac} has the address {} in this network already", same.address))
}

/// Entries of `ignore`. Returns whether machines without an entry in `hosts` are ignored.
fn ignored_machines(
    dhcp: &IronicDhcp,
    ignored: &mut BTreeSet<String>,
    report: &mut SupportReport,
) -> bool {
    let mut ignores_unknown = false;
    for (index, entry) in dhcp.ignore.iter().enumerate() {
        if is_mac_address(entry) {
            ignored.insert(entry.to_ascii_lowercase());
        } else if entry == UNKNOWN_HOSTS {
            ignores_unknown = true;
        } else {
            let path = format!("spec.networking.dhcp.ignore[{index}]");
            let reason =
                format!("{entry:?} is not supported; use MAC addresses or {UNKNOWN_HOSTS}");
            report.reject(path, reason);
        }
    }
    ignores_unknown
}

fn is_mac_address(text: &str) -> bool {
    let octets: Vec<&str> = text.split(':').collect();
    let is_octet =
        |octet: &&str| octet.len() == 2 && octet.bytes().all(|byte| byte.is_ascii_hexdigit());
    octets.len() == 6 && octets.iter().all(is_octet)
}
