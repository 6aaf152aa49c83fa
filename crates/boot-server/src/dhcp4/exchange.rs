// SPDX-License-Identifier: Apache-2.0
//! A received DHCPv4 packet with everything that the server derives from it.

use std::net::SocketAddrV4;
use std::sync::Arc;

use dhcp_codec::v4::{Dhcp4Packet, option_code};
use node_model::Timestamp;

use super::config::{Dhcp4Interface, Dhcp4Subnet};
use super::leases::{DhcpClientKey, LeaseHolder};
use crate::{BootInstructions, BootStage, FirmwareArchitecture, NetbootTarget};

/// How a packet was received.
#[derive(Debug, Clone)]
pub struct Dhcp4PacketInfo<'a> {
    /// The interface.
    pub interface: &'a str,
    /// The destination port.
    pub port: Dhcp4Port,
    /// The IP source address and port.
    pub from: SocketAddrV4,
    /// The time of receipt.
    pub now: Timestamp,
}

/// The ports that a boot server listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dhcp4Port {
    /// 67.
    Dhcp,
    /// 4011, where PXE firmware sends its second request to a proxy.
    Pxe,
}

/// A message with everything that is derived from it once.
pub(super) struct Dhcp4Exchange<'a> {
    pub(super) packet: &'a Dhcp4Packet,
    pub(super) info: &'a Dhcp4PacketInfo<'a>,
    pub(super) interface: &'a Dhcp4Interface,
    pub(super) subnet: &'a Dhcp4Subnet,
    pub(super) client: DhcpClientKey,
    pub(super) stage: BootStage,
    pub(super) architecture: Option<FirmwareArchitecture>,
    pub(super) instructions: BootInstructions,
    /// The file or URL for the requesting program.
    pub(super) boot_file: Option<Arc<str>>,
}

impl Dhcp4Exchange<'_> {
    /// Returns whether the client's parameter request list contains an option.
    pub(super) fn requests_option(&self, code: u8) -> bool {
        let list = self.packet.options.get(option_code::PARAMETER_REQUEST_LIST).unwrap_or_default();
        list.contains(&code)
    }

    /// Returns whether the machine may be invented by a host on the network.
    pub(super) fn is_unknown(&self) -> bool {
        !self.instructions.is_known && self.subnet.reservation(self.packet.hardware).is_none()
    }

    pub(super) fn holder(&self) -> LeaseHolder<'_> {
        let unknown_on = self.is_unknown().then_some(self.subnet.network);
        LeaseHolder { client: &self.client, unknown_on }
    }

    /// Returns whether the machine has a boot plan of which the requesting program can load no file.
    pub(super) fn lacks_boot_file(&self) -> bool {
        self.stage != BootStage::System
            && self.instructions.boot != NetbootTarget::Disk
            && self.boot_file.is_none()
    }
}
