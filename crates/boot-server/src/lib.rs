// SPDX-License-Identifier: Apache-2.0
//! Answers machines that boot from the network: DHCP for IPv4 and IPv6, ProxyDHCP, TFTP, and HTTP; and
//! tells agents by multicast DNS where the API is.
//!
//! This crate knows packets, addresses and files. What a machine should boot is asked of [`Plans`],
//! what was seen on the wire is told to [`Sightings`], and leases are kept in a [`LeaseBook`]; whoever
//! wires the program together implements the three. Nodes, BMCs and the database are not known here.
//!
//! Every protocol has a core without IO ([`dhcp4::Server`], [`dhcp6::Server`], [`tftp::Transfer`]) that
//! gets a packet and the time and returns what to send, and a thin task on top that owns the sockets.
//! Those sockets are bound to one interface each, so that a packet of another interface is never read.

pub mod dhcp4;
pub mod dhcp6;
mod firmware;
mod folder;
mod hardware;
pub mod http;
mod icmp;
pub mod interface;
mod lease_book;
pub mod mdns;
mod mode;
mod neighbour;
mod plans;
mod serving;
mod sighting;
pub mod tftp;

pub use firmware::{Architecture, FirstStages, Stage};
pub use hardware::HardwareAddress;
pub use lease_book::{
    FileLeaseBook, LeaseBook, LeaseBookError, LeaseRecord, MemoryLeaseBook, read_leases,
};
pub use mode::Mode;
pub use plans::{BootAnswer, BootRequest, Netboot, Plan, Plans};
pub use sighting::{Sighting, Sightings, What};
