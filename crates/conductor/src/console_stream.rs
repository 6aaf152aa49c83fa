// SPDX-License-Identifier: Apache-2.0
//! Output and input of a console, for clients of the API.

use std::sync::Arc;

use drivers::{ConsoleInputError, ConsoleOutput, ConsoleSubscription};
use node_model::NodeId;

use crate::{Conductor, ConductorError};

/// The output of a console. The serial line stays connected while this exists.
#[derive(Debug)]
pub struct ConsoleStream(ConsoleSubscription);

/// A part of the output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsoleChunk {
    /// Bytes for a terminal.
    Bytes(Arc<[u8]>),
    /// Output was skipped, because the client was too slow.
    Skipped,
}

impl ConsoleStream {
    /// The recent output from before the stream was opened, from the beginning of a line. Empty after
    /// the first call.
    pub fn take_recent(&mut self) -> Vec<u8> {
        self.0.take_recent_output()
    }

    /// Waits for output. Returns `None` when the console is closed.
    pub async fn next(&mut self) -> Option<ConsoleChunk> {
        Some(match self.0.next().await? {
            ConsoleOutput::Bytes(bytes) => ConsoleChunk::Bytes(bytes),
            ConsoleOutput::Lagged => ConsoleChunk::Skipped,
        })
    }
}

impl Conductor {
    /// Opens the output of a node's console. Fails if the console is disabled, if another process
    /// serves it, or if it has too many viewers.
    pub async fn watch_console(&self, id: NodeId) -> Result<ConsoleStream, ConductorError> {
        let feed = self.console_feed(id).await?;
        feed.subscribe().map(ConsoleStream).ok_or_else(|| {
            ConductorError::NotYet(format!(
                "The console of node {id} has too many viewers already."
            ))
        })
    }

    /// Sends input to a node's console. Fails if the serial line is not connected, or if earlier input
    /// is still pending.
    pub async fn send_console_input(
        &self,
        id: NodeId,
        input: Vec<u8>,
    ) -> Result<(), ConductorError> {
        let feed = self.console_feed(id).await?;
        feed.try_send_input(input).map_err(|error| {
            let message = format!("Sending input to the console of node {id} failed: {error}.");
            match error {
                ConsoleInputError::NotConnected => ConductorError::Conflict(message),
                ConsoleInputError::Busy => ConductorError::NotYet(message),
            }
        })
    }
}
