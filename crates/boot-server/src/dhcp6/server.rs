// SPDX-License-Identifier: Apache-2.0
//! What to answer to a DHCPv6 message. No sockets and no clock.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;

use node_model::Timestamp;

use super::config::{Interface, Settings, Subnet};
use super::leases::Leases;
use super::message::{Message, MessageType, Options, Relayed, code};
use crate::{Architecture, BootAnswer, BootRequest, HardwareAddress, Mode, Plan, Plans, Stage};

/// The DHCPv6 server.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
}

/// How a packet came in.
#[derive(Debug, Clone)]
pub struct Received<'a> {
    /// The interface it came in by.
    pub interface: &'a str,
    /// Who sent it, as IP says.
    pub from: SocketAddrV6,
    /// When.
    pub now: Timestamp,
}

/// What the server makes of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an answer that is not sent leaves the machine waiting"]
pub struct Answer {
    /// What to send, if anything.
    pub reply: Option<Reply>,
    /// What was done, or why nothing was.
    pub verdict: Verdict,
    /// The card, where it can be told.
    pub hardware: Option<HardwareAddress>,
    /// Whether the plans know the machine.
    pub known: bool,
    /// Whether the machine was served and should boot something of ours that the program that asked
    /// cannot load.
    pub nothing_to_load: bool,
    /// The program that asked.
    pub stage: Stage,
    /// Its processor and firmware.
    pub architecture: Option<Architecture>,
    /// The boot URL in the reply.
    pub boot_url: Option<Arc<str>>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Where to.
    pub to: SocketAddrV6,
    /// The message, before it is wrapped for the relays.
    pub message: Message,
    /// What goes on the wire.
    pub bytes: Vec<u8>,
}

/// What was done with a message, or why nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// An address was advertised.
    Advertised(Ipv6Addr),
    /// An address was leased.
    Leased(Ipv6Addr),
    /// Information without an address was sent.
    Informed,
    /// The client's addresses are right for its network.
    Confirmed,
    /// They are not.
    NotOnLink,
    /// The client was told that it cannot have or keep this address.
    Refused,
    /// Addresses were given back.
    Released,
    /// The client found an address in use by another.
    Declined,
    /// There is no address to give.
    NoFreeAddress,
    /// The network is not served.
    Off,
    /// The card is on the list of those to ignore.
    Ignored,
    /// The machine is not known, and only known ones are served.
    Unknown,
    /// The machine should boot its own disk.
    BootsFromDisk,
    /// The message is for another server.
    ChoseOther,
    /// No configured network fits the interface or the relay.
    NoSubnet,
    /// The message has no sense here.
    Meaningless,
    /// The lease could not be written down, so it was not given.
    NotRecorded,
}

const CLIENT_PORT: u16 = 546;
const SERVER_PORT: u16 = 547;
const STATUS_NO_ADDRESS: u16 = 2;
const STATUS_NO_BINDING: u16 = 3;
const STATUS_NOT_ON_LINK: u16 = 4;
/// Intel's enterprise number, by which PXE and UEFI mark their vendor classes.
const ENTERPRISE_PXE: u32 = 343;

/// One message with everything that is worked out from it once.
struct Exchange<'a> {
    message: &'a Message,
    interface: &'a Interface,
    subnet: &'a Subnet,
    client: &'a [u8],
    now: Timestamp,
}

/// One identity association for addresses.
struct Association<'a> {
    head: [u8; 12],
    options: Options,
    id: &'a [u8],
}

impl Server {
    /// A server with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// What it was told.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The card a message is about, if it can be told and is not one of those to ignore.
    pub(super) fn card(&self, relayed: &Relayed, from: Ipv6Addr) -> Option<HardwareAddress> {
        card_of(relayed, from).filter(|card| !self.settings.ignored.contains(card))
    }

    /// What to answer. The leases must be [committed](Leases::commit) before the reply is sent.
    pub fn answer(
        &self,
        relayed: &Relayed,
        received: &Received<'_>,
        leases: &mut Leases,
        plans: &dyn Plans,
    ) -> Answer {
        let message = &relayed.message;
        let number = message
            .options
            .get(code::ARCHITECTURE)
            .and_then(|value| value.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes)));
        let hardware = card_of(relayed, *received.from.ip());
        let mut answer = Answer {
            reply: None,
            verdict: Verdict::Meaningless,
            hardware,
            known: false,
            nothing_to_load: false,
            stage: stage_of(&message.options, number),
            architecture: number.map(Architecture::from_number),
            boot_url: None,
        };
        let interface = self.settings.interfaces.iter().find(|it| *it.name == *received.interface);
        let Some(interface) = interface else { return answer };
        let client = message.options.get(code::CLIENT_ID);
        // Only a request for information may come without an identity.
        if client.is_none() && message.kind != MessageType::InformationRequest {
            return answer;
        }
        if let Some(verdict) = self.not_for_us(message, hardware) {
            answer.verdict = verdict;
            return answer;
        }
        let plan = plans.plan(&BootRequest {
            hardware: hardware.unwrap_or(HardwareAddress::new(0, &[])),
            architecture: answer.architecture,
            stage: answer.stage,
            interface: received.interface,
        });
        answer.known = plan.known;
        let Some(subnet) = self.subnet(relayed, interface) else {
            answer.verdict = Verdict::NoSubnet;
            return answer;
        };
        let plan = plan.in_mode(subnet.mode);
        if let Some(verdict) = not_served(subnet.mode, &plan, message.kind) {
            answer.verdict = verdict;
            return answer;
        }
        let url = self.boot_url(&plan, answer.stage, answer.architecture, interface, subnet);
        let parameters = boot_parameters(&plan);
        let client = client.unwrap_or_default();
        let now = received.now;
        let exchange = Exchange { message, interface, subnet, client, now };
        let (verdict, reply) = self.reply(&exchange, leases);
        answer.verdict = verdict;
        let Some(mut reply) = reply else { return answer };
        answer.nothing_to_load = carries_information(message.kind)
            && answer.stage != Stage::System
            && plan.boot != BootAnswer::Disk
            && url.is_none();
        if let Some(url) = url.filter(|_| carries_information(message.kind)) {
            reply.options.add(code::BOOT_FILE_URL, url.as_bytes());
            if !parameters.is_empty() {
                reply.options.add(code::BOOT_FILE_PARAMETERS, parameters);
            }
            if answer.stage == Stage::HttpBoot {
                reply.options.add(code::VENDOR_CLASS, vendor_class("HTTPClient"));
            }
            answer.boot_url = Some(url);
        }
        let port = if relayed.hops.is_empty() { CLIENT_PORT } else { SERVER_PORT };
        let mut to = received.from;
        to.set_port(port);
        answer.reply = Some(Reply { to, bytes: relayed.wrap(&reply), message: reply });
        answer
    }

    fn not_for_us(&self, message: &Message, hardware: Option<HardwareAddress>) -> Option<Verdict> {
        if hardware.is_some_and(|hardware| self.settings.ignored.contains(&hardware)) {
            return Some(Verdict::Ignored);
        }
        let server = message.options.get(code::SERVER_ID);
        let needs_server = match message.kind {
            MessageType::Request
            | MessageType::Renew
            | MessageType::Release
            | MessageType::Decline => true,
            MessageType::Solicit | MessageType::Confirm | MessageType::Rebind => {
                // RFC 8415 §16: such a message with a server's identity is malformed.
                return server.is_some().then_some(Verdict::Meaningless);
            }
            MessageType::InformationRequest => server.is_some(),
            MessageType::Advertise | MessageType::Reply | MessageType::Reconfigure => {
                return Some(Verdict::Meaningless);
            }
        };
        (needs_server && server != Some(&self.settings.duid)).then_some(Verdict::ChoseOther)
    }

    fn reply(&self, exchange: &Exchange<'_>, leases: &mut Leases) -> (Verdict, Option<Message>) {
        let message = exchange.message;
        match message.kind {
            MessageType::Solicit => {
                let rapid = message.options.get(code::RAPID_COMMIT).is_some();
                self.addresses(exchange, leases, rapid)
            }
            MessageType::Request | MessageType::Renew | MessageType::Rebind => {
                self.addresses(exchange, leases, true)
            }
            MessageType::Confirm => self.confirm(exchange),
            MessageType::Release | MessageType::Decline => self.give_back(exchange, leases),
            MessageType::InformationRequest => {
                let mut reply = self.blank(exchange, MessageType::Reply);
                self.add_information(&mut reply, exchange);
                (Verdict::Informed, Some(reply))
            }
            MessageType::Advertise | MessageType::Reply | MessageType::Reconfigure => {
                (Verdict::Meaningless, None)
            }
        }
    }

    /// Advertises or leases an address for every association of the message.
    fn addresses(
        &self,
        exchange: &Exchange<'_>,
        leases: &mut Leases,
        for_good: bool,
    ) -> (Verdict, Option<Message>) {
        let asked = exchange.message;
        let kind = if for_good { MessageType::Reply } else { MessageType::Advertise };
        let mut reply = self.blank(exchange, kind);
        if asked.kind == MessageType::Solicit && for_good {
            reply.options.add(code::RAPID_COMMIT, []);
        }
        let mut verdict = Verdict::Informed;
        for association in associations(&asked.options) {
            let client = [exchange.client, association.id].concat();
            let extends = matches!(asked.kind, MessageType::Renew | MessageType::Rebind);
            let chosen = choose(exchange, leases, &client, &association, extends);
            let Some(address) = chosen else {
                let status = if extends { STATUS_NO_BINDING } else { STATUS_NO_ADDRESS };
                reply.options.add(code::IA_NA, association.refused(status));
                if !matches!(verdict, Verdict::Leased(_) | Verdict::Advertised(_)) {
                    let refused = if extends { Verdict::Refused } else { Verdict::NoFreeAddress };
                    verdict = refused;
                }
                continue;
            };
            let lifetime = exchange.subnet.lease_time;
            if for_good {
                leases.lease(&client, address, exchange.now.plus(lifetime), exchange.now);
                verdict = Verdict::Leased(address);
            } else {
                leases.offer(&client, address, exchange.now);
                verdict = Verdict::Advertised(address);
            }
            let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
            reply.options.add(code::IA_NA, association.granted(address, seconds));
        }
        self.add_information(&mut reply, exchange);
        (verdict, Some(reply))
    }

    fn confirm(&self, exchange: &Exchange<'_>) -> (Verdict, Option<Message>) {
        let asked = associations(&exchange.message.options);
        let mut addresses = asked.iter().flat_map(Association::addresses).peekable();
        if addresses.peek().is_none() {
            return (Verdict::Meaningless, None);
        }
        let on_link = addresses.all(|address| exchange.subnet.contains(address));
        let mut reply = self.blank(exchange, MessageType::Reply);
        let status = if on_link { 0 } else { STATUS_NOT_ON_LINK };
        reply.options.add(code::STATUS, status.to_be_bytes());
        (if on_link { Verdict::Confirmed } else { Verdict::NotOnLink }, Some(reply))
    }

    fn give_back(
        &self,
        exchange: &Exchange<'_>,
        leases: &mut Leases,
    ) -> (Verdict, Option<Message>) {
        let mut reply = self.blank(exchange, MessageType::Reply);
        for association in associations(&exchange.message.options) {
            let client = [exchange.client, association.id].concat();
            let declines = exchange.message.kind == MessageType::Decline;
            let mut all_known = true;
            for address in association.addresses() {
                all_known &= if declines {
                    leases.decline(&client, address, exchange.now)
                } else {
                    leases.release(&client, address, exchange.now)
                };
            }
            if !all_known {
                reply.options.add(code::IA_NA, association.refused(STATUS_NO_BINDING));
            }
        }
        reply.options.add(code::STATUS, 0_u16.to_be_bytes());
        let declines = exchange.message.kind == MessageType::Decline;
        (if declines { Verdict::Declined } else { Verdict::Released }, Some(reply))
    }

    fn blank(&self, exchange: &Exchange<'_>, kind: MessageType) -> Message {
        let mut options = Options::default();
        if !exchange.client.is_empty() {
            options.add(code::CLIENT_ID, exchange.client);
        }
        options.add(code::SERVER_ID, self.settings.duid.clone());
        Message { kind, transaction: exchange.message.transaction, options }
    }

    fn add_information(&self, reply: &mut Message, exchange: &Exchange<'_>) {
        let dns = &exchange.subnet.dns;
        if !dns.is_empty() {
            let bytes: Vec<u8> = dns.iter().flat_map(Ipv6Addr::octets).collect();
            reply.options.add(code::DNS_SERVERS, bytes);
        }
    }

    fn boot_url(
        &self,
        plan: &Plan,
        stage: Stage,
        architecture: Option<Architecture>,
        interface: &Interface,
        subnet: &Subnet,
    ) -> Option<Arc<str>> {
        let BootAnswer::Netboot(netboot) = &plan.boot else { return None };
        match stage {
            Stage::System => None,
            Stage::Ipxe => Some(netboot.script.clone()),
            Stage::HttpBoot => netboot.http.clone(),
            Stage::Pxe => {
                let file = netboot.first_stage.as_ref();
                let file = file.or_else(|| self.settings.first_stages.get(architecture?))?;
                let server = subnet.tftp_server.unwrap_or(interface.address);
                Some(format!("tftp://[{server}]/{file}").into())
            }
        }
    }

    /// The network of the client: the one its nearest relay names, or the interface's.
    fn subnet(&self, relayed: &Relayed, interface: &Interface) -> Option<&Subnet> {
        let links = relayed.hops.iter().rev().map(|hop| hop.link);
        let on = links.into_iter().find(|link| !link.is_unspecified()).unwrap_or(interface.address);
        self.settings.subnet_of(on)
    }
}

impl Association<'_> {
    fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.options
            .all(code::IA_ADDRESS)
            .filter_map(|value| value.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes)))
    }

    fn granted(&self, address: Ipv6Addr, seconds: u32) -> Vec<u8> {
        let mut out = self.head[..4].to_vec();
        out.extend((seconds / 2).to_be_bytes());
        out.extend((seconds - seconds / 5).to_be_bytes());
        let mut value = address.octets().to_vec();
        value.extend((seconds - seconds / 4).to_be_bytes());
        value.extend(seconds.to_be_bytes());
        let mut options = Options::default();
        options.add(code::IA_ADDRESS, value);
        options.encode(&mut out);
        out
    }

    fn refused(&self, status: u16) -> Vec<u8> {
        let mut out = self.head[..4].to_vec();
        out.extend([0; 8]);
        let mut options = Options::default();
        options.add(code::STATUS, status.to_be_bytes());
        options.encode(&mut out);
        out
    }
}

/// The address for one association: the one it has or had, the one it wishes, a free one.
fn choose(
    exchange: &Exchange<'_>,
    leases: &mut Leases,
    client: &[u8],
    association: &Association<'_>,
    extends: bool,
) -> Option<Ipv6Addr> {
    let now = exchange.now;
    let subnet = exchange.subnet;
    let server = exchange.interface.address;
    let may_have = |leases: &Leases, address: Ipv6Addr| {
        subnet.in_range(address) && address != server && leases.is_free_for(client, address, now)
    };
    let mut chosen = association.addresses().find(|address| may_have(leases, *address));
    if !extends {
        let last = leases.last_of(client, now).filter(|address| may_have(leases, *address));
        chosen = last.or(chosen).or_else(|| leases.pick(subnet, client, server, now));
    }
    chosen.filter(|address| leases.can_hold(*address, now))
}

fn not_served(mode: Mode, plan: &Plan, kind: MessageType) -> Option<Verdict> {
    let gives_back = matches!(kind, MessageType::Release | MessageType::Decline);
    let keeps = matches!(kind, MessageType::Renew | MessageType::Rebind | MessageType::Confirm);
    match mode {
        Mode::Off => Some(Verdict::Off),
        Mode::Proxy if kind != MessageType::InformationRequest => Some(Verdict::Meaningless),
        Mode::Proxy if !plan.known => Some(Verdict::Unknown),
        Mode::Proxy => (!plan.is_booting).then_some(Verdict::BootsFromDisk),
        Mode::Reserve => (!plan.known && !gives_back).then_some(Verdict::Unknown),
        Mode::Discover => {
            let from_disk = plan.known && !plan.is_booting;
            (from_disk && !gives_back && !keeps).then_some(Verdict::BootsFromDisk)
        }
    }
}

fn carries_information(kind: MessageType) -> bool {
    !matches!(kind, MessageType::Confirm | MessageType::Release | MessageType::Decline)
}

fn associations(options: &Options) -> Vec<Association<'_>> {
    options
        .all(code::IA_NA)
        .filter_map(|value| {
            let (head, rest) = value.split_first_chunk::<12>()?;
            let options = Options::decode(rest).ok()?;
            Some(Association { head: *head, options, id: &value[..4] })
        })
        .collect()
}

fn stage_of(options: &Options, architecture: Option<u16>) -> Stage {
    // A vendor class is an enterprise number and then words with their lengths.
    let class = options.get(code::VENDOR_CLASS).and_then(|value| value.get(6..));
    let user = options.get(code::USER_CLASS).unwrap_or_default();
    Stage::of(class.unwrap_or_default(), user.ends_with(b"iPXE"), architecture)
}

/// Words with their lengths in front (RFC 5970 §3.2).
fn boot_parameters(plan: &Plan) -> Vec<u8> {
    let BootAnswer::Netboot(netboot) = &plan.boot else { return Vec::new() };
    let mut out = Vec::new();
    for word in &netboot.parameters {
        let Ok(length) = u16::try_from(word.len()) else { continue };
        out.extend(length.to_be_bytes());
        out.extend_from_slice(word.as_bytes());
    }
    out
}

fn vendor_class(word: &str) -> Vec<u8> {
    let mut out = ENTERPRISE_PXE.to_be_bytes().to_vec();
    out.extend((word.len() as u16).to_be_bytes());
    out.extend_from_slice(word.as_bytes());
    out
}

/// The card: as a relay says (RFC 6939), from the DUID, or from a link-local address made of it.
fn card_of(relayed: &Relayed, from: Ipv6Addr) -> Option<HardwareAddress> {
    let nearest = relayed.hops.last();
    if let Some(value) = nearest.and_then(|hop| hop.options.get(code::CLIENT_LINK_LAYER))
        && let Some((kind, card)) = value.split_first_chunk::<2>()
    {
        return Some(HardwareAddress::new(kind[1], card));
    }
    let peer = nearest.map_or(from, |hop| hop.peer);
    let from_duid = || {
        let duid = relayed.message.options.get(code::CLIENT_ID)?;
        let (kind, card) = match duid.get(..2)? {
            [0, 1] => (duid.get(2..4)?, duid.get(8..)?),
            [0, 3] => (duid.get(2..4)?, duid.get(4..)?),
            _ => return None,
        };
        Some(HardwareAddress::new(kind[1], card))
    };
    // The packet's own sender is truer than an identity that may have been made with another card.
    from_link_local(peer).or_else(from_duid)
}

fn from_link_local(address: Ipv6Addr) -> Option<HardwareAddress> {
    let bytes = address.octets();
    let is_made_of_card = address.is_unicast_link_local() && bytes[11] == 0xff && bytes[12] == 0xfe;
    is_made_of_card.then(|| {
        HardwareAddress::ethernet([
            bytes[8] ^ 2,
            bytes[9],
            bytes[10],
            bytes[13],
            bytes[14],
            bytes[15],
        ])
    })
}
