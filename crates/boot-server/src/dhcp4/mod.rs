// SPDX-License-Identifier: Apache-2.0
//! A DHCPv4 server (RFC 2131) with PXE options (RFC 4578) and ProxyDHCP.

mod config;
mod leases;
mod listener;
mod reply;
mod server;
#[cfg(test)]
mod tests;

pub use config::{Dhcp4Interface, Dhcp4Settings, Dhcp4Subnet, StaticReservation};
pub use dhcp_codec::v4::Dhcp4MessageType;
pub(crate) use leases::fnv1a;
pub use leases::{DhcpLease4, DhcpLeaseState, DhcpLeases4};
pub use listener::Dhcp4Listener;
pub use reply::{Dhcp4Destination, Dhcp4Outcome, Dhcp4Reply, Dhcp4Response};
pub use server::{Dhcp4PacketInfo, Dhcp4Port, Dhcp4Server};
