// SPDX-License-Identifier: Apache-2.0
//! Signals, limits and output of long-running commands.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Raises the soft limit of open files to the hard limit. The usual 1,024 are too few when all agents
/// of a fleet connect at once.
pub(crate) fn raise_open_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Receives SIGTERM and SIGINT.
pub(crate) struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    /// Installs the signal handlers. Call it before reporting readiness, because a stop request may follow
    /// at once.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    /// Waits for a signal.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Prints a line to standard output, for users and for programs that start this one.
#[expect(clippy::print_stdout, reason = "the output of commands that are not API clients")]
pub(crate) fn print_line(line: &str) {
    println!("{line}");
}
