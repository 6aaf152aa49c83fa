// SPDX-License-Identifier: Apache-2.0
//! What every long-running command needs of the operating system.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Lets the process have as many open files as it may: a whole fleet of agents calls at once, and the
/// usual soft limit of 1,024 would turn most of them away.
pub(crate) fn allow_many_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Hears when somebody asks us to stop, with SIGTERM or Ctrl-C.
pub(crate) struct StopRequest {
    terminate: Signal,
    interrupt: Signal,
}

impl StopRequest {
    /// Begins to listen. Whoever is told that we are ready may ask us to stop at once, so this comes
    /// before.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    /// Waits until somebody asks.
    pub(crate) async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
