// SPDX-License-Identifier: Apache-2.0
//! Parses LLDP data of ramdisks: a list of `[type, hexadecimal value]`.
//!
//! The data come from a switch and are not trusted. Lengths are checked, values longer than the
//! standard permits are dropped, and malformed TLVs are ignored.

mod neighbours;
mod organisation;

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value};

pub use neighbours::neighbours;

/// The length field of IEEE 802.1AB has nine bits.
const MAX_VALUE_BYTES: usize = 511;
/// More TLVs than any switch sends; the rest is ignored.
const MAX_TLVS: usize = 256;

/// The switch port that a port is connected to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LldpLink {
    /// The id of the switch port.
    pub port_id: Option<String>,
    /// The MAC address of the switch.
    pub switch_id: Option<String>,
    /// The name of the switch.
    pub switch_info: Option<String>,
}

/// A TLV required for the link is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LldpError {
    /// Not a type and a hexadecimal value.
    #[error("a TLV is not a type and a hexadecimal value")]
    NotATlv,
    /// Too short, or not UTF-8.
    #[error("the TLV of type {0} has a malformed value")]
    Malformed(u64),
}

/// The format of chassis and port ids with a given subtype.
#[derive(Clone, Copy)]
enum LldpIdFormat {
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
const CHASSIS_ID_FORMATS: &[(u8, LldpIdFormat)] = &[
    (1, LldpIdFormat::Text),
    (2, LldpIdFormat::Text),
    (3, LldpIdFormat::Text),
    (CHASSIS_MAC, LldpIdFormat::Mac),
    (5, LldpIdFormat::Network),
    (6, LldpIdFormat::Text),
    (7, LldpIdFormat::Text),
];
const PORT_ID_FORMATS: &[(u8, LldpIdFormat)] = &[
    (1, LldpIdFormat::Text),
    (2, LldpIdFormat::Text),
    (3, LldpIdFormat::Mac),
    (4, LldpIdFormat::Network),
    (5, LldpIdFormat::Text),
    (7, LldpIdFormat::Text),
];

/// System capabilities from bit 1; bit 0, "other", has no name.
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

/// Properties of a switch port, by Ironic's names.
#[derive(Default)]
struct LldpFacts(Map<String, Value>);

/// Parses the TLVs that identify the link. The last of repeated TLVs is used.
///
/// # Errors
/// If a TLV of the link is malformed: then the whole link is untrusted.
pub fn parse_link(tlvs: &[Value]) -> Result<LldpLink, LldpError> {
    let mut link = LldpLink::default();
    for tlv in tlvs.iter().take(MAX_TLVS) {
        let (kind, hex) = split_tlv(tlv).ok_or(LldpError::NotATlv)?;
        if !matches!(kind, tlv::CHASSIS_ID | tlv::PORT_ID | tlv::SYSTEM_NAME) {
            continue;
        }
        let bytes = decode_hex(hex).ok_or(LldpError::NotATlv)?;
        let malformed = |()| LldpError::Malformed(kind);
        match kind {
            tlv::CHASSIS_ID if bytes.first() == Some(&CHASSIS_MAC) => {
                link.switch_id =
                    identifier(&bytes, CHASSIS_ID_FORMATS).map_err(malformed)?.or(link.switch_id);
            }
            tlv::PORT_ID => {
                link.port_id =
                    identifier(&bytes, PORT_ID_FORMATS).map_err(malformed)?.or(link.port_id);
            }
            tlv::SYSTEM_NAME => link.switch_info = Some(text(&bytes).ok_or(()).map_err(malformed)?),
            // Only a MAC address can be a switch id.
            _ => {}
        }
    }
    Ok(link)
}

/// Parses all known TLVs. The first of repeated TLVs is used; lists are appended to.
#[must_use]
pub fn parse_tlvs(tlvs: &[Value]) -> Map<String, Value> {
    let mut facts = LldpFacts::default();
    for tlv in tlvs.iter().take(MAX_TLVS) {
        // Malformed TLVs are ignored.
        if let Some((kind, bytes)) =
            split_tlv(tlv).and_then(|(kind, hex)| Some((kind, decode_hex(hex)?)))
        {
            let _malformed: Option<()> = parse_basic_tlv(&mut facts, kind, &bytes);
        }
    }
    facts.0
}

impl LldpFacts {
    /// Sets a property, unless it is already set.
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

/// Parses a TLV of the basic management set.
fn parse_basic_tlv(facts: &mut LldpFacts, kind: u64, bytes: &[u8]) -> Option<()> {
    match kind {
        tlv::CHASSIS_ID => {
            facts.set("switch_chassis_id", identifier(bytes, CHASSIS_ID_FORMATS).ok()??)
        }
        tlv::PORT_ID => facts.set("switch_port_id", identifier(bytes, PORT_ID_FORMATS).ok()??),
        tlv::PORT_DESCRIPTION => facts.set("switch_port_description", text(bytes)?),
        tlv::SYSTEM_NAME => facts.set("switch_system_name", text(bytes)?),
        tlv::SYSTEM_DESCRIPTION => facts.set("switch_system_description", text(bytes)?),
        tlv::SYSTEM_CAPABILITIES => {
            let [a, b, c, d] = *bytes else { return None };
            facts.set("switch_capabilities_support", capabilities([a, b]));
            facts.set("switch_capabilities_enabled", capabilities([c, d]));
        }
        // The first byte is the length of the fields up to the interface number.
        tlv::MANAGEMENT_ADDRESS => {
            facts.append("switch_mgmt_addresses", network_address(bytes.get(1..)?)?)
        }
        tlv::ORGANISATION => return organisation::parse_organisation_tlv(facts, bytes),
        _ => {}
    }
    Some(())
}

/// Parses a chassis or port id: a subtype byte and the id. Returns `Ok(None)` for unknown subtypes.
fn identifier(bytes: &[u8], formats: &[(u8, LldpIdFormat)]) -> Result<Option<String>, ()> {
    let (subtype, id) = bytes.split_first().ok_or(())?;
    let Some((_, format)) = formats.iter().find(|(known, _)| known == subtype) else {
        return Ok(None);
    };
    match format {
        LldpIdFormat::Text => text(id).map(Some).ok_or(()),
        LldpIdFormat::Mac => mac(id).map(Some).ok_or(()),
        LldpIdFormat::Network => Ok(network_address(id)),
    }
}

/// Parses an IANA address family number and an address.
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

/// Splits a TLV into its type and its hexadecimal value.
fn split_tlv(tlv: &Value) -> Option<(u64, &str)> {
    match tlv.as_array()?.as_slice() {
        [kind, value] => Some((kind.as_u64()?, value.as_str()?)),
        _ => None,
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() > 2 * MAX_VALUE_BYTES {
        return None;
    }
    hex::decode(text).ok()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn check(tlvs: &Value, expect: &Expect) {
        let facts = Value::from(parse_tlvs(tlvs.as_array().unwrap()));
        expect.assert_eq(&serde_json::to_string_pretty(&facts).unwrap());
    }

    #[test]
    fn parses_basic_management_tlvs() {
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
    fn parses_organisation_tlvs() {
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
    fn parses_links_and_rejects_malformed_tlvs() {
        let bench = json!([[1, "04aabbccddeeff"], [2, "0545746865726e6574312f31"], [5, "746f72"]]);
        assert_eq!(
            parse_link(bench.as_array().unwrap()),
            Ok(LldpLink {
                port_id: Some("Ethernet1/1".to_owned()),
                switch_id: Some("aa:bb:cc:dd:ee:ff".to_owned()),
                switch_info: Some("tor".to_owned()),
            })
        );
        for (tlvs, expected) in [
            (json!([[1, "0731"], [2, "0930"]]), Ok(LldpLink::default())),
            (json!([[1, "04aabb"]]), Err(LldpError::Malformed(1))),
            (json!([[2, ""]]), Err(LldpError::Malformed(2))),
            (json!([[5, "ff"]]), Err(LldpError::Malformed(5))),
            (json!([[1, "xyz"]]), Err(LldpError::NotATlv)),
            (json!([7]), Err(LldpError::NotATlv)),
        ] {
            assert_eq!(parse_link(tlvs.as_array().unwrap()), expected, "{tlvs}");
        }
    }
}
