// SPDX-License-Identifier: Apache-2.0
//! Type-erased read and write closures, and the channel for their results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::DatabaseSession;
use crate::error::StoreError;
use crate::journal;
use crate::reader::StoreReader;
use crate::store::StoreShared;
use crate::writer::{PendingEffects, StoreWriter};

/// A read with its result type erased.
pub(crate) trait ReadJob: Send {
    /// Runs the read and sends the result.
    fn run(self: Box<Self>, session: &mut dyn DatabaseSession, shared: &Arc<StoreShared>);
    /// Sends an error instead of running.
    fn fail(self: Box<Self>, error: StoreError);
}

/// A transaction with its result type erased.
pub(crate) trait WriteJob: Send {
    /// Runs the closure once. Returns whether to commit.
    fn attempt(
        &mut self,
        session: &mut dyn DatabaseSession,
        shared: &Arc<StoreShared>,
        pending: &mut PendingEffects,
    ) -> bool;
    /// Sends the result, after the commit or the rollback.
    fn finish(self: Box<Self>, end: Result<(), StoreError>);
}

/// A queued read and the sender for its result.
pub(crate) struct PendingRead<F, T, E> {
    pub(crate) closure: F,
    pub(crate) reply: oneshot::Sender<Result<T, E>>,
}

/// A queued transaction and the sender for its result.
pub(crate) struct PendingWrite<F, T, E> {
    closure: F,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> PendingWrite<F, T, E> {
    pub(crate) fn new(closure: F, reply: oneshot::Sender<Result<T, E>>) -> Self {
        Self { closure, result: None, reply }
    }
}

/// Runs a read. A panic becomes [`StoreError::Panicked`] for this caller only.
pub(crate) fn run_read<T, E: From<StoreError>>(
    closure: impl FnOnce(&mut StoreReader<'_>) -> Result<T, E>,
    session: &mut dyn DatabaseSession,
    shared: &Arc<StoreShared>,
) -> Result<T, E> {
    let mut reader = StoreReader { session, shared, locking: false };
    catch_unwind(AssertUnwindSafe(|| closure(&mut reader)))
        .unwrap_or_else(|_| Err(E::from(StoreError::Panicked)))
}

impl<F, T, E> ReadJob for PendingRead<F, T, E>
where
    F: FnOnce(&mut StoreReader<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn run(self: Box<Self>, session: &mut dyn DatabaseSession, shared: &Arc<StoreShared>) {
        // The receiver may be gone; the result is then dropped.
        let _ = self.reply.send(run_read(self.closure, session, shared));
    }

    fn fail(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(E::from(error)));
    }
}

impl<F, T, E> WriteJob for PendingWrite<F, T, E>
where
    F: FnMut(&mut StoreWriter<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn attempt(
        &mut self,
        session: &mut dyn DatabaseSession,
        shared: &Arc<StoreShared>,
        pending: &mut PendingEffects,
    ) -> bool {
        let locking = session.dialect().locks_rows();
        let closure = &mut self.closure;
        // Unwind safe: state that the closure left half-changed is rolled back or dropped.
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            shared.keys.follow(session, (shared.clock)())?;
            let reader = StoreReader { session: &mut *session, shared, locking };
            closure(&mut StoreWriter { reader, pending: &mut *pending })
        }))
        .unwrap_or_else(|_| Err(E::from(StoreError::Panicked)))
        .and_then(|value| {
            journal::insert_pending_entries(session, pending)?;
            Ok(value)
        });
        let committable = attempt.is_ok();
        self.result = Some(attempt);
        committable
    }

    fn finish(self: Box<Self>, end: Result<(), StoreError>) {
        let result = match (self.result, end) {
            // The closure's own error is more useful than that of the rollback.
            (Some(Err(error)), _) => Err(error),
            (Some(Ok(_)) | None, Err(error)) => Err(E::from(error)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(E::from(StoreError::Closed)),
        };
        let _ = self.reply.send(result);
    }
}
