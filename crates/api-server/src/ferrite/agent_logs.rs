// SPDX-License-Identifier: Apache-2.0
//! Logs of ramdisks: stored archives, and the live output of agents.

use conductor::{AgentLogError, AgentLogLines};
use http::header::CONTENT_DISPOSITION;
use http::{HeaderValue, Method, StatusCode};
use ironic_wire::{WireError, parse_fields, parse_object};
use node_model::{AgentLog, Secret};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::handler;
use crate::ironic::agent::agent_node_id;
use crate::ironic::nodes::path_node::find_node_id;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess, UNVERSIONED};

/// Maximum length of an agent's run id.
const MAX_RUN_LENGTH: usize = 64;
/// Maximum number of lines in one message.
const MAX_LINES: usize = 2000;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        "/v1/ferrite/nodes/{node}/logs",
        "List the ramdisk logs of a node",
        handler!(list),
    )
    .resource("ferrite:node:agent_logs")
    .since(UNVERSIONED),
    ApiRoute::get(
        "/v1/ferrite/nodes/{node}/logs/{log}",
        "Fetch a ramdisk log as tar.gz archive",
        handler!(fetch),
    )
    .resource("ferrite:node:agent_logs")
    .since(UNVERSIONED),
    ApiRoute::get(
        "/v1/ferrite/nodes/{node}/logs/live",
        "Show the live log of a node's ramdisk",
        handler!(live),
    )
    .resource("ferrite:node:agent_logs")
    .since(UNVERSIONED)
    .query(&["after"]),
    ApiRoute::new(
        Method::POST,
        "/v1/ferrite/agents/{node}/log",
        "Receive log lines from an agent",
        handler!(receive_lines),
    )
    .since(UNVERSIONED)
    .access(RouteAccess::Public)
    .rate_limited(),
];

/// The body of an agent's log message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentLogBody {
    agent_token: String,
    run: String,
    first: u64,
    lines: Vec<String>,
}

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let logs = request.app.store.read(move |reader| reader.agent_logs(id)).await?;
    let rows: Vec<Value> = logs.iter().map(|log| log_json(&request, log)).collect();
    let live = request.app.conductor.agent_log_tail(id, u64::MAX).map(|tail| {
        json!({
            "received_at": tail.received_at.to_string(),
            "href": request.link(&format!("ferrite/nodes/{id}/logs/live")),
        })
    });
    Ok(ApiResponse::ok_value(&json!({"logs": rows, "live": live})))
}

async fn live(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["after"])?;
    let after = match request.query_value("after") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| WireError::invalid_field("after", "it must be a line number"))?,
    };
    let id = find_node_id(&request).await?;
    let tail = request.app.conductor.agent_log_tail(id, after);
    let body = match tail {
        Some(tail) => json!({
            "received_at": tail.received_at.to_string(),
            "next": tail.next,
            "lines": tail.lines,
        }),
        None => json!({"received_at": null, "next": 0, "lines": []}),
    };
    Ok(ApiResponse::ok_value(&body))
}

async fn receive_lines(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = Value::Object(parse_object(&request.body, "log")?);
    let body: AgentLogBody = parse_fields(body)?;
    let AgentLogBody { agent_token, run, first, lines } = body;
    if run.len() > MAX_RUN_LENGTH {
        return Err(WireError::invalid_field("run", "it is too long").into());
    }
    if lines.len() > MAX_LINES {
        return Err(WireError::invalid_field("lines", "there are too many at once").into());
    }
    let id = agent_node_id(&request).await?;
    let lines = AgentLogLines { token: Secret::new(agent_token), run, first, lines };
    match request.app.conductor.append_agent_log(id, lines).await {
        Ok(()) => Ok(ApiResponse::accepted()),
        Err(AgentLogError::Other(error)) => Err(error.into()),
        Err(error @ AgentLogError::RateLimited) => {
            Err(WireError::new(429, error.to_string()).into())
        }
    }
}

fn log_json(request: &ApiRequest, log: &AgentLog) -> Value {
    json!({
        "id": log.id,
        "created_at": log.created_at.to_string(),
        "kind": log.kind.as_str(),
        "reason": log.reason,
        "size": log.size,
        "href": request.link(&format!("ferrite/nodes/{}/logs/{}", log.node_id, log.id)),
    })
}

async fn fetch(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let node = find_node_id(&request).await?;
    let text = request.param("log");
    let not_found = || WireError::new(404, format!("Node {node} has no log {text}."));
    let id = text.parse().map_err(|_| not_found())?;
    let found = request.app.store.scan(move |reader| reader.agent_log(node, id)).await?;
    let (log, content) = found.ok_or_else(not_found)?;
    let name = format!("attachment; filename=\"{}-{}-{}.tar.gz\"", node, log.kind, log.id);
    let gzip = HeaderValue::from_static("application/gzip");
    let reply = ApiResponse::with_type(StatusCode::OK, gzip, content);
    Ok(match HeaderValue::try_from(name) {
        Ok(name) => reply.with_header(CONTENT_DISPOSITION, name),
        Err(_) => reply,
    })
}
