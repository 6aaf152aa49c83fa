// SPDX-License-Identifier: Apache-2.0
//! Why a BMC did not do what it was asked to.

use std::io;
use std::time::Duration;

use crate::completion;
use crate::endpoint::Privilege;
use crate::handshake::status;

/// Bytes that are not what they should be; names the message and what is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed {0}")]
pub struct Malformed(pub &'static str);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing came back.
    #[error("no answer from {address} within {} seconds", waited.as_secs_f32())]
    Unreachable {
        /// Host and port.
        address: String,
        /// For how long it was tried.
        waited: Duration,
        /// What the network said, if anything.
        #[source]
        source: Option<io::Error>,
    },
    /// There is no such user, or it is disabled.
    #[error("the BMC does not let this user in: it is unknown or disabled")]
    WrongUser,
    /// The BMC answers until it is told the user's name. Some do that to users they do not know.
    #[error(
        "the BMC was silent whenever it was told the user name: most likely it has no such user"
    )]
    SilentToUser,
    /// The password is not what the BMC has.
    #[error("the password (or the user name) is wrong")]
    WrongPassword,
    /// The BMC key is not what the BMC has.
    #[error("the Kg key is wrong")]
    WrongKg,
    /// The user may not do this.
    #[error("the user may not have the privilege level {wanted}")]
    PrivilegeTooLow {
        /// What was wanted.
        wanted: Privilege,
    },
    /// The BMC offers no suite that we speak or that was asked for.
    #[error("the BMC accepts none of the cipher suites that were tried ({tried})")]
    CipherSuite {
        /// Their numbers.
        tried: String,
    },
    /// All sessions are taken.
    #[error("the BMC has no free session")]
    NoFreeSession,
    /// The BMC refused the session for another reason.
    #[error("the BMC refused the session: {} (status 0x{status:02x})", status::meaning(*status))]
    Refused {
        /// The status it gave.
        status: u8,
    },
    /// The BMC understood the command and did not carry it out.
    #[error(
        "completion code 0x{code:02x} to command 0x{command:02x}: {}",
        completion::meaning(*netfn, *command, *code)
    )]
    Completion {
        /// The family of the command.
        netfn: u8,
        /// The command.
        command: u8,
        /// The code.
        code: u8,
    },
    /// Nothing came back to a command that must not be sent twice.
    #[error(
        "no answer within {} seconds to command 0x{command:02x}: it is not known whether it was \
         carried out",
        waited.as_secs_f32()
    )]
    Uncertain {
        /// The command.
        command: u8,
        /// For how long an answer was waited for.
        waited: Duration,
    },
    /// Something came back and made no sense.
    #[error("the answer makes no sense")]
    Garbled {
        /// What is wrong with it.
        #[source]
        source: Malformed,
    },
}

impl Error {
    /// The completion code, if that is what this is.
    #[must_use]
    pub const fn completion_code(&self) -> Option<u8> {
        match self {
            Self::Completion { code, .. } => Some(*code),
            Self::Unreachable { .. }
            | Self::WrongUser
            | Self::SilentToUser
            | Self::WrongPassword
            | Self::WrongKg
            | Self::PrivilegeTooLow { .. }
            | Self::CipherSuite { .. }
            | Self::NoFreeSession
            | Self::Refused { .. }
            | Self::Uncertain { .. }
            | Self::Garbled { .. } => None,
        }
    }
}

impl From<Malformed> for Error {
    fn from(source: Malformed) -> Self {
        Self::Garbled { source }
    }
}
