// SPDX-License-Identifier: Apache-2.0
//! `…/children`: the nodes that are parts of a node.

use ironic_wire::{Context, children_body};
use node_model::{Node, NodeId};
use store::{Columns, NodeColumn, NodeFilter, Query};

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/nodes/{node}/children",
    "List the nodes that are parts of a node",
    handler!(list),
)
.since(83)];

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "node");
    let (parent, children) = call
        .app
        .store
        .read(move |reader| {
            let parent: Node = ident.find(reader)?;
            let parts = Query::<Node> {
                filter: NodeFilter { parent_node: Some(parent.id), ..NodeFilter::default() },
                select: Columns::of(&[NodeColumn::Uuid]),
                ..Query::default()
            };
            let mut children: Vec<NodeId> = Vec::new();
            reader.list(&parts, |child| children.push(child.id))?;
            Ok::<_, Refusal>((parent.id, children))
        })
        .await?;
    let context = Context::new(call.version, &call.base_url);
    Ok(Reply::ok(children_body(&context, parent, &children)))
}
