// SPDX-License-Identifier: Apache-2.0
//! The options of a DHCPv4 message. Fragments of a long option are joined (RFC 3396).

use std::net::Ipv4Addr;

/// Option numbers of the IANA registry.
pub mod option_code {
    #![allow(missing_docs, reason = "the names are the registry's")]
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS_SERVER: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN_NAME: u8 = 15;
    pub const INTERFACE_MTU: u8 = 26;
    pub const BROADCAST_ADDRESS: u8 = 28;
    pub const NTP_SERVER: u8 = 42;
    pub const VENDOR_SPECIFIC: u8 = 43;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER_ID: u8 = 54;
    pub const PARAMETER_REQUEST_LIST: u8 = 55;
    pub const MESSAGE: u8 = 56;
    pub const MAX_MESSAGE_SIZE: u8 = 57;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const VENDOR_CLASS: u8 = 60;
    pub const CLIENT_ID: u8 = 61;
    pub const TFTP_SERVER_NAME: u8 = 66;
    pub const BOOT_FILE_NAME: u8 = 67;
    pub const USER_CLASS: u8 = 77;
    pub const RELAY_AGENT_INFORMATION: u8 = 82;
    pub const ARCHITECTURE: u8 = 93;
    pub const MACHINE_UUID: u8 = 97;
    pub const SUBNET_SELECTION: u8 = 118;
    pub const CLASSLESS_ROUTES: u8 = 121;
    pub const TFTP_SERVER_ADDRESS: u8 = 150;
    pub const IPXE: u8 = 175;
}

const PAD: u8 = 0;
const END: u8 = 255;

/// Options in the order in which they were received or added. Each code occurs at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dhcp4Options(Vec<(u8, Vec<u8>)>);

impl Dhcp4Options {
    /// Returns the value of an option.
    #[must_use]
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| *known == code).map(|(_, value)| value.as_slice())
    }

    /// Returns the value of an option that is one address, `None` if it has another length.
    #[must_use]
    pub fn get_address(&self, code: u8) -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = self.get(code)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    }

    /// Returns the addresses of an option that is a list of them. A trailing partial address is ignored.
    pub fn get_addresses(&self, code: u8) -> impl Iterator<Item = Ipv4Addr> {
        let (addresses, _partial) = self.get(code).unwrap_or_default().as_chunks::<4>();
        addresses.iter().map(|bytes| Ipv4Addr::from(*bytes))
    }

    /// Returns the first element of an option that is one or more 16-bit numbers.
    #[must_use]
    pub fn get_u16(&self, code: u8) -> Option<u16> {
        self.get(code)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// Returns the value of an option that is a 32-bit number, `None` if it has another length.
    #[must_use]
    pub fn get_u32(&self, code: u8) -> Option<u32> {
        self.get(code)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// Adds an option or replaces its value.
    pub fn set(&mut self, code: u8, value: impl Into<Vec<u8>>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| *known == code) {
            Some((_, old)) => *old = value,
            None => self.0.push((code, value)),
        }
    }

    /// Adds an option that is a list of addresses. Does nothing if the list is empty.
    pub fn set_addresses(&mut self, code: u8, addresses: &[Ipv4Addr]) {
        if !addresses.is_empty() {
            self.set(code, addresses.iter().flat_map(Ipv4Addr::octets).collect::<Vec<u8>>());
        }
    }

    /// Adds an option that is a 32-bit number.
    pub fn set_u32(&mut self, code: u8, number: u32) {
        self.set(code, number.to_be_bytes());
    }

    /// Returns all options.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.0.iter().map(|(code, value)| (*code, value.as_slice()))
    }

    /// Decodes one options field and joins fragments. Some firmware sends no end option, so a field that
    /// ends inside an option keeps the complete options before it.
    pub(super) fn decode_field(&mut self, mut bytes: &[u8]) {
        while let [code, rest @ ..] = bytes {
            match *code {
                PAD => bytes = rest,
                END => return,
                code => {
                    let Some((length, rest)) = rest.split_first() else { return };
                    let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else {
                        return;
                    };
                    match self.0.iter_mut().find(|(known, _)| *known == code) {
                        Some((_, fragments)) => fragments.extend_from_slice(value),
                        None => self.0.push((code, value.to_vec())),
                    }
                    bytes = rest;
                }
            }
        }
    }

    /// Writes the options that fit into `space` bytes, and the end option. Callers add options by
    /// importance, because those that do not fit are left out. Relay agent information is written last
    /// (RFC 3046) and always, from space that is reserved for it.
    pub(super) fn encode(&self, out: &mut Vec<u8>, space: usize) {
        let relay = self.get(option_code::RELAY_AGENT_INFORMATION);
        let reserved = 1 + relay.map_or(0, encoded_length);
        let start = out.len();
        let others = self.iter().filter(|(code, _)| *code != option_code::RELAY_AGENT_INFORMATION);
        for (code, value) in others {
            if out.len() - start + encoded_length(value) + reserved <= space {
                encode_option(out, code, value);
            }
        }
        if let Some(relay) = relay {
            encode_option(out, option_code::RELAY_AGENT_INFORMATION, relay);
        }
        out.push(END);
    }
}

fn encoded_length(value: &[u8]) -> usize {
    value.len() + 2 * value.len().div_ceil(255).max(1)
}

fn encode_option(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    if value.is_empty() {
        out.extend([code, 0]);
    }
    for fragment in value.chunks(255) {
        out.extend([code, fragment.len() as u8]);
        out.extend_from_slice(fragment);
    }
}
