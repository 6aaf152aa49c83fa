// SPDX-License-Identifier: Apache-2.0
//! A row per connection, to find out whether a transaction was committed whose COMMIT got no response.
//!
//! The last statement of a transaction writes a new number to the row. If the connection breaks
//! during COMMIT, the number on a new connection is the result. The lookup also writes the row: it is
//! valid only if its own COMMIT succeeds. Then the transaction of the broken connection has ended, or
//! conflicts with the lookup and cannot be committed any more, also on another member of a cluster.

use std::sync::Arc;

use node_model::Timestamp;
use uuid::Uuid;

use super::DatabaseSession;
use super::workers::ServerSession;
use crate::error::{ErrorSource, StoreError};
use crate::reader::decode_field;
use crate::value::{ColumnType as _, SqlParam};

/// Rows of processes that ended are deleted after this time.
const RETENTION: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// The row of one connection.
pub(crate) struct CommitMarker {
    id: Uuid,
    number: i64,
    is_registered: bool,
}

/// What a lookup writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LookupResult {
    is_committed: bool,
    /// The next number.
    next: i64,
}

impl CommitMarker {
    pub(crate) fn new() -> Self {
        Self { id: Uuid::new_v4(), number: 0, is_registered: false }
    }

    /// Creates the row, in a transaction of its own: a row that only an open transaction has inserted
    /// could not be locked.
    pub(crate) fn register(
        &mut self,
        session: &mut dyn ServerSession,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.is_registered {
            return Ok(());
        }
        // A new id, because the result of an earlier attempt may be unknown.
        *self = Self::new();
        session.begin()?;
        let inserted = session.execute(
            "INSERT INTO commit_markers (uuid, number, changed_at) VALUES (?, ?, ?)",
            &[self.id.bind(), SqlParam::Int(self.number), now.bind()],
        );
        if let Err(error) = inserted {
            let _ = session.rollback();
            return Err(error);
        }
        session.commit()?;
        self.is_registered = true;
        Ok(())
    }

    /// Writes the next number in the current transaction. Fails if the row was deleted; the transaction
    /// has to be repeated then.
    pub(crate) fn write(
        &mut self,
        session: &mut dyn DatabaseSession,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.number += 1;
        let found = session.execute(
            "UPDATE commit_markers SET number = ?, changed_at = ? WHERE uuid = ?",
            &[SqlParam::Int(self.number), now.bind(), self.id.bind()],
        )?;
        if found == 0 {
            self.is_registered = false;
            let cause: ErrorSource = Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(
                "the commit marker of the connection was deleted",
            ));
            return Err(StoreError::Contended(cause));
        }
        Ok(())
    }

    /// Whether the row was deleted.
    pub(crate) const fn is_lost(&self) -> bool {
        !self.is_registered
    }

    /// Whether the transaction with the last number was committed. `session` is a new connection. Has to
    /// be repeated if it fails.
    pub(crate) fn look_up(
        &mut self,
        session: &mut dyn ServerSession,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        session.begin()?;
        let mut found = None;
        session.query(
            "SELECT number FROM commit_markers WHERE uuid = ? FOR UPDATE",
            &[self.id.bind()],
            &mut |row| {
                found = Some(decode_field::<i64>(row, 0, "commit_markers", "number")?);
                Ok(())
            },
        )?;
        let Some(found) = found else {
            // It was deleted before the transaction began, which therefore has not found it either.
            self.is_registered = false;
            session.rollback()?;
            return Ok(false);
        };
        let LookupResult { is_committed, next } = LookupResult::new(found, self.number);
        session.execute(
            "UPDATE commit_markers SET number = ?, changed_at = ? WHERE uuid = ?",
            &[SqlParam::Int(next), now.bind(), self.id.bind()],
        )?;
        session.commit()?;
        self.number = next;
        Ok(is_committed)
    }
}

impl LookupResult {
    /// The result for a transaction that wrote `written`, if the row has the number `found`. Earlier
    /// lookups, whose own COMMIT had no response, may have written a number with the same result: they
    /// add two if the transaction was committed, and make the difference odd if not.
    fn new(found: i64, written: i64) -> Self {
        if found < written {
            Self { is_committed: false, next: written + 1 }
        } else {
            Self { is_committed: (found - written) % 2 == 0, next: found + 2 }
        }
    }
}

/// Deletes the rows of processes that ended long ago.
pub(crate) fn delete_old_markers(
    session: &mut dyn DatabaseSession,
    now: Timestamp,
) -> Result<(), StoreError> {
    let retention = i64::try_from(RETENTION.as_micros()).unwrap_or(i64::MAX);
    let before = Timestamp(now.0.saturating_sub(retention));
    session.execute("DELETE FROM commit_markers WHERE changed_at < ?", &[before.bind()]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_lookups_have_the_same_result() {
        for (before, is_committed) in [(7, false), (5, false), (8, true)] {
            let mut number = before;
            for _ in 0..4 {
                let result = LookupResult::new(number, 8);
                assert_eq!(result.is_committed, is_committed, "{before} {number}");
                assert!(result.next > 8 && result.next > number);
                number = result.next;
            }
        }
    }
}
