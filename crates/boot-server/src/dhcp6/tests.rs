// SPDX-License-Identifier: Apache-2.0
//! The DHCPv6 server without sockets.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use node_model::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{
    BootAnswer, BootRequest, FirstStages, HardwareAddress, LeaseBook as _, MemoryLeaseBook, Mode,
    Netboot, Plan, Plans, Stage,
};

const SERVER_DUID: &[u8] = &[0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const KNOWN: u8 = 2;
const DISK: u8 = 1;
const VIRTUAL_MEDIA: u8 = 4;

struct Fleet;

impl Plans for Fleet {
    fn plan(&self, request: &BootRequest<'_>) -> Plan {
        let netboot = BootAnswer::Netboot(Netboot {
            script: "http://[2001:db8::1]/boot.ipxe".into(),
            http: Some("http://[2001:db8::1]/agent.efi".into()),
            first_stage: None,
            parameters: vec!["quiet".into()],
        });
        match request.hardware.bytes().last() {
            Some(&DISK) => Plan { known: true, ..Plan::default() },
            Some(&KNOWN) => Plan { known: true, is_booting: true, boot: netboot, host_name: None },
            Some(&VIRTUAL_MEDIA) => {
                let boot = BootAnswer::NothingForThisFirmware;
                Plan { known: true, is_booting: true, boot, host_name: None }
            }
            _ => Plan { boot: netboot, ..Plan::default() },
        }
    }
}

fn address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

struct Bench {
    server: Server,
    leases: Leases,
    book: MemoryLeaseBook,
    now: Timestamp,
}

impl Bench {
    fn new(mode: Mode, range: Option<(u16, u16)>) -> Self {
        let mut subnet = Subnet::new(address(0), 64, mode);
        subnet.range = range.map(|(first, last)| (address(first), address(last)));
        subnet.dns = vec![address(1)];
        subnet.lease_time = Duration::from_secs(600);
        let settings = Settings {
            duid: SERVER_DUID.to_vec(),
            interfaces: vec![Interface { name: "eth1".into(), address: address(1) }],
            subnets: vec![subnet],
            ignored: [HardwareAddress::ethernet([2, 0, 0, 0, 0, 66])].into(),
            first_stages: FirstStages::default(),
        };
        let book = MemoryLeaseBook::default();
        let leases = Leases::load(Box::new(book.clone())).unwrap();
        Self { server: Server::new(settings), leases, book, now: Timestamp::from_secs(1_000_000) }
    }

    fn send(&mut self, message: Message) -> Answer {
        self.send_relayed(Relayed { hops: Vec::new(), message })
    }

    fn send_relayed(&mut self, relayed: Relayed) -> Answer {
        let from = SocketAddrV6::new("fe80::1234".parse().unwrap(), 546, 0, 3);
        let received = Received { interface: "eth1", from, now: self.now };
        let answer = self.server.answer(&relayed, &received, &mut self.leases, &Fleet);
        self.leases.commit().unwrap();
        answer
    }
}

fn message(kind: MessageType, client: u8) -> Message {
    let mut options = Options::default();
    options.add(code::CLIENT_ID, [0, 3, 0, 1, 2, 0, 0, 0, 0, client]);
    let with_server = matches!(
        kind,
        MessageType::Request | MessageType::Renew | MessageType::Release | MessageType::Decline
    );
    if with_server {
        options.add(code::SERVER_ID, SERVER_DUID);
    }
    // Through the codec, so that it is in every test.
    let bytes = Message { kind, transaction: 0x12_3456, options }.encode();
    Relayed::decode(&bytes).unwrap().message
}

fn wanting(mut message: Message, wanted: Option<Ipv6Addr>) -> Message {
    let mut association = vec![0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
    if let Some(wanted) = wanted {
        let mut inner = Options::default();
        inner.add(code::IA_ADDRESS, [&wanted.octets()[..], &[0; 8]].concat());
        inner.encode(&mut association);
    }
    message.options.add(code::IA_NA, association);
    message
}

fn firmware(mut message: Message, architecture: u16, class: &str) -> Message {
    message.options.add(code::ARCHITECTURE, architecture.to_be_bytes());
    let class = [&[0, 0, 1, 87, 0, class.len() as u8][..], class.as_bytes()].concat();
    message.options.add(code::VENDOR_CLASS, class);
    message
}

#[test]
fn an_address_is_advertised_leased_renewed_and_released() {
    let mut bench = Bench::new(Mode::Discover, Some((0x100, 0x1ff)));
    let advertised = bench.send(wanting(message(MessageType::Solicit, 9), None));
    let Verdict::Advertised(given) = advertised.verdict else { panic!("{advertised:?}") };
    let reply = advertised.reply.unwrap();
    assert_eq!(reply.to, SocketAddrV6::new("fe80::1234".parse().unwrap(), 546, 0, 3));
    assert_eq!(reply.message.kind, MessageType::Advertise);
    assert_eq!(reply.message.transaction, 0x12_3456);
    assert_eq!(reply.message.options.get(code::DNS_SERVERS), Some(&address(1).octets()[..]));
    let leased = bench.send(wanting(message(MessageType::Request, 9), Some(given)));
    assert_eq!(leased.verdict, Verdict::Leased(given));
    bench.leases = Leases::load(Box::new(bench.book.clone())).unwrap();
    for kind in [MessageType::Renew, MessageType::Rebind] {
        let renewed = bench.send(wanting(message(kind, 9), Some(given)));
        assert_eq!(renewed.verdict, Verdict::Leased(given));
    }
    // Somebody else cannot have it, nor keep it.
    let other = bench.send(wanting(message(MessageType::Renew, 8), Some(given)));
    assert_eq!(other.verdict, Verdict::Refused);
    let released = bench.send(wanting(message(MessageType::Release, 9), Some(given)));
    assert_eq!(released.verdict, Verdict::Released);
    let other = bench.send(wanting(message(MessageType::Rebind, 8), Some(given)));
    assert_eq!(other.verdict, Verdict::Leased(given));
}

#[test]
fn rapid_commit_leases_at_once() {
    let mut bench = Bench::new(Mode::Discover, Some((0x100, 0x1ff)));
    let mut asked = wanting(message(MessageType::Solicit, 9), None);
    asked.options.add(code::RAPID_COMMIT, []);
    let answer = bench.send(asked);
    assert!(matches!(answer.verdict, Verdict::Leased(_)));
    let reply = answer.reply.unwrap().message;
    assert_eq!(reply.kind, MessageType::Reply);
    assert_eq!(reply.options.get(code::RAPID_COMMIT), Some(&[][..]));
}

#[test]
fn the_boot_url_follows_the_program_that_asks() {
    let mut bench = Bench::new(Mode::Reserve, None);
    let table = [
        (7, "PXEClient", "", Some("tftp://[2001:db8::1]/snponly.efi"), Stage::Pxe),
        (11, "PXEClient", "", Some("tftp://[2001:db8::1]/snponly-arm64.efi"), Stage::Pxe),
        (7, "PXEClient", "\0\x04iPXE", Some("http://[2001:db8::1]/boot.ipxe"), Stage::Ipxe),
        (16, "HTTPClient", "", Some("http://[2001:db8::1]/agent.efi"), Stage::HttpBoot),
    ];
    for (architecture, class, user, expected, stage) in table {
        for kind in [MessageType::Solicit, MessageType::InformationRequest] {
            let mut asked = firmware(wanting(message(kind, KNOWN), None), architecture, class);
            if !user.is_empty() {
                asked.options.add(code::USER_CLASS, user.as_bytes());
            }
            let answer = bench.send(asked);
            assert_eq!((answer.boot_url.as_deref(), answer.stage), (expected, stage));
            let reply = answer.reply.unwrap().message;
            let sent = reply.options.get(code::BOOT_FILE_URL);
            assert_eq!(sent, expected.map(str::as_bytes));
            let parameters = reply.options.get(code::BOOT_FILE_PARAMETERS);
            assert_eq!(parameters, Some(&b"\0\x05quiet"[..]));
            assert_eq!(reply.options.get(code::VENDOR_CLASS).is_some(), stage == Stage::HttpBoot);
        }
    }
}

#[test]
fn modes_and_lists_decide_who_is_answered() {
    let range = Some((0x100, 0x1ff));
    let table = [
        (Mode::Off, 9, MessageType::Solicit, Verdict::Off),
        (Mode::Proxy, KNOWN, MessageType::Solicit, Verdict::Meaningless),
        (Mode::Proxy, KNOWN, MessageType::InformationRequest, Verdict::Informed),
        (Mode::Proxy, DISK, MessageType::InformationRequest, Verdict::BootsFromDisk),
        (Mode::Proxy, 9, MessageType::InformationRequest, Verdict::Unknown),
        (Mode::Reserve, 9, MessageType::Solicit, Verdict::Unknown),
        (Mode::Reserve, KNOWN, MessageType::InformationRequest, Verdict::Informed),
        (Mode::Discover, DISK, MessageType::Solicit, Verdict::BootsFromDisk),
        (Mode::Discover, 66, MessageType::Solicit, Verdict::Ignored),
    ];
    for (mode, client, kind, expected) in table {
        let mut bench = Bench::new(mode, range);
        let answer = bench.send(wanting(message(kind, client), None));
        assert_eq!(answer.verdict, expected, "{mode:?} {client}");
    }
    for (mode, client, lacks) in [
        (Mode::Reserve, KNOWN, false),
        (Mode::Reserve, VIRTUAL_MEDIA, true),
        (Mode::Discover, VIRTUAL_MEDIA, true),
    ] {
        let mut bench = Bench::new(mode, range);
        let asked = firmware(wanting(message(MessageType::Solicit, client), None), 7, "PXEClient");
        let answer = bench.send(asked);
        assert!(matches!(answer.verdict, Verdict::Advertised(_)), "{mode:?} {client}");
        assert_eq!(answer.nothing_to_load, lacks, "{mode:?} {client}");
    }
    let mut stateless = Bench::new(Mode::Discover, None);
    let answer = stateless.send(wanting(message(MessageType::Solicit, 9), None));
    assert_eq!(answer.verdict, Verdict::NoFreeAddress);
}

#[test]
fn messages_for_other_servers_are_left_alone() {
    let mut bench = Bench::new(Mode::Discover, Some((0x100, 0x1ff)));
    let mut asked = message(MessageType::Request, 9);
    asked.options = Options::default();
    asked.options.add(code::CLIENT_ID, [0, 3, 0, 1, 2, 0, 0, 0, 0, 9]);
    asked.options.add(code::SERVER_ID, [0, 3, 0, 1, 9, 9, 9, 9, 9, 9]);
    assert_eq!(bench.send(asked).verdict, Verdict::ChoseOther);
}

#[test]
fn confirm_says_whether_addresses_fit_the_network() {
    let mut bench = Bench::new(Mode::Discover, Some((0x100, 0x1ff)));
    let elsewhere: Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    for (asked, expected) in [(address(0x105), Verdict::Confirmed), (elsewhere, Verdict::NotOnLink)]
    {
        let answer = bench.send(wanting(message(MessageType::Confirm, 9), Some(asked)));
        assert_eq!(answer.verdict, expected);
    }
}

#[test]
fn a_relayed_message_is_answered_through_its_relays() {
    let mut bench = Bench::new(Mode::Reserve, Some((0x50, 0x50)));
    let mut inner = message(MessageType::Solicit, 9);
    // The identity was made with another card; the relay knows better.
    inner = firmware(wanting(inner, None), 7, "PXEClient");
    let hop = |count, link| {
        let mut options = Options::default();
        options.add(code::INTERFACE_ID, [count, 7]);
        options.add(code::CLIENT_LINK_LAYER, [0, 1, 2, 0, 0, 0, 0, KNOWN]);
        RelayHop { count, link, peer: "fe80::99".parse().unwrap(), options }
    };
    let hops = vec![hop(1, Ipv6Addr::UNSPECIFIED), hop(0, address(0xfff))];
    let answer = bench.send_relayed(Relayed { hops, message: inner });
    assert_eq!(answer.verdict, Verdict::Advertised(address(0x50)));
    let reply = answer.reply.unwrap();
    assert_eq!(reply.to.port(), 547);
    // Relay-reply, one hop, then the interface's number, and the same inside once more.
    assert_eq!(reply.bytes[..2], [13, 1]);
    assert_eq!(reply.bytes[34..40], [0, 18, 0, 2, 1, 7]);
    assert_eq!(reply.bytes[44..46], [13, 0]);
}

#[test]
fn a_relayed_network_is_served_in_its_own_mode() {
    for (mode, expected) in [(Mode::Off, Verdict::Off), (Mode::Reserve, Verdict::Unknown)] {
        let mut bench = Bench::new(Mode::Discover, Some((0x100, 0x1ff)));
        let mut settings = bench.server.settings().clone();
        settings.subnets.push(Subnet::new("2001:db8:9::".parse().unwrap(), 64, mode));
        bench.server = Server::new(settings);
        let link = "2001:db8:9::1".parse().unwrap();
        let peer = "fe80::99".parse().unwrap();
        let hops = vec![RelayHop { count: 0, link, peer, options: Options::default() }];
        let message = wanting(message(MessageType::Solicit, 9), None);
        assert_eq!(bench.send_relayed(Relayed { hops, message }).verdict, expected);
    }
}

#[test]
fn leases_that_ended_are_not_kept_for_ever() {
    let mut bench = Bench::new(Mode::Discover, Some((0x100, 0x1ff)));
    let asked = |client| wanting(message(MessageType::Request, client), None);
    assert!(matches!(bench.send(asked(9)).verdict, Verdict::Leased(_)));
    bench.now = bench.now.plus(Duration::from_secs(2 * 24 * 3600));
    bench.leases = Leases::load(Box::new(bench.book.clone())).unwrap();
    assert!(matches!(bench.send(asked(10)).verdict, Verdict::Leased(_)));
    assert_eq!(bench.book.load().unwrap().len(), 1);
}

#[test]
fn the_card_is_found_in_a_link_local_address() {
    let mut bench = Bench::new(Mode::Reserve, Some((0x50, 0x50)));
    let mut options = Options::default();
    options.add(code::CLIENT_ID, [&[0, 4][..], &[7; 16]].concat());
    let asked = Message { kind: MessageType::Solicit, transaction: 1, options };
    let relayed = Relayed { hops: Vec::new(), message: wanting(asked, None) };
    let from = SocketAddrV6::new("fe80::ff:fe00:2".parse().unwrap(), 546, 0, 3);
    let received = Received { interface: "eth1", from, now: bench.now };
    let answer = bench.server.answer(&relayed, &received, &mut bench.leases, &Fleet);
    assert_eq!(answer.hardware, Some(HardwareAddress::ethernet([2, 0, 0, 0, 0, KNOWN])));
    assert_eq!(answer.verdict, Verdict::Advertised(address(0x50)));
}

#[test]
fn a_flood_of_made_up_clients_is_bounded_and_passes() {
    let mut bench = Bench::new(Mode::Discover, Some((0x100, 0xfff0)));
    let last = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0xffff, 0, 0, 0);
    let mut subnet = bench.server.settings().subnets[0].clone();
    subnet.range = Some((address(0x100), last));
    let settings = Settings { subnets: vec![subnet], ..bench.server.settings().clone() };
    bench.server = Server::new(settings);
    let solicit = |bench: &mut Bench, number: u32| {
        let mut options = Options::default();
        options.add(code::CLIENT_ID, [&[0, 2][..], &number.to_be_bytes()].concat());
        let asked = Message { kind: MessageType::Solicit, transaction: 1, options };
        bench.send(wanting(asked, None)).verdict
    };
    let given = |verdict| matches!(verdict, Verdict::Advertised(_));
    assert!((0..65_536).all(|number| given(solicit(&mut bench, number))));
    assert_eq!(solicit(&mut bench, 70_000), Verdict::NoFreeAddress);
    // Nor does it help to name the address.
    let named = |kind| wanting(message(kind, 9), Some(address(0x7777)));
    for (kind, expected) in
        [(MessageType::Request, Verdict::NoFreeAddress), (MessageType::Renew, Verdict::Refused)]
    {
        assert_eq!(bench.send(named(kind)).verdict, expected);
    }
    bench.now = bench.now.plus(Duration::from_secs(61));
    assert!(given(solicit(&mut bench, 70_000)));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 1_u8..14) {
        for bytes in [bytes.clone(), [&[kind, 0, 0, 1][..], &bytes].concat()] {
            if let Ok(relayed) = Relayed::decode(&bytes) {
                let mut bench = Bench::new(Mode::Discover, Some((0x100, 0x1ff)));
                let _ = bench.send_relayed(relayed);
            }
        }
    }

    #[test]
    fn no_address_ever_has_two_owners(steps in prop::collection::vec(
        (0_u8..5, 0_usize..7, 0xff_u16..0x104, 0_u64..200, 0_u8..12), 1..60)) {
        const KINDS: [MessageType; 7] = [
            MessageType::Solicit, MessageType::Request, MessageType::Renew, MessageType::Rebind,
            MessageType::Release, MessageType::Decline, MessageType::Request,
        ];
        let mut bench = Bench::new(Mode::Discover, Some((0x100, 0x102)));
        let mut owners: HashMap<Ipv6Addr, (u8, Timestamp)> = HashMap::new();
        for (client, kind, wanted, wait, restart) in steps {
            bench.now = bench.now.plus(Duration::from_secs(wait));
            if restart == 0 {
                bench.leases = Leases::load(Box::new(bench.book.clone())).unwrap();
            }
            let wanted = address(wanted);
            let answer = bench.send(wanting(message(KINDS[kind], 10 + client), Some(wanted)));
            let now = bench.now;
            let is_owner = owners.get(&wanted) == Some(&(client, now)) || owners.get(&wanted)
                .is_some_and(|(owner, until)| *owner == client && *until > now);
            if let Verdict::Leased(given) = answer.verdict {
                let taken = owners.get(&given)
                    .filter(|(owner, until)| *owner != client && *until > now);
                prop_assert_eq!(taken, None);
                owners.insert(given, (client, now.plus(Duration::from_secs(600))));
            } else if matches!(answer.verdict, Verdict::Released | Verdict::Declined) && is_owner {
                owners.remove(&wanted);
            }
        }
    }
}
