// SPDX-License-Identifier: Apache-2.0
//! The six messages that open a session (Open Session and RAKP 1 to 4), and their proofs.
//!
//! Both sides prove that they have the password without sending it: the BMC in RAKP 2, the console in
//! RAKP 3. RAKP 4 proves that both have the same session key, which depends on Kg.

use std::fmt;

use crate::MalformedIpmiMessage;
use crate::endpoint::{IpmiCredentials, IpmiPrivilege};
use crate::suite::{CipherSuite, HmacDigest, SuiteAlgorithms};

/// Status codes of these messages other than success.
pub mod status {
    /// No free session.
    pub const INSUFFICIENT_RESOURCES: u8 = 0x01;
    /// Unknown session.
    pub const INVALID_SESSION: u8 = 0x02;
    /// Unsupported authentication algorithm.
    pub const INVALID_AUTHENTICATION: u8 = 0x04;
    /// Unsupported integrity algorithm.
    pub const INVALID_INTEGRITY: u8 = 0x05;
    /// No matching authentication payload.
    pub const NO_AUTHENTICATION: u8 = 0x06;
    /// No matching integrity payload.
    pub const NO_INTEGRITY: u8 = 0x07;
    /// Inactive session.
    pub const INACTIVE_SESSION: u8 = 0x08;
    /// Invalid role.
    pub const INVALID_ROLE: u8 = 0x09;
    /// Privilege level not allowed for the user.
    pub const UNAUTHORIZED_ROLE: u8 = 0x0a;
    /// No free session at this privilege level.
    pub const INSUFFICIENT_RESOURCES_FOR_ROLE: u8 = 0x0b;
    /// User name too long.
    pub const INVALID_NAME_LENGTH: u8 = 0x0c;
    /// Unknown user.
    pub const UNAUTHORIZED_NAME: u8 = 0x0d;
    /// Invalid integrity check value.
    pub const INVALID_INTEGRITY_CHECK: u8 = 0x0f;
    /// Unsupported encryption algorithm.
    pub const INVALID_CONFIDENTIALITY: u8 = 0x10;
    /// No matching cipher suite.
    pub const NO_CIPHER_SUITE: u8 = 0x11;
    /// Invalid parameter.
    pub const ILLEGAL_PARAMETER: u8 = 0x12;

    /// The meaning of a status code.
    #[must_use]
    pub fn meaning(status: u8) -> &'static str {
        match status {
            INSUFFICIENT_RESOURCES => "it has no free session",
            INVALID_SESSION => "it does not know the session",
            0x03 => "it does not know the payload type",
            INVALID_AUTHENTICATION => "it does not know the authentication algorithm",
            INVALID_INTEGRITY => "it does not know the integrity algorithm",
            NO_AUTHENTICATION => "it has no matching authentication payload",
            NO_INTEGRITY => "it has no matching integrity payload",
            INACTIVE_SESSION => "it has let the session go",
            INVALID_ROLE => "it does not know the privilege level",
            UNAUTHORIZED_ROLE => "the user may not have this privilege level",
            INSUFFICIENT_RESOURCES_FOR_ROLE => "it has no free session for this privilege level",
            INVALID_NAME_LENGTH => "the user name is too long for it",
            UNAUTHORIZED_NAME => "it has no such user",
            0x0e => "it does not know the GUID",
            INVALID_INTEGRITY_CHECK => "the proof of the password is wrong",
            INVALID_CONFIDENTIALITY => "it does not know the encryption algorithm",
            NO_CIPHER_SUITE => "it does not offer the cipher suite",
            ILLEGAL_PARAMETER => "it did not understand a parameter",
            _ => "it gave a reason that is not in the standard",
        }
    }
}

/// Requests a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenSessionRequest {
    /// Returned in the response.
    pub tag: u8,
    /// The requested privilege level; zero for the highest that the suite allows.
    pub privilege: u8,
    /// The session id of the console.
    pub console_session: u32,
    /// The algorithms.
    pub algorithms: SuiteAlgorithms,
}

/// The response to [`OpenSessionRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenSessionResponse {
    /// The tag of the request.
    pub tag: u8,
    /// Zero, or a status code.
    pub status: u8,
    /// The highest possible privilege level.
    pub privilege: u8,
    /// The session id of the console.
    pub console_session: u32,
    /// The session id of the BMC; zero if rejected.
    pub bmc_session: u32,
    /// The algorithms.
    pub algorithms: SuiteAlgorithms,
}

/// RAKP 1: the user name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rakp1<'a> {
    /// Returned in the response.
    pub tag: u8,
    /// The session id of the BMC.
    pub bmc_session: u32,
    /// The random number of the console.
    pub console_nonce: [u8; 16],
    /// The privilege level and the lookup mode; part of all proofs.
    pub role: u8,
    /// The user name.
    pub username: &'a [u8],
}

/// RAKP 2: the proof of the BMC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rakp2<'a> {
    /// The tag of RAKP 1.
    pub tag: u8,
    /// Zero, or a status code.
    pub status: u8,
    /// The session id of the console.
    pub console_session: u32,
    /// The random number of the BMC.
    pub bmc_nonce: [u8; 16],
    /// The GUID of the BMC.
    pub guid: [u8; 16],
    /// See [`HandshakeKeys::bmc_proof`].
    pub proof: &'a [u8],
}

/// RAKP 3: the proof of the console.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rakp3<'a> {
    /// Returned in the response.
    pub tag: u8,
    /// Zero, or why the console aborts.
    pub status: u8,
    /// The session id of the BMC.
    pub bmc_session: u32,
    /// See [`HandshakeKeys::console_proof`].
    pub proof: &'a [u8],
}

/// RAKP 4: the end of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rakp4<'a> {
    /// The tag of RAKP 3.
    pub tag: u8,
    /// Zero, or a status code.
    pub status: u8,
    /// The session id of the console.
    pub console_session: u32,
    /// See [`HandshakeKeys::key_proof`].
    pub proof: &'a [u8],
}

/// The values that both sides have after RAKP 2, from which all proofs and keys are derived.
#[derive(Clone, Copy)]
pub struct HandshakeKeys {
    /// The suite.
    pub suite: CipherSuite,
    /// The session id of the console.
    pub console_session: u32,
    /// The session id of the BMC.
    pub bmc_session: u32,
    /// The random number of the console.
    pub console_nonce: [u8; 16],
    /// The random number of the BMC.
    pub bmc_nonce: [u8; 16],
    /// The GUID of the BMC.
    pub guid: [u8; 16],
    /// The role byte of RAKP 1.
    pub role: u8,
}

impl OpenSessionRequest {
    /// Parses the message.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedIpmiMessage> {
        let [tag, privilege, _, _, s0, s1, s2, s3, rest @ ..] = bytes else {
            return Err(MalformedIpmiMessage("Open Session request: too short"));
        };
        Ok(Self {
            tag: *tag,
            privilege: privilege & 0x0f,
            console_session: u32::from_le_bytes([*s0, *s1, *s2, *s3]),
            algorithms: parse_algorithms(rest)?,
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![self.tag, self.privilege, 0, 0];
        out.extend_from_slice(&self.console_session.to_le_bytes());
        emit_algorithms(self.algorithms, &mut out);
        out
    }
}

impl OpenSessionResponse {
    /// Parses the message.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedIpmiMessage> {
        let [tag, status, rest @ ..] = bytes else {
            return Err(MalformedIpmiMessage("Open Session response: too short"));
        };
        // A rejection may end anywhere after the status.
        let session = |at: usize| rest.get(at..at + 4).and_then(|four| four.try_into().ok());
        let refused = *status != 0;
        let console_session: Option<[u8; 4]> = session(2);
        let bmc_session: Option<[u8; 4]> = session(6);
        let algorithms = parse_algorithms(rest.get(10..).unwrap_or_default());
        let none = SuiteAlgorithms { authentication: 0, integrity: 0, confidentiality: 0 };
        if !refused && (bmc_session.is_none() || algorithms.is_err()) {
            return Err(MalformedIpmiMessage("Open Session response: too short"));
        }
        Ok(Self {
            tag: *tag,
            status: *status,
            privilege: rest.first().copied().unwrap_or(0),
            console_session: u32::from_le_bytes(console_session.unwrap_or_default()),
            bmc_session: u32::from_le_bytes(bmc_session.unwrap_or_default()),
            algorithms: algorithms.unwrap_or(none),
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![self.tag, self.status, self.privilege, 0];
        out.extend_from_slice(&self.console_session.to_le_bytes());
        if self.status == 0 {
            out.extend_from_slice(&self.bmc_session.to_le_bytes());
            emit_algorithms(self.algorithms, &mut out);
        }
        out
    }
}

impl<'a> Rakp1<'a> {
    /// Parses the message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        const SHORT: MalformedIpmiMessage = MalformedIpmiMessage("RAKP 1: too short");
        let [tag, _, _, _, s0, s1, s2, s3, rest @ ..] = bytes else { return Err(SHORT) };
        let (nonce, rest) = rest.split_first_chunk().ok_or(SHORT)?;
        let [role, _, _, length, rest @ ..] = rest else { return Err(SHORT) };
        Ok(Self {
            tag: *tag,
            bmc_session: u32::from_le_bytes([*s0, *s1, *s2, *s3]),
            console_nonce: *nonce,
            role: *role,
            username: rest.get(..usize::from(*length)).ok_or(SHORT)?,
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![self.tag, 0, 0, 0];
        out.extend_from_slice(&self.bmc_session.to_le_bytes());
        out.extend_from_slice(&self.console_nonce);
        out.extend_from_slice(&[self.role, 0, 0, name_length(self.username)]);
        out.extend_from_slice(self.username);
        out
    }
}

impl<'a> Rakp2<'a> {
    /// Parses the message. A rejection may end after the session id.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        const SHORT: MalformedIpmiMessage = MalformedIpmiMessage("RAKP 2: too short");
        let (tag, status, console_session, rest) = parse_reply(bytes).ok_or(SHORT)?;
        if status != 0 {
            let (bmc_nonce, guid) = ([0; 16], [0; 16]);
            return Ok(Self { tag, status, console_session, bmc_nonce, guid, proof: &[] });
        }
        let (bmc_nonce, rest) = rest.split_first_chunk().ok_or(SHORT)?;
        let (guid, proof) = rest.split_first_chunk().ok_or(SHORT)?;
        Ok(Self { tag, status, console_session, bmc_nonce: *bmc_nonce, guid: *guid, proof })
    }

    /// Encodes the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = emit_reply(self.tag, self.status, self.console_session);
        if self.status == 0 {
            out.extend_from_slice(&self.bmc_nonce);
            out.extend_from_slice(&self.guid);
            out.extend_from_slice(self.proof);
        }
        out
    }
}

impl<'a> Rakp3<'a> {
    /// Parses the message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        let (tag, status, bmc_session, proof) =
            parse_reply(bytes).ok_or(MalformedIpmiMessage("RAKP 3: too short"))?;
        Ok(Self { tag, status, bmc_session, proof })
    }

    /// Encodes the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = emit_reply(self.tag, self.status, self.bmc_session);
        out.extend_from_slice(self.proof);
        out
    }
}

impl<'a> Rakp4<'a> {
    /// Parses the message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        let (tag, status, console_session, proof) =
            parse_reply(bytes).ok_or(MalformedIpmiMessage("RAKP 4: too short"))?;
        Ok(Self { tag, status, console_session, proof })
    }

    /// Encodes the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = emit_reply(self.tag, self.status, self.console_session);
        out.extend_from_slice(self.proof);
        out
    }
}

impl HandshakeKeys {
    /// The proof in RAKP 2.
    #[must_use]
    pub fn bmc_proof(&self, credentials: &IpmiCredentials) -> HmacDigest {
        self.with_bmc_proof(credentials, |key, parts| self.suite.digest(key, parts))
    }

    /// Returns whether `proof` is the expected one of RAKP 2.
    #[must_use]
    pub fn accepts_bmc_proof(&self, credentials: &IpmiCredentials, proof: &[u8]) -> bool {
        proof.len() == self.suite.proof_length()
            && self.with_bmc_proof(credentials, |key, parts| self.suite.verifies(key, parts, proof))
    }

    /// The proof in RAKP 3.
    #[must_use]
    pub fn console_proof(&self, credentials: &IpmiCredentials) -> HmacDigest {
        self.with_console_proof(credentials, |key, parts| self.suite.digest(key, parts))
    }

    /// Returns whether `proof` is the expected one of RAKP 3.
    #[must_use]
    pub fn accepts_console_proof(&self, credentials: &IpmiCredentials, proof: &[u8]) -> bool {
        proof.len() == self.suite.proof_length()
            && self.with_console_proof(credentials, |key, parts| {
                self.suite.verifies(key, parts, proof)
            })
    }

    /// The session integrity key, from which the keys of the session are derived.
    #[must_use]
    pub fn session_integrity_key(&self, credentials: &IpmiCredentials) -> HmacDigest {
        let name = credentials.username();
        let tail = [self.role, name_length(name)];
        self.suite.digest(
            credentials.kg().unwrap_or(credentials.password()),
            &[&self.console_nonce, &self.bmc_nonce, &tail, name],
        )
    }

    /// The proof in RAKP 4.
    #[must_use]
    pub fn key_proof(&self, session_integrity_key: &HmacDigest) -> HmacDigest {
        let session = self.bmc_session.to_le_bytes();
        self.suite
            .digest(session_integrity_key.as_slice(), &[&self.console_nonce, &session, &self.guid])
            .cut(self.suite.signature_length())
    }

    /// Returns whether `proof` is the expected one of RAKP 4.
    #[must_use]
    pub fn accepts_key_proof(&self, session_integrity_key: &HmacDigest, proof: &[u8]) -> bool {
        let session = self.bmc_session.to_le_bytes();
        let parts: [&[u8]; 3] = [&self.console_nonce, &session, &self.guid];
        proof.len() == self.suite.signature_length()
            && self.suite.verifies(session_integrity_key.as_slice(), &parts, proof)
    }

    fn with_bmc_proof<T>(
        &self,
        credentials: &IpmiCredentials,
        then: impl FnOnce(&[u8], &[&[u8]]) -> T,
    ) -> T {
        let name = credentials.username();
        let console = self.console_session.to_le_bytes();
        let bmc = self.bmc_session.to_le_bytes();
        let tail = [self.role, name_length(name)];
        let (mine, yours) = (&self.console_nonce, &self.bmc_nonce);
        then(credentials.password(), &[&console, &bmc, mine, yours, &self.guid, &tail, name])
    }

    fn with_console_proof<T>(
        &self,
        credentials: &IpmiCredentials,
        then: impl FnOnce(&[u8], &[&[u8]]) -> T,
    ) -> T {
        let name = credentials.username();
        let console = self.console_session.to_le_bytes();
        let tail = [self.role, name_length(name)];
        then(credentials.password(), &[&self.bmc_nonce, &console, &tail, name])
    }
}

impl fmt::Debug for HandshakeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// The role byte of RAKP 1: the privilege level, with lookup by user name alone. Lookup by name and
/// privilege is only for BMCs with several users of one name, which are not used in practice.
#[must_use]
pub const fn role(privilege: IpmiPrivilege) -> u8 {
    const BY_NAME_ALONE: u8 = 0x10;
    BY_NAME_ALONE | privilege.number()
}

fn name_length(name: &[u8]) -> u8 {
    u8::try_from(name.len()).unwrap_or(u8::MAX)
}

/// Parses the common fields of RAKP 2, 3 and 4.
fn parse_reply(bytes: &[u8]) -> Option<(u8, u8, u32, &[u8])> {
    let [tag, status, _, _, s0, s1, s2, s3, rest @ ..] = bytes else { return None };
    Some((*tag, *status, u32::from_le_bytes([*s0, *s1, *s2, *s3]), rest))
}

fn emit_reply(tag: u8, status: u8, session: u32) -> Vec<u8> {
    let mut out = vec![tag, status, 0, 0];
    out.extend_from_slice(&session.to_le_bytes());
    out
}

/// Three payloads of eight bytes: a type, two reserved, a length, the algorithm, three reserved.
fn parse_algorithms(bytes: &[u8]) -> Result<SuiteAlgorithms, MalformedIpmiMessage> {
    let mut found = [0; 3];
    for (kind, slot) in (0u8..).zip(&mut found) {
        let start = usize::from(kind) * 8;
        let payload =
            bytes.get(start..start + 8).ok_or(MalformedIpmiMessage("Open Session: too short"))?;
        if payload[0] != kind {
            return Err(MalformedIpmiMessage("Open Session: order of the algorithms"));
        }
        *slot = payload[4] & 0x3f;
    }
    let [authentication, integrity, confidentiality] = found;
    Ok(SuiteAlgorithms { authentication, integrity, confidentiality })
}

fn emit_algorithms(algorithms: SuiteAlgorithms, out: &mut Vec<u8>) {
    let all = [algorithms.authentication, algorithms.integrity, algorithms.confidentiality];
    for (kind, algorithm) in (0u8..).zip(all) {
        out.extend_from_slice(&[kind, 0, 0, 8, algorithm, 0, 0, 0]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encoded_messages_parse_to_the_same_values() {
        let algorithms = CipherSuite::Seventeen.algorithms();
        let request =
            OpenSessionRequest { tag: 1, privilege: 4, console_session: 0xdead_beef, algorithms };
        assert_eq!(request.emit().len(), 32);
        assert_eq!(OpenSessionRequest::parse(&request.emit()), Ok(request));
        let response = OpenSessionResponse {
            tag: 1,
            status: 0,
            privilege: 4,
            console_session: 0xdead_beef,
            bmc_session: 7,
            algorithms,
        };
        assert_eq!(response.emit().len(), 36);
        assert_eq!(OpenSessionResponse::parse(&response.emit()), Ok(response));
        let rakp1 = Rakp1 {
            tag: 2,
            bmc_session: 7,
            console_nonce: [1; 16],
            role: role(IpmiPrivilege::Administrator),
            username: b"admin",
        };
        assert_eq!(Rakp1::parse(&rakp1.emit()), Ok(rakp1));
        let rakp2 = Rakp2 {
            tag: 2,
            status: 0,
            console_session: 9,
            bmc_nonce: [2; 16],
            guid: [3; 16],
            proof: &[4; 20],
        };
        assert_eq!(Rakp2::parse(&rakp2.emit()), Ok(rakp2));
        let rakp3 = Rakp3 { tag: 3, status: 0, bmc_session: 7, proof: &[5; 20] };
        assert_eq!(Rakp3::parse(&rakp3.emit()), Ok(rakp3));
        let rakp4 = Rakp4 { tag: 3, status: 0, console_session: 9, proof: &[6; 12] };
        assert_eq!(Rakp4::parse(&rakp4.emit()), Ok(rakp4));
    }

    #[test]
    fn parses_short_rejections() {
        let refused = OpenSessionResponse::parse(&[0, status::NO_CIPHER_SUITE, 0, 0, 1, 0, 0, 0]);
        assert_eq!(refused.unwrap().status, status::NO_CIPHER_SUITE);
        let refused = Rakp2::parse(&[0, status::UNAUTHORIZED_NAME, 0, 0, 1, 0, 0, 0]).unwrap();
        assert_eq!((refused.status, refused.console_session), (status::UNAUTHORIZED_NAME, 1));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes: Vec<u8>) {
            let _ = OpenSessionRequest::parse(&bytes);
            let _ = OpenSessionResponse::parse(&bytes);
            let _ = Rakp1::parse(&bytes);
            let _ = Rakp2::parse(&bytes);
            let _ = Rakp3::parse(&bytes);
            let _ = Rakp4::parse(&bytes);
        }
    }
}
