// SPDX-License-Identifier: Apache-2.0
//! The DHCPv6 protocol without sockets and clock: takes a message, the time and the DHCP leases, and
//! decides what the client gets. `reply.rs` builds the replies.

use std::net::Ipv6Addr;
use std::sync::Arc;

use dhcp_codec::v6::{
    CLIENT_PORT, Dhcp6Message, Dhcp6MessageType, Dhcp6Options, IdentityAssociation,
    RelayedDhcp6Message, SERVER_PORT, hardware_address_of_duid, option_code, status_code,
};

use super::config::{Dhcp6Interface, Dhcp6Settings, Dhcp6Subnet};
use super::exchange::{Dhcp6Exchange, Dhcp6PacketInfo};
use super::leases::DhcpLeases6;
use super::outcome::{Dhcp6Outcome, Dhcp6Reply, Dhcp6Response};
use super::reply;
use crate::{
    BootInstructions, BootRequest, BootSnapshot, BootStage, DhcpMode, FirmwareArchitecture,
    HardwareAddress, NetbootTarget,
};

/// The DHCPv6 server.
#[derive(Debug)]
pub struct Dhcp6Server {
    settings: Dhcp6Settings,
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
        let client_duid = message.options.get(option_code::CLIENT_ID);
        // Only an information request may come without a client identifier.
        if client_duid.is_none() && message.message_type != Dhcp6MessageType::InformationRequest {
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
        let mut exchange = Dhcp6Exchange {
            message,
            interface,
            subnet,
            client_duid: client_duid.unwrap_or_default(),
            server_duid: &self.settings.duid,
            now: info.now,
            stage: response.stage,
            architecture: response.architecture,
            instructions,
            boot_url: None,
        };
        exchange.boot_url = self.boot_url(&exchange);
        let (outcome, reply) = reply_to(&exchange, leases);
        response.outcome = outcome;
        let Some(reply) = reply else { return response };
        if carries_configuration(message.message_type) {
            response.no_loadable_boot_file = exchange.lacks_boot_url();
            response.boot_url = exchange.boot_url;
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

    /// Returns the URL for the requesting program.
    fn boot_url(&self, exchange: &Dhcp6Exchange<'_>) -> Option<Arc<str>> {
        let NetbootTarget::Netboot(netboot) = &exchange.instructions.boot else { return None };
        match exchange.stage {
            BootStage::System => None,
            BootStage::Ipxe => Some(netboot.ipxe_script.clone()),
            BootStage::HttpBoot => netboot.http_file.clone(),
            BootStage::Pxe => {
                let loaders = &self.settings.first_stage_loaders;
                let file = netboot.tftp_file.as_ref();
                let file = file.or_else(|| loaders.get(exchange.architecture?))?;
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

/// Handles a message of a machine that is served.
fn reply_to(
    exchange: &Dhcp6Exchange<'_>,
    leases: &mut DhcpLeases6,
) -> (Dhcp6Outcome, Option<Dhcp6Message>) {
    let message = exchange.message;
    match message.message_type {
        Dhcp6MessageType::Solicit => {
            let rapid_commit = message.options.get(option_code::RAPID_COMMIT).is_some();
            assign_addresses(exchange, leases, rapid_commit)
        }
        Dhcp6MessageType::Request | Dhcp6MessageType::Renew | Dhcp6MessageType::Rebind => {
            assign_addresses(exchange, leases, true)
        }
        Dhcp6MessageType::Confirm => confirm(exchange),
        Dhcp6MessageType::Release | Dhcp6MessageType::Decline => {
            release_or_decline(exchange, leases)
        }
        Dhcp6MessageType::InformationRequest => {
            let reply = reply::configuration_reply(exchange, Dhcp6MessageType::Reply, &[]);
            (Dhcp6Outcome::Informed, Some(reply))
        }
        Dhcp6MessageType::Advertise | Dhcp6MessageType::Reply | Dhcp6MessageType::Reconfigure => {
            (Dhcp6Outcome::Invalid, None)
        }
    }
}

/// Leases an address for each identity association of the message if `commit` is set, otherwise
/// advertises one.
fn assign_addresses(
    exchange: &Dhcp6Exchange<'_>,
    leases: &mut DhcpLeases6,
    commit: bool,
) -> (Dhcp6Outcome, Option<Dhcp6Message>) {
    let request = exchange.message;
    let extends =
        matches!(request.message_type, Dhcp6MessageType::Renew | Dhcp6MessageType::Rebind);
    let mut outcome = Dhcp6Outcome::Informed;
    let mut results = Vec::new();
    for association in IdentityAssociation::all_in(&request.options) {
        let client = exchange.client_key(&association);
        let chosen = choose_address(exchange, leases, &client, &association, extends);
        let Some(address) = chosen else {
            let (status, refused) = if extends {
                (status_code::NO_BINDING, Dhcp6Outcome::Refused)
            } else {
                (status_code::NO_ADDRESSES_AVAILABLE, Dhcp6Outcome::NoFreeAddress)
            };
            results.push(reply::refusal(&association, status));
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
        results.push(reply::grant(&association, address, lifetime));
    }
    let reply_type = if commit { Dhcp6MessageType::Reply } else { Dhcp6MessageType::Advertise };
    (outcome, Some(reply::configuration_reply(exchange, reply_type, &results)))
}

fn confirm(exchange: &Dhcp6Exchange<'_>) -> (Dhcp6Outcome, Option<Dhcp6Message>) {
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
    (outcome, Some(reply::status_reply(exchange, &[], status)))
}

fn release_or_decline(
    exchange: &Dhcp6Exchange<'_>,
    leases: &mut DhcpLeases6,
) -> (Dhcp6Outcome, Option<Dhcp6Message>) {
    let declines = exchange.message.message_type == Dhcp6MessageType::Decline;
    let mut refused = Vec::new();
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
            refused.push(reply::refusal(&association, status_code::NO_BINDING));
        }
    }
    let outcome = if declines { Dhcp6Outcome::Declined } else { Dhcp6Outcome::Released };
    (outcome, Some(reply::status_reply(exchange, &refused, status_code::SUCCESS)))
}

fn addresses(association: &IdentityAssociation) -> impl Iterator<Item = Ipv6Addr> {
    association.addresses().map(|address| address.address)
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
        DhcpMode::All => None,
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
