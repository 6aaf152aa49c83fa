// SPDX-License-Identifier: Apache-2.0
//! DHCPv6 messages: bytes to fields and back, relays unwrapped. Like the v4 codec it is our own, and an
//! option is looked at only when it is asked for.

use std::net::Ipv6Addr;

/// The option numbers used here.
pub mod code {
    #![allow(missing_docs, reason = "the names are the registry's")]
    pub const CLIENT_ID: u16 = 1;
    pub const SERVER_ID: u16 = 2;
    pub const IA_NA: u16 = 3;
    pub const IA_ADDRESS: u16 = 5;
    pub const OPTION_REQUEST: u16 = 6;
    pub const RELAY_MESSAGE: u16 = 9;
    pub const STATUS: u16 = 13;
    pub const RAPID_COMMIT: u16 = 14;
    pub const USER_CLASS: u16 = 15;
    pub const VENDOR_CLASS: u16 = 16;
    pub const INTERFACE_ID: u16 = 18;
    pub const DNS_SERVERS: u16 = 23;
    pub const BOOT_FILE_URL: u16 = 59;
    pub const BOOT_FILE_PARAMETERS: u16 = 60;
    pub const ARCHITECTURE: u16 = 61;
    pub const CLIENT_LINK_LAYER: u16 = 79;
}

const RELAY_FORWARD: u8 = 12;
const RELAY_REPLY: u8 = 13;
/// More relays than any network has one behind the other.
const MOST_HOPS: usize = 8;

/// The message types of RFC 8415 between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum MessageType {
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

const TYPES: [MessageType; 11] = [
    MessageType::Solicit,
    MessageType::Advertise,
    MessageType::Request,
    MessageType::Confirm,
    MessageType::Renew,
    MessageType::Rebind,
    MessageType::Reply,
    MessageType::Release,
    MessageType::Decline,
    MessageType::Reconfigure,
    MessageType::InformationRequest,
];

/// Options in order; a number may come more than once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options(Vec<(u16, Vec<u8>)>);

/// A message between client and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its type.
    pub kind: MessageType,
    /// The client's transaction number, of which three bytes are on the wire.
    pub transaction: u32,
    /// Everything else.
    pub options: Options,
}

/// A message with the relays it came through, the one nearest to the server first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    /// The relays; empty for a client on our own segment.
    pub hops: Vec<RelayHop>,
    /// The client's message.
    pub message: Message,
}

/// What a relay says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayHop {
    /// Relays before it.
    pub count: u8,
    /// An address of the client's network; unspecified if the relay does not say.
    pub link: Ipv6Addr,
    /// Whom it heard: the client or the relay before.
    pub peer: Ipv6Addr,
    /// Its options without the message.
    pub options: Options,
}

/// Why bytes are not a DHCPv6 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It ends in the middle of a field.
    #[error("the message is cut short")]
    CutShort,
    /// A type that is none between client and server.
    #[error("message type {0} is not for a server")]
    Type(u8),
    /// A relay forwards nothing.
    #[error("a relay forwards no message")]
    Empty,
    /// Relays inside relays without end.
    #[error("the message went through more than {MOST_HOPS} relays")]
    TooManyRelays,
}

impl MessageType {
    /// The type of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        TYPES.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The RFC's number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8 + 1
    }
}

impl Options {
    /// Reads options to the end of the bytes.
    ///
    /// # Errors
    /// If the last one is cut short.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut options = Vec::new();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_first_chunk::<4>().ok_or(DecodeError::CutShort)?;
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let (value, rest) = rest.split_at_checked(length).ok_or(DecodeError::CutShort)?;
            options.push((u16::from_be_bytes([head[0], head[1]]), value.to_vec()));
            bytes = rest;
        }
        Ok(Self(options))
    }

    /// The first option of that number.
    #[must_use]
    pub fn get(&self, code: u16) -> Option<&[u8]> {
        self.all(code).next()
    }

    /// Every option of that number.
    pub fn all(&self, code: u16) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| *known == code).map(|(_, value)| value.as_slice())
    }

    /// Adds an option. One too long for its length field is left out.
    pub fn add(&mut self, code: u16, value: impl Into<Vec<u8>>) {
        let value = value.into();
        if u16::try_from(value.len()).is_ok() {
            self.0.push((code, value));
        }
    }

    /// Writes the options.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (code, value) in &self.0 {
            out.extend(code.to_be_bytes());
            out.extend((value.len() as u16).to_be_bytes());
            out.extend_from_slice(value);
        }
    }
}

impl Message {
    /// Writes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let transaction = self.transaction.to_be_bytes();
        let mut out = vec![self.kind.number(), transaction[1], transaction[2], transaction[3]];
        self.options.encode(&mut out);
        out
    }
}

impl Relayed {
    /// Reads a message and the relays around it.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut hops = Vec::new();
        let mut inner = bytes.to_vec();
        while inner.first() == Some(&RELAY_FORWARD) {
            if hops.len() == MOST_HOPS {
                return Err(DecodeError::TooManyRelays);
            }
            let (head, rest) = inner.split_first_chunk::<34>().ok_or(DecodeError::CutShort)?;
            let mut options = Options::decode(rest)?;
            let message = options.0.iter().position(|(code, _)| *code == code::RELAY_MESSAGE);
            let (_, message) = options.0.remove(message.ok_or(DecodeError::Empty)?);
            hops.push(RelayHop {
                count: head[1],
                link: address(&head[2..18]),
                peer: address(&head[18..34]),
                options,
            });
            inner = message;
        }
        let (head, rest) = inner.split_first_chunk::<4>().ok_or(DecodeError::CutShort)?;
        let kind = MessageType::from_number(head[0]).ok_or(DecodeError::Type(head[0]))?;
        let transaction = u32::from_be_bytes([0, head[1], head[2], head[3]]);
        Ok(Self { hops, message: Message { kind, transaction, options: Options::decode(rest)? } })
    }

    /// Wraps a reply so that it goes back through the same relays.
    #[must_use]
    pub fn wrap(&self, reply: &Message) -> Vec<u8> {
        let mut bytes = reply.encode();
        for hop in self.hops.iter().rev() {
            let mut out = vec![RELAY_REPLY, hop.count];
            out.extend(hop.link.octets());
            out.extend(hop.peer.octets());
            let mut options = Options::default();
            if let Some(interface) = hop.options.get(code::INTERFACE_ID) {
                options.add(code::INTERFACE_ID, interface);
            }
            options.add(code::RELAY_MESSAGE, bytes);
            options.encode(&mut out);
            bytes = out;
        }
        bytes
    }
}

fn address(bytes: &[u8]) -> Ipv6Addr {
    <[u8; 16]>::try_from(bytes).map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from)
}
