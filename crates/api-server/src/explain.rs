// SPDX-License-Identifier: Apache-2.0
//! What asking for something would do, without doing it: to one node with everything that may go with
//! a verb, or to many nodes at once.

use std::collections::{BTreeMap, BTreeSet};

use conductor::ProvisionRequest;
use http::Method;
use ironic_wire::{ApiVersion, ProvisionRequest as Asked, WireError, parse_object};
use lifecycle::Explanation;
use node_model::{Node, NodeId, Verb, Wait};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::nodes::provision::{approved_runbook, request};
use crate::nodes::reach::node_id;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{BodyLimit, Route, UNVERSIONED};

const ONE: &str = "/v1/ferrite/nodes/{node}/explain";
/// How many nodes may be asked about at once.
const MOST_NODES: usize = 20_000;

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        ONE,
        "Say what a verb would do to a node, and what stands in its way",
        handler!(of_verb),
    )
    .since(UNVERSIONED)
    .query(&["target"]),
    Route::new(
        Method::POST,
        ONE,
        "Say what a request for a change of provision state would do to a node",
        handler!(of_request),
    )
    .since(UNVERSIONED)
    .body_limit(BodyLimit::Provision),
    Route::new(
        Method::POST,
        "/v1/ferrite/explain",
        "Say what a verb would do to many nodes",
        handler!(of_many),
    )
    .since(UNVERSIONED)
    .body_limit(BodyLimit::Provision),
];

async fn of_verb(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["target"])?;
    let Some(target) = call.query_value("target") else {
        return Err(WireError::missing("target").into());
    };
    let verb = known_verb(target)?;
    let id = node_id(&call).await?;
    let request = ProvisionRequest::plain(verb, call.actor());
    let explanation = call.app.conductor.explain(id, request).await?;
    Ok(shown(verb, explanation))
}

async fn of_request(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let asked = Asked::parse(&call.body)?;
    let verb = known_verb(&asked.target)?;
    let named = asked.runbook().map(|name| Ident::of_text(&call, name));
    let content = asked.content(verb, ApiVersion::MAX)?;
    let ident = Ident::of_path(&call, "node");
    let (id, runbook) = call
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let runbook = match &named {
                None => None,
                Some(ident) => Some(approved_runbook(reader, ident, &node, ApiVersion::MAX)?),
            };
            Ok::<_, Refusal>((node.id, runbook))
        })
        .await?;
    let request = request(verb, content, runbook, call.actor());
    let explanation = call.app.conductor.explain(id, request).await?;
    Ok(shown(verb, explanation))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Many {
    target: String,
    nodes: Vec<NodeId>,
    /// What the nodes will be given before, such as an image.
    #[serde(default)]
    instance_info: Map<String, Value>,
}

/// Nodes to which the same would happen.
struct Plan {
    explanation: Explanation,
    nodes: Vec<NodeId>,
}

async fn of_many(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let body = Value::Object(parse_object(&call.body, "explain")?);
    let Many { target, nodes, instance_info } =
        serde_json::from_value(body).map_err(|error| WireError::invalid(error.to_string()))?;
    let verb = known_verb(&target)?;
    if nodes.len() > MOST_NODES {
        let problem = format!("there may be {MOST_NODES} at most");
        return Err(WireError::invalid_field("nodes", &problem).into());
    }
    let mut plans: BTreeMap<Vec<String>, Plan> = BTreeMap::new();
    let mut refused: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
    let request = ProvisionRequest::plain(verb, call.actor());
    let explained = call.app.conductor.explain_many(&nodes, &request, &instance_info).await?;
    let mut missing: BTreeSet<NodeId> = nodes.into_iter().collect();
    for (id, outcome) in explained {
        missing.remove(&id);
        match outcome {
            Ok(explanation) if explanation.possible => {
                // Where they come from may differ; what is done is what counts.
                let key = explanation.plan.iter().map(|line| without_origin(line)).collect();
                let plan =
                    plans.entry(key).or_insert_with(|| Plan { explanation, nodes: Vec::new() });
                plan.nodes.push(id);
            }
            Ok(explanation) => {
                let why = explanation.obstacles.join(" ");
                refused.entry(without_id(&why, id)).or_default().push(id);
            }
            // Its driver is not enabled here, or does not fit it.
            Err(error) => {
                refused.entry(without_id(&error.to_string(), id)).or_default().push(id);
            }
        }
    }
    if !missing.is_empty() {
        let why = "There is no such node any more.".to_owned();
        refused.entry(why).or_default().extend(missing);
    }
    let plans: Vec<Value> = plans
        .into_values()
        .map(|Plan { explanation, nodes }| {
            json!({"plan": explanation.plan, "ends_in": explanation.ends_in, "nodes": ids(&nodes)})
        })
        .collect();
    let refused: Vec<Value> =
        refused.into_iter().map(|(why, nodes)| json!({"why": why, "nodes": ids(&nodes)})).collect();
    let body = json!({"target": verb.as_str(), "plans": plans, "refused": refused});
    Ok(Reply::ok(body.to_string().into_bytes()))
}

fn ids(nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(ToString::to_string).collect()
}

fn known_verb(target: &str) -> Result<Verb, WireError> {
    target.parse::<Verb>().map_err(|_| {
        let verbs: Vec<&str> = Verb::ALL.iter().map(|verb| verb.as_str()).collect();
        let problem = format!("it must be one of {}", verbs.join(", "));
        WireError::invalid_field("target", &problem)
    })
}

/// `active -> deleting` without the state it starts in.
fn without_origin(line: &str) -> String {
    line.split_once(" -> ").map_or(line, |(_, to)| to).to_owned()
}

/// The same obstacle of two nodes differs in their ids only: names are left out already.
fn without_id(why: &str, id: NodeId) -> String {
    why.replace(&id.to_string(), "…").replace("\"…\"", "…")
}

fn shown(verb: Verb, explanation: Explanation) -> Reply {
    let body = json!({
        "target": verb.as_str(),
        "possible": explanation.possible,
        "obstacles": explanation.obstacles,
        "plan": explanation.plan,
        "ends_in": explanation.ends_in,
        "waiting": explanation.waiting.map(waiting),
    });
    Reply::ok(body.to_string().into_bytes())
}

/// What a node waits for, and until when; `until` is null if only an event ends the wait.
fn waiting(wait: Wait) -> Value {
    json!({
        "why": wait.why.as_str(),
        "until": wait.until.moment().map(|moment| moment.to_string()),
        "state": wait.state.as_str(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacles_of_two_nodes_are_the_same_but_for_their_ids() {
        let id = NodeId(uuid::Uuid::nil());
        let why = format!("\"provide\" cannot be done on node \"…\" ({id}) in state \"active\"");
        let expected = "\"provide\" cannot be done on node … (…) in state \"active\"";
        assert_eq!(without_id(&why, id), expected);
        assert_eq!(without_origin("active -> deleting"), "deleting");
        assert_eq!(without_origin("tear down"), "tear down");
    }
}
