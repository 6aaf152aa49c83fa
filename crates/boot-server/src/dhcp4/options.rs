// SPDX-License-Identifier: Apache-2.0
//! The options of a DHCPv4 message: numbers with bytes, pieces of one option joined (RFC 3396).

use std::net::Ipv4Addr;

/// The option numbers used here.
pub mod code {
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
    pub const PARAMETER_LIST: u8 = 55;
    pub const MESSAGE: u8 = 56;
    pub const MAX_MESSAGE_SIZE: u8 = 57;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const VENDOR_CLASS: u8 = 60;
    pub const CLIENT_ID: u8 = 61;
    pub const TFTP_SERVER_NAME: u8 = 66;
    pub const BOOT_FILE_NAME: u8 = 67;
    pub const USER_CLASS: u8 = 77;
    pub const RELAY_AGENT: u8 = 82;
    pub const ARCHITECTURE: u8 = 93;
    pub const NETWORK_INTERFACE: u8 = 94;
    pub const MACHINE_UUID: u8 = 97;
    pub const SUBNET_SELECTION: u8 = 118;
    pub const TFTP_SERVER_ADDRESS: u8 = 150;
    pub const IPXE: u8 = 175;
}

const PAD: u8 = 0;
pub(super) const END: u8 = 255;

/// Options in the order they came or were added; each number at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options(Vec<(u8, Vec<u8>)>);

impl Options {
    /// The bytes of an option.
    #[must_use]
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| *known == code).map(|(_, value)| value.as_slice())
    }

    /// An option that is one address; none if it has another length.
    #[must_use]
    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = self.get(code)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    }

    /// An option that is a 16-bit number, or a list of them, of which the first counts.
    #[must_use]
    pub fn number16(&self, code: u8) -> Option<u16> {
        self.get(code)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes))
    }

    /// Adds an option, or replaces it.
    pub fn set(&mut self, code: u8, value: impl Into<Vec<u8>>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| *known == code) {
            Some((_, old)) => *old = value,
            None => self.0.push((code, value)),
        }
    }

    /// Adds an option that is one or more addresses; nothing if there is none.
    pub fn set_addresses(&mut self, code: u8, addresses: &[Ipv4Addr]) {
        if !addresses.is_empty() {
            self.set(code, addresses.iter().flat_map(Ipv4Addr::octets).collect::<Vec<u8>>());
        }
    }

    /// Adds an option that is a 32-bit number.
    pub fn set_number32(&mut self, code: u8, number: u32) {
        self.set(code, number.to_be_bytes());
    }

    /// Every option.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.0.iter().map(|(code, value)| (*code, value.as_slice()))
    }

    /// Reads one option field, joining pieces. A field cut off in the middle of an option keeps what
    /// was whole before it: some firmware ends without the end mark.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
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
                        Some((_, pieces)) => pieces.extend_from_slice(value),
                        None => self.0.push((code, value.to_vec())),
                    }
                    bytes = rest;
                }
            }
        }
    }

    /// Writes the options that fit into `room` bytes, and the end mark. Options are added in order of
    /// worth, so what is left out is what a client can best do without; the relay's option is always
    /// written last (RFC 3046) and always fits, because its room is kept back.
    pub(super) fn write(&self, out: &mut Vec<u8>, room: usize) {
        let relay = self.get(code::RELAY_AGENT);
        let kept_back = 1 + relay.map_or(0, written_length);
        let start = out.len();
        for (code, value) in self.iter().filter(|(code, _)| *code != code::RELAY_AGENT) {
            if out.len() - start + written_length(value) + kept_back <= room {
                write_option(out, code, value);
            }
        }
        if let Some(relay) = relay {
            write_option(out, code::RELAY_AGENT, relay);
        }
        out.push(END);
    }
}

fn written_length(value: &[u8]) -> usize {
    value.len() + 2 * value.len().div_ceil(255).max(1)
}

fn write_option(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    if value.is_empty() {
        out.extend([code, 0]);
    }
    for piece in value.chunks(255) {
        out.extend([code, piece.len() as u8]);
        out.extend_from_slice(piece);
    }
}
