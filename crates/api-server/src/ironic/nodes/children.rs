// SPDX-License-Identifier: Apache-2.0
//! `…/children`: the child nodes of a node.

use ironic_wire::{RenderContext, children_body};
use node_model::{Node, NodeId};
use store::{Columns, NodeColumn, NodeFilter, ResourceQuery};

use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::get("/v1/nodes/{node}/children", "List the child nodes of a node", handler!(list))
        .since(83)];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "node");
    let (parent, children) = request
        .app
        .store
        .read(move |reader| {
            let parent: Node = ident.find(reader)?;
            let query = ResourceQuery::<Node> {
                filter: NodeFilter { parent_node: Some(parent.id), ..NodeFilter::default() },
                select: Columns::only(&[NodeColumn::Uuid]),
                ..ResourceQuery::default()
            };
            let mut children: Vec<NodeId> = Vec::new();
            reader.list(&query, |child| children.push(child.id))?;
            Ok::<_, ApiError>((parent.id, children))
        })
        .await?;
    let context = RenderContext::new(request.version, &request.base_url);
    Ok(ApiResponse::ok(children_body(&context, parent, &children)))
}
