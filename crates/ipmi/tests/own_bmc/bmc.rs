// SPDX-License-Identifier: Apache-2.0
//! A test BMC with configurable defects.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipmi::handshake::{OpenSessionResponse, Rakp1, Rakp2, Rakp3};
use ipmi::message::netfn;
use ipmi::packet::{self, IpmiPacket, PayloadType};
use ipmi::{
    BmcResponder, ChassisControl, ChassisStatus, CipherSuite, DeviceId, IpmiCredentials,
    IpmiPrivilege, ResponderEvent, ResponderUser, completion,
};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// The defects of the BMC.
#[derive(Clone)]
pub(crate) struct TestBmcBehaviour {
    pub(crate) suites: Vec<CipherSuite>,
    pub(crate) kg: Option<Vec<u8>>,
    /// Ignores Open Session with an unknown suite.
    pub(crate) silent_about_unknown_suites: bool,
    /// Drops every n-th packet; zero for none.
    pub(crate) drop_every: usize,
    /// The number of packets that are dropped at first.
    pub(crate) deaf_to: usize,
    pub(crate) respond_twice: bool,
    /// The number of requests that get "busy".
    pub(crate) busy: usize,
    /// Delays each response.
    pub(crate) slow: bool,
    /// Pauses for this long at the first packet. Packets that arrive meanwhile are handled afterwards.
    pub(crate) sleepy: Duration,
    /// Has one session per console, which gets a new id with a repeated Open Session, and ignores the
    /// session ids of requests, like virtualbmc.
    pub(crate) renumbers_sessions: bool,
    /// Drops the response to the second Open Session.
    pub(crate) loses_second_offer: bool,
    /// Ignores unknown users.
    pub(crate) ignores_unknown_users: bool,
}

/// A fault at the next power change, which is executed nevertheless.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseFault {
    /// No response.
    ResponseLost,
    /// No response, and all sessions are dropped.
    Restart,
    /// A timeout completion code.
    Timeout,
}

pub(crate) struct TestBmc {
    pub(crate) port: u16,
    pub(crate) state: Arc<TestBmcState>,
    task: JoinHandle<()>,
}

pub(crate) struct TestBmcState {
    behaviour: TestBmcBehaviour,
    socket: UdpSocket,
    responder: Mutex<BmcResponder>,
    packets_received: AtomicUsize,
    busy: AtomicUsize,
    power: AtomicBool,
    at_once: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
    slept: AtomicBool,
    mishap: Mutex<Option<ResponseFault>>,
    /// The number of power changes.
    switched: AtomicUsize,
    /// The number of received user names.
    named: AtomicUsize,
    offers: AtomicUsize,
    last_offer: AtomicU32,
}

impl Default for TestBmcBehaviour {
    fn default() -> Self {
        Self {
            suites: vec![CipherSuite::Three, CipherSuite::Seventeen],
            kg: None,
            silent_about_unknown_suites: false,
            drop_every: 0,
            deaf_to: 0,
            respond_twice: false,
            busy: 0,
            slow: false,
            sleepy: Duration::ZERO,
            renumbers_sessions: false,
            loses_second_offer: false,
            ignores_unknown_users: false,
        }
    }
}

impl TestBmc {
    pub(crate) async fn start(behaviour: TestBmcBehaviour) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let state = Arc::new(TestBmcState {
            responder: Mutex::new(responder(&behaviour)),
            packets_received: AtomicUsize::new(0),
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

    /// The number of received packets.
    pub(crate) fn packets_received(&self) -> usize {
        self.state.packets_received.load(Ordering::SeqCst)
    }

    /// The number of power changes.
    pub(crate) fn power_changes(&self) -> usize {
        self.state.switched.load(Ordering::SeqCst)
    }

    /// The number of received user names.
    pub(crate) fn names_received(&self) -> usize {
        self.state.named.load(Ordering::SeqCst)
    }

    /// The number of offered sessions.
    pub(crate) fn offers(&self) -> usize {
        self.state.offers.load(Ordering::SeqCst)
    }

    /// Injects a fault into the next power change.
    pub(crate) fn expect(&self, mishap: ResponseFault) {
        *self.state.mishap.lock().unwrap() = Some(mishap);
    }

    /// Pauses at the next packet.
    pub(crate) fn pause_on_next_packet(&self) {
        self.state.slept.store(false, Ordering::SeqCst);
    }

    pub(crate) fn drop_sessions(&self) {
        self.state.responder.lock().unwrap().drop_sessions();
    }
}

impl Drop for TestBmc {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Two users: an administrator and a read-only one.
pub(crate) fn responder(behaviour: &TestBmcBehaviour) -> BmcResponder {
    let user = |name: &[u8], password: &[u8], limit| ResponderUser {
        credentials: IpmiCredentials::new(name, password, behaviour.kg.as_deref()).unwrap(),
        limit,
    };
    let users = vec![
        user(b"admin", b"secret", IpmiPrivilege::Administrator),
        user(b"guest", b"guest", IpmiPrivilege::User),
    ];
    BmcResponder::new([7; 16], users, behaviour.suites.clone())
}

pub(crate) fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).unwrap();
}

impl TestBmcState {
    async fn run(self: Arc<Self>) {
        let mut datagram = [0; 1500];
        loop {
            let Ok((length, from)) = self.socket.recv_from(&mut datagram).await else { return };
            let count = self.packets_received.fetch_add(1, Ordering::SeqCst) + 1;
            let every = self.behaviour.drop_every;
            if count <= self.behaviour.deaf_to || every != 0 && count.is_multiple_of(every) {
                continue;
            }
            if !self.slept.swap(true, Ordering::SeqCst) {
                tokio::time::sleep(self.behaviour.sleepy).await;
            }
            let mut datagram = self.renumbered(&datagram[..length]);
            if let Some(reply) = self.handle_datagram(&mut datagram) {
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
        for _ in 0..1 + usize::from(self.behaviour.respond_twice) {
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

    fn handle_datagram(&self, datagram: &mut [u8]) -> Option<Vec<u8>> {
        let mut responder = self.responder.lock().unwrap();
        let mut reply = Vec::new();
        match responder.receive(datagram, Duration::ZERO, &mut fill, &mut reply) {
            ResponderEvent::Nothing(_) | ResponderEvent::Sol { .. } => return None,
            ResponderEvent::Responded if !self.lets_out(&reply) => return None,
            ResponderEvent::Responded | ResponderEvent::Closed { .. } => {}
            ResponderEvent::Request { session, privilege, request } => {
                let before = self.switched.load(Ordering::SeqCst);
                let (mut code, data) =
                    self.respond(request.netfn, request.command, request.data, privilege);
                let is_switched = self.switched.load(Ordering::SeqCst) != before;
                let mishap = self.mishap.lock().unwrap().take_if(|_| is_switched);
                if mishap == Some(ResponseFault::Timeout) {
                    code = completion::TIMEOUT;
                }
                let mut iv = [0; 16];
                fill(&mut iv);
                responder.respond(session, &request, code, &data, iv, &mut reply);
                match mishap {
                    None | Some(ResponseFault::Timeout) => {}
                    Some(ResponseFault::ResponseLost) => return None,
                    Some(ResponseFault::Restart) => {
                        responder.drop_sessions();
                        return None;
                    }
                }
            }
        }
        Some(reply)
    }

    /// The datagram with the session ids that this BMC assumes.
    fn renumbered(&self, datagram: &[u8]) -> Vec<u8> {
        let mut out = datagram.to_vec();
        let Ok(IpmiPacket::New { header, payload }) = IpmiPacket::parse(datagram) else {
            return out;
        };
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

    /// Returns whether a handshake message is sent; records offers.
    fn lets_out(&self, reply: &[u8]) -> bool {
        let Ok(IpmiPacket::New { header, payload }) = IpmiPacket::parse(reply) else { return true };
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
                || !self.behaviour.ignores_unknown_users;
        }
        true
    }

    fn respond(
        &self,
        family: u8,
        command: u8,
        data: &[u8],
        privilege: IpmiPrivilege,
    ) -> (u8, Vec<u8>) {
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
            (netfn::CHASSIS, 0x02, _) if privilege < IpmiPrivilege::Operator => {
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
