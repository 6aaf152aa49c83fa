// SPDX-License-Identifier: Apache-2.0
//! LLDP as ramdisks hand it over: a list of `[type, hexadecimal value]`.
//!
//! The bytes come from the other end of a cable. Lengths are checked, values above what the
//! standard allows are dropped, and a TLV that cannot be read is as if it had not been sent.

mod neighbours;
mod organisation;

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value};

pub use neighbours::neighbours;

/// IEEE 802.1AB gives the length nine bits.
const MAX_VALUE_BYTES: usize = 511;
/// More TLVs than any switch sends.
const MAX_TLVS: usize = 256;

/// What a port is plugged into.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// The switch port.
    pub port_id: Option<String>,
    /// The switch's hardware address.
    pub switch_id: Option<String>,
    /// The switch's name.
    pub switch_info: Option<String>,
}

/// A TLV that a link needs cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LldpError {
    /// Not type and hexadecimal text.
    #[error("a TLV is not a type and a hexadecimal value")]
    NotATlv,
    /// Too short, or not text where text belongs.
    #[error("the TLV of type {0} has a malformed value")]
    Malformed(u64),
}

/// What chassis and port ids of one kind hold.
#[derive(Clone, Copy)]
enum IdKind {
    Text,
    Mac,
    Network,
}

mod tlv {
    pub(super) const CHASSIS_ID: u64 = 1;
    pub(super) const PORT_ID: u64 = 2;
    pub(super) const PORT_DESCRIPTION: u64 = 4;
    pub(super) const SYSTEM_NAME: u64 = 5;
    pub(super) const SYSTEM_DESCRIPTION: u64 = 6;
    pub(super) const SYSTEM_CAPABILITIES: u64 = 7;
    pub(super) const MANAGEMENT_ADDRESS: u64 = 8;
    pub(super) const ORGANISATION: u64 = 127;
}

const CHASSIS_MAC: u8 = 4;
const CHASSIS_KINDS: &[(u8, IdKind)] = &[
    (1, IdKind::Text),
    (2, IdKind::Text),
    (3, IdKind::Text),
    (CHASSIS_MAC, IdKind::Mac),
    (5, IdKind::Network),
    (6, IdKind::Text),
    (7, IdKind::Text),
];
const PORT_KINDS: &[(u8, IdKind)] = &[
    (1, IdKind::Text),
    (2, IdKind::Text),
    (3, IdKind::Mac),
    (4, IdKind::Network),
    (5, IdKind::Text),
    (7, IdKind::Text),
];

/// Capability bits from the lowest; the first, "other", has no name.
const CAPABILITIES: [&str; 10] = [
    "Repeater",
    "Bridge",
    "WLAN",
    "Router",
    "Telephone",
    "DOCSIS cable device",
    "Station only",
    "C-Vlan",
    "S-Vlan",
    "TPMR",
];

/// Facts about a switch port by Ironic's names for them.
#[derive(Default)]
struct Facts(Map<String, Value>);

/// Reads what identifies the link. Of repeated TLVs the last counts.
///
/// # Errors
/// If a TLV that matters is malformed: then none of it is trusted.
pub fn link(tlvs: &[Value]) -> Result<Link, LldpError> {
    let mut link = Link::default();
    for tlv in tlvs.iter().take(MAX_TLVS) {
        let (kind, hex) = split(tlv).ok_or(LldpError::NotATlv)?;
        if !matches!(kind, tlv::CHASSIS_ID | tlv::PORT_ID | tlv::SYSTEM_NAME) {
            continue;
        }
        let bytes = unhex(hex).ok_or(LldpError::NotATlv)?;
        let malformed = |()| LldpError::Malformed(kind);
        match kind {
            tlv::CHASSIS_ID if bytes.first() == Some(&CHASSIS_MAC) => {
                link.switch_id =
                    identifier(&bytes, CHASSIS_KINDS).map_err(malformed)?.or(link.switch_id);
            }
            tlv::PORT_ID => {
                link.port_id = identifier(&bytes, PORT_KINDS).map_err(malformed)?.or(link.port_id);
            }
            tlv::SYSTEM_NAME => link.switch_info = Some(text(&bytes).ok_or(()).map_err(malformed)?),
            // A chassis id of another kind is not a switch id.
            _ => {}
        }
    }
    Ok(link)
}

/// Reads everything that has a name. Of repeated TLVs the first counts, lists grow.
#[must_use]
pub fn describe(tlvs: &[Value]) -> Map<String, Value> {
    let mut facts = Facts::default();
    for tlv in tlvs.iter().take(MAX_TLVS) {
        // A TLV that cannot be read is left out; the others are none the worse for it.
        if let Some((kind, bytes)) = split(tlv).and_then(|(kind, hex)| Some((kind, unhex(hex)?))) {
            let _unreadable: Option<()> = basic(&mut facts, kind, &bytes);
        }
    }
    facts.0
}

impl Facts {
    /// A fact is not changed by a later one.
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    fn append(&mut self, name: &str, value: impl Into<Value>) {
        let list = self.0.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        if let Some(list) = list.as_array_mut() {
            list.push(value.into());
        }
    }
}

/// The basic management set.
fn basic(facts: &mut Facts, kind: u64, bytes: &[u8]) -> Option<()> {
    match kind {
        tlv::CHASSIS_ID => facts.set("switch_chassis_id", identifier(bytes, CHASSIS_KINDS).ok()??),
        tlv::PORT_ID => facts.set("switch_port_id", identifier(bytes, PORT_KINDS).ok()??),
        tlv::PORT_DESCRIPTION => facts.set("switch_port_description", text(bytes)?),
        tlv::SYSTEM_NAME => facts.set("switch_system_name", text(bytes)?),
        tlv::SYSTEM_DESCRIPTION => facts.set("switch_system_description", text(bytes)?),
        tlv::SYSTEM_CAPABILITIES => {
            let [a, b, c, d] = *bytes else { return None };
            facts.set("switch_capabilities_support", capabilities([a, b]));
            facts.set("switch_capabilities_enabled", capabilities([c, d]));
        }
        // The first byte is the length of what follows up to the interface number.
        tlv::MANAGEMENT_ADDRESS => {
            facts.append("switch_mgmt_addresses", network_address(bytes.get(1..)?)?)
        }
        tlv::ORGANISATION => return organisation::describe(facts, bytes),
        _ => {}
    }
    Some(())
}

/// A chassis or port id: a byte that says what kind, then the id. None for kinds without a name.
fn identifier(bytes: &[u8], kinds: &[(u8, IdKind)]) -> Result<Option<String>, ()> {
    let (subtype, id) = bytes.split_first().ok_or(())?;
    let Some((_, kind)) = kinds.iter().find(|(known, _)| known == subtype) else { return Ok(None) };
    match kind {
        IdKind::Text => text(id).map(Some).ok_or(()),
        IdKind::Mac => mac(id).map(Some).ok_or(()),
        IdKind::Network => Ok(network_address(id)),
    }
}

/// An address behind its IANA family number.
fn network_address(bytes: &[u8]) -> Option<String> {
    let (family, address) = bytes.split_first()?;
    match family {
        1 => Some(Ipv4Addr::from(*address.first_chunk::<4>()?).to_string()),
        2 => Some(Ipv6Addr::from(*address.first_chunk::<16>()?).to_string()),
        6 => mac(address),
        _ => None,
    }
}

fn mac(bytes: &[u8]) -> Option<String> {
    let [a, b, c, d, e, f] = *bytes.first_chunk::<6>()?;
    Some(format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
}

fn capabilities(bits: [u8; 2]) -> Vec<Value> {
    let bits = u16::from_be_bytes(bits);
    let named = CAPABILITIES.iter().enumerate();
    named.filter(|(bit, _)| bits >> (bit + 1) & 1 == 1).map(|(_, name)| (*name).into()).collect()
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn split(tlv: &Value) -> Option<(u64, &str)> {
    match tlv.as_array()?.as_slice() {
        [kind, value] => Some((kind.as_u64()?, value.as_str()?)),
        _ => None,
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || text.len() > 2 * MAX_VALUE_BYTES {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(tlvs: &Value, expect: &Expect) {
        let facts = Value::from(describe(tlvs.as_array().unwrap()));
        expect.assert_eq(&serde_json::to_string_pretty(&facts).unwrap());
    }

    #[test]
    fn basic_management() {
        check(
            &json!([
                [0, ""],
                [1, "04885a92ec5459"],
                [2, "0545746865726e6574312f3138"],
                [3, "0078"],
                [4, "75706c696e6b"],
                [5, "737730312d646973742d31622d623132"],
                [6, "437573746f6d"],
                [7, "00140004"],
                [8, "0501c0a80101020000000100"],
                [8, "110220010db8000000000000000000000001020000000100"],
                [8, "0509deadbeef"],
                [1, "0711"],
                [99, "00"],
            ]),
            &expect![[r#"
                {
                  "switch_capabilities_enabled": [
                    "Bridge"
                  ],
                  "switch_capabilities_support": [
                    "Bridge",
                    "Router"
                  ],
                  "switch_chassis_id": "88:5a:92:ec:54:59",
                  "switch_mgmt_addresses": [
                    "192.168.1.1",
                    "2001:db8::1"
                  ],
                  "switch_port_description": "uplink",
                  "switch_port_id": "Ethernet1/18",
                  "switch_system_description": "Custom",
                  "switch_system_name": "sw01-dist-1b-b12"
                }"#]],
        );
    }

    #[test]
    fn organisations() {
        check(
            &json!([
                [127, "0080c2010065"],
                [127, "0080c202060067"],
                [127, "0080c20300650476313031"],
                [127, "0080c203006604763130"],
                [127, "0080c2040488cc0001"],
                [127, "0080c2060068"],
                [127, "0080c2070300000007"],
                [127, "00120f01036c11001e"],
                [127, "00120f042400"],
                [127, "00120f01036c11ffff"],
                [127, "0012bb0100"],
                [127, "0080"],
            ]),
            &expect![[r#"
                {
                  "switch_port_autonegotiation_enabled": true,
                  "switch_port_autonegotiation_support": true,
                  "switch_port_link_aggregation_enabled": true,
                  "switch_port_link_aggregation_id": 7,
                  "switch_port_link_aggregation_support": true,
                  "switch_port_management_vlan_id": 104,
                  "switch_port_mau_type": "1000BASE-T full duplex",
                  "switch_port_mtu": 9216,
                  "switch_port_physical_capabilities": [
                    "1000BASE-T fdx",
                    "100BASE-TX fdx",
                    "100BASE-TX hdx",
                    "10BASE-T fdx",
                    "10BASE-T hdx",
                    "Asym and Sym PAUSE fdx"
                  ],
                  "switch_port_protocol_vlan_enabled": true,
                  "switch_port_protocol_vlan_ids": [
                    103
                  ],
                  "switch_port_protocol_vlan_support": true,
                  "switch_port_untagged_vlan_id": 101,
                  "switch_port_vlans": [
                    {
                      "id": 101,
                      "name": "v101"
                    }
                  ],
                  "switch_protocol_identities": [
                    "88cc0001"
                  ]
                }"#]],
        );
    }

    #[test]
    fn links() {
        let bench = json!([[1, "04aabbccddeeff"], [2, "0545746865726e6574312f31"], [5, "746f72"]]);
        assert_eq!(
            link(bench.as_array().unwrap()),
            Ok(Link {
                port_id: Some("Ethernet1/1".to_owned()),
                switch_id: Some("aa:bb:cc:dd:ee:ff".to_owned()),
                switch_info: Some("tor".to_owned()),
            })
        );
        for (tlvs, expected) in [
            (json!([[1, "0731"], [2, "0930"]]), Ok(Link::default())),
            (json!([[1, "04aabb"]]), Err(LldpError::Malformed(1))),
            (json!([[2, ""]]), Err(LldpError::Malformed(2))),
            (json!([[5, "ff"]]), Err(LldpError::Malformed(5))),
            (json!([[1, "xyz"]]), Err(LldpError::NotATlv)),
            (json!([7]), Err(LldpError::NotATlv)),
        ] {
            assert_eq!(link(tlvs.as_array().unwrap()), expected, "{tlvs}");
        }
    }
}
