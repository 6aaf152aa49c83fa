// SPDX-License-Identifier: Apache-2.0
//! A DHCPv6 server (RFC 8415) with the network boot options of RFC 5970.
//!
//! It assigns addresses without prefix or gateway, which routers announce; it sends no router
//! advertisements. A subnet without a range is stateless: machines get addresses from the routers'
//! prefixes, and only the other configuration from this server.

mod config;
mod exchange;
mod leases;
mod listener;
mod outcome;
mod reply;
mod server;
#[cfg(test)]
mod tests;

pub use config::{Dhcp6Interface, Dhcp6Settings, Dhcp6Subnet};
pub use dhcp_codec::v6::Dhcp6MessageType;
pub use exchange::Dhcp6PacketInfo;
pub use leases::DhcpLeases6;
pub use listener::Dhcp6Listener;
pub use outcome::{Dhcp6Outcome, Dhcp6Reply, Dhcp6Response};
pub use server::Dhcp6Server;
