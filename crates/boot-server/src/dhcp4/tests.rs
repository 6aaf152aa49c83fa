// SPDX-License-Identifier: Apache-2.0
//! The DHCPv4 server without sockets: exchanges in words, and properties over arbitrary packets.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use expect_test::{Expect, expect};
use node_model::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{
    BootAnswer, BootRequest, HardwareAddress, MemoryLeaseBook, Mode, Netboot, Plan, Plans,
};

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DISK: u8 = 1;
const NETBOOT: u8 = 2;
const RESERVED: u8 = 3;
const VIRTUAL_MEDIA: u8 = 4;
const STRANGER: u8 = 9;
/// An unknown card with an address of its own.
const HOST: u8 = 8;
const IGNORED: u8 = 66;

/// Cards are numbered; the number says what the plan is.
struct Fleet;

impl Plans for Fleet {
    fn plan(&self, request: &BootRequest<'_>) -> Plan {
        let netboot = BootAnswer::Netboot(Netboot {
            script: "http://192.0.2.1/boot.ipxe".into(),
            http: Some("http://192.0.2.1/agent.efi".into()),
            first_stage: None,
            parameters: Vec::new(),
        });
        let number = request.hardware.bytes().last().copied().unwrap_or(0);
        match number {
            DISK => Plan { known: true, ..Plan::default() },
            NETBOOT => Plan { known: true, is_booting: true, boot: netboot, host_name: None },
            RESERVED => {
                let host_name = Some("node-3".into());
                Plan { known: true, is_booting: true, boot: netboot, host_name }
            }
            VIRTUAL_MEDIA => {
                let boot = BootAnswer::NothingForThisFirmware;
                Plan { known: true, is_booting: true, boot, host_name: None }
            }
            _ => Plan { boot: netboot, ..Plan::default() },
        }
    }
}

struct Bench {
    server: Server,
    leases: Leases,
    book: MemoryLeaseBook,
    now: Timestamp,
}

impl Bench {
    fn new(mode: Mode) -> Self {
        let mut subnet = Subnet::new(Ipv4Addr::new(192, 0, 2, 0), 24, mode);
        let host = |number, last| StaticHost {
            hardware: card(number),
            address: Ipv4Addr::new(192, 0, 2, last),
        };
        subnet.hosts = vec![host(RESERVED, 50), host(HOST, 51)];
        subnet.ranges = vec![(Ipv4Addr::new(192, 0, 2, 100), Ipv4Addr::new(192, 0, 2, 103))];
        subnet.gateway = Some(Ipv4Addr::new(192, 0, 2, 254));
        subnet.dns = vec![SERVER];
        subnet.lease_time = Duration::from_secs(600);
        let mut relayed = Subnet::new(Ipv4Addr::new(198, 51, 100, 0), 24, mode);
        relayed.ranges = vec![(Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(198, 51, 100, 7))];
        let interface = Interface { name: "eth1".into(), address: SERVER };
        let settings = Settings {
            interfaces: vec![interface],
            subnets: vec![subnet, relayed],
            ignored: [card(IGNORED)].into(),
            ..Settings::default()
        };
        let book = MemoryLeaseBook::default();
        let leases = Leases::load(Box::new(book.clone())).unwrap();
        Self { server: Server::new(settings), leases, book, now: Timestamp::from_secs(1_000_000) }
    }

    fn restart(&mut self) {
        self.leases = Leases::load(Box::new(self.book.clone())).unwrap();
    }

    fn send(&mut self, packet: &Packet) -> Answer {
        self.send_to(packet, Port::Dhcp)
    }

    fn send_to(&mut self, packet: &Packet, port: Port) -> Answer {
        // Everything goes over the wire form, so that the codec is in every test.
        let packet = Packet::decode(&packet.encode(1472)).unwrap();
        let from = SocketAddrV4::new(packet.client_address, 68);
        let received = Received { interface: "eth1", port, from, now: self.now };
        let answer = self.server.answer(&packet, &received, &mut self.leases, &Fleet);
        self.leases.commit().unwrap();
        answer
    }

    fn check(&mut self, packet: &Packet, expected: &Expect) {
        let answer = self.send(packet);
        expected.assert_eq(&told(&answer));
    }
}

fn card(number: u8) -> HardwareAddress {
    HardwareAddress::ethernet([0x52, 0x54, 0, 0, 0, number])
}

fn packet(number: u8, kind: MessageType) -> Packet {
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [kind.number()]);
    Packet {
        is_request: true,
        hops: 0,
        transaction: 7,
        seconds: 0,
        broadcast: false,
        client_address: Ipv4Addr::UNSPECIFIED,
        your_address: Ipv4Addr::UNSPECIFIED,
        next_server: Ipv4Addr::UNSPECIFIED,
        relay: Ipv4Addr::UNSPECIFIED,
        hardware: card(number),
        file: Vec::new(),
        options,
    }
}

fn firmware(mut packet: Packet, architecture: u16, class: &str) -> Packet {
    packet.options.set(code::ARCHITECTURE, architecture.to_be_bytes());
    packet.options.set(code::VENDOR_CLASS, format!("{class}:Arch:{architecture:05}"));
    packet.options.set(code::PARAMETER_LIST, [1, 3, 6, 66, 67, 150]);
    packet.options.set(code::MACHINE_UUID, [[0; 1].as_slice(), &[7; 16]].concat());
    packet
}

fn request(number: u8, address: Ipv4Addr) -> Packet {
    let mut packet = packet(number, MessageType::Request);
    packet.options.set_addresses(code::REQUESTED_ADDRESS, &[address]);
    packet.options.set_addresses(code::SERVER_ID, &[SERVER]);
    packet
}

/// The answer in words.
fn told(answer: &Answer) -> String {
    let mut text = format!("{:?}", answer.verdict);
    let Some(reply) = &answer.reply else { return text };
    text += &format!("\nto {:?}", reply.to);
    let packet = &reply.packet;
    if let Some(probe) = reply.probe {
        text += &format!("\nafter a probe of {probe}");
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
fn a_bios_gets_an_address_and_its_first_stage() {
    let mut bench = Bench::new(Mode::Reserve);
    let discover = firmware(packet(RESERVED, MessageType::Discover), 0, "PXEClient");
    bench.check(
        &discover,
        &expect![[r#"
            Offered(192.0.2.50)
            to NewAddress { address: 192.0.2.50, hardware: HardwareAddress { kind: 1, length: 6, bytes: [82, 84, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] } }
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
fn the_boot_file_follows_the_program_that_asks() {
    let mut bench = Bench::new(Mode::Reserve);
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
        for mark in [code::USER_CLASS, code::IPXE] {
            let mut asked = firmware(packet(NETBOOT, MessageType::Discover), architecture, class);
            if is_ipxe {
                asked.options.set(mark, "iPXE");
            }
            let answer = bench.send(&asked);
            let reply = answer.reply.unwrap().packet;
            assert_eq!(answer.boot_file.as_deref(), expected, "{architecture} {class}");
            let sent = String::from_utf8(reply.file.clone()).unwrap();
            assert_eq!(sent, expected.unwrap_or_default());
            let says_http = reply.options.get(code::VENDOR_CLASS) == Some(b"HTTPClient");
            assert_eq!(says_http, class == "HTTPClient");
        }
    }
}

#[test]
fn a_url_too_long_for_the_header_goes_into_the_option() {
    let long = format!("http://192.0.2.1/{}", "a".repeat(300));
    let mut reply = packet(1, MessageType::Ack);
    reply.options.set(code::BOOT_FILE_NAME, long.as_bytes());
    let read = Packet::decode(&reply.encode(1472)).unwrap();
    assert_eq!(read.options.get(code::BOOT_FILE_NAME), Some(long.as_bytes()));
    // In 548 bytes there is no room for it; the message stays whole without it.
    reply.options.set(code::ROUTER, [1; 4]);
    let read = Packet::decode(&reply.encode(548)).unwrap();
    assert_eq!(read.options.get(code::ROUTER), Some(&[1; 4][..]));
}

#[test]
fn modes_decide_who_is_answered() {
    use Verdict as V;
    let offered = |last: u8| Some(V::Offered(Ipv4Addr::new(192, 0, 2, last)));
    let table = [
        (Mode::Off, NETBOOT, Some(V::Off)),
        (Mode::Proxy, NETBOOT, Some(V::ProxyAnswered)),
        (Mode::Proxy, DISK, Some(V::BootsFromDisk)),
        (Mode::Proxy, STRANGER, Some(V::Unknown)),
        (Mode::Proxy, HOST, Some(V::Unknown)),
        (Mode::Proxy, VIRTUAL_MEDIA, Some(V::NoBootFile)),
        (Mode::Proxy, IGNORED, Some(V::Ignored)),
        (Mode::Reserve, STRANGER, Some(V::Unknown)),
        (Mode::Reserve, RESERVED, offered(50)),
        (Mode::Reserve, HOST, offered(51)),
        (Mode::Reserve, VIRTUAL_MEDIA, None),
        (Mode::Reserve, NETBOOT, None),
        (Mode::Reserve, DISK, None),
        (Mode::Reserve, IGNORED, Some(V::Ignored)),
        (Mode::Discover, STRANGER, None),
        (Mode::Discover, HOST, offered(51)),
        (Mode::Discover, NETBOOT, None),
        (Mode::Discover, VIRTUAL_MEDIA, None),
        (Mode::Discover, DISK, Some(V::BootsFromDisk)),
    ];
    for (mode, number, expected) in table {
        let mut bench = Bench::new(mode);
        let asked = firmware(packet(number, MessageType::Discover), 7, "PXEClient");
        let answer = bench.send(&asked);
        match expected {
            Some(expected) => assert_eq!(answer.verdict, expected, "{mode:?} {number}"),
            None => assert!(matches!(answer.verdict, V::Offered(_)), "{mode:?} {number}"),
        }
        let has_nothing = number == VIRTUAL_MEDIA;
        let from_disk = mode == Mode::Reserve && matches!(number, DISK | HOST);
        let boots = answer.reply.is_some() && !from_disk && !has_nothing;
        assert_eq!(answer.boot_file.is_some(), boots, "{mode:?} {number}");
        let told = answer.reply.is_some() && has_nothing;
        assert_eq!(answer.nothing_to_load, told, "{mode:?} {number}");
    }
}

#[test]
fn a_ramdisk_that_came_by_virtual_media_gets_its_address() {
    let mut bench = Bench::new(Mode::Discover);
    let offer = bench.send(&packet(VIRTUAL_MEDIA, MessageType::Discover));
    let address = offer.reply.unwrap().packet.your_address;
    let leased = bench.send(&request(VIRTUAL_MEDIA, address));
    // It is not firmware, and looks for nothing to load.
    assert_eq!((leased.verdict, leased.nothing_to_load), (Verdict::Leased(address), false));
}

#[test]
fn a_relayed_network_is_served_in_its_own_mode() {
    use Verdict as V;
    // The interface's own mode, the relayed network's, the card, and what the relay gets.
    let far = V::Offered(Ipv4Addr::new(198, 51, 100, 7));
    for (near, distant, number, expected) in [
        (Mode::Discover, Mode::Off, STRANGER, V::Off),
        (Mode::Discover, Mode::Off, NETBOOT, V::Off),
        (Mode::Discover, Mode::Reserve, STRANGER, V::Unknown),
        (Mode::Discover, Mode::Reserve, NETBOOT, far),
        (Mode::Reserve, Mode::Discover, STRANGER, far),
        (Mode::Discover, Mode::Proxy, NETBOOT, V::ProxyAnswered),
        (Mode::Proxy, Mode::Reserve, DISK, far),
    ] {
        let mut bench = Bench::new(near);
        let mut settings = bench.server.settings().clone();
        settings.subnets[1].mode = distant;
        assert_eq!(settings.has_distant_proxy(), distant == Mode::Proxy);
        bench.server = Server::new(settings);
        let mut asked = firmware(packet(number, MessageType::Discover), 7, "PXEClient");
        asked.relay = Ipv4Addr::new(198, 51, 100, 1);
        assert_eq!(bench.send(&asked).verdict, expected, "{near:?} {distant:?} {number}");
    }
}

#[test]
fn firmware_that_cannot_load_the_plan_is_told_of_in_every_mode() {
    for (mode, answered) in [(Mode::Proxy, false), (Mode::Reserve, true), (Mode::Discover, true)] {
        let mut bench = Bench::new(mode);
        // 32-bit UEFI, for which there is no first stage.
        let answer = bench.send(&firmware(packet(NETBOOT, MessageType::Discover), 6, "PXEClient"));
        let says_so = answer.nothing_to_load || answer.verdict == Verdict::NoBootFile;
        assert_eq!((answer.reply.is_some(), says_so), (answered, true), "{mode:?}");
    }
}

#[test]
fn who_left_long_ago_is_forgotten() {
    let mut bench = Bench::new(Mode::Discover);
    let _ = bench.send(&request(STRANGER, Ipv4Addr::new(192, 0, 2, 100)));
    for (days, remembered) in [(29, true), (2, false)] {
        bench.now = bench.now.plus(Duration::from_secs(days * 24 * 3600));
        bench.restart();
        let _ = bench.send(&request(20, Ipv4Addr::new(192, 0, 2, 101)));
        bench.restart();
        let left = bench.leases.get(Ipv4Addr::new(192, 0, 2, 100));
        assert_eq!(left.is_some(), remembered, "{left:?}");
    }
}

#[test]
fn packets_of_other_interfaces_are_not_answered() {
    let mut bench = Bench::new(Mode::Discover);
    let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    let received = Received { interface: "eth0", port: Port::Dhcp, from, now: bench.now };
    let asked = packet(STRANGER, MessageType::Discover);
    let answer = bench.server.answer(&asked, &received, &mut bench.leases, &Fleet);
    assert_eq!(answer.reply, None);
}

#[test]
fn a_proxy_gives_boot_information_and_no_address() {
    let mut bench = Bench::new(Mode::Proxy);
    let asked = firmware(packet(NETBOOT, MessageType::Discover), 7, "PXEClient");
    bench.check(
        &asked,
        &expect![[r#"
            ProxyAnswered
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
    let mut again = firmware(packet(NETBOOT, MessageType::Request), 7, "PXEClient");
    again.client_address = Ipv4Addr::new(192, 0, 2, 77);
    let answer = bench.send_to(&again, Port::Pxe);
    let reply = answer.reply.unwrap();
    let client = SocketAddrV4::new(again.client_address, 68);
    assert_eq!((answer.verdict, reply.to), (Verdict::ProxyAnswered, To::Address(client)));
    assert_eq!(reply.packet.message_type(), Some(MessageType::Ack));
    assert_eq!(reply.packet.your_address, Ipv4Addr::UNSPECIFIED);
    // A system's own client is none of a proxy's business.
    let system = bench.send(&packet(NETBOOT, MessageType::Discover));
    assert_eq!((system.verdict, system.reply), (Verdict::NotBooting, None));
}

#[test]
fn a_lease_is_asked_for_given_renewed_and_given_back() {
    let mut bench = Bench::new(Mode::Discover);
    let offer = bench.send(&packet(STRANGER, MessageType::Discover)).reply.unwrap();
    let address = offer.packet.your_address;
    assert_eq!(offer.probe, Some(address), "a fresh address is probed");
    let leased = bench.send(&request(STRANGER, address));
    assert_eq!(leased.verdict, Verdict::Leased(address));
    bench.restart();
    let mut renewal = packet(STRANGER, MessageType::Request);
    renewal.client_address = address;
    let renewed = bench.send(&renewal);
    assert_eq!(renewed.verdict, Verdict::Leased(address));
    let client = SocketAddrV4::new(address, 68);
    assert_eq!(renewed.reply.unwrap().to, To::Address(client));
    let mut release = packet(STRANGER, MessageType::Release);
    release.client_address = address;
    assert_eq!(bench.send(&release).verdict, Verdict::Released(address));
    // It is remembered, and needs no probe.
    let again = bench.send(&packet(STRANGER, MessageType::Discover)).reply.unwrap();
    assert_eq!((again.packet.your_address, again.probe), (address, None));
}

#[test]
fn firmware_ipxe_and_ramdisk_of_one_card_share_one_address() {
    let mut bench = Bench::new(Mode::Discover);
    let mut addresses = Vec::new();
    for id in [&b"\0firmware"[..], b"\x01iPXE", b"\xfframdisk"] {
        let mut asked = packet(STRANGER, MessageType::Discover);
        asked.options.set(code::CLIENT_ID, id);
        addresses.push(bench.send(&asked).reply.unwrap().packet.your_address);
    }
    assert!(addresses.windows(2).all(|pair| pair[0] == pair[1]), "{addresses:?}");
}

#[test]
fn a_declined_or_occupied_address_is_left_alone() {
    let mut bench = Bench::new(Mode::Discover);
    let asked = packet(STRANGER, MessageType::Discover);
    let address = bench.send(&asked).reply.unwrap().packet.your_address;
    let _ = bench.send(&request(STRANGER, address));
    let mut decline = packet(STRANGER, MessageType::Decline);
    decline.options.set_addresses(code::REQUESTED_ADDRESS, &[address]);
    // Only the owner can.
    decline.hardware = card(20);
    assert_eq!(bench.send(&decline).verdict, Verdict::Meaningless);
    decline.hardware = card(STRANGER);
    assert_eq!(bench.send(&decline).verdict, Verdict::Declined(address));
    let second = bench.send(&asked).reply.unwrap().packet.your_address;
    assert_ne!(second, address);
    bench.leases.conflict(second, bench.now);
    let third = bench.send(&asked).reply.unwrap().packet.your_address;
    assert!(third != address && third != second);
    bench.restart();
    let refused = bench.send(&request(STRANGER, address));
    assert_eq!(refused.verdict, Verdict::Refused(address));
    bench.now = bench.now.plus(Duration::from_secs(3601));
    assert_eq!(bench.send(&request(STRANGER, address)).verdict, Verdict::Leased(address));
}

#[test]
fn a_full_range_says_so_until_an_address_is_free() {
    let mut bench = Bench::new(Mode::Discover);
    for number in 30..34 {
        let address =
            bench.send(&packet(number, MessageType::Discover)).reply.unwrap().packet.your_address;
        assert_eq!(bench.send(&request(number, address)).verdict, Verdict::Leased(address));
    }
    for number in 40..42 {
        let answer = bench.send(&packet(number, MessageType::Discover));
        assert_eq!(answer.verdict, Verdict::NoFreeAddress);
    }
    bench.now = bench.now.plus(Duration::from_secs(601));
    let answer = bench.send(&packet(40, MessageType::Discover));
    assert!(matches!(answer.verdict, Verdict::Offered(_)));
}

#[test]
fn a_client_that_asks_for_what_it_may_not_have_is_refused() {
    let mut bench = Bench::new(Mode::Discover);
    for forbidden in [[192, 0, 2, 1], [192, 0, 2, 50], [192, 0, 2, 200], [10, 0, 0, 1]] {
        let address = Ipv4Addr::from(forbidden);
        let answer = bench.send(&request(STRANGER, address));
        assert_eq!(answer.verdict, Verdict::Refused(address));
        let reply = answer.reply.unwrap();
        assert_eq!(reply.to, To::Broadcast);
        assert_eq!(reply.packet.message_type(), Some(MessageType::Nak));
    }
    let mut other = request(STRANGER, Ipv4Addr::new(192, 0, 2, 100));
    other.options.set_addresses(code::SERVER_ID, &[Ipv4Addr::new(192, 0, 2, 9)]);
    assert_eq!(bench.send(&other).verdict, Verdict::ChoseOther);
}

#[test]
fn a_relay_gets_its_own_option_back_and_its_network_served() {
    let mut bench = Bench::new(Mode::Discover);
    let mut asked = packet(STRANGER, MessageType::Discover);
    asked.relay = Ipv4Addr::new(198, 51, 100, 1);
    asked.options.set(code::RELAY_AGENT, [1, 4, b'p', b'o', b'r', b't']);
    let reply = bench.send(&asked).reply.unwrap();
    assert_eq!(reply.to, To::Address(SocketAddrV4::new(asked.relay, 67)));
    assert_eq!(reply.packet.your_address, Ipv4Addr::new(198, 51, 100, 7));
    assert_eq!(reply.packet.relay, asked.relay);
    let bytes = reply.packet.encode(548);
    let echoed = [code::RELAY_AGENT, 6, 1, 4, b'p', b'o', b'r', b't', 255];
    let end = bytes.windows(echoed.len()).position(|window| window == echoed);
    assert!(end.is_some(), "option 82 is the last one");
    // Link selection inside option 82 wins over the relay's own address.
    asked.options.set(code::RELAY_AGENT, [5, 4, 192, 0, 2, 0]);
    let reply = bench.send(&asked).reply.unwrap();
    assert_eq!(reply.packet.your_address.octets()[..3], [192, 0, 2]);
    asked.relay = Ipv4Addr::new(203, 0, 113, 1);
    asked.options.set(code::RELAY_AGENT, []);
    assert_eq!(bench.send(&asked).verdict, Verdict::NoSubnet);
}

#[test]
fn a_ramdisk_keeps_its_address_after_the_plan_became_the_disk() {
    let mut bench = Bench::new(Mode::Discover);
    let address = Ipv4Addr::new(192, 0, 2, 101);
    let client = [&[1][..], card(DISK).bytes()].concat();
    bench.leases.lease(&client, address, bench.now.plus(Duration::from_secs(60)), bench.now);
    let mut renewal = packet(DISK, MessageType::Request);
    renewal.client_address = address;
    assert_eq!(bench.send(&renewal).verdict, Verdict::Leased(address));
}

#[test]
fn the_deployed_system_of_a_known_machine_is_left_to_the_site_where_strangers_are_served() {
    let mut bench = Bench::new(Mode::Discover);
    let mut rebinding = packet(DISK, MessageType::Request);
    rebinding.client_address = Ipv4Addr::new(192, 0, 2, 77);
    let mut inform = packet(DISK, MessageType::Inform);
    inform.client_address = Ipv4Addr::new(192, 0, 2, 77);
    // Asking anew, after a reboot for the address it had, in the course of its lease, and for the
    // rest: silence, and above all no refusal of an address that another server gave.
    for asked in [
        packet(DISK, MessageType::Discover),
        request(DISK, Ipv4Addr::new(192, 0, 2, 77)),
        request(DISK, Ipv4Addr::new(192, 0, 2, 101)),
        rebinding,
        inform,
    ] {
        let answer = bench.send(&asked);
        assert_eq!((answer.verdict, answer.reply), (Verdict::BootsFromDisk, None));
    }
}

#[test]
fn an_address_that_was_only_offered_is_probed_again() {
    let mut bench = Bench::new(Mode::Discover);
    let asked = packet(STRANGER, MessageType::Discover);
    let first = bench.send(&asked).reply.unwrap();
    let second = bench.send(&asked).reply.unwrap();
    assert_eq!(first.probe, Some(first.packet.your_address));
    assert_eq!(second.probe, first.probe);
    let _ = bench.send(&request(STRANGER, first.packet.your_address));
    assert_eq!(bench.send(&asked).reply.unwrap().probe, None);
}

#[test]
fn options_in_overloaded_fields_are_read() {
    let mut bytes = packet(1, MessageType::Discover).encode(548);
    bytes.truncate(240);
    bytes.extend([53, 1, 1, 52, 1, 3, 255]);
    bytes[108..116].copy_from_slice(&[12, 2, b'a', b'b', 255, 0, 0, 0]);
    bytes[44..49].copy_from_slice(&[12, 1, b'c', 255, 0]);
    let read = Packet::decode(&bytes).unwrap();
    assert_eq!(read.options.get(code::HOST_NAME), Some(&b"abc"[..]));
    assert!(read.file.is_empty());
}

/// What a client does next in the property below.
#[derive(Debug, Clone)]
enum Step {
    Packet { client: u8, kind: u8, address: u8, with_server: bool, has_address: bool },
    Wait(u16),
    Conflict(u8),
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    let packet = (0_u8..7, 1_u8..9, 98_u8..106, any::<bool>(), any::<bool>());
    prop_oneof![
        12 => packet.prop_map(|(client, kind, address, with_server, has_address)| {
            Step::Packet { client, kind, address, with_server, has_address }
        }),
        2 => (0_u16..700).prop_map(Step::Wait),
        1 => (98_u8..106).prop_map(Step::Conflict),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_address_ever_has_two_owners(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut bench = Bench::new(Mode::Discover);
        let mut owners: HashMap<Ipv4Addr, (u8, Timestamp)> = HashMap::new();
        for step in steps {
            let (client, kind, address, with_server, has_address) = match step {
                Step::Wait(seconds) => {
                    bench.now = bench.now.plus(Duration::from_secs(seconds.into()));
                    continue;
                }
                Step::Conflict(last) => {
                    bench.leases.conflict(Ipv4Addr::new(192, 0, 2, last), bench.now);
                    bench.leases.commit().unwrap();
                    continue;
                }
                Step::Restart => {
                    bench.restart();
                    continue;
                }
                Step::Packet { client, kind, address, with_server, has_address } => {
                    (client, kind, Ipv4Addr::new(192, 0, 2, address), with_server, has_address)
                }
            };
            let mut asked = packet(10 + client, MessageType::from_number(kind).unwrap());
            if has_address {
                asked.client_address = address;
            } else {
                asked.options.set_addresses(code::REQUESTED_ADDRESS, &[address]);
            }
            if with_server {
                asked.options.set_addresses(code::SERVER_ID, &[SERVER]);
            }
            let answer = bench.send(&asked);
            let now = bench.now;
            let given_to_another = |given: Ipv4Addr| {
                owners.get(&given).is_some_and(|(owner, until)| *owner != client && *until > now)
            };
            if let Verdict::Leased(given) | Verdict::Offered(given) = answer.verdict {
                prop_assert!(!given_to_another(given), "{} to {}", given, client);
                prop_assert!((100..=103).contains(&given.octets()[3]));
            }
            if let Verdict::Leased(given) = answer.verdict {
                owners.insert(given, (client, now.plus(Duration::from_secs(600))));
            }
            if let Verdict::Released(given) | Verdict::Declined(given) = answer.verdict {
                prop_assert_eq!(owners.remove(&given).map(|(owner, _)| owner), Some(client));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let _ = Packet::decode(&bytes);
        // With a right header the options are reached.
        let mut whole = packet(1, MessageType::Discover).encode(548);
        whole.truncate(240);
        whole.extend(&bytes);
        let read = Packet::decode(&whole).unwrap();
        let again = Packet::decode(&read.encode(65_000)).unwrap();
        prop_assert_eq!(&again.options.get(code::CLIENT_ID), &read.options.get(code::CLIENT_ID));
        for mode in [Mode::Proxy, Mode::Reserve, Mode::Discover] {
            let mut bench = Bench::new(mode);
            let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
            let received = Received { interface: "eth1", port: Port::Dhcp, from, now: bench.now };
            let answer = bench.server.answer(&read, &received, &mut bench.leases, &Fleet);
            if let Some(reply) = answer.reply {
                let largest = read.largest_reply();
                let relay = read.options.get(code::RELAY_AGENT).map_or(0, <[u8]>::len);
                prop_assert!(reply.packet.encode(largest).len() <= largest + relay + 2 * relay / 255 + 2);
            }
        }
    }
}
