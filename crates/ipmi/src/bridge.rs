// SPDX-License-Identifier: Apache-2.0
//! Requests to controllers behind the BMC: each hop wraps the request into a Send Message.

use crate::MalformedIpmiMessage;
use crate::endpoint::{BridgeRoute, BridgeTarget};
use crate::message::{BMC_ADDRESS, CONSOLE_ADDRESS, IpmiRequest, IpmiResponse, netfn};

/// Wraps a request for the target of `way` into a message for the BMC.
pub(crate) fn wrap(way: &BridgeRoute, sequence: u8, message: &[u8]) -> Vec<u8> {
    let Some(transit) = way.transit else {
        return send_message((BMC_ADDRESS, CONSOLE_ADDRESS), way.target, sequence, message);
    };
    let addresses = (transit.address, way.local_address);
    let inner = send_message(addresses, way.target, sequence, message);
    send_message((BMC_ADDRESS, CONSOLE_ADDRESS), transit, sequence, &inner)
}

/// Returns the response of the target inside of `response`; `None` if the BMC only confirms that it
/// forwarded the request and the response is still to come. A forwarding error is returned unchanged.
pub(crate) fn unwrap(
    response: IpmiResponse<'_>,
) -> Result<Option<IpmiResponse<'_>>, MalformedIpmiMessage> {
    let mut response = response;
    // There are at most two hops.
    for _ in 0..2 {
        if !is_bridges(&response) || response.completion != 0 {
            break;
        }
        if response.data.is_empty() {
            return Ok(None);
        }
        response = IpmiResponse::parse(response.data)?;
    }
    Ok(Some(response))
}

/// Returns whether a hop could not forward the request.
pub(crate) fn is_failure(response: &IpmiResponse<'_>) -> bool {
    is_bridges(response) && response.completion != 0
}

/// Writes a Send Message from `addresses.1` to `addresses.0` that forwards `message` to `hop`.
fn send_message(addresses: (u8, u8), hop: BridgeTarget, sequence: u8, message: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(message.len() + 1);
    data.push(TRACK | hop.channel & 0x0f);
    data.extend_from_slice(message);
    let request = IpmiRequest {
        responder: addresses.0,
        responder_lun: 0,
        requester: addresses.1,
        requester_lun: 0,
        netfn: netfn::APP,
        sequence,
        command: SEND_MESSAGE,
        data: &data,
    };
    let mut out = Vec::with_capacity(data.len() + 7);
    request.emit(&mut out);
    out
}

fn is_bridges(response: &IpmiResponse<'_>) -> bool {
    response.netfn == netfn::APP | 1 && response.command == SEND_MESSAGE
}

const SEND_MESSAGE: u8 = 0x34;
/// Requests tracking, so that the hop routes the response back.
const TRACK: u8 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(channel: u8, address: u8) -> BridgeTarget {
        BridgeTarget { channel, address }
    }

    #[test]
    fn one_hop() {
        let wrapped = wrap(&BridgeRoute::to(hop(0, 0x72)), 5, &[1, 2, 3]);
        let outer = IpmiRequest::parse(&wrapped).unwrap();
        assert_eq!((outer.responder, outer.requester), (BMC_ADDRESS, CONSOLE_ADDRESS));
        assert_eq!((outer.command, outer.sequence), (SEND_MESSAGE, 5));
        assert_eq!(outer.data, [0x40, 1, 2, 3]);
    }

    #[test]
    fn two_hops() {
        let way = BridgeRoute { transit: Some(hop(7, 0x82)), ..BridgeRoute::to(hop(8, 0x72)) };
        let wrapped = wrap(&way, 5, &[1, 2, 3]);
        let outer = IpmiRequest::parse(&wrapped).unwrap();
        assert_eq!((outer.responder, outer.data[0]), (BMC_ADDRESS, 0x47));
        let inner = IpmiRequest::parse(&outer.data[1..]).unwrap();
        assert_eq!((inner.responder, inner.requester), (0x82, BMC_ADDRESS));
        assert_eq!(inner.data, [0x48, 1, 2, 3]);
    }

    #[test]
    fn responses_arrive_at_once_or_later_or_never() {
        let request = IpmiRequest {
            responder: 0x72,
            responder_lun: 0,
            requester: BMC_ADDRESS,
            requester_lun: 0,
            netfn: netfn::APP,
            sequence: 5,
            command: 1,
            data: &[],
        };
        let forwarded = IpmiRequest { responder: BMC_ADDRESS, command: SEND_MESSAGE, ..request };
        let response = request.response(0, &[9]);
        let mut bytes = Vec::new();
        response.emit(&mut bytes);
        assert_eq!(unwrap(forwarded.response(0, &bytes)), Ok(Some(response)));
        assert_eq!(unwrap(response), Ok(Some(response)));
        assert_eq!(unwrap(forwarded.response(0, &[])), Ok(None));
        let failed = unwrap(forwarded.response(0x83, &[])).unwrap().unwrap();
        assert!(is_failure(&failed));
    }
}
