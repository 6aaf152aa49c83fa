// SPDX-License-Identifier: Apache-2.0
//! Sessions without a network: the test is the network, and loses what it likes.

use std::time::Duration;

use ipmi::{
    CipherSuite, Command, Credentials, Event, Heard, Identity, Privilege, Random, Refusal,
    Responder, Session,
};
use proptest::prelude::*;

use crate::bmc::{Behaviour, responder};

proptest! {
    /// Whatever is lost or doubled, a session opens and its requests are answered, each with its
    /// own answer, as long as the network lets something through in the end.
    #[test]
    fn sessions_survive_a_bad_network(
        suite in prop_oneof![Just(CipherSuite::Three), Just(CipherSuite::Seventeen)],
        mut luck in proptest::collection::vec(0u8..4, 0..40),
    ) {
        let mut network = Network { responder: responder(&Behaviour::default()), now: 0, iv: 0 };
        let mut session = session(suite, b"admin", b"secret", Privilege::Administrator);
        let mut attempts = 0;
        while !session.is_open() {
            attempts += 1;
            prop_assert!(attempts < 100);
            // A doubled RAKP 1 may make the BMC lose track, as real ones do: begin anew.
            if network.round(&mut session, luck.pop().unwrap_or(0)).is_err() {
                session = self::session(suite, b"admin", b"secret", Privilege::Administrator);
            }
        }
        for number in 0..8u8 {
            let data = [number];
            session.submit(Command { netfn: 0x30, lun: 0, command: 1, data: &data }, None);
            let mut answer = None;
            while answer.is_none() {
                attempts += 1;
                prop_assert!(attempts < 200);
                answer = network.round(&mut session, luck.pop().unwrap_or(0)).unwrap();
            }
            prop_assert_eq!(answer, Some(vec![number]));
        }
    }

    /// Nothing that arrives makes either half fall over, at whatever stage it is.
    #[test]
    fn anything_may_arrive_at_any_stage(
        rounds in 0usize..6,
        kind in any::<u8>(),
        noise in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let mut network = Network { responder: responder(&Behaviour::default()), now: 0, iv: 0 };
        let mut session =
            session(CipherSuite::Three, b"admin", b"secret", Privilege::Administrator);
        for _ in 0..rounds {
            let _ = network.round(&mut session, 0);
        }
        // Noise that looks like a packet gets further than noise that does not.
        let length = u16::try_from(noise.len()).unwrap().to_le_bytes();
        let header = [6, 0, 0xff, 7, 6, kind, 0, 0, 0, 0, 0, 0, 0, 0, length[0], length[1]];
        for mut datagram in [noise.clone(), [&header[..], &noise].concat()] {
            let _ = session.on_datagram(&mut datagram.clone());
            network.hear(&mut datagram);
        }
    }
}

#[test]
fn a_wrong_password_is_noticed_before_ours_is_proved() {
    for suite in CipherSuite::ALL {
        let mut network = Network { responder: responder(&Behaviour::default()), now: 0, iv: 0 };
        let mut session = session(suite, b"admin", b"wrong", Privilege::Administrator);
        let refused = (0..4).find_map(|_| network.round(&mut session, 0).err());
        assert_eq!(refused, Some(Refusal::Password));
        let mut goodbye = Vec::new();
        assert!(session.transmit([0; 16], &mut goodbye), "the BMC is told, so that it forgets us");
        assert!(!session.transmit([0; 16], &mut goodbye), "once");
    }
}

#[test]
fn a_session_is_forgotten_after_a_minute() {
    let mut network = Network { responder: responder(&Behaviour::default()), now: 0, iv: 0 };
    let mut session =
        session(CipherSuite::Seventeen, b"admin", b"secret", Privilege::Administrator);
    while !session.is_open() {
        network.round(&mut session, 0).unwrap();
    }
    let ask = |network: &mut Network, session: &mut Session| {
        session.submit(Command { netfn: 0x30, lun: 0, command: 1, data: &[5] }, None);
        network.round(session, 0).unwrap()
    };
    network.now += 59;
    assert_eq!(ask(&mut network, &mut session), Some(vec![5]));
    network.now += 61;
    assert_eq!(ask(&mut network, &mut session), None);
}

#[test]
fn a_replayed_packet_is_not_obeyed() {
    let mut network = Network { responder: responder(&Behaviour::default()), now: 0, iv: 0 };
    let mut session = session(CipherSuite::Three, b"admin", b"secret", Privilege::Administrator);
    while !session.is_open() {
        network.round(&mut session, 0).unwrap();
    }
    session.submit(Command { netfn: 0x30, lun: 0, command: 1, data: &[5] }, None);
    let mut sent = Vec::new();
    session.transmit([1; 16], &mut sent);
    assert!(network.hear(&mut sent.clone()).is_some());
    assert!(network.hear(&mut sent).is_none());
}

/// A network with a BMC at its end that answers every request with what it was given.
struct Network {
    responder: Responder,
    now: u64,
    iv: u8,
}

impl Network {
    /// Carries one packet and its reply. `luck`: 0 all goes well, 1 the packet is lost, 2 the reply
    /// is lost, 3 the packet arrives twice.
    fn round(&mut self, session: &mut Session, luck: u8) -> Result<Option<Vec<u8>>, Refusal> {
        let mut sent = Vec::new();
        self.iv = self.iv.wrapping_add(1);
        if !session.transmit([self.iv; 16], &mut sent) || luck == 1 {
            return Ok(None);
        }
        let mut replies = vec![self.hear(&mut sent.clone())];
        if luck == 3 {
            replies.push(self.hear(&mut sent));
        }
        let mut answer = None;
        for mut reply in replies.into_iter().flatten().filter(|_| luck != 2) {
            match session.on_datagram(&mut reply)? {
                Event::Answer { completion: 0, data } => answer = Some(data.to_vec()),
                Event::Answer { completion, .. } => panic!("completion code {completion}"),
                Event::Ignored(_)
                | Event::Offered
                | Event::Repeated
                | Event::Advanced
                | Event::Opened
                | Event::Sol(_) => {}
            }
        }
        Ok(answer)
    }

    fn hear(&mut self, datagram: &mut [u8]) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        let mut next = self.iv;
        let mut fill = |bytes: &mut [u8]| {
            bytes.fill_with(|| {
                next = next.wrapping_mul(5).wrapping_add(1);
                next
            });
        };
        let now = Duration::from_secs(self.now);
        match self.responder.hear(datagram, now, &mut fill, &mut reply) {
            Heard::Nothing(_) | Heard::Sol { .. } => None,
            Heard::Answered | Heard::Closed { .. } => Some(reply),
            Heard::Request { session, request, privilege } => {
                assert_eq!(privilege, Privilege::Administrator);
                let echo = request.data.to_vec();
                let said = self.responder.answer(session, &request, 0, &echo, [9; 16], &mut reply);
                said.then_some(reply)
            }
        }
    }
}

fn session(suite: CipherSuite, name: &[u8], password: &[u8], privilege: Privilege) -> Session {
    let credentials = Credentials::new(name, password, None).unwrap();
    let random = Random { console_session: 0x1234_5678, nonce: [3; 16] };
    Session::new(Identity { credentials, privilege, suite }, random)
}
