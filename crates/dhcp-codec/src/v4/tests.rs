// SPDX-License-Identifier: Apache-2.0
//! Golden messages and properties of the DHCPv4 codec.

use std::net::Ipv4Addr;

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::HardwareAddress;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];

fn discover() -> Dhcp4Packet {
    Dhcp4Packet::request(Dhcp4MessageType::Discover, 7, HardwareAddress::ethernet(MAC))
}

#[test]
fn encodes_a_client_request() {
    let mut packet = discover();
    packet.broadcast = true;
    packet.seconds = 3;
    packet.options.set_addresses(option_code::REQUESTED_ADDRESS, &[Ipv4Addr::new(192, 0, 2, 7)]);
    let bytes = packet.encode(MIN_MAX_MESSAGE_BYTES);
    assert_eq!(bytes.len(), 300);
    let non_zero: Vec<String> = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte != 0)
        .map(|(offset, byte)| format!("{offset}={byte}"))
        .collect();
    expect![[
        "0=1 1=1 2=6 7=7 9=3 10=128 28=82 29=84 31=170 32=187 33=1 236=99 237=130 238=83 239=99 \
         240=53 241=1 242=1 243=50 244=4 245=192 247=2 248=7 249=255"
    ]]
    .assert_eq(&non_zero.join(" "));
    assert_eq!(Dhcp4Packet::decode(&bytes), Ok(packet));
}

#[test]
fn decodes_options_in_overloaded_fields() {
    let mut bytes = discover().encode(MIN_MAX_MESSAGE_BYTES);
    bytes.truncate(240);
    bytes.extend([53, 1, 1, 52, 1, 3, 255]);
    bytes[108..116].copy_from_slice(&[12, 2, b'a', b'b', 255, 0, 0, 0]);
    bytes[44..49].copy_from_slice(&[12, 1, b'c', 255, 0]);
    let decoded = Dhcp4Packet::decode(&bytes).unwrap();
    assert_eq!(decoded.options.get(option_code::HOST_NAME), Some(&b"abc"[..]));
    assert!(decoded.file.is_empty());
}

#[test]
fn fragments_long_options_and_leaves_out_what_does_not_fit() {
    let url = format!("http://192.0.2.1/{}", "a".repeat(300));
    let mut packet = discover();
    packet.options.set(option_code::BOOT_FILE_NAME, url.as_bytes());
    let decoded = Dhcp4Packet::decode(&packet.encode(1472)).unwrap();
    assert_eq!(decoded.options.get(option_code::BOOT_FILE_NAME), Some(url.as_bytes()));
    // The URL does not fit into 548 bytes; the options after it do.
    packet.options.set(option_code::ROUTER, [1; 4]);
    let decoded = Dhcp4Packet::decode(&packet.encode(548)).unwrap();
    assert_eq!(decoded.options.get(option_code::BOOT_FILE_NAME), None);
    assert_eq!(decoded.options.get(option_code::ROUTER), Some(&[1; 4][..]));
}

#[test]
fn rejects_invalid_headers() {
    let good = discover().encode(MIN_MAX_MESSAGE_BYTES);
    assert_eq!(Dhcp4Packet::decode(&good[..239]), Err(Dhcp4DecodeError::TooShort(239)));
    for (offset, byte, expected) in [
        (0, 3, Dhcp4DecodeError::Operation(3)),
        (2, 17, Dhcp4DecodeError::HardwareLength(17)),
        (236, 0, Dhcp4DecodeError::Cookie),
    ] {
        let mut bytes = good.clone();
        bytes[offset] = byte;
        assert_eq!(Dhcp4Packet::decode(&bytes), Err(expected));
    }
}

#[test]
fn replies_for_clients_may_have_any_hardware_type_and_length() {
    let hardware = HardwareAddress::ethernet(MAC);
    let reply = Dhcp4Packet::reply_to(&discover(), Dhcp4MessageType::Offer);
    let mut bytes = reply.encode(MIN_MAX_MESSAGE_BYTES);
    for (hardware_type, length) in [(1, 6), (1, 16), (6, 6), (0, 0), (32, 20)] {
        bytes[1..3].copy_from_slice(&[hardware_type, length]);
        let decoded = Dhcp4Packet::decode_reply(&bytes, 7, hardware);
        assert_eq!(decoded.as_ref(), Some(&reply), "type {hardware_type}, length {length}");
    }
    // A server rejects a length that exceeds the field.
    assert_eq!(Dhcp4Packet::decode(&bytes), Err(Dhcp4DecodeError::HardwareLength(20)));
    assert_eq!(Dhcp4Packet::decode_reply(&bytes, 8, hardware), None);
    let other = HardwareAddress::ethernet([0; 6]);
    assert_eq!(Dhcp4Packet::decode_reply(&bytes, 7, other), None);
    let request = discover().encode(MIN_MAX_MESSAGE_BYTES);
    assert_eq!(Dhcp4Packet::decode_reply(&request, 7, hardware), None);
    assert_eq!(Dhcp4Packet::decode_reply(&bytes[..239], 7, hardware), None);
}

#[test]
fn reply_size_is_bounded() {
    for (requested, expected) in
        [(None, 548), (Some(0), 548), (Some(1028), 1000), (Some(9000), 1472)]
    {
        let mut packet = discover();
        if let Some(requested) = requested {
            packet.options.set(option_code::MAX_MESSAGE_SIZE, u16::to_be_bytes(requested));
        }
        assert_eq!(packet.max_reply_bytes(), expected);
    }
}

#[test]
fn decodes_classless_routes_up_to_the_first_malformed_one() {
    let bytes = [24, 192, 168, 7, 0, 0, 0, 0, 0, 10, 0, 2, 2, 33, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let routes = classless_routes(&bytes);
    let route = |destination: [u8; 4], prefix_length, gateway: Option<[u8; 4]>| ClasslessRoute {
        destination: destination.into(),
        prefix_length,
        gateway: gateway.map(Ipv4Addr::from),
    };
    let expected = [route([192, 168, 7, 0], 24, None), route([0; 4], 0, Some([10, 0, 2, 2]))];
    assert_eq!(routes, expected);
    assert_eq!(classless_routes(&bytes[..10]), expected[..1]);
}

proptest! {
    #[test]
    fn no_bytes_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let _ = Dhcp4Packet::decode(&bytes);
        let _ = classless_routes(&bytes);
        // With a valid header the options are decoded.
        let mut whole = discover().encode(MIN_MAX_MESSAGE_BYTES);
        whole.truncate(240);
        whole.extend(&bytes);
        let decoded = Dhcp4Packet::decode(&whole).unwrap();
        let again = Dhcp4Packet::decode(&decoded.encode(65_000)).unwrap();
        prop_assert_eq!(
            again.options.get(option_code::CLIENT_ID),
            decoded.options.get(option_code::CLIENT_ID)
        );
        let relay = decoded.options.get(option_code::RELAY_AGENT_INFORMATION).map_or(0, <[u8]>::len);
        let limit = decoded.max_reply_bytes();
        prop_assert!(decoded.encode(limit).len() <= limit + relay + 2 * relay / 255 + 2);
    }
}
