// SPDX-License-Identifier: Apache-2.0
//! Tests of the DHCPv4 server without sockets: single exchanges, and properties over arbitrary packets.

mod shared_leases;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use dhcp_codec::v4::{Dhcp4MessageType, Dhcp4Packet, MIN_MAX_MESSAGE_BYTES, option_code};
use expect_test::{Expect, expect};
use node_model::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{
    BootInstructions, BootRequest, BootSnapshot, DhcpMode, HardwareAddress, InMemoryDhcpLeaseStore,
    Netboot, NetbootTarget,
};

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DISK: u8 = 1;
const NETBOOT: u8 = 2;
const RESERVED: u8 = 3;
const VIRTUAL_MEDIA: u8 = 4;
const UNKNOWN: u8 = 9;
/// An unknown machine with a static reservation.
const UNKNOWN_RESERVED: u8 = 8;
const IGNORED: u8 = 66;

/// The last byte of the hardware address selects the instructions.
struct FakeFleet4;

impl BootSnapshot for FakeFleet4 {
    fn instructions(&self, request: &BootRequest<'_>) -> BootInstructions {
        let netboot = NetbootTarget::Netboot(Netboot {
            ipxe_script: "http://192.0.2.1/boot.ipxe".into(),
            http_file: Some("http://192.0.2.1/agent.efi".into()),
            tftp_file: None,
        });
        let number = request.hardware.bytes().last().copied().unwrap_or(0);
        match number {
            DISK => BootInstructions { is_known: true, ..BootInstructions::default() },
            NETBOOT => BootInstructions {
                is_known: true,
                is_booting: true,
                boot: netboot,
                host_name: None,
            },
            RESERVED => {
                let host_name = Some("node-3".into());
                BootInstructions { is_known: true, is_booting: true, boot: netboot, host_name }
            }
            VIRTUAL_MEDIA => {
                let boot = NetbootTarget::NotLoadable;
                BootInstructions { is_known: true, is_booting: true, boot, host_name: None }
            }
            _ => BootInstructions { boot: netboot, ..BootInstructions::default() },
        }
    }
}

struct TestDhcp4Server {
    core: Dhcp4Server,
    leases: DhcpLeases4,
    store: InMemoryDhcpLeaseStore,
    now: Timestamp,
}

impl TestDhcp4Server {
    fn with_unknown_share(percent: u8) -> Self {
        let mut server = Self::new(DhcpMode::Discover);
        let mut settings = server.core.settings().clone();
        settings.subnets[0].unknown_share = percent;
        server.core = Dhcp4Server::new(settings);
        server
    }

    fn new(mode: DhcpMode) -> Self {
        let mut subnet = Dhcp4Subnet::new(Ipv4Addr::new(192, 0, 2, 0), 24, mode);
        let host = |number, last| StaticReservation {
            hardware: hardware(number),
            address: Ipv4Addr::new(192, 0, 2, last),
        };
        subnet.reservations = vec![host(RESERVED, 50), host(UNKNOWN_RESERVED, 51)];
        subnet.ranges = vec![(Ipv4Addr::new(192, 0, 2, 100), Ipv4Addr::new(192, 0, 2, 103))];
        subnet.gateway = Some(Ipv4Addr::new(192, 0, 2, 254));
        subnet.dns = vec![SERVER];
        subnet.lease_time = Duration::from_secs(600);
        subnet.unknown_share = 100;
        let mut relayed = Dhcp4Subnet::new(Ipv4Addr::new(198, 51, 100, 0), 24, mode);
        relayed.ranges = vec![(Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(198, 51, 100, 7))];
        let interface = Dhcp4Interface { name: "eth1".into(), address: SERVER };
        let settings = Dhcp4Settings {
            interfaces: vec![interface],
            subnets: vec![subnet, relayed],
            ignored: [hardware(IGNORED)].into(),
            ..Dhcp4Settings::default()
        };
        let store = InMemoryDhcpLeaseStore::default();
        let leases = DhcpLeases4::load(Box::new(store.clone())).unwrap();
        Self {
            core: Dhcp4Server::new(settings),
            leases,
            store,
            now: Timestamp::from_secs(1_000_000),
        }
    }

    fn restart(&mut self) {
        self.leases = DhcpLeases4::load(Box::new(self.store.clone())).unwrap();
    }

    fn send(&mut self, packet: &Dhcp4Packet) -> Dhcp4Response {
        self.send_to(packet, Dhcp4Port::Dhcp)
    }

    fn send_to(&mut self, packet: &Dhcp4Packet, port: Dhcp4Port) -> Dhcp4Response {
        // Encode and decode, so that every test covers the codec.
        let packet = Dhcp4Packet::decode(&packet.encode(1472)).unwrap();
        let from = SocketAddrV4::new(packet.client_address, 68);
        let info = Dhcp4PacketInfo { interface: "eth1", port, from, now: self.now };
        let response = self.core.handle(&packet, &info, &mut self.leases, &FakeFleet4);
        self.leases.commit().unwrap();
        response
    }

    fn check(&mut self, packet: &Dhcp4Packet, expected: &Expect) {
        let response = self.send(packet);
        expected.assert_eq(&describe(&response));
    }
}

fn hardware(number: u8) -> HardwareAddress {
    HardwareAddress::ethernet([0x52, 0x54, 0, 0, 0, number])
}

fn packet(number: u8, message_type: Dhcp4MessageType) -> Dhcp4Packet {
    Dhcp4Packet::request(message_type, 7, hardware(number))
}

fn firmware(mut packet: Dhcp4Packet, architecture: u16, class: &str) -> Dhcp4Packet {
    packet.options.set(option_code::ARCHITECTURE, architecture.to_be_bytes());
    packet.options.set(option_code::VENDOR_CLASS, format!("{class}:Arch:{architecture:05}"));
    packet.options.set(option_code::PARAMETER_REQUEST_LIST, [1, 3, 6, 66, 67, 150]);
    packet.options.set(option_code::MACHINE_UUID, [[0; 1].as_slice(), &[7; 16]].concat());
    packet
}

fn request(number: u8, address: Ipv4Addr) -> Dhcp4Packet {
    let mut packet = packet(number, Dhcp4MessageType::Request);
    packet.options.set_addresses(option_code::REQUESTED_ADDRESS, &[address]);
    packet.options.set_addresses(option_code::SERVER_ID, &[SERVER]);
    packet
}

/// Formats a response for golden tests.
fn describe(response: &Dhcp4Response) -> String {
    let mut text = format!("{:?}", response.outcome);
    let Some(reply) = &response.reply else { return text };
    text += &format!("\nto {:?}", reply.to);
    let packet = &reply.packet;
    if let Some(probe) = reply.probe {
        text += &format!("\nprobe {probe}");
    }
    if !packet.file.is_empty() {
        let file = String::from_utf8_lossy(&packet.file);
        text += &format!("\nfile {file} at {}", packet.next_server);
    }
    let mut options: Vec<_> = packet.options.iter().collect();
    options.sort_unstable();
    for (code, value) in options {
        let is_text = matches!(code, 12 | 15 | 56 | 60 | 66 | 67);
        let value =
            if is_text { String::from_utf8_lossy(value).into() } else { format!("{value:?}") };
        text += &format!("\n{code}: {value}");
    }
    text
}

#[test]
fn a_bios_gets_an_address_and_its_boot_loader() {
    let mut server = TestDhcp4Server::new(DhcpMode::Reserve);
    let discover = firmware(packet(RESERVED, Dhcp4MessageType::Discover), 0, "PXEClient");
    server.check(
        &discover,
        &expect![[r#"
            Offered(192.0.2.50)
            to NewAddress { address: 192.0.2.50, hardware: HardwareAddress { hardware_type: 1, length: 6, bytes: [82, 84, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] } }
            file undionly.kpxe at 192.0.2.1
            1: [255, 255, 255, 0]
            3: [192, 0, 2, 254]
            6: [192, 0, 2, 1]
            12: node-3
            28: [192, 0, 2, 255]
            51: [0, 0, 2, 88]
            53: [2]
            54: [192, 0, 2, 1]
            58: [0, 0, 1, 44]
            59: [0, 0, 2, 13]
            66: 192.0.2.1
            67: undionly.kpxe
            97: [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
            150: [192, 0, 2, 1]"#]],
    );
}

#[test]
fn the_boot_file_depends_on_the_requesting_program() {
    let mut server = TestDhcp4Server::new(DhcpMode::Reserve);
    let table = [
        (0, "PXEClient", false, Some("undionly.kpxe")),
        (7, "PXEClient", false, Some("snponly.efi")),
        (9, "PXEClient", false, Some("snponly.efi")),
        (11, "PXEClient", false, Some("snponly-arm64.efi")),
        (6, "PXEClient", false, None),
        (7, "PXEClient", true, Some("http://192.0.2.1/boot.ipxe")),
        (0, "PXEClient", true, Some("http://192.0.2.1/boot.ipxe")),
        (16, "HTTPClient", false, Some("http://192.0.2.1/agent.efi")),
    ];
    for (architecture, class, is_ipxe, expected) in table {
        for mark in [option_code::USER_CLASS, option_code::IPXE] {
            let mut query =
                firmware(packet(NETBOOT, Dhcp4MessageType::Discover), architecture, class);
            if is_ipxe {
                query.options.set(mark, "iPXE");
            }
            let response = server.send(&query);
            let reply = response.reply.unwrap().packet;
            assert_eq!(response.boot_file.as_deref(), expected, "{architecture} {class}");
            let sent = String::from_utf8(reply.file.clone()).unwrap();
            assert_eq!(sent, expected.unwrap_or_default());
            let is_http = reply.options.get(option_code::VENDOR_CLASS) == Some(b"HTTPClient");
            assert_eq!(is_http, class == "HTTPClient");
        }
    }
}

#[test]
fn modes_decide_which_machines_get_a_reply() {
    use Dhcp4Outcome as V;
    let offered = |last: u8| Some(V::Offered(Ipv4Addr::new(192, 0, 2, last)));
    let table = [
        (DhcpMode::Off, NETBOOT, Some(V::Disabled)),
        (DhcpMode::Proxy, NETBOOT, Some(V::ProxyReplied)),
        (DhcpMode::Proxy, DISK, Some(V::BootsFromDisk)),
        (DhcpMode::Proxy, UNKNOWN, Some(V::UnknownMachine)),
        (DhcpMode::Proxy, UNKNOWN_RESERVED, Some(V::UnknownMachine)),
        (DhcpMode::Proxy, VIRTUAL_MEDIA, Some(V::NoBootFile)),
        (DhcpMode::Proxy, IGNORED, Some(V::Ignored)),
        (DhcpMode::Reserve, UNKNOWN, Some(V::UnknownMachine)),
        (DhcpMode::Reserve, RESERVED, offered(50)),
        (DhcpMode::Reserve, UNKNOWN_RESERVED, offered(51)),
        (DhcpMode::Reserve, VIRTUAL_MEDIA, None),
        (DhcpMode::Reserve, NETBOOT, None),
        (DhcpMode::Reserve, DISK, None),
        (DhcpMode::Reserve, IGNORED, Some(V::Ignored)),
        (DhcpMode::Discover, UNKNOWN, None),
        (DhcpMode::Discover, UNKNOWN_RESERVED, offered(51)),
        (DhcpMode::Discover, NETBOOT, None),
        (DhcpMode::Discover, VIRTUAL_MEDIA, None),
        (DhcpMode::Discover, DISK, Some(V::BootsFromDisk)),
        (DhcpMode::All, UNKNOWN, None),
        (DhcpMode::All, UNKNOWN_RESERVED, offered(51)),
        (DhcpMode::All, NETBOOT, None),
        (DhcpMode::All, DISK, None),
        (DhcpMode::All, IGNORED, Some(V::Ignored)),
    ];
    for (mode, number, expected) in table {
        let mut server = TestDhcp4Server::new(mode);
        let query = firmware(packet(number, Dhcp4MessageType::Discover), 7, "PXEClient");
        let response = server.send(&query);
        match expected {
            Some(expected) => assert_eq!(response.outcome, expected, "{mode:?} {number}"),
            None => assert!(matches!(response.outcome, V::Offered(_)), "{mode:?} {number}"),
        }
        let not_loadable = number == VIRTUAL_MEDIA;
        let from_disk = number == DISK || (mode == DhcpMode::Reserve && number == UNKNOWN_RESERVED);
        let boots = response.reply.is_some() && !from_disk && !not_loadable;
        assert_eq!(response.boot_file.is_some(), boots, "{mode:?} {number}");
        let is_reported = response.reply.is_some() && not_loadable;
        assert_eq!(response.no_loadable_boot_file, is_reported, "{mode:?} {number}");
    }
}

#[test]
fn a_ramdisk_from_virtual_media_gets_an_address() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let offer = server.send(&packet(VIRTUAL_MEDIA, Dhcp4MessageType::Discover));
    let address = offer.reply.unwrap().packet.your_address;
    let leased = server.send(&request(VIRTUAL_MEDIA, address));
    // It is not firmware, so it loads no boot file.
    assert_eq!(
        (leased.outcome, leased.no_loadable_boot_file),
        (Dhcp4Outcome::Leased(address), false)
    );
}

#[test]
fn a_relayed_subnet_is_served_in_its_own_mode() {
    use Dhcp4Outcome as V;
    // The mode of the interface, the mode of the relayed subnet, the client, and the outcome.
    let far = V::Offered(Ipv4Addr::new(198, 51, 100, 7));
    for (near, distant, number, expected) in [
        (DhcpMode::Discover, DhcpMode::Off, UNKNOWN, V::Disabled),
        (DhcpMode::Discover, DhcpMode::Off, NETBOOT, V::Disabled),
        (DhcpMode::Discover, DhcpMode::Reserve, UNKNOWN, V::UnknownMachine),
        (DhcpMode::Discover, DhcpMode::Reserve, NETBOOT, far),
        (DhcpMode::Reserve, DhcpMode::Discover, UNKNOWN, far),
        (DhcpMode::Discover, DhcpMode::Proxy, NETBOOT, V::ProxyReplied),
        (DhcpMode::Proxy, DhcpMode::Reserve, DISK, far),
    ] {
        let mut server = TestDhcp4Server::new(near);
        let mut settings = server.core.settings().clone();
        settings.subnets[1].mode = distant;
        assert_eq!(settings.has_relayed_proxy_subnet(), distant == DhcpMode::Proxy);
        server.core = Dhcp4Server::new(settings);
        let mut query = firmware(packet(number, Dhcp4MessageType::Discover), 7, "PXEClient");
        query.relay = Ipv4Addr::new(198, 51, 100, 1);
        assert_eq!(server.send(&query).outcome, expected, "{near:?} {distant:?} {number}");
    }
}

#[test]
fn reports_firmware_that_can_load_no_boot_file_in_every_mode() {
    for (mode, gets_reply) in
        [(DhcpMode::Proxy, false), (DhcpMode::Reserve, true), (DhcpMode::Discover, true)]
    {
        let mut server = TestDhcp4Server::new(mode);
        // There is no boot loader for 32-bit UEFI.
        let response =
            server.send(&firmware(packet(NETBOOT, Dhcp4MessageType::Discover), 6, "PXEClient"));
        let is_reported =
            response.no_loadable_boot_file || response.outcome == Dhcp4Outcome::NoBootFile;
        assert_eq!((response.reply.is_some(), is_reported), (gets_reply, true), "{mode:?}");
    }
}

#[test]
fn purges_leases_that_expired_long_ago() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let _ = server.send(&request(UNKNOWN, Ipv4Addr::new(192, 0, 2, 100)));
    for (days, is_kept) in [(29, true), (2, false)] {
        server.now = server.now.plus(Duration::from_secs(days * 24 * 3600));
        server.restart();
        let _ = server.send(&request(20, Ipv4Addr::new(192, 0, 2, 101)));
        server.restart();
        let lease = server.leases.get(Ipv4Addr::new(192, 0, 2, 100));
        assert_eq!(lease.is_some(), is_kept, "{lease:?}");
    }
}

#[test]
fn ignores_packets_from_other_interfaces() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    let info = Dhcp4PacketInfo { interface: "eth0", port: Dhcp4Port::Dhcp, from, now: server.now };
    let query = packet(UNKNOWN, Dhcp4MessageType::Discover);
    let response = server.core.handle(&query, &info, &mut server.leases, &FakeFleet4);
    assert_eq!(response.reply, None);
}

#[test]
fn a_proxy_sends_boot_information_and_no_address() {
    let mut server = TestDhcp4Server::new(DhcpMode::Proxy);
    let query = firmware(packet(NETBOOT, Dhcp4MessageType::Discover), 7, "PXEClient");
    server.check(
        &query,
        &expect![[r#"
            ProxyReplied
            to Broadcast
            file snponly.efi at 192.0.2.1
            43: [6, 1, 8, 255]
            53: [2]
            54: [192, 0, 2, 1]
            60: PXEClient
            66: 192.0.2.1
            67: snponly.efi
            97: [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
            150: [192, 0, 2, 1]"#]],
    );
    let mut again = firmware(packet(NETBOOT, Dhcp4MessageType::Request), 7, "PXEClient");
    again.client_address = Ipv4Addr::new(192, 0, 2, 77);
    let response = server.send_to(&again, Dhcp4Port::Pxe);
    let reply = response.reply.unwrap();
    let client = SocketAddrV4::new(again.client_address, 68);
    assert_eq!(
        (response.outcome, reply.to),
        (Dhcp4Outcome::ProxyReplied, Dhcp4Destination::Address(client))
    );
    assert_eq!(reply.packet.message_type(), Some(Dhcp4MessageType::Ack));
    assert_eq!(reply.packet.your_address, Ipv4Addr::UNSPECIFIED);
    // An operating system gets no reply from a proxy.
    let system = server.send(&packet(NETBOOT, Dhcp4MessageType::Discover));
    assert_eq!((system.outcome, system.reply), (Dhcp4Outcome::NotNetboot, None));
}

#[test]
fn a_lease_is_offered_leased_renewed_and_released() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let offer = server.send(&packet(UNKNOWN, Dhcp4MessageType::Discover)).reply.unwrap();
    let address = offer.packet.your_address;
    assert_eq!(offer.probe, Some(address), "a new address is probed");
    let leased = server.send(&request(UNKNOWN, address));
    assert_eq!(leased.outcome, Dhcp4Outcome::Leased(address));
    server.restart();
    let mut renewal = packet(UNKNOWN, Dhcp4MessageType::Request);
    renewal.client_address = address;
    let renewed = server.send(&renewal);
    assert_eq!(renewed.outcome, Dhcp4Outcome::Leased(address));
    let client = SocketAddrV4::new(address, 68);
    assert_eq!(renewed.reply.unwrap().to, Dhcp4Destination::Address(client));
    let mut release = packet(UNKNOWN, Dhcp4MessageType::Release);
    release.client_address = address;
    assert_eq!(server.send(&release).outcome, Dhcp4Outcome::Released(address));
    // The client gets the same address again, without a probe.
    let again = server.send(&packet(UNKNOWN, Dhcp4MessageType::Discover)).reply.unwrap();
    assert_eq!((again.packet.your_address, again.probe), (address, None));
}

#[test]
fn firmware_ipxe_and_ramdisk_of_one_nic_share_one_address() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let mut addresses = Vec::new();
    for id in [&b"\0firmware"[..], b"\x01iPXE", b"\xfframdisk"] {
        let mut query = packet(UNKNOWN, Dhcp4MessageType::Discover);
        query.options.set(option_code::CLIENT_ID, id);
        addresses.push(server.send(&query).reply.unwrap().packet.your_address);
    }
    assert!(addresses.windows(2).all(|pair| pair[0] == pair[1]), "{addresses:?}");
}

#[test]
fn a_declined_or_conflicting_address_is_not_assigned() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let query = packet(UNKNOWN, Dhcp4MessageType::Discover);
    let address = server.send(&query).reply.unwrap().packet.your_address;
    let _ = server.send(&request(UNKNOWN, address));
    let mut decline = packet(UNKNOWN, Dhcp4MessageType::Decline);
    decline.options.set_addresses(option_code::REQUESTED_ADDRESS, &[address]);
    // Only the lease holder can decline.
    decline.hardware = hardware(20);
    assert_eq!(server.send(&decline).outcome, Dhcp4Outcome::Invalid);
    decline.hardware = hardware(UNKNOWN);
    assert_eq!(server.send(&decline).outcome, Dhcp4Outcome::Declined(address));
    let second = server.send(&query).reply.unwrap().packet.your_address;
    assert_ne!(second, address);
    server.leases.report_conflict(second, server.now);
    let third = server.send(&query).reply.unwrap().packet.your_address;
    assert!(third != address && third != second);
    server.restart();
    let refused = server.send(&request(UNKNOWN, address));
    assert_eq!(refused.outcome, Dhcp4Outcome::Refused(address));
    server.now = server.now.plus(Duration::from_secs(3601));
    assert_eq!(server.send(&request(UNKNOWN, address)).outcome, Dhcp4Outcome::Leased(address));
}

#[test]
fn a_full_range_offers_nothing_until_an_address_expires() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    for number in 30..34 {
        let address = server
            .send(&packet(number, Dhcp4MessageType::Discover))
            .reply
            .unwrap()
            .packet
            .your_address;
        assert_eq!(server.send(&request(number, address)).outcome, Dhcp4Outcome::Leased(address));
    }
    for number in 40..42 {
        let response = server.send(&packet(number, Dhcp4MessageType::Discover));
        assert_eq!(response.outcome, Dhcp4Outcome::NoFreeAddress);
    }
    server.now = server.now.plus(Duration::from_secs(601));
    let response = server.send(&packet(40, Dhcp4MessageType::Discover));
    assert!(matches!(response.outcome, Dhcp4Outcome::Offered(_)));
}

/// Leases an address to a machine if it gets an offer.
fn lease_address(server: &mut TestDhcp4Server, number: u8) -> Dhcp4Outcome {
    let offered = server.send(&packet(number, Dhcp4MessageType::Discover));
    match offered.reply {
        Some(reply) => server.send(&request(number, reply.packet.your_address)).outcome,
        None => offered.outcome,
    }
}

/// Every host on the network can invent machines. They must not use the addresses that known machines need.
#[test]
fn unknown_machines_get_only_a_share_of_the_addresses() {
    let mut server = TestDhcp4Server::with_unknown_share(50);
    for number in 30..32 {
        assert!(matches!(lease_address(&mut server, number), Dhcp4Outcome::Leased(_)));
    }
    assert_eq!(lease_address(&mut server, 32), Dhcp4Outcome::UnknownShareUsed);
    // Nor without an offer.
    for last in 100..104 {
        let address = Ipv4Addr::new(192, 0, 2, last);
        let outcome = server.send(&request(33, address)).outcome;
        assert_eq!(outcome, Dhcp4Outcome::UnknownShareUsed);
    }
    assert!(matches!(lease_address(&mut server, NETBOOT), Dhcp4Outcome::Leased(_)));
    assert!(matches!(lease_address(&mut server, 30), Dhcp4Outcome::Leased(_)), "it renews");
    // Holders from before a restart count until they renew.
    server.restart();
    assert_eq!(lease_address(&mut server, 32), Dhcp4Outcome::UnknownShareUsed);
    server.now = server.now.plus(Duration::from_secs(601));
    assert!(matches!(lease_address(&mut server, 32), Dhcp4Outcome::Leased(_)));
}

#[test]
fn an_offer_to_an_unknown_machine_is_held_briefly() {
    let mut server = TestDhcp4Server::with_unknown_share(50);
    for number in 30..32 {
        let response = server.send(&packet(number, Dhcp4MessageType::Discover));
        assert!(matches!(response.outcome, Dhcp4Outcome::Offered(_)));
    }
    let query = packet(32, Dhcp4MessageType::Discover);
    assert_eq!(server.send(&query).outcome, Dhcp4Outcome::UnknownShareUsed);
    server.now = server.now.plus(Duration::from_secs(21));
    assert!(matches!(server.send(&query).outcome, Dhcp4Outcome::Offered(_)));
}

#[test]
fn a_request_for_an_unavailable_address_gets_a_nak() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    for forbidden in [[192, 0, 2, 1], [192, 0, 2, 50], [192, 0, 2, 200], [10, 0, 0, 1]] {
        let address = Ipv4Addr::from(forbidden);
        let response = server.send(&request(UNKNOWN, address));
        assert_eq!(response.outcome, Dhcp4Outcome::Refused(address));
        let reply = response.reply.unwrap();
        assert_eq!(reply.to, Dhcp4Destination::Broadcast);
        assert_eq!(reply.packet.message_type(), Some(Dhcp4MessageType::Nak));
    }
    let mut other = request(UNKNOWN, Ipv4Addr::new(192, 0, 2, 100));
    other.options.set_addresses(option_code::SERVER_ID, &[Ipv4Addr::new(192, 0, 2, 9)]);
    assert_eq!(server.send(&other).outcome, Dhcp4Outcome::OtherServerChosen);
}

#[test]
fn a_relay_gets_its_option_back_and_its_subnet_served() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let mut query = packet(UNKNOWN, Dhcp4MessageType::Discover);
    query.relay = Ipv4Addr::new(198, 51, 100, 1);
    query.options.set(option_code::RELAY_AGENT_INFORMATION, [1, 4, b'p', b'o', b'r', b't']);
    let reply = server.send(&query).reply.unwrap();
    assert_eq!(reply.to, Dhcp4Destination::Address(SocketAddrV4::new(query.relay, 67)));
    assert_eq!(reply.packet.your_address, Ipv4Addr::new(198, 51, 100, 7));
    assert_eq!(reply.packet.relay, query.relay);
    let bytes = reply.packet.encode(548);
    let echoed = [option_code::RELAY_AGENT_INFORMATION, 6, 1, 4, b'p', b'o', b'r', b't', 255];
    let end = bytes.windows(echoed.len()).position(|window| window == echoed);
    assert!(end.is_some(), "option 82 is the last one");
    // Link selection inside option 82 takes precedence over the relay's address.
    query.options.set(option_code::RELAY_AGENT_INFORMATION, [5, 4, 192, 0, 2, 0]);
    let reply = server.send(&query).reply.unwrap();
    assert_eq!(reply.packet.your_address.octets()[..3], [192, 0, 2]);
    query.relay = Ipv4Addr::new(203, 0, 113, 1);
    query.options.set(option_code::RELAY_AGENT_INFORMATION, []);
    assert_eq!(server.send(&query).outcome, Dhcp4Outcome::NoSubnet);
}

#[test]
fn a_ramdisk_renews_its_address_after_the_boot_plan_was_removed() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let address = Ipv4Addr::new(192, 0, 2, 101);
    let client = [&[1][..], hardware(DISK).bytes()].concat();
    let holder = leases::LeaseHolder { client: &client, unknown_on: None };
    server.leases.lease(holder, address, server.now.plus(Duration::from_secs(60)), server.now);
    let mut renewal = packet(DISK, Dhcp4MessageType::Request);
    renewal.client_address = address;
    assert_eq!(server.send(&renewal).outcome, Dhcp4Outcome::Leased(address));
}

#[test]
fn discover_mode_ignores_the_deployed_system_of_a_known_machine() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let mut rebinding = packet(DISK, Dhcp4MessageType::Request);
    rebinding.client_address = Ipv4Addr::new(192, 0, 2, 77);
    let mut inform = packet(DISK, Dhcp4MessageType::Inform);
    inform.client_address = Ipv4Addr::new(192, 0, 2, 77);
    // No reply to any message, and in particular no NAK for an address of another server.
    for query in [
        packet(DISK, Dhcp4MessageType::Discover),
        request(DISK, Ipv4Addr::new(192, 0, 2, 77)),
        request(DISK, Ipv4Addr::new(192, 0, 2, 101)),
        rebinding,
        inform,
    ] {
        let response = server.send(&query);
        assert_eq!((response.outcome, response.reply), (Dhcp4Outcome::BootsFromDisk, None));
    }
}

#[test]
fn probes_an_address_again_that_was_only_offered() {
    let mut server = TestDhcp4Server::new(DhcpMode::Discover);
    let query = packet(UNKNOWN, Dhcp4MessageType::Discover);
    let first = server.send(&query).reply.unwrap();
    let second = server.send(&query).reply.unwrap();
    assert_eq!(first.probe, Some(first.packet.your_address));
    assert_eq!(second.probe, first.probe);
    let _ = server.send(&request(UNKNOWN, first.packet.your_address));
    assert_eq!(server.send(&query).reply.unwrap().probe, None);
}

/// One step of the property test below.
#[derive(Debug, Clone)]
enum ClientStep {
    Packet { client: u8, kind: u8, address: u8, with_server: bool, has_address: bool },
    Wait(u16),
    Conflict(u8),
    Restart,
}

fn client_steps() -> impl Strategy<Value = ClientStep> {
    let packet = (0_u8..7, 1_u8..9, 98_u8..106, any::<bool>(), any::<bool>());
    prop_oneof![
        12 => packet.prop_map(|(client, kind, address, with_server, has_address)| {
            ClientStep::Packet { client, kind, address, with_server, has_address }
        }),
        2 => (0_u16..700).prop_map(ClientStep::Wait),
        1 => (98_u8..106).prop_map(ClientStep::Conflict),
        1 => Just(ClientStep::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_address_has_two_holders(steps in prop::collection::vec(client_steps(), 1..80)) {
        let mut server = TestDhcp4Server::new(DhcpMode::Discover);
        let mut holders: HashMap<Ipv4Addr, (u8, Timestamp)> = HashMap::new();
        for step in steps {
            let (client, kind, address, with_server, has_address) = match step {
                ClientStep::Wait(seconds) => {
                    server.now = server.now.plus(Duration::from_secs(seconds.into()));
                    continue;
                }
                ClientStep::Conflict(last) => {
                    server.leases.report_conflict(Ipv4Addr::new(192, 0, 2, last), server.now);
                    server.leases.commit().unwrap();
                    continue;
                }
                ClientStep::Restart => {
                    server.restart();
                    continue;
                }
                ClientStep::Packet { client, kind, address, with_server, has_address } => {
                    (client, kind, Ipv4Addr::new(192, 0, 2, address), with_server, has_address)
                }
            };
            let mut query = packet(10 + client, Dhcp4MessageType::from_number(kind).unwrap());
            if has_address {
                query.client_address = address;
            } else {
                query.options.set_addresses(option_code::REQUESTED_ADDRESS, &[address]);
            }
            if with_server {
                query.options.set_addresses(option_code::SERVER_ID, &[SERVER]);
            }
            let response = server.send(&query);
            let now = server.now;
            let is_held_by_another = |address: Ipv4Addr| {
                holders.get(&address).is_some_and(|(holder, expires_at)| *holder != client && *expires_at > now)
            };
            if let Dhcp4Outcome::Leased(address) | Dhcp4Outcome::Offered(address) = response.outcome {
                prop_assert!(!is_held_by_another(address), "{} to {}", address, client);
                prop_assert!((100..=103).contains(&address.octets()[3]));
            }
            if let Dhcp4Outcome::Leased(address) = response.outcome {
                holders.insert(address, (client, now.plus(Duration::from_secs(600))));
            }
            if let Dhcp4Outcome::Released(address) | Dhcp4Outcome::Declined(address) = response.outcome {
                prop_assert_eq!(holders.remove(&address).map(|(holder, _)| holder), Some(client));
            }
        }
    }

    #[test]
    fn no_packet_panics_the_server(options in prop::collection::vec(any::<u8>(), 0..700)) {
        let mut bytes = packet(1, Dhcp4MessageType::Discover).encode(MIN_MAX_MESSAGE_BYTES);
        bytes.truncate(240);
        bytes.extend(&options);
        let decoded = Dhcp4Packet::decode(&bytes).unwrap();
        for mode in [DhcpMode::Proxy, DhcpMode::Reserve, DhcpMode::Discover] {
            let mut server = TestDhcp4Server::new(mode);
            let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
            let info = Dhcp4PacketInfo { interface: "eth1", port: Dhcp4Port::Dhcp, from, now: server.now };
            let response = server.core.handle(&decoded, &info, &mut server.leases, &FakeFleet4);
            if let Some(reply) = response.reply {
                let largest = decoded.max_reply_bytes();
                let relay = decoded.options.get(option_code::RELAY_AGENT_INFORMATION).map_or(0, <[u8]>::len);
                prop_assert!(reply.packet.encode(largest).len() <= largest + relay + 2 * relay / 255 + 2);
            }
        }
    }
}
