// SPDX-License-Identifier: Apache-2.0
//! What becomes of a message: a reply and where it goes, and the reason in a word.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use super::packet::Packet;
use crate::{Architecture, HardwareAddress, Stage};

/// What the server makes of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an answer that is not sent leaves the machine waiting"]
pub struct Answer {
    /// What to send, if anything.
    pub reply: Option<Reply>,
    /// What was done, or why nothing was.
    pub verdict: Verdict,
    /// Whether the plans know the machine.
    pub known: bool,
    /// Whether the machine got an address and should boot something of ours that the program that
    /// asked cannot load.
    pub nothing_to_load: bool,
    /// The program that asked.
    pub stage: Stage,
    /// Its processor and firmware.
    pub architecture: Option<Architecture>,
    /// The boot file or URL in the reply.
    pub boot_file: Option<Arc<str>>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Where to.
    pub to: To,
    /// What.
    pub packet: Packet,
    /// Make sure first that nobody uses this address; if somebody does, tell
    /// [`Leases::conflict`](super::Leases::conflict) and ask for another answer.
    pub probe: Option<Ipv4Addr>,
}

/// Where a reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// Everybody on the segment, at the client's port.
    Broadcast,
    /// A machine that has its address.
    Address(SocketAddrV4),
    /// A machine that does not have the address yet, and so does not answer ARP for it.
    NewAddress {
        /// The address it is given.
        address: Ipv4Addr,
        /// Its card.
        hardware: HardwareAddress,
    },
}

/// What was done with a message, or why nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// An address was offered.
    Offered(Ipv4Addr),
    /// An address was leased.
    Leased(Ipv4Addr),
    /// The client was told that it cannot have this address.
    Refused(Ipv4Addr),
    /// Options without an address were sent.
    Informed,
    /// Boot information without an address was sent.
    ProxyAnswered,
    /// The client gave its address back.
    Released(Ipv4Addr),
    /// The client found the address in use by another.
    Declined(Ipv4Addr),
    /// The network is not served.
    Off,
    /// The card is on the list of those to ignore.
    Ignored,
    /// The machine is not known, and only known ones are served.
    Unknown,
    /// The machine should boot its own disk.
    BootsFromDisk,
    /// There is nothing to boot for this kind of firmware.
    NoBootFile,
    /// The client is not a network boot program, and only those are served here.
    NotBooting,
    /// The client chose another server.
    ChoseOther,
    /// No configured network fits the interface or the relay.
    NoSubnet,
    /// Every address of the ranges is taken.
    NoFreeAddress,
    /// The message has no sense here: a reply, no type, or missing fields.
    Meaningless,
    /// The lease could not be written down, so it was not given.
    NotRecorded,
}
