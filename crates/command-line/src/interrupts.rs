// SPDX-License-Identifier: Apache-2.0
//! Ctrl-C while something is done that must not be left half done.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Every Ctrl-C from now on; none is lost between two looks.
pub(crate) struct Interrupts {
    presses: Presses,
    is_pressed: bool,
}

enum Presses {
    Signals(Signal),
    #[cfg(test)]
    Told(tokio::sync::mpsc::UnboundedReceiver<()>),
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listening = signal(SignalKind::interrupt());
        let listening = listening.map_err(|error| format!("cannot hear Ctrl-C: {error}"));
        let presses = Presses::Signals(listening.map_err(Failure::Failed)?);
        Ok(Self { presses, is_pressed: false })
    }

    /// Those that a test tells of.
    #[cfg(test)]
    pub(crate) fn told(presses: tokio::sync::mpsc::UnboundedReceiver<()>) -> Self {
        Self { presses: Presses::Told(presses), is_pressed: false }
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        poll_fn(|context| self.poll_next(context)).await;
        self.is_pressed = true;
    }

    /// Whether there was one.
    pub(crate) fn is_pressed(&mut self) -> bool {
        let is_new = self.poll_next(&mut Context::from_waker(Waker::noop())).is_ready();
        self.is_pressed |= is_new;
        self.is_pressed
    }

    /// Does something to its end, although somebody wants to stop; none if they say so twice.
    pub(crate) async fn finished<T>(&mut self, doing: impl Future<Output = T>) -> Option<T> {
        let mut doing = pin!(doing);
        loop {
            let was_pressed = self.is_pressed;
            tokio::select! {
                done = &mut doing => return Some(done),
                () = self.next() => if was_pressed { return None },
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let polled = match &mut self.presses {
            Presses::Signals(signals) => signals.poll_recv(context),
            #[cfg(test)]
            Presses::Told(told) => told.poll_recv(context),
        };
        match polled {
            Poll::Ready(Some(())) => Poll::Ready(()),
            // Nobody is left who could stop us.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_under_way_is_finished_unless_somebody_insists() {
        let (press, presses) = tokio::sync::mpsc::unbounded_channel();
        let mut interrupts = Interrupts::told(presses);
        assert!(!interrupts.is_pressed());
        press.send(()).unwrap();
        let (tell, told) = tokio::sync::oneshot::channel();
        let doing = interrupts.finished(async { told.await.unwrap() });
        let (done, ()) = tokio::join!(doing, async {
            tokio::task::yield_now().await;
            tell.send(7).unwrap();
        });
        assert_eq!(done, Some(7));
        assert!(interrupts.is_pressed());
        press.send(()).unwrap();
        assert_eq!(interrupts.finished(std::future::pending::<()>()).await, None);
    }
}
