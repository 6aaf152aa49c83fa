// SPDX-License-Identifier: Apache-2.0
//! Ports: the network cards of nodes.

use http::Method;
use ironic_wire::{
    ApiVersion, Drafted, ListQuery, Patch, PortDraft, WireError, create as draft, params,
};
use node_model::{Node, Port, Portgroup, ProvisionState};
use store::{PortFilter, Query, Reader, Writer};

use crate::belongings;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::Route;

const FIELD: &str = "ports";
const ONE: &str = "/v1/ports/{port}";
/// Since then a port of a node under inspection cannot be changed.
const INSPECTION_LOCKS_SINCE: u16 = 39;
/// Since then a bond has a physical network of its own, which its ports follow.
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

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/ports", "List ports", handler!(list)).query(LIST),
    Route::get("/v1/ports/detail", "List ports with all fields", handler!(list_detail)).query(LIST),
    Route::get("/v1/nodes/{node}/ports", "List the ports of a node", handler!(of_node)).query(LIST),
    Route::get(
        "/v1/nodes/{node}/ports/detail",
        "List the ports of a node with all fields",
        handler!(of_node_detail),
    )
    .query(LIST),
    Route::get(
        "/v1/portgroups/{portgroup}/ports",
        "List the ports of a portgroup",
        handler!(of_portgroup),
    )
    .since(24)
    .query(LIST),
    Route::get(
        "/v1/portgroups/{portgroup}/ports/detail",
        "List the ports of a portgroup with all fields",
        handler!(of_portgroup_detail),
    )
    .since(24)
    .query(LIST),
    Route::new(Method::POST, "/v1/ports", "Create a port", handler!(create)),
    Route::get(ONE, "Show a port", handler!(show)).query(&["fields"]),
    Route::new(Method::PATCH, ONE, "Change a port", handler!(patch)),
    Route::new(Method::DELETE, ONE, "Remove a port", handler!(delete)),
];

/// Whose ports a list is of, where the path says so.
enum Parent {
    None,
    Node(Ident),
    Portgroup(Ident),
}

async fn list(call: Call) -> Result<Reply, Refusal> {
    list_below(call, Parent::None, Whole::OnDemand, "ports".into()).await
}

async fn list_detail(call: Call) -> Result<Reply, Refusal> {
    list_below(call, Parent::None, Whole::Always, "ports/detail".into()).await
}

async fn of_node(call: Call) -> Result<Reply, Refusal> {
    let node = Ident::of_path(&call, "node");
    let path = format!("nodes/{}/ports", node.text());
    list_below(call, Parent::Node(node), Whole::OnDemand, path).await
}

async fn of_node_detail(call: Call) -> Result<Reply, Refusal> {
    let node = Ident::of_path(&call, "node");
    let path = format!("nodes/{}/ports/detail", node.text());
    list_below(call, Parent::Node(node), Whole::Always, path).await
}

async fn of_portgroup(call: Call) -> Result<Reply, Refusal> {
    let portgroup = Ident::of_path(&call, "portgroup");
    let path = format!("portgroups/{}/ports", portgroup.text());
    list_below(call, Parent::Portgroup(portgroup), Whole::OnDemand, path).await
}

async fn of_portgroup_detail(call: Call) -> Result<Reply, Refusal> {
    let portgroup = Ident::of_path(&call, "portgroup");
    let path = format!("portgroups/{}/ports/detail", portgroup.text());
    list_below(call, Parent::Portgroup(portgroup), Whole::Always, path).await
}

async fn list_below(
    call: Call,
    parent: Parent,
    whole: Whole,
    path: String,
) -> Result<Reply, Refusal> {
    let params = match whole {
        Whole::OnDemand => params::PORTS,
        Whole::Always => params::PORTS_DETAIL,
    };
    // Before names came, a node could only be named by its UUID, and a name was told apart.
    if let Some(node) = call.query_value("node")
        && !call.version.has(5)
        && ironic_wire::as_uuid(node).is_none()
    {
        return Err(WireError::too_new("node names", 5).into());
    }
    let named = |name: &str| call.query_value(name).map(|text| Ident::of_text(&call, text));
    let named_node = named("node_uuid").or_else(|| named("node"));
    let named_portgroup = named("portgroup");
    let (node, portgroup) = match parent {
        Parent::None => (named_node, named_portgroup),
        Parent::Node(node) => (Some(node), named_portgroup),
        Parent::Portgroup(portgroup) => (named_node, Some(portgroup)),
    };
    kept::list::<Port>(call, params, whole, path, move |reader, query| {
        filter(reader, query, node, portgroup)
    })
    .await
}

fn filter(
    reader: &mut Reader<'_>,
    query: &ListQuery<Port>,
    node: Option<Ident>,
    portgroup: Option<Ident>,
) -> Result<PortFilter, Refusal> {
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
    let address = address(query.text("address"))?;
    if conductor_groups.is_some() && (node.is_some() || portgroup.is_some() || address.is_some()) {
        let problem = "Filtering by conductor_groups cannot be combined with node, portgroup or \
                       address.";
        return Err(WireError::invalid(problem).into());
    }
    Ok(PortFilter {
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

/// An address to look for.
pub(crate) fn address(text: Option<&str>) -> Result<Option<node_model::Mac>, WireError> {
    text.map(str::parse::<node_model::Mac>).transpose().map_err(|error| {
        WireError::invalid(format!("Expected valid MAC address for address: {error}"))
    })
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<Port>(call, "port", params::ONE).await
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let (version, now, actor) = (call.version, call.now(), call.actor());
    let drafted = draft::<Port>(&call.body, version, now)?;
    // A bond without standalone ports only minds when booting over the port was asked for.
    let asks_for_boot = drafted.has("pxe_enabled");
    let PortDraft { port, node_ident } = drafted.draft;
    let node_ident = node_ident.map(|text| Ident::of_text(&call, &text));
    let port = call
        .app
        .store
        .write(move |writer| {
            let mut port = port.clone();
            let node = match &node_ident {
                Some(ident) => belongings::named_node(writer, ident)?,
                None => belongings::node_named(writer, port.node_id)?,
            };
            port.node_id = node.id;
            if let Some(portgroup) = portgroup_of(writer, &port)? {
                check_membership(writer, &port, portgroup.clone())?;
                if asks_for_boot && port.pxe_enabled && !portgroup.standalone_ports_supported {
                    return Err(no_standalone_ports(&portgroup).into());
                }
            }
            writer.insert(&port).on_duplicate(|field| already(&port, field))?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(port)
        })
        .await?;
    Ok(kept::created(&call, &port))
}

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    patch.check::<Port>(call.version)?;
    let ident = Ident::of_path(&call, "port");
    let (version, now, actor) = (call.version, call.now(), call.actor());
    let port = call
        .app
        .store
        .write(move |writer| {
            let current: Port = ident.find(writer)?;
            let current = PortDraft { port: current, node_ident: None };
            let drafted = patch.apply::<Port>(current, version)?;
            let node = belongings::node_named(writer, drafted.draft.port.node_id)?;
            check_change(writer, &drafted, &node, &patch, version)?;
            let mut port = drafted.draft.port;
            writer.save(&mut port).on_duplicate(|field| already(&port, field))?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(port)
        })
        .await?;
    Ok(kept::changed(&call, &port))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "port");
    let (now, actor) = (call.now(), call.actor());
    call.app
        .store
        .write(move |writer| {
            let port: Port = ident.find(writer)?;
            let node = belongings::node_named(writer, port.node_id)?;
            let vif = port.internal_info.get_str("tenant_vif_port_id");
            if let (Some(vif), false) = (vif, node.maintenance) {
                let problem =
                    format!("Cannot delete port {} as it is bound to VIF {vif} for use.", port.id);
                return Err(WireError::conflict(problem).into());
            }
            writer.delete(port.id)?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

/// The rules about when what may change.
fn check_change(
    writer: &mut Writer<'_>,
    drafted: &Drafted<Port>,
    node: &Node,
    patch: &Patch,
    version: ApiVersion,
) -> Result<(), Refusal> {
    const CABLING: [&str; 4] =
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
    if CABLING.iter().any(|field| drafted.has(field)) {
        let what = format!("Port {} can not have any of {} updated", port.id, CABLING.join(", "));
        belongings::require_unused(node, &what)?;
    }
    let Some(portgroup) = portgroup_of(writer, port)? else { return Ok(()) };
    if patch.touches("physical_network") && version.has(PORTGROUP_NETWORK_SINCE) {
        let problem = "physical_network cannot be changed while the port belongs to a portgroup.";
        return Err(WireError::invalid(problem).into());
    }
    check_membership(writer, port, portgroup.clone())?;
    let boots = port.pxe_enabled && (drafted.has("pxe_enabled") || drafted.has("portgroup_uuid"));
    let managed = belongings::network_is_managed(node);
    if managed && boots && !portgroup.standalone_ports_supported {
        return Err(no_standalone_ports(&portgroup).into());
    }
    Ok(())
}

/// A port must be in the same node as its bond, and in the same physical network: that of the
/// bond's other ports or, if it is the only one, that of the bond itself. A bond without a network
/// takes over that of its first port.
fn check_membership(
    writer: &mut Writer<'_>,
    port: &Port,
    mut portgroup: Portgroup,
) -> Result<(), Refusal> {
    if portgroup.node_id != port.node_id {
        let problem = "Port can not be added to a portgroup belonging to a different node.";
        return Err(WireError::invalid(problem).into());
    }
    let members = PortFilter { portgroup: Some(portgroup.id), ..PortFilter::default() };
    let mut network = None;
    writer.list(&Query::<Port>::filtered(members), |member| {
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

/// The bond the port names; that it does not exist is the request's fault.
fn portgroup_of(writer: &mut Writer<'_>, port: &Port) -> Result<Option<Portgroup>, Refusal> {
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

fn already(port: &Port, field: &str) -> WireError {
    WireError::conflict(match field {
        "address" => format!("A port with MAC address {} already exists.", port.address),
        "name" => {
            format!("A port with name {} already exists.", port.name.as_deref().unwrap_or_default())
        }
        _ => format!("A port with UUID {} already exists.", port.id),
    })
}
