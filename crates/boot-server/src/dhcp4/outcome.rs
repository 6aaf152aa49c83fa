// SPDX-License-Identifier: Apache-2.0
//! The result of handling a DHCPv4 message: the reply, its destination and the outcome.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use dhcp_codec::v4::{Dhcp4Packet, option_code};

use crate::{BootStage, FirmwareArchitecture, HardwareAddress};

/// The result of handling one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the client waits for the reply"]
pub struct Dhcp4Response {
    /// The message to send, if any.
    pub reply: Option<Dhcp4Reply>,
    /// How the message was handled.
    pub outcome: Dhcp4Outcome,
    /// Whether the machine is enrolled.
    pub is_known: bool,
    /// Whether the machine got an address and has a boot plan of which the requesting program can load no
    /// file.
    pub no_loadable_boot_file: bool,
    /// The program that sent the message.
    pub stage: BootStage,
    /// The architecture, if the client sent one.
    pub architecture: Option<FirmwareArchitecture>,
    /// The boot file or URL in the reply.
    pub boot_file: Option<Arc<str>>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp4Reply {
    /// The destination.
    pub to: Dhcp4Destination,
    /// The message.
    pub packet: Dhcp4Packet,
    /// An address to probe before the reply is sent. If a host replies, call
    /// [`DhcpLeases4::report_conflict`](super::DhcpLeases4::report_conflict) and handle the request again.
    pub probe: Option<Ipv4Addr>,
}

impl Dhcp4Reply {
    pub(super) fn has_boot_file(&self) -> bool {
        let options = &self.packet.options;
        !self.packet.file.is_empty() || options.get(option_code::BOOT_FILE_NAME).is_some()
    }
}

/// Where a reply is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dhcp4Destination {
    /// Broadcast to the client port of the segment.
    Broadcast,
    /// Unicast to a host that uses its address.
    Address(SocketAddrV4),
    /// Unicast to a client that does not use the address yet and so does not reply to ARP.
    NewAddress {
        /// The assigned address.
        address: Ipv4Addr,
        /// The client's hardware address.
        hardware: HardwareAddress,
    },
}

/// How a message was handled, or why it got no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dhcp4Outcome {
    /// An address was offered.
    Offered(Ipv4Addr),
    /// An address was leased.
    Leased(Ipv4Addr),
    /// The request for this address was refused with DHCPNAK.
    Refused(Ipv4Addr),
    /// Options without an address were sent.
    Informed,
    /// Boot information without an address was sent.
    ProxyReplied,
    /// The client released its address.
    Released(Ipv4Addr),
    /// The client declined an address because another host uses it.
    Declined(Ipv4Addr),
    /// The mode of the subnet is [`Off`](crate::DhcpMode::Off).
    Disabled,
    /// The hardware address is configured to be ignored.
    Ignored,
    /// The machine is unknown, and only known machines get a reply on this subnet.
    UnknownMachine,
    /// The machine boots from its disk.
    BootsFromDisk,
    /// There is no boot file for this firmware.
    NoBootFile,
    /// The client is not a network boot program, and only those get a reply from a proxy.
    NotNetboot,
    /// The client chose another server.
    OtherServerChosen,
    /// No configured subnet matches the interface or the relay.
    NoSubnet,
    /// All addresses of the ranges are in use.
    NoFreeAddress,
    /// The machine is unknown, and unknown machines hold all addresses they may.
    UnknownShareUsed,
    /// The message is invalid here: a server's message, without a type, or with missing fields.
    Invalid,
    /// The DHCP lease could not be stored, so the address was not assigned.
    LeaseNotStored,
}
