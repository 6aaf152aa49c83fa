// SPDX-License-Identifier: Apache-2.0
//! `…/history`: errors of a node, and start and end of its jobs.

use ironic_wire::{
    CREATION_ORDER, FieldSelection, HistoryView, ListQuery, RenderContext, ResourceIdentity,
    WireError, as_uuid, params, write_list,
};
use node_model::{HistoryEntry, HistoryId, Node};
use store::{HistoryColumn, HistoryFilter, ResourcePage, ResourceQuery, StoreReader};
use uuid::Uuid;

use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

const SINCE: u16 = 78;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/nodes/{node}/history", "List the history of a node", handler!(list))
        .resource("baremetal:node:history:get")
        .since(SINCE)
        .query(&["detail", "limit", "marker", "sort_key", "sort_dir"]),
    ApiRoute::get(
        "/v1/nodes/{node}/history/{event}",
        "Show a history entry of a node",
        handler!(show),
    )
    .resource("baremetal:node:history:get")
    .since(SINCE),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let max_limit = request.app.config.max_limit;
    let query = ListQuery::<HistoryView>::parse(
        params::HISTORY,
        &request.query,
        request.version,
        max_limit,
        false,
    )?;
    let ident = ResourceIdent::from_path(&request, "node");
    let path = format!("nodes/{}/history", ident.text());
    let store = request.app.store.clone();
    let body = store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let rows = ResourceQuery {
                filter: HistoryFilter { node: Some(node.id) },
                page: page(&query),
                ..ResourceQuery::default()
            };
            let context = RenderContext::new(request.version, &request.base_url);
            write_history(reader, &query, &rows, &context, &path)
        })
        .await?;
    Ok(ApiResponse::ok(body))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "node");
    let event = request.param("event").to_owned();
    let entry = request
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let found = match as_uuid(&event) {
                Some(uuid) => reader.get(HistoryId(uuid))?,
                None => None,
            };
            let found: Option<HistoryEntry> = found.filter(|entry| entry.node_id == node.id);
            found.ok_or_else(|| not_found(&event))
        })
        .await?;
    let context = RenderContext::new(request.version, &request.base_url);
    let view = HistoryView { entry, full_event: true };
    Ok(ApiResponse::ok(FieldSelection::detail(request.version).body(&view, &context)))
}

fn write_history(
    reader: &mut StoreReader<'_>,
    query: &ListQuery<HistoryView>,
    rows: &ResourceQuery<HistoryEntry>,
    context: &RenderContext<'_>,
    path: &str,
) -> Result<Vec<u8>, ApiError> {
    let page_end = std::cell::Cell::new((0_u32, Uuid::nil()));
    write_list(
        &query.selection,
        context,
        |each| {
            let written = reader.list(rows, |entry| {
                page_end.set((page_end.get().0 + 1, entry.id.0));
                each(&HistoryView { entry: entry.clone(), full_event: query.is_detail() });
            });
            written.map_err(|error| {
                if matches!(error, store::StoreError::MarkerNotFound) {
                    return not_found(query.marker.as_deref().unwrap_or_default());
                }
                error.into()
            })
        },
        || {
            let (count, last) = page_end.get();
            (count == query.limit)
                .then(|| query.next_link(context, path, ResourceIdentity::Uuid(last)))
        },
    )
}

fn page(query: &ListQuery<HistoryView>) -> ResourcePage<HistoryEntry> {
    let sort = match query.sort_column {
        CREATION_ORDER => None,
        // The column has another name, because `user` is an SQL keyword.
        "user" => Some(HistoryColumn::User),
        column => HistoryColumn::by_name(column),
    };
    ResourcePage {
        limit: Some(query.limit),
        marker: query.marker.as_deref().and_then(as_uuid),
        sort,
        descending: query.descending,
    }
}

fn not_found(event: &str) -> ApiError {
    WireError::not_found("Node history record", event).into()
}
