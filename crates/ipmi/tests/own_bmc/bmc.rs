// SPDX-License-Identifier: Apache-2.0
//! A BMC with bad habits, for the tests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipmi::message::netfn;
use ipmi::packet::{Packet, PayloadType};
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
    pub(crate) answer_twice: bool,
    /// How many requests are answered with "busy".
    pub(crate) busy: usize,
    /// Takes a moment for each request.
    pub(crate) slow: bool,
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
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            suites: vec![CipherSuite::Three, CipherSuite::Seventeen],
            kg: None,
            silent_about_unknown_suites: false,
            drop_every: 0,
            answer_twice: false,
            busy: 0,
            slow: false,
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
            if every != 0 && count.is_multiple_of(every) {
                continue;
            }
            if let Some(reply) = self.hear(&mut datagram[..length]) {
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
            Heard::Nothing(_) => return None,
            Heard::Answered if self.is_unknown_suite(&reply) => return None,
            Heard::Answered | Heard::Closed { .. } => {}
            Heard::Sol { .. } => return None,
            Heard::Request { session, privilege, request } => {
                let (code, data) =
                    self.answer(request.netfn, request.command, request.data, privilege);
                let mut iv = [0; 16];
                fill(&mut iv);
                responder.answer(session, &request, code, &data, iv, &mut reply);
            }
        }
        Some(reply)
    }

    fn is_unknown_suite(&self, reply: &[u8]) -> bool {
        self.behaviour.silent_about_unknown_suites
            && matches!(
                Packet::parse(reply),
                Ok(Packet::New { header, payload })
                    if header.payload_type == PayloadType::OpenSessionResponse && payload[1] != 0
            )
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
                let up = ChassisControl::numbered(*control) == Some(ChassisControl::PowerUp);
                self.power.store(up, Ordering::SeqCst);
            }
            _ => return (completion::INVALID_COMMAND, out),
        }
        (completion::OK, out)
    }
}
