// SPDX-License-Identifier: Apache-2.0
//! DHCPv6 messages between client and server, and the relay messages around them.

use std::net::Ipv6Addr;

use super::options::{Dhcp6Options, option_code};
use super::{Dhcp6DecodeError, MAX_HOPS};

const RELAY_FORWARD: u8 = 12;
const RELAY_REPLY: u8 = 13;

/// The message types of RFC 8415 between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum Dhcp6MessageType {
    Solicit,
    Advertise,
    Request,
    Confirm,
    Renew,
    Rebind,
    Reply,
    Release,
    Decline,
    Reconfigure,
    InformationRequest,
}

const MESSAGE_TYPES: [Dhcp6MessageType; 11] = [
    Dhcp6MessageType::Solicit,
    Dhcp6MessageType::Advertise,
    Dhcp6MessageType::Request,
    Dhcp6MessageType::Confirm,
    Dhcp6MessageType::Renew,
    Dhcp6MessageType::Rebind,
    Dhcp6MessageType::Reply,
    Dhcp6MessageType::Release,
    Dhcp6MessageType::Decline,
    Dhcp6MessageType::Reconfigure,
    Dhcp6MessageType::InformationRequest,
];

/// A message between client and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp6Message {
    /// The message type.
    pub message_type: Dhcp6MessageType,
    /// The transaction ID of the client. Only the lower 24 bits are encoded.
    pub transaction_id: u32,
    /// The options.
    pub options: Dhcp6Options,
}

/// A client's message and the relays that forwarded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedDhcp6Message {
    /// The relays, the one nearest to the server first. Empty for a client on the server's link.
    pub hops: Vec<Dhcp6RelayHop>,
    /// The client's message.
    pub message: Dhcp6Message,
}

/// The fields of one relay-forward message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp6RelayHop {
    /// The number of relays before this one.
    pub count: u8,
    /// An address on the client's link; unspecified if the relay does not identify the link.
    pub link: Ipv6Addr,
    /// The client or relay from which the message was received.
    pub peer: Ipv6Addr,
    /// The relay's options without the relayed message.
    pub options: Dhcp6Options,
}

impl Dhcp6MessageType {
    /// Returns the type with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        MESSAGE_TYPES.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns the RFC's number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8 + 1
    }
}

impl Dhcp6Message {
    /// Decodes a message without relays.
    ///
    /// # Errors
    /// If the message is truncated or not one between client and server.
    pub fn decode(bytes: &[u8]) -> Result<Self, Dhcp6DecodeError> {
        let (message_type, transaction_id, rest) = decode_header(bytes)?;
        Ok(Self { message_type, transaction_id, options: Dhcp6Options::decode(rest)? })
    }

    /// Decodes an advertisement or a reply for a client. Returns `None` if it is another message or for
    /// another transaction or client. A truncated last option is ignored, because a client without
    /// configuration cannot work at all.
    #[must_use]
    pub fn decode_reply(bytes: &[u8], transaction_id: u32, client_duid: &[u8]) -> Option<Self> {
        let (message_type, id, rest) = decode_header(bytes).ok()?;
        let (options, _truncated) = Dhcp6Options::decode_complete(rest);
        let is_reply =
            matches!(message_type, Dhcp6MessageType::Advertise | Dhcp6MessageType::Reply);
        let is_for_client = is_reply
            && id == transaction_id
            && options.get(option_code::CLIENT_ID) == Some(client_duid);
        is_for_client.then_some(Self { message_type, transaction_id, options })
    }

    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let [_, id @ ..] = self.transaction_id.to_be_bytes();
        let mut out = vec![self.message_type.number()];
        out.extend(id);
        self.options.encode(&mut out);
        out
    }
}

impl RelayedDhcp6Message {
    /// Decodes a message and the relay-forward messages around it.
    ///
    /// # Errors
    /// If the bytes are not such a message, or it passed more than 8 relays.
    pub fn decode(bytes: &[u8]) -> Result<Self, Dhcp6DecodeError> {
        let mut hops = Vec::new();
        let mut inner = bytes.to_vec();
        while inner.first() == Some(&RELAY_FORWARD) {
            if hops.len() == MAX_HOPS {
                return Err(Dhcp6DecodeError::TooManyRelays);
            }
            let (header, rest) =
                inner.split_first_chunk::<34>().ok_or(Dhcp6DecodeError::Truncated)?;
            let mut options = Dhcp6Options::decode(rest)?;
            let message =
                options.take(option_code::RELAY_MESSAGE).ok_or(Dhcp6DecodeError::EmptyRelay)?;
            hops.push(Dhcp6RelayHop {
                count: header[1],
                link: address(&header[2..18]),
                peer: address(&header[18..34]),
                options,
            });
            inner = message;
        }
        Ok(Self { hops, message: Dhcp6Message::decode(&inner)? })
    }

    /// Encodes a reply that returns through the same relays.
    #[must_use]
    pub fn encode_reply(&self, reply: &Dhcp6Message) -> Vec<u8> {
        let mut bytes = reply.encode();
        for hop in self.hops.iter().rev() {
            let mut out = vec![RELAY_REPLY, hop.count];
            out.extend(hop.link.octets());
            out.extend(hop.peer.octets());
            let mut options = Dhcp6Options::default();
            if let Some(interface) = hop.options.get(option_code::INTERFACE_ID) {
                options.add(option_code::INTERFACE_ID, interface);
            }
            options.add(option_code::RELAY_MESSAGE, bytes);
            options.encode(&mut out);
            bytes = out;
        }
        bytes
    }
}

/// Returns the message type, the transaction ID and the encoded options.
fn decode_header(bytes: &[u8]) -> Result<(Dhcp6MessageType, u32, &[u8]), Dhcp6DecodeError> {
    let (header, options) = bytes.split_first_chunk::<4>().ok_or(Dhcp6DecodeError::Truncated)?;
    let message_type =
        Dhcp6MessageType::from_number(header[0]).ok_or(Dhcp6DecodeError::MessageType(header[0]))?;
    Ok((message_type, u32::from_be_bytes([0, header[1], header[2], header[3]]), options))
}

fn address(bytes: &[u8]) -> Ipv6Addr {
    <[u8; 16]>::try_from(bytes).map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from)
}
