// SPDX-License-Identifier: Apache-2.0
//! What ramdisks wrote down on a node, as archives to fetch.

use http::header::CONTENT_DISPOSITION;
use http::{HeaderValue, StatusCode};
use ironic_wire::WireError;
use node_model::AgentLog;
use serde_json::{Value, json};

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::nodes::reach::node_id;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        "/v1/ferrite/nodes/{node}/logs",
        "List the logs that ramdisks left for a node",
        handler!(list),
    )
    .since(UNVERSIONED),
    Route::get(
        "/v1/ferrite/nodes/{node}/logs/{log}",
        "Fetch a ramdisk's log: a tar.gz archive",
        handler!(fetch),
    )
    .since(UNVERSIONED),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let logs = call.app.store.read(move |reader| reader.agent_logs(id)).await?;
    let rows: Vec<Value> = logs.iter().map(|log| shown(&call, log)).collect();
    Ok(Reply::ok(json!({"logs": rows}).to_string().into_bytes()))
}

fn shown(call: &Call, log: &AgentLog) -> Value {
    json!({
        "id": log.id,
        "created_at": log.created_at.to_string(),
        "kind": log.kind.as_str(),
        "why": log.why,
        "size": log.size,
        "href": call.link(&format!("ferrite/nodes/{}/logs/{}", log.node_id, log.id)),
    })
}

async fn fetch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let node = node_id(&call).await?;
    let text = call.param("log");
    let none = || WireError::new(404, format!("Node {node} has no log {text}."));
    let id = text.parse().map_err(|_| none())?;
    let found = call.app.store.scan(move |reader| reader.agent_log(node, id)).await?;
    let (log, content) = found.ok_or_else(none)?;
    let name = format!("attachment; filename=\"{}-{}-{}.tar.gz\"", node, log.kind, log.id);
    let gzip = HeaderValue::from_static("application/gzip");
    let reply = Reply::with_type(StatusCode::OK, gzip, content);
    Ok(match HeaderValue::try_from(name) {
        Ok(name) => reply.with_header(CONTENT_DISPOSITION, name),
        Err(_) => reply,
    })
}
