// SPDX-License-Identifier: Apache-2.0
//! DHCP for IPv6 (RFC 8415) with the network boot options of RFC 5970.
//!
//! Addresses are given without prefix or gateway, which are the routers' to announce; nothing here
//! sends router advertisements. A network without a range is served statelessly: machines have
//! addresses from the routers' prefixes and get only the rest from us.

mod config;
mod leases;
mod listener;
mod message;
mod server;
#[cfg(test)]
mod tests;

pub use config::{Interface, Settings, Subnet};
pub use leases::Leases;
pub use listener::Listener;
pub use message::{DecodeError, Message, MessageType, Options, RelayHop, Relayed, code};
pub use server::{Answer, Received, Reply, Server, Verdict};

pub use crate::serving::{ListenError, Services};
