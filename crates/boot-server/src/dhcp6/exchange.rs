// SPDX-License-Identifier: Apache-2.0
//! A received DHCPv6 message with everything that the server derives from it.

use std::net::SocketAddrV6;
use std::sync::Arc;

use dhcp_codec::v6::{Dhcp6Message, IdentityAssociation};
use node_model::Timestamp;

use super::config::{Dhcp6Interface, Dhcp6Subnet};
use crate::{BootInstructions, BootStage, FirmwareArchitecture, NetbootTarget};

/// How a packet was received.
#[derive(Debug, Clone)]
pub struct Dhcp6PacketInfo<'a> {
    /// The interface.
    pub interface: &'a str,
    /// The IP source address and port.
    pub from: SocketAddrV6,
    /// The time of receipt.
    pub now: Timestamp,
}

/// A message with everything that is derived from it once.
pub(super) struct Dhcp6Exchange<'a> {
    pub(super) message: &'a Dhcp6Message,
    pub(super) interface: &'a Dhcp6Interface,
    pub(super) subnet: &'a Dhcp6Subnet,
    /// The client's DUID; empty if it sent none.
    pub(super) client_duid: &'a [u8],
    pub(super) server_duid: &'a [u8],
    pub(super) now: Timestamp,
    pub(super) stage: BootStage,
    pub(super) architecture: Option<FirmwareArchitecture>,
    pub(super) instructions: BootInstructions,
    /// The URL for the requesting program.
    pub(super) boot_url: Option<Arc<str>>,
}

impl Dhcp6Exchange<'_> {
    /// Returns the key of a DHCP lease: the client's DUID and the IAID.
    pub(super) fn client_key(&self, association: &IdentityAssociation) -> Vec<u8> {
        [self.client_duid, &association.iaid].concat()
    }

    /// Returns whether the machine has a boot plan of which the requesting program can load no file.
    pub(super) fn lacks_boot_url(&self) -> bool {
        self.stage != BootStage::System
            && self.instructions.boot != NetbootTarget::Disk
            && self.boot_url.is_none()
    }
}
