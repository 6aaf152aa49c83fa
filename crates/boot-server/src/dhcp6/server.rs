// SPDX-License-Identifier: Apache-2.0
//! The DHCPv6 protocol without sockets and clock: takes a message, the time and the DHCP leases, and returns
//! the reply.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;

use dhcp_codec::v6::{
    CLIENT_PORT, Dhcp6Message, Dhcp6MessageType, Dhcp6Options, IaAddress, IdentityAssociation,
    RelayedDhcp6Message, SERVER_PORT, hardware_address_of_duid, option_code, status_code,
};
use node_model::Timestamp;

use super::config::{Dhcp6Interface, Dhcp6Settings, Dhcp6Subnet};
use super::leases::DhcpLeases6;
use crate::{
    BootInstructions, BootRequest, BootSnapshot, BootStage, DhcpMode, FirmwareArchitecture,
    HardwareAddress, NetbootTarget,
};

/// The DHCPv6 server.
#[derive(Debug)]
pub struct Dhcp6Server {
    settings: Dhcp6Settings,
}

/// How a packet was received.
#[derive(Debug, Clone)]
pub struct Dhcp6PacketInfo<'a> {
    /// The interface.
    pub interface: &'a str,
    /// The IP source address and port.
    pub from: SocketAddrV6,
    /// The time of receipt.
    pub now: Timestamp,
}

/// The result of handling one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the client waits for the reply"]
pub struct Dhcp6Response {
    /// The message to send, if any.
    pub reply: Option<Dhcp6Reply>,
    /// How the message was handled.
    pub outcome: Dhcp6Outcome,
    /// The client's hardware address, if it can be determined.
    pub hardware: Option<HardwareAddress>,
    /// Whether the machine is enrolled.
    pub is_known: bool,
    /// Whether the machine was served and has a boot plan of which the requesting program can load no file.
    pub no_loadable_boot_file: bool,
    /// The program that sent the message.
    pub stage: BootStage,
    /// The architecture, if the client sent one.
    pub architecture: Option<FirmwareArchitecture>,
    /// The boot URL in the reply.
    pub boot_url: Option<Arc<str>>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp6Reply {
    /// The destination.
    pub to: SocketAddrV6,
    /// The message for the client.
    pub message: Dhcp6Message,
    /// The encoded message, wrapped for the relays.
    pub bytes: Vec<u8>,
}

/// How a message was handled, or why it got no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dhcp6Outcome {
    /// An address was advertised.
    Advertised(Ipv6Addr),
    /// An address was leased.
    Leased(Ipv6Addr),
    /// Configuration without an address was sent.
    Informed,
    /// The client's addresses are valid on its link.
    Confirmed,
    /// The client's addresses are not valid on its link.
    NotOnLink,
    /// The client cannot extend the lease of its address.
    Refused,
    /// Addresses were released.
    Released,
    /// The client declined an address because another host uses it.
    Declined,
    /// All addresses of the range are in use, or there is no range.
    NoFreeAddress,
    /// The mode of the subnet is [`Off`](crate::DhcpMode::Off).
    Disabled,
    /// The hardware address is configured to be ignored.
    Ignored,
    /// The machine is unknown, and only known machines get a reply on this subnet.
    UnknownMachine,
    /// The machine boots from its disk.
    BootsFromDisk,
    /// The message is for another server.
    OtherServerChosen,
    /// No configured subnet matches the interface or the relay.
    NoSubnet,
    /// The message is invalid here.
    Invalid,
    /// The DHCP lease could not be stored, so the address was not assigned.
    LeaseNotStored,
}

impl Dhcp6Response {
    /// Returns the address that was advertised or leased.
    pub(super) fn assigned_address(&self) -> Option<Ipv6Addr> {
        if let Dhcp6Outcome::Advertised(address) | Dhcp6Outcome::Leased(address) = self.outcome {
            return Some(address);
        }
        None
    }
}

/// The IANA enterprise number of Intel, which PXE and UEFI use in their vendor class.
const INTEL_ENTERPRISE_NUMBER: u32 = 343;

/// A message with everything that is derived from it once.
struct Dhcp6Exchange<'a> {
    message: &'a Dhcp6Message,
    interface: &'a Dhcp6Interface,
    subnet: &'a Dhcp6Subnet,
    /// The client's DUID; empty if it sent none.
    duid: &'a [u8],
    now: Timestamp,
}

impl Dhcp6Server {
    /// Returns a server with these settings.
    #[must_use]
    pub fn new(settings: Dhcp6Settings) -> Self {
        Self { settings }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Dhcp6Settings {
        &self.settings
    }

    /// Returns the client's hardware address, `None` if it cannot be determined or is ignored.
    pub(super) fn client_hardware(
        &self,
        relayed: &RelayedDhcp6Message,
        from: Ipv6Addr,
    ) -> Option<HardwareAddress> {
        hardware_address(relayed, from).filter(|it| !self.settings.ignored.contains(it))
    }

    /// Handles a message. The DHCP leases must be [committed](DhcpLeases6::commit) before the reply is sent.
    pub fn handle(
        &self,
        relayed: &RelayedDhcp6Message,
        info: &Dhcp6PacketInfo<'_>,
        leases: &mut DhcpLeases6,
        snapshot: &dyn BootSnapshot,
    ) -> Dhcp6Response {
        let message = &relayed.message;
        let architecture = message.options.get_u16(option_code::ARCHITECTURE);
        let hardware = hardware_address(relayed, *info.from.ip());
        let mut response = Dhcp6Response {
            reply: None,
            outcome: Dhcp6Outcome::Invalid,
            hardware,
            is_known: false,
            no_loadable_boot_file: false,
            stage: boot_stage(&message.options, architecture),
            architecture: architecture.map(FirmwareArchitecture::from_number),
            boot_url: None,
        };
        let interface = self.settings.interfaces.iter().find(|it| *it.name == *info.interface);
        let Some(interface) = interface else { return response };
        let duid = message.options.get(option_code::CLIENT_ID);
        // Only an information request may come without a client identifier.
        if duid.is_none() && message.message_type != Dhcp6MessageType::InformationRequest {
            return response;
        }
        if let Some(outcome) = self.reason_not_addressed(message, hardware) {
            response.outcome = outcome;
            return response;
        }
        let instructions = snapshot.instructions(&BootRequest {
            hardware: hardware.unwrap_or(HardwareAddress::new(0, &[])),
            architecture: response.architecture,
            stage: response.stage,
            interface: info.interface,
        });
        response.is_known = instructions.is_known;
        let Some(subnet) = self.subnet(relayed, interface) else {
            response.outcome = Dhcp6Outcome::NoSubnet;
            return response;
        };
        let instructions = instructions.in_mode(subnet.mode);
        if let Some(outcome) = reason_not_served(subnet.mode, &instructions, message.message_type) {
            response.outcome = outcome;
            return response;
        }
        let exchange = Dhcp6Exchange {
            message,
            interface,
            subnet,
            duid: duid.unwrap_or_default(),
            now: info.now,
        };
        let (outcome, reply) = self.reply(&exchange, leases);
        response.outcome = outcome;
        let Some(mut reply) = reply else { return response };
        if carries_configuration(message.message_type) {
            self.add_boot_options(&mut reply, &mut response, &instructions, &exchange);
        }
        let port = if relayed.hops.is_empty() { CLIENT_PORT } else { SERVER_PORT };
        let mut to = info.from;
        to.set_port(port);
        let bytes = relayed.encode_reply(&reply);
        response.reply = Some(Dhcp6Reply { to, bytes, message: reply });
        response
    }

    /// Returns why the message is not for this server, or `None` if it is.
    fn reason_not_addressed(
        &self,
        message: &Dhcp6Message,
        hardware: Option<HardwareAddress>,
    ) -> Option<Dhcp6Outcome> {
        if hardware.is_some_and(|hardware| self.settings.ignored.contains(&hardware)) {
            return Some(Dhcp6Outcome::Ignored);
        }
        let server = message.options.get(option_code::SERVER_ID);
        let needs_server = match message.message_type {
            Dhcp6MessageType::Request
            | Dhcp6MessageType::Renew
            | Dhcp6MessageType::Release
            | Dhcp6MessageType::Decline => true,
            Dhcp6MessageType::Solicit | Dhcp6MessageType::Confirm | Dhcp6MessageType::Rebind => {
                // RFC 8415, section 16: such a message with a server identifier is invalid.
                return server.is_some().then_some(Dhcp6Outcome::Invalid);
            }
            Dhcp6MessageType::InformationRequest => server.is_some(),
            Dhcp6MessageType::Advertise
            | Dhcp6MessageType::Reply
            | Dhcp6MessageType::Reconfigure => {
                return Some(Dhcp6Outcome::Invalid);
            }
        };
        (needs_server && server != Some(&self.settings.duid))
            .then_some(Dhcp6Outcome::OtherServerChosen)
    }

    fn reply(
        &self,
        exchange: &Dhcp6Exchange<'_>,
        leases: &mut DhcpLeases6,
    ) -> (Dhcp6Outcome, Option<Dhcp6Message>) {
        let message = exchange.message;
        match message.message_type {
            Dhcp6MessageType::Solicit => {
                let rapid_commit = message.options.get(option_code::RAPID_COMMIT).is_some();
                self.assign_addresses(exchange, leases, rapid_commit)
            }
            Dhcp6MessageType::Request | Dhcp6MessageType::Renew | Dhcp6MessageType::Rebind => {
                self.assign_addresses(exchange, leases, true)
            }
            Dhcp6MessageType::Confirm => self.confirm(exchange),
            Dhcp6MessageType::Release | Dhcp6MessageType::Decline => {
                self.release_or_decline(exchange, leases)
            }
            Dhcp6MessageType::InformationRequest => {
                let mut reply = self.base_reply(exchange, Dhcp6MessageType::Reply);
                add_dns_servers(&mut reply, exchange);
                (Dhcp6Outcome::Informed, Some(reply))
            }
            Dhcp6MessageType::Advertise
            | Dhcp6MessageType::Reply
            | Dhcp6MessageType::Reconfigure => (Dhcp6Outcome::Invalid, None),
        }
    }

    /// Leases an address for each identity association of the message if `commit` is set, otherwise
    /// advertises one.
    fn assign_addresses(
        &self,
        exchange: &Dhcp6Exchange<'_>,
        leases: &mut DhcpLeases6,
        commit: bool,
    ) -> (Dhcp6Outcome, Option<Dhcp6Message>) {
        let request = exchange.message;
        let reply_type = if commit { Dhcp6MessageType::Reply } else { Dhcp6MessageType::Advertise };
        let mut reply = self.base_reply(exchange, reply_type);
        if request.message_type == Dhcp6MessageType::Solicit && commit {
            reply.options.add(option_code::RAPID_COMMIT, []);
        }
        let extends =
            matches!(request.message_type, Dhcp6MessageType::Renew | Dhcp6MessageType::Rebind);
        let mut outcome = Dhcp6Outcome::Informed;
        for association in IdentityAssociation::all_in(&request.options) {
            let client = exchange.client_key(&association);
            let chosen = choose_address(exchange, leases, &client, &association, extends);
            let Some(address) = chosen else {
                let (status, refused) = if extends {
                    (status_code::NO_BINDING, Dhcp6Outcome::Refused)
                } else {
                    (status_code::NO_ADDRESSES_AVAILABLE, Dhcp6Outcome::NoFreeAddress)
                };
                reply.options.add(option_code::IA_NA, refusal(&association, status).encode());
                if !matches!(outcome, Dhcp6Outcome::Leased(_) | Dhcp6Outcome::Advertised(_)) {
                    outcome = refused;
                }
                continue;
            };
            let lifetime = exchange.subnet.lease_time;
            if commit {
                leases.lease(&client, address, exchange.now.plus(lifetime), exchange.now);
                outcome = Dhcp6Outcome::Leased(address);
            } else {
                leases.offer(&client, address, exchange.now);
                outcome = Dhcp6Outcome::Advertised(address);
            }
            let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
            reply.options.add(option_code::IA_NA, grant(&association, address, seconds).encode());
        }
        add_dns_servers(&mut reply, exchange);
        (outcome, Some(reply))
    }

    fn confirm(&self, exchange: &Dhcp6Exchange<'_>) -> (Dhcp6Outcome, Option<Dhcp6Message>) {
        let addresses: Vec<Ipv6Addr> = IdentityAssociation::all_in(&exchange.message.options)
            .flat_map(|association| addresses(&association).collect::<Vec<_>>())
            .collect();
        if addresses.is_empty() {
            return (Dhcp6Outcome::Invalid, None);
        }
        let on_link = addresses.iter().all(|address| exchange.subnet.contains(*address));
        let (status, outcome) = if on_link {
            (status_code::SUCCESS, Dhcp6Outcome::Confirmed)
        } else {
            (status_code::NOT_ON_LINK, Dhcp6Outcome::NotOnLink)
        };
        let mut reply = self.base_reply(exchange, Dhcp6MessageType::Reply);
        reply.options.add(option_code::STATUS_CODE, status.to_be_bytes());
        (outcome, Some(reply))
    }

    fn release_or_decline(
        &self,
        exchange: &Dhcp6Exchange<'_>,
        leases: &mut DhcpLeases6,
    ) -> (Dhcp6Outcome, Option<Dhcp6Message>) {
        let mut reply = self.base_reply(exchange, Dhcp6MessageType::Reply);
        let declines = exchange.message.message_type == Dhcp6MessageType::Decline;
        for association in IdentityAssociation::all_in(&exchange.message.options) {
            let client = exchange.client_key(&association);
            let mut all_leased = true;
            for address in addresses(&association) {
                all_leased &= if declines {
                    leases.decline(&client, address, exchange.now)
                } else {
                    leases.release(&client, address, exchange.now)
                };
            }
            if !all_leased {
                let refused = refusal(&association, status_code::NO_BINDING);
                reply.options.add(option_code::IA_NA, refused.encode());
            }
        }
        reply.options.add(option_code::STATUS_CODE, status_code::SUCCESS.to_be_bytes());
        (if declines { Dhcp6Outcome::Declined } else { Dhcp6Outcome::Released }, Some(reply))
    }

    /// Returns a reply with both identifiers.
    fn base_reply(
        &self,
        exchange: &Dhcp6Exchange<'_>,
        message_type: Dhcp6MessageType,
    ) -> Dhcp6Message {
        let mut options = Dhcp6Options::default();
        if !exchange.duid.is_empty() {
            options.add(option_code::CLIENT_ID, exchange.duid);
        }
        options.add(option_code::SERVER_ID, self.settings.duid.clone());
        Dhcp6Message { message_type, transaction_id: exchange.message.transaction_id, options }
    }

    /// Adds the boot URL, or records that the requesting program can load no file of the boot plan.
    fn add_boot_options(
        &self,
        reply: &mut Dhcp6Message,
        response: &mut Dhcp6Response,
        instructions: &BootInstructions,
        exchange: &Dhcp6Exchange<'_>,
    ) {
        let (stage, architecture) = (response.stage, response.architecture);
        let Some(url) = self.boot_url(instructions, stage, architecture, exchange) else {
            response.no_loadable_boot_file =
                stage != BootStage::System && instructions.boot != NetbootTarget::Disk;
            return;
        };
        reply.options.add(option_code::BOOT_FILE_URL, url.as_bytes());
        if stage == BootStage::HttpBoot {
            // UEFI ignores replies for HTTP boot without this vendor class.
            reply.options.add(option_code::VENDOR_CLASS, vendor_class("HTTPClient"));
        }
        response.boot_url = Some(url);
    }

    fn boot_url(
        &self,
        instructions: &BootInstructions,
        stage: BootStage,
        architecture: Option<FirmwareArchitecture>,
        exchange: &Dhcp6Exchange<'_>,
    ) -> Option<Arc<str>> {
        let NetbootTarget::Netboot(netboot) = &instructions.boot else { return None };
        match stage {
            BootStage::System => None,
            BootStage::Ipxe => Some(netboot.ipxe_script.clone()),
            BootStage::HttpBoot => netboot.http_file.clone(),
            BootStage::Pxe => {
                let file = netboot.tftp_file.as_ref();
                let file = file.or_else(|| self.settings.first_stage_loaders.get(architecture?))?;
                let server = exchange.subnet.tftp_server.unwrap_or(exchange.interface.address);
                Some(format!("tftp://[{server}]/{file}").into())
            }
        }
    }

    /// Returns the client's subnet, from the relay nearest to the client that identifies a link, or from
    /// the interface.
    fn subnet(
        &self,
        relayed: &RelayedDhcp6Message,
        interface: &Dhcp6Interface,
    ) -> Option<&Dhcp6Subnet> {
        let mut links = relayed.hops.iter().rev().map(|hop| hop.link);
        let link = links.find(|link| !link.is_unspecified()).unwrap_or(interface.address);
        self.settings.subnet_containing(link)
    }
}

impl Dhcp6Exchange<'_> {
    /// Returns the key of a DHCP lease: the client's DUID and the IAID.
    fn client_key(&self, association: &IdentityAssociation) -> Vec<u8> {
        [self.duid, &association.iaid].concat()
    }
}

fn add_dns_servers(reply: &mut Dhcp6Message, exchange: &Dhcp6Exchange<'_>) {
    let dns = &exchange.subnet.dns;
    if !dns.is_empty() {
        let bytes: Vec<u8> = dns.iter().flat_map(Ipv6Addr::octets).collect();
        reply.options.add(option_code::DNS_SERVERS, bytes);
    }
}

fn addresses(association: &IdentityAssociation) -> impl Iterator<Item = Ipv6Addr> {
    association.addresses().map(|address| address.address)
}

/// Returns the association of a reply that assigns an address for this many seconds.
fn grant(requested: &IdentityAssociation, address: Ipv6Addr, seconds: u32) -> IdentityAssociation {
    let mut association = IdentityAssociation {
        iaid: requested.iaid,
        renew_after: seconds / 2,
        rebind_after: seconds - seconds / 5,
        options: Dhcp6Options::default(),
    };
    association.add_address(IaAddress {
        address,
        preferred_lifetime: seconds - seconds / 4,
        valid_lifetime: seconds,
    });
    association
}

/// Returns the association of a reply that assigns no address.
fn refusal(requested: &IdentityAssociation, status: u16) -> IdentityAssociation {
    let mut association = IdentityAssociation { iaid: requested.iaid, ..Default::default() };
    association.options.add(option_code::STATUS_CODE, status.to_be_bytes());
    association
}

/// Chooses an address in this order: previous, requested, any free one. If `extends` is set, only a
/// requested address qualifies.
fn choose_address(
    exchange: &Dhcp6Exchange<'_>,
    leases: &mut DhcpLeases6,
    client: &[u8],
    association: &IdentityAssociation,
    extends: bool,
) -> Option<Ipv6Addr> {
    let now = exchange.now;
    let subnet = exchange.subnet;
    let server = exchange.interface.address;
    let may_lease = |leases: &DhcpLeases6, address: Ipv6Addr| {
        subnet.in_range(address)
            && address != server
            && leases.is_available_to(client, address, now)
    };
    let mut chosen = addresses(association).find(|address| may_lease(leases, *address));
    if !extends {
        let previous = leases.previous_address(client, now);
        let previous = previous.filter(|address| may_lease(leases, *address));
        chosen = previous.or(chosen).or_else(|| leases.pick_address(subnet, client, server, now));
    }
    chosen.filter(|address| leases.has_room_for(*address, now))
}

/// Returns why the machine gets no reply, or `None` if it gets one.
fn reason_not_served(
    mode: DhcpMode,
    instructions: &BootInstructions,
    message_type: Dhcp6MessageType,
) -> Option<Dhcp6Outcome> {
    let gives_up = matches!(message_type, Dhcp6MessageType::Release | Dhcp6MessageType::Decline);
    let keeps = matches!(
        message_type,
        Dhcp6MessageType::Renew | Dhcp6MessageType::Rebind | Dhcp6MessageType::Confirm
    );
    match mode {
        DhcpMode::Off => Some(Dhcp6Outcome::Disabled),
        DhcpMode::Proxy if message_type != Dhcp6MessageType::InformationRequest => {
            Some(Dhcp6Outcome::Invalid)
        }
        DhcpMode::Proxy if !instructions.is_known => Some(Dhcp6Outcome::UnknownMachine),
        DhcpMode::Proxy => (!instructions.is_booting).then_some(Dhcp6Outcome::BootsFromDisk),
        DhcpMode::Reserve => {
            (!instructions.is_known && !gives_up).then_some(Dhcp6Outcome::UnknownMachine)
        }
        DhcpMode::Discover => {
            let boots_from_disk = instructions.is_known && !instructions.is_booting;
            (boots_from_disk && !gives_up && !keeps).then_some(Dhcp6Outcome::BootsFromDisk)
        }
    }
}

fn carries_configuration(message_type: Dhcp6MessageType) -> bool {
    !matches!(
        message_type,
        Dhcp6MessageType::Confirm | Dhcp6MessageType::Release | Dhcp6MessageType::Decline
    )
}

fn boot_stage(options: &Dhcp6Options, architecture: Option<u16>) -> BootStage {
    // A vendor class is a 4-byte enterprise number, then strings with 2-byte lengths.
    let class = options.get(option_code::VENDOR_CLASS).and_then(|value| value.get(6..));
    let user = options.get(option_code::USER_CLASS).unwrap_or_default();
    BootStage::detect(class.unwrap_or_default(), user.ends_with(b"iPXE"), architecture)
}

fn vendor_class(class: &str) -> Vec<u8> {
    let mut out = INTEL_ENTERPRISE_NUMBER.to_be_bytes().to_vec();
    out.extend((class.len() as u16).to_be_bytes());
    out.extend_from_slice(class.as_bytes());
    out
}

/// Returns the client's hardware address from the relay (RFC 6939), else from a link-local address that
/// contains it, else from the DUID. The DUID is last because it may contain the address of another NIC.
fn hardware_address(relayed: &RelayedDhcp6Message, from: Ipv6Addr) -> Option<HardwareAddress> {
    let nearest = relayed.hops.last();
    if let Some(value) = nearest.and_then(|hop| hop.options.get(option_code::CLIENT_LINK_LAYER))
        && let Some((hardware_type, address)) = value.split_first_chunk::<2>()
    {
        return Some(HardwareAddress::new(hardware_type[1], address));
    }
    let peer = nearest.map_or(from, |hop| hop.peer);
    let from_duid = || {
        let duid = relayed.message.options.get(option_code::CLIENT_ID)?;
        hardware_address_of_duid(duid)
    };
    hardware_from_link_local(peer).or_else(from_duid)
}

/// Returns the MAC address in a link-local address with a modified EUI-64 interface identifier.
fn hardware_from_link_local(address: Ipv6Addr) -> Option<HardwareAddress> {
    let bytes = address.octets();
    let is_eui64 = address.is_unicast_link_local() && bytes[11] == 0xff && bytes[12] == 0xfe;
    is_eui64.then(|| {
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
