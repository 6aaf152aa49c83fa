// SPDX-License-Identifier: Apache-2.0
//! Builds the DHCPv6 replies: their options and identity associations.

use std::net::Ipv6Addr;
use std::time::Duration;

use dhcp_codec::v6::{
    Dhcp6Message, Dhcp6MessageType, Dhcp6Options, IaAddress, IdentityAssociation, option_code,
};

use super::exchange::Dhcp6Exchange;
use crate::BootStage;

/// The IANA enterprise number of Intel, which PXE and UEFI use in their vendor class.
const INTEL_ENTERPRISE_NUMBER: u32 = 343;

/// Returns a reply with a status, without network and boot options.
pub(super) fn status_reply(
    exchange: &Dhcp6Exchange<'_>,
    associations: &[IdentityAssociation],
    status: u16,
) -> Dhcp6Message {
    let mut reply = base_reply(exchange, Dhcp6MessageType::Reply);
    add_associations(&mut reply.options, associations);
    reply.options.add(option_code::STATUS_CODE, status.to_be_bytes());
    reply
}

/// Returns a reply with network and boot options. `associations` has the result of each requested one.
pub(super) fn configuration_reply(
    exchange: &Dhcp6Exchange<'_>,
    message_type: Dhcp6MessageType,
    associations: &[IdentityAssociation],
) -> Dhcp6Message {
    let mut reply = base_reply(exchange, message_type);
    let is_rapid_commit = exchange.message.message_type == Dhcp6MessageType::Solicit
        && message_type == Dhcp6MessageType::Reply;
    if is_rapid_commit {
        reply.options.add(option_code::RAPID_COMMIT, []);
    }
    add_associations(&mut reply.options, associations);
    add_network_options(&mut reply.options, exchange);
    add_boot_options(&mut reply.options, exchange);
    reply
}

/// Returns the association of a reply that assigns an address.
pub(super) fn grant(
    requested: &IdentityAssociation,
    address: Ipv6Addr,
    lifetime: Duration,
) -> IdentityAssociation {
    let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
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
pub(super) fn refusal(requested: &IdentityAssociation, status: u16) -> IdentityAssociation {
    let mut association = IdentityAssociation { iaid: requested.iaid, ..Default::default() };
    association.options.add(option_code::STATUS_CODE, status.to_be_bytes());
    association
}

/// Returns a reply with both identifiers.
fn base_reply(exchange: &Dhcp6Exchange<'_>, message_type: Dhcp6MessageType) -> Dhcp6Message {
    let mut options = Dhcp6Options::default();
    if !exchange.client_duid.is_empty() {
        options.add(option_code::CLIENT_ID, exchange.client_duid);
    }
    options.add(option_code::SERVER_ID, exchange.server_duid);
    Dhcp6Message { message_type, transaction_id: exchange.message.transaction_id, options }
}

fn add_associations(options: &mut Dhcp6Options, associations: &[IdentityAssociation]) {
    for association in associations {
        options.add(option_code::IA_NA, association.encode());
    }
}

/// Adds the network configuration. Routers announce prefix and gateway.
fn add_network_options(options: &mut Dhcp6Options, exchange: &Dhcp6Exchange<'_>) {
    let dns = &exchange.subnet.dns;
    if !dns.is_empty() {
        let bytes: Vec<u8> = dns.iter().flat_map(Ipv6Addr::octets).collect();
        options.add(option_code::DNS_SERVERS, bytes);
    }
}

/// Adds the boot URL, if there is one.
fn add_boot_options(options: &mut Dhcp6Options, exchange: &Dhcp6Exchange<'_>) {
    let Some(url) = &exchange.boot_url else { return };
    options.add(option_code::BOOT_FILE_URL, url.as_bytes());
    if exchange.stage == BootStage::HttpBoot {
        // UEFI ignores replies for HTTP boot without this vendor class.
        options.add(option_code::VENDOR_CLASS, vendor_class("HTTPClient"));
    }
}

fn vendor_class(class: &str) -> Vec<u8> {
    let mut out = INTEL_ENTERPRISE_NUMBER.to_be_bytes().to_vec();
    out.extend((class.len() as u16).to_be_bytes());
    out.extend_from_slice(class.as_bytes());
    out
}
