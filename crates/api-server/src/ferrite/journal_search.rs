// SPDX-License-Identifier: Apache-2.0
//! Search in the journal of all nodes, latest entries first.
//!
//! One request scans a limited number of entries. Its response contains where the next request
//! continues, and the time of the oldest entry scanned.

use std::collections::BTreeMap;

use ironic_wire::WireError;
use node_model::{JournalEvent, JournalRow, Node, NodeId, Timestamp};
use serde_json::{Value, json};
use store::{Columns, JournalSearch, NodeColumn, NodeFilter, ResourceQuery, StoreReader};

use super::events::{TIMELINE, entry_json, find_journal_node, parse_limit, parse_sequence};
use super::visible_nodes::allowed_nodes;
use crate::handler;
use crate::server::access::CallerAccess;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

/// Maximum number of entries scanned by one request, and by one query.
const MAX_SCANNED: u32 = 40_000;
const WINDOW: u32 = 4_000;
/// Default number of results.
const DEFAULT_LIMIT: u32 = 100;
/// Maximum length of a search text in characters.
const MAX_TEXT_CHARS: usize = 200;
/// Processes write concurrently: an entry may be this many microseconds later than one with a higher
/// sequence number.
const MAX_CLOCK_SKEW: i64 = 120 * 1_000_000;

const QUERY: &[&str] = &["node", "actor", "kind", "text", "trace", "from", "to", "before", "limit"];

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/journal",
    "Search the journal of all nodes, latest entries first",
    handler!(journal),
)
.list("ferrite:journal:list_all", "ferrite:journal:list")
.since(UNVERSIONED)
.query(QUERY)];

/// The parameters of a search.
struct JournalSearchQuery {
    search: JournalSearch,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    before: Option<i64>,
    limit: u32,
}

/// The result of a search.
#[derive(Default)]
struct JournalSearchResult {
    entries: Vec<JournalRow>,
    /// Where the next request continues; `None` at the end.
    next: Option<i64>,
    /// Time of the oldest entry scanned.
    reached: Option<Timestamp>,
    names: BTreeMap<NodeId, String>,
}

async fn journal(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(QUERY)?;
    let project = request.access.list_project(None)?;
    let node = match request.query_value("node") {
        None => None,
        Some(text) => Some(find_journal_node(&request, text).await?),
    };
    let query = JournalSearchQuery {
        search: JournalSearch {
            node,
            project,
            kinds: parse_kinds(&request)?,
            actor: parse_text(&request, "actor")?,
            request: parse_text(&request, "trace")?,
            text: parse_text(&request, "text")?,
        },
        from: parse_timestamp(&request, "from")?,
        to: parse_timestamp(&request, "to")?,
        before: request
            .query_value("before")
            .map(|text| parse_sequence("before", text))
            .transpose()?,
        limit: parse_limit(&request, "limit")?.unwrap_or(DEFAULT_LIMIT),
    };
    let access = request.access.clone();
    let result =
        request.app.store.scan(move |reader| search_journal(reader, &query, &access)).await?;
    let entries: Vec<Value> = result
        .entries
        .iter()
        .map(|recorded| {
            let mut entry = entry_json(recorded);
            entry["node_name"] = json!(result.names.get(&recorded.entry.node_id));
            entry
        })
        .collect();
    let body = json!({
        "entries": entries,
        "next": result.next,
        "reached": result.reached.map(|at| at.to_string()),
    });
    Ok(ApiResponse::ok_value(&body))
}

fn search_journal(
    reader: &mut StoreReader<'_>,
    query: &JournalSearchQuery,
    access: &CallerAccess,
) -> Result<JournalSearchResult, ApiError> {
    let mut result = JournalSearchResult::default();
    let mut before = query.before.unwrap_or(i64::MAX);
    if let Some(to) = query.to {
        let end = Timestamp(to.0.saturating_add(MAX_CLOCK_SKEW));
        before = before.min(reader.journal_seq_at(end)?);
    }
    let first = match query.from {
        None => 0,
        Some(from) => reader.journal_seq_at(Timestamp(from.0.saturating_sub(MAX_CLOCK_SKEW)))?,
    };
    let in_range = |recorded: &JournalRow| {
        let at = recorded.entry.at;
        query.from.is_none_or(|from| at >= from) && query.to.is_none_or(|to| at < to)
    };
    for _ in 0..MAX_SCANNED / WINDOW {
        let Some((start, reached)) = reader.journal_window(query.search.node, before, WINDOW)?
        else {
            result.next = None;
            break;
        };
        let start = start.max(first);
        if start >= before {
            result.next = None;
            break;
        }
        let remaining = query.limit - u32::try_from(result.entries.len()).unwrap_or(query.limit);
        let part = reader.search_journal(&query.search, start, before, remaining)?;
        let is_full = part.len() >= usize::try_from(remaining).unwrap_or(usize::MAX);
        before = part.last().filter(|_| is_full).map_or(start, |last| last.seq);
        result.reached =
            part.last().filter(|_| is_full).map_or(Some(reached), |last| Some(last.entry.at));
        result.entries.extend(part.into_iter().filter(&in_range));
        result.next = Some(before).filter(|before| *before > first);
        if is_full || result.next.is_none() {
            break;
        }
    }
    if query.search.project.is_some() {
        let ids = result.entries.iter().map(|row| row.entry.node_id).collect();
        let allowed = allowed_nodes(reader, access, TIMELINE, ids)?;
        result.entries.retain(|row| allowed.contains(&row.entry.node_id));
    }
    let mut ids: Vec<NodeId> = result.entries.iter().map(|row| row.entry.node_id).collect();
    ids.sort_unstable();
    ids.dedup();
    result.names = node_names(reader, ids)?;
    Ok(result)
}

/// The names of nodes that exist and have one.
pub(crate) fn node_names(
    reader: &mut StoreReader<'_>,
    ids: Vec<NodeId>,
) -> Result<BTreeMap<NodeId, String>, ApiError> {
    let mut names = BTreeMap::new();
    if ids.is_empty() {
        return Ok(names);
    }
    let filter = NodeFilter { ids: Some(ids), ..NodeFilter::default() };
    let select = Columns::<Node>::only(&[NodeColumn::Uuid, NodeColumn::Name]);
    reader.list(
        &ResourceQuery { filter, page: store::ResourcePage::default(), select },
        |node| {
            names.extend(node.name.clone().map(|name| (node.id, name)));
        },
    )?;
    Ok(names)
}

fn parse_kinds(request: &ApiRequest) -> Result<Vec<String>, WireError> {
    let Some(text) = request.query_value("kind") else { return Ok(Vec::new()) };
    let parse = |kind: &str| JournalEvent::KINDS.contains(&kind).then(|| kind.to_owned());
    let kinds: Option<Vec<String>> = text.split(',').map(|kind| parse(kind.trim())).collect();
    match kinds {
        Some(kinds) if kinds.len() <= JournalEvent::KINDS.len() => Ok(kinds),
        Some(_) | None => {
            let problem = format!("it must be a list of {}", JournalEvent::KINDS.join(", "));
            Err(WireError::invalid_field("kind", &problem))
        }
    }
}

pub(super) fn parse_text(request: &ApiRequest, name: &str) -> Result<Option<String>, WireError> {
    match request.query_value(name).map(str::trim) {
        None | Some("") => Ok(None),
        Some(text) if text.chars().count() <= MAX_TEXT_CHARS => Ok(Some(text.to_owned())),
        Some(_) => {
            let problem = format!("it must not be longer than {MAX_TEXT_CHARS} characters");
            Err(WireError::invalid_field(name, &problem))
        }
    }
}

pub(super) fn parse_timestamp(
    request: &ApiRequest,
    name: &str,
) -> Result<Option<Timestamp>, WireError> {
    let Some(text) = request.query_value(name) else { return Ok(None) };
    let parsed: Result<Timestamp, _> = text.trim().parse();
    parsed.map(Some).map_err(|error| WireError::invalid_field(name, &error.to_string()))
}
