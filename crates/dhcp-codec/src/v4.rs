// SPDX-License-Identifier: Apache-2.0
//! DHCPv4 messages (RFC 2131), their options (RFC 2132, 3396) and classless routes (RFC 3442).

mod classless_route;
mod options;
mod packet;
#[cfg(test)]
mod tests;

pub use classless_route::{ClasslessRoute, classless_routes};
pub use options::{Dhcp4Options, option_code};
pub use packet::{Dhcp4DecodeError, Dhcp4MessageType, Dhcp4Packet};

/// The UDP port of DHCPv4 servers and relays.
pub const SERVER_PORT: u16 = 67;
/// The UDP port of DHCPv4 clients.
pub const CLIENT_PORT: u16 = 68;
/// The largest message that every client accepts: 576 bytes without the IP and UDP headers.
pub const MIN_MAX_MESSAGE_BYTES: usize = 548;
