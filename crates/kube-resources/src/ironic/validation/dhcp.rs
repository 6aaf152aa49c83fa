// SPDX-License-Identifier: Apache-2.0
//! Rules for DHCP: networks, ranges, gateways and DNS.

use std::net::IpAddr;

use super::super::address_range::{CidrNetwork, IpRange};
use super::super::networking::{DhcpExtraRange, IronicDhcp};
use super::super::service::IronicSpec;
use super::addresses::ip_address;
use super::required;
use crate::field_error::FieldError;

/// A network and the range of addresses that machines get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpPool {
    /// Path of the field with the network.
    pub path: String,
    /// The network.
    pub network: CidrNetwork,
    /// The addresses for machines.
    pub range: IpRange,
    /// Default gateway.
    pub gateway: Option<IpAddr>,
    /// Whether the network is served through a relay.
    pub is_relayed: bool,
}

/// The networks of a valid spec, the provisioning network first.
#[must_use]
pub fn dhcp_pools(spec: &IronicSpec) -> Vec<DhcpPool> {
    let Some(dhcp) = &spec.networking.dhcp else { return Vec::new() };
    let main = main_pool(spec, dhcp).ok().flatten();
    let extra = dhcp.extra_ranges.iter().enumerate();
    main.into_iter()
        .chain(extra.filter_map(|(index, range)| extra_pool(index, range).ok()))
        .collect()
}

pub(super) fn check(spec: &IronicSpec) -> Vec<FieldError> {
    let networking = &spec.networking;
    let Some(dhcp) = &networking.dhcp else { return Vec::new() };
    let mut errors = Vec::new();
    errors.extend(required(
        networking.ip_address.is_some()
            || networking.interface.is_some()
            || !networking.mac_addresses.is_empty(),
        "spec.networking.dhcp",
        "needs to know the provisioning interface; set networking.ipAddress, interface or \
         macAddresses",
    ));
    errors.extend(required(
        !dhcp.serve_dns || dhcp.dns_address.is_none(),
        "spec.networking.dhcp.serveDNS",
        "cannot be combined with dnsAddress; remove one of them",
    ));
    for (field, address) in
        [("dnsAddress", &dhcp.dns_address), ("gatewayAddress", &dhcp.gateway_address)]
    {
        let path = format!("spec.networking.dhcp.{field}");
        errors.extend(address.as_deref().and_then(|address| ip_address(&path, address)));
    }
    let mut pools = Vec::new();
    match main_pool(spec, dhcp) {
        Ok(main) => {
            errors.extend(required(
                main.is_some() || !dhcp.extra_ranges.is_empty(),
                "spec.networking.dhcp.networkCIDR",
                "is missing; set it, or add extraRanges for networks behind relays",
            ));
            pools.extend(main);
        }
        Err(found) => errors.extend(found),
    }
    for (index, range) in dhcp.extra_ranges.iter().enumerate() {
        match extra_pool(index, range) {
            Ok(pool) => pools.push(pool),
            Err(found) => errors.extend(found),
        }
    }
    errors.extend(overlaps(&pools));
    errors
}

/// The pool of the provisioning network; `None` if there is only a list of others.
fn main_pool(spec: &IronicSpec, dhcp: &IronicDhcp) -> Result<Option<DhcpPool>, Vec<FieldError>> {
    const CIDR: &str = "spec.networking.dhcp.networkCIDR";
    let address = spec.networking.ip_address.as_deref().and_then(|text| text.parse().ok());
    let gateway = dhcp.gateway_address.as_deref().and_then(|text| text.parse().ok());
    let Some(text) = &dhcp.network_cidr else {
        let problem = "is given without networkCIDR; set networkCIDR too";
        let errors: Vec<FieldError> =
            [("rangeBegin", &dhcp.range_begin), ("rangeEnd", &dhcp.range_end)]
                .iter()
                .filter(|(_, value)| value.is_some())
                .map(|(field, _)| FieldError::new(format!("spec.networking.dhcp.{field}"), problem))
                .collect();
        return if errors.is_empty() { Ok(None) } else { Err(errors) };
    };
    let network = cidr(CIDR, text).map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    if let Some(address) = address {
        errors.extend(required(
            network.contains(address),
            CIDR,
            format!(
                "{network} does not contain networking.ipAddress {address}; correct one of them"
            ),
        ));
    }
    let in_use: Vec<IpAddr> = address.into_iter().chain(gateway).collect();
    let range = match (&dhcp.range_begin, &dhcp.range_end) {
        (Some(begin), Some(end)) => range("spec.networking.dhcp", &network, begin, end),
        (None, None) => network.default_range(&in_use).ok_or_else(|| {
            let problem =
                format!("{network} is too small for a derived range; set rangeBegin and rangeEnd");
            vec![FieldError::new(CIDR, problem)]
        }),
        (begin, _) => {
            let (missing, given) = if begin.is_some() {
                ("rangeEnd", "rangeBegin")
            } else {
                ("rangeBegin", "rangeEnd")
            };
            let problem = format!("is missing; set it, or remove {given} to derive both");
            Err(vec![FieldError::new(format!("spec.networking.dhcp.{missing}"), problem)])
        }
    };
    match range {
        Ok(range) if errors.is_empty() => {
            Ok(Some(DhcpPool { path: CIDR.to_owned(), network, range, gateway, is_relayed: false }))
        }
        Ok(_) => Err(errors),
        Err(found) => {
            errors.extend(found);
            Err(errors)
        }
    }
}

fn extra_pool(index: usize, extra: &DhcpExtraRange) -> Result<DhcpPool, Vec<FieldError>> {
    let base = format!("spec.networking.dhcp.extraRanges[{index}]");
    let path = format!("{base}.networkCIDR");
    let network = cidr(&path, &extra.network_cidr).map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    errors.extend(required(
        network.prefix != 0,
        &path,
        "has the prefix length 0; use the network of the relay",
    ));
    let gateway = match extra.gateway_address.as_deref().map(str::parse::<IpAddr>) {
        None => None,
        Some(Ok(gateway)) if gateway.is_ipv4() && network.contains(gateway) => Some(gateway),
        Some(_) => {
            let problem = format!(
                "{:?} is not an IPv4 address in {network}; correct or remove it",
                extra.gateway_address.as_deref().unwrap_or_default()
            );
            errors.push(FieldError::new(format!("{base}.gatewayAddress"), problem));
            None
        }
    };
    match range(&base, &network, &extra.range_begin, &extra.range_end) {
        Ok(range) if errors.is_empty() => {
            Ok(DhcpPool { path, network, range, gateway, is_relayed: true })
        }
        Ok(_) => Err(errors),
        Err(found) => {
            errors.extend(found);
            Err(errors)
        }
    }
}

fn cidr(path: &str, text: &str) -> Result<CidrNetwork, FieldError> {
    CidrNetwork::parse(text).ok_or_else(|| {
        let problem = match text {
            "" => "is empty; set it to a network such as 192.0.2.0/24".to_owned(),
            _ => format!("{text:?} is not a network; use one such as 192.0.2.0/24"),
        };
        FieldError::new(path, problem)
    })
}

/// A range whose ends are in the network, in this order.
fn range(
    base: &str,
    network: &CidrNetwork,
    begin: &str,
    end: &str,
) -> Result<IpRange, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut parse = |field: &str, text: &str| {
        let parsed = text.parse::<IpAddr>().ok().filter(|address| network.contains(*address));
        if parsed.is_none() {
            let problem = match text {
                "" => format!("is empty; set it to an address in {network}"),
                _ => format!("{text:?} is not an address in {network}"),
            };
            errors.push(FieldError::new(format!("{base}.{field}"), problem));
        }
        parsed
    };
    let (begin, end) = (parse("rangeBegin", begin), parse("rangeEnd", end));
    match (begin, end) {
        (Some(begin), Some(end)) if begin <= end => Ok(IpRange { begin, end }),
        (Some(begin), Some(end)) => Err(vec![FieldError::new(
            format!("{base}.rangeBegin"),
            format!("{begin} is greater than rangeEnd {end}; swap them"),
        )]),
        _ => Err(errors),
    }
}

/// Two pools with an address in common would assign it twice.
fn overlaps(pools: &[DhcpPool]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, pool) in pools.iter().enumerate() {
        let others = pools[..index].iter().filter(|other| other.range.overlaps(&pool.range));
        errors.extend(others.map(|other| {
            FieldError::new(
                &pool.path,
                format!("the range {} overlaps with {} of {}", pool.range, other.range, other.path),
            )
        }));
    }
    errors
}
