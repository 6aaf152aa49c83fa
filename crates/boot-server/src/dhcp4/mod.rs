// SPDX-License-Identifier: Apache-2.0
//! A DHCPv4 server (RFC 2131) with PXE options (RFC 4578) and ProxyDHCP.

mod config;
mod exchange;
mod leases;
mod listener;
mod outcome;
mod reply;
mod server;
#[cfg(test)]
mod tests;
mod unknown_holders;

pub use config::{
    DEFAULT_UNKNOWN_SHARE, Dhcp4Interface, Dhcp4Settings, Dhcp4Subnet, StaticReservation,
};
pub use dhcp_codec::v4::Dhcp4MessageType;
pub use exchange::{Dhcp4PacketInfo, Dhcp4Port};
pub(crate) use leases::fnv1a;
pub use leases::{DhcpLease4, DhcpLeaseState, DhcpLeases4};
pub use listener::Dhcp4Listener;
pub use outcome::{Dhcp4Destination, Dhcp4Outcome, Dhcp4Reply, Dhcp4Response};
pub use server::Dhcp4Server;
