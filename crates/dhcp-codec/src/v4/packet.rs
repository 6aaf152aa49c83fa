// SPDX-License-Identifier: Apache-2.0
//! The DHCPv4 message.

use std::net::Ipv4Addr;
use std::ops::Range;

use super::MIN_MAX_MESSAGE_BYTES;
use super::options::{Dhcp4Options, option_code};
use crate::HardwareAddress;

/// The bytes before the options, including the magic cookie.
const HEADER_BYTES: usize = 240;
const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The smallest BOOTP message; some relays and firmware drop shorter ones.
const MIN_MESSAGE_BYTES: usize = 300;
/// The payload of an Ethernet frame without the IP and UDP headers.
const MAX_MESSAGE_BYTES: usize = 1472;
const IP_AND_UDP_HEADER_BYTES: usize = 28;

const CLIENT_HARDWARE: Range<usize> = 28..44;
const SERVER_NAME: Range<usize> = 44..108;
const FILE: Range<usize> = 108..236;

/// A DHCPv4 message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp4Packet {
    /// Whether a client sent it (`op`).
    pub is_request: bool,
    /// The number of relays that forwarded it.
    pub hops: u8,
    /// The transaction ID of the client (`xid`).
    pub transaction_id: u32,
    /// Seconds since the client started to request an address.
    pub seconds: u16,
    /// Whether the client can only receive broadcasts.
    pub broadcast: bool,
    /// The address that the client uses (`ciaddr`).
    pub client_address: Ipv4Addr,
    /// The address that the server assigns (`yiaddr`).
    pub your_address: Ipv4Addr,
    /// The next server of the boot process (`siaddr`).
    pub next_server: Ipv4Addr,
    /// The relay's address (`giaddr`); unspecified without a relay.
    pub relay: Ipv4Addr,
    /// The client's hardware address (`chaddr`).
    pub hardware: HardwareAddress,
    /// The boot file of the header. At most 127 bytes are encoded.
    pub file: Vec<u8>,
    /// The options, including those in overloaded header fields.
    pub options: Dhcp4Options,
}

/// The message types of RFC 2131.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum Dhcp4MessageType {
    Discover,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
    Inform,
}

/// Bytes that are not a DHCPv4 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Dhcp4DecodeError {
    /// Shorter than the header.
    #[error("{0} bytes are too short for a DHCP message")]
    TooShort(usize),
    /// `op` is neither 1 nor 2.
    #[error("operation {0} is neither request nor reply")]
    Operation(u8),
    /// A BOOTP message without DHCP's magic cookie.
    #[error("the DHCP magic cookie is missing")]
    Cookie,
    /// `hlen` exceeds the size of `chaddr`.
    #[error("a hardware address of {0} bytes does not fit its field")]
    HardwareLength(u8),
}

const MESSAGE_TYPES: [Dhcp4MessageType; 8] = [
    Dhcp4MessageType::Discover,
    Dhcp4MessageType::Offer,
    Dhcp4MessageType::Request,
    Dhcp4MessageType::Decline,
    Dhcp4MessageType::Ack,
    Dhcp4MessageType::Nak,
    Dhcp4MessageType::Release,
    Dhcp4MessageType::Inform,
];

impl Dhcp4MessageType {
    /// Returns the RFC's number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Returns the type with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        MESSAGE_TYPES.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl Dhcp4Packet {
    /// Returns a client's message that has only its message type as option.
    #[must_use]
    pub fn request(
        message_type: Dhcp4MessageType,
        transaction_id: u32,
        hardware: HardwareAddress,
    ) -> Self {
        let mut options = Dhcp4Options::default();
        options.set(option_code::MESSAGE_TYPE, [message_type.number()]);
        Self {
            is_request: true,
            hops: 0,
            transaction_id,
            seconds: 0,
            broadcast: false,
            client_address: Ipv4Addr::UNSPECIFIED,
            your_address: Ipv4Addr::UNSPECIFIED,
            next_server: Ipv4Addr::UNSPECIFIED,
            relay: Ipv4Addr::UNSPECIFIED,
            hardware,
            file: Vec::new(),
            options,
        }
    }

    /// Returns a server's message to the sender of `request`, with only its message type as option.
    #[must_use]
    pub fn reply_to(request: &Self, message_type: Dhcp4MessageType) -> Self {
        Self {
            is_request: false,
            broadcast: request.broadcast,
            relay: request.relay,
            ..Self::request(message_type, request.transaction_id, request.hardware)
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// If the header is incomplete or invalid. Malformed options are ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, Dhcp4DecodeError> {
        let (header, options) = split_header(bytes)?;
        let address = header[CLIENT_HARDWARE].get(..usize::from(header[2]));
        let address = address.ok_or(Dhcp4DecodeError::HardwareLength(header[2]))?;
        Ok(Self::from_fields(header, options, HardwareAddress::new(header[1], address)))
    }

    /// Decodes a server's reply for a client. Returns `None` if it is invalid or for another transaction
    /// or client. Only the bytes of the hardware address are compared, because some servers and relays
    /// do not copy its type and length.
    #[must_use]
    pub fn decode_reply(
        bytes: &[u8],
        transaction_id: u32,
        client: HardwareAddress,
    ) -> Option<Self> {
        let (header, options) = split_header(bytes).ok()?;
        let packet = Self::from_fields(header, options, client);
        let is_for_client = !packet.is_request
            && packet.transaction_id == transaction_id
            && header[CLIENT_HARDWARE].starts_with(client.bytes());
        is_for_client.then_some(packet)
    }

    fn from_fields(header: &[u8; HEADER_BYTES], options: &[u8], hardware: HardwareAddress) -> Self {
        let mut packet = Self {
            is_request: header[0] == 1,
            hops: header[3],
            transaction_id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            seconds: u16::from_be_bytes([header[8], header[9]]),
            broadcast: header[10] & 0x80 != 0,
            client_address: address_at(header, 12),
            your_address: address_at(header, 16),
            next_server: address_at(header, 20),
            relay: address_at(header, 24),
            hardware,
            file: Vec::new(),
            options: Dhcp4Options::default(),
        };
        packet.options.decode_field(options);
        let overload = packet.options.get(option_code::OVERLOAD);
        let overload = overload.and_then(|value| value.first().copied()).unwrap_or(0);
        if overload & 1 != 0 {
            packet.options.decode_field(&header[FILE]);
        } else {
            let file = &header[FILE];
            let length = file.iter().position(|byte| *byte == 0).unwrap_or(file.len());
            packet.file = file[..length].to_vec();
        }
        if overload & 2 != 0 {
            packet.options.decode_field(&header[SERVER_NAME]);
        }
        packet
    }

    /// Encodes the message. Options that do not fit into `max_bytes` are left out, except relay agent
    /// information.
    #[must_use]
    pub fn encode(&self, max_bytes: usize) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        out[0] = if self.is_request { 1 } else { 2 };
        out[1] = self.hardware.hardware_type();
        out[2] = self.hardware.bytes().len() as u8;
        out[3] = self.hops;
        out[4..8].copy_from_slice(&self.transaction_id.to_be_bytes());
        out[8..10].copy_from_slice(&self.seconds.to_be_bytes());
        out[10] = if self.broadcast { 0x80 } else { 0 };
        for (offset, address) in [
            (12, self.client_address),
            (16, self.your_address),
            (20, self.next_server),
            (24, self.relay),
        ] {
            out[offset..offset + 4].copy_from_slice(&address.octets());
        }
        out[CLIENT_HARDWARE].copy_from_slice(self.hardware.padded());
        let file = &self.file[..self.file.len().min(FILE.len() - 1)];
        out[FILE.start..FILE.start + file.len()].copy_from_slice(file);
        out[236..HEADER_BYTES].copy_from_slice(&MAGIC_COOKIE);
        self.options.encode(&mut out, max_bytes.saturating_sub(HEADER_BYTES));
        if out.len() < MIN_MESSAGE_BYTES {
            out.resize(MIN_MESSAGE_BYTES, 0);
        }
        out
    }

    /// Returns the message type, `None` for plain BOOTP.
    #[must_use]
    pub fn message_type(&self) -> Option<Dhcp4MessageType> {
        let value = self.options.get(option_code::MESSAGE_TYPE)?;
        Dhcp4MessageType::from_number(*value.first()?)
    }

    /// Returns the size of the largest reply that this client accepts, without IP and UDP headers.
    #[must_use]
    pub fn max_reply_bytes(&self) -> usize {
        // The option counts the IP and UDP headers.
        let requested = self.options.get_u16(option_code::MAX_MESSAGE_SIZE).map_or(0, usize::from);
        requested
            .saturating_sub(IP_AND_UDP_HEADER_BYTES)
            .clamp(MIN_MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES)
    }

    /// Returns whether a relay forwarded the message.
    #[must_use]
    pub fn is_relayed(&self) -> bool {
        !self.relay.is_unspecified()
    }
}

/// Returns a valid header and the options after it. The hardware address is not checked.
fn split_header(bytes: &[u8]) -> Result<(&[u8; HEADER_BYTES], &[u8]), Dhcp4DecodeError> {
    let (header, options) =
        bytes.split_first_chunk().ok_or(Dhcp4DecodeError::TooShort(bytes.len()))?;
    if !matches!(header[0], 1 | 2) {
        return Err(Dhcp4DecodeError::Operation(header[0]));
    }
    if header[236..HEADER_BYTES] != MAGIC_COOKIE {
        return Err(Dhcp4DecodeError::Cookie);
    }
    Ok((header, options))
}

fn address_at(header: &[u8], offset: usize) -> Ipv4Addr {
    Ipv4Addr::new(header[offset], header[offset + 1], header[offset + 2], header[offset + 3])
}
