// SPDX-License-Identifier: Apache-2.0
//! The index of volume connectors and targets, and the rules they share.

use ironic_wire::{RenderContext, WireError, volume_body};
use node_model::{Node, PowerState, ProvisionState};
use store::{StoreReader, VolumeFilter};

use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

/// First version with volumes.
pub(crate) const SINCE: u16 = 32;
pub(crate) const LIST: &[&str] =
    &["node", "fields", "detail", "limit", "marker", "sort_key", "sort_dir"];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/volume", "Show links to volume connectors and targets", handler!(index))
        .since(SINCE),
    ApiRoute::get(
        "/v1/nodes/{node}/volume",
        "Show links to a node's volume connectors and targets",
        handler!(node_index),
    )
    .since(SINCE),
];

async fn index(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let context = RenderContext::new(request.version, &request.base_url);
    Ok(ApiResponse::ok(volume_body(&context, None)))
}

async fn node_index(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let ident = ResourceIdent::from_path(&request, "node");
    request.check_query(&[])?;
    let node: Node = request.app.store.read(move |reader| ident.find(reader)).await?;
    let context = RenderContext::new(request.version, &request.base_url);
    Ok(ApiResponse::ok(volume_body(&context, Some(&node.id.to_string()))))
}

/// The filter for the volumes of `node`, or of all nodes.
pub(crate) fn filter(
    reader: &mut StoreReader<'_>,
    node: Option<ResourceIdent>,
) -> Result<VolumeFilter, ApiError> {
    let node = match node {
        Some(ident) => Some(ident.find::<Node>(reader)?.id),
        None => None,
    };
    Ok(VolumeFilter { node, ..VolumeFilter::default() })
}

/// Fails unless the node is powered off: a running machine may be using the volume.
pub(crate) fn require_power_off(node: &Node, action: &str) -> Result<(), WireError> {
    if node.power_state == Some(PowerState::Off) {
        return Ok(());
    }
    let state = node.power_state.map_or("unknown", PowerState::as_str);
    Err(WireError::invalid_state(action, &node.id.to_string(), state))
}

/// As [`require_power_off`], but also allows the states in which the node itself may be deleted.
pub(crate) fn require_deletable(node: &Node, action: &str) -> Result<(), WireError> {
    let deletable = [
        ProvisionState::Manageable,
        ProvisionState::Enroll,
        ProvisionState::AdoptFail,
        ProvisionState::Available,
    ];
    if deletable.contains(&node.provision_state) {
        return Ok(());
    }
    require_power_off(node, action)
}
