// SPDX-License-Identifier: Apache-2.0
//! Builds the DHCPv4 replies: their options, header fields and destination.

use std::net::{Ipv4Addr, SocketAddrV4};

use dhcp_codec::v4::{
    CLIENT_PORT, Dhcp4MessageType, Dhcp4Options, Dhcp4Packet, SERVER_PORT, option_code,
};

use super::exchange::{Dhcp4Exchange, Dhcp4Port};
use super::outcome::{Dhcp4Destination, Dhcp4Reply};
use crate::BootStage;

/// Returns the offer of an address. `probe` is an address to probe before the offer is sent.
pub(super) fn offer(
    exchange: &Dhcp4Exchange<'_>,
    address: Ipv4Addr,
    probe: Option<Ipv4Addr>,
) -> Dhcp4Reply {
    let mut packet = full_reply(exchange, Dhcp4MessageType::Offer);
    packet.your_address = address;
    Dhcp4Reply { to: destination(exchange, address), packet, probe }
}

/// Returns the acknowledgement of a leased address.
pub(super) fn acknowledgement(exchange: &Dhcp4Exchange<'_>, address: Ipv4Addr) -> Dhcp4Reply {
    let mut packet = full_reply(exchange, Dhcp4MessageType::Ack);
    packet.your_address = address;
    packet.client_address = exchange.packet.client_address;
    Dhcp4Reply { to: destination(exchange, address), packet, probe: None }
}

/// Returns the reply to DHCPINFORM: network options without an address.
pub(super) fn information(exchange: &Dhcp4Exchange<'_>) -> Dhcp4Reply {
    let client_address = exchange.packet.client_address;
    let mut packet = base_reply(exchange, Dhcp4MessageType::Ack);
    add_network_options(&mut packet.options, exchange, false);
    packet.client_address = client_address;
    let to = Dhcp4Destination::Address(SocketAddrV4::new(client_address, CLIENT_PORT));
    Dhcp4Reply { to, packet, probe: None }
}

/// Returns the reply of a proxy: boot options without an address.
pub(super) fn proxy_reply(
    exchange: &Dhcp4Exchange<'_>,
    message_type: Dhcp4MessageType,
) -> Dhcp4Reply {
    let mut packet = base_reply(exchange, message_type);
    add_boot_options(&mut packet, exchange);
    packet.client_address = exchange.packet.client_address;
    let class = if exchange.stage == BootStage::HttpBoot { "HTTPClient" } else { "PXEClient" };
    packet.options.set(option_code::VENDOR_CLASS, class);
    if exchange.stage != BootStage::HttpBoot {
        // PXE discovery control 8: skip boot server discovery and load the file in this reply.
        packet.options.set(option_code::VENDOR_SPECIFIC, [6, 1, 8, 255]);
    }
    let to = if exchange.packet.is_relayed() {
        relay_destination(exchange.packet)
    } else {
        match exchange.info.port {
            Dhcp4Port::Pxe => Dhcp4Destination::Address(exchange.info.from),
            Dhcp4Port::Dhcp => Dhcp4Destination::Broadcast,
        }
    };
    Dhcp4Reply { to, packet, probe: None }
}

/// Returns DHCPNAK: the requested address is not available to the client.
pub(super) fn refusal(exchange: &Dhcp4Exchange<'_>) -> Dhcp4Reply {
    let mut packet = base_reply(exchange, Dhcp4MessageType::Nak);
    packet.options.set(option_code::MESSAGE, "address not available to this client");
    let to = if packet.is_relayed() {
        // The relay must broadcast it, because the client has no valid address.
        packet.broadcast = true;
        relay_destination(exchange.packet)
    } else {
        Dhcp4Destination::Broadcast
    };
    Dhcp4Reply { to, packet, probe: None }
}

/// Returns a reply with network and boot options, without an address.
fn full_reply(exchange: &Dhcp4Exchange<'_>, message_type: Dhcp4MessageType) -> Dhcp4Packet {
    let mut reply = base_reply(exchange, message_type);
    add_network_options(&mut reply.options, exchange, true);
    add_boot_options(&mut reply, exchange);
    reply
}

/// Returns a reply with the message type, the server identifier and the options that have to be echoed.
fn base_reply(exchange: &Dhcp4Exchange<'_>, message_type: Dhcp4MessageType) -> Dhcp4Packet {
    let request = exchange.packet;
    let mut reply = Dhcp4Packet::reply_to(request, message_type);
    reply.options.set_addresses(option_code::SERVER_ID, &[exchange.interface.address]);
    for code in
        [option_code::CLIENT_ID, option_code::MACHINE_UUID, option_code::RELAY_AGENT_INFORMATION]
    {
        if let Some(value) = request.options.get(code) {
            reply.options.set(code, value);
        }
    }
    reply
}

/// Adds the network configuration, the most important options first.
fn add_network_options(
    options: &mut Dhcp4Options,
    exchange: &Dhcp4Exchange<'_>,
    with_lease_times: bool,
) {
    let subnet = exchange.subnet;
    if with_lease_times {
        let seconds = u32::try_from(subnet.lease_time.as_secs()).unwrap_or(u32::MAX);
        options.set_u32(option_code::LEASE_TIME, seconds);
        options.set_u32(option_code::RENEWAL_TIME, seconds / 2);
        options.set_u32(option_code::REBINDING_TIME, seconds - seconds / 8);
    }
    options.set_addresses(option_code::SUBNET_MASK, &[subnet.mask()]);
    options.set_addresses(option_code::ROUTER, subnet.gateway.as_slice());
    options.set_addresses(option_code::DNS_SERVER, &subnet.dns);
    options.set_addresses(option_code::BROADCAST_ADDRESS, &[subnet.broadcast()]);
    options.set_addresses(option_code::NTP_SERVER, &subnet.ntp);
    if let Some(domain) = &subnet.domain {
        options.set(option_code::DOMAIN_NAME, domain.as_bytes());
    }
    if let Some(name) = &exchange.instructions.host_name {
        options.set(option_code::HOST_NAME, name.as_bytes());
    }
    if let Some(mtu) = subnet.mtu {
        options.set(option_code::INTERFACE_MTU, mtu.to_be_bytes());
    }
}

/// Adds the boot file and the server to load it from, if there is a boot file.
fn add_boot_options(reply: &mut Dhcp4Packet, exchange: &Dhcp4Exchange<'_>) {
    let Some(file) = &exchange.boot_file else { return };
    let tftp_server = exchange.subnet.tftp_server.unwrap_or(exchange.interface.address);
    reply.next_server = tftp_server;
    let fits_header = file.len() < 128;
    if fits_header {
        reply.file = file.as_bytes().to_vec();
    }
    // All firmware reads the header fields; the options are for clients that request them.
    if exchange.requests_option(option_code::BOOT_FILE_NAME) || !fits_header {
        reply.options.set(option_code::BOOT_FILE_NAME, file.as_bytes());
    }
    if exchange.stage == BootStage::HttpBoot {
        // UEFI ignores offers for HTTP boot without this vendor class.
        reply.options.set(option_code::VENDOR_CLASS, "HTTPClient");
        return;
    }
    if exchange.requests_option(option_code::TFTP_SERVER_NAME) {
        reply.options.set(option_code::TFTP_SERVER_NAME, tftp_server.to_string());
    }
    if exchange.requests_option(option_code::TFTP_SERVER_ADDRESS) {
        reply.options.set_addresses(option_code::TFTP_SERVER_ADDRESS, &[tftp_server]);
    }
}

/// Returns the destination of an offer or acknowledgement (RFC 2131, section 4.1).
fn destination(exchange: &Dhcp4Exchange<'_>, address: Ipv4Addr) -> Dhcp4Destination {
    let packet = exchange.packet;
    if packet.is_relayed() {
        relay_destination(packet)
    } else if !packet.client_address.is_unspecified() {
        Dhcp4Destination::Address(SocketAddrV4::new(packet.client_address, CLIENT_PORT))
    } else if packet.broadcast || packet.hardware.mac().is_none() {
        Dhcp4Destination::Broadcast
    } else {
        Dhcp4Destination::NewAddress { address, hardware: packet.hardware }
    }
}

fn relay_destination(packet: &Dhcp4Packet) -> Dhcp4Destination {
    Dhcp4Destination::Address(SocketAddrV4::new(packet.relay, SERVER_PORT))
}
