// SPDX-License-Identifier: Apache-2.0
//! The operating modes of the DHCP server on a subnet.

/// Which clients the server replies to, and with what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DhcpMode {
    /// No replies.
    #[default]
    Off,
    /// ProxyDHCP: known machines that boot from the network get boot information and never an address;
    /// another DHCP server assigns addresses. DHCPv6 has no proxy mode, so only information requests get
    /// a reply.
    Proxy,
    /// Known machines get an address, and boot information if they boot from the network.
    Reserve,
    /// Unknown machines get an address and the boot information for unknown machines. Known machines get a
    /// reply only while they boot from the network or renew an address.
    Discover,
    /// All machines get an address. Known ones also get boot information if they boot from the network,
    /// unknown ones the boot information for unknown machines.
    All,
}

impl DhcpMode {
    /// Returns whether unknown machines boot from the network.
    #[must_use]
    pub fn boots_unknown_machines(self) -> bool {
        match self {
            Self::Off | Self::Proxy | Self::Reserve => false,
            Self::Discover | Self::All => true,
        }
    }
}
