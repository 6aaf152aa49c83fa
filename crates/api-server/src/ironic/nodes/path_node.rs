// SPDX-License-Identifier: Apache-2.0
//! Looks up the node in the path.

use ironic_wire::WireError;
use node_model::{Node, NodeId};

use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest};

/// The node in the path.
pub(crate) async fn find_node(request: &ApiRequest) -> Result<Node, ApiError> {
    let ident = ResourceIdent::from_path(request, "node");
    request.app.store.read(move |reader| ident.find(reader)).await
}

/// The id of the node in the path.
pub(crate) async fn find_node_id(request: &ApiRequest) -> Result<NodeId, ApiError> {
    find_node(request).await.map(|node| node.id)
}

/// The node in the path. Fails with 409 if it is locked; clients retry on this.
pub(crate) async fn find_unlocked_node(request: &ApiRequest) -> Result<Node, ApiError> {
    let node = find_node(request).await?;
    match &node.reservation {
        None => Ok(node),
        Some(holder) => Err(WireError::node_locked(&node.id.to_string(), holder).into()),
    }
}
