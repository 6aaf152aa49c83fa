// SPDX-License-Identifier: Apache-2.0
//! Portgroups: ports bonded into one.

use http::Method;
use ironic_wire::{ListQuery, Patch, WireError, create as draft, params};
use node_model::{Node, Port, Portgroup};
use store::{PortFilter, PortgroupFilter, Query, Reader, Writer};

use crate::belongings;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::ports;
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::Route;

const FIELD: &str = "portgroups";
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

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/portgroups", "List portgroups", handler!(list)).since(SINCE).query(LIST),
    Route::get("/v1/portgroups/detail", "List portgroups with all fields", handler!(list_detail))
        .since(SINCE)
        .query(LIST),
    Route::get("/v1/nodes/{node}/portgroups", "List the portgroups of a node", handler!(of_node))
        .since(OF_NODE_SINCE)
        .query(LIST),
    Route::get(
        "/v1/nodes/{node}/portgroups/detail",
        "List the portgroups of a node with all fields",
        handler!(of_node_detail),
    )
    .since(OF_NODE_SINCE)
    .query(LIST),
    Route::new(Method::POST, "/v1/portgroups", "Create a portgroup", handler!(create)).since(SINCE),
    Route::get(ONE, "Show a portgroup", handler!(show)).since(SINCE).query(&["fields"]),
    Route::new(Method::PATCH, ONE, "Change a portgroup", handler!(patch)).since(SINCE),
    Route::new(Method::DELETE, ONE, "Remove a portgroup", handler!(delete)).since(SINCE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let node = call.query_value("node").map(|node| Ident::of_text(&call, node));
    list_below(call, node, Whole::OnDemand, "portgroups".into()).await
}

async fn list_detail(call: Call) -> Result<Reply, Refusal> {
    let node = call.query_value("node").map(|node| Ident::of_text(&call, node));
    list_below(call, node, Whole::Always, "portgroups/detail".into()).await
}

async fn of_node(call: Call) -> Result<Reply, Refusal> {
    let node = Ident::of_path(&call, "node");
    let path = format!("nodes/{}/portgroups", node.text());
    list_below(call, Some(node), Whole::OnDemand, path).await
}

async fn of_node_detail(call: Call) -> Result<Reply, Refusal> {
    let node = Ident::of_path(&call, "node");
    let path = format!("nodes/{}/portgroups/detail", node.text());
    list_below(call, Some(node), Whole::Always, path).await
}

async fn list_below(
    call: Call,
    node: Option<Ident>,
    whole: Whole,
    path: String,
) -> Result<Reply, Refusal> {
    let params = match whole {
        Whole::OnDemand => params::PORTGROUPS,
        Whole::Always => params::PORTGROUPS_DETAIL,
    };
    kept::list::<Portgroup>(call, params, whole, path, move |reader, query| {
        filter(reader, query, node)
    })
    .await
}

fn filter(
    reader: &mut Reader<'_>,
    query: &ListQuery<Portgroup>,
    node: Option<Ident>,
) -> Result<PortgroupFilter, Refusal> {
    let texts = |name: &str| {
        query.texts(name).map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    Ok(PortgroupFilter {
        node: node.map(|ident| ident.find::<Node>(reader)).transpose()?.map(|node| node.id),
        address: ports::address(query.text("address"))?,
        shards: texts("shard"),
        conductor_groups: texts("conductor_groups"),
        ..PortgroupFilter::default()
    })
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<Portgroup>(call, "portgroup", params::ONE_WITH_FIELDS).await
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let (now, actor) = (call.now(), call.actor());
    let portgroup = draft::<Portgroup>(&call.body, call.version, now)?.draft;
    let stored = portgroup.clone();
    call.app
        .store
        .write(move |writer| {
            let node = belongings::node_named(writer, stored.node_id)?;
            writer.insert(&stored).on_duplicate(|field| already(&stored, field))?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(kept::created(&call, &portgroup))
}

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    patch.check::<Portgroup>(call.version)?;
    let ident = Ident::of_path(&call, "portgroup");
    let (version, now, actor) = (call.version, call.now(), call.actor());
    let portgroup = call
        .app
        .store
        .write(move |writer| {
            let before: Portgroup = ident.find(writer)?;
            let drafted = patch.apply::<Portgroup>(before.clone(), version)?;
            let node = belongings::node_named(writer, drafted.draft.node_id)?;
            check_change(writer, &before, &drafted.draft, &node)?;
            let mut portgroup = drafted.draft;
            writer.save(&mut portgroup).on_duplicate(|field| already(&portgroup, field))?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(portgroup)
        })
        .await?;
    Ok(kept::changed(&call, &portgroup))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "portgroup");
    let (now, actor) = (call.now(), call.actor());
    call.app
        .store
        .write(move |writer| {
            let portgroup: Portgroup = ident.find(writer)?;
            if !members(writer, &portgroup)?.is_empty() {
                let problem = format!(
                    "Cannot complete the requested action because portgroup {} contains ports.",
                    portgroup.id
                );
                return Err(WireError::invalid(problem).into());
            }
            writer.delete(portgroup.id)?;
            belongings::note(writer, now, portgroup.node_id, &actor, FIELD);
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

/// The rules about when what may change.
fn check_change(
    writer: &mut Writer<'_>,
    before: &Portgroup,
    after: &Portgroup,
    node: &Node,
) -> Result<(), Refusal> {
    let members = members(writer, after)?;
    if before.node_id != after.node_id {
        let what = format!("Portgroup {} can not be given to another node", after.id);
        belongings::require_unused(node, &what)?;
        if !members.is_empty() {
            let problem = format!("{what} because it has ports.");
            return Err(WireError::invalid(problem).into());
        }
    }
    let gives_up_standalone = belongings::network_is_managed(node)
        && before.standalone_ports_supported
        && !after.standalone_ports_supported;
    if gives_up_standalone && members.iter().any(|port| port.pxe_enabled) {
        let problem = format!(
            "standalone_ports_supported cannot be unset on portgroup {} while it has ports with \
             pxe_enabled.",
            after.id
        );
        return Err(WireError::conflict(problem).into());
    }
    Ok(())
}

fn members(writer: &mut Writer<'_>, portgroup: &Portgroup) -> Result<Vec<Port>, Refusal> {
    let filter = PortFilter { portgroup: Some(portgroup.id), ..PortFilter::default() };
    Ok(writer.collect(&Query::filtered(filter))?)
}

fn already(portgroup: &Portgroup, field: &str) -> WireError {
    WireError::conflict(match (field, &portgroup.address, &portgroup.name) {
        ("address", Some(address), _) => {
            format!("A portgroup with MAC address {address} already exists.")
        }
        ("name", _, Some(name)) => format!("A portgroup with name {name} already exists."),
        _ => format!("A portgroup with UUID {} already exists.", portgroup.id),
    })
}
