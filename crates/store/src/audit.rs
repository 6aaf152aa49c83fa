// SPDX-License-Identifier: Apache-2.0
//! Looking back through the journal: who did what, and how long things took.
//!
//! The journal has no index but its order and the node. So what is searched is always a window of
//! so many entries, the latest first: a search costs the same in a journal of a million entries as
//! in one of a thousand, and whoever wants to see further back asks again from where it ended. When
//! nodes entered states is noted in a table of its own besides: how long jobs take is known from
//! that, however much else happens.

use node_model::{Happening, JournalEntry, NodeId, Recorded, Timestamp};

use crate::engine::Session;
use crate::error::Error;
use crate::query::Where;
use crate::reader::{Reader, field};
use crate::value::{Field as _, Param};

const TABLE: &str = "journal";
const COLUMNS: &str = "SELECT seq, recorded_at, node_uuid, actor, what FROM journal";

/// How many times of entering a state one statement notes.
const NOTED_AT_ONCE: usize = 100;

/// How much of the journal is looked at for them by those who had one before.
const FILLED_FROM: i64 = 200_000;

/// What is looked for in a window of the journal. What is not said fits everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalSearch {
    /// Of this node only: one that is gone still has its entries.
    pub node: Option<NodeId>,
    /// Kinds of happenings, as the journal spells them, such as `asked`.
    pub kinds: Vec<String>,
    /// Somewhere in who did it: a user's name, a request's id, an address.
    pub actor: Option<String>,
    /// The same, and both must be there: who, in the course of which request.
    pub trace: Option<String>,
    /// Somewhere in what happened.
    pub text: Option<String>,
}

/// A time at which a node entered a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which node.
    pub node: NodeId,
    /// When.
    pub at: Timestamp,
    /// From which state.
    pub from: String,
    /// Into which.
    pub to: String,
}

impl Reader<'_> {
    /// Where a window of `count` entries begins that ends before number `before`: its lowest number,
    /// and when that entry was made. None if there is no entry before that.
    pub fn journal_window(
        &mut self,
        node: Option<NodeId>,
        before: i64,
        count: u32,
    ) -> Result<Option<(i64, Timestamp)>, Error> {
        let dialect = self.session.dialect();
        let sql = "SELECT seq, recorded_at FROM journal".to_owned();
        let mut window = Where::new(dialect, sql);
        window.equals("node_uuid", node.map(|node| Param::id(node.0)));
        window.and("seq < ?").params.push(Param::Int(before));
        window.sql.push_str(" ORDER BY seq DESC LIMIT ?");
        window.params.push(Param::Int(i64::from(count)));
        let mut lowest = None;
        self.session.query(&window.sql, &window.params, &mut |row| {
            lowest = Some((field(row, 0, TABLE, "seq")?, field(row, 1, TABLE, "recorded_at")?));
            Ok(())
        })?;
        Ok(lowest)
    }

    /// The entries from number `first` on and before number `before` that fit, the latest first, at
    /// most `limit`.
    pub fn search_journal(
        &mut self,
        search: &JournalSearch,
        first: i64,
        before: i64,
        limit: u32,
    ) -> Result<Vec<Recorded>, Error> {
        let mut found = Where::new(self.session.dialect(), COLUMNS.to_owned());
        found.equals("node_uuid", search.node.map(|node| Param::id(node.0)));
        found.and("seq >= ?").params.push(Param::Int(first));
        found.and("seq < ?").params.push(Param::Int(before));
        if !search.kinds.is_empty() {
            // The kind is the first member of what is kept.
            let any = vec!["what LIKE ?"; search.kinds.len()].join(" OR ");
            found.and(&format!("({any})"));
            let starts = search.kinds.iter().map(|kind| format!("{{\"kind\":\"{kind}\"%"));
            found.params.extend(starts.map(Param::Owned));
        }
        found.contains_text("actor", search.actor.as_deref());
        found.contains_text("actor", search.trace.as_deref());
        found.contains_text("what", search.text.as_deref());
        found.sql.push_str(" ORDER BY seq DESC LIMIT ?");
        found.params.push(Param::Int(i64::from(limit)));
        self.recorded(&found.sql, &found.params)
    }

    /// A number before which nothing was written at or after `moment`, found by halving the journal.
    /// Entries of different processes are in order up to a moment or so; what is near the end of a
    /// search has to be compared by its own time.
    pub fn journal_number_at(&mut self, moment: Timestamp) -> Result<i64, Error> {
        let end = |sql: &str, reader: &mut Self| -> Result<Option<i64>, Error> {
            Ok(reader.column::<i64>(sql, &[], TABLE)?.first().copied())
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
                &[Param::Int(middle)],
                &mut |row| {
                    let at = field(row, 1, TABLE, "recorded_at")?;
                    next = Some((field(row, 0, TABLE, "seq")?, at));
                    Ok(())
                },
            )?;
            match next {
                Some((seq, at)) if at < moment => low = seq + 1,
                Some(_) | None => high = middle,
            }
        }
        Ok(low)
    }

    /// When nodes entered states, oldest first, at most the latest `limit` times.
    pub fn entries_into_states(&mut self, limit: u32) -> Result<Vec<Entry>, Error> {
        const TABLE: &str = "state_entries";
        let mut entries = Vec::new();
        self.session.query(
            "SELECT recorded_at, node_uuid, from_state, to_state FROM state_entries
             ORDER BY id DESC LIMIT ?",
            &[Param::Int(i64::from(limit))],
            &mut |row| {
                entries.push(Entry {
                    at: field(row, 0, TABLE, "recorded_at")?,
                    node: field(row, 1, TABLE, "node_uuid")?,
                    from: field(row, 2, TABLE, "from_state")?,
                    to: field(row, 3, TABLE, "to_state")?,
                });
                Ok(())
            },
        )?;
        entries.reverse();
        Ok(entries)
    }
}

/// Notes those of `entries` that tell of a node's entering a state, where they are found without
/// the rest of the journal.
pub(crate) fn note_states(
    session: &mut dyn Session,
    entries: &[JournalEntry],
) -> Result<(), Error> {
    let entered: Vec<(&JournalEntry, &str, &str)> = entries
        .iter()
        .filter_map(|entry| {
            let Happening::Entered { from, to, .. } = &entry.what else { return None };
            Some((entry, from.as_str(), to.as_str()))
        })
        .collect();
    for part in entered.chunks(NOTED_AT_ONCE) {
        let rows = vec!["(?, ?, ?, ?)"; part.len()].join(", ");
        let sql = format!(
            "INSERT INTO state_entries (recorded_at, node_uuid, from_state, to_state) VALUES {rows}"
        );
        let mut params = Vec::with_capacity(4 * part.len());
        for (entry, from, to) in part {
            params.extend([entry.at.bind(), entry.node_id.bind()]);
            params.extend([Param::Text(from), Param::Text(to)]);
        }
        session.execute(&sql, &params)?;
    }
    Ok(())
}

/// Notes what the latest part of the journal tells, for those who had a journal before. What an
/// earlier attempt noted is forgotten.
pub(crate) fn fill_state_entries(session: &mut dyn Session) -> Result<(), Error> {
    session.run("DELETE FROM state_entries")?;
    let mut entries = Vec::new();
    session.query(
        "SELECT recorded_at, node_uuid, actor, what FROM
         (SELECT seq, recorded_at, node_uuid, actor, what FROM journal ORDER BY seq DESC LIMIT ?)
         AS latest WHERE what LIKE ? ORDER BY seq",
        &[Param::Int(FILLED_FROM), Param::Text("{\"kind\":\"entered\"%")],
        &mut |row| {
            entries.push(JournalEntry {
                at: field(row, 0, TABLE, "recorded_at")?,
                node_id: field(row, 1, TABLE, "node_uuid")?,
                actor: field(row, 2, TABLE, "actor")?,
                what: field(row, 3, TABLE, "what")?,
            });
            Ok(())
        },
    )?;
    note_states(session, &entries)
}
