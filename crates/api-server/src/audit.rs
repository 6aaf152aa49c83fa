// SPDX-License-Identifier: Apache-2.0
//! Who did what when: the journal of all nodes, searched from the latest entry back.
//!
//! A request looks through so many entries and no more. What it does not come to is looked through
//! by the next one: the answer says where that begins, and how far back this one went.

use std::collections::BTreeMap;

use ironic_wire::WireError;
use node_model::{Node, NodeId, Recorded, Timestamp};
use serde_json::{Value, json};
use store::{Columns, JournalSearch, NodeColumn, NodeFilter, Query, Reader};

use crate::call::Call;
use crate::event_stream::{entry_json, find_node, page_length, sequence};
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

/// How many entries a request looks through, and how many of them at a time.
const LOOKED_THROUGH: u32 = 40_000;
const WINDOW: u32 = 4_000;
/// How many are found at a time, when nothing is said.
const USUAL_PAGE: u32 = 100;
/// Longer texts are in nothing.
const LONGEST: usize = 200;
/// Processes write side by side: an entry may be this much later than one with a higher number.
const OUT_OF_ORDER: i64 = 120 * 1_000_000;

const KINDS: &[&str] = &[
    "enrolled",
    "changed",
    "removed",
    "asked",
    "entered",
    "did",
    "failed",
    "bmc_calls",
    "waiting",
    "power",
    "maintenance",
    "noted",
    "seen",
    "heard",
];

const QUERY: &[&str] = &["node", "actor", "kind", "text", "trace", "from", "to", "before", "limit"];

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/ferrite/journal",
    "Search what happened to all nodes, the latest first",
    handler!(journal),
)
.since(UNVERSIONED)
.query(QUERY)];

/// What is searched.
struct Wanted {
    search: JournalSearch,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    before: Option<i64>,
    limit: u32,
}

/// What a search came to.
#[derive(Default)]
struct Found {
    entries: Vec<Recorded>,
    /// Where the next one begins, if there is more to look through.
    next: Option<i64>,
    /// How far back this one went.
    reached: Option<Timestamp>,
    names: BTreeMap<NodeId, String>,
}

async fn journal(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, QUERY)?;
    let node = match call.query_value("node") {
        None => None,
        Some(text) => Some(find_node(&call, text).await?),
    };
    let wanted = Wanted {
        search: JournalSearch {
            node,
            kinds: kinds(&call)?,
            actor: text(&call, "actor")?,
            trace: text(&call, "trace")?,
            text: text(&call, "text")?,
        },
        from: moment(&call, "from")?,
        to: moment(&call, "to")?,
        before: call.query_value("before").map(|text| sequence("before", text)).transpose()?,
        limit: page_length(&call, "limit")?.unwrap_or(USUAL_PAGE),
    };
    let found = call.app.store.scan(move |reader| searched(reader, &wanted)).await?;
    let entries: Vec<Value> = found
        .entries
        .iter()
        .map(|recorded| {
            let mut entry = entry_json(recorded);
            entry["node_name"] = json!(found.names.get(&recorded.entry.node_id));
            entry
        })
        .collect();
    let body = json!({
        "entries": entries,
        "next": found.next,
        "reached": found.reached.map(|moment| moment.to_string()),
    });
    Ok(Reply::ok(body.to_string().into_bytes()))
}

fn searched(reader: &mut Reader<'_>, wanted: &Wanted) -> Result<Found, Refusal> {
    let mut found = Found::default();
    let mut before = wanted.before.unwrap_or(i64::MAX);
    if let Some(to) = wanted.to {
        let end = Timestamp(to.0.saturating_add(OUT_OF_ORDER));
        before = before.min(reader.journal_number_at(end)?);
    }
    let first = match wanted.from {
        None => 0,
        Some(from) => reader.journal_number_at(Timestamp(from.0.saturating_sub(OUT_OF_ORDER)))?,
    };
    let fits = |recorded: &Recorded| {
        let at = recorded.entry.at;
        wanted.from.is_none_or(|from| at >= from) && wanted.to.is_none_or(|to| at < to)
    };
    for _ in 0..LOOKED_THROUGH / WINDOW {
        let Some((start, reached)) = reader.journal_window(wanted.search.node, before, WINDOW)?
        else {
            found.next = None;
            break;
        };
        let start = start.max(first);
        if start >= before {
            found.next = None;
            break;
        }
        let room = wanted.limit - u32::try_from(found.entries.len()).unwrap_or(wanted.limit);
        let part = reader.search_journal(&wanted.search, start, before, room)?;
        let is_full = part.len() >= usize::try_from(room).unwrap_or(usize::MAX);
        before = part.last().filter(|_| is_full).map_or(start, |last| last.seq);
        found.reached =
            part.last().filter(|_| is_full).map_or(Some(reached), |it| Some(it.entry.at));
        found.entries.extend(part.into_iter().filter(&fits));
        found.next = Some(before).filter(|before| *before > first);
        if is_full || found.next.is_none() {
            break;
        }
    }
    let mut ids: Vec<NodeId> = found.entries.iter().map(|it| it.entry.node_id).collect();
    ids.sort_unstable();
    ids.dedup();
    found.names = names(reader, ids)?;
    Ok(found)
}

/// What nodes are called, as far as they exist and have a name.
pub(crate) fn names(
    reader: &mut Reader<'_>,
    ids: Vec<NodeId>,
) -> Result<BTreeMap<NodeId, String>, Refusal> {
    let mut names = BTreeMap::new();
    if ids.is_empty() {
        return Ok(names);
    }
    let filter = NodeFilter { ids: Some(ids), ..NodeFilter::default() };
    let select = Columns::<Node>::of(&[NodeColumn::Uuid, NodeColumn::Name]);
    reader.list(&Query { filter, page: store::Page::default(), select }, |node| {
        names.extend(node.name.clone().map(|name| (node.id, name)));
    })?;
    Ok(names)
}

fn kinds(call: &Call) -> Result<Vec<String>, WireError> {
    let Some(text) = call.query_value("kind") else { return Ok(Vec::new()) };
    let known = |kind: &str| KINDS.contains(&kind).then(|| kind.to_owned());
    let kinds: Option<Vec<String>> = text.split(',').map(|kind| known(kind.trim())).collect();
    match kinds {
        Some(kinds) if kinds.len() <= KINDS.len() => Ok(kinds),
        Some(_) | None => {
            let problem = format!("it must be some of {}", KINDS.join(", "));
            Err(WireError::invalid_field("kind", &problem))
        }
    }
}

fn text(call: &Call, name: &str) -> Result<Option<String>, WireError> {
    match call.query_value(name).map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) if text.chars().count() <= LONGEST => Ok(Some(text.to_owned())),
        Some(_) => {
            let problem = format!("it must not be longer than {LONGEST} characters");
            Err(WireError::invalid_field(name, &problem))
        }
    }
}

fn moment(call: &Call, name: &str) -> Result<Option<Timestamp>, WireError> {
    let Some(text) = call.query_value(name) else { return Ok(None) };
    let parsed: Result<Timestamp, _> = text.trim().parse();
    parsed.map(Some).map_err(|error| WireError::invalid_field(name, &error.to_string()))
}
