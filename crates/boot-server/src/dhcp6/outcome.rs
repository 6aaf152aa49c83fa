// SPDX-License-Identifier: Apache-2.0
//! The result of handling a DHCPv6 message: the reply, its destination and the outcome.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;

use dhcp_codec::v6::Dhcp6Message;

use crate::{BootStage, FirmwareArchitecture, HardwareAddress};

/// The result of handling one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the client waits for the reply"]
pub struct Dhcp6Response {
    /// The message to send, if any.
    pub reply: Option<Dhcp6Reply>,
    /// How the message was handled.
    pub outcome: Dhcp6Outcome,
    /// The client's hardware address, if it can be determined.
    pub hardware: Option<HardwareAddress>,
    /// Whether the machine is enrolled.
    pub is_known: bool,
    /// Whether the machine was served and has a boot plan of which the requesting program can load no file.
    pub no_loadable_boot_file: bool,
    /// The program that sent the message.
    pub stage: BootStage,
    /// The architecture, if the client sent one.
    pub architecture: Option<FirmwareArchitecture>,
    /// The boot URL in the reply.
    pub boot_url: Option<Arc<str>>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp6Reply {
    /// The destination.
    pub to: SocketAddrV6,
    /// The message for the client.
    pub message: Dhcp6Message,
    /// The encoded message, wrapped for the relays.
    pub bytes: Vec<u8>,
}

/// How a message was handled, or why it got no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dhcp6Outcome {
    /// An address was advertised.
    Advertised(Ipv6Addr),
    /// An address was leased.
    Leased(Ipv6Addr),
    /// Configuration without an address was sent.
    Informed,
    /// The client's addresses are valid on its link.
    Confirmed,
    /// The client's addresses are not valid on its link.
    NotOnLink,
    /// The client cannot extend the lease of its address.
    Refused,
    /// Addresses were released.
    Released,
    /// The client declined an address because another host uses it.
    Declined,
    /// All addresses of the range are in use, or there is no range.
    NoFreeAddress,
    /// The mode of the subnet is [`Off`](crate::DhcpMode::Off).
    Disabled,
    /// The hardware address is configured to be ignored.
    Ignored,
    /// The machine is unknown, and only known machines get a reply on this subnet.
    UnknownMachine,
    /// The machine boots from its disk.
    BootsFromDisk,
    /// The message is for another server.
    OtherServerChosen,
    /// No configured subnet matches the interface or the relay.
    NoSubnet,
    /// The message is invalid here.
    Invalid,
    /// The DHCP lease could not be stored, so the address was not assigned.
    LeaseNotStored,
}

impl Dhcp6Response {
    /// Returns the address that was advertised or leased.
    pub(super) fn assigned_address(&self) -> Option<Ipv6Addr> {
        if let Dhcp6Outcome::Advertised(address) | Dhcp6Outcome::Leased(address) = self.outcome {
            return Some(address);
        }
        None
    }
}
