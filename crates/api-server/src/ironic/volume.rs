// SPDX-License-Identifier: Apache-2.0
//! The index of volume connectors and targets, and the lists and rules they share.

use ironic_wire::{QueryParams, RenderContext, WireError, volume_body};
use node_model::{Node, PowerState, ProvisionState};
use store::VolumeFilter;

use crate::handler;
use crate::ironic::resource::{self, ApiResource, ListDetail, ResourceIdent};
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

/// First version with volumes.
pub(crate) const SINCE: u16 = 32;
pub(crate) const LIST: &[&str] =
    &["node", "fields", "detail", "limit", "marker", "sort_key", "sort_dir"];

/// Volume connectors and targets.
pub(crate) trait VolumeResource: ApiResource<Filter = VolumeFilter> {
    /// The query parameters of the lists.
    const LIST_PARAMS: QueryParams;
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/volume", "Show links to volume connectors and targets", handler!(index))
        .rule("baremetal:volume:get")
        .since(SINCE),
    ApiRoute::get(
        "/v1/nodes/{node}/volume",
        "Show links to a node's volume connectors and targets",
        handler!(node_index),
    )
    .resource("baremetal:volume:get")
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

/// `GET` of the collection, of all nodes or of the node in the query.
pub(crate) async fn list<R: VolumeResource>(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = request.query_value("node").map(|node| ResourceIdent::from_text(&request, node));
    list_page::<R>(request, node, R::PATH.to_owned()).await
}

/// `GET` of the collection of the node in the path.
pub(crate) async fn list_of_node<R: VolumeResource>(
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let node = ResourceIdent::from_path(&request, "node");
    let path = format!("nodes/{}/{}", node.text(), R::PATH);
    list_page::<R>(request, Some(node), path).await
}

async fn list_page<R: VolumeResource>(
    request: ApiRequest,
    node: Option<ResourceIdent>,
    path: String,
) -> Result<ApiResponse, ApiError> {
    let detail = ListDetail::OnRequest;
    let project = request.access.list_project(None)?;
    resource::list::<R>(request, R::LIST_PARAMS, detail, path, move |reader, _| {
        let node = node.map(|ident| ident.find::<Node>(reader)).transpose()?;
        Ok(VolumeFilter { node: node.map(|node| node.id), project, ..VolumeFilter::default() })
    })
    .await
}

/// Fails unless the node is powered off: a running machine may be using the volume. As in Ironic, an
/// unknown power state is not "off".
pub(crate) fn require_power_off(node: &Node, action: &str) -> Result<(), WireError> {
    if node.power_state == Some(PowerState::Off) {
        return Ok(());
    }
    let state = node.power_state.map_or("None", PowerState::as_str);
    Err(WireError::invalid_state(action, &node.id.to_string(), state))
}

/// As [`require_power_off`], but also allows the states in which Ironic deletes the node itself. `available`
/// is not one of them.
pub(crate) fn require_deletable(node: &Node, action: &str) -> Result<(), WireError> {
    let deletable = [ProvisionState::Manageable, ProvisionState::Enroll, ProvisionState::AdoptFail];
    if deletable.contains(&node.provision_state) {
        return Ok(());
    }
    require_power_off(node, action)
}
