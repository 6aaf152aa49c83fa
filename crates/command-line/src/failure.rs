// SPDX-License-Identifier: Apache-2.0
//! Why a command did not do what it was asked, and the exit code that tells scripts.

use std::path::PathBuf;
use std::sync::Arc;

use crate::screen::harmless;

use ironic_client::{ApiError, Kind, SettingsError};

/// More letters than anybody reads of one failure, whatever a server says.
const LONGEST: usize = 4_000;

/// What a command ends with when it does not end well. The numbers are a promise to scripts and are
/// listed in docs/command-line.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Code {
    /// A machine, or the command itself, failed.
    Failed = 1,
    /// The command makes no sense as it was given.
    Usage = 2,
    /// There is no such machine or thing.
    NotFound = 3,
    /// The server says no.
    Refused = 4,
    /// The server does not know us, or does not allow us.
    NotAuthorised = 5,
    /// Nobody answers, or somebody who is no Ironic.
    Unreachable = 6,
    /// It took longer than we were to wait.
    TimedOut = 7,
    /// Ctrl-C.
    Interrupted = 130,
}

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    TimedOut(String),
    /// Nobody knows what came of it.
    #[error("{0}")]
    Unanswered(String),
    /// What goes on without us.
    #[error("{0}")]
    Interrupted(String),
    /// Some of several machines; each was told of by itself.
    #[error("{failed} of {all} machines failed")]
    Some { failed: usize, all: usize },
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The server that was to tell of several machines does not.
    #[error(transparent)]
    Lost(Arc<ApiError>),
    #[error(transparent)]
    Settings(#[from] SettingsError),
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

impl Failure {
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Usage(_) | Self::Settings(_) | Self::Unreadable { .. } => Code::Usage,
            Self::NotFound(_) => Code::NotFound,
            Self::Refused(_) => Code::Refused,
            Self::Failed(_) | Self::Some { .. } | Self::Unwritable { .. } => Code::Failed,
            Self::TimedOut(_) => Code::TimedOut,
            Self::Interrupted(_) => Code::Interrupted,
            Self::Unanswered(_) => Code::Unreachable,
            Self::Api(error) => code_of(error.kind()),
            Self::Lost(error) => code_of(error.kind()),
        }
    }

    /// The failure with its causes, in one line.
    pub(crate) fn told(&self) -> String {
        let mut told = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors tell their cause themselves: it is not repeated.
            if !told.contains(&text) {
                told = format!("{told}: {text}");
            }
            cause = error.source();
        }
        if let Some((end, _)) = told.char_indices().nth(LONGEST) {
            told.truncate(end);
            told.push('…');
        }
        harmless(&told)
    }
}

fn code_of(kind: Kind) -> Code {
    match kind {
        Kind::NotFound => Code::NotFound,
        Kind::Refused => Code::Refused,
        Kind::NotAuthorised => Code::NotAuthorised,
        Kind::Unreachable => Code::Unreachable,
        Kind::Other => Code::Failed,
    }
}
