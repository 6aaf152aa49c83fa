// SPDX-License-Identifier: Apache-2.0
//! The outermost layer: RMCP, which carries IPMI and the ASF ping.
//!
//! The ping detects a BMC without authentication.

use crate::MalformedIpmiMessage;

/// The UDP port that BMCs listen on.
pub const PORT: u16 = 623;

/// The length of the RMCP header.
pub const HEADER_LENGTH: usize = 4;

/// The header of an IPMI datagram, without an RMCP acknowledgement.
pub const IPMI_HEADER: [u8; HEADER_LENGTH] = [VERSION, 0, NO_ACKNOWLEDGEMENT, CLASS_IPMI];

/// The content of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RmcpDatagram<'a> {
    /// IPMI, with or without a session.
    Ipmi(&'a [u8]),
    /// A presence ping.
    Ping {
        /// Returned in the pong.
        tag: u8,
    },
    /// A presence pong.
    Pong {
        /// The tag of the ping.
        tag: u8,
        /// Whether the sender supports IPMI.
        supports_ipmi: bool,
    },
}

impl<'a> RmcpDatagram<'a> {
    /// Parses a datagram.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        let (header, rest) =
            bytes.split_at_checked(HEADER_LENGTH).ok_or(MalformedIpmiMessage("RMCP"))?;
        if header[0] != VERSION {
            return Err(MalformedIpmiMessage("RMCP version"));
        }
        match header[3] {
            CLASS_IPMI => Ok(RmcpDatagram::Ipmi(rest)),
            CLASS_ASF => parse_asf(rest),
            _ => Err(MalformedIpmiMessage("RMCP class")),
        }
    }
}

/// Encodes a ping.
#[must_use]
pub fn ping(tag: u8) -> [u8; 12] {
    let [a, b, c, d] = ASF_ENTERPRISE;
    [VERSION, 0, NO_ACKNOWLEDGEMENT, CLASS_ASF, a, b, c, d, ASF_PING, tag, 0, 0]
}

/// Encodes a pong.
#[must_use]
pub fn pong(tag: u8) -> [u8; 28] {
    let mut pong = [0; 28];
    pong[..4].copy_from_slice(&[VERSION, 0, NO_ACKNOWLEDGEMENT, CLASS_ASF]);
    pong[4..8].copy_from_slice(&ASF_ENTERPRISE);
    pong[8..12].copy_from_slice(&[ASF_PONG, tag, 0, 16]);
    pong[12..16].copy_from_slice(&ASF_ENTERPRISE);
    pong[20] = SUPPORTS_IPMI | ASF_VERSION_1;
    pong
}

const VERSION: u8 = 6;
/// "No sequence number".
const NO_ACKNOWLEDGEMENT: u8 = 0xff;
const CLASS_ASF: u8 = 6;
const CLASS_IPMI: u8 = 7;
const ASF_ENTERPRISE: [u8; 4] = [0, 0, 0x11, 0xbe];
const ASF_PING: u8 = 0x80;
const ASF_PONG: u8 = 0x40;
const SUPPORTS_IPMI: u8 = 0x80;
const ASF_VERSION_1: u8 = 1;

fn parse_asf(bytes: &[u8]) -> Result<RmcpDatagram<'_>, MalformedIpmiMessage> {
    match bytes {
        [a, b, c, d, kind, tag, _, _, rest @ ..] if [*a, *b, *c, *d] == ASF_ENTERPRISE => {
            match *kind {
                ASF_PING => Ok(RmcpDatagram::Ping { tag: *tag }),
                ASF_PONG => {
                    let entities = rest.get(8).copied().unwrap_or(0);
                    Ok(RmcpDatagram::Pong {
                        tag: *tag,
                        supports_ipmi: entities & SUPPORTS_IPMI != 0,
                    })
                }
                _ => Err(MalformedIpmiMessage("ASF message type")),
            }
        }
        _ => Err(MalformedIpmiMessage("ASF message")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_and_pongs_are_read_as_written() {
        assert_eq!(RmcpDatagram::parse(&ping(7)), Ok(RmcpDatagram::Ping { tag: 7 }));
        let pong = pong(7);
        assert_eq!(
            RmcpDatagram::parse(&pong),
            Ok(RmcpDatagram::Pong { tag: 7, supports_ipmi: true })
        );
    }

    #[test]
    fn ipmi_is_passed_on() {
        let datagram = [&IPMI_HEADER[..], &[1, 2, 3]].concat();
        assert_eq!(RmcpDatagram::parse(&datagram), Ok(RmcpDatagram::Ipmi(&[1, 2, 3])));
    }

    proptest::proptest! {
        #[test]
        fn anything_may_arrive(bytes: Vec<u8>) {
            let _ = RmcpDatagram::parse(&bytes);
        }
    }
}
