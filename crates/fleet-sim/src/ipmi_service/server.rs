// SPDX-License-Identifier: Apache-2.0
//! UDP socket, sessions and serial console of a BMC, with fault injection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipmi::message::IpmiRequest;
use ipmi::packet::IpmiPacket;
use ipmi::{
    BmcResponder, CipherSuite, IpmiCredentials, IpmiPrivilege, ResponderEvent, ResponderUser,
    completion,
};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, sleep_until};

use super::commands::{self, IpmiCommandOutcome};
use super::console::SimulatedConsole;
use crate::faults::{InjectedFaults, RequestTermination};
use crate::simulated_bmc::SimulatedBmc;

/// The IPMI server of one BMC.
pub(super) struct IpmiServer {
    socket: Arc<UdpSocket>,
    bmc: Arc<SimulatedBmc>,
    responder: BmcResponder,
    /// Whether the responder has the users; the fault `wrong-password` removes them.
    accepts_users: bool,
    started: Instant,
    restarts: u32,
    console: Option<ActiveConsole>,
}

/// The serial console, while it is active in a session.
struct ActiveConsole {
    session: u32,
    client: SocketAddr,
    console: SimulatedConsole,
}

/// Size limit of received datagrams.
const MAX_DATAGRAM: usize = 1024;
/// Time after which an unacknowledged console packet is sent again.
const SOL_RETRANSMISSION: Duration = Duration::from_millis(500);

impl IpmiServer {
    pub(super) fn new(socket: Arc<UdpSocket>, bmc: Arc<SimulatedBmc>) -> Self {
        let (guid, restarts) =
            bmc.with_model(|machine, _| (guid(&machine.identity().uuid()), machine.bmc_restarts()));
        let suites = vec![CipherSuite::Three, CipherSuite::Seventeen];
        let responder = BmcResponder::new(guid, ipmi_users(&bmc), suites);
        let started = Instant::now();
        Self { socket, bmc, responder, accepts_users: true, started, restarts, console: None }
    }

    /// Waits for the next datagram, console output or console timer, and handles it.
    pub(super) async fn serve(&mut self) {
        let wake = self.next_console_wakeup();
        let attached = self.console.as_ref().and_then(|active| active.console.attached());
        // Most BMCs have no active console and need not watch their machine.
        if self.console.is_none() {
            let _ = self.socket.readable().await;
            return self.receive_all();
        }
        let output_ready = async {
            match &attached {
                Some(port) => port.wait_for_output().await,
                None => self.bmc.changed_for_console.notified().await,
            }
        };
        let timer = async {
            match wake {
                Some(wake) => sleep_until(wake).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.socket.readable() => self.receive_all(),
            () = output_ready => self.transmit_console(),
            () = timer => {
                if let Some(active) = &mut self.console {
                    active.console.on_silence();
                }
                self.transmit_console();
            }
        }
    }

    /// Handles all pending datagrams. The buffer is not kept, because there are thousands of BMCs
    /// and most are idle.
    fn receive_all(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        while let Ok((length, from)) = self.socket.try_recv_from(&mut buffer) {
            self.handle_datagram(&mut buffer[..length], from);
        }
        self.transmit_console();
    }

    fn handle_datagram(&mut self, datagram: &mut [u8], from: SocketAddr) {
        self.handle_bmc_restart();
        if !self.bmc.is_reachable() {
            return;
        }
        // Faults of session setup apply before the datagram is processed. Within a session, the
        // command is known only after decryption.
        let in_session = is_in_session(datagram);
        let mut faults =
            if in_session { InjectedFaults::default() } else { self.evaluate_faults(SESSION_PATH) };
        if !in_session && !self.apply_faults(&faults) {
            return;
        }
        let mut reply = Vec::new();
        let age = self.started.elapsed();
        let event = self.responder.receive(datagram, age, &mut fill_random, &mut reply);
        if in_session {
            faults = self.evaluate_faults(match &event {
                ResponderEvent::Request { request, .. } => commands::fault_path(request),
                ResponderEvent::Sol { .. } => "/ipmi/console",
                ResponderEvent::Nothing(_)
                | ResponderEvent::Responded
                | ResponderEvent::Closed { .. } => SESSION_PATH,
            });
            if !self.apply_faults(&faults) {
                return;
            }
        }
        match event {
            ResponderEvent::Nothing(_) => return,
            ResponderEvent::Responded => {}
            ResponderEvent::Closed { session } => self.end_console(session),
            ResponderEvent::Sol { session, packet } => {
                if let Some(active) = self.console.as_mut().filter(|it| it.session == session) {
                    active.console.on_packet(packet, &self.bmc);
                }
                return;
            }
            ResponderEvent::Request { session, privilege, request } => {
                let caller = IpmiCaller { session, privilege, from };
                self.respond(caller, &request, &faults, &mut reply);
            }
        }
        self.send(reply, from, &faults);
    }

    fn evaluate_faults(&self, path: &str) -> InjectedFaults {
        self.bmc.fleet.faults.evaluate(self.bmc.index, "IPMI", path, self.bmc.now())
    }

    /// Applies faults to the BMC itself. Returns false if the datagram is dropped.
    fn apply_faults(&mut self, faults: &InjectedFaults) -> bool {
        match &faults.termination {
            Some(RequestTermination::Drop | RequestTermination::Hang) => return false,
            Some(RequestTermination::RestartBmc(duration)) => {
                self.bmc.with_model(|machine, now| machine.restart_bmc_for(now, *duration));
                return false;
            }
            Some(RequestTermination::Status { .. }) | None => {}
        }
        if self.accepts_users == faults.rejects_credentials {
            self.accepts_users = !faults.rejects_credentials;
            let users = if self.accepts_users { ipmi_users(&self.bmc) } else { Vec::new() };
            self.responder.set_users(users);
        }
        true
    }

    fn respond(
        &mut self,
        caller: IpmiCaller,
        request: &IpmiRequest<'_>,
        faults: &InjectedFaults,
        reply: &mut Vec<u8>,
    ) {
        let IpmiCaller { session, privilege, from } = caller;
        let (code, data) = if faults.termination.is_some() {
            (completion::UNSPECIFIED, Vec::new())
        } else {
            let console_session = self.console.as_ref().map(|active| active.session);
            let outcome = self.bmc.with_model(|machine, now| {
                let command = commands::IpmiCommandContext {
                    privilege,
                    power_stuck: faults.power_stuck,
                    console_active: console_session.is_some(),
                };
                commands::handle_command(machine, now, request, command)
            });
            match outcome {
                IpmiCommandOutcome::Reply(code, data) => (code, data),
                IpmiCommandOutcome::ActivateConsole => {
                    let console = SimulatedConsole::new(&self.bmc);
                    self.console = Some(ActiveConsole { session, client: from, console });
                    (completion::OK, commands::sol_activation_data(self.bmc.address.port()))
                }
                IpmiCommandOutcome::DeactivateConsole => {
                    if let Some(session) = console_session {
                        self.end_console(session);
                    }
                    (completion::OK, Vec::new())
                }
            }
        };
        self.responder.respond(session, request, code, &data, random_iv(), reply);
    }

    fn send(&self, mut reply: Vec<u8>, to: SocketAddr, faults: &InjectedFaults) {
        if faults.truncates_body {
            reply.truncate(reply.len() / 2);
        }
        if faults.delay.is_zero() {
            // If the send buffer is full, the datagram is lost, as on a network.
            let _ = self.socket.try_send_to(&reply, to);
            return;
        }
        let (socket, delay) = (Arc::clone(&self.socket), faults.delay);
        tokio::spawn(async move {
            sleep(delay).await;
            let _ = socket.send_to(&reply, to).await;
        });
    }

    /// Sends pending console output and acknowledgements.
    fn transmit_console(&mut self) {
        let Some(active) = &mut self.console else { return };
        active.console.update(&self.bmc);
        let mut packet = Vec::new();
        let mut out = Vec::new();
        while active.console.transmit(&mut packet) {
            if !self.responder.sol(active.session, &packet, random_iv(), &mut out) {
                // The session has ended, and the console with it.
                self.console = None;
                return;
            }
            let _ = self.socket.try_send_to(&out, active.client);
        }
    }

    /// Returns when the console needs attention even if no datagram arrives.
    fn next_console_wakeup(&self) -> Option<Instant> {
        let active = self.console.as_ref()?;
        let retransmission = active.console.is_waiting().then_some(SOL_RETRANSMISSION);
        let change = self.bmc.with_model(|machine, now| {
            machine.next_change().map(|change| change.since(now) + Duration::from_millis(1))
        });
        let wait = retransmission.into_iter().chain(change).min()?;
        Some(Instant::now() + wait)
    }

    fn end_console(&mut self, session: u32) {
        if self.console.as_ref().is_some_and(|active| active.session == session) {
            self.console = None;
        }
    }

    /// Drops all sessions if the BMC has restarted.
    fn handle_bmc_restart(&mut self) {
        let restarts = self.bmc.with_model(|machine, _| machine.bmc_restarts());
        if restarts != self.restarts {
            self.restarts = restarts;
            self.responder.drop_sessions();
            self.console = None;
        }
    }
}

/// Path of session setup and teardown in fault rules.
const SESSION_PATH: &str = "/ipmi/session";

fn is_in_session(datagram: &[u8]) -> bool {
    matches!(IpmiPacket::parse(datagram), Ok(IpmiPacket::New { header, .. }) if header.session != 0)
}

/// The session and address of a request.
#[derive(Clone, Copy)]
struct IpmiCaller {
    session: u32,
    privilege: IpmiPrivilege,
    from: SocketAddr,
}

/// Returns the only user, or none if the name or password is too long for IPMI.
fn ipmi_users(bmc: &SimulatedBmc) -> Vec<ResponderUser> {
    let known = &bmc.fleet.credentials;
    let credentials =
        IpmiCredentials::new(known.username.as_bytes(), known.password.as_bytes(), None);
    let limit = IpmiPrivilege::Administrator;
    credentials.ok().map(|credentials| ResponderUser { credentials, limit }).into_iter().collect()
}

/// Converts the UUID to 16 bytes.
fn guid(uuid: &str) -> [u8; 16] {
    let mut guid = [0; 16];
    let digits: Vec<u32> = uuid.chars().filter_map(|digit| digit.to_digit(16)).collect();
    for (byte, pair) in guid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] << 4 | pair[1]).unwrap_or(0);
    }
    guid
}

fn random_iv() -> [u8; 16] {
    let mut bytes = [0; 16];
    fill_random(&mut bytes);
    bytes
}

fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system provides random numbers");
}
