// SPDX-License-Identifier: Apache-2.0
//! A BMC with bad habits, for the tests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipmi::handshake::{OpenSessionResponse, Rakp1, Rakp2, Rakp3};
use ipmi::message::netfn;
use ipmi::packet::{self, Packet, PayloadType};
use ipmi::{
    ChassisControl, ChassisStatus, CipherSuite, Credentials, DeviceId, Heard, Privilege, Responder,
    User, completion,
};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// What is unusual about it.
#[derive(Clone)]
pub(crate) struct Behaviour {
    pub(crate) suites: Vec<CipherSuite>,
    pub(crate) kg: Option<Vec<u8>>,
    /// Says nothing to an Open Session with a suite it does not know.
    pub(crate) silent_about_unknown_suites: bool,
    /// Hears nothing of every so many packets; zero for none.
    pub(crate) drop_every: usize,
    /// How many packets it does not hear at first.
    pub(crate) deaf_to: usize,
    pub(crate) answer_twice: bool,
    /// How many requests are answered with "busy".
    pub(crate) busy: usize,
    /// Takes a moment for each request.
    pub(crate) slow: bool,
    /// Sleeps for so long when it hears something for the first time. What arrives in the meantime
    /// is heard afterwards.
    pub(crate) sleepy: Duration,
    /// Has one session per console, which a repeated Open Session gives another number, and does
    /// not look at the numbers it is told: virtualbmc is so.
    pub(crate) renumbers_sessions: bool,
    /// The answer to the second Open Session is lost.
    pub(crate) loses_second_offer: bool,
    /// Says nothing to users it does not know.
    pub(crate) silent_to_strangers: bool,
}

/// What becomes of the next switching of the machine, besides that it is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// Nobody is told.
    AnswerLost,
    /// Nobody is told, and no session is known any more.
    Restart,
    /// The BMC says that it took too long over it.
    Timeout,
}

pub(crate) struct TestBmc {
    pub(crate) port: u16,
    pub(crate) state: Arc<State>,
    task: JoinHandle<()>,
}

pub(crate) struct State {
    behaviour: Behaviour,
    socket: UdpSocket,
    responder: Mutex<Responder>,
    heard: AtomicUsize,
    busy: AtomicUsize,
    power: AtomicBool,
    at_once: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
    slept: AtomicBool,
    mishap: Mutex<Option<Mishap>>,
    /// How often the machine was switched.
    switched: AtomicUsize,
    /// How often somebody said who they are.
    named: AtomicUsize,
    offers: AtomicUsize,
    last_offer: AtomicU32,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            suites: vec![CipherSuite::Three, CipherSuite::Seventeen],
            kg: None,
            silent_about_unknown_suites: false,
            drop_every: 0,
            deaf_to: 0,
            answer_twice: false,
            busy: 0,
            slow: false,
            sleepy: Duration::ZERO,
            renumbers_sessions: false,
            loses_second_offer: false,
            silent_to_strangers: false,
        }
    }
}

impl TestBmc {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let state = Arc::new(State {
            responder: Mutex::new(responder(&behaviour)),
            heard: AtomicUsize::new(0),
            busy: AtomicUsize::new(behaviour.busy),
            power: AtomicBool::new(false),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            slept: AtomicBool::new(false),
            mishap: Mutex::new(None),
            switched: AtomicUsize::new(0),
            named: AtomicUsize::new(0),
            offers: AtomicUsize::new(0),
            last_offer: AtomicU32::new(0),
            behaviour,
            socket,
        });
        let task = tokio::spawn(Arc::clone(&state).run());
        Self { port, state, task }
    }

    /// How many packets have arrived.
    pub(crate) fn heard(&self) -> usize {
        self.state.heard.load(Ordering::SeqCst)
    }

    /// How often the machine was switched.
    pub(crate) fn switched(&self) -> usize {
        self.state.switched.load(Ordering::SeqCst)
    }

    /// How often somebody said who they are.
    pub(crate) fn named(&self) -> usize {
        self.state.named.load(Ordering::SeqCst)
    }

    /// How many sessions were offered.
    pub(crate) fn offers(&self) -> usize {
        self.state.offers.load(Ordering::SeqCst)
    }

    /// Makes the next switching of the machine go wrong.
    pub(crate) fn expect(&self, mishap: Mishap) {
        *self.state.mishap.lock().unwrap() = Some(mishap);
    }

    /// Falls asleep when it hears the next packet.
    pub(crate) fn grow_sleepy(&self) {
        self.state.slept.store(false, Ordering::SeqCst);
    }

    pub(crate) fn forget_sessions(&self) {
        self.state.responder.lock().unwrap().forget_sessions();
    }
}

impl Drop for TestBmc {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Two users: one for everything, one for looking.
pub(crate) fn responder(behaviour: &Behaviour) -> Responder {
    let user = |name: &[u8], password: &[u8], limit| User {
        credentials: Credentials::new(name, password, behaviour.kg.as_deref()).unwrap(),
        limit,
    };
    let users = vec![
        user(b"admin", b"secret", Privilege::Administrator),
        user(b"guest", b"guest", Privilege::User),
    ];
    Responder::new([7; 16], users, behaviour.suites.clone())
}

pub(crate) fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).unwrap();
}

impl State {
    async fn run(self: Arc<Self>) {
        let mut datagram = [0; 1500];
        loop {
            let Ok((length, from)) = self.socket.recv_from(&mut datagram).await else { return };
            let count = self.heard.fetch_add(1, Ordering::SeqCst) + 1;
            let every = self.behaviour.drop_every;
            if count <= self.behaviour.deaf_to || every != 0 && count.is_multiple_of(every) {
                continue;
            }
            if !self.slept.swap(true, Ordering::SeqCst) {
                tokio::time::sleep(self.behaviour.sleepy).await;
            }
            let mut datagram = self.renumbered(&datagram[..length]);
            if let Some(reply) = self.hear(&mut datagram) {
                let state = Arc::clone(&self);
                if self.behaviour.slow {
                    tokio::spawn(state.reply_slowly(reply, from));
                } else {
                    state.reply(&reply, from).await;
                }
            }
        }
    }

    async fn reply(&self, reply: &[u8], to: SocketAddr) {
        for _ in 0..1 + usize::from(self.behaviour.answer_twice) {
            self.socket.send_to(reply, to).await.unwrap();
        }
    }

    async fn reply_slowly(self: Arc<Self>, reply: Vec<u8>, to: SocketAddr) {
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        self.reply(&reply, to).await;
    }

    fn hear(&self, datagram: &mut [u8]) -> Option<Vec<u8>> {
        let mut responder = self.responder.lock().unwrap();
        let mut reply = Vec::new();
        match responder.hear(datagram, Duration::ZERO, &mut fill, &mut reply) {
            Heard::Nothing(_) | Heard::Sol { .. } => return None,
            Heard::Answered if !self.lets_out(&reply) => return None,
            Heard::Answered | Heard::Closed { .. } => {}
            Heard::Request { session, privilege, request } => {
                let before = self.switched.load(Ordering::SeqCst);
                let (mut code, data) =
                    self.answer(request.netfn, request.command, request.data, privilege);
                let is_switched = self.switched.load(Ordering::SeqCst) != before;
                let mishap = self.mishap.lock().unwrap().take_if(|_| is_switched);
                if mishap == Some(Mishap::Timeout) {
                    code = completion::TIMEOUT;
                }
                let mut iv = [0; 16];
                fill(&mut iv);
                responder.answer(session, &request, code, &data, iv, &mut reply);
                match mishap {
                    None | Some(Mishap::Timeout) => {}
                    Some(Mishap::AnswerLost) => return None,
                    Some(Mishap::Restart) => {
                        responder.forget_sessions();
                        return None;
                    }
                }
            }
        }
        Some(reply)
    }

    /// What arrives, as a BMC that looks at no session numbers understands it.
    fn renumbered(&self, datagram: &[u8]) -> Vec<u8> {
        let mut out = datagram.to_vec();
        let Ok(Packet::New { header, payload }) = Packet::parse(datagram) else { return out };
        if header.payload_type == PayloadType::Rakp1 {
            self.named.fetch_add(1, Ordering::SeqCst);
        }
        if !self.behaviour.renumbers_sessions {
            return out;
        }
        let bmc_session = self.last_offer.load(Ordering::SeqCst);
        if header.payload_type == PayloadType::Rakp1
            && let Ok(rakp1) = Rakp1::parse(payload)
        {
            packet::emit_plain(
                PayloadType::Rakp1,
                &Rakp1 { bmc_session, ..rakp1 }.emit(),
                &mut out,
            );
        } else if header.payload_type == PayloadType::Rakp3
            && let Ok(rakp3) = Rakp3::parse(payload)
        {
            packet::emit_plain(
                PayloadType::Rakp3,
                &Rakp3 { bmc_session, ..rakp3 }.emit(),
                &mut out,
            );
        }
        out
    }

    /// Whether a message of the opening is sent; notes what is offered.
    fn lets_out(&self, reply: &[u8]) -> bool {
        let Ok(Packet::New { header, payload }) = Packet::parse(reply) else { return true };
        if header.payload_type == PayloadType::OpenSessionResponse {
            let offer = OpenSessionResponse::parse(payload).unwrap();
            if offer.status != 0 {
                return !self.behaviour.silent_about_unknown_suites;
            }
            self.last_offer.store(offer.bmc_session, Ordering::SeqCst);
            let is_second = self.offers.fetch_add(1, Ordering::SeqCst) == 1;
            return !(is_second && self.behaviour.loses_second_offer);
        }
        if header.payload_type == PayloadType::Rakp2 {
            return Rakp2::parse(payload).unwrap().status == 0
                || !self.behaviour.silent_to_strangers;
        }
        true
    }

    fn answer(&self, family: u8, command: u8, data: &[u8], privilege: Privilege) -> (u8, Vec<u8>) {
        let less = |busy: usize| busy.checked_sub(1);
        if self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return (completion::NODE_BUSY, Vec::new());
        }
        let mut out = Vec::new();
        match (family, command, data) {
            (netfn::APP, 0x01, _) => {
                DeviceId { ipmi_version: 2, ..DeviceId::default() }.emit(&mut out)
            }
            (netfn::CHASSIS, 0x01, _) => {
                let power_on = self.power.load(Ordering::SeqCst);
                ChassisStatus { power_on, ..ChassisStatus::default() }.emit(&mut out);
            }
            (netfn::CHASSIS, 0x02, _) if privilege < Privilege::Operator => {
                return (completion::INSUFFICIENT_PRIVILEGE, out);
            }
            (netfn::CHASSIS, 0x02, [control]) => {
                self.switched.fetch_add(1, Ordering::SeqCst);
                let up = ChassisControl::numbered(*control) == Some(ChassisControl::PowerUp);
                self.power.store(up, Ordering::SeqCst);
            }
            _ => return (completion::INVALID_COMMAND, out),
        }
        (completion::OK, out)
    }
}
