// SPDX-License-Identifier: Apache-2.0
//! The DHCPv4 message: bytes to fields and back.
//!
//! The codec is ours rather than `dhcproto`'s. What a boot server needs of DHCP is a fixed header and
//! options that are almost all opaque bytes, some two hundred lines; `dhcproto` decodes some eighty
//! kinds of option eagerly, and its debug assertions and unchecked subtractions panic on malformed
//! packets, which every firmware on a segment may send us. Here an option is looked at when it is
//! asked for, so a strange one that nobody asks for cannot spoil the message.

use std::net::Ipv4Addr;

use super::options::{Options, code};
use crate::HardwareAddress;

/// The bytes before the options, with the magic cookie.
const HEADER: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// BOOTP's smallest message; some relays and firmware drop shorter ones.
const SMALLEST: usize = 300;
/// The largest message every client takes: 576 bytes less the IP and UDP headers.
const LARGEST_BY_DEFAULT: usize = 548;
/// What fits an Ethernet frame, whatever larger number a client says.
const LARGEST: usize = 1472;

const SERVER_NAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;

/// A DHCPv4 message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Whether it comes from a client.
    pub is_request: bool,
    /// Relays passed so far.
    pub hops: u8,
    /// The client's transaction number.
    pub transaction: u32,
    /// Seconds since the client began.
    pub seconds: u16,
    /// Whether the client can only hear broadcasts.
    pub broadcast: bool,
    /// The address the client has and uses (`ciaddr`).
    pub client_address: Ipv4Addr,
    /// The address it is given (`yiaddr`).
    pub your_address: Ipv4Addr,
    /// The next server (`siaddr`).
    pub next_server: Ipv4Addr,
    /// The relay (`giaddr`); unspecified if none.
    pub relay: Ipv4Addr,
    /// The client's card.
    pub hardware: HardwareAddress,
    /// The boot file of the header; at most 127 bytes are written.
    pub file: Vec<u8>,
    /// Everything else.
    pub options: Options,
}

/// The message types of RFC 2131.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum MessageType {
    Discover,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
    Inform,
}

/// Why bytes are not a DHCPv4 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than the header.
    #[error("{0} bytes are too few for a DHCP message")]
    TooShort(usize),
    /// Not a request or reply.
    #[error("operation {0} is neither request nor reply")]
    Operation(u8),
    /// BOOTP without DHCP's mark.
    #[error("the magic cookie of DHCP is missing")]
    Cookie,
    /// A hardware address longer than its field.
    #[error("a hardware address of {0} bytes does not fit its field")]
    HardwareLength(u8),
}

const TYPES: [MessageType; 8] = [
    MessageType::Discover,
    MessageType::Offer,
    MessageType::Request,
    MessageType::Decline,
    MessageType::Ack,
    MessageType::Nak,
    MessageType::Release,
    MessageType::Inform,
];

impl MessageType {
    /// The RFC's number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The type of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        TYPES.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl Packet {
    /// Reads a message.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some((header, options)) = bytes.split_at_checked(HEADER) else {
            return Err(DecodeError::TooShort(bytes.len()));
        };
        if !matches!(header[0], 1 | 2) {
            return Err(DecodeError::Operation(header[0]));
        }
        if header[236..HEADER] != COOKIE {
            return Err(DecodeError::Cookie);
        }
        if header[2] > 16 {
            return Err(DecodeError::HardwareLength(header[2]));
        }
        let mut packet = Self {
            is_request: header[0] == 1,
            hops: header[3],
            transaction: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            seconds: u16::from_be_bytes([header[8], header[9]]),
            broadcast: header[10] & 0x80 != 0,
            client_address: address(header, 12),
            your_address: address(header, 16),
            next_server: address(header, 20),
            relay: address(header, 24),
            hardware: HardwareAddress::new(header[1], &header[28..28 + usize::from(header[2])]),
            file: Vec::new(),
            options: Options::default(),
        };
        packet.options.read(options);
        let overload = packet.options.get(code::OVERLOAD).and_then(|value| value.first().copied());
        let overload = overload.unwrap_or(0);
        if overload & 1 != 0 {
            packet.options.read(&header[FILE]);
        } else {
            let file = &header[FILE];
            let length = file.iter().position(|byte| *byte == 0).unwrap_or(file.len());
            packet.file = file[..length].to_vec();
        }
        if overload & 2 != 0 {
            packet.options.read(&header[SERVER_NAME]);
        }
        Ok(packet)
    }

    /// Writes the message, no longer than `largest` bytes.
    #[must_use]
    pub fn encode(&self, largest: usize) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        out[0] = if self.is_request { 1 } else { 2 };
        out[1] = self.hardware.kind();
        out[2] = self.hardware.bytes().len() as u8;
        out[3] = self.hops;
        out[4..8].copy_from_slice(&self.transaction.to_be_bytes());
        out[8..10].copy_from_slice(&self.seconds.to_be_bytes());
        out[10] = if self.broadcast { 0x80 } else { 0 };
        for (at, address) in [
            (12, self.client_address),
            (16, self.your_address),
            (20, self.next_server),
            (24, self.relay),
        ] {
            out[at..at + 4].copy_from_slice(&address.octets());
        }
        out[28..44].copy_from_slice(self.hardware.padded());
        let file = &self.file[..self.file.len().min(FILE.len() - 1)];
        out[FILE.start..FILE.start + file.len()].copy_from_slice(file);
        out[236..HEADER].copy_from_slice(&COOKIE);
        self.options.write(&mut out, largest.saturating_sub(HEADER));
        if out.len() < SMALLEST {
            out.resize(SMALLEST, 0);
        }
        out
    }

    /// The message's type; none for plain BOOTP.
    #[must_use]
    pub fn message_type(&self) -> Option<MessageType> {
        let value = self.options.get(code::MESSAGE_TYPE)?;
        MessageType::from_number(*value.first()?)
    }

    /// The longest reply this client takes, in bytes.
    #[must_use]
    pub fn largest_reply(&self) -> usize {
        let said = self.options.number16(code::MAX_MESSAGE_SIZE).map_or(0, usize::from);
        // The number counts the IP and UDP headers.
        said.saturating_sub(28).clamp(LARGEST_BY_DEFAULT, LARGEST)
    }

    /// Whether the relay field names a relay.
    #[must_use]
    pub fn is_relayed(&self) -> bool {
        !self.relay.is_unspecified()
    }
}

fn address(header: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3])
}
