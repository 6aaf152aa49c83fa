// SPDX-License-Identifier: Apache-2.0
//! The journal table: appended to in the transaction that the entries describe, read in order.
//!
//! Sequence numbers are allocated on insert and become visible on commit. SQLite has one writer, so
//! both orders are the same. On a server, transactions may commit in another order, and a follower
//! would skip the lower number. So on servers, entries behind a gap are held back until the gap is
//! filled or older than [`GAP_TIMEOUT`]. That is generous: entries are inserted immediately before
//! the commit, so a number is invisible for about one round trip. Permanent gaps come from
//! transactions that were rolled back.
//!
//! In a Galera cluster of three, each member allocates every third number. The numbers in between
//! are waited for only if another member allocated one within the last minute, and then for
//! [`CLUSTER_GAP_TIMEOUT`]. The last number of each member is cached between reads. The age of a gap
//! is computed from the timestamp of the entry behind it, so the clocks of the processes must agree
//! within a second or two.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use node_model::{JournalEntry, JournalRow, NodeId, Timestamp, mask_quoted_urls};

use crate::engine::{DatabaseSession, Dialect};
use crate::error::StoreError;
use crate::journal_search::insert_state_entries;
use crate::reader::{StoreReader, decode_field};
use crate::value::{ColumnType, SqlParam};
use crate::writer::{PendingEffects, StoreWriter};

/// How long a gap in the sequence may still be filled by a transaction that is about to commit.
const GAP_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for gaps between the numbers of one cluster member. There is always such a gap, so this
/// is the latency of the journal while more than one member is written to.
const CLUSTER_GAP_TIMEOUT: Duration = Duration::from_secs(3);

/// Age of an entry at which everything before it is taken as settled without checking. Much longer
/// than [`GAP_TIMEOUT`], because an entry's timestamp is set when it is created, and its transaction
/// may have waited for locks before it allocated a number.
const SETTLED_AGE: Duration = Duration::from_secs(60);

/// Maximum number of entries deleted per transaction.
const PRUNE_BATCH: i64 = 5_000;

/// Entries per INSERT statement.
const ENTRIES_PER_STATEMENT: usize = 16;

/// A range of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalQuery {
    /// Entries of this node only.
    pub node: Option<NodeId>,
    /// Entries with higher sequence numbers than this.
    pub after: i64,
    /// Maximum number of entries.
    pub limit: u32,
}

impl StoreReader<'_> {
    /// Entries in order. A caller that continues from the last sequence number misses none.
    pub fn journal(&mut self, query: &JournalQuery) -> Result<Vec<JournalRow>, StoreError> {
        const COLUMNS: &str = "SELECT seq, recorded_at, node_uuid, actor, event FROM journal";
        // SQLite has one writer, so nothing is held back.
        let settled =
            if self.session.dialect().locks_rows() { self.journal_end()? } else { i64::MAX };
        let limit = SqlParam::Int(i64::from(query.limit));
        let range = [SqlParam::Int(query.after), SqlParam::Int(settled)];
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
                vec![SqlParam::id(node.0), after, until, limit],
            ),
        };
        self.query_journal(&sql, &params)
    }

    /// The entries returned by a query for the journal's columns.
    pub(crate) fn query_journal(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
    ) -> Result<Vec<JournalRow>, StoreError> {
        const TABLE: &str = "journal";
        let mut entries = Vec::new();
        self.session.query(sql, params, &mut |row| {
            entries.push(JournalRow {
                seq: decode_field(row, 0, TABLE, "seq")?,
                entry: JournalEntry {
                    at: decode_field(row, 1, TABLE, "recorded_at")?,
                    node_id: decode_field(row, 2, TABLE, "node_uuid")?,
                    actor: decode_field(row, 3, TABLE, "actor")?,
                    event: decode_field(row, 4, TABLE, "event")?,
                },
            });
            Ok(())
        })?;
        Ok(entries)
    }

    /// The sequence number after which a node has at most `count` entries. Reading from there returns
    /// the latest ones.
    pub fn journal_tail(&mut self, node: NodeId, count: u32) -> Result<i64, StoreError> {
        let found: Vec<i64> = self.query_column(
            "SELECT seq FROM journal WHERE node_uuid = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            &[SqlParam::id(node.0), SqlParam::Int(i64::from(count))],
            "journal",
            "seq",
        )?;
        Ok(found.first().copied().unwrap_or(0))
    }

    /// The nodes with entries after `after` and up to `until`, in no particular order. Returns `None`
    /// if some of these entries are pruned or the range is larger than `max_entries`.
    pub fn journal_nodes(
        &mut self,
        after: i64,
        until: i64,
        max_entries: u32,
    ) -> Result<Option<Vec<NodeId>>, StoreError> {
        let sql = "SELECT seq FROM journal ORDER BY seq LIMIT 1";
        let first: Vec<i64> = self.query_column(sql, &[], "journal", "seq")?;
        let is_forgotten = first.first().is_some_and(|first| after < first - 1);
        if is_forgotten || until.saturating_sub(after) > i64::from(max_entries) {
            return Ok(None);
        }
        self.query_column(
            "SELECT DISTINCT node_uuid FROM journal WHERE seq > ? AND seq <= ?",
            &[SqlParam::Int(after), SqlParam::Int(until)],
            "journal",
            "node_uuid",
        )
        .map(Some)
    }

    /// The sequence number after which new entries appear, of all processes.
    pub fn journal_end(&mut self) -> Result<i64, StoreError> {
        let known = self.shared.settled_seq.load(Ordering::Acquire);
        let now = self.now();
        // Load this after the number: other threads merge members before they advance the number.
        let mut members = self.members().clone();
        let end = settled_end(self.session, known, now, &mut members)?;
        self.members().merge(members);
        if !self.session.dialect().locks_rows() {
            // A write may see entries here that share its commit and may still be rolled back.
            return Ok(end);
        }
        // Other threads may have advanced it further.
        Ok(self.shared.settled_seq.fetch_max(end, Ordering::AcqRel).max(end))
    }

    fn members(&self) -> MutexGuard<'_, ClusterMembers> {
        self.shared.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreWriter<'_> {
    /// Deletes entries older than `before`, oldest first, at most [`PRUNE_BATCH`] per call to keep the
    /// transaction short. Returns how many were deleted; call again until it returns 0.
    pub fn prune_journal(&mut self, before: Timestamp) -> Result<u64, StoreError> {
        self.prune("state_entries", "id", before)?;
        self.prune("journal", "seq", before)
    }

    /// Deletes old rows of a table by its ascending key; see [`StoreWriter::prune_journal`].
    fn prune(
        &mut self,
        table: &'static str,
        key: &'static str,
        before: Timestamp,
    ) -> Result<u64, StoreError> {
        // Look up the end first, so that the DELETE is a plain range of the primary key: MariaDB and
        // PostgreSQL may scan the whole table for anything else.
        let mut last: Option<i64> = None;
        self.session.query(
            &format!(
                "SELECT MAX({key}) FROM (SELECT {key}, recorded_at FROM {table} ORDER BY {key} LIMIT ?)
                 AS oldest WHERE recorded_at < ?"
            ),
            &[SqlParam::Int(PRUNE_BATCH), before.bind()],
            &mut |row| {
                last = decode_field(row, 0, table, key)?;
                Ok(())
            },
        )?;
        let Some(last) = last else { return Ok(0) };
        self.session.execute(
            &format!("DELETE FROM {table} WHERE {key} <= ? AND recorded_at < ?"),
            &[SqlParam::Int(last), before.bind()],
        )
    }
}

/// The sequence number up to which no entry can appear any more, given that it is at least `known`.
/// Reads only entries younger than [`SETTLED_AGE`].
pub(crate) fn settled_end(
    session: &mut dyn DatabaseSession,
    known: i64,
    now: Timestamp,
    members: &mut ClusterMembers,
) -> Result<i64, StoreError> {
    let mut end = known;
    if !session.dialect().locks_rows() {
        session.query(
            "SELECT seq FROM journal WHERE seq > ? ORDER BY seq DESC LIMIT 1",
            &[SqlParam::Int(known)],
            &mut |row| {
                end = decode_field(row, 0, "journal", "seq")?;
                Ok(())
            },
        )?;
        return Ok(end);
    }
    // Scans backwards from the newest entry, so older entries are not read.
    let long_settled = Timestamp(now.0 - micros(SETTLED_AGE));
    end = last_seq_until(session, known, long_settled)?.unwrap_or(end);
    let recent = entries_after(session, end)?;
    members.record_entries(&recent);
    let mut before = end;
    let has_gap = recent.iter().any(|(seq, _)| std::mem::replace(&mut before, *seq) + 1 != *seq);
    if !has_gap {
        return Ok(before);
    }
    members.refresh_increment(session, long_settled, &recent)?;
    for (seq, at) in recent {
        let age = Timestamp(now.0 - at.0);
        if members
            .gap_timeout(end, seq, long_settled)
            .is_some_and(|timeout| age.0 < micros(timeout))
        {
            break;
        }
        end = seq;
    }
    Ok(end)
}

/// The highest sequence number after `known` that was recorded at or before `time`.
fn last_seq_until(
    session: &mut dyn DatabaseSession,
    known: i64,
    time: Timestamp,
) -> Result<Option<i64>, StoreError> {
    let mut last = None;
    session.query(
        "SELECT seq FROM journal WHERE seq > ? AND recorded_at <= ? ORDER BY seq DESC LIMIT 1",
        &[SqlParam::Int(known), time.bind()],
        &mut |row| {
            last = Some(decode_field(row, 0, "journal", "seq")?);
            Ok(())
        },
    )?;
    Ok(last)
}

/// The sequence numbers after `after`, with their timestamps.
fn entries_after(
    session: &mut dyn DatabaseSession,
    after: i64,
) -> Result<Vec<(i64, Timestamp)>, StoreError> {
    let mut entries = Vec::new();
    session.query(
        "SELECT seq, recorded_at FROM journal WHERE seq > ? ORDER BY seq",
        &[SqlParam::Int(after)],
        &mut |row| {
            let at = decode_field(row, 1, "journal", "recorded_at")?;
            entries.push((decode_field(row, 0, "journal", "seq")?, at));
            Ok(())
        },
    )?;
    Ok(entries)
}

/// Cluster members that allocate sequence numbers. In a Galera cluster each member allocates every
/// n-th number, so there are gaps between its numbers that only the other members can fill.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ClusterMembers {
    /// Distance between the numbers of one member: 1 without a cluster, 0 if not queried yet.
    increment: i64,
    /// When each member last allocated a number, by the remainder of its numbers.
    last_seen: BTreeMap<i64, Timestamp>,
    /// Number of merges.
    generation: u64,
}

impl ClusterMembers {
    /// Merges the result of a read that started from a copy of this value.
    fn merge(&mut self, read: Self) {
        if self.increment == read.increment {
            for (remainder, at) in read.last_seen {
                self.record_seen(remainder, at);
            }
        } else if self.generation == read.generation {
            self.increment = read.increment;
            self.last_seen = read.last_seen;
        } else {
            // Another thread changed this value in the meantime, or found another increment: reset,
            // so that the next read queries it again.
            self.increment = 0;
            self.last_seen.clear();
        }
        self.generation += 1;
    }

    /// Records which members allocated these numbers. Does nothing while the increment is unknown.
    fn record_entries(&mut self, entries: &[(i64, Timestamp)]) {
        if self.increment > 1 {
            for (seq, at) in entries {
                self.record_seen(seq.rem_euclid(self.increment), *at);
            }
        }
    }

    fn record_seen(&mut self, remainder: i64, at: Timestamp) {
        let last = self.last_seen.entry(remainder).or_insert(at);
        *last = at.max(*last);
    }

    /// Queries the increment. If it has changed, as when a member joins, the recorded remainders are
    /// invalid, and everything since `long_settled` is read again.
    fn refresh_increment(
        &mut self,
        session: &mut dyn DatabaseSession,
        long_settled: Timestamp,
        recent: &[(i64, Timestamp)],
    ) -> Result<(), StoreError> {
        let mut increment: i64 = 1;
        match session.dialect() {
            Dialect::Sqlite | Dialect::Postgres => {}
            Dialect::MariaDb => {
                session.query("SELECT @@auto_increment_increment", &[], &mut |row| {
                    increment = decode_field(row, 0, "journal", "@@auto_increment_increment")?;
                    Ok(())
                })?;
            }
        }
        if increment == self.increment {
            return Ok(());
        }
        self.increment = increment;
        self.last_seen.clear();
        if increment > 1 {
            let since = last_seq_until(session, 0, long_settled)?;
            let entries = entries_after(session, since.unwrap_or(0))?;
            self.record_entries(&entries);
            self.record_entries(recent);
        }
        Ok(())
    }

    /// How long to wait for the numbers between `before` and `seq`; `None` if none can appear.
    fn gap_timeout(&self, before: i64, seq: i64, long_settled: Timestamp) -> Option<Duration> {
        let missing = seq - before - 1;
        if missing <= 0 {
            return None;
        }
        if self.increment <= 1 || missing >= self.increment {
            return Some(GAP_TIMEOUT);
        }
        let may_come = |number: i64| {
            let last = self.last_seen.get(&number.rem_euclid(self.increment));
            last.is_some_and(|last| *last > long_settled)
        };
        (before + 1..seq).any(may_come).then_some(CLUSTER_GAP_TIMEOUT)
    }
}

/// Inserts the entries that a transaction has collected. Called immediately before its commit.
pub(crate) fn insert_pending_entries(
    session: &mut dyn DatabaseSession,
    pending: &mut PendingEffects,
) -> Result<(), StoreError> {
    for part in pending.journal.chunks(ENTRIES_PER_STATEMENT) {
        let rows = vec!["(?, ?, ?, ?)"; part.len()].join(", ");
        let sql = format!(
            "INSERT INTO journal (recorded_at, node_uuid, actor, event) VALUES {rows} RETURNING seq"
        );
        let mut params = Vec::with_capacity(4 * part.len());
        for entry in part {
            params.extend([
                entry.at.bind(),
                entry.node_id.bind(),
                entry.actor.bind(),
                mask_passwords(entry.event.bind()),
            ]);
        }
        let last_seq = &mut pending.last_seq;
        session.query(&sql, &params, &mut |row| {
            *last_seq = (*last_seq).max(decode_field(row, 0, "journal", "seq")?);
            Ok(())
        })?;
    }
    insert_state_entries(session, &pending.journal)?;
    pending.journal.clear();
    Ok(())
}

/// Masks passwords in URLs, which error messages may contain and journal readers must not see.
fn mask_passwords(event: SqlParam<'_>) -> SqlParam<'_> {
    match event {
        SqlParam::Owned(text) => match mask_quoted_urls(&text) {
            Cow::Borrowed(_) => SqlParam::Owned(text),
            Cow::Owned(masked) => SqlParam::Owned(masked),
        },
        SqlParam::Null
        | SqlParam::Int(_)
        | SqlParam::Text(_)
        | SqlParam::Blob(_)
        | SqlParam::Id(_) => event,
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{DatabaseRow, Dialect};
    use crate::value::{CorruptValue, SqlValue};

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    /// A session that executes the journal queries on servers and counts the rows it returns.
    struct FakeJournal {
        rows: Vec<(i64, i64)>,
        rows_returned: usize,
        /// Auto-increment step of the cluster, if there is one.
        increment: Option<i64>,
    }

    struct FakeRow(i64, i64);

    impl DatabaseRow for FakeRow {
        fn value(&self, column: usize) -> Result<SqlValue<'_>, CorruptValue> {
            Ok(SqlValue::Int(if column == 0 { self.0 } else { self.1 }))
        }
    }

    impl DatabaseSession for FakeJournal {
        fn dialect(&self) -> Dialect {
            if self.increment.is_some() { Dialect::MariaDb } else { Dialect::Postgres }
        }

        fn query(
            &mut self,
            sql: &str,
            params: &[SqlParam<'_>],
            each: &mut dyn FnMut(&dyn DatabaseRow) -> Result<(), StoreError>,
        ) -> Result<(), StoreError> {
            let (after, until) = match params {
                [] => return each(&FakeRow(self.increment.unwrap(), 0)),
                [SqlParam::Int(after)] => (*after, i64::MAX),
                [SqlParam::Int(after), SqlParam::Int(until)] => (*after, *until),
                other => panic!("{sql} {}", other.len()),
            };
            let mut found: Vec<_> =
                self.rows.iter().filter(|(seq, at)| *seq > after && *at <= until).collect();
            if sql.ends_with("DESC LIMIT 1") {
                found = found.pop().into_iter().collect();
            }
            self.rows_returned += found.len();
            found.into_iter().try_for_each(|(seq, at)| each(&FakeRow(*seq, *at)))
        }

        fn execute(&mut self, _: &str, _: &[SqlParam<'_>]) -> Result<u64, StoreError> {
            unreachable!("finding the end changes nothing")
        }

        fn run(&mut self, _: &str) -> Result<(), StoreError> {
            unreachable!("finding the end changes nothing")
        }
    }

    /// The cost does not depend on how much was written since the last read.
    #[test]
    fn end_is_found_without_reading_old_entries() {
        let second = 1_000_000;
        // One entry a second for a day, the last one a second ago.
        let rows = (1..=86_400).map(|seq| (seq, NOW.0 - (86_401 - seq) * second)).collect();
        let mut journal = FakeJournal { rows, rows_returned: 0, increment: None };
        for known in [0, 5] {
            journal.rows_returned = 0;
            assert_eq!(
                settled_end(&mut journal, known, NOW, &mut ClusterMembers::default()).unwrap(),
                86_400
            );
            assert!(journal.rows_returned <= 61, "{} rows from {known}", journal.rows_returned);
        }
        // A recent gap still holds back the entries behind it.
        journal.rows.push((86_402, NOW.0));
        assert_eq!(
            settled_end(&mut journal, 5, NOW, &mut ClusterMembers::default()).unwrap(),
            86_400
        );
    }

    /// Rows as `(sequence number, seconds ago)`, and the expected end.
    #[test]
    fn cluster_gaps_hold_back_while_another_member_writes() {
        type Case = (&'static str, Option<i64>, &'static [(i64, i64)], i64);
        let cases: &[Case] = &[
            ("one member alone", Some(3), &[(1, 50), (4, 2), (7, 1), (10, 0)], 10),
            ("another one lately", Some(3), &[(1, 50), (2, 50), (4, 2), (7, 1)], 4),
            ("but that was waited for", Some(3), &[(1, 50), (2, 50), (4, 4), (7, 3)], 7),
            ("another one before", Some(3), &[(1, 90), (2, 90), (4, 2), (7, 1)], 7),
            ("its number came", Some(3), &[(1, 50), (2, 50), (4, 1), (5, 0)], 5),
            ("a number of its own is missing", Some(3), &[(1, 50), (7, 9)], 1),
            ("and not for ever", Some(3), &[(1, 50), (7, 11)], 7),
            ("no cluster", Some(1), &[(1, 50), (3, 9)], 1),
            ("no MariaDB", None, &[(1, 50), (3, 9), (5, 11)], 1),
            ("no gap", Some(3), &[(1, 2), (2, 1), (3, 0)], 3),
        ];
        for (what, increment, rows, end) in cases {
            let rows = rows.iter().map(|(seq, ago)| (*seq, NOW.0 - ago * 1_000_000)).collect();
            let mut journal = FakeJournal { rows, rows_returned: 0, increment: *increment };
            let mut members = ClusterMembers::default();
            assert_eq!(settled_end(&mut journal, 0, NOW, &mut members).unwrap(), *end, "{what}");
        }
    }

    /// A member that wrote recently stays cached, and its entries are not read again.
    #[test]
    fn burst_of_one_member_does_not_hide_another() {
        let second = 1_000_000;
        let ago = |seconds: i64| NOW.0 - seconds * second;
        let mut rows = vec![(1, ago(50)), (2, ago(20))];
        rows.extend((1..=1_000).map(|number| (1 + 3 * number, ago(10))));
        let mut journal = FakeJournal { rows, rows_returned: 0, increment: Some(3) };
        let mut members = ClusterMembers::default();
        assert_eq!(settled_end(&mut journal, 0, NOW, &mut members).unwrap(), 3_001);
        journal.rows_returned = 0;
        // An entry of the other member may still appear between these two.
        journal.rows.extend([(3_004, NOW.0)]);
        assert_eq!(settled_end(&mut journal, 3_001, NOW, &mut members).unwrap(), 3_001);
        assert_eq!(journal.rows_returned, 1);
        journal.rows.insert(journal.rows.len() - 1, (3_002, NOW.0));
        journal.rows.insert(journal.rows.len() - 1, (3_003, NOW.0));
        assert_eq!(settled_end(&mut journal, 3_001, NOW, &mut members).unwrap(), 3_004);
        // A cluster of another size has another increment.
        journal.increment = Some(2);
        journal.rows.push((3_006, NOW.0));
        assert_eq!(settled_end(&mut journal, 3_004, NOW, &mut members).unwrap(), 3_004);
        assert_eq!(members.increment, 2);
    }

    /// Concurrent results are merged, or reset so that they are queried again.
    #[test]
    fn concurrent_refreshes_merge_or_reset() {
        let members = |known: &ClusterMembers, increment, last: &[(i64, i64)]| ClusterMembers {
            increment,
            last_seen: last.iter().map(|(remainder, at)| (*remainder, Timestamp(*at))).collect(),
            ..known.clone()
        };
        let mut known = ClusterMembers::default();
        let (first, second) = (members(&known, 3, &[(1, 5)]), members(&known, 0, &[]));
        known.merge(second);
        known.merge(first);
        assert_eq!(known.increment, 0);
        let (first, second) =
            (members(&known, 3, &[(1, 5)]), members(&known, 3, &[(1, 4), (2, 7)]));
        known.merge(first);
        known.merge(second);
        assert_eq!(known, members(&known, 3, &[(1, 5), (2, 7)]));
        let other = members(&known, 2, &[(0, 9)]);
        known.merge(other.clone());
        assert_eq!(known, members(&known, 2, &[(0, 9)]));
        known.merge(members(&other, 5, &[(0, 9)]));
        assert_eq!(known, members(&known, 0, &[]));
    }
}
