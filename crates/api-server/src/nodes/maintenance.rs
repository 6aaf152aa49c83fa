// SPDX-License-Identifier: Apache-2.0
//! `…/maintenance`: hands off a node, or on again.

use http::Method;
use ironic_wire::parse_maintenance;

use super::reach;
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const PATH: &str = "/v1/nodes/{node}/maintenance";

pub(crate) const ROUTES: &[Route] = &[
    Route::new(Method::PUT, PATH, "Put a node into maintenance", handler!(set)).query(&["reason"]),
    Route::new(Method::DELETE, PATH, "Take a node out of maintenance", handler!(clear)),
];

async fn set(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["reason"])?;
    let reason = parse_maintenance(&call.body)?;
    let reason = reason.or_else(|| call.query_value("reason").map(str::to_owned));
    change(&call, Some(reason)).await
}

async fn clear(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    change(&call, None).await
}

async fn change(call: &Call, maintenance: Option<Option<String>>) -> Result<Reply, Refusal> {
    let node = reach::node_id(call).await?;
    call.app.conductor.maintain(node, maintenance, call.actor()).await?;
    Ok(Reply::accepted())
}
