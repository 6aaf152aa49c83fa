// SPDX-License-Identifier: Apache-2.0
//! Ctrl-C during operations that must not be left half done.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli_error::CliError;

/// Records every Ctrl-C, also between two polls.
pub(crate) struct Interrupts {
    source: InterruptSource,
    was_interrupted: bool,
}

enum InterruptSource {
    Signals(Signal),
    #[cfg(test)]
    Channel(tokio::sync::mpsc::UnboundedReceiver<()>),
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listening = signal(SignalKind::interrupt());
        let listening = listening.map_err(|error| format!("cannot handle Ctrl-C: {error}"));
        let presses = InterruptSource::Signals(listening.map_err(CliError::Failed)?);
        Ok(Self { source: presses, was_interrupted: false })
    }

    /// Interrupts sent by a test.
    #[cfg(test)]
    pub(crate) fn from_channel(presses: tokio::sync::mpsc::UnboundedReceiver<()>) -> Self {
        Self { source: InterruptSource::Channel(presses), was_interrupted: false }
    }

    /// Waits for the next Ctrl-C.
    pub(crate) async fn next(&mut self) {
        poll_fn(|context| self.poll_next(context)).await;
        self.was_interrupted = true;
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn is_interrupted(&mut self) -> bool {
        let is_new = self.poll_next(&mut Context::from_waker(Waker::noop())).is_ready();
        self.was_interrupted |= is_new;
        self.was_interrupted
    }

    /// Completes an operation despite Ctrl-C; returns `None` after a second Ctrl-C.
    pub(crate) async fn run_to_completion<T>(
        &mut self,
        operation: impl Future<Output = T>,
    ) -> Option<T> {
        let mut operation = pin!(operation);
        loop {
            let was_interrupted = self.was_interrupted;
            tokio::select! {
                output = &mut operation => return Some(output),
                () = self.next() => if was_interrupted { return None },
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let polled = match &mut self.source {
            InterruptSource::Signals(signals) => signals.poll_recv(context),
            #[cfg(test)]
            InterruptSource::Channel(channel) => channel.poll_recv(context),
        };
        match polled {
            Poll::Ready(Some(())) => Poll::Ready(()),
            // The source is closed.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn completes_the_operation_until_a_second_ctrl_c() {
        let (press, presses) = tokio::sync::mpsc::unbounded_channel();
        let mut interrupts = Interrupts::from_channel(presses);
        assert!(!interrupts.is_interrupted());
        press.send(()).unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let doing = interrupts.run_to_completion(async { receiver.await.unwrap() });
        let (done, ()) = tokio::join!(doing, async {
            tokio::task::yield_now().await;
            sender.send(7).unwrap();
        });
        assert_eq!(done, Some(7));
        assert!(interrupts.is_interrupted());
        press.send(()).unwrap();
        assert_eq!(interrupts.run_to_completion(std::future::pending::<()>()).await, None);
    }
}
