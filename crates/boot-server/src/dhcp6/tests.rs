// SPDX-License-Identifier: Apache-2.0
//! Tests of the DHCPv6 server without sockets.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use dhcp_codec::v6::{
    Dhcp6Message, Dhcp6MessageType, Dhcp6Options, Dhcp6RelayHop, IaAddress, IdentityAssociation,
    RelayedDhcp6Message, option_code,
};
use node_model::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{
    BootInstructions, BootRequest, BootSnapshot, BootStage, DhcpLeaseStore as _, DhcpMode,
    FirstStageLoaders, HardwareAddress, InMemoryDhcpLeaseStore, Netboot, NetbootTarget,
};

const SERVER_DUID: &[u8] = &[0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const KNOWN: u8 = 2;
const DISK: u8 = 1;
const VIRTUAL_MEDIA: u8 = 4;

/// The last byte of the hardware address selects the instructions.
struct FakeFleet6;

impl BootSnapshot for FakeFleet6 {
    fn instructions(&self, request: &BootRequest<'_>) -> BootInstructions {
        let netboot = NetbootTarget::Netboot(Netboot {
            ipxe_script: "http://[2001:db8::1]/boot.ipxe".into(),
            http_file: Some("http://[2001:db8::1]/agent.efi".into()),
            tftp_file: None,
        });
        match request.hardware.bytes().last() {
            Some(&DISK) => BootInstructions { is_known: true, ..BootInstructions::default() },
            Some(&KNOWN) => BootInstructions {
                is_known: true,
                is_booting: true,
                boot: netboot,
                host_name: None,
            },
            Some(&VIRTUAL_MEDIA) => {
                let boot = NetbootTarget::NotLoadable;
                BootInstructions { is_known: true, is_booting: true, boot, host_name: None }
            }
            _ => BootInstructions { boot: netboot, ..BootInstructions::default() },
        }
    }
}

fn address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

struct TestDhcp6Server {
    core: Dhcp6Server,
    leases: DhcpLeases6,
    store: InMemoryDhcpLeaseStore,
    now: Timestamp,
}

impl TestDhcp6Server {
    fn new(mode: DhcpMode, range: Option<(u16, u16)>) -> Self {
        let mut subnet = Dhcp6Subnet::new(address(0), 64, mode);
        subnet.range = range.map(|(first, last)| (address(first), address(last)));
        subnet.dns = vec![address(1)];
        subnet.lease_time = Duration::from_secs(600);
        let settings = Dhcp6Settings {
            duid: SERVER_DUID.to_vec(),
            interfaces: vec![Dhcp6Interface { name: "eth1".into(), address: address(1) }],
            subnets: vec![subnet],
            ignored: [HardwareAddress::ethernet([2, 0, 0, 0, 0, 66])].into(),
            first_stage_loaders: FirstStageLoaders::default(),
        };
        let store = InMemoryDhcpLeaseStore::default();
        let leases = DhcpLeases6::load(Box::new(store.clone())).unwrap();
        Self {
            core: Dhcp6Server::new(settings),
            leases,
            store,
            now: Timestamp::from_secs(1_000_000),
        }
    }

    fn send(&mut self, message: Dhcp6Message) -> Dhcp6Response {
        self.send_relayed(RelayedDhcp6Message { hops: Vec::new(), message })
    }

    fn send_relayed(&mut self, relayed: RelayedDhcp6Message) -> Dhcp6Response {
        let from = SocketAddrV6::new("fe80::1234".parse().unwrap(), 546, 0, 3);
        let info = Dhcp6PacketInfo { interface: "eth1", from, now: self.now };
        let response = self.core.handle(&relayed, &info, &mut self.leases, &FakeFleet6);
        self.leases.commit().unwrap();
        response
    }
}

fn message(kind: Dhcp6MessageType, client: u8) -> Dhcp6Message {
    let mut options = Dhcp6Options::default();
    options.add(option_code::CLIENT_ID, [0, 3, 0, 1, 2, 0, 0, 0, 0, client]);
    let with_server = matches!(
        kind,
        Dhcp6MessageType::Request
            | Dhcp6MessageType::Renew
            | Dhcp6MessageType::Release
            | Dhcp6MessageType::Decline
    );
    if with_server {
        options.add(option_code::SERVER_ID, SERVER_DUID);
    }
    // Encode and decode, so that every test covers the codec.
    let bytes = Dhcp6Message { message_type: kind, transaction_id: 0x12_3456, options }.encode();
    RelayedDhcp6Message::decode(&bytes).unwrap().message
}

fn with_association(mut message: Dhcp6Message, requested: Option<Ipv6Addr>) -> Dhcp6Message {
    let mut association = IdentityAssociation { iaid: [0, 0, 0, 9], ..Default::default() };
    if let Some(address) = requested {
        association.add_address(IaAddress { address, preferred_lifetime: 0, valid_lifetime: 0 });
    }
    message.options.add(option_code::IA_NA, association.encode());
    message
}

fn firmware(mut message: Dhcp6Message, architecture: u16, class: &str) -> Dhcp6Message {
    message.options.add(option_code::ARCHITECTURE, architecture.to_be_bytes());
    let class = [&[0, 0, 1, 87, 0, class.len() as u8][..], class.as_bytes()].concat();
    message.options.add(option_code::VENDOR_CLASS, class);
    message
}

#[test]
fn an_address_is_advertised_leased_renewed_and_released() {
    let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0x1ff)));
    let advertised = server.send(with_association(message(Dhcp6MessageType::Solicit, 9), None));
    let Dhcp6Outcome::Advertised(given) = advertised.outcome else { panic!("{advertised:?}") };
    let reply = advertised.reply.unwrap();
    assert_eq!(reply.to, SocketAddrV6::new("fe80::1234".parse().unwrap(), 546, 0, 3));
    assert_eq!(reply.message.message_type, Dhcp6MessageType::Advertise);
    assert_eq!(reply.message.transaction_id, 0x12_3456);
    assert_eq!(reply.message.options.get(option_code::DNS_SERVERS), Some(&address(1).octets()[..]));
    let leased = server.send(with_association(message(Dhcp6MessageType::Request, 9), Some(given)));
    assert_eq!(leased.outcome, Dhcp6Outcome::Leased(given));
    server.leases = DhcpLeases6::load(Box::new(server.store.clone())).unwrap();
    for kind in [Dhcp6MessageType::Renew, Dhcp6MessageType::Rebind] {
        let renewed = server.send(with_association(message(kind, 9), Some(given)));
        assert_eq!(renewed.outcome, Dhcp6Outcome::Leased(given));
    }
    // Another client can neither lease nor renew it.
    let other = server.send(with_association(message(Dhcp6MessageType::Renew, 8), Some(given)));
    assert_eq!(other.outcome, Dhcp6Outcome::Refused);
    let released =
        server.send(with_association(message(Dhcp6MessageType::Release, 9), Some(given)));
    assert_eq!(released.outcome, Dhcp6Outcome::Released);
    let other = server.send(with_association(message(Dhcp6MessageType::Rebind, 8), Some(given)));
    assert_eq!(other.outcome, Dhcp6Outcome::Leased(given));
}

#[test]
fn rapid_commit_leases_at_once() {
    let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0x1ff)));
    let mut query = with_association(message(Dhcp6MessageType::Solicit, 9), None);
    query.options.add(option_code::RAPID_COMMIT, []);
    let response = server.send(query);
    assert!(matches!(response.outcome, Dhcp6Outcome::Leased(_)));
    let reply = response.reply.unwrap().message;
    assert_eq!(reply.message_type, Dhcp6MessageType::Reply);
    assert_eq!(reply.options.get(option_code::RAPID_COMMIT), Some(&[][..]));
}

#[test]
fn the_boot_url_depends_on_the_requesting_program() {
    let mut server = TestDhcp6Server::new(DhcpMode::Reserve, None);
    let table = [
        (7, "PXEClient", "", Some("tftp://[2001:db8::1]/snponly.efi"), BootStage::Pxe),
        (11, "PXEClient", "", Some("tftp://[2001:db8::1]/snponly-arm64.efi"), BootStage::Pxe),
        (7, "PXEClient", "\0\x04iPXE", Some("http://[2001:db8::1]/boot.ipxe"), BootStage::Ipxe),
        (16, "HTTPClient", "", Some("http://[2001:db8::1]/agent.efi"), BootStage::HttpBoot),
    ];
    for (architecture, class, user, expected, stage) in table {
        for kind in [Dhcp6MessageType::Solicit, Dhcp6MessageType::InformationRequest] {
            let mut query =
                firmware(with_association(message(kind, KNOWN), None), architecture, class);
            if !user.is_empty() {
                query.options.add(option_code::USER_CLASS, user.as_bytes());
            }
            let response = server.send(query);
            assert_eq!((response.boot_url.as_deref(), response.stage), (expected, stage));
            let reply = response.reply.unwrap().message;
            let sent = reply.options.get(option_code::BOOT_FILE_URL);
            assert_eq!(sent, expected.map(str::as_bytes));
            assert_eq!(
                reply.options.get(option_code::VENDOR_CLASS).is_some(),
                stage == BootStage::HttpBoot
            );
        }
    }
}

#[test]
fn modes_decide_which_machines_get_a_reply() {
    let range = Some((0x100, 0x1ff));
    let table = [
        (DhcpMode::Off, 9, Dhcp6MessageType::Solicit, Dhcp6Outcome::Disabled),
        (DhcpMode::Proxy, KNOWN, Dhcp6MessageType::Solicit, Dhcp6Outcome::Invalid),
        (DhcpMode::Proxy, KNOWN, Dhcp6MessageType::InformationRequest, Dhcp6Outcome::Informed),
        (DhcpMode::Proxy, DISK, Dhcp6MessageType::InformationRequest, Dhcp6Outcome::BootsFromDisk),
        (DhcpMode::Proxy, 9, Dhcp6MessageType::InformationRequest, Dhcp6Outcome::UnknownMachine),
        (DhcpMode::Reserve, 9, Dhcp6MessageType::Solicit, Dhcp6Outcome::UnknownMachine),
        (DhcpMode::Reserve, KNOWN, Dhcp6MessageType::InformationRequest, Dhcp6Outcome::Informed),
        (DhcpMode::Discover, DISK, Dhcp6MessageType::Solicit, Dhcp6Outcome::BootsFromDisk),
        (DhcpMode::Discover, 66, Dhcp6MessageType::Solicit, Dhcp6Outcome::Ignored),
    ];
    for (mode, client, kind, expected) in table {
        let mut server = TestDhcp6Server::new(mode, range);
        let response = server.send(with_association(message(kind, client), None));
        assert_eq!(response.outcome, expected, "{mode:?} {client}");
    }
    for (mode, client, lacks) in [
        (DhcpMode::Reserve, KNOWN, false),
        (DhcpMode::Reserve, VIRTUAL_MEDIA, true),
        (DhcpMode::Discover, VIRTUAL_MEDIA, true),
        (DhcpMode::All, DISK, false),
        (DhcpMode::All, 9, false),
    ] {
        let mut server = TestDhcp6Server::new(mode, range);
        let query = firmware(
            with_association(message(Dhcp6MessageType::Solicit, client), None),
            7,
            "PXEClient",
        );
        let response = server.send(query);
        assert!(matches!(response.outcome, Dhcp6Outcome::Advertised(_)), "{mode:?} {client}");
        assert_eq!(response.no_loadable_boot_file, lacks, "{mode:?} {client}");
    }
    let mut stateless = TestDhcp6Server::new(DhcpMode::Discover, None);
    let response = stateless.send(with_association(message(Dhcp6MessageType::Solicit, 9), None));
    assert_eq!(response.outcome, Dhcp6Outcome::NoFreeAddress);
}

#[test]
fn ignores_messages_for_other_servers() {
    let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0x1ff)));
    let mut query = message(Dhcp6MessageType::Request, 9);
    query.options = Dhcp6Options::default();
    query.options.add(option_code::CLIENT_ID, [0, 3, 0, 1, 2, 0, 0, 0, 0, 9]);
    query.options.add(option_code::SERVER_ID, [0, 3, 0, 1, 9, 9, 9, 9, 9, 9]);
    assert_eq!(server.send(query).outcome, Dhcp6Outcome::OtherServerChosen);
}

#[test]
fn confirm_checks_addresses_against_the_subnet() {
    let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0x1ff)));
    let off_link: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    for (query, expected) in
        [(address(0x105), Dhcp6Outcome::Confirmed), (off_link, Dhcp6Outcome::NotOnLink)]
    {
        let response =
            server.send(with_association(message(Dhcp6MessageType::Confirm, 9), Some(query)));
        assert_eq!(response.outcome, expected);
    }
}

#[test]
fn replies_to_a_relayed_message_through_its_relays() {
    let mut server = TestDhcp6Server::new(DhcpMode::Reserve, Some((0x50, 0x50)));
    let mut inner = message(Dhcp6MessageType::Solicit, 9);
    // The DUID contains the address of another NIC; the relay's option takes precedence.
    inner = firmware(with_association(inner, None), 7, "PXEClient");
    let hop = |count, link| {
        let mut options = Dhcp6Options::default();
        options.add(option_code::INTERFACE_ID, [count, 7]);
        options.add(option_code::CLIENT_LINK_LAYER, [0, 1, 2, 0, 0, 0, 0, KNOWN]);
        Dhcp6RelayHop { count, link, peer: "fe80::99".parse().unwrap(), options }
    };
    let hops = vec![hop(1, Ipv6Addr::UNSPECIFIED), hop(0, address(0xfff))];
    let response = server.send_relayed(RelayedDhcp6Message { hops, message: inner });
    assert_eq!(response.outcome, Dhcp6Outcome::Advertised(address(0x50)));
    let reply = response.reply.unwrap();
    assert_eq!(reply.to.port(), 547);
    // Relay-reply, hop count 1, then the interface ID, and the same again inside.
    assert_eq!(reply.bytes[..2], [13, 1]);
    assert_eq!(reply.bytes[34..40], [0, 18, 0, 2, 1, 7]);
    assert_eq!(reply.bytes[44..46], [13, 0]);
}

#[test]
fn a_relayed_subnet_is_served_in_its_own_mode() {
    for (mode, expected) in
        [(DhcpMode::Off, Dhcp6Outcome::Disabled), (DhcpMode::Reserve, Dhcp6Outcome::UnknownMachine)]
    {
        let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0x1ff)));
        let mut settings = server.core.settings().clone();
        settings.subnets.push(Dhcp6Subnet::new("2001:db8:9::".parse().unwrap(), 64, mode));
        server.core = Dhcp6Server::new(settings);
        let link = "2001:db8:9::1".parse().unwrap();
        let peer = "fe80::99".parse().unwrap();
        let hops = vec![Dhcp6RelayHop { count: 0, link, peer, options: Dhcp6Options::default() }];
        let message = with_association(message(Dhcp6MessageType::Solicit, 9), None);
        assert_eq!(server.send_relayed(RelayedDhcp6Message { hops, message }).outcome, expected);
    }
}

#[test]
fn purges_leases_that_expired_long_ago() {
    let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0x1ff)));
    let query = |client| with_association(message(Dhcp6MessageType::Request, client), None);
    assert!(matches!(server.send(query(9)).outcome, Dhcp6Outcome::Leased(_)));
    server.now = server.now.plus(Duration::from_secs(2 * 24 * 3600));
    server.leases = DhcpLeases6::load(Box::new(server.store.clone())).unwrap();
    assert!(matches!(server.send(query(10)).outcome, Dhcp6Outcome::Leased(_)));
    assert_eq!(server.store.load().unwrap().len(), 1);
}

#[test]
fn finds_the_hardware_address_in_a_link_local_address() {
    let mut server = TestDhcp6Server::new(DhcpMode::Reserve, Some((0x50, 0x50)));
    let mut options = Dhcp6Options::default();
    options.add(option_code::CLIENT_ID, [&[0, 4][..], &[7; 16]].concat());
    let query =
        Dhcp6Message { message_type: Dhcp6MessageType::Solicit, transaction_id: 1, options };
    let relayed = RelayedDhcp6Message { hops: Vec::new(), message: with_association(query, None) };
    let from = SocketAddrV6::new("fe80::ff:fe00:2".parse().unwrap(), 546, 0, 3);
    let info = Dhcp6PacketInfo { interface: "eth1", from, now: server.now };
    let response = server.core.handle(&relayed, &info, &mut server.leases, &FakeFleet6);
    assert_eq!(response.hardware, Some(HardwareAddress::ethernet([2, 0, 0, 0, 0, KNOWN])));
    assert_eq!(response.outcome, Dhcp6Outcome::Advertised(address(0x50)));
}

#[test]
fn bounds_the_number_of_leases_for_invented_duids() {
    let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0xfff0)));
    let last = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0xffff, 0, 0, 0);
    let mut subnet = server.core.settings().subnets[0].clone();
    subnet.range = Some((address(0x100), last));
    let settings = Dhcp6Settings { subnets: vec![subnet], ..server.core.settings().clone() };
    server.core = Dhcp6Server::new(settings);
    let solicit = |server: &mut TestDhcp6Server, number: u32| {
        let mut options = Dhcp6Options::default();
        options.add(option_code::CLIENT_ID, [&[0, 2][..], &number.to_be_bytes()].concat());
        let query =
            Dhcp6Message { message_type: Dhcp6MessageType::Solicit, transaction_id: 1, options };
        server.send(with_association(query, None)).outcome
    };
    let given = |verdict| matches!(verdict, Dhcp6Outcome::Advertised(_));
    assert!((0..65_536).all(|number| given(solicit(&mut server, number))));
    assert_eq!(solicit(&mut server, 70_000), Dhcp6Outcome::NoFreeAddress);
    // A requested address is refused too.
    let with_address = |kind| with_association(message(kind, 9), Some(address(0x7777)));
    for (kind, expected) in [
        (Dhcp6MessageType::Request, Dhcp6Outcome::NoFreeAddress),
        (Dhcp6MessageType::Renew, Dhcp6Outcome::Refused),
    ] {
        assert_eq!(server.send(with_address(kind)).outcome, expected);
    }
    server.now = server.now.plus(Duration::from_secs(61));
    assert!(given(solicit(&mut server, 70_000)));
}

proptest! {
    #[test]
    fn no_message_panics_the_server(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 1_u8..14) {
        for bytes in [bytes.clone(), [&[kind, 0, 0, 1][..], &bytes].concat()] {
            if let Ok(relayed) = RelayedDhcp6Message::decode(&bytes) {
                let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0x1ff)));
                let _ = server.send_relayed(relayed);
            }
        }
    }

    #[test]
    fn no_address_has_two_holders(steps in prop::collection::vec(
        (0_u8..5, 0_usize..7, 0xff_u16..0x104, 0_u64..200, 0_u8..12), 1..60)) {
        const MESSAGE_TYPES: [Dhcp6MessageType; 7] = [
            Dhcp6MessageType::Solicit, Dhcp6MessageType::Request, Dhcp6MessageType::Renew, Dhcp6MessageType::Rebind,
            Dhcp6MessageType::Release, Dhcp6MessageType::Decline, Dhcp6MessageType::Request,
        ];
        let mut server = TestDhcp6Server::new(DhcpMode::Discover, Some((0x100, 0x102)));
        let mut holders: HashMap<Ipv6Addr, (u8, Timestamp)> = HashMap::new();
        for (client, kind, requested, wait, restart) in steps {
            server.now = server.now.plus(Duration::from_secs(wait));
            if restart == 0 {
                server.leases = DhcpLeases6::load(Box::new(server.store.clone())).unwrap();
            }
            let requested = address(requested);
            let response = server.send(with_association(message(MESSAGE_TYPES[kind], 10 + client), Some(requested)));
            let now = server.now;
            let is_holder = holders.get(&requested) == Some(&(client, now)) || holders.get(&requested)
                .is_some_and(|(holder, until)| *holder == client && *until > now);
            if let Dhcp6Outcome::Leased(given) = response.outcome {
                let taken = holders.get(&given)
                    .filter(|(holder, until)| *holder != client && *until > now);
                prop_assert_eq!(taken, None);
                holders.insert(given, (client, now.plus(Duration::from_secs(600))));
            } else if matches!(response.outcome, Dhcp6Outcome::Released | Dhcp6Outcome::Declined) && is_holder {
                holders.remove(&requested);
            }
        }
    }
}
