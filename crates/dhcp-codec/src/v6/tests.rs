// SPDX-License-Identifier: Apache-2.0
//! Golden messages and properties of the DHCPv6 codec.

use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::*;
use crate::HardwareAddress;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];

fn address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

fn solicit() -> Dhcp6Message {
    let mut options = Dhcp6Options::default();
    options.add(option_code::CLIENT_ID, link_layer_duid(HardwareAddress::ethernet(MAC)));
    let mut association = IdentityAssociation { iaid: [0, 0, 0, 9], ..Default::default() };
    association.add_address(IaAddress {
        address: address(7),
        preferred_lifetime: 3600,
        valid_lifetime: 7200,
    });
    options.add(option_code::IA_NA, association.encode());
    Dhcp6Message { message_type: Dhcp6MessageType::Solicit, transaction_id: 0x01_0203, options }
}

#[test]
fn encodes_and_decodes_a_solicit() {
    let mut expected = vec![1, 1, 2, 3, 0, 1, 0, 10, 0, 3, 0, 1, 0x52, 0x54, 0, 0xaa, 0xbb, 1];
    expected.extend([0, 3, 0, 40, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 24]);
    expected.extend(address(7).octets());
    expected.extend([0, 0, 14, 16, 0, 0, 28, 32]);
    assert_eq!(solicit().encode(), expected);
    let decoded = Dhcp6Message::decode(&expected).unwrap();
    assert_eq!(decoded, solicit());
    let association = IdentityAssociation::all_in(&decoded.options).next().unwrap();
    let given: Vec<_> = association.addresses().map(|given| given.address).collect();
    assert_eq!(given, [address(7)]);
}

#[test]
fn unwraps_relays_and_wraps_the_reply() {
    let hop = |count: u8, inner: &[u8]| {
        let mut out = vec![12, count];
        out.extend(address(count.into()).octets());
        out.extend(address(99).octets());
        let mut options = Dhcp6Options::default();
        options.add(option_code::INTERFACE_ID, [count, 7]);
        options.add(option_code::RELAY_MESSAGE, inner);
        options.encode(&mut out);
        out
    };
    let bytes = hop(1, &hop(0, &solicit().encode()));
    let relayed = RelayedDhcp6Message::decode(&bytes).unwrap();
    assert_eq!(relayed.message, solicit());
    let links: Vec<_> = relayed.hops.iter().map(|hop| (hop.count, hop.link)).collect();
    assert_eq!(links, [(1, address(1)), (0, address(0))]);
    let reply = relayed.encode_reply(&solicit());
    assert_eq!(reply[..2], [13, 1]);
    assert_eq!(reply[34..40], [0, 18, 0, 2, 1, 7]);
    assert_eq!(reply[44..46], [13, 0]);
    assert!(reply.ends_with(&solicit().encode()));

    let mut nested = solicit().encode();
    for count in 0..9 {
        nested = hop(count, &nested);
    }
    assert_eq!(RelayedDhcp6Message::decode(&nested), Err(Dhcp6DecodeError::TooManyRelays));
}

#[test]
fn rejects_malformed_messages() {
    let good = solicit().encode();
    for end in (0..4).chain([5, 17, 19]) {
        assert_eq!(Dhcp6Message::decode(&good[..end]), Err(Dhcp6DecodeError::Truncated), "{end}");
    }
    let relay_reply = [&[13][..], &good[1..]].concat();
    assert_eq!(Dhcp6Message::decode(&relay_reply), Err(Dhcp6DecodeError::MessageType(13)));
    let empty_relay = [&[12, 0][..], &[0; 32]].concat();
    assert_eq!(RelayedDhcp6Message::decode(&empty_relay), Err(Dhcp6DecodeError::EmptyRelay));
}

#[test]
fn replies_for_clients_may_end_in_a_truncated_option() {
    let mut association = IdentityAssociation { iaid: [0, 0, 0, 9], ..Default::default() };
    association.add_address(IaAddress {
        address: address(7),
        preferred_lifetime: 3600,
        valid_lifetime: 7200,
    });
    let duid = link_layer_duid(HardwareAddress::ethernet(MAC));
    let mut options = Dhcp6Options::default();
    options.add(option_code::CLIENT_ID, duid.clone());
    options.add(option_code::IA_NA, [association.encode(), vec![0, 13, 0]].concat());
    let message_type = Dhcp6MessageType::Reply;
    let reply = Dhcp6Message { message_type, transaction_id: 0x01_0203, options };
    for truncated in [&[][..], &[0], &[0, 23, 0, 16, 0x20, 0x01]] {
        let bytes = [&reply.encode(), truncated].concat();
        let decoded = Dhcp6Message::decode_reply(&bytes, 0x01_0203, &duid);
        assert_eq!(decoded.as_ref(), Some(&reply), "{truncated:?}");
        // A server rejects the same bytes.
        assert_eq!(Dhcp6Message::decode(&bytes).is_ok(), truncated.is_empty(), "{truncated:?}");
        assert_eq!(Dhcp6Message::decode_reply(&bytes, 0x01_0204, &duid), None);
        assert_eq!(Dhcp6Message::decode_reply(&bytes, 0x01_0203, &duid[1..]), None);
    }
    assert_eq!(IdentityAssociation::first_in_reply(&reply.options), Some(association));
    assert_eq!(IdentityAssociation::all_in(&reply.options).count(), 0);
    assert_eq!(Dhcp6Message::decode_reply(&solicit().encode(), 0x01_0203, &duid), None);
}

#[test]
fn finds_the_hardware_address_in_a_duid() {
    let hardware = HardwareAddress::ethernet(MAC);
    assert_eq!(hardware_address_of_duid(&link_layer_duid(hardware)), Some(hardware));
    let with_time = [&[0, 1, 0, 1, 9, 9, 9, 9][..], &MAC].concat();
    assert_eq!(hardware_address_of_duid(&with_time), Some(hardware));
    let uuid = [&[0, 4][..], &[7; 16]].concat();
    assert_eq!(hardware_address_of_duid(&uuid), None);
    assert_eq!(hardware_address_of_duid(&[0, 1, 0]), None);
}

proptest! {
    #[test]
    fn no_bytes_panic_the_decoder(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        message_type in 1_u8..14,
        cut in 0_usize..80,
        changed in 0_usize..80,
        byte in any::<u8>(),
    ) {
        let mut damaged = solicit().encode();
        if let Some(place) = damaged.get_mut(changed) {
            *place = byte;
        }
        damaged.truncate(cut);
        let duid = link_layer_duid(HardwareAddress::ethernet(MAC));
        for bytes in [damaged, [&[message_type, 0, 0, 1][..], &bytes].concat(), bytes] {
            if let Some(reply) = Dhcp6Message::decode_reply(&bytes, 1, &duid) {
                let _ = IdentityAssociation::first_in_reply(&reply.options);
            }
            if let Ok(relayed) = RelayedDhcp6Message::decode(&bytes) {
                let options = &relayed.message.options;
                let _ = IdentityAssociation::all_in(options).flat_map(|one| one.addresses().collect::<Vec<_>>()).count();
                let _ = options.get(option_code::CLIENT_ID).and_then(hardware_address_of_duid);
                let again = RelayedDhcp6Message::decode(&relayed.message.encode()).unwrap();
                prop_assert_eq!(again.message, relayed.message);
            }
        }
    }
}
