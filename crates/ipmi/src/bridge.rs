// SPDX-License-Identifier: Apache-2.0
//! Requests to controllers behind the BMC: each hop wraps them into a Send Message.

use crate::Malformed;
use crate::endpoint::{Bridging, Hop};
use crate::message::{BMC_ADDRESS, CONSOLE_ADDRESS, Request, Response, netfn};

/// Wraps a request for the target of `way` into what the BMC is sent.
pub(crate) fn wrap(way: &Bridging, sequence: u8, message: &[u8]) -> Vec<u8> {
    let Some(transit) = way.transit else {
        return send_message((BMC_ADDRESS, CONSOLE_ADDRESS), way.target, sequence, message);
    };
    let addresses = (transit.address, way.local_address);
    let inner = send_message(addresses, way.target, sequence, message);
    send_message((BMC_ADDRESS, CONSOLE_ADDRESS), transit, sequence, &inner)
}

/// The target's answer within `response`; none if the BMC only says that it passed the request on,
/// and the answer is still to come. A failure to pass it on is returned as it is.
pub(crate) fn unwrap(response: Response<'_>) -> Result<Option<Response<'_>>, Malformed> {
    let mut response = response;
    // No more than two hops are ever made.
    for _ in 0..2 {
        if !is_bridges(&response) || response.completion != 0 {
            break;
        }
        if response.data.is_empty() {
            return Ok(None);
        }
        response = Response::parse(response.data)?;
    }
    Ok(Some(response))
}

/// Whether this is a hop saying that it could not pass the request on.
pub(crate) fn is_failure(response: &Response<'_>) -> bool {
    is_bridges(response) && response.completion != 0
}

/// Writes a Send Message from `addresses.1` to `addresses.0`, which passes `message` on to `hop`.
fn send_message(addresses: (u8, u8), hop: Hop, sequence: u8, message: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(message.len() + 1);
    data.push(TRACK | hop.channel & 0x0f);
    data.extend_from_slice(message);
    let request = Request {
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

fn is_bridges(response: &Response<'_>) -> bool {
    response.netfn == netfn::APP | 1 && response.command == SEND_MESSAGE
}

const SEND_MESSAGE: u8 = 0x34;
/// Asks the hop to remember whose request it is, so that the answer finds its way back.
const TRACK: u8 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(channel: u8, address: u8) -> Hop {
        Hop { channel, address }
    }

    #[test]
    fn one_hop() {
        let wrapped = wrap(&Bridging::to(hop(0, 0x72)), 5, &[1, 2, 3]);
        let outer = Request::parse(&wrapped).unwrap();
        assert_eq!((outer.responder, outer.requester), (BMC_ADDRESS, CONSOLE_ADDRESS));
        assert_eq!((outer.command, outer.sequence), (SEND_MESSAGE, 5));
        assert_eq!(outer.data, [0x40, 1, 2, 3]);
    }

    #[test]
    fn two_hops() {
        let way = Bridging { transit: Some(hop(7, 0x82)), ..Bridging::to(hop(8, 0x72)) };
        let wrapped = wrap(&way, 5, &[1, 2, 3]);
        let outer = Request::parse(&wrapped).unwrap();
        assert_eq!((outer.responder, outer.data[0]), (BMC_ADDRESS, 0x47));
        let inner = Request::parse(&outer.data[1..]).unwrap();
        assert_eq!((inner.responder, inner.requester), (0x82, BMC_ADDRESS));
        assert_eq!(inner.data, [0x48, 1, 2, 3]);
    }

    #[test]
    fn answers_come_at_once_or_later_or_not() {
        let asked = Request {
            responder: 0x72,
            responder_lun: 0,
            requester: BMC_ADDRESS,
            requester_lun: 0,
            netfn: netfn::APP,
            sequence: 5,
            command: 1,
            data: &[],
        };
        let forwarded = Request { responder: BMC_ADDRESS, command: SEND_MESSAGE, ..asked };
        let answer = asked.answer(0, &[9]);
        let mut bytes = Vec::new();
        answer.emit(&mut bytes);
        assert_eq!(unwrap(forwarded.answer(0, &bytes)), Ok(Some(answer)));
        assert_eq!(unwrap(answer), Ok(Some(answer)));
        assert_eq!(unwrap(forwarded.answer(0, &[])), Ok(None));
        let failed = unwrap(forwarded.answer(0x83, &[])).unwrap().unwrap();
        assert!(is_failure(&failed));
    }
}
