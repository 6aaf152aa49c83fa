// SPDX-License-Identifier: Apache-2.0
//! The journal's table: appended to within the transaction it tells of, read in order.
//!
//! Entries get their numbers when they are inserted and are seen when they are committed. With one
//! writer, as in SQLite, that is the same order. On a server two transactions may commit the other
//! way round, and someone who follows the journal would go past the lower number before it is
//! there. So on servers nothing behind a gap is shown until the gap is filled or has been there for
//! [`HOLD_BACK`]. That is generous: entries are inserted immediately before the commit, so a number
//! is invisible for about one round trip. Gaps that stay belong to transactions that were undone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use node_model::{JournalEntry, NodeId, Recorded, Timestamp};

use crate::engine::Session;
use crate::error::Error;
use crate::reader::{Reader, field};
use crate::value::{Field, Param};
use crate::writer::{Pending, Writer};

/// How long a gap in the numbers may still be filled by a transaction about to commit.
const HOLD_BACK: Duration = Duration::from_secs(10);

/// How many entries one statement inserts.
const ENTRIES_PER_STATEMENT: usize = 16;

/// Which part of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalQuery {
    /// Of this node only.
    pub node: Option<NodeId>,
    /// Entries with higher numbers than this.
    pub after: i64,
    /// At most this many.
    pub limit: u32,
}

impl Reader<'_> {
    /// Entries in order. Whoever asks again with the last number it got misses none.
    pub fn journal(&mut self, query: &JournalQuery) -> Result<Vec<Recorded>, Error> {
        const COLUMNS: &str = "SELECT seq, recorded_at, node_uuid, actor, what FROM journal";
        const TABLE: &str = "journal";
        let settled = self.settled()?;
        let limit = Param::Int(i64::from(query.limit));
        let range = [Param::Int(query.after), Param::Int(settled)];
        let [after, until] = range;
        let (sql, params) = match query.node {
            None => (
                format!("{COLUMNS} WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"),
                vec![after, until, limit],
            ),
            Some(node) => (
                format!(
                    "{COLUMNS} WHERE node_uuid = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
                ),
                vec![Param::id(node.0), after, until, limit],
            ),
        };
        let mut entries = Vec::new();
        self.session.query(&sql, &params, &mut |row| {
            entries.push(Recorded {
                seq: field(row, 0, TABLE, "seq")?,
                entry: JournalEntry {
                    at: field(row, 1, TABLE, "recorded_at")?,
                    node_id: field(row, 2, TABLE, "node_uuid")?,
                    actor: field(row, 3, TABLE, "actor")?,
                    what: field(row, 4, TABLE, "what")?,
                },
            });
            Ok(())
        })?;
        Ok(entries)
    }

    /// The number up to which no entry can appear any more. Each entry is looked at once per
    /// process to find it.
    fn settled(&mut self) -> Result<i64, Error> {
        if !self.session.dialect().locks_rows() {
            return Ok(i64::MAX);
        }
        let may_still_fill = Timestamp(self.now().0 - micros(HOLD_BACK));
        let mut before = self.shared.settled.load(Ordering::Acquire);
        if before == 0 {
            // The first time: whatever stands before an entry older than a gap may be is settled.
            self.session.query(
                "SELECT seq FROM journal WHERE recorded_at <= ? ORDER BY seq DESC LIMIT 1",
                &[may_still_fill.bind()],
                &mut |row| {
                    before = field(row, 0, "journal", "seq")?;
                    Ok(())
                },
            )?;
        }
        let (mut settled, mut held) = (before, false);
        self.session.query(
            "SELECT seq, recorded_at FROM journal WHERE seq > ? ORDER BY seq",
            &[Param::Int(before)],
            &mut |row| {
                let seq: i64 = field(row, 0, "journal", "seq")?;
                let at: Timestamp = field(row, 1, "journal", "recorded_at")?;
                held = held || (seq != settled + 1 && at > may_still_fill);
                if !held {
                    settled = seq;
                }
                Ok(())
            },
        )?;
        // Others may have got further meanwhile; it never goes back.
        Ok(self.shared.settled.fetch_max(settled, Ordering::AcqRel).max(settled))
    }
}

impl Writer<'_> {
    /// Forgets entries older than `before`, the oldest first and at most a thousand at a time, so
    /// that nobody waits long for the transaction; says how many. Call again until it says none.
    pub fn prune_journal(&mut self, before: Timestamp) -> Result<u64, Error> {
        self.session.execute(
            "DELETE FROM journal WHERE recorded_at < ? AND seq IN
             (SELECT seq FROM (SELECT seq FROM journal ORDER BY seq LIMIT 1000) AS oldest)",
            &[before.bind()],
        )
    }
}

/// Writes the entries a transaction has collected. Called immediately before its commit.
pub(crate) fn flush(session: &mut dyn Session, pending: &mut Pending) -> Result<(), Error> {
    for part in pending.journal.chunks(ENTRIES_PER_STATEMENT) {
        let rows = vec!["(?, ?, ?, ?)"; part.len()].join(", ");
        let sql = format!(
            "INSERT INTO journal (recorded_at, node_uuid, actor, what) VALUES {rows} RETURNING seq"
        );
        let mut params = Vec::with_capacity(4 * part.len());
        for entry in part {
            params.extend([
                entry.at.bind(),
                entry.node_id.bind(),
                entry.actor.bind(),
                entry.what.bind(),
            ]);
        }
        let last_seq = &mut pending.last_seq;
        session.query(&sql, &params, &mut |row| {
            *last_seq = (*last_seq).max(field(row, 0, "journal", "seq")?);
            Ok(())
        })?;
    }
    pending.journal.clear();
    Ok(())
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
