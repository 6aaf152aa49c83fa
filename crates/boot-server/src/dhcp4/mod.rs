// SPDX-License-Identifier: Apache-2.0
//! DHCP for IPv4 (RFC 2131), its PXE additions (RFC 4578) and ProxyDHCP.

mod config;
mod leases;
mod listener;
mod options;
mod packet;
mod reply;
mod server;
#[cfg(test)]
mod tests;

pub use config::{Interface, Settings, StaticHost, Subnet};
pub(crate) use leases::place_of;
pub use leases::{Lease, LeaseState, Leases};
pub use listener::Listener;
pub use options::{Options, code};
pub use packet::{DecodeError, MessageType, Packet};
pub use reply::{Answer, Reply, To, Verdict};
pub use server::{Port, Received, Server};

pub use crate::serving::{ListenError, Services};
