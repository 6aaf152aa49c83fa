// SPDX-License-Identifier: Apache-2.0
//! A BMC's socket, sessions and serial console, and what faults do to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipmi::message::Request;
use ipmi::packet::Packet;
use ipmi::{CipherSuite, Credentials, Heard, Privilege, Responder, User, completion};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, sleep_until};

use super::commands::{self, Done};
use super::console::Console;
use crate::bmc::Bmc;
use crate::faults::{End, Verdict};

/// A BMC as IPMI shows it.
pub(super) struct Face {
    socket: Arc<UdpSocket>,
    bmc: Arc<Bmc>,
    responder: Responder,
    /// Whether the sessions know the users; a fault may make them forget.
    lets_users_in: bool,
    started: Instant,
    restarts: u32,
    console: Option<Carried>,
}

/// The serial console, while a session carries it.
struct Carried {
    session: u32,
    to: SocketAddr,
    console: Console,
}

/// The longest datagram that is read.
const LONGEST: usize = 1024;
/// How long a packet of the console may go unacknowledged.
const RETRANSMISSION: Duration = Duration::from_millis(500);

impl Face {
    pub(super) fn new(socket: Arc<UdpSocket>, bmc: Arc<Bmc>) -> Self {
        let (guid, restarts) =
            bmc.with(|machine, _| (guid(&machine.identity().uuid()), machine.bmc_restarts()));
        let suites = vec![CipherSuite::Three, CipherSuite::Seventeen];
        let responder = Responder::new(guid, users(&bmc), suites);
        let started = Instant::now();
        Self { socket, bmc, responder, lets_users_in: true, started, restarts, console: None }
    }

    /// Waits for something to happen and sees to it.
    pub(super) async fn serve(&mut self) {
        let wake = self.console_wakes_at();
        let real = self.console.as_ref().and_then(|carried| carried.console.real());
        // Without a console nobody has to hear of changes, and most BMCs have none open.
        if self.console.is_none() {
            let _ = self.socket.readable().await;
            return self.hear_all();
        }
        let printed = async {
            match &real {
                Some(real) => real.printed().await,
                None => self.bmc.changed_for_console.notified().await,
            }
        };
        let woken = async {
            match wake {
                Some(wake) => sleep_until(wake).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.socket.readable() => self.hear_all(),
            () = printed => self.print(),
            () = woken => {
                if let Some(carried) = &mut self.console {
                    carried.console.on_silence();
                }
                self.print();
            }
        }
    }

    /// Sees to all datagrams that are there. The buffer is not kept, because most BMCs are idle
    /// most of the time and there are thousands.
    fn hear_all(&mut self) {
        let mut buffer = [0; LONGEST];
        while let Ok((length, from)) = self.socket.try_recv_from(&mut buffer) {
            self.hear(&mut buffer[..length], from);
        }
        self.print();
    }

    fn hear(&mut self, datagram: &mut [u8], from: SocketAddr) {
        self.notice_restart();
        if !self.bmc.answers() {
            return;
        }
        // Who wants in is judged at the door; what is in a session can only be judged once it is
        // decrypted.
        let outside = !is_sealed(datagram);
        let mut verdict = if outside { self.judge(SESSION) } else { Verdict::default() };
        if outside && !self.goes_on(&verdict) {
            return;
        }
        let mut reply = Vec::new();
        let age = self.started.elapsed();
        let heard = self.responder.hear(datagram, age, &mut fill, &mut reply);
        if !outside {
            verdict = self.judge(match &heard {
                Heard::Request { request, .. } => commands::path(request),
                Heard::Sol { .. } => "/ipmi/console",
                Heard::Nothing(_) | Heard::Answered | Heard::Closed { .. } => SESSION,
            });
            if !self.goes_on(&verdict) {
                return;
            }
        }
        match heard {
            Heard::Nothing(_) => return,
            Heard::Answered => {}
            Heard::Closed { session } => self.end_console(session),
            Heard::Sol { session, packet } => {
                if let Some(carried) = self.console.as_mut().filter(|it| it.session == session) {
                    carried.console.on_packet(packet, &self.bmc);
                }
                return;
            }
            Heard::Request { session, privilege, request } => {
                let caller = Caller { session, privilege, from };
                self.answer(caller, &request, &verdict, &mut reply);
            }
        }
        self.send(reply, from, &verdict);
    }

    fn judge(&self, path: &str) -> Verdict {
        self.bmc.shared.faults.verdict(self.bmc.index, "IPMI", path, self.bmc.now())
    }

    /// Does what a verdict does to the BMC itself. False if the datagram comes to nothing.
    fn goes_on(&mut self, verdict: &Verdict) -> bool {
        match &verdict.end {
            Some(End::Drop | End::Hang) => return false,
            Some(End::Restart(how_long)) => {
                self.bmc.with(|machine, now| machine.keep_bmc_away(now, *how_long));
                return false;
            }
            Some(End::Status { .. }) | None => {}
        }
        if self.lets_users_in == verdict.refuses_everybody {
            self.lets_users_in = !verdict.refuses_everybody;
            let known = if self.lets_users_in { users(&self.bmc) } else { Vec::new() };
            self.responder.set_users(known);
        }
        true
    }

    fn answer(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
        verdict: &Verdict,
        reply: &mut Vec<u8>,
    ) {
        let Caller { session, privilege, from } = caller;
        let (code, data) = if verdict.end.is_some() {
            (completion::UNSPECIFIED, Vec::new())
        } else {
            let stuck = verdict.power_is_stuck;
            let carries = self.console.as_ref().map(|carried| carried.session);
            let done = self.bmc.with(|machine, now| {
                commands::answer(machine, now, request, privilege, stuck, carries.is_some())
            });
            match done {
                Done::Answer(code, data) => (code, data),
                Done::ActivateConsole => {
                    let console = Console::new(&self.bmc);
                    self.console = Some(Carried { session, to: from, console });
                    (completion::OK, commands::activated(self.bmc.address.port()))
                }
                Done::DeactivateConsole => {
                    if let Some(session) = carries {
                        self.end_console(session);
                    }
                    (completion::OK, Vec::new())
                }
            }
        };
        self.responder.answer(session, request, code, &data, random(), reply);
    }

    fn send(&self, mut reply: Vec<u8>, to: SocketAddr, verdict: &Verdict) {
        if verdict.garbles_json {
            // What wrong JSON is to Redfish, half a datagram is to IPMI.
            reply.truncate(reply.len() / 2);
        }
        if verdict.delay.is_zero() {
            // A full send buffer loses datagrams, as networks do.
            let _ = self.socket.try_send_to(&reply, to);
            return;
        }
        let (socket, delay) = (Arc::clone(&self.socket), verdict.delay);
        tokio::spawn(async move {
            sleep(delay).await;
            let _ = socket.send_to(&reply, to).await;
        });
    }

    /// Sends what the console has to print or to acknowledge.
    fn print(&mut self) {
        let Some(carried) = &mut self.console else { return };
        carried.console.look_at(&self.bmc);
        let mut packet = Vec::new();
        let mut out = Vec::new();
        while carried.console.transmit(&mut packet) {
            if !self.responder.sol(carried.session, &packet, random(), &mut out) {
                // The session was forgotten, and the console with it.
                self.console = None;
                return;
            }
            let _ = self.socket.try_send_to(&out, carried.to);
        }
    }

    /// When the console has something to do though nothing arrives.
    fn console_wakes_at(&self) -> Option<Instant> {
        let carried = self.console.as_ref()?;
        let silence = carried.console.is_waiting().then_some(RETRANSMISSION);
        let change = self.bmc.with(|machine, now| {
            machine.next_change().map(|change| change.since(now) + Duration::from_millis(1))
        });
        let wait = silence.into_iter().chain(change).min()?;
        Some(Instant::now() + wait)
    }

    fn end_console(&mut self, session: u32) {
        if self.console.as_ref().is_some_and(|carried| carried.session == session) {
            self.console = None;
        }
    }

    /// A BMC that restarts forgets its sessions.
    fn notice_restart(&mut self) {
        let restarts = self.bmc.with(|machine, _| machine.bmc_restarts());
        if restarts != self.restarts {
            self.restarts = restarts;
            self.responder.forget_sessions();
            self.console = None;
        }
    }
}

/// What fault rules call the opening and closing of sessions.
const SESSION: &str = "/ipmi/session";

fn is_sealed(datagram: &[u8]) -> bool {
    matches!(Packet::parse(datagram), Ok(Packet::New { header, .. }) if header.session != 0)
}

/// Who asks.
#[derive(Clone, Copy)]
struct Caller {
    session: u32,
    privilege: Privilege,
    from: SocketAddr,
}

/// The one user there is. One whose name or password is too long for IPMI cannot use it.
fn users(bmc: &Bmc) -> Vec<User> {
    let known = &bmc.shared.credentials;
    let credentials = Credentials::new(known.username.as_bytes(), known.password.as_bytes(), None);
    let limit = Privilege::Administrator;
    credentials.ok().map(|credentials| User { credentials, limit }).into_iter().collect()
}

/// The UUID as sixteen bytes.
fn guid(uuid: &str) -> [u8; 16] {
    let mut guid = [0; 16];
    let digits: Vec<u32> = uuid.chars().filter_map(|digit| digit.to_digit(16)).collect();
    for (byte, pair) in guid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] << 4 | pair[1]).unwrap_or(0);
    }
    guid
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    bytes
}

fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers");
}
