// SPDX-License-Identifier: Apache-2.0
//! The journal's table: appended to within the transaction it tells of, read in order.
//!
//! Entries get their numbers when they are inserted and are seen when they are committed. With one
//! writer, as in SQLite, that is the same order. On a server two transactions may commit the other
//! way round, and someone who follows the journal would go past the lower number before it is
//! there. So on servers nothing behind a gap is shown until the gap is filled or has been there for
//! [`HOLD_BACK`]. That is generous: entries are inserted immediately before the commit, so a number
//! is invisible for about one round trip. Gaps that stay belong to transactions that were undone.
//!
//! In a Galera cluster of three, a member takes every third number. The numbers between are waited
//! for only if another member took one within the last minute, and then for
//! [`HOLD_BACK_IN_CLUSTER`]. Who did is remembered from one look at the journal to the next, however
//! much a member writes meanwhile. The age of a gap is told by the clock of whoever wrote behind it: the
//! clocks of the processes must agree to within a second or two.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use node_model::{JournalEntry, NodeId, Recorded, Timestamp, mask_quoted_urls};

use crate::audit::note_states;
use crate::engine::{Dialect, Session};
use crate::error::Error;
use crate::reader::{Reader, field};
use crate::value::{Field, Param};
use crate::writer::{Pending, Writer};

/// How long a gap in the numbers may still be filled by a transaction about to commit.
const HOLD_BACK: Duration = Duration::from_secs(10);

/// The same for a gap between the numbers of one member of a cluster. There always is one, so this
/// is how late everything is shown while more than one member is written to.
const HOLD_BACK_IN_CLUSTER: Duration = Duration::from_secs(3);

/// How old an entry must be for everything before it to be settled without looking. Much longer
/// than [`HOLD_BACK`]: the time in an entry is when it was made, and its transaction may have waited
/// for locks before it took a number.
const LONG_SETTLED: Duration = Duration::from_secs(60);

/// How many entries are forgotten at a time.
const PRUNED_AT_ONCE: i64 = 5_000;

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
        // With one writer there is nothing to hold back.
        let settled =
            if self.session.dialect().locks_rows() { self.journal_end()? } else { i64::MAX };
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
        self.recorded(&sql, &params)
    }

    /// The entries that a query finds which asks for the journal's columns.
    pub(crate) fn recorded(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Recorded>, Error> {
        const TABLE: &str = "journal";
        let mut entries = Vec::new();
        self.session.query(sql, params, &mut |row| {
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

    /// The number after which a node has `count` entries or fewer: whoever reads on from here gets
    /// the latest.
    pub fn journal_tail(&mut self, node: NodeId, count: u32) -> Result<i64, Error> {
        let found: Vec<i64> = self.column(
            "SELECT seq FROM journal WHERE node_uuid = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            &[Param::id(node.0), Param::Int(i64::from(count))],
            "journal",
        )?;
        Ok(found.first().copied().unwrap_or(0))
    }

    /// The nodes that entries after `after` and up to `until` tell of, in no order. None if that
    /// cannot be said: some of these entries are forgotten already, or there are more than `most`.
    pub fn journal_nodes(
        &mut self,
        after: i64,
        until: i64,
        most: u32,
    ) -> Result<Option<Vec<NodeId>>, Error> {
        let first: Vec<i64> =
            self.column("SELECT seq FROM journal ORDER BY seq LIMIT 1", &[], "journal")?;
        let is_forgotten = first.first().is_some_and(|first| after < first - 1);
        if is_forgotten || until.saturating_sub(after) > i64::from(most) {
            return Ok(None);
        }
        self.column(
            "SELECT DISTINCT node_uuid FROM journal WHERE seq > ? AND seq <= ?",
            &[Param::Int(after), Param::Int(until)],
            "journal",
        )
        .map(Some)
    }

    /// The number after which new entries appear: whoever reads on from here gets what happens
    /// next, of every process, and nothing that is over.
    pub fn journal_end(&mut self) -> Result<i64, Error> {
        let known = self.shared.settled.load(Ordering::Acquire);
        let now = self.now();
        // After the number: who got there has told before what it saw on the way.
        let mut members = self.members().clone();
        let end = end_after(self.session, known, now, &mut members)?;
        self.members().learn(members);
        if !self.session.dialect().locks_rows() {
            // A write may see here what shares its commit, and may yet be undone.
            return Ok(end);
        }
        // Others may have got further meanwhile; it never goes back.
        Ok(self.shared.settled.fetch_max(end, Ordering::AcqRel).max(end))
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.shared.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer<'_> {
    /// Forgets entries older than `before`, the oldest first and at most five thousand at a time,
    /// so that nobody waits long for the transaction; says how many. Call again until it says none.
    pub fn prune_journal(&mut self, before: Timestamp) -> Result<u64, Error> {
        self.prune("state_entries", "id", before)?;
        self.prune("journal", "seq", before)
    }

    /// Forgets rows of a table by its growing key, as [`Writer::prune_journal`] says.
    fn prune(
        &mut self,
        table: &'static str,
        key: &'static str,
        before: Timestamp,
    ) -> Result<u64, Error> {
        // Where the old ones end is looked up first, so that what is deleted is a plain range of
        // the primary key: MariaDB and PostgreSQL may walk the whole table for anything more.
        let mut last: Option<i64> = None;
        self.session.query(
            &format!(
                "SELECT MAX({key}) FROM (SELECT {key}, recorded_at FROM {table} ORDER BY {key} LIMIT ?)
                 AS oldest WHERE recorded_at < ?"
            ),
            &[Param::Int(PRUNED_AT_ONCE), before.bind()],
            &mut |row| {
                last = field(row, 0, table, key)?;
                Ok(())
            },
        )?;
        let Some(last) = last else { return Ok(0) };
        self.session.execute(
            &format!("DELETE FROM {table} WHERE {key} <= ? AND recorded_at < ?"),
            &[Param::Int(last), before.bind()],
        )
    }
}

/// The number up to which no entry can appear any more, when it is known to be at least `known`.
/// What is read to find it is no older than [`LONG_SETTLED`], however much was written since.
pub(crate) fn end_after(
    session: &mut dyn Session,
    known: i64,
    now: Timestamp,
    members: &mut Members,
) -> Result<i64, Error> {
    let mut end = known;
    if !session.dialect().locks_rows() {
        session.query(
            "SELECT seq FROM journal WHERE seq > ? ORDER BY seq DESC LIMIT 1",
            &[Param::Int(known)],
            &mut |row| {
                end = field(row, 0, "journal", "seq")?;
                Ok(())
            },
        )?;
        return Ok(end);
    }
    // Found by walking back from the newest entry, so what is older is not touched.
    let long_settled = Timestamp(now.0 - micros(LONG_SETTLED));
    end = last_until(session, known, long_settled)?.unwrap_or(end);
    let young = entries_from(session, end)?;
    members.note(&young);
    let mut before = end;
    let has_gap = young.iter().any(|(seq, _)| std::mem::replace(&mut before, *seq) + 1 != *seq);
    if !has_gap {
        return Ok(before);
    }
    members.look(session, long_settled, &young)?;
    for (seq, at) in young {
        let age = Timestamp(now.0 - at.0);
        if members.patience(end, seq, long_settled).is_some_and(|patience| age.0 < micros(patience))
        {
            break;
        }
        end = seq;
    }
    Ok(end)
}

/// The highest number after `known` that was taken until `moment`.
fn last_until(
    session: &mut dyn Session,
    known: i64,
    moment: Timestamp,
) -> Result<Option<i64>, Error> {
    let mut last = None;
    session.query(
        "SELECT seq FROM journal WHERE seq > ? AND recorded_at <= ? ORDER BY seq DESC LIMIT 1",
        &[Param::Int(known), moment.bind()],
        &mut |row| {
            last = Some(field(row, 0, "journal", "seq")?);
            Ok(())
        },
    )?;
    Ok(last)
}

/// The numbers after `after`, and when they were taken.
fn entries_from(session: &mut dyn Session, after: i64) -> Result<Vec<(i64, Timestamp)>, Error> {
    let mut entries = Vec::new();
    session.query(
        "SELECT seq, recorded_at FROM journal WHERE seq > ? ORDER BY seq",
        &[Param::Int(after)],
        &mut |row| {
            let at = field(row, 1, "journal", "recorded_at")?;
            entries.push((field(row, 0, "journal", "seq")?, at));
            Ok(())
        },
    )?;
    Ok(entries)
}

/// Who else takes numbers. In a Galera cluster each member takes every so many-th number, so that
/// there are gaps between the numbers of a member which only the others could fill.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Members {
    /// How far a member's numbers are from each other: one where there is no cluster, zero if that
    /// was not asked yet.
    step: i64,
    /// By the remainder of its numbers, when each member last took one.
    last: BTreeMap<i64, Timestamp>,
    /// How often something was learnt.
    learnt: u64,
}

impl Members {
    /// Keeps what somebody found out who started with what was known here.
    fn learn(&mut self, found: Self) {
        if self.step == found.step {
            for (remainder, at) in found.last {
                self.saw(remainder, at);
            }
        } else if self.learnt == found.learnt {
            self.step = found.step;
            self.last = found.last;
        } else {
            // Somebody else saw numbers meanwhile that are not among those found, or found another
            // step: whoever needs to know looks again.
            self.step = 0;
            self.last.clear();
        }
        self.learnt += 1;
    }

    /// Notes who took these numbers. As long as the step is not known there is nothing to note.
    fn note(&mut self, entries: &[(i64, Timestamp)]) {
        if self.step > 1 {
            for (seq, at) in entries {
                self.saw(seq.rem_euclid(self.step), *at);
            }
        }
    }

    fn saw(&mut self, remainder: i64, at: Timestamp) {
        let last = self.last.entry(remainder).or_insert(at);
        *last = at.max(*last);
    }

    /// Asks for the step. If it is another than before, as when a member joins, what was noted means
    /// nothing any more, and everything since `long_settled` is read again.
    fn look(
        &mut self,
        session: &mut dyn Session,
        long_settled: Timestamp,
        young: &[(i64, Timestamp)],
    ) -> Result<(), Error> {
        let mut step: i64 = 1;
        match session.dialect() {
            Dialect::Sqlite | Dialect::Postgres => {}
            Dialect::MariaDb => {
                session.query("SELECT @@auto_increment_increment", &[], &mut |row| {
                    step = field(row, 0, "journal", "@@auto_increment_increment")?;
                    Ok(())
                })?;
            }
        }
        if step == self.step {
            return Ok(());
        }
        self.step = step;
        self.last.clear();
        if step > 1 {
            let since = last_until(session, 0, long_settled)?;
            let entries = entries_from(session, since.unwrap_or(0))?;
            self.note(&entries);
            self.note(young);
        }
        Ok(())
    }

    /// How long what is between two numbers is waited for; none if nothing can come.
    fn patience(&self, before: i64, seq: i64, long_settled: Timestamp) -> Option<Duration> {
        let missing = seq - before - 1;
        if missing <= 0 {
            return None;
        }
        if self.step <= 1 || missing >= self.step {
            return Some(HOLD_BACK);
        }
        let may_come = |number: i64| {
            let last = self.last.get(&number.rem_euclid(self.step));
            last.is_some_and(|last| *last > long_settled)
        };
        (before + 1..seq).any(may_come).then_some(HOLD_BACK_IN_CLUSTER)
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
                without_passwords(entry.what.bind()),
            ]);
        }
        let last_seq = &mut pending.last_seq;
        session.query(&sql, &params, &mut |row| {
            *last_seq = (*last_seq).max(field(row, 0, "journal", "seq")?);
            Ok(())
        })?;
    }
    note_states(session, &pending.journal)?;
    pending.journal.clear();
    Ok(())
}

/// What happened as it is kept. Whoever may look back need not know the passwords of URLs that an
/// error names.
fn without_passwords(what: Param<'_>) -> Param<'_> {
    match what {
        Param::Owned(text) => match mask_quoted_urls(&text) {
            Cow::Borrowed(_) => Param::Owned(text),
            Cow::Owned(shown) => Param::Owned(shown),
        },
        Param::Null | Param::Int(_) | Param::Text(_) | Param::Blob(_) | Param::Id(_) => what,
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Dialect, Row};
    use crate::value::{Damaged, Value};

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    /// A journal that answers the two statements on servers, and counts the rows it gives out.
    struct Entries {
        rows: Vec<(i64, i64)>,
        given: usize,
        /// How far the numbers of a member of the cluster are from each other, if there is one.
        step: Option<i64>,
    }

    struct Entry(i64, i64);

    impl Row for Entry {
        fn value(&self, column: usize) -> Result<Value<'_>, Damaged> {
            Ok(Value::Int(if column == 0 { self.0 } else { self.1 }))
        }
    }

    impl Session for Entries {
        fn dialect(&self) -> Dialect {
            if self.step.is_some() { Dialect::MariaDb } else { Dialect::Postgres }
        }

        fn query(
            &mut self,
            sql: &str,
            params: &[Param<'_>],
            each: &mut dyn FnMut(&dyn Row) -> Result<(), Error>,
        ) -> Result<(), Error> {
            let (after, until) = match params {
                [] => return each(&Entry(self.step.unwrap(), 0)),
                [Param::Int(after)] => (*after, i64::MAX),
                [Param::Int(after), Param::Int(until)] => (*after, *until),
                other => panic!("{sql} {}", other.len()),
            };
            let mut found: Vec<_> =
                self.rows.iter().filter(|(seq, at)| *seq > after && *at <= until).collect();
            if sql.ends_with("DESC LIMIT 1") {
                found = found.pop().into_iter().collect();
            }
            self.given += found.len();
            found.into_iter().try_for_each(|(seq, at)| each(&Entry(*seq, *at)))
        }

        fn execute(&mut self, _: &str, _: &[Param<'_>]) -> Result<u64, Error> {
            unreachable!("finding the end changes nothing")
        }

        fn run(&mut self, _: &str) -> Result<(), Error> {
            unreachable!("finding the end changes nothing")
        }
    }

    /// Whoever has not looked for long does not pay for everything that was written meanwhile.
    #[test]
    fn the_end_is_found_without_reading_what_is_old() {
        let second = 1_000_000;
        // One entry a second for a day, the last one a second ago.
        let rows = (1..=86_400).map(|seq| (seq, NOW.0 - (86_401 - seq) * second)).collect();
        let mut journal = Entries { rows, given: 0, step: None };
        for known in [0, 5] {
            journal.given = 0;
            assert_eq!(
                end_after(&mut journal, known, NOW, &mut Members::default()).unwrap(),
                86_400
            );
            assert!(journal.given <= 61, "{} rows from {known}", journal.given);
        }
        // A young gap still holds back what is behind it.
        journal.rows.push((86_402, NOW.0));
        assert_eq!(end_after(&mut journal, 5, NOW, &mut Members::default()).unwrap(), 86_400);
    }

    /// Rows as `(number, seconds ago)`, and where the journal ends.
    #[test]
    fn gaps_of_a_cluster_are_waited_for_while_another_member_is_written_to() {
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
        for (what, step, rows, end) in cases {
            let rows = rows.iter().map(|(seq, ago)| (*seq, NOW.0 - ago * 1_000_000)).collect();
            let mut journal = Entries { rows, given: 0, step: *step };
            let mut members = Members::default();
            assert_eq!(end_after(&mut journal, 0, NOW, &mut members).unwrap(), *end, "{what}");
        }
    }

    /// However much one member writes, another that wrote lately is not forgotten, nor read of again.
    #[test]
    fn a_burst_of_one_member_hides_no_other() {
        let second = 1_000_000;
        let ago = |seconds: i64| NOW.0 - seconds * second;
        let mut rows = vec![(1, ago(50)), (2, ago(20))];
        rows.extend((1..=1_000).map(|number| (1 + 3 * number, ago(10))));
        let mut journal = Entries { rows, given: 0, step: Some(3) };
        let mut members = Members::default();
        assert_eq!(end_after(&mut journal, 0, NOW, &mut members).unwrap(), 3_001);
        journal.given = 0;
        // Between these two, one of the other member may come; behind it, everything is there.
        journal.rows.extend([(3_004, NOW.0)]);
        assert_eq!(end_after(&mut journal, 3_001, NOW, &mut members).unwrap(), 3_001);
        assert_eq!(journal.given, 1);
        journal.rows.insert(journal.rows.len() - 1, (3_002, NOW.0));
        journal.rows.insert(journal.rows.len() - 1, (3_003, NOW.0));
        assert_eq!(end_after(&mut journal, 3_001, NOW, &mut members).unwrap(), 3_004);
        // A cluster of another size numbers in other steps.
        journal.step = Some(2);
        journal.rows.push((3_006, NOW.0));
        assert_eq!(end_after(&mut journal, 3_004, NOW, &mut members).unwrap(), 3_004);
        assert_eq!(members.step, 2);
    }

    /// What is found at the same time is put together, or looked for again.
    #[test]
    fn what_several_find_out_is_kept_or_forgotten_but_never_kept_in_part() {
        let found = |known: &Members, step, last: &[(i64, i64)]| Members {
            step,
            last: last.iter().map(|(remainder, at)| (*remainder, Timestamp(*at))).collect(),
            ..known.clone()
        };
        let mut known = Members::default();
        let (first, second) = (found(&known, 3, &[(1, 5)]), found(&known, 0, &[]));
        known.learn(second);
        known.learn(first);
        assert_eq!(known.step, 0);
        let (first, second) = (found(&known, 3, &[(1, 5)]), found(&known, 3, &[(1, 4), (2, 7)]));
        known.learn(first);
        known.learn(second);
        assert_eq!(known, found(&known, 3, &[(1, 5), (2, 7)]));
        let other = found(&known, 2, &[(0, 9)]);
        known.learn(other.clone());
        assert_eq!(known, found(&known, 2, &[(0, 9)]));
        known.learn(found(&other, 5, &[(0, 9)]));
        assert_eq!(known, found(&known, 0, &[]));
    }
}
