// SPDX-License-Identifier: Apache-2.0
//! DHCPv6 messages (RFC 8415), relay wrapping, identity associations, DUIDs, and the network boot options
//! of RFC 5970.

mod duid;
mod identity_association;
mod message;
mod options;
#[cfg(test)]
mod tests;

pub use duid::{hardware_address_of_duid, link_layer_duid};
pub use identity_association::{IaAddress, IdentityAssociation};
pub use message::{Dhcp6Message, Dhcp6MessageType, Dhcp6RelayHop, RelayedDhcp6Message};
pub use options::{Dhcp6Options, option_code};

use std::net::Ipv6Addr;

/// The UDP port of DHCPv6 clients.
pub const CLIENT_PORT: u16 = 546;
/// The UDP port of DHCPv6 servers and relays.
pub const SERVER_PORT: u16 = 547;
/// The multicast group of all servers and relays on a link.
pub const ALL_SERVERS_AND_RELAYS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// The largest number of relays that a message may have passed.
const MAX_HOPS: usize = 8;

/// Values of the status code option.
pub mod status_code {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const SUCCESS: u16 = 0;
    pub const NO_ADDRESSES_AVAILABLE: u16 = 2;
    pub const NO_BINDING: u16 = 3;
    pub const NOT_ON_LINK: u16 = 4;
}

/// Bytes that are not a DHCPv6 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dhcp6DecodeError {
    /// The message ends inside a field.
    #[error("the message is truncated")]
    Truncated,
    /// A type that is not exchanged between client and server.
    #[error("message type {0} is not exchanged between client and server")]
    MessageType(u8),
    /// A relay-forward message without the relayed message.
    #[error("a relay-forward message contains no message")]
    EmptyRelay,
    /// Too many nested relay-forward messages.
    #[error("the message passed more than {MAX_HOPS} relays")]
    TooManyRelays,
}
