// SPDX-License-Identifier: Apache-2.0
//! The outermost layer: RMCP, which carries IPMI and the ASF ping.
//!
//! The ping is how one asks whether there is a BMC at all, before saying who one is.

use crate::Malformed;

/// The UDP port that BMCs listen on.
pub const PORT: u16 = 623;

/// How many bytes stand before an IPMI message.
pub const HEADER_LENGTH: usize = 4;

/// The header of a datagram that carries IPMI. No RMCP acknowledgement is asked for.
pub const IPMI_HEADER: [u8; HEADER_LENGTH] = [VERSION, 0, NO_ACKNOWLEDGEMENT, CLASS_IPMI];

/// What a datagram carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram<'a> {
    /// IPMI, with or without a session.
    Ipmi(&'a [u8]),
    /// "Are you there?"; the tag comes back in the answer.
    Ping {
        /// Chosen by who asks.
        tag: u8,
    },
    /// "I am."
    Pong {
        /// That of the question.
        tag: u8,
        /// Whether it speaks IPMI.
        speaks_ipmi: bool,
    },
}

impl<'a> Datagram<'a> {
    /// Reads a datagram.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = bytes.split_at_checked(HEADER_LENGTH).ok_or(Malformed("RMCP"))?;
        if header[0] != VERSION {
            return Err(Malformed("RMCP version"));
        }
        match header[3] {
            CLASS_IPMI => Ok(Datagram::Ipmi(rest)),
            CLASS_ASF => parse_asf(rest),
            _ => Err(Malformed("RMCP class")),
        }
    }
}

/// Writes a ping.
#[must_use]
pub fn ping(tag: u8) -> [u8; 12] {
    let [a, b, c, d] = ASF_ENTERPRISE;
    [VERSION, 0, NO_ACKNOWLEDGEMENT, CLASS_ASF, a, b, c, d, ASF_PING, tag, 0, 0]
}

/// Writes the answer to a ping.
#[must_use]
pub fn pong(tag: u8) -> [u8; 28] {
    let mut pong = [0; 28];
    pong[..4].copy_from_slice(&[VERSION, 0, NO_ACKNOWLEDGEMENT, CLASS_ASF]);
    pong[4..8].copy_from_slice(&ASF_ENTERPRISE);
    pong[8..12].copy_from_slice(&[ASF_PONG, tag, 0, 16]);
    pong[12..16].copy_from_slice(&ASF_ENTERPRISE);
    pong[20] = SPEAKS_IPMI | ASF_VERSION_1;
    pong
}

const VERSION: u8 = 6;
/// In place of an RMCP sequence number.
const NO_ACKNOWLEDGEMENT: u8 = 0xff;
const CLASS_ASF: u8 = 6;
const CLASS_IPMI: u8 = 7;
const ASF_ENTERPRISE: [u8; 4] = [0, 0, 0x11, 0xbe];
const ASF_PING: u8 = 0x80;
const ASF_PONG: u8 = 0x40;
const SPEAKS_IPMI: u8 = 0x80;
const ASF_VERSION_1: u8 = 1;

fn parse_asf(bytes: &[u8]) -> Result<Datagram<'_>, Malformed> {
    match bytes {
        [a, b, c, d, kind, tag, _, _, rest @ ..] if [*a, *b, *c, *d] == ASF_ENTERPRISE => {
            match *kind {
                ASF_PING => Ok(Datagram::Ping { tag: *tag }),
                ASF_PONG => {
                    let entities = rest.get(8).copied().unwrap_or(0);
                    Ok(Datagram::Pong { tag: *tag, speaks_ipmi: entities & SPEAKS_IPMI != 0 })
                }
                _ => Err(Malformed("ASF message type")),
            }
        }
        _ => Err(Malformed("ASF message")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_and_pongs_are_read_as_written() {
        assert_eq!(Datagram::parse(&ping(7)), Ok(Datagram::Ping { tag: 7 }));
        let pong = pong(7);
        assert_eq!(Datagram::parse(&pong), Ok(Datagram::Pong { tag: 7, speaks_ipmi: true }));
    }

    #[test]
    fn ipmi_is_passed_on() {
        let datagram = [&IPMI_HEADER[..], &[1, 2, 3]].concat();
        assert_eq!(Datagram::parse(&datagram), Ok(Datagram::Ipmi(&[1, 2, 3])));
    }

    proptest::proptest! {
        #[test]
        fn anything_may_arrive(bytes: Vec<u8>) {
            let _ = Datagram::parse(&bytes);
        }
    }
}
