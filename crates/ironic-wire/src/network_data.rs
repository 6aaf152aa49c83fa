// SPDX-License-Identifier: Apache-2.0
//! Static network configuration for a ramdisk: OpenStack's `network_data.json`.
//!
//! Checked on input, because a ramdisk without a network cannot report the error.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use std::net::{Ipv4Addr, Ipv6Addr};

use node_model::Mac;
use serde_json::{Map, Value};

use crate::error::excerpt;
use crate::value::{ValueError, check_one_of, object, unexpected_type};

const PLAIN_LINKS: [&str; 9] =
    ["bridge", "dvs", "hw_veb", "hyperv", "ovs", "tap", "vhostuser", "vif", "phy"];
const BOND_MODES: [&str; 7] = [
    "802.3ad",
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "balance-tlb",
    "balance-alb",
];
const NETWORK_TYPES: [&str; 5] = ["ipv4", "ipv4_dhcp", "ipv6", "ipv6_dhcp", "ipv6_slaac"];

/// The object if it is valid. Null and the empty object are valid.
pub(crate) fn check_network_data(value: Value) -> Result<Map<String, Value>, ValueError> {
    let data = object(value)?;
    if data.is_empty() {
        return Ok(data);
    }
    for (part, check) in [
        ("links", check_link as fn(&Map<String, Value>) -> Result<(), ValueError>),
        ("networks", check_network),
        ("services", check_service),
    ] {
        let Some(items) = data.get(part) else {
            return Err(format!("'{part}' is a required property").into());
        };
        let Value::Array(items) = items else {
            return Err(unexpected_type("an array", items).at(part));
        };
        for (index, item) in items.iter().enumerate() {
            let location = format!("{part}[{index}]");
            match item {
                Value::Object(item) => check(item).map_err(|error| error.at(&location))?,
                other => return Err(unexpected_type("an object", other).at(&location)),
            }
        }
    }
    Ok(data)
}

fn check_link(link: &Map<String, Value>) -> Result<(), ValueError> {
    string(link, "id")?;
    let kind = string(link, "type")?;
    check_mtu(link)?;
    match kind {
        "bond" => {
            mac(link, "ethernet_mac_address")?;
            check_one_of(string(link, "bond_mode")?, &BOND_MODES)
                .map_err(|error| error.at("bond_mode"))?;
            match link.get("bond_links") {
                Some(Value::Array(links)) if links.iter().all(Value::is_string) => Ok(()),
                Some(_) | None => Err("bond_links must be an array of link ids".into()),
            }
        }
        "vlan" => {
            mac(link, "vlan_mac_address")?;
            string(link, "vlan_link")?;
            match link.get("vlan_id") {
                Some(Value::Number(id)) if id.is_i64() || id.is_u64() => Ok(()),
                Some(_) | None => Err("vlan_id must be an integer".into()),
            }
        }
        plain => {
            check_one_of(plain, &PLAIN_LINKS).map_err(|error| error.at("type"))?;
            mac(link, "ethernet_mac_address")
        }
    }
}

fn check_mtu(link: &Map<String, Value>) -> Result<(), ValueError> {
    match link.get("mtu") {
        None | Some(Value::Null) => Ok(()),
        Some(mtu) if mtu.as_f64().is_some_and(|mtu| (1.0..=65_535.0).contains(&mtu)) => Ok(()),
        Some(_) => Err("mtu must be a number from 1 to 65535".into()),
    }
}

fn check_network(network: &Map<String, Value>) -> Result<(), ValueError> {
    string(network, "id")?;
    string(network, "link")?;
    string(network, "network_id")?;
    let kind = string(network, "type")?;
    check_one_of(kind, &NETWORK_TYPES).map_err(|error| error.at("type"))?;
    let Some(address) = network.get("ip_address") else { return Ok(()) };
    let is_v4 = kind.starts_with("ipv4");
    let host = address.as_str().map(|text| text.split_once('/').map_or(text, |(host, _)| host));
    let parses = host.is_some_and(|host| {
        if is_v4 { host.parse::<Ipv4Addr>().is_ok() } else { host.parse::<Ipv6Addr>().is_ok() }
    });
    if parses { Ok(()) } else { Err(format!("ip_address is not an address of type {kind}").into()) }
}

fn check_service(service: &Map<String, Value>) -> Result<(), ValueError> {
    let address = string(service, "address")?;
    string(service, "type")?;
    if address.parse::<std::net::IpAddr>().is_ok() {
        Ok(())
    } else {
        Err(format!("'{}' is not an IP address", excerpt(address)).into())
    }
}

fn string<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a str, ValueError> {
    match object.get(key) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(unexpected_type("a string", other).at(key)),
        None => Err(format!("'{key}' is a required property").into()),
    }
}

fn mac(object: &Map<String, Value>, key: &str) -> Result<(), ValueError> {
    string(object, key)?
        .parse::<Mac>()
        .map(|_| ())
        .map_err(|error| ValueError::from(error.to_string()).at(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn accepts_valid_network_data() {
        let link =
            json!({"id": "eth0", "type": "phy", "ethernet_mac_address": "52:54:00:aa:bb:01"});
        let network = json!({"id": "n", "link": "eth0", "network_id": "x", "type": "ipv4", "ip_address": "10.0.0.2"});
        for good in [
            json!(null),
            json!({}),
            json!({"links": [], "networks": [], "services": []}),
            json!({"links": [link], "networks": [network],
                   "services": [{"type": "dns", "address": "10.0.0.1"}]}),
        ] {
            assert!(check_network_data(good.clone()).is_ok(), "{good}");
        }
    }

    #[test]
    fn rejects_invalid_network_data() {
        for (bad, expected) in [
            (json!({"links": []}), "networks"),
            (json!({"links": 5, "networks": [], "services": []}), "links"),
            (json!({"links": [{"id": "a"}], "networks": [], "services": []}), "type"),
            (
                json!({"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "x"}],
                       "networks": [], "services": []}),
                "links[0]: ethernet_mac_address",
            ),
            (
                json!({"links": [], "services": [],
                       "networks": [{"id": "n", "link": "l", "network_id": "x", "type": "ipv6", "ip_address": "10.0.0.1"}]}),
                "networks[0]: ip_address",
            ),
        ] {
            match check_network_data(bad.clone()) {
                Err(ValueError::Invalid(message)) => {
                    assert!(message.contains(expected), "{bad}: {message}")
                }
                other => panic!("{bad}: {other:?}"),
            }
        }
    }
}
