// SPDX-License-Identifier: Apache-2.0
//! Dry run of provision requests: for one node with all arguments, or for many nodes at once.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use ironic_wire::{ApiVersion, ProvisionBody, WireError, parse_fields, parse_object};
use lifecycle::Explanation;
use lifecycle::ProvisionRequest;
use node_model::{Node, NodeId, QueuePosition, Verb, Wait};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::visible_nodes::allowed_nodes_of;
use crate::handler;
use crate::ironic::nodes::path_node::find_node_id;
use crate::ironic::nodes::provision::{approved_runbook, provision_request, runbook_ident};
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, BodyLimit, UNVERSIONED};

const ONE: &str = "/v1/ferrite/nodes/{node}/explain";
/// Maximum number of nodes in one request.
const MAX_NODES: usize = 20_000;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        ONE,
        "Explain what a verb would do to a node, and what prevents it",
        handler!(explain_verb),
    )
    .resource("ferrite:node:explain")
    .since(UNVERSIONED)
    .query(&["target"]),
    ApiRoute::new(
        Method::POST,
        ONE,
        "Explain what a provision request would do to a node",
        handler!(explain_request),
    )
    .resource("ferrite:node:explain")
    .since(UNVERSIONED)
    .body_limit(BodyLimit::Provision),
    ApiRoute::new(
        Method::POST,
        "/v1/ferrite/explain",
        "Explain what a verb would do to many nodes",
        handler!(explain_many_nodes),
    )
    .checked_by_handler(&["ferrite:node:explain"])
    .since(UNVERSIONED)
    .body_limit(BodyLimit::Provision),
];

async fn explain_verb(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["target"])?;
    let Some(target) = request.query_value("target") else {
        return Err(WireError::missing("target").into());
    };
    let verb = parse_verb(target)?;
    let id = find_node_id(&request).await?;
    let provision_request = ProvisionRequest::plain(verb, request.actor());
    let explanation = request.app.conductor.explain(id, provision_request).await?;
    Ok(explanation_response(verb, explanation))
}

async fn explain_request(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = ProvisionBody::parse(&request.body)?;
    let verb = parse_verb(&body.target)?;
    let runbook_ident = body.runbook().map(|name| runbook_ident(&request, name));
    let content = body.arguments(verb, ApiVersion::MAX)?;
    let ident = ResourceIdent::from_path(&request, "node");
    let (id, runbook) = request
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let runbook = match &runbook_ident {
                None => None,
                Some(ident) => Some(approved_runbook(reader, ident, &node, ApiVersion::MAX)?),
            };
            Ok::<_, ApiError>((node.id, runbook))
        })
        .await?;
    let provision_request = provision_request(verb, content, runbook, request.actor());
    let explanation = request.app.conductor.explain(id, provision_request).await?;
    Ok(explanation_response(verb, explanation))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainManyBody {
    target: String,
    nodes: Vec<NodeId>,
    /// Values set on the nodes before, such as the image.
    #[serde(default)]
    instance_info: Map<String, Value>,
}

/// Nodes with the same plan.
struct NodePlan {
    explanation: Explanation,
    nodes: Vec<NodeId>,
}

async fn explain_many_nodes(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = Value::Object(parse_object(&request.body, "explain")?);
    let ExplainManyBody { target, nodes, instance_info } = parse_fields(body)?;
    let verb = parse_verb(&target)?;
    if nodes.len() > MAX_NODES {
        let problem = format!("there may be {MAX_NODES} at most");
        return Err(WireError::invalid_field("nodes", &problem).into());
    }
    let mut plans: BTreeMap<Vec<String>, NodePlan> = BTreeMap::new();
    let mut rejected: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
    let provision_request = ProvisionRequest::plain(verb, request.actor());
    let conductor = &request.app.conductor;
    let allowed = allowed_nodes_of(&request, "ferrite:node:explain", nodes.clone()).await?;
    let explained = conductor.explain_many(&allowed, &provision_request, &instance_info).await?;
    let mut missing: BTreeSet<NodeId> = nodes.into_iter().collect();
    for (id, outcome) in explained {
        missing.remove(&id);
        match outcome {
            Ok(explanation) if explanation.possible => {
                // Plans that differ only in the state they start in are the same.
                let key = explanation.plan.iter().map(|line| without_origin(line)).collect();
                let plan =
                    plans.entry(key).or_insert_with(|| NodePlan { explanation, nodes: Vec::new() });
                plan.nodes.push(id);
            }
            Ok(explanation) => {
                let why = explanation.obstacles.join(" ");
                rejected.entry(without_id(&why, id)).or_default().push(id);
            }
            // The node's driver is not enabled here, or its interfaces are invalid.
            Err(error) => {
                rejected.entry(without_id(&error.to_string(), id)).or_default().push(id);
            }
        }
    }
    if !missing.is_empty() {
        let why = "The node does not exist any more.".to_owned();
        rejected.entry(why).or_default().extend(missing);
    }
    let plans: Vec<Value> = plans
        .into_values()
        .map(|NodePlan { explanation, nodes }| {
            json!({"plan": explanation.plan, "ends_in": explanation.ends_in, "nodes": ids(&nodes)})
        })
        .collect();
    let rejected: Vec<Value> = rejected
        .into_iter()
        .map(|(why, nodes)| json!({"reason": why, "nodes": ids(&nodes)}))
        .collect();
    let body = json!({"target": verb.as_str(), "plans": plans, "rejected": rejected});
    Ok(ApiResponse::ok_value(&body))
}

fn ids(nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(ToString::to_string).collect()
}

fn parse_verb(target: &str) -> Result<Verb, WireError> {
    target.parse::<Verb>().map_err(|_| {
        let verbs: Vec<&str> = Verb::ALL.iter().map(|verb| verb.as_str()).collect();
        let problem = format!("it must be one of {}", verbs.join(", "));
        WireError::invalid_field("target", &problem)
    })
}

/// Removes the first state: `active -> deleting` becomes `deleting`.
fn without_origin(line: &str) -> String {
    line.split_once(" -> ").map_or(line, |(_, to)| to).to_owned()
}

/// Removes the node id, so that the same obstacle of two nodes compares equal. Names are already left
/// out.
fn without_id(why: &str, id: NodeId) -> String {
    why.replace(&id.to_string(), "…").replace("\"…\"", "…")
}

fn explanation_response(verb: Verb, explanation: Explanation) -> ApiResponse {
    let body = json!({
        "target": verb.as_str(),
        "possible": explanation.possible,
        "obstacles": explanation.obstacles,
        "plan": explanation.plan,
        "ends_in": explanation.ends_in,
        "waiting": explanation.waiting.map(|wait| wait_json(wait, explanation.queue_position)),
    });
    ApiResponse::ok_value(&body)
}

/// Reason and times of a wait: `until` is when it fails, `next_action_at` when the next poll, retry or
/// boot starts. Both are null if only an event ends it. `queue` is the position of a queued job.
fn wait_json(wait: Wait, queued: Option<QueuePosition>) -> Value {
    let mut json = json!({
        "reason": wait.reason.as_str(),
        "until": wait.deadline.timestamp().map(|at| at.to_string()),
        "next_action_at": wait.next_action_at.map(|at| at.to_string()),
        "state": wait.state.as_str(),
    });
    if let Some(QueuePosition { queue, position, length, since }) = queued {
        json["queue"] = json!({
            "name": queue.as_str(),
            "position": position,
            "length": length,
            "since": since.to_string(),
        });
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizes_obstacles_and_plans() {
        let id = NodeId(uuid::Uuid::nil());
        let why = format!("\"provide\" cannot be done on node \"…\" ({id}) in state \"active\"");
        let expected = "\"provide\" cannot be done on node … (…) in state \"active\"";
        assert_eq!(without_id(&why, id), expected);
        assert_eq!(without_origin("active -> deleting"), "deleting");
        assert_eq!(without_origin("tear down"), "tear down");
    }
}
