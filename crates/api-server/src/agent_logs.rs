// SPDX-License-Identifier: Apache-2.0
//! What ramdisks wrote down on a node, as archives to fetch, and what they say right now.

use conductor::{AgentLines, LinesError};
use http::header::CONTENT_DISPOSITION;
use http::{HeaderValue, Method, StatusCode};
use ironic_wire::{WireError, parse_object};
use node_model::{AgentLog, Secret};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent;
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::nodes::reach::node_id;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, Route, UNVERSIONED};

/// The longest name an agent may give a life of its own.
const LONGEST_RUN: usize = 64;
/// The most lines in one message.
const MOST_LINES: usize = 2000;

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
    Route::get(
        "/v1/ferrite/nodes/{node}/logs/live",
        "Show what a node's ramdisk says right now",
        handler!(live),
    )
    .since(UNVERSIONED)
    .query(&["after"]),
    Route::new(
        Method::POST,
        "/v1/ferrite/agents/{node}/log",
        "Take log lines from an agent",
        handler!(hear),
    )
    .since(UNVERSIONED)
    .access(Access::Public),
];

/// What an agent sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    agent_token: String,
    run: String,
    first: u64,
    lines: Vec<String>,
}

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let logs = call.app.store.read(move |reader| reader.agent_logs(id)).await?;
    let rows: Vec<Value> = logs.iter().map(|log| shown(&call, log)).collect();
    let live = call.app.conductor.lines_of_agent(id, u64::MAX).map(|said| {
        json!({
            "heard_at": said.heard_at.to_string(),
            "href": call.link(&format!("ferrite/nodes/{id}/logs/live")),
        })
    });
    Ok(Reply::ok(json!({"logs": rows, "live": live}).to_string().into_bytes()))
}

async fn live(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["after"])?;
    let after = match call.query_value("after") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| WireError::invalid_field("after", "it must be a number of a line"))?,
    };
    let id = node_id(&call).await?;
    let said = call.app.conductor.lines_of_agent(id, after);
    let body = match said {
        Some(said) => json!({
            "heard_at": said.heard_at.to_string(),
            "next": said.next,
            "lines": said.lines,
        }),
        None => json!({"heard_at": null, "next": 0, "lines": []}),
    };
    Ok(Reply::ok(body.to_string().into_bytes()))
}

async fn hear(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let body = Value::Object(parse_object(&call.body, "log")?);
    let sent: Sent =
        serde_json::from_value(body).map_err(|error| WireError::invalid(error.to_string()))?;
    let Sent { agent_token, run, first, lines } = sent;
    if run.len() > LONGEST_RUN {
        return Err(WireError::invalid_field("run", "it is too long").into());
    }
    if lines.len() > MOST_LINES {
        return Err(WireError::invalid_field("lines", "there are too many at once").into());
    }
    let id = agent::node_id(&call).await?;
    let said = AgentLines { token: Secret::new(agent_token), run, first, lines };
    match call.app.conductor.hear_lines(id, said).await {
        Ok(()) => Ok(Reply::accepted()),
        Err(LinesError::Other(error)) => Err(error.into()),
        Err(error @ LinesError::TooOften) => Err(WireError::new(429, error.to_string()).into()),
    }
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
