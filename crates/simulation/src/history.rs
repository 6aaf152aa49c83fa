// SPDX-License-Identifier: Apache-2.0
//! The history of the nodes, read from the database after each commit, and the rules that it must follow.
//!
//! The order of the commits is a total order of all changes. Results of the API are linearizable if each
//! read returns a version that was current between the request and its response, and each write is one
//! version within that time.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use lifecycle::{StateClass, state_class};
use node_model::{NodeId, ProvisionState};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use uuid::Uuid;

/// The versions of all nodes.
pub(crate) struct History {
    database: Connection,
    /// Incremented by each commit and by each request and response of a client.
    position: u64,
    /// Whether the session of each process lasts.
    sessions: BTreeMap<String, bool>,
    pub(crate) nodes: BTreeMap<NodeId, Vec<NodeVersion>>,
}

/// A node after a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeVersion {
    /// When this version became current.
    pub(crate) since: u64,
    pub(crate) state: ProvisionState,
    /// The value that clients write.
    pub(crate) value: Option<i64>,
    pub(crate) power: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) lease: LeaseRow,
    pub(crate) job: Option<Uuid>,
    has_wait: bool,
    is_due: bool,
    /// Whether a client's request for this change is known.
    pub(crate) is_matched: bool,
}

/// Who may work on a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LeaseRow {
    pub(crate) reservation: Option<String>,
    run: Option<String>,
    pub(crate) token: i64,
}

impl LeaseRow {
    pub(crate) fn is_held_by(&self, host: &str, run: Uuid) -> bool {
        self.reservation.as_deref() == Some(host) && self.run.as_deref() == Some(&*run.to_string())
    }
}

/// A change of a node that `observe` found.
pub(crate) struct VersionChange {
    pub(crate) node: NodeId,
    pub(crate) before: Option<NodeVersion>,
    pub(crate) after: NodeVersion,
}

const SELECT: &str = "SELECT uuid, provision_state, extra, power_state, last_error, reservation, lease_run, \
     lease_token, work, wait, due_at FROM nodes ORDER BY id";

impl History {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .context("cannot open the database of the simulation")?;
        Ok(Self { database, position: 0, sessions: BTreeMap::new(), nodes: BTreeMap::new() })
    }

    /// A new position after all earlier events.
    pub(crate) fn next_position(&mut self) -> u64 {
        self.position += 1;
        self.position
    }

    /// Who may work on a node now.
    pub(crate) fn lease(&self, node: NodeId) -> LeaseRow {
        self.current(node).map(|version| version.lease.clone()).unwrap_or_default()
    }

    pub(crate) fn current(&self, node: NodeId) -> Option<&NodeVersion> {
        self.nodes.get(&node)?.last()
    }

    /// Reads the nodes after a commit. Returns what has changed.
    pub(crate) fn observe(&mut self) -> Result<Vec<VersionChange>> {
        let since = self.next_position();
        let mut statement = self.database.prepare_cached(SELECT)?;
        let mut rows = statement.query([])?;
        let mut changes = Vec::new();
        while let Some(row) = rows.next()? {
            let node: String = row.get(0)?;
            let node: NodeId = node.parse().ok().context("a node has an invalid id")?;
            let state: String = row.get(1)?;
            let state = state.parse().ok().with_context(|| format!("unknown state {state}"))?;
            let extra: Option<String> = row.get(2)?;
            let work: Option<String> = row.get(8)?;
            let json = |text: Option<String>| -> Value {
                text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
            };
            let wait: Option<String> = row.get(9)?;
            let due: Option<i64> = row.get(10)?;
            let version = NodeVersion {
                since,
                state,
                value: json(extra)["value"].as_i64(),
                power: row.get(3)?,
                last_error: row.get(4)?,
                lease: LeaseRow { reservation: row.get(5)?, run: row.get(6)?, token: row.get(7)? },
                job: json(work)["id"].as_str().and_then(|id| id.parse().ok()),
                has_wait: wait.is_some(),
                is_due: due.is_some(),
                is_matched: false,
            };
            let versions = self.nodes.entry(node).or_default();
            let before = versions.last().cloned();
            let is_changed = before.as_ref().is_none_or(|before| !before.is_same(&version));
            if is_changed {
                versions.push(version.clone());
                changes.push(VersionChange { node, before, after: version });
            }
        }
        Ok(changes)
    }

    /// The processes whose sessions began or ended with the last commit, and whether they last.
    pub(crate) fn observe_sessions(&mut self) -> Result<Vec<(String, bool)>> {
        let sql = "SELECT hostname, online FROM conductors ORDER BY hostname";
        let mut statement = self.database.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? != 0)))?;
        let mut changes = Vec::new();
        for row in rows {
            let (host, lasts): (String, bool) = row?;
            if self.sessions.insert(host.clone(), lasts) != Some(lasts) {
                changes.push((host, lasts));
            }
        }
        Ok(changes)
    }

    /// Whether a read between the two positions may have returned this state and value.
    pub(crate) fn was_current(
        &self,
        node: NodeId,
        (from, until): (u64, u64),
        state: &str,
        value: Option<i64>,
    ) -> bool {
        let Some(versions) = self.nodes.get(&node) else { return false };
        versions.iter().enumerate().any(|(index, version)| {
            let ends = versions.get(index + 1).map_or(u64::MAX, |next| next.since);
            version.since <= until
                && ends >= from
                && version.state.as_str() == state
                && version.value == value
        })
    }

    /// The positions at which the value of a node became `value`.
    pub(crate) fn writes_of(&self, node: NodeId, value: i64) -> Vec<u64> {
        let versions = self.nodes.get(&node).map_or(&[][..], Vec::as_slice);
        let mut before = None;
        let mut found = Vec::new();
        for version in versions {
            if version.value == Some(value) && before != version.value {
                found.push(version.since);
            }
            before = version.value;
        }
        found
    }

    /// Finds a change that a request for `verb` made between the two positions, and marks it, so that no
    /// other request counts it.
    pub(crate) fn match_start(
        &mut self,
        node: NodeId,
        (from, until): (u64, u64),
        verb: &str,
    ) -> bool {
        let Some(versions) = self.nodes.get_mut(&node) else { return false };
        for index in 1..versions.len() {
            let before = versions[index - 1].state;
            let version = &mut versions[index];
            if version.since < from || version.since > until || version.is_matched {
                continue;
            }
            if starts_with(verb, before, version.state) {
                version.is_matched = true;
                return true;
            }
        }
        false
    }

    /// The changes by requests that no known request explains: their number per verb is returned.
    pub(crate) fn unmatched_starts(&self, node: NodeId) -> Vec<(ProvisionState, ProvisionState)> {
        let versions = self.nodes.get(&node).map_or(&[][..], Vec::as_slice);
        let pairs = versions.windows(2).filter(|pair| !pair[1].is_matched);
        let pairs = pairs.map(|pair| (pair[0].state, pair[1].state));
        pairs.filter(|(before, after)| before != after && is_at_rest(*before)).collect()
    }
}

impl NodeVersion {
    fn is_same(&self, other: &Self) -> bool {
        let comparable = |version: &Self| Self { since: 0, is_matched: false, ..version.clone() };
        comparable(self) == comparable(other)
    }
}

/// Whether a user's request is needed to leave the state.
pub(crate) fn is_at_rest(state: ProvisionState) -> bool {
    matches!(state_class(state), StateClass::Stable | StateClass::Failed)
}

/// Whether a request for `verb` leads from one state to the other.
pub(crate) fn starts_with(verb: &str, before: ProvisionState, after: ProvisionState) -> bool {
    if !is_at_rest(before) || before == after {
        return false;
    }
    match verb {
        "manage" => matches!(after, ProvisionState::Verifying | ProvisionState::Manageable),
        "provide" => after == ProvisionState::Cleaning,
        "inspect" => after == ProvisionState::Inspecting,
        "active" | "rebuild" => after == ProvisionState::Deploying,
        "deleted" => after == ProvisionState::Deleting,
        _ => false,
    }
}

impl VersionChange {
    /// The violated rules.
    pub(crate) fn problems(&self, number: usize) -> Vec<String> {
        let mut problems = Vec::new();
        let after = &self.after;
        let Some(before) = &self.before else { return problems };
        if after.lease.token < before.lease.token {
            problems.push(format!("the fencing token of node {number} decreased"));
        }
        if before.state != after.state {
            let has_failed = state_class(after.state) == StateClass::Failed
                && state_class(before.state) != StateClass::Failed;
            if has_failed && after.last_error.is_none() {
                problems.push(format!("node {number} is in '{}' without an error", after.state));
            }
        }
        let is_unfinished =
            matches!(state_class(after.state), StateClass::Working | StateClass::Waiting);
        let is_free = after.lease.reservation.is_none();
        if is_unfinished && is_free && !after.has_wait && !after.is_due {
            problems.push(format!("node {number} waits in '{}' without a reason", after.state));
        }
        problems
    }
}
