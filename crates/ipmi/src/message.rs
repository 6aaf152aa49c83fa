// SPDX-License-Identifier: Apache-2.0
//! IPMI messages of LAN and IPMB: addresses, sequence number, command, two checksums.

use crate::MalformedIpmiMessage;

/// The address of a BMC.
pub const BMC_ADDRESS: u8 = 0x20;
/// The address of software on the remote side of a LAN session.
pub const CONSOLE_ADDRESS: u8 = 0x81;

/// Network functions. Responses use the number plus one.
pub mod netfn {
    /// Chassis: power, boot, identification.
    pub const CHASSIS: u8 = 0x00;
    /// Sensors and events.
    pub const SENSOR: u8 = 0x04;
    /// Application: the BMC, its sessions and payloads.
    pub const APP: u8 = 0x06;
    /// Storage: sensor records, inventory, events.
    pub const STORAGE: u8 = 0x0a;
    /// LAN and serial-over-LAN configuration.
    pub const TRANSPORT: u8 = 0x0c;
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpmiRequest<'a> {
    /// The responder's address.
    pub responder: u8,
    /// The responder's LUN.
    pub responder_lun: u8,
    /// The requester's address.
    pub requester: u8,
    /// The requester's LUN.
    pub requester_lun: u8,
    /// The network function; even, six bits.
    pub netfn: u8,
    /// The sequence number; six bits.
    pub sequence: u8,
    /// The command.
    pub command: u8,
    /// The data.
    pub data: &'a [u8],
}

/// A response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpmiResponse<'a> {
    /// The requester's address.
    pub requester: u8,
    /// The requester's LUN.
    pub requester_lun: u8,
    /// The responder's address.
    pub responder: u8,
    /// The responder's LUN.
    pub responder_lun: u8,
    /// The network function of the request, plus one.
    pub netfn: u8,
    /// The sequence number of the request.
    pub sequence: u8,
    /// The command of the request.
    pub command: u8,
    /// The completion code.
    pub completion: u8,
    /// The data.
    pub data: &'a [u8],
}

impl<'a> IpmiRequest<'a> {
    /// Parses a request.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        let fields = MessageFields::parse(bytes)?;
        if fields.netfn & 1 != 0 {
            return Err(MalformedIpmiMessage("request: it is a response"));
        }
        Ok(Self {
            responder: fields.to,
            responder_lun: fields.to_lun,
            requester: fields.from,
            requester_lun: fields.from_lun,
            netfn: fields.netfn,
            sequence: fields.sequence,
            command: fields.command,
            data: fields.rest,
        })
    }

    /// Appends the encoded request to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let head = [self.responder, self.netfn << 2 | self.responder_lun & 3];
        out.extend_from_slice(&[head[0], head[1], checksum(&head), self.requester]);
        out.extend_from_slice(&[self.sequence << 2 | self.requester_lun & 3, self.command]);
        out.extend_from_slice(self.data);
        out.push(checksum(&out[start + 3..]));
    }

    /// Builds the response to this request.
    #[must_use]
    pub const fn response<'b>(&self, completion: u8, data: &'b [u8]) -> IpmiResponse<'b> {
        IpmiResponse {
            requester: self.requester,
            requester_lun: self.requester_lun,
            responder: self.responder,
            responder_lun: self.responder_lun,
            netfn: self.netfn | 1,
            sequence: self.sequence,
            command: self.command,
            completion,
            data,
        }
    }
}

impl<'a> IpmiResponse<'a> {
    /// Parses a response.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        let fields = MessageFields::parse(bytes)?;
        if fields.netfn & 1 == 0 {
            return Err(MalformedIpmiMessage("response: it is a request"));
        }
        let (completion, data) = fields
            .rest
            .split_first()
            .ok_or(MalformedIpmiMessage("response: no completion code"))?;
        Ok(Self {
            requester: fields.to,
            requester_lun: fields.to_lun,
            responder: fields.from,
            responder_lun: fields.from_lun,
            netfn: fields.netfn,
            sequence: fields.sequence,
            command: fields.command,
            completion: *completion,
            data,
        })
    }

    /// Appends the encoded response to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let head = [self.requester, self.netfn << 2 | self.requester_lun & 3];
        out.extend_from_slice(&[head[0], head[1], checksum(&head), self.responder]);
        out.extend_from_slice(&[self.sequence << 2 | self.responder_lun & 3, self.command]);
        out.push(self.completion);
        out.extend_from_slice(self.data);
        out.push(checksum(&out[start + 3..]));
    }
}

/// The common fields of requests and responses.
struct MessageFields<'a> {
    to: u8,
    to_lun: u8,
    from: u8,
    from_lun: u8,
    netfn: u8,
    sequence: u8,
    command: u8,
    rest: &'a [u8],
}

impl<'a> MessageFields<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        let [to, netfn, first, from, sequence, command, rest @ .., last] = bytes else {
            return Err(MalformedIpmiMessage("IPMI message: too short"));
        };
        let sum = bytes[3..bytes.len() - 1].iter().fold(*last, |sum, byte| sum.wrapping_add(*byte));
        if checksum(&[*to, *netfn]) != *first || sum != 0 {
            return Err(MalformedIpmiMessage("IPMI message: checksum"));
        }
        Ok(Self {
            to: *to,
            to_lun: netfn & 3,
            from: *from,
            from_lun: sequence & 3,
            netfn: netfn >> 2,
            sequence: sequence >> 2,
            command: *command,
            rest,
        })
    }
}

/// The byte that makes the sum of all bytes zero.
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_a_request_of_ipmitool() {
        // Get Channel Authentication Capabilities.
        let bytes = [0x20, 0x18, 0xc8, 0x81, 0x00, 0x38, 0x8e, 0x04, 0xb5];
        let request = IpmiRequest::parse(&bytes).unwrap();
        assert_eq!((request.netfn, request.command), (netfn::APP, 0x38));
        assert_eq!(request.data, [0x8e, 0x04]);
        let mut written = Vec::new();
        request.emit(&mut written);
        assert_eq!(written, bytes);
    }

    #[test]
    fn detects_a_flipped_bit() {
        let bytes = [0x20, 0x18, 0xc8, 0x81, 0x00, 0x38, 0x8e, 0x04, 0xb5];
        for index in 0..bytes.len() {
            let mut wrong = bytes;
            wrong[index] ^= 0x10;
            assert!(IpmiRequest::parse(&wrong).is_err(), "byte {index}");
        }
    }

    proptest! {
        #[test]
        fn encoded_responses_parse_to_the_same_values(
            netfn in (0u8..32).prop_map(|half| half * 2),
            luns in (0u8..4, 0u8..4),
            sequence in 0u8..64,
            command: u8,
            completion: u8,
            data: Vec<u8>,
        ) {
            let request = IpmiRequest {
                responder: BMC_ADDRESS,
                responder_lun: luns.0,
                requester: CONSOLE_ADDRESS,
                requester_lun: luns.1,
                netfn,
                sequence,
                command,
                data: &data,
            };
            let mut bytes = vec![9, 9, 9];
            request.emit(&mut bytes);
            prop_assert_eq!(IpmiRequest::parse(&bytes[3..]).unwrap(), request);
            let response = request.response(completion, &data);
            let mut bytes = Vec::new();
            response.emit(&mut bytes);
            prop_assert_eq!(IpmiResponse::parse(&bytes).unwrap(), response);
            prop_assert!(IpmiRequest::parse(&bytes).is_err());
        }

        #[test]
        fn parsing_never_panics(bytes: Vec<u8>) {
            let _ = IpmiRequest::parse(&bytes);
            let _ = IpmiResponse::parse(&bytes);
        }
    }
}
