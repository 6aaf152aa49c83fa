// SPDX-License-Identifier: Apache-2.0
//! The options of a DHCPv6 message.

use std::net::Ipv6Addr;

use super::Dhcp6DecodeError;

/// Option numbers of the IANA registry.
pub mod option_code {
    #![allow(missing_docs, reason = "the names are the registry's")]
    pub const CLIENT_ID: u16 = 1;
    pub const SERVER_ID: u16 = 2;
    pub const IA_NA: u16 = 3;
    pub const IA_ADDRESS: u16 = 5;
    pub const OPTION_REQUEST: u16 = 6;
    pub const ELAPSED_TIME: u16 = 8;
    pub const RELAY_MESSAGE: u16 = 9;
    pub const STATUS_CODE: u16 = 13;
    pub const RAPID_COMMIT: u16 = 14;
    pub const USER_CLASS: u16 = 15;
    pub const VENDOR_CLASS: u16 = 16;
    pub const INTERFACE_ID: u16 = 18;
    pub const DNS_SERVERS: u16 = 23;
    pub const INFORMATION_REFRESH_TIME: u16 = 32;
    pub const BOOT_FILE_URL: u16 = 59;
    pub const ARCHITECTURE: u16 = 61;
    pub const CLIENT_LINK_LAYER: u16 = 79;
}

/// Options in order. A code may occur more than once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dhcp6Options(Vec<(u16, Vec<u8>)>);

impl Dhcp6Options {
    /// Decodes options up to the end of the bytes.
    ///
    /// # Errors
    /// If the last option is truncated.
    pub fn decode(bytes: &[u8]) -> Result<Self, Dhcp6DecodeError> {
        match Self::decode_complete(bytes) {
            (options, []) => Ok(options),
            (_, [_, ..]) => Err(Dhcp6DecodeError::Truncated),
        }
    }

    /// Decodes the complete options. Returns them and the bytes of a truncated last option.
    pub(super) fn decode_complete(mut bytes: &[u8]) -> (Self, &[u8]) {
        let mut options = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk::<4>()
            && let length = usize::from(u16::from_be_bytes([header[2], header[3]]))
            && let Some((value, rest)) = rest.split_at_checked(length)
        {
            options.push((u16::from_be_bytes([header[0], header[1]]), value.to_vec()));
            bytes = rest;
        }
        (Self(options), bytes)
    }

    /// Returns the first value of an option.
    #[must_use]
    pub fn get(&self, code: u16) -> Option<&[u8]> {
        self.all(code).next()
    }

    /// Returns all values of an option.
    pub fn all(&self, code: u16) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| *known == code).map(|(_, value)| value.as_slice())
    }

    /// Returns the first element of an option that is one or more 16-bit numbers.
    #[must_use]
    pub fn get_u16(&self, code: u16) -> Option<u16> {
        self.get(code)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// Returns an option that starts with a 32-bit number.
    #[must_use]
    pub fn get_u32(&self, code: u16) -> Option<u32> {
        self.get(code)?.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// Returns the addresses of an option that is a list of them. A trailing partial address is ignored.
    pub fn get_addresses(&self, code: u16) -> impl Iterator<Item = Ipv6Addr> {
        let (addresses, _partial) = self.get(code).unwrap_or_default().as_chunks::<16>();
        addresses.iter().map(|bytes| Ipv6Addr::from(*bytes))
    }

    /// Adds an option. A value that is too long for the length field is ignored.
    pub fn add(&mut self, code: u16, value: impl Into<Vec<u8>>) {
        let value = value.into();
        if u16::try_from(value.len()).is_ok() {
            self.0.push((code, value));
        }
    }

    /// Removes the first value of an option and returns it.
    pub(super) fn take(&mut self, code: u16) -> Option<Vec<u8>> {
        let index = self.0.iter().position(|(known, _)| *known == code)?;
        Some(self.0.remove(index).1)
    }

    /// Appends the encoded options to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (code, value) in &self.0 {
            out.extend(code.to_be_bytes());
            out.extend((value.len() as u16).to_be_bytes());
            out.extend_from_slice(value);
        }
    }
}
