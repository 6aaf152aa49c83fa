// SPDX-License-Identifier: Apache-2.0
//! The organisationally specific TLVs of IEEE 802.1 (VLANs) and IEEE 802.3 (the physical layer).

use serde_json::{Value, json};

use super::{LldpFacts, text};

const IEEE_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const IEEE_802_3: [u8; 3] = [0x00, 0x12, 0x0f];

/// Media that a port can negotiate, from bit 14 down (RFC 4836); bit 15, "other", has no name.
const MEDIA: [&str; 15] = [
    "10BASE-T hdx",
    "10BASE-T fdx",
    "10BASE-T4",
    "100BASE-TX hdx",
    "100BASE-TX fdx",
    "100BASE-T2 hdx",
    "100BASE-T2 fdx",
    "PAUSE fdx",
    "Asym PAUSE fdx",
    "Sym PAUSE fdx",
    "Asym and Sym PAUSE fdx",
    "1000BASE-X hdx",
    "1000BASE-X fdx",
    "1000BASE-T hdx",
    "1000BASE-T fdx",
];

/// Medium attachment units by number (IANA MAU MIB).
const ATTACHMENT_UNITS: [&str; 54] = [
    "Unknown",
    "AUI",
    "10BASE-5",
    "FOIRL",
    "10BASE-2",
    "10BASE-T duplex mode unknown",
    "10BASE-FP",
    "10BASE-FB",
    "10BASE-FL duplex mode unknown",
    "10BROAD36",
    "10BASE-T half duplex",
    "10BASE-T full duplex",
    "10BASE-FL half duplex",
    "10BASE-FL full duplex",
    "100 BASE-T4",
    "100BASE-TX half duplex",
    "100BASE-TX full duplex",
    "100BASE-FX half duplex",
    "100BASE-FX full duplex",
    "100BASE-T2 half duplex",
    "100BASE-T2 full duplex",
    "1000BASE-X half duplex",
    "1000BASE-X full duplex",
    "1000BASE-LX half duplex",
    "1000BASE-LX full duplex",
    "1000BASE-SX half duplex",
    "1000BASE-SX full duplex",
    "1000BASE-CX half duplex",
    "1000BASE-CX full duplex",
    "1000BASE-T half duplex",
    "1000BASE-T full duplex",
    "10GBASE-X",
    "10GBASE-LX4",
    "10GBASE-R",
    "10GBASE-ER",
    "10GBASE-LR",
    "10GBASE-SR",
    "10GBASE-W",
    "10GBASE-EW",
    "10GBASE-LW",
    "10GBASE-SW",
    "10GBASE-CX4",
    "2BASE-TL",
    "10PASS-TS",
    "100BASE-BX10D",
    "100BASE-BX10U",
    "100BASE-LX10",
    "1000BASE-BX10D",
    "1000BASE-BX10U",
    "1000BASE-LX10",
    "1000BASE-PX10D",
    "1000BASE-PX10U",
    "1000BASE-PX20D",
    "1000BASE-PX20U",
];

/// Parses an organisationally specific TLV. Returns `None` if it is malformed. TLVs of unknown
/// organisations are ignored.
pub(super) fn parse_organisation_tlv(facts: &mut LldpFacts, bytes: &[u8]) -> Option<()> {
    let (organisation, rest) = bytes.split_first_chunk::<3>()?;
    let (subtype, data) = rest.split_first()?;
    match *organisation {
        IEEE_802_1 => ieee_802_1(facts, *subtype, data),
        IEEE_802_3 => ieee_802_3(facts, *subtype, data),
        _ => Some(()),
    }
}

fn ieee_802_1(facts: &mut LldpFacts, subtype: u8, data: &[u8]) -> Option<()> {
    match subtype {
        1 => facts.set("switch_port_untagged_vlan_id", number(data)?),
        2 => {
            let [flags, high, low] = *data else { return None };
            facts.set("switch_port_protocol_vlan_enabled", flags & 0b100 != 0);
            facts.set("switch_port_protocol_vlan_support", flags & 0b010 != 0);
            facts.append("switch_port_protocol_vlan_ids", u16::from_be_bytes([high, low]));
        }
        3 => {
            let (length, name) = data.get(2..)?.split_first()?;
            let name = text(name.get(..usize::from(*length))?)?;
            let name = name.trim_end_matches('\0');
            facts.append("switch_port_vlans", json!({"id": number(data)?, "name": name}));
        }
        4 => {
            let (length, protocol) = data.split_first()?;
            let protocol = protocol.get(..usize::from(*length))?;
            facts.append("switch_protocol_identities", hex::encode(protocol));
        }
        6 => facts.set("switch_port_management_vlan_id", number(data)?),
        7 => return link_aggregation(facts, data),
        _ => {}
    }
    Some(())
}

fn ieee_802_3(facts: &mut LldpFacts, subtype: u8, data: &[u8]) -> Option<()> {
    match subtype {
        1 => {
            let [negotiation, media_high, media_low, unit_high, unit_low] = *data else {
                return None;
            };
            let unit = usize::from(u16::from_be_bytes([unit_high, unit_low]));
            let unit = *ATTACHMENT_UNITS.get(unit)?;
            facts.set("switch_port_autonegotiation_enabled", negotiation & 0b10 != 0);
            facts.set("switch_port_autonegotiation_support", negotiation & 0b01 != 0);
            facts.set("switch_port_physical_capabilities", media([media_high, media_low]));
            facts.set("switch_port_mau_type", unit);
        }
        3 => return link_aggregation(facts, data),
        4 => facts.set("switch_port_mtu", number(data)?),
        _ => {}
    }
    Some(())
}

fn link_aggregation(facts: &mut LldpFacts, data: &[u8]) -> Option<()> {
    let [status, id @ ..] = *<&[u8; 5]>::try_from(data).ok()?;
    facts.set("switch_port_link_aggregation_enabled", status & 0b10 != 0);
    facts.set("switch_port_link_aggregation_support", status & 0b01 != 0);
    facts.set("switch_port_link_aggregation_id", u32::from_be_bytes(id));
    Some(())
}

fn media(bits: [u8; 2]) -> Vec<Value> {
    let bits = u16::from_be_bytes(bits);
    let mut names: Vec<&str> = MEDIA
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits >> (14 - bit) & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    names.sort_unstable();
    names.into_iter().map(Value::from).collect()
}

fn number(data: &[u8]) -> Option<u16> {
    data.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes))
}
