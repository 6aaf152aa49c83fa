// SPDX-License-Identifier: Apache-2.0
//! What to answer to a DHCPv4 message. No sockets and no clock: a packet, the time and the leases go in,
//! an answer comes out.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use node_model::Timestamp;

use super::config::{Interface, Settings, Subnet};
use super::leases::{Client, LeaseState, Leases, client_of};
use super::options::{Options, code};
use super::packet::{MessageType, Packet};
use super::reply::{Answer, Reply, To, Verdict};
use crate::{Architecture, BootAnswer, BootRequest, Mode, Plan, Plans, Stage};

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;

/// The DHCPv4 server.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
}

/// How a packet came in.
#[derive(Debug, Clone)]
pub struct Received<'a> {
    /// The interface it came in by.
    pub interface: &'a str,
    /// The port it was sent to.
    pub port: Port,
    /// Who sent it, as IP says.
    pub from: SocketAddrV4,
    /// When.
    pub now: Timestamp,
}

/// The two ports a boot server listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// 67.
    Dhcp,
    /// 4011, where PXE firmware asks a proxy again.
    Pxe,
}

/// One message with everything that is worked out from it once.
struct Exchange<'a> {
    packet: &'a Packet,
    received: &'a Received<'a>,
    interface: &'a Interface,
    subnet: &'a Subnet,
    client: Client,
    stage: Stage,
    architecture: Option<Architecture>,
    plan: Plan,
    boot_file: Option<Arc<str>>,
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

    /// What to answer. The leases must be [committed](Leases::commit) before the reply is sent.
    pub fn answer(
        &self,
        packet: &Packet,
        received: &Received<'_>,
        leases: &mut Leases,
        plans: &dyn Plans,
    ) -> Answer {
        let number = packet.options.number16(code::ARCHITECTURE);
        let vendor_class = packet.options.get(code::VENDOR_CLASS).unwrap_or_default();
        let mut answer = Answer {
            reply: None,
            verdict: Verdict::Meaningless,
            known: false,
            nothing_to_load: false,
            stage: Stage::of(vendor_class, is_ipxe(&packet.options), number),
            architecture: number.map(Architecture::from_number),
            boot_file: None,
        };
        let interface = self.settings.interfaces.iter().find(|it| *it.name == *received.interface);
        let (Some(interface), Some(client), Some(asked)) =
            (interface, client_of(packet), packet.message_type())
        else {
            return answer;
        };
        if !packet.is_request {
            return answer;
        }
        if self.settings.ignored.contains(&packet.hardware) {
            answer.verdict = Verdict::Ignored;
            return answer;
        }
        let plan = plans.plan(&BootRequest {
            hardware: packet.hardware,
            architecture: answer.architecture,
            stage: answer.stage,
            interface: received.interface,
        });
        answer.known = plan.known;
        let Some(subnet) = self.subnet(packet, received, interface) else {
            answer.verdict = Verdict::NoSubnet;
            return answer;
        };
        let mut exchange = Exchange {
            packet,
            received,
            interface,
            subnet,
            client,
            stage: answer.stage,
            architecture: answer.architecture,
            plan: plan.in_mode(subnet.mode),
            boot_file: None,
        };
        exchange.boot_file = self.boot_file(&exchange);
        let (verdict, reply) = match (subnet.mode, received.port) {
            (Mode::Off, _) => (Verdict::Off, None),
            (Mode::Proxy, port) => proxy(&exchange, asked, port),
            (Mode::Reserve | Mode::Discover, Port::Dhcp) => full(&exchange, asked, leases),
            (Mode::Reserve | Mode::Discover, Port::Pxe) => (Verdict::Meaningless, None),
        };
        answer.verdict = verdict;
        answer.nothing_to_load = matches!(verdict, Verdict::Offered(_) | Verdict::Leased(_))
            && exchange.lacks_boot_file();
        if reply.as_ref().is_some_and(|reply| carries_boot(&reply.packet)) {
            answer.boot_file = exchange.boot_file.take();
        }
        answer.reply = reply;
        answer
    }

    /// The file or URL for the program that asks.
    fn boot_file(&self, exchange: &Exchange<'_>) -> Option<Arc<str>> {
        let BootAnswer::Netboot(netboot) = &exchange.plan.boot else { return None };
        match exchange.stage {
            Stage::System => None,
            Stage::Ipxe => Some(netboot.script.clone()),
            Stage::HttpBoot => netboot.http.clone(),
            Stage::Pxe => netboot.first_stage.clone().or_else(|| {
                let architecture = exchange.architecture.unwrap_or(Architecture::Bios);
                self.settings.first_stages.get(architecture).cloned()
            }),
        }
    }

    /// The network the client is on: the relay's, or the interface's.
    fn subnet(
        &self,
        packet: &Packet,
        received: &Received<'_>,
        interface: &Interface,
    ) -> Option<&Subnet> {
        let settings = &self.settings;
        if packet.is_relayed() {
            return settings.subnet_of(link_selection(&packet.options).unwrap_or(packet.relay));
        }
        let own = || settings.subnet_of(interface.address);
        let has_address = !packet.client_address.is_unspecified();
        if !has_address || *received.from.ip() != packet.client_address {
            return own();
        }
        // What came by a router names no relay; the client's address says where it is. Beside
        // another DHCP server that may be an address nobody told us of.
        let found = settings.subnet_of(packet.client_address);
        match received.port {
            Port::Dhcp => found,
            Port::Pxe => found.or_else(own),
        }
    }
}

impl Exchange<'_> {
    fn asks_for(&self, code: u8) -> bool {
        let list = self.packet.options.get(code::PARAMETER_LIST).unwrap_or_default();
        list.contains(&code)
    }

    /// Whether the machine should boot something of ours that the program that asks cannot load.
    fn lacks_boot_file(&self) -> bool {
        self.stage != Stage::System
            && self.plan.boot != BootAnswer::Disk
            && self.boot_file.is_none()
    }
}

/// The mode with addresses: who may have one, and then the message itself.
fn full(
    exchange: &Exchange<'_>,
    asked: MessageType,
    leases: &mut Leases,
) -> (Verdict, Option<Reply>) {
    let packet = exchange.packet;
    // What a client gives back it gives back, whatever its plan is by now.
    match asked {
        MessageType::Release => return release(exchange, leases),
        MessageType::Decline => return decline(exchange, leases),
        MessageType::Discover | MessageType::Request | MessageType::Inform => {}
        MessageType::Offer | MessageType::Ack | MessageType::Nak => {
            return (Verdict::Meaningless, None);
        }
    }
    let now = exchange.received.now;
    let renews =
        asked == MessageType::Request && leases.holds(&exchange.client, packet.client_address, now);
    if let Some(verdict) = not_served(exchange, renews) {
        return (verdict, None);
    }
    match asked {
        MessageType::Discover => discover(exchange, leases),
        MessageType::Request => request(exchange, leases),
        MessageType::Inform => inform(exchange),
        MessageType::Release
        | MessageType::Decline
        | MessageType::Offer
        | MessageType::Ack
        | MessageType::Nak => (Verdict::Meaningless, None),
    }
}

/// ProxyDHCP: boot information next to somebody else's address.
fn proxy(exchange: &Exchange<'_>, asked: MessageType, port: Port) -> (Verdict, Option<Reply>) {
    let packet = exchange.packet;
    let kind = match (port, asked) {
        (Port::Dhcp, MessageType::Discover) => MessageType::Offer,
        (Port::Pxe, MessageType::Request | MessageType::Inform) => MessageType::Ack,
        // A request on port 67 goes to the server whose address was chosen, which is not us.
        (Port::Dhcp, MessageType::Request) => return (Verdict::ChoseOther, None),
        (Port::Dhcp, MessageType::Inform)
        | (Port::Pxe, MessageType::Discover)
        | (
            Port::Dhcp | Port::Pxe,
            MessageType::Offer
            | MessageType::Decline
            | MessageType::Ack
            | MessageType::Nak
            | MessageType::Release,
        ) => return (Verdict::Meaningless, None),
    };
    if exchange.stage == Stage::System {
        return (Verdict::NotBooting, None);
    }
    if exchange.plan.boot == BootAnswer::Disk {
        let known = exchange.plan.known;
        return (if known { Verdict::BootsFromDisk } else { Verdict::Unknown }, None);
    }
    if exchange.boot_file.is_none() {
        return (Verdict::NoBootFile, None);
    }
    let mut reply = blank_reply(exchange, kind);
    add_boot(&mut reply, exchange);
    reply.client_address = packet.client_address;
    let class = if exchange.stage == Stage::HttpBoot { "HTTPClient" } else { "PXEClient" };
    reply.options.set(code::VENDOR_CLASS, class);
    if exchange.stage != Stage::HttpBoot {
        // Discovery control 8: no search for boot servers, load the file named here.
        reply.options.set(code::VENDOR_SPECIFIC, [6, 1, 8, 255]);
    }
    let to = if packet.is_relayed() {
        relay(packet)
    } else {
        match port {
            Port::Pxe => To::Address(exchange.received.from),
            Port::Dhcp => To::Broadcast,
        }
    };
    (Verdict::ProxyAnswered, Some(Reply { to, packet: reply, probe: None }))
}

/// Why the machine gets no address, if it gets none.
fn not_served(exchange: &Exchange<'_>, renews: bool) -> Option<Verdict> {
    let plan = &exchange.plan;
    let has_host_entry = exchange.subnet.host(exchange.packet.hardware).is_some();
    match exchange.subnet.mode {
        Mode::Off => Some(Verdict::Off),
        Mode::Proxy => Some(Verdict::NotBooting),
        Mode::Reserve => (!plan.known && !has_host_entry).then_some(Verdict::Unknown),
        // A ramdisk keeps its address until it is done, even after the plan has become the disk.
        Mode::Discover if plan.known => {
            (!plan.is_booting && !renews && !has_host_entry).then_some(Verdict::BootsFromDisk)
        }
        Mode::Discover => None,
    }
}

fn discover(exchange: &Exchange<'_>, leases: &mut Leases) -> (Verdict, Option<Reply>) {
    let wanted = exchange.packet.options.address(code::REQUESTED_ADDRESS);
    let Some(address) = choose(exchange, leases, wanted) else {
        return (Verdict::NoFreeAddress, None);
    };
    let now = exchange.received.now;
    // An address this client was leased before was found good then; a reserved one is its own.
    // One that was only offered may have been found in use since.
    let was_leased = leases.get(address).is_some_and(|lease| {
        lease.state == LeaseState::Leased && *lease.client == *exchange.client
    });
    let is_fresh = !was_leased && reserved(exchange) != Some(address);
    leases.offer(&exchange.client, address, now);
    let mut packet = reply(exchange, MessageType::Offer);
    packet.your_address = address;
    let probe = (is_fresh && !exchange.packet.is_relayed()).then_some(address);
    let reply = Reply { to: destination(exchange, address), packet, probe };
    (Verdict::Offered(address), Some(reply))
}

fn request(exchange: &Exchange<'_>, leases: &mut Leases) -> (Verdict, Option<Reply>) {
    let packet = exchange.packet;
    let now = exchange.received.now;
    if let Some(server) = packet.options.address(code::SERVER_ID)
        && server != exchange.interface.address
    {
        leases.withdraw_offer(&exchange.client, now);
        return (Verdict::ChoseOther, None);
    }
    let requested = packet.options.address(code::REQUESTED_ADDRESS);
    let has_address = !packet.client_address.is_unspecified();
    let wanted = if has_address { Some(packet.client_address) } else { requested };
    let Some(wanted) = wanted else { return (Verdict::Meaningless, None) };
    if !may_have(exchange, leases, wanted) {
        return (Verdict::Refused(wanted), Some(refuse(exchange)));
    }
    leases.lease(&exchange.client, wanted, now.plus(exchange.subnet.lease_time), now);
    let mut reply = reply(exchange, MessageType::Ack);
    reply.your_address = wanted;
    reply.client_address = packet.client_address;
    let reply = Reply { to: destination(exchange, wanted), packet: reply, probe: None };
    (Verdict::Leased(wanted), Some(reply))
}

/// The address for a client that has none: its own, the one it had, the one it wishes, a free one.
fn choose(
    exchange: &Exchange<'_>,
    leases: &mut Leases,
    wanted: Option<Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let now = exchange.received.now;
    let client = &exchange.client;
    let server = exchange.interface.address;
    if let Some(address) = reserved(exchange)
        && leases.is_free_for(client, address, now)
    {
        return Some(address);
    }
    let last = leases.last_of(client, now);
    [last, wanted]
        .into_iter()
        .flatten()
        .find(|address| {
            is_for_anybody(exchange, *address) && leases.is_free_for(client, *address, now)
        })
        .or_else(|| leases.pick(exchange.subnet, client, server, now))
}

/// Whether the client may have exactly this address.
fn may_have(exchange: &Exchange<'_>, leases: &Leases, address: Ipv4Addr) -> bool {
    let now = exchange.received.now;
    let is_own = reserved(exchange) == Some(address);
    (is_own || is_for_anybody(exchange, address))
        && leases.is_free_for(&exchange.client, address, now)
}

/// Whether the address is in a range and set aside for nobody.
fn is_for_anybody(exchange: &Exchange<'_>, address: Ipv4Addr) -> bool {
    let subnet = exchange.subnet;
    subnet.in_range(address)
        && address != exchange.interface.address
        && Some(address) != subnet.gateway
        && !subnet.hosts.iter().any(|host| host.address == address)
}

/// The address set aside for the machine on this network.
fn reserved(exchange: &Exchange<'_>) -> Option<Ipv4Addr> {
    let subnet = exchange.subnet;
    let host = subnet.host(exchange.packet.hardware).map(|host| host.address);
    host.filter(|address| subnet.is_usable(*address))
}

fn release(exchange: &Exchange<'_>, leases: &mut Leases) -> (Verdict, Option<Reply>) {
    let address = exchange.packet.client_address;
    let released = leases.release(&exchange.client, address, exchange.received.now);
    (if released { Verdict::Released(address) } else { Verdict::Meaningless }, None)
}

/// Only the owner can decline an address, or anybody could empty the ranges with one packet each.
fn decline(exchange: &Exchange<'_>, leases: &mut Leases) -> (Verdict, Option<Reply>) {
    let Some(address) = exchange.packet.options.address(code::REQUESTED_ADDRESS) else {
        return (Verdict::Meaningless, None);
    };
    let now = exchange.received.now;
    if !leases.holds(&exchange.client, address, now) {
        return (Verdict::Meaningless, None);
    }
    leases.set_aside(address, now);
    (Verdict::Declined(address), None)
}

fn inform(exchange: &Exchange<'_>) -> (Verdict, Option<Reply>) {
    let packet = exchange.packet;
    if packet.client_address.is_unspecified() {
        return (Verdict::Meaningless, None);
    }
    let mut reply = blank_reply(exchange, MessageType::Ack);
    network_options(&mut reply.options, exchange, false);
    reply.client_address = packet.client_address;
    let to = To::Address(SocketAddrV4::new(packet.client_address, CLIENT_PORT));
    (Verdict::Informed, Some(Reply { to, packet: reply, probe: None }))
}

fn refuse(exchange: &Exchange<'_>) -> Reply {
    let mut packet = blank_reply(exchange, MessageType::Nak);
    packet.options.set(code::MESSAGE, "this address is not for this machine; ask for another");
    let to = if packet.is_relayed() {
        // The relay must broadcast it: the client does not have an address it may use.
        packet.broadcast = true;
        relay(exchange.packet)
    } else {
        To::Broadcast
    };
    Reply { to, packet, probe: None }
}

/// A reply to the message with everything but the address.
fn reply(exchange: &Exchange<'_>, kind: MessageType) -> Packet {
    let mut reply = blank_reply(exchange, kind);
    network_options(&mut reply.options, exchange, true);
    add_boot(&mut reply, exchange);
    reply
}

/// What to load and from where, if there is something.
fn add_boot(reply: &mut Packet, exchange: &Exchange<'_>) {
    let Some(file) = &exchange.boot_file else { return };
    let tftp = exchange.subnet.tftp_server.unwrap_or(exchange.interface.address);
    reply.next_server = tftp;
    let fits_header = file.len() < 128;
    if fits_header {
        reply.file = file.as_bytes().to_vec();
    }
    // Header fields are what every firmware reads; the options are for those that ask for them.
    if exchange.asks_for(code::BOOT_FILE_NAME) || !fits_header {
        reply.options.set(code::BOOT_FILE_NAME, file.as_bytes());
    }
    if exchange.stage == Stage::HttpBoot {
        // UEFI takes an offer for HTTP boot only if it says so.
        reply.options.set(code::VENDOR_CLASS, "HTTPClient");
        return;
    }
    if exchange.asks_for(code::TFTP_SERVER_NAME) {
        reply.options.set(code::TFTP_SERVER_NAME, tftp.to_string());
    }
    if exchange.asks_for(code::TFTP_SERVER_ADDRESS) {
        reply.options.set_addresses(code::TFTP_SERVER_ADDRESS, &[tftp]);
    }
}

fn blank_reply(exchange: &Exchange<'_>, kind: MessageType) -> Packet {
    let asked = exchange.packet;
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [kind.number()]);
    options.set_addresses(code::SERVER_ID, &[exchange.interface.address]);
    for echoed in [code::CLIENT_ID, code::MACHINE_UUID, code::RELAY_AGENT] {
        if let Some(value) = asked.options.get(echoed) {
            options.set(echoed, value);
        }
    }
    Packet {
        is_request: false,
        hops: 0,
        transaction: asked.transaction,
        seconds: 0,
        broadcast: asked.broadcast,
        client_address: Ipv4Addr::UNSPECIFIED,
        your_address: Ipv4Addr::UNSPECIFIED,
        next_server: Ipv4Addr::UNSPECIFIED,
        relay: asked.relay,
        hardware: asked.hardware,
        file: Vec::new(),
        options,
    }
}

/// What a machine is told of its network, the indispensable first.
fn network_options(options: &mut Options, exchange: &Exchange<'_>, with_times: bool) {
    let subnet = exchange.subnet;
    if with_times {
        let seconds = u32::try_from(subnet.lease_time.as_secs()).unwrap_or(u32::MAX);
        options.set_number32(code::LEASE_TIME, seconds);
        options.set_number32(code::RENEWAL_TIME, seconds / 2);
        options.set_number32(code::REBINDING_TIME, seconds - seconds / 8);
    }
    options.set_addresses(code::SUBNET_MASK, &[subnet.mask()]);
    options.set_addresses(code::ROUTER, subnet.gateway.as_slice());
    options.set_addresses(code::DNS_SERVER, &subnet.dns);
    options.set_addresses(code::BROADCAST_ADDRESS, &[subnet.broadcast()]);
    options.set_addresses(code::NTP_SERVER, &subnet.ntp);
    if let Some(domain) = &subnet.domain {
        options.set(code::DOMAIN_NAME, domain.as_bytes());
    }
    if let Some(name) = &exchange.plan.host_name {
        options.set(code::HOST_NAME, name.as_bytes());
    }
    if let Some(mtu) = subnet.mtu {
        options.set(code::INTERFACE_MTU, mtu.to_be_bytes());
    }
}

/// Where RFC 2131 §4.1 sends an offer or acknowledgement.
fn destination(exchange: &Exchange<'_>, address: Ipv4Addr) -> To {
    let packet = exchange.packet;
    if packet.is_relayed() {
        relay(packet)
    } else if !packet.client_address.is_unspecified() {
        To::Address(SocketAddrV4::new(packet.client_address, CLIENT_PORT))
    } else if packet.broadcast || packet.hardware.mac().is_none() {
        To::Broadcast
    } else {
        To::NewAddress { address, hardware: packet.hardware }
    }
}

fn relay(packet: &Packet) -> To {
    To::Address(SocketAddrV4::new(packet.relay, SERVER_PORT))
}

fn is_ipxe(options: &Options) -> bool {
    // iPXE writes its user class without RFC 3004's length byte; others write it with one.
    let user_class = options.get(code::USER_CLASS).unwrap_or_default();
    options.get(code::IPXE).is_some() || user_class.ends_with(b"iPXE")
}

/// The network a relay names explicitly (RFC 3527 inside option 82, or RFC 3011).
fn link_selection(options: &Options) -> Option<Ipv4Addr> {
    const LINK_SELECTION: u8 = 5;
    let mut rest = options.get(code::RELAY_AGENT).unwrap_or_default();
    while let [kind, length, tail @ ..] = rest {
        let (value, after) = tail.split_at_checked(usize::from(*length))?;
        if *kind == LINK_SELECTION {
            return Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?));
        }
        rest = after;
    }
    options.address(code::SUBNET_SELECTION)
}

fn carries_boot(packet: &Packet) -> bool {
    !packet.file.is_empty() || packet.options.get(code::BOOT_FILE_NAME).is_some()
}
