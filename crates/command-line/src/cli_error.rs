// SPDX-License-Identifier: Apache-2.0
//! Errors of commands and their exit codes.

use std::path::PathBuf;
use std::sync::Arc;

use error_chain::error_chain;
use ironic_client::{ErrorClass, IronicClientError, TargetError};

use crate::screen::without_control_characters;

/// Limit for the text of one error, which may come from a server.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// Exit codes of failed commands. They are stable and listed in docs/command-line.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CliExitCode {
    /// A machine or the command failed.
    Failed = 1,
    /// Invalid arguments.
    Usage = 2,
    /// The machine or resource does not exist.
    NotFound = 3,
    /// The server rejected the request.
    Rejected = 4,
    /// Credentials are missing, wrong or insufficient.
    NotAuthorised = 5,
    /// No response, or not from an Ironic API.
    Unreachable = 6,
    /// `--timeout` expired.
    TimedOut = 7,
    /// Ctrl-C.
    Interrupted = 130,
}

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Rejected(String),
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    TimedOut(String),
    /// The server may or may not have accepted the request.
    #[error("{0}")]
    OutcomeUnknown(String),
    /// Ctrl-C; the text states what continues on the server.
    #[error("{0}")]
    Interrupted(String),
    /// Several machines failed; their errors were printed individually.
    #[error("{failed} of {total} machines failed")]
    SomeFailed { failed: usize, total: usize },
    #[error(transparent)]
    Api(#[from] IronicClientError),
    /// The server became unavailable while several machines were polled.
    #[error(transparent)]
    ConnectionLost(Arc<IronicClientError>),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("cannot read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write {}", path.display())]
    Unwritable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl CliError {
    pub(crate) fn exit_code(&self) -> CliExitCode {
        match self {
            Self::Usage(_) | Self::Target(_) | Self::Unreadable { .. } => CliExitCode::Usage,
            Self::NotFound(_) => CliExitCode::NotFound,
            Self::Rejected(_) => CliExitCode::Rejected,
            Self::Failed(_) | Self::SomeFailed { .. } | Self::Unwritable { .. } => {
                CliExitCode::Failed
            }
            Self::TimedOut(_) => CliExitCode::TimedOut,
            Self::Interrupted(_) => CliExitCode::Interrupted,
            Self::OutcomeUnknown(_) => CliExitCode::Unreachable,
            Self::Api(error) => exit_code_for(error.class()),
            Self::ConnectionLost(error) => exit_code_for(error.class()),
        }
    }

    /// The error with its causes, limited to [`MAX_MESSAGE_CHARS`].
    pub(crate) fn message(&self) -> String {
        let mut message = error_chain(self);
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
            message.push('…');
        }
        without_control_characters(&message)
    }
}

fn exit_code_for(class: ErrorClass) -> CliExitCode {
    match class {
        ErrorClass::NotFound => CliExitCode::NotFound,
        ErrorClass::Rejected => CliExitCode::Rejected,
        ErrorClass::NotAuthorised => CliExitCode::NotAuthorised,
        ErrorClass::Unreachable => CliExitCode::Unreachable,
        ErrorClass::Other => CliExitCode::Failed,
    }
}
