// SPDX-License-Identifier: Apache-2.0
//! The console's side of a session, without a socket or a clock.
//!
//! Whoever owns the socket sends what [`Session::transmit`] gives, feeds what arrives to
//! [`Session::on_datagram`], and transmits again when nothing arrives for a while. A request that
//! is sent again keeps its own sequence number, by which the BMC knows it for the same one, and
//! gets a new one of the session, without which the BMC would drop it as a replay.

use std::fmt;

use crate::Malformed;
use crate::bridge;
use crate::completion;
use crate::endpoint::{Bridging, Credentials, Privilege};
use crate::handshake::{
    self, Exchange, OpenSessionRequest, OpenSessionResponse, Rakp1, Rakp2, Rakp3, Rakp4, status,
};
use crate::message::{BMC_ADDRESS, CONSOLE_ADDRESS, Request, Response, netfn};
use crate::packet::{self, IV_LENGTH, Keys, Packet, PayloadType};
use crate::suite::{CipherSuite, Digest};
use crate::window::Window;

/// A session from its first message to its last.
pub struct Session {
    who: Identity,
    random: Random,
    /// How often Open Session was sent.
    open_requests: usize,
    /// The BMC's numbers of the session, one for each Open Session that it heard.
    offered: Vec<u32>,
    stage: Stage,
}

/// Who opens the session and what for.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The user.
    pub credentials: Credentials,
    /// What it wants to be allowed.
    pub privilege: Privilege,
    /// What protects the session.
    pub suite: CipherSuite,
}

/// The random numbers a session begins with.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// Our number of the session; not zero.
    pub console_session: u32,
    /// What the keys depend on.
    pub nonce: [u8; 16],
}

/// What a datagram meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Nothing: it is not ours, or came twice, or cannot be read.
    Ignored(Malformed),
    /// A session is offered, and further offers may come: wait a moment before transmitting.
    Offered,
    /// A further answer to something that was sent more than once.
    Repeated,
    /// The opening went on: transmit.
    Advanced,
    /// The session is open.
    Opened,
    /// The answer to the request in flight.
    Answer {
        /// Zero, or why not.
        completion: u8,
        /// The rest.
        data: &'a [u8],
    },
    /// A packet of the serial console.
    Sol(&'a [u8]),
}

/// Why a session was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The BMC said no to the suite or to a session as such.
    Open(u8),
    /// The BMC said no to the user.
    User(u8),
    /// The BMC's proof is wrong: it knows another password.
    Password,
    /// The BMC's proof is wrong, but perhaps only because it is of another session: Open Session was
    /// sent more than once, and not all answers may have arrived.
    Mismatch,
    /// The BMC lost track of the opening: it does not know the session, or said no to our proof
    /// though it knows our password.
    Confused(u8),
    /// The BMC came to another session key: it knows another Kg.
    Kg,
    /// The user may not have the privilege.
    Privilege,
}

/// A request, as it is handed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command<'a> {
    /// Its family.
    pub netfn: u8,
    /// The unit within the BMC.
    pub lun: u8,
    /// What is asked for.
    pub command: u8,
    /// The rest.
    pub data: &'a [u8],
}

enum Stage {
    /// Open Session sent.
    Opening,
    /// RAKP 1 sent.
    Naming,
    /// RAKP 3 sent.
    Proving { exchange: Exchange, key: Digest },
    /// Open. While `raising`, the request in flight is the one for our privilege.
    Open { active: Active, raising: bool },
    /// Refused. The BMC may still be told, so that it frees the slot.
    Over { bmc_session: Option<u32> },
}

struct Active {
    bmc_session: u32,
    keys: Keys,
    /// The number of the last packet sent.
    sent: u32,
    seen: Window,
    /// The number of the last request.
    last_request: u8,
    pending: Option<Pending>,
}

/// A request in flight.
struct Pending {
    netfn: u8,
    command: u8,
    sequence: u8,
    bridged: bool,
    message: Vec<u8>,
}

impl Session {
    /// A session about to be opened.
    #[must_use]
    pub const fn new(who: Identity, random: Random) -> Self {
        let offered = Vec::new();
        Self { who, random, open_requests: 0, offered, stage: Stage::Opening }
    }

    /// Whether the BMC has offered a session, and with it has taken the suite.
    #[must_use]
    pub const fn is_offered(&self) -> bool {
        !self.offered.is_empty()
    }

    /// Whether the BMC has offered a session and not yet said anything to the user's name.
    #[must_use]
    pub const fn is_naming(&self) -> bool {
        matches!(self.stage, Stage::Naming)
    }

    /// Whether it is open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { raising: false, .. })
    }

    /// Writes what the BMC is to be told, for the first time or again, into `out`. False if there
    /// is nothing. `iv` must be new and unpredictable each time.
    pub fn transmit(&mut self, iv: [u8; IV_LENGTH], out: &mut Vec<u8>) -> bool {
        let Random { console_session, nonce } = self.random;
        let who = &self.who;
        // Further offers have been waited for long enough.
        if matches!(self.stage, Stage::Opening) && !self.offered.is_empty() {
            self.stage = Stage::Naming;
        }
        match &mut self.stage {
            Stage::Opening => {
                self.open_requests += 1;
                let request = OpenSessionRequest {
                    tag: TAG_OPEN,
                    privilege: HIGHEST_OF_SUITE,
                    console_session,
                    algorithms: who.suite.algorithms(),
                };
                packet::emit_plain(PayloadType::OpenSessionRequest, &request.emit(), out);
            }
            Stage::Naming => {
                let Some(bmc_session) = self.offered.last() else { return false };
                let rakp1 = Rakp1 {
                    tag: TAG_NAME,
                    bmc_session: *bmc_session,
                    console_nonce: nonce,
                    role: handshake::role(who.privilege),
                    username: who.credentials.username(),
                };
                packet::emit_plain(PayloadType::Rakp1, &rakp1.emit(), out);
            }
            Stage::Proving { exchange, .. } => {
                let proof = exchange.console_proof(&who.credentials);
                let bmc_session = exchange.bmc_session;
                let rakp3 =
                    Rakp3 { tag: TAG_PROOF, status: 0, bmc_session, proof: proof.as_slice() };
                packet::emit_plain(PayloadType::Rakp3, &rakp3.emit(), out);
            }
            Stage::Open { active, .. } => return active.transmit_request(iv, out),
            Stage::Over { bmc_session } => {
                let Some(bmc_session) = bmc_session.take() else { return false };
                let status = status::INVALID_INTEGRITY_CHECK;
                let rakp3 = Rakp3 { tag: TAG_PROOF, status, bmc_session, proof: &[] };
                packet::emit_plain(PayloadType::Rakp3, &rakp3.emit(), out);
            }
        }
        true
    }

    /// Takes in a datagram, which is decrypted in place. A refusal ends the session.
    pub fn on_datagram<'a>(&mut self, datagram: &'a mut [u8]) -> Result<Event<'a>, Refusal> {
        match &mut self.stage {
            Stage::Open { .. } => self.on_sealed(datagram),
            Stage::Opening | Stage::Naming | Stage::Proving { .. } => {
                match self.on_opening(datagram) {
                    Ok(progress) => progress,
                    Err(malformed) => Ok(Event::Ignored(malformed)),
                }
            }
            Stage::Over { .. } => Ok(Event::Ignored(Malformed("packet after the session"))),
        }
    }

    /// Puts a request in flight, in place of the one before. False if the session is not open.
    pub fn submit(&mut self, command: Command<'_>, bridging: Option<&Bridging>) -> bool {
        let Stage::Open { active, raising: false } = &mut self.stage else { return false };
        active.submit(command, bridging);
        true
    }

    /// Writes a packet of the serial console into `out`. False if the session is not open.
    pub fn transmit_sol(&mut self, iv: [u8; IV_LENGTH], sol: &[u8], out: &mut Vec<u8>) -> bool {
        let Stage::Open { active, raising: false } = &mut self.stage else { return false };
        active.seal(PayloadType::Sol, iv, sol, out);
        true
    }

    /// Writes the request to end the session into `out`. False if it is not open.
    pub fn transmit_close(&mut self, iv: [u8; IV_LENGTH], out: &mut Vec<u8>) -> bool {
        let Stage::Open { active, .. } = &mut self.stage else { return false };
        let data = active.bmc_session.to_le_bytes();
        let command = Command { netfn: netfn::APP, lun: 0, command: CLOSE_SESSION, data: &data };
        active.submit(command, None);
        active.transmit_request(iv, out)
    }

    fn on_opening<'a>(&mut self, datagram: &[u8]) -> Result<Result<Event<'a>, Refusal>, Malformed> {
        let Packet::New { header, payload } = Packet::parse(datagram)? else {
            return Err(Malformed("packet while the session opens"));
        };
        Ok(match (&self.stage, header.payload_type) {
            (Stage::Opening | Stage::Naming, PayloadType::OpenSessionResponse) => {
                let response = OpenSessionResponse::parse(payload)?;
                check(response.tag, TAG_OPEN)?;
                self.on_open_session_response(response)?
            }
            (Stage::Naming | Stage::Proving { .. }, PayloadType::Rakp2) => {
                let rakp2 = Rakp2::parse(payload)?;
                check(rakp2.tag, TAG_NAME)?;
                self.on_rakp2(&rakp2)?
            }
            (Stage::Proving { exchange, key }, PayloadType::Rakp4) => {
                let rakp4 = Rakp4::parse(payload)?;
                check(rakp4.tag, TAG_PROOF)?;
                let (exchange, key) = (*exchange, *key);
                self.on_rakp4(&exchange, &key, &rakp4)?
            }
            _ => return Err(Malformed("packet while the session opens: payload type")),
        })
    }

    /// Takes in an offer of a session. Where Open Session was sent several times, there are several.
    /// Some BMCs have a session for each; to others only the last is valid, whichever RAKP 1 names,
    /// and virtualbmc falls over when RAKP 1 comes between them. So all are waited for.
    fn on_open_session_response<'a>(
        &mut self,
        response: OpenSessionResponse,
    ) -> Result<Result<Event<'a>, Refusal>, Malformed> {
        let suite = self.who.suite.algorithms();
        let refusal = match response.status {
            0 if response.algorithms == suite => None,
            0 => Some(status::NO_CIPHER_SUITE),
            status => Some(status),
        };
        match refusal {
            Some(status) if self.offered.is_empty() => {
                self.stage = Stage::Over { bmc_session: None };
                return Ok(Err(Refusal::Open(status)));
            }
            Some(_) => return Ok(Ok(Event::Repeated)),
            None => self.check_session(response.console_session)?,
        }
        if self.offered.len() < MOST_OFFERS {
            self.offered.push(response.bmc_session);
        }
        if self.is_naming() {
            return Ok(Ok(Event::Repeated));
        }
        if self.offered.len() != self.open_requests {
            return Ok(Ok(Event::Offered));
        }
        self.stage = Stage::Naming;
        Ok(Ok(Event::Advanced))
    }

    /// Takes in the BMC's proof. A further one answers a repetition of RAKP 1, and the BMC counts on
    /// the last that it sent.
    fn on_rakp2<'a>(&mut self, rakp2: &Rakp2<'_>) -> Result<Result<Event<'a>, Refusal>, Malformed> {
        let proved = match &self.stage {
            Stage::Proving { exchange, .. } => Some(exchange.bmc_nonce),
            Stage::Opening | Stage::Naming | Stage::Open { .. } | Stage::Over { .. } => None,
        };
        let is_further = proved.is_some();
        if is_further && (rakp2.status != 0 || proved == Some(rakp2.bmc_nonce)) {
            return Ok(Ok(Event::Repeated));
        }
        if rakp2.status != 0 {
            self.stage = Stage::Over { bmc_session: None };
            return Ok(Err(match rakp2.status {
                lost @ (status::INVALID_SESSION | status::INACTIVE_SESSION) => {
                    Refusal::Confused(lost)
                }
                refused => Refusal::User(refused),
            }));
        }
        self.check_session(rakp2.console_session)?;
        let mut exchanges = self.offered.iter().rev().map(|bmc_session| Exchange {
            suite: self.who.suite,
            console_session: self.random.console_session,
            bmc_session: *bmc_session,
            console_nonce: self.random.nonce,
            bmc_nonce: rakp2.bmc_nonce,
            guid: rakp2.guid,
            role: handshake::role(self.who.privilege),
        });
        let is_proved = |it: &Exchange| it.accepts_bmc_proof(&self.who.credentials, rakp2.proof);
        let Some(exchange) = exchanges.find(is_proved) else {
            if is_further {
                return Ok(Ok(Event::Repeated));
            }
            self.stage = Stage::Over { bmc_session: self.offered.last().copied() };
            let is_sure = self.open_requests == 1;
            return Ok(Err(if is_sure { Refusal::Password } else { Refusal::Mismatch }));
        };
        let key = exchange.session_integrity_key(&self.who.credentials);
        self.stage = Stage::Proving { exchange, key };
        Ok(Ok(Event::Advanced))
    }

    fn on_rakp4<'a>(
        &mut self,
        exchange: &Exchange,
        key: &Digest,
        rakp4: &Rakp4<'_>,
    ) -> Result<Result<Event<'a>, Refusal>, Malformed> {
        if rakp4.status != 0 {
            self.stage = Stage::Over { bmc_session: None };
            return Ok(Err(Refusal::Confused(rakp4.status)));
        }
        self.check_session(rakp4.console_session)?;
        if !exchange.accepts_key_proof(key, rakp4.proof) {
            self.stage = Stage::Over { bmc_session: None };
            return Ok(Err(Refusal::Kg));
        }
        let mut active = Active {
            bmc_session: exchange.bmc_session,
            keys: Keys::derive(exchange.suite, key),
            sent: 0,
            seen: Window::default(),
            last_request: 0,
            pending: None,
        };
        // A session begins with the privilege of a user, whatever it was opened for.
        let raising = self.who.privilege > Privilege::User;
        if raising {
            let data = [self.who.privilege.number()];
            let command =
                Command { netfn: netfn::APP, lun: 0, command: SET_PRIVILEGE, data: &data };
            active.submit(command, None);
        }
        self.stage = Stage::Open { active, raising };
        Ok(Ok(if raising { Event::Advanced } else { Event::Opened }))
    }

    fn on_sealed<'a>(&mut self, datagram: &'a mut [u8]) -> Result<Event<'a>, Refusal> {
        let Stage::Open { active, raising } = &mut self.stage else {
            return Ok(Event::Ignored(Malformed("packet before the session")));
        };
        let event = active.on_sealed(datagram, self.random.console_session);
        let event = event.unwrap_or_else(Event::Ignored);
        let Event::Answer { completion, .. } = event else { return Ok(event) };
        if !*raising {
            return Ok(event);
        }
        if completion == completion::OK {
            *raising = false;
            return Ok(Event::Opened);
        }
        Err(Refusal::Privilege)
    }

    fn check_session(&self, session: u32) -> Result<(), Malformed> {
        if session == self.random.console_session {
            Ok(())
        } else {
            Err(Malformed("packet while the session opens: it is of another session"))
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Opening => "opening",
            Stage::Naming => "naming",
            Stage::Proving { .. } => "proving",
            Stage::Open { .. } => "open",
            Stage::Over { .. } => "over",
        };
        f.debug_struct("Session").field("stage", &stage).finish_non_exhaustive()
    }
}

impl Active {
    fn submit(&mut self, command: Command<'_>, bridging: Option<&Bridging>) {
        self.last_request = (self.last_request + 1) & 0x3f;
        let sequence = self.last_request;
        let request = Request {
            responder: bridging.map_or(BMC_ADDRESS, |way| way.target.address),
            responder_lun: command.lun,
            requester: bridging.map_or(CONSOLE_ADDRESS, |way| way.local_address),
            requester_lun: 0,
            netfn: command.netfn,
            sequence,
            command: command.command,
            data: command.data,
        };
        let mut message = Vec::with_capacity(command.data.len() + 32);
        request.emit(&mut message);
        if let Some(way) = bridging {
            message = bridge::wrap(way, sequence, &message);
        }
        self.pending = Some(Pending {
            netfn: command.netfn,
            command: command.command,
            sequence,
            bridged: bridging.is_some(),
            message,
        });
    }

    fn transmit_request(&mut self, iv: [u8; IV_LENGTH], out: &mut Vec<u8>) -> bool {
        // Taken out and put back, because sealing counts the packet.
        let Some(pending) = self.pending.take() else { return false };
        self.seal(PayloadType::Message, iv, &pending.message, out);
        self.pending = Some(pending);
        true
    }

    fn seal(&mut self, kind: PayloadType, iv: [u8; IV_LENGTH], payload: &[u8], out: &mut Vec<u8>) {
        // Zero is for packets outside of sessions. Nobody sends four billion in one.
        self.sent = self.sent.wrapping_add(1).max(1);
        self.keys.seal(kind, self.bmc_session, self.sent, iv, payload, out);
    }

    fn on_sealed<'a>(
        &mut self,
        datagram: &'a mut [u8],
        console_session: u32,
    ) -> Result<Event<'a>, Malformed> {
        let (header, payload) = self.keys.open(datagram)?;
        if header.session != console_session {
            return Err(Malformed("packet in a session: it is of another session"));
        }
        if !self.seen.accepts(header.sequence) {
            return Err(Malformed("packet in a session: it came before"));
        }
        match header.payload_type {
            PayloadType::Sol => Ok(Event::Sol(payload)),
            PayloadType::Message => self.on_message(payload),
            PayloadType::OpenSessionRequest
            | PayloadType::OpenSessionResponse
            | PayloadType::Rakp1
            | PayloadType::Rakp2
            | PayloadType::Rakp3
            | PayloadType::Rakp4 => Err(Malformed("packet in a session: payload type")),
        }
    }

    fn on_message<'a>(&mut self, message: &'a [u8]) -> Result<Event<'a>, Malformed> {
        const LATE: Malformed = Malformed("answer: nobody asked");
        let Some(pending) = &self.pending else { return Err(LATE) };
        let response = Response::parse(message)?;
        let response = if pending.bridged { bridge::unwrap(response)? } else { Some(response) };
        // The BMC has only said that it passed the request on.
        let Some(response) = response else { return Err(Malformed("answer: still on its way")) };
        // A failure to pass it on is the answer to the request.
        let is_bridges = pending.bridged && bridge::is_failure(&response);
        let is_ours = response.netfn == pending.netfn | 1 && response.command == pending.command;
        if response.sequence != pending.sequence || !(is_ours || is_bridges) {
            return Err(LATE);
        }
        self.pending = None;
        Ok(Event::Answer { completion: response.completion, data: response.data })
    }
}

// Different for each message, so that a late answer to one is not taken for that of the next.
const TAG_OPEN: u8 = 1;
const TAG_NAME: u8 = 2;
const TAG_PROOF: u8 = 3;
/// Instead of a privilege in Open Session: as high as the suite allows. RAKP 1 says what we want.
const HIGHEST_OF_SUITE: u8 = 0;
/// How many offers of a session are remembered: as many as repetitions fit into the time.
const MOST_OFFERS: usize = 8;
const SET_PRIVILEGE: u8 = 0x3b;
const CLOSE_SESSION: u8 = 0x3c;

fn check(tag: u8, wanted: u8) -> Result<(), Malformed> {
    if tag == wanted { Ok(()) } else { Err(Malformed("packet while the session opens: tag")) }
}
