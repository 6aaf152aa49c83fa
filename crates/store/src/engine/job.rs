// SPDX-License-Identifier: Apache-2.0
//! A closure on its way to a connection, and its answer on the way back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Session;
use crate::error::Error;
use crate::journal;
use crate::reader::Reader;
use crate::store::Shared;
use crate::writer::{Pending, Writer};

/// A read with its result type forgotten.
pub(crate) trait ReadJob: Send {
    /// Runs it and answers.
    fn run(self: Box<Self>, session: &mut dyn Session, shared: &Arc<Shared>);
    /// Answers that it could not be run.
    fn fail(self: Box<Self>, error: Error);
}

/// A transaction with its result type forgotten.
pub(crate) trait WriteJob: Send {
    /// Runs it once; says whether it wants to be committed.
    fn attempt(
        &mut self,
        session: &mut dyn Session,
        shared: &Arc<Shared>,
        pending: &mut Pending,
    ) -> bool;
    /// Answers, after the commit or the rollback.
    fn answer(self: Box<Self>, end: Result<(), Error>);
}

/// A read to be answered.
pub(crate) struct Reading<F, T, E> {
    pub(crate) closure: F,
    pub(crate) reply: oneshot::Sender<Result<T, E>>,
}

/// A transaction to be answered.
pub(crate) struct Writing<F, T, E> {
    closure: F,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> Writing<F, T, E> {
    pub(crate) fn new(closure: F, reply: oneshot::Sender<Result<T, E>>) -> Self {
        Self { closure, result: None, reply }
    }
}

/// Runs a read. A panic in it is an error to whoever asked, and nobody else's concern.
pub(crate) fn read<T, E: From<Error>>(
    closure: impl FnOnce(&mut Reader<'_>) -> Result<T, E>,
    session: &mut dyn Session,
    shared: &Arc<Shared>,
) -> Result<T, E> {
    let mut reader = Reader { session, shared, locking: false };
    catch_unwind(AssertUnwindSafe(|| closure(&mut reader)))
        .unwrap_or_else(|_| Err(E::from(Error::Panicked)))
}

impl<F, T, E> ReadJob for Reading<F, T, E>
where
    F: FnOnce(&mut Reader<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    fn run(self: Box<Self>, session: &mut dyn Session, shared: &Arc<Shared>) {
        // Nobody may be waiting any more; the read is then for nothing.
        let _ = self.reply.send(read(self.closure, session, shared));
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(E::from(error)));
    }
}

impl<F, T, E> WriteJob for Writing<F, T, E>
where
    F: FnMut(&mut Writer<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    fn attempt(
        &mut self,
        session: &mut dyn Session,
        shared: &Arc<Shared>,
        pending: &mut Pending,
    ) -> bool {
        let locking = session.dialect().locks_rows();
        let closure = &mut self.closure;
        // What the closure left half-changed is rolled back or dropped, never looked at again.
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            let reader = Reader { session: &mut *session, shared, locking };
            closure(&mut Writer { reader, pending: &mut *pending })
        }))
        .unwrap_or_else(|_| Err(E::from(Error::Panicked)))
        .and_then(|value| {
            journal::flush(session, pending)?;
            Ok(value)
        });
        let committable = attempt.is_ok();
        self.result = Some(attempt);
        committable
    }

    fn answer(self: Box<Self>, end: Result<(), Error>) {
        let result = match (self.result, end) {
            // Its own reason not to commit says more than how the rollback went.
            (Some(Err(error)), _) => Err(error),
            (Some(Ok(_)) | None, Err(error)) => Err(E::from(error)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(E::from(Error::Closed)),
        };
        let _ = self.reply.send(result);
    }
}
