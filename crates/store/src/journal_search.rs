// SPDX-License-Identifier: Apache-2.0
//! Journal search, and the durations of jobs.
//!
//! The journal is indexed only by sequence number and by node. A search therefore covers a window of
//! a fixed number of entries, latest first: it costs the same in a journal of a million entries as
//! in one of a thousand, and clients continue from where it ended. State changes are also stored in
//! `state_entries`, from which job durations are computed.

use node_model::{JournalEntry, JournalEvent, JournalRow, NodeId, Timestamp};

use crate::engine::DatabaseSession;
use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::reader::{StoreReader, decode_field};
use crate::value::{ColumnType as _, SqlParam};

const TABLE: &str = "journal";
const COLUMNS: &str = "SELECT seq, recorded_at, node_uuid, actor, event FROM journal";

/// Rows per INSERT statement.
const ROWS_PER_INSERT: usize = 100;

/// How many of the latest journal entries the backfill reads.
const BACKFILL_ENTRIES: i64 = 200_000;

/// Conditions of a journal search. Unset conditions match every entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalSearch {
    /// Entries of this node, which may be deleted.
    pub node: Option<NodeId>,
    /// Entries of nodes owned or leased by this project.
    pub project: Option<String>,
    /// Event kinds as stored, such as `requested`.
    pub kinds: Vec<String>,
    /// Substring of the actor: a user name, a request id or an address.
    pub actor: Option<String>,
    /// A second substring of the actor, usually the request id.
    pub request: Option<String>,
    /// Substring of the event.
    pub text: Option<String>,
}

/// A state change of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateEntry {
    /// The node.
    pub node: NodeId,
    /// When it changed.
    pub at: Timestamp,
    /// The state before.
    pub from: String,
    /// The state after.
    pub to: String,
}

impl StoreReader<'_> {
    /// The start of the window of `count` entries that ends before `before`: its lowest sequence number
    /// and the time of that entry. Returns `None` if there are no earlier entries.
    pub fn journal_window(
        &mut self,
        node: Option<NodeId>,
        before: i64,
        count: u32,
    ) -> Result<Option<(i64, Timestamp)>, StoreError> {
        let dialect = self.session.dialect();
        let sql = "SELECT seq, recorded_at FROM journal".to_owned();
        let mut window = SqlBuilder::new(dialect, sql);
        window.equals("node_uuid", node.map(|node| SqlParam::id(node.0)));
        window.and("seq < ?").params.push(SqlParam::Int(before));
        window.sql.push_str(" ORDER BY seq DESC LIMIT ?");
        window.params.push(SqlParam::Int(i64::from(count)));
        let mut lowest = None;
        self.session.query(&window.sql, &window.params, &mut |row| {
            lowest = Some((
                decode_field(row, 0, TABLE, "seq")?,
                decode_field(row, 1, TABLE, "recorded_at")?,
            ));
            Ok(())
        })?;
        Ok(lowest)
    }

    /// The matching entries with sequence numbers from `first` up to but excluding `before`, latest
    /// first, at most `limit`.
    pub fn search_journal(
        &mut self,
        search: &JournalSearch,
        first: i64,
        before: i64,
        limit: u32,
    ) -> Result<Vec<JournalRow>, StoreError> {
        let mut found = SqlBuilder::new(self.session.dialect(), COLUMNS.to_owned());
        found.equals("node_uuid", search.node.map(|node| SqlParam::id(node.0)));
        if let Some(project) = &search.project {
            found.and("node_uuid IN (SELECT uuid FROM nodes WHERE owner = ? OR lessee = ?)");
            found.params.extend([SqlParam::Text(project), SqlParam::Text(project)]);
        }
        found.and("seq >= ?").params.push(SqlParam::Int(first));
        found.and("seq < ?").params.push(SqlParam::Int(before));
        if !search.kinds.is_empty() {
            // `kind` is the first member of the stored JSON.
            let any = vec!["event LIKE ?"; search.kinds.len()].join(" OR ");
            found.and(&format!("({any})"));
            let starts = search.kinds.iter().map(|kind| format!("{{\"kind\":\"{kind}\"%"));
            found.params.extend(starts.map(SqlParam::Owned));
        }
        found.contains_ignoring_case("actor", search.actor.as_deref());
        found.contains_ignoring_case("actor", search.request.as_deref());
        found.contains_ignoring_case("event", search.text.as_deref());
        found.sql.push_str(" ORDER BY seq DESC LIMIT ?");
        found.params.push(SqlParam::Int(i64::from(limit)));
        self.query_journal(&found.sql, &found.params)
    }

    /// The first sequence number recorded at or after `time`, found by binary search. Entries of
    /// different processes are ordered by time only approximately, so callers must compare the times of
    /// entries near this number.
    pub fn journal_seq_at(&mut self, time: Timestamp) -> Result<i64, StoreError> {
        let end = |sql: &str, reader: &mut Self| -> Result<Option<i64>, StoreError> {
            Ok(reader.query_column::<i64>(sql, &[], TABLE, "seq")?.first().copied())
        };
        let Some(mut low) = end("SELECT seq FROM journal ORDER BY seq LIMIT 1", self)? else {
            return Ok(0);
        };
        let last = end("SELECT seq FROM journal ORDER BY seq DESC LIMIT 1", self)?;
        let mut high = last.unwrap_or(low).saturating_add(1);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut next: Option<(i64, Timestamp)> = None;
            self.session.query(
                "SELECT seq, recorded_at FROM journal WHERE seq >= ? ORDER BY seq LIMIT 1",
                &[SqlParam::Int(middle)],
                &mut |row| {
                    let at = decode_field(row, 1, TABLE, "recorded_at")?;
                    next = Some((decode_field(row, 0, TABLE, "seq")?, at));
                    Ok(())
                },
            )?;
            match next {
                Some((seq, at)) if at < time => low = seq + 1,
                Some(_) | None => high = middle,
            }
        }
        Ok(low)
    }

    /// The latest `limit` state changes, oldest first.
    pub fn state_entries(&mut self, limit: u32) -> Result<Vec<StateEntry>, StoreError> {
        const TABLE: &str = "state_entries";
        let mut entries = Vec::new();
        self.session.query(
            "SELECT recorded_at, node_uuid, from_state, to_state FROM state_entries
             ORDER BY id DESC LIMIT ?",
            &[SqlParam::Int(i64::from(limit))],
            &mut |row| {
                entries.push(StateEntry {
                    at: decode_field(row, 0, TABLE, "recorded_at")?,
                    node: decode_field(row, 1, TABLE, "node_uuid")?,
                    from: decode_field(row, 2, TABLE, "from_state")?,
                    to: decode_field(row, 3, TABLE, "to_state")?,
                });
                Ok(())
            },
        )?;
        entries.reverse();
        Ok(entries)
    }
}

/// Copies the state changes among `entries` to `state_entries`.
pub(crate) fn insert_state_entries(
    session: &mut dyn DatabaseSession,
    entries: &[JournalEntry],
) -> Result<(), StoreError> {
    let entered: Vec<(&JournalEntry, &str, &str)> = entries
        .iter()
        .filter_map(|entry| {
            let JournalEvent::StateChanged { from, to, .. } = &entry.event else { return None };
            Some((entry, from.as_str(), to.as_str()))
        })
        .collect();
    for part in entered.chunks(ROWS_PER_INSERT) {
        let rows = vec!["(?, ?, ?, ?)"; part.len()].join(", ");
        let sql = format!(
            "INSERT INTO state_entries (recorded_at, node_uuid, from_state, to_state) VALUES {rows}"
        );
        let mut params = Vec::with_capacity(4 * part.len());
        for (entry, from, to) in part {
            params.extend([entry.at.bind(), entry.node_id.bind()]);
            params.extend([SqlParam::Text(from), SqlParam::Text(to)]);
        }
        session.execute(&sql, &params)?;
    }
    Ok(())
}

/// Fills `state_entries` from the latest part of the journal, after deleting what an interrupted
/// attempt inserted. Part of migration 5: column and kind have the names of that version.
pub(crate) fn backfill_state_entries(session: &mut dyn DatabaseSession) -> Result<(), StoreError> {
    session.run("DELETE FROM state_entries")?;
    let mut entries = Vec::new();
    session.query(
        "SELECT recorded_at, node_uuid, actor, what FROM
         (SELECT seq, recorded_at, node_uuid, actor, what FROM journal ORDER BY seq DESC LIMIT ?)
         AS latest WHERE what LIKE ? ORDER BY seq",
        &[SqlParam::Int(BACKFILL_ENTRIES), SqlParam::Text("{\"kind\":\"entered\"%")],
        &mut |row| {
            entries.push(JournalEntry {
                at: decode_field(row, 0, TABLE, "recorded_at")?,
                node_id: decode_field(row, 1, TABLE, "node_uuid")?,
                actor: decode_field(row, 2, TABLE, "actor")?,
                event: decode_field(row, 3, TABLE, "what")?,
            });
            Ok(())
        },
    )?;
    insert_state_entries(session, &entries)
}
