// SPDX-License-Identifier: Apache-2.0
//! Errors of requests to a BMC.

use std::io;
use std::time::Duration;

use crate::completion;
use crate::endpoint::IpmiPrivilege;
use crate::handshake::status;

/// Invalid bytes; contains the message type and the defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed {0}")]
pub struct MalformedIpmiMessage(pub &'static str);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum IpmiError {
    /// No response.
    #[error("no response from {address} within {} seconds", waited.as_secs_f32())]
    Unreachable {
        /// Host and port.
        address: String,
        /// The total time of all attempts.
        waited: Duration,
        /// The network error, if any.
        #[source]
        source: Option<io::Error>,
    },
    /// The user does not exist or is disabled.
    #[error("the BMC rejects this user: it is unknown or disabled")]
    WrongUser,
    /// The BMC stops responding after it receives the user name. Some do that for unknown users.
    #[error("the BMC did not respond to the user name: most likely it has no such user")]
    SilentToUser,
    /// The password differs.
    #[error("the password (or the user name) is wrong")]
    WrongPassword,
    /// The Kg key differs.
    #[error("the Kg key is wrong")]
    WrongKg,
    /// The privilege level is not allowed for the user.
    #[error("the user may not have the privilege level {wanted}")]
    PrivilegeTooLow {
        /// The requested level.
        wanted: IpmiPrivilege,
    },
    /// The BMC supports no suite that we support or that was configured.
    #[error("the BMC accepts none of the cipher suites that were tried ({tried})")]
    CipherSuite {
        /// The numbers of the suites.
        tried: String,
    },
    /// All sessions are in use.
    #[error("the BMC has no free session")]
    NoFreeSession,
    /// The BMC rejected the session for another reason.
    #[error("the BMC refused the session: {} (status 0x{status:02x})", status::meaning(*status))]
    Refused {
        /// The status code.
        status: u8,
    },
    /// The BMC returned an error.
    #[error(
        "completion code 0x{code:02x} to command 0x{command:02x}: {}",
        completion::meaning(*netfn, *command, *code)
    )]
    Completion {
        /// The network function.
        netfn: u8,
        /// The command.
        command: u8,
        /// The code.
        code: u8,
    },
    /// No response to a command that must not be repeated.
    #[error(
        "no response within {} seconds to command 0x{command:02x}: it is not known whether it was \
         carried out",
        waited.as_secs_f32()
    )]
    Uncertain {
        /// The command.
        command: u8,
        /// The time waited for a response.
        waited: Duration,
    },
    /// The response is invalid.
    #[error("the response of the BMC is invalid")]
    Garbled {
        /// The defect.
        #[source]
        source: MalformedIpmiMessage,
    },
}

impl IpmiError {
    /// The completion code, if the BMC returned one.
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

impl From<MalformedIpmiMessage> for IpmiError {
    fn from(source: MalformedIpmiMessage) -> Self {
        Self::Garbled { source }
    }
}
