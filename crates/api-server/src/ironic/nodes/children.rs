// SPDX-License-Identifier: Apache-2.0
//! `…/children`: the child nodes of a node.

use access_policy::PolicyTarget;
use ironic_wire::{RenderContext, children_body};
use node_model::{Node, NodeId};
use store::{Columns, NodeColumn, NodeFilter, ResourceQuery};

use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::get("/v1/nodes/{node}/children", "List the child nodes of a node", handler!(list))
        .resource("baremetal:node:get")
        .since(83)];

/// The project whose children are listed; `None` for all.
fn list_project(request: &ApiRequest) -> Option<String> {
    if request.access.allows("baremetal:node:list_all", &PolicyTarget::NONE) {
        return None;
    }
    // A project that does not exist: callers without project see no children.
    Some(request.access.project().unwrap_or_default().to_owned())
}

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "node");
    let project = list_project(&request);
    let (parent, children) = request
        .app
        .store
        .read(move |reader| {
            let parent: Node = ident.find(reader)?;
            let query = ResourceQuery::<Node> {
                filter: NodeFilter {
                    parent_node: Some(parent.id),
                    project: project.clone(),
                    ..NodeFilter::default()
                },
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
