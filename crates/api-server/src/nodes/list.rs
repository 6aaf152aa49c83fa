// SPDX-License-Identifier: Apache-2.0
//! Lists of nodes, with every way to narrow them.
//!
//! This is what large fleets are polled with: rows go from the database straight into the body,
//! and only the columns that are shown are read.

use ironic_wire::{Context, Identity, ListQuery, as_uuid, params, write_list};
use node_model::{Chassis, ChassisId, Node, NodeId};
use store::{Children, Columns, NodeColumn, NodeFilter, Query, Reader};
use uuid::Uuid;

use super::caretakers::Caretakers;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const PAGE: &[&str] = &["limit", "marker", "sort_key", "sort_dir"];
const CHASSIS_LIST: &[&str] = &["fields", "detail", "limit", "marker", "sort_key", "sort_dir"];

macro_rules! filters {
    ($($more:literal),*) => {
        &[
            $($more,)*
            "limit", "marker", "sort_key", "sort_dir", "associated", "maintenance", "chassis_uuid",
            "instance_uuid", "provision_state", "driver", "resource_class", "fault",
            "conductor_group", "conductor", "owner", "description_contains", "retired", "lessee",
            "project", "shard", "sharded", "include_children", "parent_node", "instance_name",
        ]
    };
}

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/nodes", "List nodes", handler!(list)).query(filters!("fields", "detail")),
    Route::get("/v1/nodes/detail", "List nodes with all fields", handler!(list_detail))
        .query(filters!()),
    Route::get("/v1/chassis/{chassis}/nodes", "List the nodes of a chassis", handler!(of_chassis))
        .query(CHASSIS_LIST),
    Route::get(
        "/v1/chassis/{chassis}/nodes/detail",
        "List the nodes of a chassis with all fields",
        handler!(of_chassis_detail),
    )
    .query(PAGE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    list_of(call, None, Whole::OnDemand, "nodes".into()).await
}

async fn list_detail(call: Call) -> Result<Reply, Refusal> {
    list_of(call, None, Whole::Always, "nodes/detail".into()).await
}

async fn of_chassis(call: Call) -> Result<Reply, Refusal> {
    // Only what pages are made of: the other filters belong to the list of all nodes.
    kept::only_query(&call, CHASSIS_LIST)?;
    let chassis = Ident::of_path(&call, "chassis");
    let path = format!("chassis/{}/nodes", chassis.text());
    list_of(call, Some(chassis), Whole::OnDemand, path).await
}

async fn of_chassis_detail(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, PAGE)?;
    let chassis = Ident::of_path(&call, "chassis");
    let path = format!("chassis/{}/nodes/detail", chassis.text());
    list_of(call, Some(chassis), Whole::Always, path).await
}

async fn list_of(
    call: Call,
    chassis: Option<Ident>,
    whole: Whole,
    path: String,
) -> Result<Reply, Refusal> {
    let (params, everything) = match whole {
        Whole::OnDemand => (params::NODES, false),
        Whole::Always => (params::NODES_DETAIL, true),
    };
    let max_limit = call.app.config.max_limit;
    let query = ListQuery::<Node>::parse(params, &call.query, call.version, max_limit, everything)?;
    let now = call.now();
    let store = call.app.store.clone();
    let body = store
        .scan(move |reader| {
            let mut filter = filter(reader, &query)?;
            if let Some(ident) = &chassis {
                filter.chassis = Some(ident.find::<Chassis>(reader)?.id);
            }
            let names_conductors =
                query.selection.shows("conductor") || query.text("conductor").is_some();
            let caretakers = if names_conductors {
                call.app.caretakers.get(reader, now)?
            } else {
                Caretakers::default()
            };
            let select = columns(&query);
            let rows = Query { filter, page: kept::page(&query), select };
            write_nodes(reader, &call, &query, &rows, &caretakers, &path)
        })
        .await?;
    Ok(Reply::ok(body))
}

/// Reads and writes one page.
fn write_nodes(
    reader: &mut Reader<'_>,
    call: &Call,
    query: &ListQuery<Node>,
    rows: &Query<Node>,
    caretakers: &Caretakers,
    path: &str,
) -> Result<Vec<u8>, Refusal> {
    let conductor_of = |node: &Node| caretakers.of(node);
    let context = Context::new(call.version, &call.base_url).with_conductors(&conductor_of);
    let conductor = query.text("conductor");
    let seen = std::cell::Cell::new((0_u32, Uuid::nil()));
    write_list(
        &query.selection,
        &context,
        |each| {
            let written = reader.list(rows, |node| {
                seen.set((seen.get().0 + 1, node.id.0));
                // The database does not know who looks after whom: pages may come out shorter.
                if conductor.is_none_or(|wanted| caretakers.of(node) == Some(wanted)) {
                    each(node);
                }
            });
            written.map_err(|error| kept::marker_missing::<Node>(error, query.marker.as_deref()))
        },
        || {
            let (count, last) = seen.get();
            // An instance is on one node only, so there is never a next one.
            let more = count == query.limit && rows.filter.instance_uuid.is_none();
            more.then(|| query.next_link(&context, path, Identity::Uuid(last)))
        },
    )
}

/// The columns a page needs: what is shown, and what conductors are told apart by.
fn columns(query: &ListQuery<Node>) -> Columns<Node> {
    let shown = kept::columns(&query.selection);
    if query.text("conductor").is_none() {
        return shown;
    }
    shown.with(NodeColumn::Driver).with(NodeColumn::ConductorGroup)
}

fn filter(reader: &mut Reader<'_>, query: &ListQuery<Node>) -> Result<NodeFilter, Refusal> {
    let owned = |name: &str| query.text(name).map(str::to_owned);
    let parent = query.text("parent_node");
    let parts_are_shown = parent.is_some() || query.flag("include_children") == Some(true);
    Ok(NodeFilter {
        associated: query.flag("associated"),
        maintenance: query.flag("maintenance"),
        chassis: query.uuid("chassis_uuid").map(ChassisId),
        instance_uuid: query.uuid("instance_uuid"),
        provision_states: query.provision_state("provision_state").map(|state| vec![state]),
        driver: owned("driver"),
        resource_class: owned("resource_class"),
        fault: query.fault("fault"),
        conductor_groups: query.text("conductor_group").map(|group| vec![group.to_lowercase()]),
        owner: owned("owner"),
        lessee: owned("lessee"),
        project: owned("project"),
        description_contains: owned("description_contains"),
        retired: query.flag("retired"),
        shards: query.texts("shard").map(|shards| shards.into_iter().map(str::to_owned).collect()),
        sharded: query.flag("sharded"),
        children: if parts_are_shown { Children::Included } else { Children::Excluded },
        parent_node: match parent {
            None => None,
            Some(ident) => Some(parent_of_list(reader, ident)?),
        },
        instance_name: owned("instance_name"),
        ..NodeFilter::default()
    })
}

/// The node whose parts are asked for. One that does not exist has none, which is no error.
fn parent_of_list(reader: &mut Reader<'_>, ident: &str) -> Result<NodeId, store::Error> {
    if let Some(uuid) = as_uuid(ident) {
        return Ok(NodeId(uuid));
    }
    let found = reader.find::<Node>(NodeColumn::Name, ident)?;
    Ok(found.map_or(NodeId(Uuid::nil()), |node| node.id))
}
