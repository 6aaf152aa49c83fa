// SPDX-License-Identifier: Apache-2.0
//! Ports: the NICs of nodes.

use conductor::TENANT_VIF;
use http::Method;
use ironic_wire::{
    ApiVersion, ListQuery, Patch, PortDraft, QueryParams, ResourceDraft, WireError, params,
};
use node_model::{Node, NodeId, Port, Portgroup, ProvisionState};
use store::{PortFilter, ResourceQuery, StoreReader, StoreWriter};

use super::crud::{self, CrudResource};
use super::node_resources::{self, check_node_link, parent_of_new_resource, referenced_node};
use super::resource::{self, ListDetail, ResourceIdent};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

const ONE: &str = "/v1/ports/{port}";
/// First version in which ports of a node under inspection cannot be changed.
const INSPECTION_LOCKS_SINCE: u16 = 39;
/// First version in which portgroups have a physical network, which their ports inherit.
const PORTGROUP_NETWORK_SINCE: u16 = 102;

const LIST: &[&str] = &[
    "node",
    "node_uuid",
    "address",
    "portgroup",
    "shard",
    "description_contains",
    "conductor_groups",
    "fields",
    "detail",
    "limit",
    "marker",
    "sort_key",
    "sort_dir",
];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/ports", "List ports", handler!(list))
        .list("baremetal:port:list_all", "baremetal:port:list")
        .query(LIST),
    ApiRoute::get("/v1/ports/detail", "List ports with all fields", handler!(list_detail))
        .list("baremetal:port:list_all", "baremetal:port:list")
        .query(LIST),
    ApiRoute::get("/v1/nodes/{node}/ports", "List the ports of a node", handler!(list_of_node))
        .list("baremetal:port:list_all", "baremetal:port:list")
        .query(LIST),
    ApiRoute::get(
        "/v1/nodes/{node}/ports/detail",
        "List the ports of a node with all fields",
        handler!(list_of_node_detail),
    )
    .list("baremetal:port:list_all", "baremetal:port:list")
    .query(LIST),
    ApiRoute::get(
        "/v1/portgroups/{portgroup}/ports",
        "List the ports of a portgroup",
        handler!(list_of_portgroup),
    )
    .list("baremetal:port:list_all", "baremetal:port:list")
    .since(24)
    .query(LIST),
    ApiRoute::get(
        "/v1/portgroups/{portgroup}/ports/detail",
        "List the ports of a portgroup with all fields",
        handler!(list_of_portgroup_detail),
    )
    .list("baremetal:port:list_all", "baremetal:port:list")
    .since(24)
    .query(LIST),
    ApiRoute::new(Method::POST, "/v1/ports", "Create a port", handler!(crud::create::<Port>))
        .checked_by_handler(&["baremetal:port:create"]),
    ApiRoute::get(ONE, "Show a port", handler!(crud::show::<Port>))
        .resource("baremetal:port:get")
        .query(&["fields"]),
    ApiRoute::new(Method::PATCH, ONE, "Change a port", handler!(crud::update::<Port>))
        .resource("baremetal:port:update"),
    ApiRoute::new(Method::DELETE, ONE, "Remove a port", handler!(crud::delete::<Port>))
        .resource("baremetal:port:delete"),
];

/// The resource in the path whose ports are listed.
enum PortParent {
    None,
    Node(ResourceIdent),
    Portgroup(ResourceIdent),
}

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    list_ports(request, PortParent::None, ListDetail::OnRequest, "ports".into()).await
}

async fn list_detail(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    list_ports(request, PortParent::None, ListDetail::Always, "ports/detail".into()).await
}

async fn list_of_node(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = ResourceIdent::from_path(&request, "node");
    let path = format!("nodes/{}/ports", node.text());
    list_ports(request, PortParent::Node(node), ListDetail::OnRequest, path).await
}

async fn list_of_node_detail(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = ResourceIdent::from_path(&request, "node");
    let path = format!("nodes/{}/ports/detail", node.text());
    list_ports(request, PortParent::Node(node), ListDetail::Always, path).await
}

async fn list_of_portgroup(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let portgroup = ResourceIdent::from_path(&request, "portgroup");
    let path = format!("portgroups/{}/ports", portgroup.text());
    list_ports(request, PortParent::Portgroup(portgroup), ListDetail::OnRequest, path).await
}

async fn list_of_portgroup_detail(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let portgroup = ResourceIdent::from_path(&request, "portgroup");
    let path = format!("portgroups/{}/ports/detail", portgroup.text());
    list_ports(request, PortParent::Portgroup(portgroup), ListDetail::Always, path).await
}

async fn list_ports(
    request: ApiRequest,
    parent: PortParent,
    detail: ListDetail,
    path: String,
) -> Result<ApiResponse, ApiError> {
    let params = match detail {
        ListDetail::OnRequest => params::PORTS,
        ListDetail::Always => params::PORTS_DETAIL,
    };
    // Versions without node names reject a name with 406.
    if let Some(node) = request.query_value("node")
        && !request.version.has(5)
        && ironic_wire::as_uuid(node).is_none()
    {
        return Err(WireError::too_new("node names", 5).into());
    }
    let ident =
        |name: &str| request.query_value(name).map(|text| ResourceIdent::from_text(&request, text));
    let query_node = ident("node_uuid").or_else(|| ident("node"));
    let query_portgroup = ident("portgroup");
    let (node, portgroup) = match parent {
        PortParent::None => (query_node, query_portgroup),
        PortParent::Node(node) => (Some(node), query_portgroup),
        PortParent::Portgroup(portgroup) => (query_node, Some(portgroup)),
    };
    let project = request.access.list_project(None)?;
    resource::list::<Port>(request, params, detail, path, move |reader, query| {
        filter(reader, query, node, portgroup, project)
    })
    .await
}

fn filter(
    reader: &mut StoreReader<'_>,
    query: &ListQuery<Port>,
    node: Option<ResourceIdent>,
    portgroup: Option<ResourceIdent>,
    project: Option<String>,
) -> Result<PortFilter, ApiError> {
    let texts = |name: &str| {
        query.texts(name).map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let shards = texts("shard");
    let exclusive = [node.is_some(), portgroup.is_some(), shards.is_some()];
    if exclusive.iter().filter(|given| **given).count() > 1 {
        let problem = "Ports can be narrowed by one of node, portgroup and shard at a time.";
        return Err(WireError::forbidden(problem).into());
    }
    let conductor_groups = texts("conductor_groups");
    let address = query.mac("address").cloned();
    if conductor_groups.is_some() && (node.is_some() || portgroup.is_some() || address.is_some()) {
        let problem = "Filtering by conductor_groups cannot be combined with node, portgroup or \
                       address.";
        return Err(WireError::invalid(problem).into());
    }
    Ok(PortFilter {
        project,
        node: node.map(|ident| ident.find::<Node>(reader)).transpose()?.map(|node| node.id),
        portgroup: portgroup
            .map(|ident| ident.find::<Portgroup>(reader))
            .transpose()?
            .map(|portgroup| portgroup.id),
        address,
        shards,
        conductor_groups,
        description_contains: query.text("description_contains").map(str::to_owned),
        ..PortFilter::default()
    })
}

impl CrudResource for Port {
    const PATH_PARAM: &'static str = "port";
    const SHOW_PARAMS: QueryParams = params::ONE;
    const CHECKS_PATCH_FIRST: bool = true;

    fn to_insert(
        writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let PortDraft { port, node_ident } = &drafted.draft;
        let mut port = port.clone();
        let text = node_ident.clone().unwrap_or_else(|| port.node_id.to_string());
        let ident = ResourceIdent::from_text(request, &text);
        let node = parent_of_new_resource(writer, &ident, request, "baremetal:port:create")?;
        port.node_id = node.id;
        if let Some(portgroup) = referenced_portgroup(writer, &port)? {
            check_membership(writer, &port, portgroup.clone())?;
            // As in Ironic, only an explicit pxe_enabled conflicts: it is true by default.
            let boots_by_request = drafted.has("pxe_enabled") && port.pxe_enabled;
            if boots_by_request && !portgroup.standalone_ports_supported {
                return Err(no_standalone_ports(&portgroup).into());
            }
        }
        Ok(port)
    }

    fn to_draft(&self, _writer: &mut StoreWriter<'_>) -> Result<PortDraft, ApiError> {
        Ok(PortDraft { port: self.clone(), node_ident: None })
    }

    fn to_save(
        writer: &mut StoreWriter<'_>,
        before: Self,
        drafted: ResourceDraft<Self>,
        patch: &Patch,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let new_node = drafted.draft.port.node_id;
        check_node_link(writer, before.node_id, new_node, "node_uuid", request)?;
        let node = referenced_node(writer, drafted.draft.port.node_id)?;
        check_change(writer, &drafted, &node, patch, request.version)?;
        Ok(drafted.draft.port)
    }

    fn check_delete(&self, writer: &mut StoreWriter<'_>) -> Result<(), ApiError> {
        let node = referenced_node(writer, self.node_id)?;
        let vif = self.internal_info.get_str(TENANT_VIF);
        if let (Some(vif), false) = (vif, node.maintenance) {
            let problem =
                format!("Cannot delete port {} as it is bound to VIF {vif} for use.", self.id);
            return Err(WireError::conflict(problem).into());
        }
        Ok(())
    }

    fn already_exists(&self, field: &str) -> WireError {
        WireError::conflict(match field {
            "address" => format!("A port with MAC address {} already exists.", self.address),
            "name" => {
                let name = self.name.as_deref().unwrap_or_default();
                format!("A port with name {name} already exists.")
            }
            _ => format!("A port with UUID {} already exists.", self.id),
        })
    }

    fn journal_field(&self) -> Option<(NodeId, &'static str)> {
        Some((self.node_id, "ports"))
    }
}

/// Checks the rules of a change that involve the node and the portgroup.
fn check_change(
    writer: &mut StoreWriter<'_>,
    drafted: &ResourceDraft<Port>,
    node: &Node,
    patch: &Patch,
    version: ApiVersion,
) -> Result<(), ApiError> {
    const CONNECTION: [&str; 4] =
        ["portgroup_uuid", "pxe_enabled", "local_link_connection", "physical_network"];
    let port = &drafted.draft.port;
    if node.provision_state == ProvisionState::Inspecting && version.has(INSPECTION_LOCKS_SINCE) {
        let problem =
            format!("Cannot update port {} while node {} is being inspected.", port.id, node.id);
        return Err(WireError::conflict(problem).into());
    }
    let in_use = node.provision_state == ProvisionState::Active || node.instance_uuid.is_some();
    if in_use && drafted.has("address") && !node.maintenance {
        let problem = format!(
            "Cannot update the address of port {} as node {} is active or has an instance; set \
             maintenance first.",
            port.id, node.id
        );
        return Err(WireError::conflict(problem).into());
    }
    if CONNECTION.iter().any(|field| drafted.has(field)) {
        let what =
            format!("Port {} can not have any of {} updated", port.id, CONNECTION.join(", "));
        node_resources::require_unused(node, &what)?;
    }
    let Some(portgroup) = referenced_portgroup(writer, port)? else { return Ok(()) };
    if patch.touches("physical_network") && version.has(PORTGROUP_NETWORK_SINCE) {
        let problem = "physical_network cannot be changed while the port belongs to a portgroup.";
        return Err(WireError::invalid(problem).into());
    }
    check_membership(writer, port, portgroup.clone())?;
    let boots = port.pxe_enabled && (drafted.has("pxe_enabled") || drafted.has("portgroup_uuid"));
    let managed = node_resources::network_is_managed(node);
    if managed && boots && !portgroup.standalone_ports_supported {
        return Err(no_standalone_ports(&portgroup).into());
    }
    Ok(())
}

/// A port must belong to the same node as its portgroup, and to the same physical network: that of the
/// other member ports or, if there are none, that of the portgroup. A portgroup without a network
/// gets the network of its first port.
fn check_membership(
    writer: &mut StoreWriter<'_>,
    port: &Port,
    mut portgroup: Portgroup,
) -> Result<(), ApiError> {
    if portgroup.node_id != port.node_id {
        let problem = "Port can not be added to a portgroup belonging to a different node.";
        return Err(WireError::invalid(problem).into());
    }
    let members = PortFilter { portgroup: Some(portgroup.id), ..PortFilter::default() };
    let mut network = None;
    writer.list(&ResourceQuery::<Port>::filtered(members), |member| {
        if member.id != port.id {
            network = Some(member.physical_network.clone());
        }
    })?;
    let network = match network.or_else(|| portgroup.physical_network.clone().map(Some)) {
        Some(network) => network,
        None => {
            if port.physical_network.is_some() {
                portgroup.physical_network.clone_from(&port.physical_network);
                writer.save(&mut portgroup)?;
            }
            return Ok(());
        }
    };
    if network == port.physical_network {
        return Ok(());
    }
    Err(WireError::conflict(format!(
        "Port with physical network {} cannot become a member of portgroup {}, which has ports in \
         physical network {}.",
        port.physical_network.as_deref().unwrap_or("(none)"),
        portgroup.id,
        network.as_deref().unwrap_or("(none)"),
    ))
    .into())
}

/// The portgroup of the port. Fails with 400 if it does not exist.
fn referenced_portgroup(
    writer: &mut StoreWriter<'_>,
    port: &Port,
) -> Result<Option<Portgroup>, ApiError> {
    let Some(id) = port.portgroup_id else { return Ok(None) };
    match writer.get(id)? {
        Some(portgroup) => Ok(Some(portgroup)),
        None => Err(WireError::invalid(format!("Portgroup {id} could not be found.")).into()),
    }
}

fn no_standalone_ports(portgroup: &Portgroup) -> WireError {
    WireError::conflict(format!(
        "Port group {} doesn't support standalone ports, so a port with pxe_enabled cannot be its \
         member.",
        portgroup.id
    ))
}
