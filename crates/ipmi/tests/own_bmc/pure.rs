// SPDX-License-Identifier: Apache-2.0
//! Sessions over a simulated network that loses and duplicates packets.

use std::time::Duration;

use ipmi::{
    BmcResponder, CipherSuite, IpmiCredentials, IpmiPrivilege, IpmiSession, IpmiSessionRefusal,
    ResponderEvent, SessionEvent, SessionIdentity, SessionRandom, SessionRequest,
};
use proptest::prelude::*;

use crate::bmc::{TestBmcBehaviour, responder};

proptest! {
    /// With any loss and duplication, a session opens and each request gets its own response, as long
    /// as some packets get through.
    #[test]
    fn sessions_survive_a_bad_network(
        suite in prop_oneof![Just(CipherSuite::Three), Just(CipherSuite::Seventeen)],
        mut fault in proptest::collection::vec(0u8..4, 0..40),
    ) {
        let mut network = LossyNetwork { responder: responder(&TestBmcBehaviour::default()), now: 0, iv: 0 };
        let mut session = session(suite, b"admin", b"secret", IpmiPrivilege::Administrator);
        let mut attempts = 0;
        while !session.is_open() {
            attempts += 1;
            prop_assert!(attempts < 100);
            // A duplicate RAKP 1 may confuse the BMC, as in reality: start again.
            if network.round(&mut session, fault.pop().unwrap_or(0)).is_err() {
                session = self::session(suite, b"admin", b"secret", IpmiPrivilege::Administrator);
            }
        }
        for number in 0..8u8 {
            let data = [number];
            session.submit(SessionRequest { netfn: 0x30, lun: 0, command: 1, data: &data }, None);
            let mut response = None;
            while response.is_none() {
                attempts += 1;
                prop_assert!(attempts < 200);
                response = network.round(&mut session, fault.pop().unwrap_or(0)).unwrap();
            }
            prop_assert_eq!(response, Some(vec![number]));
        }
    }

    /// No input makes either side panic, at any stage.
    #[test]
    fn parsing_never_panics_at_any_stage(
        rounds in 0usize..6,
        kind in any::<u8>(),
        noise in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let mut network = LossyNetwork { responder: responder(&TestBmcBehaviour::default()), now: 0, iv: 0 };
        let mut session =
            session(CipherSuite::Three, b"admin", b"secret", IpmiPrivilege::Administrator);
        for _ in 0..rounds {
            let _ = network.round(&mut session, 0);
        }
        // Random data with a valid header reaches more code.
        let length = u16::try_from(noise.len()).unwrap().to_le_bytes();
        let header = [6, 0, 0xff, 7, 6, kind, 0, 0, 0, 0, 0, 0, 0, 0, length[0], length[1]];
        for mut datagram in [noise.clone(), [&header[..], &noise].concat()] {
            let _ = session.on_datagram(&mut datagram.clone());
            network.handle_datagram(&mut datagram);
        }
    }
}

#[test]
fn detects_a_wrong_password_before_proving_ours() {
    for suite in CipherSuite::ALL {
        let mut network =
            LossyNetwork { responder: responder(&TestBmcBehaviour::default()), now: 0, iv: 0 };
        let mut session = session(suite, b"admin", b"wrong", IpmiPrivilege::Administrator);
        let refused = (0..4).find_map(|_| network.round(&mut session, 0).err());
        assert_eq!(refused, Some(IpmiSessionRefusal::Password));
        let mut close = Vec::new();
        assert!(session.transmit([0; 16], &mut close), "Close Session is sent");
        assert!(!session.transmit([0; 16], &mut close), "once");
    }
}

#[test]
fn a_session_expires_after_a_minute() {
    let mut network =
        LossyNetwork { responder: responder(&TestBmcBehaviour::default()), now: 0, iv: 0 };
    let mut session =
        session(CipherSuite::Seventeen, b"admin", b"secret", IpmiPrivilege::Administrator);
    while !session.is_open() {
        network.round(&mut session, 0).unwrap();
    }
    let exchange = |network: &mut LossyNetwork, session: &mut IpmiSession| {
        session.submit(SessionRequest { netfn: 0x30, lun: 0, command: 1, data: &[5] }, None);
        network.round(session, 0).unwrap()
    };
    network.now += 59;
    assert_eq!(exchange(&mut network, &mut session), Some(vec![5]));
    network.now += 61;
    assert_eq!(exchange(&mut network, &mut session), None);
}

#[test]
fn ignores_a_replayed_packet() {
    let mut network =
        LossyNetwork { responder: responder(&TestBmcBehaviour::default()), now: 0, iv: 0 };
    let mut session =
        session(CipherSuite::Three, b"admin", b"secret", IpmiPrivilege::Administrator);
    while !session.is_open() {
        network.round(&mut session, 0).unwrap();
    }
    session.submit(SessionRequest { netfn: 0x30, lun: 0, command: 1, data: &[5] }, None);
    let mut sent = Vec::new();
    session.transmit([1; 16], &mut sent);
    assert!(network.handle_datagram(&mut sent.clone()).is_some());
    assert!(network.handle_datagram(&mut sent).is_none());
}

/// A network with a BMC that returns the data of every request.
struct LossyNetwork {
    responder: BmcResponder,
    now: u64,
    iv: u8,
}

impl LossyNetwork {
    /// Transfers one packet and its reply. `fault`: 0 success, 1 packet lost, 2 reply lost, 3 packet
    /// duplicated.
    fn round(
        &mut self,
        session: &mut IpmiSession,
        fault: u8,
    ) -> Result<Option<Vec<u8>>, IpmiSessionRefusal> {
        let mut sent = Vec::new();
        self.iv = self.iv.wrapping_add(1);
        if !session.transmit([self.iv; 16], &mut sent) || fault == 1 {
            return Ok(None);
        }
        let mut replies = vec![self.handle_datagram(&mut sent.clone())];
        if fault == 3 {
            replies.push(self.handle_datagram(&mut sent));
        }
        let mut response = None;
        for mut reply in replies.into_iter().flatten().filter(|_| fault != 2) {
            match session.on_datagram(&mut reply)? {
                SessionEvent::Response { completion: 0, data } => response = Some(data.to_vec()),
                SessionEvent::Response { completion, .. } => panic!("completion code {completion}"),
                SessionEvent::Ignored(_)
                | SessionEvent::Offered
                | SessionEvent::Repeated
                | SessionEvent::Advanced
                | SessionEvent::Opened
                | SessionEvent::Sol(_) => {}
            }
        }
        Ok(response)
    }

    fn handle_datagram(&mut self, datagram: &mut [u8]) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        let mut next = self.iv;
        let mut fill = |bytes: &mut [u8]| {
            bytes.fill_with(|| {
                next = next.wrapping_mul(5).wrapping_add(1);
                next
            });
        };
        let now = Duration::from_secs(self.now);
        match self.responder.receive(datagram, now, &mut fill, &mut reply) {
            ResponderEvent::Nothing(_) | ResponderEvent::Sol { .. } => None,
            ResponderEvent::Responded | ResponderEvent::Closed { .. } => Some(reply),
            ResponderEvent::Request { session, request, privilege } => {
                assert_eq!(privilege, IpmiPrivilege::Administrator);
                let echo = request.data.to_vec();
                let is_open =
                    self.responder.respond(session, &request, 0, &echo, [9; 16], &mut reply);
                is_open.then_some(reply)
            }
        }
    }
}

fn session(
    suite: CipherSuite,
    name: &[u8],
    password: &[u8],
    privilege: IpmiPrivilege,
) -> IpmiSession {
    let credentials = IpmiCredentials::new(name, password, None).unwrap();
    let random = SessionRandom { console_session: 0x1234_5678, nonce: [3; 16] };
    IpmiSession::new(SessionIdentity { credentials, privilege, suite }, random)
}
