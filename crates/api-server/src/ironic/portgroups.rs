// SPDX-License-Identifier: Apache-2.0
//! Portgroups: bonded ports.

use http::Method;
use ironic_wire::{ListQuery, Patch, ResourceDraft, WireError, params};
use node_model::{Node, NodeId, Port, Portgroup};
use store::{PortFilter, PortgroupFilter, ResourceQuery, StoreReader, StoreWriter};

use super::crud::{self, CrudResource};
use super::node_resources::{self, check_node_link, parent_of_new_resource, referenced_node};
use super::resource::{self, ListDetail, ResourceIdent};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

const SINCE: u16 = 23;
const OF_NODE_SINCE: u16 = 24;
const ONE: &str = "/v1/portgroups/{portgroup}";
const LIST: &[&str] = &[
    "node",
    "address",
    "shard",
    "conductor_groups",
    "fields",
    "detail",
    "limit",
    "marker",
    "sort_key",
    "sort_dir",
];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/portgroups", "List portgroups", handler!(list))
        .list("baremetal:portgroup:list_all", "baremetal:portgroup:list")
        .since(SINCE)
        .query(LIST),
    ApiRoute::get(
        "/v1/portgroups/detail",
        "List portgroups with all fields",
        handler!(list_detail),
    )
    .list("baremetal:portgroup:list_all", "baremetal:portgroup:list")
    .since(SINCE)
    .query(LIST),
    ApiRoute::get(
        "/v1/nodes/{node}/portgroups",
        "List the portgroups of a node",
        handler!(list_of_node),
    )
    .list("baremetal:portgroup:list_all", "baremetal:portgroup:list")
    .since(OF_NODE_SINCE)
    .query(LIST),
    ApiRoute::get(
        "/v1/nodes/{node}/portgroups/detail",
        "List the portgroups of a node with all fields",
        handler!(list_of_node_detail),
    )
    .list("baremetal:portgroup:list_all", "baremetal:portgroup:list")
    .since(OF_NODE_SINCE)
    .query(LIST),
    ApiRoute::new(
        Method::POST,
        "/v1/portgroups",
        "Create a portgroup",
        handler!(crud::create::<Portgroup>),
    )
    .checked_by_handler(&["baremetal:portgroup:create"])
    .since(SINCE),
    ApiRoute::get(ONE, "Show a portgroup", handler!(crud::show::<Portgroup>))
        .resource("baremetal:portgroup:get")
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::new(Method::PATCH, ONE, "Change a portgroup", handler!(crud::update::<Portgroup>))
        .resource("baremetal:portgroup:update")
        .since(SINCE),
    ApiRoute::new(Method::DELETE, ONE, "Remove a portgroup", handler!(crud::delete::<Portgroup>))
        .resource("baremetal:portgroup:delete")
        .since(SINCE),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = request.query_value("node").map(|node| ResourceIdent::from_text(&request, node));
    list_portgroups(request, node, ListDetail::OnRequest, "portgroups".into()).await
}

async fn list_detail(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = request.query_value("node").map(|node| ResourceIdent::from_text(&request, node));
    list_portgroups(request, node, ListDetail::Always, "portgroups/detail".into()).await
}

async fn list_of_node(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = ResourceIdent::from_path(&request, "node");
    let path = format!("nodes/{}/portgroups", node.text());
    list_portgroups(request, Some(node), ListDetail::OnRequest, path).await
}

async fn list_of_node_detail(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = ResourceIdent::from_path(&request, "node");
    let path = format!("nodes/{}/portgroups/detail", node.text());
    list_portgroups(request, Some(node), ListDetail::Always, path).await
}

async fn list_portgroups(
    request: ApiRequest,
    node: Option<ResourceIdent>,
    detail: ListDetail,
    path: String,
) -> Result<ApiResponse, ApiError> {
    let params = match detail {
        ListDetail::OnRequest => params::PORTGROUPS,
        ListDetail::Always => params::PORTGROUPS_DETAIL,
    };
    let project = request.access.list_project(None)?;
    resource::list::<Portgroup>(request, params, detail, path, move |reader, query| {
        filter(reader, query, node, project)
    })
    .await
}

fn filter(
    reader: &mut StoreReader<'_>,
    query: &ListQuery<Portgroup>,
    node: Option<ResourceIdent>,
    project: Option<String>,
) -> Result<PortgroupFilter, ApiError> {
    let texts = |name: &str| {
        query.texts(name).map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    Ok(PortgroupFilter {
        project,
        node: node.map(|ident| ident.find::<Node>(reader)).transpose()?.map(|node| node.id),
        address: query.mac("address").cloned(),
        shards: texts("shard"),
        conductor_groups: texts("conductor_groups"),
        ..PortgroupFilter::default()
    })
}

impl CrudResource for Portgroup {
    const PATH_PARAM: &'static str = "portgroup";
    const CHECKS_PATCH_FIRST: bool = true;

    fn to_insert(
        writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let ident = ResourceIdent::from_text(request, &drafted.draft.node_id.to_string());
        parent_of_new_resource(writer, &ident, request, "baremetal:portgroup:create")?;
        Ok(drafted.draft.clone())
    }

    fn to_draft(&self, _writer: &mut StoreWriter<'_>) -> Result<Self, ApiError> {
        Ok(self.clone())
    }

    fn to_save(
        writer: &mut StoreWriter<'_>,
        before: Self,
        drafted: ResourceDraft<Self>,
        _patch: &Patch,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let after = drafted.draft;
        check_node_link(writer, before.node_id, after.node_id, "node_uuid", request)?;
        let node = referenced_node(writer, after.node_id)?;
        check_change(writer, &before, &after, &node)?;
        Ok(after)
    }

    fn check_delete(&self, writer: &mut StoreWriter<'_>) -> Result<(), ApiError> {
        if members(writer, self)?.is_empty() {
            return Ok(());
        }
        let problem = format!(
            "Cannot complete the requested action because portgroup {} contains ports.",
            self.id
        );
        Err(WireError::invalid(problem).into())
    }

    fn already_exists(&self, field: &str) -> WireError {
        WireError::conflict(match (field, &self.address, &self.name) {
            ("address", Some(address), _) => {
                format!("A portgroup with MAC address {address} already exists.")
            }
            ("name", _, Some(name)) => format!("A portgroup with name {name} already exists."),
            _ => format!("A portgroup with UUID {} already exists.", self.id),
        })
    }

    fn journal_field(&self) -> Option<(NodeId, &'static str)> {
        Some((self.node_id, "portgroups"))
    }
}

/// Checks the rules of a change that involve the node and the member ports.
fn check_change(
    writer: &mut StoreWriter<'_>,
    before: &Portgroup,
    after: &Portgroup,
    node: &Node,
) -> Result<(), ApiError> {
    let members = members(writer, after)?;
    if before.node_id != after.node_id {
        let what = format!("Portgroup {} can not be given to another node", after.id);
        node_resources::require_unused(node, &what)?;
        if !members.is_empty() {
            let problem = format!("{what} because it has ports.");
            return Err(WireError::invalid(problem).into());
        }
    }
    let drops_standalone_ports = node_resources::network_is_managed(node)
        && before.standalone_ports_supported
        && !after.standalone_ports_supported;
    if drops_standalone_ports && members.iter().any(|port| port.pxe_enabled) {
        let problem = format!(
            "standalone_ports_supported cannot be unset on portgroup {} while it has ports with \
             pxe_enabled.",
            after.id
        );
        return Err(WireError::conflict(problem).into());
    }
    Ok(())
}

fn members(writer: &mut StoreWriter<'_>, portgroup: &Portgroup) -> Result<Vec<Port>, ApiError> {
    let filter = PortFilter { portgroup: Some(portgroup.id), ..PortFilter::default() };
    Ok(writer.collect(&ResourceQuery::filtered(filter))?)
}
