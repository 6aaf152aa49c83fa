// SPDX-License-Identifier: Apache-2.0
//! Lists of nodes, with all filters.
//!
//! Clients poll large fleets with them: rows are written into the body as they are read, and only the
//! needed columns are read.

use ironic_wire::{ListQuery, RenderContext, ResourceIdentity, as_uuid, params, write_list};
use node_model::{Chassis, ChassisId, Node, NodeId};
use store::{ChildNodes, Columns, NodeColumn, NodeFilter, ResourceQuery, StoreReader};
use uuid::Uuid;

use crate::handler;
use crate::ironic::conductor_cache::LiveConductors;
use crate::ironic::redaction::NodeListRedaction;
use crate::ironic::resource::{self, ListDetail, ResourceIdent};
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

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

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/nodes", "List nodes", handler!(list))
        .list("baremetal:node:list_all", "baremetal:node:list")
        .query(filters!("fields", "detail")),
    ApiRoute::get("/v1/nodes/detail", "List nodes with all fields", handler!(list_detail))
        .list("baremetal:node:list_all", "baremetal:node:list")
        .query(filters!()),
    ApiRoute::get(
        "/v1/chassis/{chassis}/nodes",
        "List the nodes of a chassis",
        handler!(list_of_chassis),
    )
    .list("baremetal:node:list_all", "baremetal:node:list")
    .query(CHASSIS_LIST),
    ApiRoute::get(
        "/v1/chassis/{chassis}/nodes/detail",
        "List the nodes of a chassis with all fields",
        handler!(list_of_chassis_detail),
    )
    .list("baremetal:node:list_all", "baremetal:node:list")
    .query(PAGE),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    list_nodes(request, None, ListDetail::OnRequest, "nodes".into()).await
}

async fn list_detail(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    list_nodes(request, None, ListDetail::Always, "nodes/detail".into()).await
}

async fn list_of_chassis(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    // As in Ironic, without the filters of the list of all nodes.
    request.check_query(CHASSIS_LIST)?;
    let chassis = ResourceIdent::from_path(&request, "chassis");
    let path = format!("chassis/{}/nodes", chassis.text());
    list_nodes(request, Some(chassis), ListDetail::OnRequest, path).await
}

async fn list_of_chassis_detail(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(PAGE)?;
    let chassis = ResourceIdent::from_path(&request, "chassis");
    let path = format!("chassis/{}/nodes/detail", chassis.text());
    list_nodes(request, Some(chassis), ListDetail::Always, path).await
}

async fn list_nodes(
    request: ApiRequest,
    chassis: Option<ResourceIdent>,
    detail: ListDetail,
    path: String,
) -> Result<ApiResponse, ApiError> {
    let (params, all_fields) = match detail {
        ListDetail::OnRequest => (params::NODES, false),
        ListDetail::Always => (params::NODES_DETAIL, true),
    };
    let max_limit = request.app.config.max_limit;
    let query =
        ListQuery::<Node>::parse(params, &request.query, request.version, max_limit, all_fields)?;
    let project = request.access.list_project(query.text("project"))?;
    let now = request.now();
    let store = request.app.store.clone();
    let body = store
        .scan(move |reader| {
            resource::check_marker::<Node>(reader, &request, query.marker.as_deref())?;
            let project_owns_most = match &project {
                Some(project) => reader.owns_most_nodes(project)?,
                None => false,
            };
            let mut filter = NodeFilter {
                project: project.clone(),
                project_owns_most,
                ..filter(reader, &query)?
            };
            if let Some(ident) = &chassis {
                filter.chassis = Some(ident.find::<Chassis>(reader)?.id);
            }
            let needs_conductors =
                query.selection.shows("conductor") || query.text("conductor").is_some();
            let conductors = if needs_conductors {
                request.app.conductor_cache.get(reader, now)?
            } else {
                LiveConductors::default()
            };
            let redaction = NodeListRedaction::new(&request.access, &query.selection);
            let select = columns(&query, redaction.is_some());
            let rows = ResourceQuery { filter, page: resource::page(&query), select };
            write_nodes(reader, &request, &query, &rows, &conductors, &path, redaction.as_ref())
        })
        .await?;
    Ok(ApiResponse::ok(body))
}

/// Reads one page from the store and writes it as JSON.
fn write_nodes(
    reader: &mut StoreReader<'_>,
    request: &ApiRequest,
    query: &ListQuery<Node>,
    rows: &ResourceQuery<Node>,
    conductors: &LiveConductors,
    path: &str,
    redaction: Option<&NodeListRedaction<'_>>,
) -> Result<Vec<u8>, ApiError> {
    let conductor_of = |node: &Node| conductors.conductor_of(node);
    let context =
        RenderContext::new(request.version, &request.base_url).with_conductors(&conductor_of);
    let conductor = query.text("conductor");
    let page_end = std::cell::Cell::new((0_u32, Uuid::nil()));
    write_list(
        &query.selection,
        &context,
        |each| {
            let written = reader.list(rows, |node| {
                page_end.set((page_end.get().0 + 1, node.id.0));
                // The conductor is computed, not stored: pages may be shorter than the limit.
                if conductor.is_none_or(|hostname| conductors.conductor_of(node) == Some(hostname))
                {
                    match redaction.and_then(|redaction| redaction.redact(node)) {
                        None => each(node),
                        Some(redacted) => each(&redacted),
                    }
                }
            });
            written
                .map_err(|error| resource::marker_not_found::<Node>(error, query.marker.as_deref()))
        },
        || {
            let (count, last) = page_end.get();
            // An instance is on one node only, so there is no next page.
            let more = count == query.limit && rows.filter.instance_uuid.is_none();
            more.then(|| query.next_link(&context, path, ResourceIdentity::Uuid(last)))
        },
    )
}

/// The columns that a page needs: those shown, those that determine the conductor, and those that
/// determine which fields are hidden.
fn columns(query: &ListQuery<Node>, has_redaction: bool) -> Columns<Node> {
    let mut shown = resource::columns(&query.selection);
    if has_redaction {
        shown = shown.with(NodeColumn::Owner).with(NodeColumn::Lessee);
    }
    if query.text("conductor").is_none() {
        return shown;
    }
    shown.with(NodeColumn::Driver).with(NodeColumn::ConductorGroup)
}

fn filter(reader: &mut StoreReader<'_>, query: &ListQuery<Node>) -> Result<NodeFilter, ApiError> {
    let owned = |name: &str| query.text(name).map(str::to_owned);
    let parent = query.text("parent_node");
    let includes_children = parent.is_some() || query.flag("include_children") == Some(true);
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
        description_contains: owned("description_contains"),
        retired: query.flag("retired"),
        shards: query.texts("shard").map(|shards| shards.into_iter().map(str::to_owned).collect()),
        sharded: query.flag("sharded"),
        children: if includes_children { ChildNodes::Included } else { ChildNodes::Excluded },
        parent_node: match parent {
            None => None,
            Some(ident) => Some(parent_id(reader, ident)?),
        },
        instance_name: owned("instance_name"),
        ..NodeFilter::default()
    })
}

/// The id of the parent node. A missing one is not an error: it matches no children.
fn parent_id(reader: &mut StoreReader<'_>, ident: &str) -> Result<NodeId, store::StoreError> {
    if let Some(uuid) = as_uuid(ident) {
        return Ok(NodeId(uuid));
    }
    let found = reader.find::<Node>(NodeColumn::Name, ident)?;
    Ok(found.map_or(NodeId(Uuid::nil()), |node| node.id))
}
