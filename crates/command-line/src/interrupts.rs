// SPDX-License-Identifier: Apache-2.0
//! Ctrl-C while something is done that must not be left half done.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Every Ctrl-C from now on; none is lost between two looks.
pub(crate) struct Interrupts(Signal);

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listening = signal(SignalKind::interrupt());
        listening.map(Self).map_err(|error| Failure::Failed(format!("cannot hear Ctrl-C: {error}")))
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}
