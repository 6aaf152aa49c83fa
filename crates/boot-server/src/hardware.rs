// SPDX-License-Identifier: Apache-2.0
//! A link-layer address as DHCP carries it: a kind and up to sixteen bytes, without allocation.

use std::fmt;

/// The `htype` of Ethernet.
pub(crate) const ETHERNET: u8 = 1;

/// A network card's address. Ordinary ones have six bytes; InfiniBand's twenty do not fit the DHCP
/// header, so such clients are told apart by their client identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HardwareAddress {
    kind: u8,
    length: u8,
    bytes: [u8; 16],
}

impl HardwareAddress {
    /// An Ethernet address.
    #[must_use]
    pub const fn ethernet(mac: [u8; 6]) -> Self {
        let mut bytes = [0; 16];
        let mut at = 0;
        while at < 6 {
            bytes[at] = mac[at];
            at += 1;
        }
        Self { kind: ETHERNET, length: 6, bytes }
    }

    /// The address of `kind` (DHCP's `htype`) with these bytes; those past the sixteenth are dropped.
    #[must_use]
    pub fn new(kind: u8, address: &[u8]) -> Self {
        let kept = address.len().min(16);
        let mut bytes = [0; 16];
        bytes[..kept].copy_from_slice(&address[..kept]);
        Self { kind, length: kept as u8, bytes }
    }

    /// DHCP's `htype`.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        self.kind
    }

    /// The bytes that count.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The six bytes, if this is an Ethernet address.
    #[must_use]
    pub fn mac(&self) -> Option<[u8; 6]> {
        if self.kind == ETHERNET { self.bytes().try_into().ok() } else { None }
    }

    /// Whether there is an address at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All sixteen bytes as the DHCP header holds them.
    pub(crate) const fn padded(&self) -> &[u8; 16] {
        &self.bytes
    }
}

impl fmt::Display for HardwareAddress {
    /// `52:54:00:aa:bb:01`; an absent address is written `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (index, byte) in self.bytes().iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}
