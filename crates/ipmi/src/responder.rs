// SPDX-License-Identifier: Apache-2.0
//! The BMC side of sessions, without socket and clock, for simulated BMCs and tests.
//!
//! It handles discovery, handshake, privilege and closing, and passes every other request to the caller
//! with the privilege level of its session.

use std::fmt;
use std::time::Duration;

use crate::completion;
use crate::endpoint::{IpmiCredentials, IpmiPrivilege};
use crate::handshake::{
    HandshakeKeys, OpenSessionRequest, OpenSessionResponse, Rakp1, Rakp2, Rakp3, Rakp4, status,
};
use crate::message::{IpmiRequest, netfn};
use crate::packet::{self, IV_LENGTH, IpmiPacket, PayloadType, SessionKeys};
use crate::replay_window::ReplayWindow;
use crate::suite::{CipherSuite, HmacDigest};
use crate::{MalformedIpmiMessage, rmcp};

/// The sessions of a BMC.
pub struct BmcResponder {
    guid: [u8; 16],
    users: Vec<ResponderUser>,
    suites: Vec<CipherSuite>,
    slots: Vec<ResponderSession>,
    last_session: u32,
}

/// A user of the BMC.
#[derive(Clone, Debug)]
pub struct ResponderUser {
    /// Name, password and Kg.
    pub credentials: IpmiCredentials,
    /// The highest privilege level.
    pub limit: IpmiPrivilege,
}

/// The result of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponderEvent<'a> {
    /// Ignored.
    Nothing(MalformedIpmiMessage),
    /// Handled; send the reply.
    Responded,
    /// The session has ended; send the reply.
    Closed {
        /// The session.
        session: u32,
    },
    /// A request; respond with [`BmcResponder::respond`].
    Request {
        /// The session.
        session: u32,
        /// The privilege level of the session.
        privilege: IpmiPrivilege,
        /// The request.
        request: IpmiRequest<'a>,
    },
    /// A serial console packet.
    Sol {
        /// The session.
        session: u32,
        /// The packet.
        packet: &'a [u8],
    },
}

struct ResponderSession {
    console_session: u32,
    bmc_session: u32,
    suite: CipherSuite,
    used: Duration,
    stage: ResponderStage,
}

enum ResponderStage {
    Opened,
    Named {
        user: ResponderUser,
        exchange: HandshakeKeys,
        key: HmacDigest,
    },
    Active {
        limit: IpmiPrivilege,
        keys: SessionKeys,
        seen: ReplayWindow,
        sent: u32,
        privilege: IpmiPrivilege,
        last_response: Option<SentResponse>,
    },
}

/// The last response: a repeated request is not executed again.
struct SentResponse {
    request: (u8, u8, u8),
    message: Vec<u8>,
}

impl BmcResponder {
    /// The idle timeout of a session.
    pub const IDLE: Duration = Duration::from_secs(60);
    /// The limit of concurrent sessions.
    pub const SESSIONS: usize = 16;

    /// A BMC without sessions.
    #[must_use]
    pub const fn new(guid: [u8; 16], users: Vec<ResponderUser>, suites: Vec<CipherSuite>) -> Self {
        Self { guid, users, suites, slots: Vec::new(), last_session: 0 }
    }

    /// Handles a datagram, which is decrypted in place, at the monotonic time `now`. A reply is written
    /// into `reply`. `fill` provides random bytes.
    pub fn receive<'a>(
        &mut self,
        datagram: &'a mut [u8],
        now: Duration,
        fill: &mut dyn FnMut(&mut [u8]),
        reply: &mut Vec<u8>,
    ) -> ResponderEvent<'a> {
        reply.clear();
        self.receive_packet(datagram, now, fill, reply).unwrap_or_else(ResponderEvent::Nothing)
    }

    /// Writes the response to a request of a session into `out`. Returns false if the session has
    /// ended.
    pub fn respond(
        &mut self,
        session: u32,
        request: &IpmiRequest<'_>,
        completion: u8,
        data: &[u8],
        iv: [u8; IV_LENGTH],
        out: &mut Vec<u8>,
    ) -> bool {
        let mut message = Vec::with_capacity(data.len() + 8);
        request.response(completion, data).emit(&mut message);
        let is_sealed = self.seal(session, PayloadType::Message, &message, iv, out);
        self.record_response(session, SentResponse { request: number(request), message });
        is_sealed
    }

    /// Writes a serial console packet into `out`. Returns false if the session has ended.
    pub fn sol(
        &mut self,
        session: u32,
        packet: &[u8],
        iv: [u8; IV_LENGTH],
        out: &mut Vec<u8>,
    ) -> bool {
        self.seal(session, PayloadType::Sol, packet, iv, out)
    }

    /// Replaces the users. Open sessions continue.
    pub fn set_users(&mut self, users: Vec<ResponderUser>) {
        self.users = users;
    }

    /// Drops all sessions, like a BMC that restarts.
    pub fn drop_sessions(&mut self) {
        self.slots.clear();
    }

    fn receive_packet<'a>(
        &mut self,
        datagram: &'a mut [u8],
        now: Duration,
        fill: &mut dyn FnMut(&mut [u8]),
        reply: &mut Vec<u8>,
    ) -> Result<ResponderEvent<'a>, MalformedIpmiMessage> {
        let (kind, payload) = match IpmiPacket::parse(datagram)? {
            IpmiPacket::Pong { .. } => {
                return Err(MalformedIpmiMessage("packet to a BMC: it is a pong"));
            }
            IpmiPacket::Ping { tag } => {
                reply.extend_from_slice(&rmcp::pong(tag));
                return Ok(ResponderEvent::Responded);
            }
            IpmiPacket::Old { message } => {
                let request = IpmiRequest::parse(message)?;
                let (completion, data) = self.on_sessionless(&request);
                let mut message = Vec::new();
                request.response(completion, &data).emit(&mut message);
                packet::emit_old(&message, reply);
                return Ok(ResponderEvent::Responded);
            }
            IpmiPacket::New { header, .. } if header.session != 0 => {
                return self.receive_sealed(header.session, datagram, now, fill, reply);
            }
            IpmiPacket::New { header, payload } => (header.payload_type, payload),
        };
        let (kind, response) = match kind {
            PayloadType::OpenSessionRequest => {
                let request = OpenSessionRequest::parse(payload)?;
                (PayloadType::OpenSessionResponse, self.on_open_session(request, now).emit())
            }
            PayloadType::Rakp1 => {
                (PayloadType::Rakp2, self.on_rakp1(&Rakp1::parse(payload)?, fill))
            }
            PayloadType::Rakp3 => {
                let Some(rakp4) = self.on_rakp3(&Rakp3::parse(payload)?) else {
                    return Err(MalformedIpmiMessage("RAKP 3: the console gives up"));
                };
                (PayloadType::Rakp4, rakp4)
            }
            PayloadType::Message => {
                let request = IpmiRequest::parse(payload)?;
                let (completion, data) = self.on_sessionless(&request);
                let mut message = Vec::new();
                request.response(completion, &data).emit(&mut message);
                (PayloadType::Message, message)
            }
            PayloadType::Sol
            | PayloadType::OpenSessionResponse
            | PayloadType::Rakp2
            | PayloadType::Rakp4 => {
                return Err(MalformedIpmiMessage("packet to a BMC: payload type"));
            }
        };
        packet::emit_plain(kind, &response, reply);
        Ok(ResponderEvent::Responded)
    }

    fn on_open_session(
        &mut self,
        request: OpenSessionRequest,
        now: Duration,
    ) -> OpenSessionResponse {
        self.slots.retain(|slot| now.saturating_sub(slot.used) < Self::IDLE);
        let suite = CipherSuite::of(request.algorithms);
        let suite = suite.filter(|suite| self.suites.contains(suite));
        let status = match suite {
            None => status::NO_CIPHER_SUITE,
            Some(_) if self.slots.len() >= Self::SESSIONS => status::INSUFFICIENT_RESOURCES,
            Some(_) => 0,
        };
        if let (Some(suite), 0) = (suite, status) {
            self.last_session = self.last_session.wrapping_add(1).max(1);
            self.slots.push(ResponderSession {
                console_session: request.console_session,
                bmc_session: self.last_session,
                suite,
                used: now,
                stage: ResponderStage::Opened,
            });
        }
        OpenSessionResponse {
            tag: request.tag,
            status,
            privilege: IpmiPrivilege::Administrator.number(),
            console_session: request.console_session,
            bmc_session: self.last_session,
            algorithms: request.algorithms,
        }
    }

    fn on_rakp1(&mut self, rakp1: &Rakp1<'_>, fill: &mut dyn FnMut(&mut [u8])) -> Vec<u8> {
        let refuse = |console_session, status| {
            let none = [0; 16];
            let proof = &[];
            let (tag, bmc_nonce, guid) = (rakp1.tag, none, none);
            Rakp2 { tag, status, console_session, bmc_nonce, guid, proof }.emit()
        };
        let slot = self.slots.iter_mut().find(|slot| slot.bmc_session == rakp1.bmc_session);
        let Some(slot) = slot else { return refuse(0, status::INVALID_SESSION) };
        let mut users = self.users.iter();
        let user = users.find(|user| user.credentials.username() == rakp1.username);
        let Some(user) = user.cloned() else {
            return refuse(slot.console_session, status::UNAUTHORIZED_NAME);
        };
        match IpmiPrivilege::numbered(rakp1.role & 0x0f) {
            None => return refuse(slot.console_session, status::INVALID_ROLE),
            Some(wanted) if wanted > user.limit => {
                return refuse(slot.console_session, status::UNAUTHORIZED_ROLE);
            }
            Some(_) => {}
        }
        let mut bmc_nonce = [0; 16];
        fill(&mut bmc_nonce);
        let exchange = HandshakeKeys {
            suite: slot.suite,
            console_session: slot.console_session,
            bmc_session: slot.bmc_session,
            console_nonce: rakp1.console_nonce,
            bmc_nonce,
            guid: self.guid,
            role: rakp1.role,
        };
        let proof = exchange.bmc_proof(&user.credentials);
        let key = exchange.session_integrity_key(&user.credentials);
        slot.stage = ResponderStage::Named { user, exchange, key };
        Rakp2 {
            tag: rakp1.tag,
            status: 0,
            console_session: slot.console_session,
            bmc_nonce,
            guid: self.guid,
            proof: proof.as_slice(),
        }
        .emit()
    }

    /// Returns `None` if the console aborts.
    fn on_rakp3(&mut self, rakp3: &Rakp3<'_>) -> Option<Vec<u8>> {
        let refuse = |console_session, status| {
            Some(Rakp4 { tag: rakp3.tag, status, console_session, proof: &[] }.emit())
        };
        let at = self.slots.iter().position(|slot| slot.bmc_session == rakp3.bmc_session);
        let Some(at) = at else { return refuse(0, status::INVALID_SESSION) };
        let slot = &mut self.slots[at];
        let console_session = slot.console_session;
        let ResponderStage::Named { user, exchange, key } = &slot.stage else {
            return refuse(console_session, status::INVALID_SESSION);
        };
        let is_proved = exchange.accepts_console_proof(&user.credentials, rakp3.proof);
        if rakp3.status != 0 || !is_proved {
            self.slots.swap_remove(at);
            if rakp3.status != 0 {
                return None;
            }
            return refuse(console_session, status::INVALID_INTEGRITY_CHECK);
        }
        let proof = exchange.key_proof(key);
        slot.stage = ResponderStage::Active {
            limit: user.limit,
            keys: SessionKeys::derive(slot.suite, key),
            seen: ReplayWindow::default(),
            sent: 0,
            privilege: IpmiPrivilege::User,
            last_response: None,
        };
        Some(Rakp4 { tag: rakp3.tag, status: 0, console_session, proof: proof.as_slice() }.emit())
    }

    fn receive_sealed<'a>(
        &mut self,
        session: u32,
        datagram: &'a mut [u8],
        now: Duration,
        fill: &mut dyn FnMut(&mut [u8]),
        reply: &mut Vec<u8>,
    ) -> Result<ResponderEvent<'a>, MalformedIpmiMessage> {
        self.slots.retain(|slot| now.saturating_sub(slot.used) < Self::IDLE);
        let slot = self.slots.iter_mut().find(|slot| slot.bmc_session == session);
        let slot = slot.ok_or(MalformedIpmiMessage("packet to a BMC: no such session"))?;
        let ResponderStage::Active { limit, keys, seen, privilege, last_response, .. } =
            &mut slot.stage
        else {
            return Err(MalformedIpmiMessage("packet to a BMC: the session is not open"));
        };
        let (header, payload) = keys.open(datagram)?;
        if !seen.accepts(header.sequence) {
            return Err(MalformedIpmiMessage("packet to a BMC: it came before"));
        }
        slot.used = now;
        if header.payload_type == PayloadType::Sol {
            return Ok(ResponderEvent::Sol { session, packet: payload });
        }
        if header.payload_type != PayloadType::Message {
            return Err(MalformedIpmiMessage("packet to a BMC: payload type"));
        }
        let request = IpmiRequest::parse(payload)?;
        if let Some(before) = last_response.take_if(|before| before.request == number(&request)) {
            let mut iv = [0; IV_LENGTH];
            fill(&mut iv);
            self.seal(session, PayloadType::Message, &before.message, iv, reply);
            self.record_response(session, before);
            return Ok(ResponderEvent::Responded);
        }
        let (completion, data) = match (request.netfn, request.command, request.data) {
            (netfn::APP, SET_PRIVILEGE, [wanted]) => match IpmiPrivilege::numbered(*wanted) {
                // Zero queries the current level.
                None if *wanted == 0 => (completion::OK, vec![privilege.number()]),
                Some(wanted) if wanted <= *limit => {
                    *privilege = wanted;
                    (completion::OK, vec![wanted.number()])
                }
                Some(_) => (PRIVILEGE_ABOVE_LIMIT, Vec::new()),
                None => (completion::INVALID_FIELD, Vec::new()),
            },
            (netfn::APP, CLOSE_SESSION, _) => (completion::OK, Vec::new()),
            (netfn::APP, GET_CAPABILITIES | GET_SUITES | GET_GUID, _) => {
                self.on_sessionless(&request)
            }
            _ => {
                let privilege = *privilege;
                return Ok(ResponderEvent::Request { session, privilege, request });
            }
        };
        let mut iv = [0; IV_LENGTH];
        fill(&mut iv);
        self.respond(session, &request, completion, &data, iv, reply);
        if (request.netfn, request.command) == (netfn::APP, CLOSE_SESSION) {
            self.slots.retain(|slot| slot.bmc_session != session);
            return Ok(ResponderEvent::Closed { session });
        }
        Ok(ResponderEvent::Responded)
    }

    fn record_response(&mut self, session: u32, last: SentResponse) {
        let slot = self.slots.iter_mut().find(|slot| slot.bmc_session == session);
        if let Some(ResponderSession {
            stage: ResponderStage::Active { last_response, .. }, ..
        }) = slot
        {
            *last_response = Some(last);
        }
    }

    /// Requests that need no session.
    fn on_sessionless(&self, request: &IpmiRequest<'_>) -> (u8, Vec<u8>) {
        match (request.netfn, request.command, request.data) {
            (netfn::APP, GET_CAPABILITIES, [_, _]) => {
                const IPMI_2_DATA: u8 = 0x80;
                const USERS_HAVE_NAMES: u8 = 0x04;
                const IPMI_2: u8 = 0x02;
                (completion::OK, vec![CHANNEL, IPMI_2_DATA, USERS_HAVE_NAMES, IPMI_2, 0, 0, 0, 0])
            }
            (netfn::APP, GET_SUITES, [_, _, index]) => {
                let records: Vec<u8> =
                    self.suites.iter().flat_map(|suite| record(*suite)).collect();
                let start = usize::from(index & 0x3f) * 16;
                let mut data = vec![CHANNEL];
                data.extend(records.iter().skip(start).take(16));
                (completion::OK, data)
            }
            (netfn::APP, GET_GUID, _) => (completion::OK, self.guid.to_vec()),
            _ => (completion::INSUFFICIENT_PRIVILEGE, Vec::new()),
        }
    }

    fn seal(
        &mut self,
        session: u32,
        kind: PayloadType,
        payload: &[u8],
        iv: [u8; IV_LENGTH],
        out: &mut Vec<u8>,
    ) -> bool {
        let slot = self.slots.iter_mut().find(|slot| slot.bmc_session == session);
        let Some(ResponderSession {
            console_session,
            stage: ResponderStage::Active { keys, sent, .. },
            ..
        }) = slot
        else {
            return false;
        };
        *sent = sent.wrapping_add(1).max(1);
        keys.seal(kind, *console_session, *sent, iv, payload, out);
        true
    }
}

impl fmt::Debug for BmcResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("sessions", &self.slots.len()).finish_non_exhaustive()
    }
}

const GET_GUID: u8 = 0x37;
const GET_CAPABILITIES: u8 = 0x38;
const SET_PRIVILEGE: u8 = 0x3b;
const CLOSE_SESSION: u8 = 0x3c;
const GET_SUITES: u8 = 0x54;
const PRIVILEGE_ABOVE_LIMIT: u8 = 0x81;
/// The LAN channel.
const CHANNEL: u8 = 1;

/// Identifies repeated requests of a session.
const fn number(request: &IpmiRequest<'_>) -> (u8, u8, u8) {
    (request.sequence, request.netfn, request.command)
}

/// The record of a suite: its number and its algorithms with their tags.
fn record(suite: CipherSuite) -> [u8; 5] {
    let algorithms = suite.algorithms();
    [
        0xc0,
        suite.number(),
        algorithms.authentication,
        0x40 | algorithms.integrity,
        0x80 | algorithms.confidentiality,
    ]
}
