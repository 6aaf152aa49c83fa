// SPDX-License-Identifier: Apache-2.0
//! Volume targets: remote volumes of nodes. The secrets in their properties are sealed by the
//! store and never shown.

use http::Method;
use ironic_wire::{Patch, VolumeTargetDraft, WireError, create as draft, params};
use node_model::VolumeTarget;

use crate::belongings;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::Route;
use crate::volumes::{self, LIST, SINCE};

const ALL: &str = "/v1/volume/targets";
const ONE: &str = "/v1/volume/targets/{target}";
const FIELD: &str = "volume_targets";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(ALL, "List volume targets", handler!(list)).since(SINCE).query(LIST),
    Route::get(
        "/v1/nodes/{node}/volume/targets",
        "List the volume targets of a node",
        handler!(list_of_node),
    )
    .since(SINCE)
    .query(LIST),
    Route::new(Method::POST, ALL, "Create a volume target", handler!(create)).since(SINCE),
    Route::get(ONE, "Show a volume target", handler!(show)).since(SINCE).query(&["fields"]),
    Route::new(Method::PATCH, ONE, "Change a volume target", handler!(patch)).since(SINCE),
    Route::new(Method::DELETE, ONE, "Remove a volume target", handler!(delete)).since(SINCE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let node = call.query_value("node").map(|node| Ident::of_text(&call, node));
    list_below(call, node, "volume/targets".into()).await
}

async fn list_of_node(call: Call) -> Result<Reply, Refusal> {
    let node = Ident::of_path(&call, "node");
    let path = format!("nodes/{}/volume/targets", node.text());
    list_below(call, Some(node), path).await
}

async fn list_below(call: Call, node: Option<Ident>, path: String) -> Result<Reply, Refusal> {
    let params = params::VOLUME_TARGETS;
    kept::list::<VolumeTarget>(call, params, Whole::OnDemand, path, move |reader, _| {
        volumes::filter(reader, node)
    })
    .await
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<VolumeTarget>(call, "target", params::ONE_WITH_FIELDS).await
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let (now, actor) = (call.now(), call.actor());
    let VolumeTargetDraft { target, properties } =
        draft::<VolumeTarget>(&call.body, call.version, now)?.draft;
    let target = call
        .app
        .store
        .write(move |writer| {
            let mut target = target.clone();
            let node = belongings::node_named(writer, target.node_id)?;
            writer.seal_volume_target(&mut target, properties.clone())?;
            writer.insert(&target).on_duplicate(|field| already(&target, field))?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(target)
        })
        .await?;
    Ok(kept::created(&call, &target))
}

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    let ident = Ident::of_path(&call, "target");
    let (version, now, actor) = (call.version, call.now(), call.actor());
    let target = call
        .app
        .store
        .write(move |writer| {
            let target: VolumeTarget = ident.find(writer)?;
            let properties = writer.reveal_volume_target(&target)?;
            let current = VolumeTargetDraft { target, properties };
            let VolumeTargetDraft { mut target, properties } =
                patch.apply::<VolumeTarget>(current, version)?.draft;
            let node = belongings::node_named(writer, target.node_id)?;
            volumes::require_power_off(&node, "volume target update")?;
            writer.seal_volume_target(&mut target, properties)?;
            writer.save(&mut target).on_duplicate(|field| already(&target, field))?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(target)
        })
        .await?;
    Ok(kept::changed(&call, &target))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "target");
    let (now, actor) = (call.now(), call.actor());
    call.app
        .store
        .write(move |writer| {
            let target: VolumeTarget = ident.find(writer)?;
            let node = belongings::node_named(writer, target.node_id)?;
            volumes::require_removable(&node, "volume target deletion")?;
            writer.delete(target.id)?;
            belongings::note(writer, now, node.id, &actor, FIELD);
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

fn already(target: &VolumeTarget, field: &str) -> WireError {
    WireError::conflict(match field {
        "uuid" => format!("A volume target with UUID {} already exists.", target.id),
        _ => format!(
            "Node {} already has a volume target with boot index {}.",
            target.node_id, target.boot_index
        ),
    })
}
