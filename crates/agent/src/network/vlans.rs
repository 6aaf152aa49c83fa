// SPDX-License-Identifier: Apache-2.0
//! VLAN interfaces that the agent creates: named ones, and those that switches announce by LLDP.
//!
//! `eth0.100` names a VLAN. `eth0` stands for all VLANs that the switch announces on that interface,
//! and `all` for those of every interface.

use std::collections::BTreeMap;

use super::interfaces;
use super::netlink::RtNetlink;

/// The LLDP TLV type of organizationally specific TLVs.
const ORGANIZATION_TLV: u8 = 127;
/// OUI of IEEE 802.1 and the subtype "VLAN name", in hexadecimal.
const VLAN_NAME_PREFIX: &str = "0080c203";
const ALL_INTERFACES: &str = "all";
const MAX_VLAN_ID: u16 = 4094;

/// Whether LLDP is needed to determine the VLANs.
#[must_use]
pub fn needs_lldp(names: &[String]) -> bool {
    names.iter().any(|name| parse_vlan_name(name).is_none())
}

/// Returns the names of the VLANs that switches announced on the requested interfaces.
#[must_use]
pub fn from_lldp(names: &[String], lldp: &BTreeMap<String, Vec<(u8, String)>>) -> Vec<String> {
    let is_requested =
        |interface: &str| names.iter().any(|name| name == ALL_INTERFACES || name == interface);
    lldp.iter()
        .filter(|(interface, _)| is_requested(interface))
        .flat_map(|(interface, tlvs)| {
            let ids = tlvs.iter().filter_map(|(tlv_type, value)| announced_vlan(*tlv_type, value));
            ids.map(move |id| format!("{interface}.{id}"))
        })
        .collect()
}

/// Creates the named VLAN interfaces whose parent exists.
pub(super) fn create(netlink: &mut RtNetlink, names: &[String]) {
    let interfaces = interfaces();
    for name in names {
        let Some((parent, id)) = parse_vlan_name(name) else { continue };
        if interfaces.iter().any(|interface| interface.name == *name) {
            continue;
        }
        if let Some(parent) = interfaces.iter().find(|interface| interface.name == parent)
            && let Err(error) = netlink.add_vlan(name, parent.index, id)
        {
            tracing::warn!(interface = name, %error, "failed to create VLAN interface");
        }
    }
}

/// Splits `eth0.100` into the parent interface and the VLAN id.
fn parse_vlan_name(name: &str) -> Option<(&str, u16)> {
    let (interface, id) = name.rsplit_once('.')?;
    Some((interface, id.parse().ok()?))
}

/// Returns the VLAN id that an LLDP TLV announces.
fn announced_vlan(tlv_type: u8, value: &str) -> Option<u16> {
    let rest = value.strip_prefix(VLAN_NAME_PREFIX).filter(|_| tlv_type == ORGANIZATION_TLV)?;
    let id = u16::from_str_radix(rest.get(..4)?, 16).ok()?;
    (1..=MAX_VLAN_ID).contains(&id).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_vlans_from_lldp() {
        let tlv = |text: &str| (ORGANIZATION_TLV, text.to_owned());
        let lldp = BTreeMap::from([
            (
                "eth0".to_owned(),
                vec![
                    (1, VLAN_NAME_PREFIX.to_owned() + "0064"),
                    // The port VLAN id is untagged and needs no interface.
                    tlv("0080c2010001"),
                    tlv("0080c203006406706c616e7430"),
                    tlv("0080c20300c800"),
                    tlv("0080c2030fff00"),
                    tlv("0080c20300"),
                ],
            ),
            ("eth1".to_owned(), vec![tlv("0080c203000700")]),
        ]);
        let check = |names: &[&str], expected: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(from_lldp(&names, &lldp), expected, "{names:?}");
            assert_eq!(needs_lldp(&names), !expected.is_empty(), "{names:?}");
        };
        check(&["all"], &["eth0.100", "eth0.200", "eth1.7"]);
        check(&["eth1", "eth0.5"], &["eth1.7"]);
        check(&["eth0.5"], &[]);
        check(&[], &[]);
    }
}
