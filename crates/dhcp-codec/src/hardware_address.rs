// SPDX-License-Identifier: Apache-2.0
//! Link-layer addresses as DHCP carries them: a hardware type and up to 16 bytes.

use std::fmt;

/// The hardware type (`htype`) of Ethernet.
const ETHERNET: u8 = 1;
/// The size of `chaddr` in the DHCPv4 header.
const MAX_BYTES: usize = 16;

/// The link-layer address of a NIC. The 20 bytes of an InfiniBand address do not fit the DHCPv4 header;
/// such clients send none and are identified by their client identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HardwareAddress {
    hardware_type: u8,
    length: u8,
    bytes: [u8; MAX_BYTES],
}

impl HardwareAddress {
    /// Returns an Ethernet address.
    #[must_use]
    pub const fn ethernet(mac: [u8; 6]) -> Self {
        let mut bytes = [0; MAX_BYTES];
        let mut index = 0;
        while index < 6 {
            bytes[index] = mac[index];
            index += 1;
        }
        Self { hardware_type: ETHERNET, length: 6, bytes }
    }

    /// Returns an address of this hardware type (DHCP's `htype`). Bytes after the 16th are dropped.
    #[must_use]
    pub fn new(hardware_type: u8, address: &[u8]) -> Self {
        let length = address.len().min(MAX_BYTES);
        let mut bytes = [0; MAX_BYTES];
        bytes[..length].copy_from_slice(&address[..length]);
        Self { hardware_type, length: length as u8, bytes }
    }

    /// Returns DHCP's `htype`.
    #[must_use]
    pub const fn hardware_type(&self) -> u8 {
        self.hardware_type
    }

    /// Returns the address without padding.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns the six bytes of an Ethernet address, `None` for other hardware types.
    #[must_use]
    pub fn mac(&self) -> Option<[u8; 6]> {
        if self.hardware_type == ETHERNET { self.bytes().try_into().ok() } else { None }
    }

    /// Returns whether the address has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the zero-padded `chaddr` field of the DHCPv4 header.
    pub(crate) const fn padded(&self) -> &[u8; MAX_BYTES] {
        &self.bytes
    }
}

impl fmt::Display for HardwareAddress {
    /// Writes `52:54:00:aa:bb:01`, or `none` for an empty address.
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
