// SPDX-License-Identifier: Apache-2.0
//! Servers for machines that boot from the network: DHCPv4 with ProxyDHCP, DHCPv6, TFTP, HTTP, a DNS
//! forwarder, and an mDNS responder that announces the API to agents.
//!
//! This crate handles packets, addresses and files. It does not know nodes, BMCs or the database: a
//! [`BootDirectory`] supplies what machines boot, a [`BootEventRecorder`] receives every exchange, and a
//! [`DhcpLeaseStore`] makes DHCP leases durable.
//!
//! Each protocol has a core without IO ([`dhcp4::Dhcp4Server`], [`dhcp6::Dhcp6Server`],
//! [`tftp::TftpTransfer`]), which takes a packet and the time and returns what to send, and a task that
//! owns the sockets. DHCP sockets are bound to one interface each, so packets from other interfaces are
//! never received.

mod boot_directory;
mod boot_event;
mod conflict_probe;
pub mod dhcp4;
pub mod dhcp6;
mod dhcp_lease_index;
mod dhcp_lease_store;
mod dhcp_loop;
mod dhcp_mode;
pub mod dns;
mod firmware;
pub mod http;
pub mod mdns;
mod neighbour_table;
mod served_directory;
pub mod sockets;
pub mod tftp;

pub use boot_directory::{
    BootDirectory, BootInstructions, BootLookupError, BootRequest, BootSnapshot, Netboot,
    NetbootTarget,
};
pub use boot_event::{BootClock, BootEvent, BootEventDetail, BootEventRecorder};
pub use dhcp_codec::HardwareAddress;
pub use dhcp_lease_index::{DhcpLeaseIndex, IndexedDhcpLeaseStore};
pub use dhcp_lease_store::{
    DhcpLeaseFile, DhcpLeaseRecord, DhcpLeaseStore, DhcpLeaseStoreError, InMemoryDhcpLeaseStore,
    read_dhcp_leases,
};
pub use dhcp_loop::{DhcpListenError, DhcpServices};
pub use dhcp_mode::DhcpMode;
pub use firmware::{BootStage, FirmwareArchitecture, FirstStageLoaders};
pub use served_directory::ServedDirectory;
