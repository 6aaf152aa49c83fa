// SPDX-License-Identifier: Apache-2.0
//! The DHCPv4 protocol without sockets and clock: takes a packet, the time and the DHCP leases, and decides
//! what the client gets. `reply.rs` builds the replies.

use std::net::Ipv4Addr;
use std::sync::Arc;

use dhcp_codec::v4::{Dhcp4MessageType, Dhcp4Options, Dhcp4Packet, option_code};

use super::config::{Dhcp4Interface, Dhcp4Settings, Dhcp4Subnet};
use super::exchange::{Dhcp4Exchange, Dhcp4PacketInfo, Dhcp4Port};
use super::leases::{DhcpLeaseState, DhcpLeases4, client_key};
use super::outcome::{Dhcp4Outcome, Dhcp4Reply, Dhcp4Response};
use super::reply;
use crate::{BootRequest, BootSnapshot, BootStage, DhcpMode, FirmwareArchitecture, NetbootTarget};

/// The DHCPv4 server.
#[derive(Debug)]
pub struct Dhcp4Server {
    settings: Dhcp4Settings,
}

impl Dhcp4Server {
    /// Returns a server with these settings.
    #[must_use]
    pub fn new(settings: Dhcp4Settings) -> Self {
        Self { settings }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Dhcp4Settings {
        &self.settings
    }

    /// Handles a packet. The DHCP leases must be [committed](DhcpLeases4::commit) before the reply is sent.
    pub fn handle(
        &self,
        packet: &Dhcp4Packet,
        info: &Dhcp4PacketInfo<'_>,
        leases: &mut DhcpLeases4,
        snapshot: &dyn BootSnapshot,
    ) -> Dhcp4Response {
        let architecture = packet.options.get_u16(option_code::ARCHITECTURE);
        let vendor_class = packet.options.get(option_code::VENDOR_CLASS).unwrap_or_default();
        let mut response = Dhcp4Response {
            reply: None,
            outcome: Dhcp4Outcome::Invalid,
            is_known: false,
            no_loadable_boot_file: false,
            stage: BootStage::detect(vendor_class, is_ipxe(&packet.options), architecture),
            architecture: architecture.map(FirmwareArchitecture::from_number),
            boot_file: None,
        };
        let interface = self.settings.interfaces.iter().find(|it| *it.name == *info.interface);
        let (Some(interface), Some(client), Some(message_type)) =
            (interface, client_key(packet), packet.message_type())
        else {
            return response;
        };
        if !packet.is_request {
            return response;
        }
        if self.settings.ignored.contains(&packet.hardware) {
            response.outcome = Dhcp4Outcome::Ignored;
            return response;
        }
        let instructions = snapshot.instructions(&BootRequest {
            hardware: packet.hardware,
            architecture: response.architecture,
            stage: response.stage,
            interface: info.interface,
        });
        response.is_known = instructions.is_known;
        let Some(subnet) = self.subnet(packet, info, interface) else {
            response.outcome = Dhcp4Outcome::NoSubnet;
            return response;
        };
        let mut exchange = Dhcp4Exchange {
            packet,
            info,
            interface,
            subnet,
            client,
            stage: response.stage,
            architecture: response.architecture,
            instructions: instructions.in_mode(subnet.mode),
            boot_file: None,
        };
        exchange.boot_file = self.boot_file(&exchange);
        let (outcome, reply) = match (subnet.mode, info.port) {
            (DhcpMode::Off, _) => (Dhcp4Outcome::Disabled, None),
            (DhcpMode::Proxy, _) => proxy_dhcp(&exchange, message_type),
            (DhcpMode::Reserve | DhcpMode::Discover | DhcpMode::All, Dhcp4Port::Dhcp) => {
                serve_addresses(&exchange, message_type, leases)
            }
            (DhcpMode::Reserve | DhcpMode::Discover | DhcpMode::All, Dhcp4Port::Pxe) => {
                (Dhcp4Outcome::Invalid, None)
            }
        };
        response.outcome = outcome;
        response.no_loadable_boot_file =
            matches!(outcome, Dhcp4Outcome::Offered(_) | Dhcp4Outcome::Leased(_))
                && exchange.lacks_boot_file();
        if reply.as_ref().is_some_and(Dhcp4Reply::has_boot_file) {
            response.boot_file = exchange.boot_file.take();
        }
        response.reply = reply;
        response
    }

    /// Returns the file or URL for the requesting program.
    fn boot_file(&self, exchange: &Dhcp4Exchange<'_>) -> Option<Arc<str>> {
        let NetbootTarget::Netboot(netboot) = &exchange.instructions.boot else { return None };
        match exchange.stage {
            BootStage::System => None,
            BootStage::Ipxe => Some(netboot.ipxe_script.clone()),
            BootStage::HttpBoot => netboot.http_file.clone(),
            BootStage::Pxe => netboot.tftp_file.clone().or_else(|| {
                let architecture = exchange.architecture.unwrap_or(FirmwareArchitecture::Bios);
                self.settings.first_stage_loaders.get(architecture).cloned()
            }),
        }
    }

    /// Returns the client's subnet, from the relay or the interface.
    fn subnet(
        &self,
        packet: &Dhcp4Packet,
        info: &Dhcp4PacketInfo<'_>,
        interface: &Dhcp4Interface,
    ) -> Option<&Dhcp4Subnet> {
        let settings = &self.settings;
        if packet.is_relayed() {
            let link = link_selection(&packet.options).unwrap_or(packet.relay);
            return settings.subnet_containing(link);
        }
        let interface_subnet = || settings.subnet_containing(interface.address);
        let has_address = !packet.client_address.is_unspecified();
        if !has_address || *info.from.ip() != packet.client_address {
            return interface_subnet();
        }
        // A routed unicast packet names no relay, so the client's address identifies the subnet. Next to
        // another DHCP server that address may be outside the configured subnets.
        let found = settings.subnet_containing(packet.client_address);
        match info.port {
            Dhcp4Port::Dhcp => found,
            Dhcp4Port::Pxe => found.or_else(interface_subnet),
        }
    }
}

/// Handles a message in the modes that assign addresses.
fn serve_addresses(
    exchange: &Dhcp4Exchange<'_>,
    message_type: Dhcp4MessageType,
    leases: &mut DhcpLeases4,
) -> (Dhcp4Outcome, Option<Dhcp4Reply>) {
    let packet = exchange.packet;
    // Releases are accepted whatever the machine boots now.
    match message_type {
        Dhcp4MessageType::Release => return release(exchange, leases),
        Dhcp4MessageType::Decline => return decline(exchange, leases),
        Dhcp4MessageType::Discover | Dhcp4MessageType::Request | Dhcp4MessageType::Inform => {}
        Dhcp4MessageType::Offer | Dhcp4MessageType::Ack | Dhcp4MessageType::Nak => {
            return (Dhcp4Outcome::Invalid, None);
        }
    }
    let now = exchange.info.now;
    let renews = message_type == Dhcp4MessageType::Request
        && leases.holds(&exchange.client, packet.client_address, now);
    if let Some(outcome) = reason_not_served(exchange, renews) {
        return (outcome, None);
    }
    match message_type {
        Dhcp4MessageType::Discover => discover(exchange, leases),
        Dhcp4MessageType::Request => request(exchange, leases),
        Dhcp4MessageType::Inform => inform(exchange),
        Dhcp4MessageType::Release
        | Dhcp4MessageType::Decline
        | Dhcp4MessageType::Offer
        | Dhcp4MessageType::Ack
        | Dhcp4MessageType::Nak => (Dhcp4Outcome::Invalid, None),
    }
}

/// Handles a message in proxy mode: boot information only, another server assigns the address.
fn proxy_dhcp(
    exchange: &Dhcp4Exchange<'_>,
    message_type: Dhcp4MessageType,
) -> (Dhcp4Outcome, Option<Dhcp4Reply>) {
    let reply_type = match (exchange.info.port, message_type) {
        (Dhcp4Port::Dhcp, Dhcp4MessageType::Discover) => Dhcp4MessageType::Offer,
        (Dhcp4Port::Pxe, Dhcp4MessageType::Request | Dhcp4MessageType::Inform) => {
            Dhcp4MessageType::Ack
        }
        // A request on port 67 is for the server whose address was chosen.
        (Dhcp4Port::Dhcp, Dhcp4MessageType::Request) => {
            return (Dhcp4Outcome::OtherServerChosen, None);
        }
        (Dhcp4Port::Dhcp, Dhcp4MessageType::Inform)
        | (Dhcp4Port::Pxe, Dhcp4MessageType::Discover)
        | (
            Dhcp4Port::Dhcp | Dhcp4Port::Pxe,
            Dhcp4MessageType::Offer
            | Dhcp4MessageType::Decline
            | Dhcp4MessageType::Ack
            | Dhcp4MessageType::Nak
            | Dhcp4MessageType::Release,
        ) => return (Dhcp4Outcome::Invalid, None),
    };
    if exchange.stage == BootStage::System {
        return (Dhcp4Outcome::NotNetboot, None);
    }
    if exchange.instructions.boot == NetbootTarget::Disk {
        let outcome = if exchange.instructions.is_known {
            Dhcp4Outcome::BootsFromDisk
        } else {
            Dhcp4Outcome::UnknownMachine
        };
        return (outcome, None);
    }
    if exchange.boot_file.is_none() {
        return (Dhcp4Outcome::NoBootFile, None);
    }
    (Dhcp4Outcome::ProxyReplied, Some(reply::proxy_reply(exchange, reply_type)))
}

/// Returns why the machine gets no address, or `None` if it gets one.
fn reason_not_served(exchange: &Dhcp4Exchange<'_>, renews: bool) -> Option<Dhcp4Outcome> {
    let instructions = &exchange.instructions;
    let has_reservation = exchange.subnet.reservation(exchange.packet.hardware).is_some();
    match exchange.subnet.mode {
        DhcpMode::Off => Some(Dhcp4Outcome::Disabled),
        DhcpMode::Proxy => Some(Dhcp4Outcome::NotNetboot),
        DhcpMode::Reserve => {
            (!instructions.is_known && !has_reservation).then_some(Dhcp4Outcome::UnknownMachine)
        }
        // A ramdisk can renew its address until it is done, also after the boot plan was removed.
        DhcpMode::Discover if instructions.is_known => {
            (!instructions.is_booting && !renews && !has_reservation)
                .then_some(Dhcp4Outcome::BootsFromDisk)
        }
        DhcpMode::Discover | DhcpMode::All => None,
    }
}

fn discover(
    exchange: &Dhcp4Exchange<'_>,
    leases: &mut DhcpLeases4,
) -> (Dhcp4Outcome, Option<Dhcp4Reply>) {
    let requested = exchange.packet.options.get_address(option_code::REQUESTED_ADDRESS);
    if !has_share(exchange, leases) {
        return (Dhcp4Outcome::UnknownShareUsed, None);
    }
    let Some(address) = choose_address(exchange, leases, requested) else {
        return (Dhcp4Outcome::NoFreeAddress, None);
    };
    let now = exchange.info.now;
    // An address that this client leased before, or that is reserved, needs no probe. One that was only
    // offered is probed again, because a conflict may have been found since.
    let was_leased = leases.get(address).is_some_and(|lease| {
        lease.state == DhcpLeaseState::Leased && *lease.client == *exchange.client
    });
    let needs_probe = !was_leased && reserved_address(exchange) != Some(address);
    leases.offer(exchange.holder(), address, now);
    let probe = (needs_probe && !exchange.packet.is_relayed()).then_some(address);
    (Dhcp4Outcome::Offered(address), Some(reply::offer(exchange, address, probe)))
}

fn request(
    exchange: &Dhcp4Exchange<'_>,
    leases: &mut DhcpLeases4,
) -> (Dhcp4Outcome, Option<Dhcp4Reply>) {
    let packet = exchange.packet;
    let now = exchange.info.now;
    if let Some(server) = packet.options.get_address(option_code::SERVER_ID)
        && server != exchange.interface.address
    {
        leases.withdraw_offer(&exchange.client, now);
        return (Dhcp4Outcome::OtherServerChosen, None);
    }
    let has_address = !packet.client_address.is_unspecified();
    let requested = if has_address {
        Some(packet.client_address)
    } else {
        packet.options.get_address(option_code::REQUESTED_ADDRESS)
    };
    let Some(requested) = requested else { return (Dhcp4Outcome::Invalid, None) };
    if !has_share(exchange, leases) {
        // Other servers may know the machine, so there is no DHCPNAK.
        return (Dhcp4Outcome::UnknownShareUsed, None);
    }
    if !may_lease(exchange, leases, requested) {
        return (Dhcp4Outcome::Refused(requested), Some(reply::refusal(exchange)));
    }
    leases.lease(exchange.holder(), requested, now.plus(exchange.subnet.lease_time), now);
    (Dhcp4Outcome::Leased(requested), Some(reply::acknowledgement(exchange, requested)))
}

/// Chooses an address in this order: reserved, previous, requested, any free one.
fn choose_address(
    exchange: &Dhcp4Exchange<'_>,
    leases: &mut DhcpLeases4,
    requested: Option<Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let now = exchange.info.now;
    let client = &exchange.client;
    let server = exchange.interface.address;
    if let Some(address) = reserved_address(exchange)
        && leases.is_available_to(client, address, now)
    {
        return Some(address);
    }
    let previous = leases.previous_address(client, now);
    [previous, requested]
        .into_iter()
        .flatten()
        .find(|address| {
            is_dynamic(exchange, *address) && leases.is_available_to(client, *address, now)
        })
        .or_else(|| leases.pick_address(exchange.subnet, client, server, now))
}

/// Returns whether the machine is known, or unknown machines do not hold all addresses they may.
fn has_share(exchange: &Dhcp4Exchange<'_>, leases: &mut DhcpLeases4) -> bool {
    !exchange.is_unknown()
        || leases.unknown_may_lease(exchange.subnet, &exchange.client, exchange.info.now)
}

/// Returns whether the client may lease exactly this address.
fn may_lease(exchange: &Dhcp4Exchange<'_>, leases: &DhcpLeases4, address: Ipv4Addr) -> bool {
    let now = exchange.info.now;
    let is_reserved = reserved_address(exchange) == Some(address);
    (is_reserved || is_dynamic(exchange, address))
        && leases.is_available_to(&exchange.client, address, now)
}

/// Returns whether the address is in a range and not reserved.
fn is_dynamic(exchange: &Dhcp4Exchange<'_>, address: Ipv4Addr) -> bool {
    let subnet = exchange.subnet;
    subnet.in_range(address)
        && address != exchange.interface.address
        && Some(address) != subnet.gateway
        && !subnet.reservations.iter().any(|reservation| reservation.address == address)
}

/// Returns the address that is reserved for the client on this subnet.
fn reserved_address(exchange: &Dhcp4Exchange<'_>) -> Option<Ipv4Addr> {
    let subnet = exchange.subnet;
    let reservation = subnet.reservation(exchange.packet.hardware)?;
    Some(reservation.address).filter(|address| subnet.is_usable(*address))
}

fn release(
    exchange: &Dhcp4Exchange<'_>,
    leases: &mut DhcpLeases4,
) -> (Dhcp4Outcome, Option<Dhcp4Reply>) {
    let address = exchange.packet.client_address;
    let released = leases.release(&exchange.client, address, exchange.info.now);
    (if released { Dhcp4Outcome::Released(address) } else { Dhcp4Outcome::Invalid }, None)
}

/// Accepts a decline only from the lease holder. Otherwise any client could exhaust the ranges with one
/// packet per address.
fn decline(
    exchange: &Dhcp4Exchange<'_>,
    leases: &mut DhcpLeases4,
) -> (Dhcp4Outcome, Option<Dhcp4Reply>) {
    let Some(address) = exchange.packet.options.get_address(option_code::REQUESTED_ADDRESS) else {
        return (Dhcp4Outcome::Invalid, None);
    };
    let now = exchange.info.now;
    if !leases.holds(&exchange.client, address, now) {
        return (Dhcp4Outcome::Invalid, None);
    }
    // Other processes accept the quarantine only for an address that no client holds.
    leases.release(&exchange.client, address, now);
    leases.quarantine(address, now);
    (Dhcp4Outcome::Declined(address), None)
}

fn inform(exchange: &Dhcp4Exchange<'_>) -> (Dhcp4Outcome, Option<Dhcp4Reply>) {
    if exchange.packet.client_address.is_unspecified() {
        return (Dhcp4Outcome::Invalid, None);
    }
    (Dhcp4Outcome::Informed, Some(reply::information(exchange)))
}

fn is_ipxe(options: &Dhcp4Options) -> bool {
    // iPXE sends its user class without the length byte of RFC 3004; other clients send the byte.
    let user_class = options.get(option_code::USER_CLASS).unwrap_or_default();
    options.get(option_code::IPXE).is_some() || user_class.ends_with(b"iPXE")
}

/// Returns the subnet that a relay selects explicitly: RFC 3527 inside option 82, or RFC 3011.
fn link_selection(options: &Dhcp4Options) -> Option<Ipv4Addr> {
    const LINK_SELECTION: u8 = 5;
    let mut rest = options.get(option_code::RELAY_AGENT_INFORMATION).unwrap_or_default();
    while let [code, length, tail @ ..] = rest {
        let (value, after) = tail.split_at_checked(usize::from(*length))?;
        if *code == LINK_SELECTION {
            return Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?));
        }
        rest = after;
    }
    options.get_address(option_code::SUBNET_SELECTION)
}
