// SPDX-License-Identifier: Apache-2.0
//! `…/history`: what went wrong with a node, and when its jobs began and ended.

use ironic_wire::{
    BY_CREATION, Context, HistoryView, Identity, ListQuery, Selection, WireError, as_uuid, params,
    write_list,
};
use node_model::{HistoryEntry, HistoryId, Node};
use store::{HistoryColumn, HistoryFilter, Page, Query, Reader};
use uuid::Uuid;

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const SINCE: u16 = 78;

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/nodes/{node}/history", "List the history of a node", handler!(list))
        .since(SINCE)
        .query(&["detail", "limit", "marker", "sort_key", "sort_dir"]),
    Route::get(
        "/v1/nodes/{node}/history/{event}",
        "Show a line of the history of a node",
        handler!(show),
    )
    .since(SINCE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let max_limit = call.app.config.max_limit;
    let query = ListQuery::<HistoryView>::parse(
        params::HISTORY,
        &call.query,
        call.version,
        max_limit,
        false,
    )?;
    let ident = Ident::of_path(&call, "node");
    let path = format!("nodes/{}/history", ident.text());
    let store = call.app.store.clone();
    let body = store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let rows = Query {
                filter: HistoryFilter { node: Some(node.id) },
                page: page(&query),
                ..Query::default()
            };
            let context = Context::new(call.version, &call.base_url);
            write_history(reader, &query, &rows, &context, &path)
        })
        .await?;
    Ok(Reply::ok(body))
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "node");
    let event = call.param("event").to_owned();
    let entry = call
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
    let context = Context::new(call.version, &call.base_url);
    let view = HistoryView { entry, whole: true };
    Ok(Reply::ok(Selection::detail(call.version).body(&view, &context)))
}

fn write_history(
    reader: &mut Reader<'_>,
    query: &ListQuery<HistoryView>,
    rows: &Query<HistoryEntry>,
    context: &Context<'_>,
    path: &str,
) -> Result<Vec<u8>, Refusal> {
    let seen = std::cell::Cell::new((0_u32, Uuid::nil()));
    write_list(
        &query.selection,
        context,
        |each| {
            let written = reader.list(rows, |entry| {
                seen.set((seen.get().0 + 1, entry.id.0));
                each(&HistoryView { entry: entry.clone(), whole: query.is_detail() });
            });
            written.map_err(|error| {
                if matches!(error, store::Error::NoSuchMarker) {
                    return not_found(query.marker.as_deref().unwrap_or_default());
                }
                error.into()
            })
        },
        || {
            let (count, last) = seen.get();
            (count == query.limit).then(|| query.next_link(context, path, Identity::Uuid(last)))
        },
    )
}

fn page(query: &ListQuery<HistoryView>) -> Page<HistoryEntry> {
    let sort = match query.sort_column {
        BY_CREATION => None,
        // `user` is a word of SQL.
        "user" => Some(HistoryColumn::User),
        column => HistoryColumn::by_name(column),
    };
    Page {
        limit: Some(query.limit),
        marker: query.marker.as_deref().and_then(as_uuid),
        sort,
        descending: query.descending,
    }
}

fn not_found(event: &str) -> Refusal {
    WireError::not_found("Node history record", event).into()
}
