// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/nodes/{node}`.

use ironic_wire::{ListQuery, params};
use node_model::Node;

use super::caretakers::Caretakers;
use crate::call::Call;
use crate::handler;
use crate::kept::Ident;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

pub(crate) const ROUTES: &[Route] =
    &[Route::get("/v1/nodes/{node}", "Show a node", handler!(show)).query(&["fields"])];

async fn show(call: Call) -> Result<Reply, Refusal> {
    let query = ListQuery::<Node>::parse(params::ONE, &call.query, call.version, 1, true)?;
    let ident = Ident::of_path(&call, "node");
    let (app, now) = (call.app.clone(), call.now());
    let body = call
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let caretakers = if query.selection.shows("conductor") {
                app.caretakers.get(reader, now)?
            } else {
                Caretakers::default()
            };
            Ok::<_, Refusal>(caretakers.body(&node, &query.selection, call.version, &call.base_url))
        })
        .await?;
    Ok(Reply::ok(body))
}
