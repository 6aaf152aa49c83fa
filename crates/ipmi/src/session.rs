// SPDX-License-Identifier: Apache-2.0
//! The console side of a session, without socket and clock.
//!
//! The owner of the socket sends what [`IpmiSession::transmit`] writes, passes received datagrams to
//! [`IpmiSession::on_datagram`], and transmits again after a timeout. A repeated request keeps its own
//! sequence number, by which the BMC recognises it, and gets a new sequence number of the session,
//! without which the BMC would drop it as a replay.

use std::fmt;

use crate::MalformedIpmiMessage;
use crate::bridge;
use crate::completion;
use crate::endpoint::{BridgeRoute, IpmiCredentials, IpmiPrivilege};
use crate::handshake::{
    self, HandshakeKeys, OpenSessionRequest, OpenSessionResponse, Rakp1, Rakp2, Rakp3, Rakp4,
    status,
};
use crate::message::{BMC_ADDRESS, CONSOLE_ADDRESS, IpmiRequest, IpmiResponse, netfn};
use crate::packet::{self, IV_LENGTH, IpmiPacket, PayloadType, SessionKeys};
use crate::replay_window::ReplayWindow;
use crate::suite::{CipherSuite, HmacDigest};

/// A session from the handshake to its end.
pub struct IpmiSession {
    who: SessionIdentity,
    random: SessionRandom,
    /// The number of Open Session requests sent.
    open_requests: usize,
    /// The session ids of the BMC, one for each Open Session it received.
    offered: Vec<u32>,
    stage: SessionStage,
}

/// The user and the requested privilege level.
#[derive(Clone, Debug)]
pub struct SessionIdentity {
    /// The user.
    pub credentials: IpmiCredentials,
    /// The requested privilege level.
    pub privilege: IpmiPrivilege,
    /// The cipher suite.
    pub suite: CipherSuite,
}

/// The random numbers of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionRandom {
    /// Our session id; not zero.
    pub console_session: u32,
    /// Input of the key derivation.
    pub nonce: [u8; 16],
}

/// The result of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEvent<'a> {
    /// Ignored: not for this session, a duplicate, or invalid.
    Ignored(MalformedIpmiMessage),
    /// A session is offered, and further offers may follow: delay the next transmission.
    Offered,
    /// Another response to a repeated message.
    Repeated,
    /// The handshake has advanced: transmit.
    Advanced,
    /// The session is open.
    Opened,
    /// The response to the pending request.
    Response {
        /// The completion code.
        completion: u8,
        /// The data.
        data: &'a [u8],
    },
    /// A serial console packet.
    Sol(&'a [u8]),
}

/// Why a session was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpmiSessionRefusal {
    /// The BMC rejected the suite or the session.
    Open(u8),
    /// The BMC rejected the user.
    User(u8),
    /// The proof of the BMC is wrong: the passwords differ.
    Password,
    /// The proof of the BMC is wrong, but may belong to another session: Open Session was sent more
    /// than once, and not all responses may have arrived.
    Mismatch,
    /// The BMC lost the handshake state: it does not recognise the session, or rejected our proof
    /// although the passwords are equal.
    Confused(u8),
    /// The session keys differ: another Kg key.
    Kg,
    /// The privilege level is not allowed for the user.
    Privilege,
}

/// A request of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRequest<'a> {
    /// The network function.
    pub netfn: u8,
    /// The LUN of the BMC.
    pub lun: u8,
    /// The command.
    pub command: u8,
    /// The data.
    pub data: &'a [u8],
}

enum SessionStage {
    /// Open Session sent.
    Opening,
    /// RAKP 1 sent.
    Naming,
    /// RAKP 3 sent.
    Proving { exchange: HandshakeKeys, key: HmacDigest },
    /// Open. While `raising`, the pending request is Set Session Privilege Level.
    Open { active: OpenSession, raising: bool },
    /// Rejected. The BMC may still be notified, so that it frees the session.
    Over { bmc_session: Option<u32> },
}

struct OpenSession {
    bmc_session: u32,
    keys: SessionKeys,
    /// The sequence number of the last packet.
    sent: u32,
    seen: ReplayWindow,
    /// The sequence number of the last request.
    last_request: u8,
    pending: Option<PendingRequest>,
}

/// A pending request.
struct PendingRequest {
    netfn: u8,
    command: u8,
    sequence: u8,
    bridged: bool,
    message: Vec<u8>,
}

impl IpmiSession {
    /// Creates a session that is not open yet.
    #[must_use]
    pub const fn new(who: SessionIdentity, random: SessionRandom) -> Self {
        let offered = Vec::new();
        Self { who, random, open_requests: 0, offered, stage: SessionStage::Opening }
    }

    /// Returns whether the BMC has offered a session and thereby accepted the suite.
    #[must_use]
    pub const fn is_offered(&self) -> bool {
        !self.offered.is_empty()
    }

    /// Returns whether the BMC has offered a session and not yet responded to the user name.
    #[must_use]
    pub const fn is_naming(&self) -> bool {
        matches!(self.stage, SessionStage::Naming)
    }

    /// Returns whether the session is open.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, SessionStage::Open { raising: false, .. })
    }

    /// Writes the pending message into `out`, for the first time or again. Returns false if there is
    /// none. `iv` must be unpredictable and never repeated.
    pub fn transmit(&mut self, iv: [u8; IV_LENGTH], out: &mut Vec<u8>) -> bool {
        let SessionRandom { console_session, nonce } = self.random;
        let who = &self.who;
        // The time for further offers is over.
        if matches!(self.stage, SessionStage::Opening) && !self.offered.is_empty() {
            self.stage = SessionStage::Naming;
        }
        match &mut self.stage {
            SessionStage::Opening => {
                self.open_requests += 1;
                let request = OpenSessionRequest {
                    tag: TAG_OPEN,
                    privilege: HIGHEST_OF_SUITE,
                    console_session,
                    algorithms: who.suite.algorithms(),
                };
                packet::emit_plain(PayloadType::OpenSessionRequest, &request.emit(), out);
            }
            SessionStage::Naming => {
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
            SessionStage::Proving { exchange, .. } => {
                let proof = exchange.console_proof(&who.credentials);
                let bmc_session = exchange.bmc_session;
                let rakp3 =
                    Rakp3 { tag: TAG_PROOF, status: 0, bmc_session, proof: proof.as_slice() };
                packet::emit_plain(PayloadType::Rakp3, &rakp3.emit(), out);
            }
            SessionStage::Open { active, .. } => return active.transmit_request(iv, out),
            SessionStage::Over { bmc_session } => {
                let Some(bmc_session) = bmc_session.take() else { return false };
                let status = status::INVALID_INTEGRITY_CHECK;
                let rakp3 = Rakp3 { tag: TAG_PROOF, status, bmc_session, proof: &[] };
                packet::emit_plain(PayloadType::Rakp3, &rakp3.emit(), out);
            }
        }
        true
    }

    /// Handles a datagram, which is decrypted in place. A rejection ends the session.
    pub fn on_datagram<'a>(
        &mut self,
        datagram: &'a mut [u8],
    ) -> Result<SessionEvent<'a>, IpmiSessionRefusal> {
        match &mut self.stage {
            SessionStage::Open { .. } => self.on_sealed(datagram),
            SessionStage::Opening | SessionStage::Naming | SessionStage::Proving { .. } => {
                match self.on_opening(datagram) {
                    Ok(progress) => progress,
                    Err(malformed) => Ok(SessionEvent::Ignored(malformed)),
                }
            }
            SessionStage::Over { .. } => {
                Ok(SessionEvent::Ignored(MalformedIpmiMessage("packet after the session")))
            }
        }
    }

    /// Sets the pending request. Returns false if the session is not open.
    pub fn submit(&mut self, command: SessionRequest<'_>, bridging: Option<&BridgeRoute>) -> bool {
        let SessionStage::Open { active, raising: false } = &mut self.stage else { return false };
        active.submit(command, bridging);
        true
    }

    /// Writes a serial console packet into `out`. Returns false if the session is not open.
    pub fn transmit_sol(&mut self, iv: [u8; IV_LENGTH], sol: &[u8], out: &mut Vec<u8>) -> bool {
        let SessionStage::Open { active, raising: false } = &mut self.stage else { return false };
        active.seal(PayloadType::Sol, iv, sol, out);
        true
    }

    /// Writes Close Session into `out`. Returns false if the session is not open.
    pub fn transmit_close(&mut self, iv: [u8; IV_LENGTH], out: &mut Vec<u8>) -> bool {
        let SessionStage::Open { active, .. } = &mut self.stage else { return false };
        let data = active.bmc_session.to_le_bytes();
        let command =
            SessionRequest { netfn: netfn::APP, lun: 0, command: CLOSE_SESSION, data: &data };
        active.submit(command, None);
        active.transmit_request(iv, out)
    }

    fn on_opening<'a>(
        &mut self,
        datagram: &[u8],
    ) -> Result<Result<SessionEvent<'a>, IpmiSessionRefusal>, MalformedIpmiMessage> {
        let IpmiPacket::New { header, payload } = IpmiPacket::parse(datagram)? else {
            return Err(MalformedIpmiMessage("packet while the session opens"));
        };
        Ok(match (&self.stage, header.payload_type) {
            (SessionStage::Opening | SessionStage::Naming, PayloadType::OpenSessionResponse) => {
                let response = OpenSessionResponse::parse(payload)?;
                check(response.tag, TAG_OPEN)?;
                self.on_open_session_response(response)?
            }
            (SessionStage::Naming | SessionStage::Proving { .. }, PayloadType::Rakp2) => {
                let rakp2 = Rakp2::parse(payload)?;
                check(rakp2.tag, TAG_NAME)?;
                self.on_rakp2(&rakp2)?
            }
            (SessionStage::Proving { exchange, key }, PayloadType::Rakp4) => {
                let rakp4 = Rakp4::parse(payload)?;
                check(rakp4.tag, TAG_PROOF)?;
                let (exchange, key) = (*exchange, *key);
                self.on_rakp4(&exchange, &key, &rakp4)?
            }
            _ => return Err(MalformedIpmiMessage("packet while the session opens: payload type")),
        })
    }

    /// Handles an offer of a session. Repeated Open Session requests produce several offers. Some BMCs
    /// have a session for each; others accept only the last one in RAKP 1, and virtualbmc fails if
    /// RAKP 1 arrives between them. So all offers are awaited.
    fn on_open_session_response<'a>(
        &mut self,
        response: OpenSessionResponse,
    ) -> Result<Result<SessionEvent<'a>, IpmiSessionRefusal>, MalformedIpmiMessage> {
        let suite = self.who.suite.algorithms();
        let refusal = match response.status {
            0 if response.algorithms == suite => None,
            0 => Some(status::NO_CIPHER_SUITE),
            status => Some(status),
        };
        match refusal {
            Some(status) if self.offered.is_empty() => {
                self.stage = SessionStage::Over { bmc_session: None };
                return Ok(Err(IpmiSessionRefusal::Open(status)));
            }
            Some(_) => return Ok(Ok(SessionEvent::Repeated)),
            None => self.check_session(response.console_session)?,
        }
        if self.offered.len() < MOST_OFFERS {
            self.offered.push(response.bmc_session);
        }
        if self.is_naming() {
            return Ok(Ok(SessionEvent::Repeated));
        }
        if self.offered.len() != self.open_requests {
            return Ok(Ok(SessionEvent::Offered));
        }
        self.stage = SessionStage::Naming;
        Ok(Ok(SessionEvent::Advanced))
    }

    /// Handles the proof of the BMC. Another proof responds to a repeated RAKP 1, and the BMC expects
    /// the last one to be used.
    fn on_rakp2<'a>(
        &mut self,
        rakp2: &Rakp2<'_>,
    ) -> Result<Result<SessionEvent<'a>, IpmiSessionRefusal>, MalformedIpmiMessage> {
        let proved = match &self.stage {
            SessionStage::Proving { exchange, .. } => Some(exchange.bmc_nonce),
            SessionStage::Opening
            | SessionStage::Naming
            | SessionStage::Open { .. }
            | SessionStage::Over { .. } => None,
        };
        let is_further = proved.is_some();
        if is_further && (rakp2.status != 0 || proved == Some(rakp2.bmc_nonce)) {
            return Ok(Ok(SessionEvent::Repeated));
        }
        if rakp2.status != 0 {
            self.stage = SessionStage::Over { bmc_session: None };
            return Ok(Err(match rakp2.status {
                lost @ (status::INVALID_SESSION | status::INACTIVE_SESSION) => {
                    IpmiSessionRefusal::Confused(lost)
                }
                refused => IpmiSessionRefusal::User(refused),
            }));
        }
        self.check_session(rakp2.console_session)?;
        let mut exchanges = self.offered.iter().rev().map(|bmc_session| HandshakeKeys {
            suite: self.who.suite,
            console_session: self.random.console_session,
            bmc_session: *bmc_session,
            console_nonce: self.random.nonce,
            bmc_nonce: rakp2.bmc_nonce,
            guid: rakp2.guid,
            role: handshake::role(self.who.privilege),
        });
        let is_proved =
            |it: &HandshakeKeys| it.accepts_bmc_proof(&self.who.credentials, rakp2.proof);
        let Some(exchange) = exchanges.find(is_proved) else {
            if is_further {
                return Ok(Ok(SessionEvent::Repeated));
            }
            self.stage = SessionStage::Over { bmc_session: self.offered.last().copied() };
            let is_sure = self.open_requests == 1;
            return Ok(Err(if is_sure {
                IpmiSessionRefusal::Password
            } else {
                IpmiSessionRefusal::Mismatch
            }));
        };
        let key = exchange.session_integrity_key(&self.who.credentials);
        self.stage = SessionStage::Proving { exchange, key };
        Ok(Ok(SessionEvent::Advanced))
    }

    fn on_rakp4<'a>(
        &mut self,
        exchange: &HandshakeKeys,
        key: &HmacDigest,
        rakp4: &Rakp4<'_>,
    ) -> Result<Result<SessionEvent<'a>, IpmiSessionRefusal>, MalformedIpmiMessage> {
        if rakp4.status != 0 {
            self.stage = SessionStage::Over { bmc_session: None };
            return Ok(Err(IpmiSessionRefusal::Confused(rakp4.status)));
        }
        self.check_session(rakp4.console_session)?;
        if !exchange.accepts_key_proof(key, rakp4.proof) {
            self.stage = SessionStage::Over { bmc_session: None };
            return Ok(Err(IpmiSessionRefusal::Kg));
        }
        let mut active = OpenSession {
            bmc_session: exchange.bmc_session,
            keys: SessionKeys::derive(exchange.suite, key),
            sent: 0,
            seen: ReplayWindow::default(),
            last_request: 0,
            pending: None,
        };
        // A session starts at the user level, whatever was requested.
        let raising = self.who.privilege > IpmiPrivilege::User;
        if raising {
            let data = [self.who.privilege.number()];
            let command =
                SessionRequest { netfn: netfn::APP, lun: 0, command: SET_PRIVILEGE, data: &data };
            active.submit(command, None);
        }
        self.stage = SessionStage::Open { active, raising };
        Ok(Ok(if raising { SessionEvent::Advanced } else { SessionEvent::Opened }))
    }

    fn on_sealed<'a>(
        &mut self,
        datagram: &'a mut [u8],
    ) -> Result<SessionEvent<'a>, IpmiSessionRefusal> {
        let SessionStage::Open { active, raising } = &mut self.stage else {
            return Ok(SessionEvent::Ignored(MalformedIpmiMessage("packet before the session")));
        };
        let event = active.on_sealed(datagram, self.random.console_session);
        let event = event.unwrap_or_else(SessionEvent::Ignored);
        let SessionEvent::Response { completion, .. } = event else { return Ok(event) };
        if !*raising {
            return Ok(event);
        }
        if completion == completion::OK {
            *raising = false;
            return Ok(SessionEvent::Opened);
        }
        Err(IpmiSessionRefusal::Privilege)
    }

    fn check_session(&self, session: u32) -> Result<(), MalformedIpmiMessage> {
        if session == self.random.console_session {
            Ok(())
        } else {
            Err(MalformedIpmiMessage("packet while the session opens: it is of another session"))
        }
    }
}

impl fmt::Debug for IpmiSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            SessionStage::Opening => "opening",
            SessionStage::Naming => "naming",
            SessionStage::Proving { .. } => "proving",
            SessionStage::Open { .. } => "open",
            SessionStage::Over { .. } => "over",
        };
        f.debug_struct("Session").field("stage", &stage).finish_non_exhaustive()
    }
}

impl OpenSession {
    fn submit(&mut self, command: SessionRequest<'_>, bridging: Option<&BridgeRoute>) {
        self.last_request = (self.last_request + 1) & 0x3f;
        let sequence = self.last_request;
        let request = IpmiRequest {
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
        self.pending = Some(PendingRequest {
            netfn: command.netfn,
            command: command.command,
            sequence,
            bridged: bridging.is_some(),
            message,
        });
    }

    fn transmit_request(&mut self, iv: [u8; IV_LENGTH], out: &mut Vec<u8>) -> bool {
        // Taken out and put back, because sealing increments the sequence number.
        let Some(pending) = self.pending.take() else { return false };
        self.seal(PayloadType::Message, iv, &pending.message, out);
        self.pending = Some(pending);
        true
    }

    fn seal(&mut self, kind: PayloadType, iv: [u8; IV_LENGTH], payload: &[u8], out: &mut Vec<u8>) {
        // Zero is for packets without a session. No session sends four billion packets.
        self.sent = self.sent.wrapping_add(1).max(1);
        self.keys.seal(kind, self.bmc_session, self.sent, iv, payload, out);
    }

    fn on_sealed<'a>(
        &mut self,
        datagram: &'a mut [u8],
        console_session: u32,
    ) -> Result<SessionEvent<'a>, MalformedIpmiMessage> {
        let (header, payload) = self.keys.open(datagram)?;
        if header.session != console_session {
            return Err(MalformedIpmiMessage("packet in a session: it is of another session"));
        }
        if !self.seen.accepts(header.sequence) {
            return Err(MalformedIpmiMessage("packet in a session: it came before"));
        }
        match header.payload_type {
            PayloadType::Sol => Ok(SessionEvent::Sol(payload)),
            PayloadType::Message => self.on_message(payload),
            PayloadType::OpenSessionRequest
            | PayloadType::OpenSessionResponse
            | PayloadType::Rakp1
            | PayloadType::Rakp2
            | PayloadType::Rakp3
            | PayloadType::Rakp4 => Err(MalformedIpmiMessage("packet in a session: payload type")),
        }
    }

    fn on_message<'a>(
        &mut self,
        message: &'a [u8],
    ) -> Result<SessionEvent<'a>, MalformedIpmiMessage> {
        const LATE: MalformedIpmiMessage = MalformedIpmiMessage("response without a request");
        let Some(pending) = &self.pending else { return Err(LATE) };
        let response = IpmiResponse::parse(message)?;
        let response = if pending.bridged { bridge::unwrap(response)? } else { Some(response) };
        // The BMC only confirmed that it forwarded the request.
        let Some(response) = response else {
            return Err(MalformedIpmiMessage("response: still on its way"));
        };
        // A forwarding error is the response to the request.
        let is_bridges = pending.bridged && bridge::is_failure(&response);
        let is_ours = response.netfn == pending.netfn | 1 && response.command == pending.command;
        if response.sequence != pending.sequence || !(is_ours || is_bridges) {
            return Err(LATE);
        }
        self.pending = None;
        Ok(SessionEvent::Response { completion: response.completion, data: response.data })
    }
}

// Different for each message, so that a late response is not mistaken for that of the next one.
const TAG_OPEN: u8 = 1;
const TAG_NAME: u8 = 2;
const TAG_PROOF: u8 = 3;
/// In Open Session: the highest level that the suite allows. RAKP 1 contains the requested level.
const HIGHEST_OF_SUITE: u8 = 0;
/// The limit of recorded offers: as many as repetitions fit into the timeout.
const MOST_OFFERS: usize = 8;
const SET_PRIVILEGE: u8 = 0x3b;
const CLOSE_SESSION: u8 = 0x3c;

fn check(tag: u8, wanted: u8) -> Result<(), MalformedIpmiMessage> {
    if tag == wanted {
        Ok(())
    } else {
        Err(MalformedIpmiMessage("packet while the session opens: tag"))
    }
}
