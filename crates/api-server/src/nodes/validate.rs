// SPDX-License-Identifier: Apache-2.0
//! `…/validate`: whether a node has what its interfaces need.

use ironic_wire::{WireError, as_uuid, validate_body};
use node_model::Node;

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

/// Since then a node can be named.
const NAMES_SINCE: u16 = 5;

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/nodes/{node}/validate", "Validate a node", handler!(of_path)),
    Route::get("/v1/nodes/validate", "Validate a node named in the query", handler!(of_query))
        .query(&["node", "node_uuid"]),
];

async fn of_path(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "node");
    validate(&call, ident).await
}

async fn of_query(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["node", "node_uuid"])?;
    let named = call.query_value("node_uuid").or_else(|| call.query_value("node"));
    let text = named.ok_or_else(|| WireError::missing("node"))?;
    if as_uuid(text).is_none() && !call.version.has(NAMES_SINCE) {
        return Err(WireError::too_new("node names", NAMES_SINCE).into());
    }
    let ident = Ident::of_text(&call, text);
    validate(&call, ident).await
}

async fn validate(call: &Call, ident: Ident) -> Result<Reply, Refusal> {
    let node: Node = call.app.store.read(move |reader| ident.find(reader)).await?;
    let results = call.app.conductor.validate(node.id).await?;
    Ok(Reply::ok(validate_body(&results)))
}
