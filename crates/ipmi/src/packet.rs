// SPDX-License-Identifier: Apache-2.0
//! IPMI packets in RMCP: a payload with a session header, plain or signed and encrypted.
//!
//! There are two formats. That of IPMI 1.5 is only supported without authentication, because discovery
//! uses it. That of IPMI 2.0 carries everything else.

use std::fmt;

use aes::Aes128;
use aes::cipher::{Block, BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};

use crate::rmcp::{HEADER_LENGTH, IPMI_HEADER};
use crate::suite::{CipherSuite, HmacDigest};
use crate::{MalformedIpmiMessage, rmcp};

/// The payload type of a 2.0 packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadType {
    /// An IPMI message.
    Message,
    /// Serial over LAN.
    Sol,
    /// RMCP+ Open Session Request.
    OpenSessionRequest,
    /// RMCP+ Open Session Response.
    OpenSessionResponse,
    /// RAKP 1.
    Rakp1,
    /// RAKP 2.
    Rakp2,
    /// RAKP 3.
    Rakp3,
    /// RAKP 4.
    Rakp4,
}

/// The session header of a 2.0 packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionHeader {
    /// The payload type.
    pub payload_type: PayloadType,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Whether it is signed.
    pub authenticated: bool,
    /// The session id of the receiver; zero outside of sessions.
    pub session: u32,
    /// The sequence number of this direction; zero outside of sessions.
    pub sequence: u32,
}

/// A datagram, parsed as far as possible without keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpmiPacket<'a> {
    /// A ping.
    Ping {
        /// Returned in the pong.
        tag: u8,
    },
    /// The response to a ping.
    Pong {
        /// The tag of the ping.
        tag: u8,
    },
    /// IPMI 1.5 without authentication: an IPMI message.
    Old {
        /// The message.
        message: &'a [u8],
    },
    /// IPMI 2.0. The payload is unchanged: encrypted if the header has the flag.
    New {
        /// The header.
        header: SessionHeader,
        /// The bytes after the header.
        payload: &'a [u8],
    },
}

/// The keys of an open session.
#[derive(Clone)]
pub struct SessionKeys {
    suite: CipherSuite,
    /// K1, the integrity key.
    signing: HmacDigest,
    /// The first bytes of K2, the encryption key.
    encrypting: [u8; KEY_LENGTH],
}

impl PayloadType {
    /// The number of the payload type.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Message => 0x00,
            Self::Sol => 0x01,
            Self::OpenSessionRequest => 0x10,
            Self::OpenSessionResponse => 0x11,
            Self::Rakp1 => 0x12,
            Self::Rakp2 => 0x13,
            Self::Rakp3 => 0x14,
            Self::Rakp4 => 0x15,
        }
    }

    fn numbered(number: u8) -> Option<Self> {
        let all = [
            Self::Message,
            Self::Sol,
            Self::OpenSessionRequest,
            Self::OpenSessionResponse,
            Self::Rakp1,
            Self::Rakp2,
            Self::Rakp3,
            Self::Rakp4,
        ];
        all.into_iter().find(|kind| kind.number() == number)
    }
}

impl<'a> IpmiPacket<'a> {
    /// Parses a datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        let bytes = match rmcp::RmcpDatagram::parse(datagram)? {
            rmcp::RmcpDatagram::Ping { tag } => return Ok(IpmiPacket::Ping { tag }),
            rmcp::RmcpDatagram::Pong { tag, .. } => return Ok(IpmiPacket::Pong { tag }),
            rmcp::RmcpDatagram::Ipmi(bytes) => bytes,
        };
        match bytes {
            [FORMAT_NONE, _, _, _, _, _, _, _, _, length, rest @ ..] => {
                let message = rest.get(..usize::from(*length));
                Ok(IpmiPacket::Old {
                    message: message.ok_or(MalformedIpmiMessage("IPMI 1.5 packet: too short"))?,
                })
            }
            [FORMAT_2, kind, s0, s1, s2, s3, q0, q1, q2, q3, l0, l1, rest @ ..] => {
                let payload_type = PayloadType::numbered(kind & TYPE_BITS)
                    .ok_or(MalformedIpmiMessage("IPMI 2.0 packet: payload type"))?;
                let length = usize::from(u16::from_le_bytes([*l0, *l1]));
                let payload =
                    rest.get(..length).ok_or(MalformedIpmiMessage("IPMI 2.0 packet: too short"))?;
                let header = SessionHeader {
                    payload_type,
                    encrypted: kind & ENCRYPTED != 0,
                    authenticated: kind & AUTHENTICATED != 0,
                    session: u32::from_le_bytes([*s0, *s1, *s2, *s3]),
                    sequence: u32::from_le_bytes([*q0, *q1, *q2, *q3]),
                };
                Ok(IpmiPacket::New { header, payload })
            }
            _ => Err(MalformedIpmiMessage("IPMI packet: format")),
        }
    }
}

/// Writes a 2.0 packet without a session into `out`, which is cleared first.
pub fn emit_plain(payload_type: PayloadType, payload: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let header = SessionHeader {
        payload_type,
        encrypted: false,
        authenticated: false,
        session: 0,
        sequence: 0,
    };
    emit_header(header, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Writes a 1.5 packet without a session into `out`, which is cleared first.
pub fn emit_old(message: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&IPMI_HEADER);
    out.push(FORMAT_NONE);
    out.extend_from_slice(&[0; 8]);
    // The length field of a 1.5 packet has one byte; no such message is longer.
    let message = &message[..message.len().min(usize::from(u8::MAX))];
    out.push(u8::try_from(message.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(message);
}

impl SessionKeys {
    /// Derives the keys from the session integrity key.
    #[must_use]
    pub fn derive(suite: CipherSuite, session_integrity_key: &HmacDigest) -> Self {
        let key = |number| suite.digest(session_integrity_key.as_slice(), &[&[number; 20]]);
        let mut encrypting = [0; KEY_LENGTH];
        encrypting.copy_from_slice(&key(2).as_slice()[..KEY_LENGTH]);
        Self { suite, signing: key(1), encrypting }
    }

    /// Writes a signed and encrypted packet into `out`, which is cleared first. `iv` must be
    /// unpredictable and never repeated.
    pub fn seal(
        &self,
        payload_type: PayloadType,
        session: u32,
        sequence: u32,
        iv: [u8; IV_LENGTH],
        payload: &[u8],
        out: &mut Vec<u8>,
    ) {
        out.clear();
        // The padding is 1, 2, 3, … followed by its length.
        let padding = (BLOCK_LENGTH - 1) - payload.len() % BLOCK_LENGTH;
        let body = payload.len() + padding + 1;
        let header =
            SessionHeader { payload_type, encrypted: true, authenticated: true, session, sequence };
        emit_header(header, IV_LENGTH + body, out);
        out.extend_from_slice(&iv);
        let start = out.len();
        out.extend_from_slice(payload);
        out.extend((1u8..).take(padding));
        out.push(u8::try_from(padding).expect("the padding is shorter than a block"));
        let mut cipher = cbc::Encryptor::<Aes128>::new(&self.encrypting.into(), &iv.into());
        for block in out[start..].chunks_exact_mut(BLOCK_LENGTH) {
            let mut whole = Block::<Aes128>::default();
            whole.copy_from_slice(block);
            cipher.encrypt_block(&mut whole);
            block.copy_from_slice(&whole);
        }
        self.sign(out);
    }

    /// Verifies the signature of a packet and decrypts it in place.
    pub fn open<'a>(
        &self,
        datagram: &'a mut [u8],
    ) -> Result<(SessionHeader, &'a [u8]), MalformedIpmiMessage> {
        let IpmiPacket::New { header, payload } = IpmiPacket::parse(datagram)? else {
            return Err(MalformedIpmiMessage("packet in a session: format"));
        };
        if !header.authenticated || !header.encrypted {
            return Err(MalformedIpmiMessage("packet in a session: it is not protected"));
        }
        let length = payload.len();
        let code = datagram.len().checked_sub(self.suite.signature_length());
        let code = code.ok_or(MalformedIpmiMessage("packet in a session: too short"))?;
        let (signed, code) = datagram.split_at(code);
        // The padding, its length and the next header follow the payload.
        if signed.len() < START + length + 2
            || !self.suite.verifies(self.signing.as_slice(), &[&signed[HEADER_LENGTH..]], code)
        {
            return Err(MalformedIpmiMessage("packet in a session: signature"));
        }
        let body = &mut datagram[START..START + length];
        if length < IV_LENGTH + BLOCK_LENGTH || length % BLOCK_LENGTH != 0 {
            return Err(MalformedIpmiMessage("packet in a session: length"));
        }
        let (iv, body) = body.split_at_mut(IV_LENGTH);
        let mut whole = Block::<Aes128>::default();
        whole.copy_from_slice(iv);
        let mut cipher = cbc::Decryptor::<Aes128>::new(&self.encrypting.into(), &whole);
        for block in body.chunks_exact_mut(BLOCK_LENGTH) {
            whole.copy_from_slice(block);
            cipher.decrypt_block(&mut whole);
            block.copy_from_slice(&whole);
        }
        let padding = usize::from(body.last().copied().unwrap_or(0));
        let end = body.len().checked_sub(padding + 1);
        // Only a whole block of padding is invalid; BMCs differ in the content of the padding.
        let end = end.filter(|_| padding < BLOCK_LENGTH);
        let end = end.ok_or(MalformedIpmiMessage("packet in a session: padding"))?;
        Ok((header, &body[..end]))
    }

    fn sign(&self, out: &mut Vec<u8>) {
        // The signed part must be a multiple of four bytes, including two bytes after the padding.
        let padding = (4 - (out.len() - HEADER_LENGTH + 2) % 4) % 4;
        out.extend(std::iter::repeat_n(0xff, padding));
        out.push(u8::try_from(padding).expect("at most three"));
        out.push(NEXT_HEADER);
        let code = self.suite.digest(self.signing.as_slice(), &[&out[HEADER_LENGTH..]]);
        out.extend_from_slice(code.cut(self.suite.signature_length()).as_slice());
    }
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// The length of an initialisation vector.
pub const IV_LENGTH: usize = 16;
const KEY_LENGTH: usize = 16;
const BLOCK_LENGTH: usize = 16;
const FORMAT_NONE: u8 = 0x00;
const FORMAT_2: u8 = 0x06;
const NEXT_HEADER: u8 = 0x07;
const ENCRYPTED: u8 = 0x80;
const AUTHENTICATED: u8 = 0x40;
const TYPE_BITS: u8 = 0x3f;
/// The offset of the payload in a 2.0 packet.
const START: usize = HEADER_LENGTH + 12;

fn emit_header(header: SessionHeader, length: usize, out: &mut Vec<u8>) {
    let kind = header.payload_type.number()
        | if header.encrypted { ENCRYPTED } else { 0 }
        | if header.authenticated { AUTHENTICATED } else { 0 };
    out.extend_from_slice(&IPMI_HEADER);
    out.extend_from_slice(&[FORMAT_2, kind]);
    out.extend_from_slice(&header.session.to_le_bytes());
    out.extend_from_slice(&header.sequence.to_le_bytes());
    out.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(suite: CipherSuite) -> SessionKeys {
        SessionKeys::derive(suite, &suite.digest(b"secret", &[b"nonce"]))
    }

    fn any_suite() -> impl Strategy<Value = CipherSuite> {
        prop_oneof![Just(CipherSuite::Three), Just(CipherSuite::Seventeen)]
    }

    #[test]
    fn keys_do_not_print() {
        assert_eq!(format!("{:?}", keys(CipherSuite::Three)), "Keys { suite: Three, .. }");
    }

    #[test]
    fn plain_packets_are_read_as_written() {
        let mut out = Vec::new();
        emit_plain(PayloadType::Rakp1, &[1, 2, 3], &mut out);
        let IpmiPacket::New { header, payload } = IpmiPacket::parse(&out).unwrap() else {
            panic!()
        };
        assert_eq!(
            (header.payload_type, header.session, payload),
            (PayloadType::Rakp1, 0, &[1, 2, 3][..])
        );
        emit_old(&[4, 5], &mut out);
        assert_eq!(IpmiPacket::parse(&out), Ok(IpmiPacket::Old { message: &[4, 5] }));
    }

    proptest! {
        #[test]
        fn what_is_sealed_can_be_opened(
            suite in any_suite(),
            session: u32,
            sequence: u32,
            iv: [u8; 16],
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut out = Vec::new();
            keys(suite).seal(PayloadType::Sol, session, sequence, iv, &payload, &mut out);
            prop_assert_eq!((out.len() - HEADER_LENGTH - suite.signature_length()) % 4, 0);
            let (header, opened) = keys(suite).open(&mut out).unwrap();
            prop_assert_eq!((header.session, header.sequence), (session, sequence));
            prop_assert_eq!(opened, &payload[..]);
        }

        #[test]
        fn a_flipped_bit_is_noticed(suite in any_suite(), at: usize, bit in 0u8..8) {
            let mut out = Vec::new();
            keys(suite).seal(PayloadType::Message, 1, 2, [7; 16], b"chassis control", &mut out);
            // The RMCP header is not signed.
            let at = HEADER_LENGTH + at % (out.len() - HEADER_LENGTH);
            out[at] ^= 1 << bit;
            prop_assert!(keys(suite).open(&mut out).is_err());
        }

        #[test]
        fn anything_may_arrive(suite in any_suite(), mut bytes: Vec<u8>) {
            let _ = IpmiPacket::parse(&bytes);
            let _ = keys(suite).open(&mut bytes);
        }

        #[test]
        fn anything_signed_may_arrive(suite in any_suite(), payload: Vec<u8>) {
            let keys = keys(suite);
            let mut out = Vec::new();
            let header = SessionHeader {
                payload_type: PayloadType::Message,
                encrypted: true,
                authenticated: true,
                session: 1,
                sequence: 1,
            };
            emit_header(header, payload.len(), &mut out);
            out.extend_from_slice(&payload);
            keys.sign(&mut out);
            let _ = keys.open(&mut out);
        }
    }
}
