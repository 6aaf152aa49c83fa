// SPDX-License-Identifier: Apache-2.0
//! Search in the audit log, latest entries first, and its export as JSON lines.

use bytes::Bytes;
use http::HeaderValue;
use ironic_wire::WireError;
use node_model::{AuditEntry, AuditOutcome, Node, Timestamp};
use serde_json::{Value, json};
use store::{AuditFilter, NodeColumn, ResourcePage, ResourceQuery, StoreReader};
use uuid::Uuid;

use super::events::parse_limit;
use super::journal_search::{parse_text, parse_timestamp};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, EventSender, UNVERSIONED};

const PATH: &str = "/v1/ferrite/audit-log";
const QUERY: &[&str] = &[
    "user",
    "project",
    "resource",
    "resource_type",
    "request_id",
    "address",
    "outcome",
    "from",
    "to",
    "limit",
    "marker",
    "format",
];
/// Default number of results.
const DEFAULT_LIMIT: u32 = 100;
/// Entries per query of an export.
const EXPORT_PAGE: u32 = 500;

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::get(PATH, "Search or export the audit log", handler!(search))
        .list("ferrite:audit:list_all", "ferrite:audit:list")
        .since(UNVERSIONED)
        .query(QUERY)];

async fn search(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(QUERY)?;
    let project = request.access.list_project(request.query_value("project"))?;
    let filter = AuditFilter {
        user: parse_text(&request, "user")?,
        project,
        resource_type: parse_text(&request, "resource_type")?,
        resources: parse_text(&request, "resource")?.map(|id| vec![id]),
        request_id: parse_text(&request, "request_id")?,
        address: parse_text(&request, "address")?,
        outcome: parse_outcome(&request)?,
        from: parse_timestamp(&request, "from")?,
        to: parse_timestamp(&request, "to")?,
    };
    match request.query_value("format") {
        None | Some("json") => {}
        Some("jsonl") => return export(&request, filter),
        Some(_) => {
            return Err(WireError::invalid_field("format", "it must be json or jsonl").into());
        }
    }
    let limit = parse_limit(&request, "limit")?.unwrap_or(DEFAULT_LIMIT);
    let marker = request.query_value("marker").map(parse_marker).transpose()?;
    let mut found: Vec<AuditEntry> = request
        .app
        .store
        .scan(move |reader| {
            let page =
                ResourcePage { limit: Some(limit + 1), marker, sort: None, descending: true };
            read_page(reader, filter, page)
        })
        .await?;
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| has_more).map(|entry| entry.id.to_string());
    let entries: Vec<Value> = found.iter().map(entry_json).collect();
    Ok(ApiResponse::ok_value(&json!({"entries": entries, "next": next})))
}

/// Streams all entries up to now, oldest first.
fn export(request: &ApiRequest, filter: AuditFilter) -> Result<ApiResponse, ApiError> {
    if request.query_value("limit").is_some() || request.query_value("marker").is_some() {
        let problem = "it cannot be combined with format=jsonl, which returns all entries";
        return Err(WireError::invalid_field("limit", problem).into());
    }
    let end = filter.to.unwrap_or_else(|| Timestamp(request.now().0.saturating_add(1)));
    let filter = AuditFilter { to: Some(end), ..filter };
    let (response, sender) =
        ApiResponse::streamed(HeaderValue::from_static("application/x-ndjson"));
    let (app, request_id) = (request.app.clone(), request.request_id.clone());
    tokio::spawn(async move {
        if let Err(error) = send_entries(&app.store, filter, &sender).await {
            tracing::warn!(%request_id, %error, "export of the audit log ended early");
        }
    });
    Ok(response)
}

async fn send_entries(
    store: &store::Store,
    filter: AuditFilter,
    sender: &EventSender,
) -> Result<(), ApiError> {
    let mut marker = None;
    loop {
        let filter = filter.clone();
        let page = ResourcePage { limit: Some(EXPORT_PAGE), marker, sort: None, descending: false };
        let entries = store.scan(move |reader| read_page(reader, filter, page)).await?;
        let Some(last) = entries.last() else { return Ok(()) };
        marker = Some(last.id.0);
        let mut lines = Vec::with_capacity(entries.len() * 400);
        for entry in &entries {
            lines.extend_from_slice(entry_json(entry).to_string().as_bytes());
            lines.push(b'\n');
        }
        // Fails if the client has disconnected.
        if sender.send(Bytes::from(lines)).await.is_err() {
            return Ok(());
        }
    }
}

fn read_page(
    reader: &mut StoreReader<'_>,
    mut filter: AuditFilter,
    page: ResourcePage<AuditEntry>,
) -> Result<Vec<AuditEntry>, ApiError> {
    // A node is recorded with its UUID.
    if let Some(resources) = &mut filter.resources
        && let Some(name) = resources.first().filter(|id| Uuid::try_parse(id).is_err())
        && let Some(node) = reader.find::<Node>(NodeColumn::Name, name)?
    {
        resources.push(node.id.to_string());
    }
    let query = ResourceQuery { filter, page, ..ResourceQuery::default() };
    Ok(reader.collect(&query)?)
}

fn parse_marker(text: &str) -> Result<Uuid, WireError> {
    Uuid::try_parse(text)
        .map_err(|_| WireError::invalid_field("marker", "it must be the id of an entry"))
}

fn parse_outcome(request: &ApiRequest) -> Result<Option<AuditOutcome>, WireError> {
    let Some(text) = request.query_value("outcome") else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|()| WireError::invalid_field("outcome", "it must be accepted, refused or failed"))
}

fn entry_json(entry: &AuditEntry) -> Value {
    json!({
        "id": entry.id.to_string(),
        "at": entry.at.to_string(),
        "outcome": entry.outcome.as_str(),
        "status": entry.status,
        "user_id": entry.user_id,
        "user": entry.user,
        "project": entry.project,
        "roles": entry.roles.as_deref().map(|roles| roles.split(',').collect::<Vec<&str>>()),
        "auth_method": entry.auth_method,
        "method": entry.method,
        "path": entry.path,
        "request_id": entry.request_id,
        "address": entry.address,
        "resource_type": entry.resource_type,
        "resource_id": entry.resource_id,
        "message": entry.message,
        "suppressed": entry.suppressed,
    })
}
