// SPDX-License-Identifier: Apache-2.0
//! The page that says where volume connectors and targets are, and what both have in common.

use ironic_wire::{Context, WireError, volume_body};
use node_model::{Node, PowerState, ProvisionState};
use store::{Reader, VolumeFilter};

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

/// The version that brought volumes.
pub(crate) const SINCE: u16 = 32;
pub(crate) const LIST: &[&str] =
    &["node", "fields", "detail", "limit", "marker", "sort_key", "sort_dir"];

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/volume", "Show where volumes are", handler!(root)).since(SINCE),
    Route::get("/v1/nodes/{node}/volume", "Show where a node's volumes are", handler!(of_node))
        .since(SINCE),
];

async fn root(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let context = Context::new(call.version, &call.base_url);
    Ok(Reply::ok(volume_body(&context, None)))
}

async fn of_node(call: Call) -> Result<Reply, Refusal> {
    let ident = Ident::of_path(&call, "node");
    kept::only_query(&call, &[])?;
    let node: Node = call.app.store.read(move |reader| ident.find(reader)).await?;
    let context = Context::new(call.version, &call.base_url);
    Ok(Reply::ok(volume_body(&context, Some(&node.id.to_string()))))
}

/// The filter for the volumes of `node`, of those of the node the query names, or of all.
pub(crate) fn filter(
    reader: &mut Reader<'_>,
    node: Option<Ident>,
) -> Result<VolumeFilter, Refusal> {
    let node = match node {
        Some(ident) => Some(ident.find::<Node>(reader)?.id),
        None => None,
    };
    Ok(VolumeFilter { node, ..VolumeFilter::default() })
}

/// Refuses to change what a running machine may be using.
pub(crate) fn require_power_off(node: &Node, action: &str) -> Result<(), WireError> {
    if node.power_state == Some(PowerState::Off) {
        return Ok(());
    }
    let state = node.power_state.map_or("unknown", PowerState::as_str);
    Err(WireError::invalid_state(action, &node.id.to_string(), state))
}

/// Removal is also allowed while the node itself could be removed.
pub(crate) fn require_removable(node: &Node, action: &str) -> Result<(), WireError> {
    let removable = [
        ProvisionState::Manageable,
        ProvisionState::Enroll,
        ProvisionState::AdoptFail,
        ProvisionState::Available,
    ];
    if removable.contains(&node.provision_state) {
        return Ok(());
    }
    require_power_off(node, action)
}
