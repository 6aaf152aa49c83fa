// SPDX-License-Identifier: Apache-2.0
//! Volume connectors: how nodes reach remote volumes.

use http::Method;
use ironic_wire::{Patch, WireError, create as draft, params};
use node_model::VolumeConnector;

use crate::belongings;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::Route;
use crate::volumes::{self, LIST, SINCE};

const ALL: &str = "/v1/volume/connectors";
const ONE: &str = "/v1/volume/connectors/{connector}";
const FIELD: &str = "volume_connectors";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(ALL, "List volume connectors", handler!(list)).since(SINCE).query(LIST),
    Route::get(
        "/v1/nodes/{node}/volume/connectors",
        "List the volume connectors of a node",
        handler!(list_of_node),
    )
    .since(SINCE)
    .query(LIST),
    Route::new(Method::POST, ALL, "Create a volume connector", handler!(create)).since(SINCE),
    Route::get(ONE, "Show a volume connector", handler!(show)).since(SINCE).query(&["fields"]),
    Route::new(Method::PATCH, ONE, "Change a volume connector", handler!(patch)).since(SINCE),
    Route::new(Method::DELETE, ONE, "Remove a volume connector", handler!(delete)).since(SINCE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let node = call.query_value("node").map(|node| Ident::of_text(&call, node));
    list_below(call, node, "volume/connectors".into()).await
}

async fn list_of_node(call: Call) -> Result<Reply, Refusal> {
    let node = Ident::of_path(&call, "node");
    let path = format!("nodes/{}/volume/connectors", node.text());
    list_below(call, Some(node), path).await
}

async fn list_below(call: Call, node: Option<Ident>, path: String) -> Result<Reply, Refusal> {
    let params = params::VOLUME_CONNECTORS;
    kept::list::<VolumeConnector>(call, params, Whole::OnDemand, path, move |reader, _| {
        volumes::filter(reader, node)
    })
    .await
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<VolumeConnector>(call, "connector", params::ONE_WITH_FIELDS).await
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let now = call.now();
    let actor = call.actor();
    let connector = draft::<VolumeConnector>(&call.body, call.version, now)?.draft;
    let stored = connector.clone();
    call.app
        .store
        .write(move |writer| {
            let node = belongings::node_named(writer, stored.node_id)?;
            writer.insert(&stored).on_duplicate(|field| already(&stored, field))?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(kept::created(&call, &connector))
}

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    let ident = Ident::of_path(&call, "connector");
    let (version, now, actor) = (call.version, call.now(), call.actor());
    let connector = call
        .app
        .store
        .write(move |writer| {
            let connector: VolumeConnector = ident.find(writer)?;
            let mut connector = patch.apply::<VolumeConnector>(connector, version)?.draft;
            let node = belongings::node_named(writer, connector.node_id)?;
            volumes::require_power_off(&node, "volume connector update")?;
            writer.save(&mut connector).on_duplicate(|field| already(&connector, field))?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(connector)
        })
        .await?;
    Ok(kept::changed(&call, &connector))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "connector");
    let (now, actor) = (call.now(), call.actor());
    call.app
        .store
        .write(move |writer| {
            let connector: VolumeConnector = ident.find(writer)?;
            let node = belongings::node_named(writer, connector.node_id)?;
            volumes::require_removable(&node, "volume connector deletion")?;
            writer.delete(connector.id)?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

fn already(connector: &VolumeConnector, field: &str) -> WireError {
    WireError::conflict(match field {
        "uuid" => format!("A volume connector with UUID {} already exists.", connector.id),
        _ => format!(
            "A volume connector of type {} with connector_id {} already exists.",
            connector.kind, connector.connector_id
        ),
    })
}
