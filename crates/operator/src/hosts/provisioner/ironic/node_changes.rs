// SPDX-License-Identifier: Apache-2.0
//! Changes of nodes, for all hosts with one request.
//!
//! Ferrite returns the nodes that changed since the last request, and its event stream reports when to
//! request them. Other services return the list of all nodes, which is read from time to time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use ironic_client::{Method, QueryString};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::transport::{IronicTransport, IronicTransportError};
use crate::object_key::ObjectKey;

/// The shortest time between two requests, so that changes of many nodes need one request.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time between two requests to a slow service.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
/// How often the list of a service without events is read.
const LIST_INTERVAL: Duration = Duration::from_secs(5);
/// How long the event stream is waited for. A lost connection is noticed after this time.
const EVENT_LIMIT: Duration = Duration::from_secs(60);
/// The interval is at least this multiple of the duration of a request.
const MIN_IDLE_RATIO: u32 = 20;
const PAGE_LIMIT: &str = "1000";
/// Fields that hosts depend on. A change of any of them is reported.
const FIELDS: [&str; 11] = [
    "provision_state",
    // An operation may start and end between two requests.
    "provision_updated_at",
    // Name of `provision_updated_at` in Ferrite's list.
    "since",
    "target_provision_state",
    "power_state",
    "target_power_state",
    "maintenance",
    "fault",
    "last_error",
    // Name of `last_error` in Ferrite's list.
    "error",
    "health",
];
/// Fields of [`FIELDS`] that every Ironic has.
const LIST_FIELDS: &str = "uuid,name,provision_state,provision_updated_at,\
                           target_provision_state,power_state,target_power_state,maintenance,\
                           fault,last_error";

/// Finds out which nodes changed since the last call.
#[derive(Default)]
pub(super) struct NodeChangeFeed {
    state: Mutex<FeedState>,
}

#[derive(Default)]
struct FeedState {
    nodes: HashMap<String, KnownNode>,
    /// Ferrite's journal position; `None` before the first response and for other services.
    position: Option<u64>,
    /// Whether the service is another one than Ferrite.
    is_other_service: bool,
    requested_at: Option<Instant>,
    took: Duration,
}

struct KnownNode {
    host: Option<ObjectKey>,
    fingerprint: u64,
}

/// Nodes of a response.
struct NodeList {
    nodes: Vec<(String, KnownNode)>,
    deleted: Vec<String>,
    /// Whether nodes that are not listed do not exist.
    is_complete: bool,
    position: Option<u64>,
}

impl NodeChangeFeed {
    /// Waits until at least one node of a host changed. Failed requests are repeated.
    pub(super) async fn next(&self, transport: &dyn IronicTransport) -> Vec<ObjectKey> {
        let mut state = self.state.lock().await;
        loop {
            state.wait(transport).await;
            let start = Instant::now();
            let listed = state.list(transport).await;
            state.requested_at = Some(Instant::now());
            state.took = start.elapsed();
            match listed {
                Ok(list) => {
                    let changed = state.compare(list);
                    if !changed.is_empty() {
                        return changed;
                    }
                }
                // The next request is sent after the interval. The service may be replaced meanwhile.
                Err(_) => state.is_other_service = false,
            }
        }
    }
}

impl FeedState {
    /// Waits until the next request may be sent and there is a reason for it.
    async fn wait(&mut self, transport: &dyn IronicTransport) {
        let Some(requested_at) = self.requested_at else { return };
        let idle = self.took.saturating_mul(MIN_IDLE_RATIO);
        let shortest = idle.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        let until = |interval: Duration| interval.saturating_sub(requested_at.elapsed());
        let Some(position) = self.position else {
            return sleep(until(LIST_INTERVAL.max(shortest))).await;
        };
        sleep(until(shortest)).await;
        if let Ok(Err(_)) = timeout(EVENT_LIMIT, transport.wait_for_event(position)).await {
            sleep(until(LIST_INTERVAL)).await;
        }
    }

    async fn list(
        &mut self,
        transport: &dyn IronicTransport,
    ) -> Result<NodeList, IronicTransportError> {
        if self.is_other_service {
            return list_all(transport).await;
        }
        match list_ferrite(transport, self.position).await {
            Err(error) if error.status == Some(404) => {
                self.is_other_service = true;
                self.position = None;
                list_all(transport).await
            }
            // The journal is shorter than before: the service has another database.
            Ok(list) if list.position < self.position => list_ferrite(transport, None).await,
            other => other,
        }
    }

    /// Records the nodes and returns the hosts of those that differ.
    fn compare(&mut self, list: NodeList) -> Vec<ObjectKey> {
        self.position = list.position;
        let mut changed = Vec::new();
        let mut listed = HashSet::new();
        for (id, node) in list.nodes {
            let known = self.nodes.get(&id);
            if known.is_none_or(|known| known.fingerprint != node.fingerprint) {
                changed.extend(node.host.clone());
            }
            if list.is_complete {
                listed.insert(id.clone());
            }
            self.nodes.insert(id, node);
        }
        let mut gone = list.deleted;
        if list.is_complete {
            gone.extend(self.nodes.keys().filter(|id| !listed.contains(*id)).cloned());
        }
        changed.extend(gone.iter().filter_map(|id| self.nodes.remove(id)?.host));
        changed
    }
}

/// The nodes that changed since a journal position, or all.
async fn list_ferrite(
    transport: &dyn IronicTransport,
    after: Option<u64>,
) -> Result<NodeList, IronicTransportError> {
    let mut query = QueryString::new();
    if let Some(after) = after {
        query.add("after", &after.to_string());
    }
    let path = query.append_to("/v1/ferrite/fleet");
    let response = transport.request(Method::GET, &path, None).await?;
    let fields = texts(&response["fields"]);
    let rows = response["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let nodes = rows.iter().filter_map(|row| {
        let values: BTreeMap<&str, &Value> =
            fields.iter().map(String::as_str).zip(row.as_array()?).collect();
        let value = |field: &str| values.get(field).copied().unwrap_or(&Value::Null);
        Some((value("uuid").as_str()?.to_owned(), known_node(value)))
    });
    Ok(NodeList {
        nodes: nodes.collect(),
        deleted: texts(&response["deleted"]),
        is_complete: after.is_none() || response["complete"].as_bool().unwrap_or(true),
        position: response["seq"].as_u64(),
    })
}

/// All nodes of any Ironic.
async fn list_all(transport: &dyn IronicTransport) -> Result<NodeList, IronicTransportError> {
    let mut all = Vec::new();
    let first = QueryString::new().with("fields", LIST_FIELDS).with("limit", PAGE_LIMIT);
    let mut query = first.clone();
    loop {
        let page = transport.request(Method::GET, &query.append_to("/v1/nodes"), None).await?;
        let nodes = page["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.extend(nodes.iter().filter_map(|node| {
            let value = |field: &str| node.get(field).unwrap_or(&Value::Null);
            Some((value("uuid").as_str()?.to_owned(), known_node(value)))
        }));
        let last = nodes.last().and_then(|node| node["uuid"].as_str());
        match (page["next"].as_str(), last) {
            (Some(_), Some(last)) => query = first.clone().with("marker", last),
            _ => break,
        }
    }
    Ok(NodeList { nodes: all, deleted: Vec::new(), is_complete: true, position: None })
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn known_node<'a>(value: impl Fn(&str) -> &'a Value) -> KnownNode {
    let mut hasher = DefaultHasher::new();
    for field in FIELDS {
        value(field).to_string().hash(&mut hasher);
    }
    KnownNode { host: value("name").as_str().and_then(host_of_node), fingerprint: hasher.finish() }
}

/// The host that a node is named after.
fn host_of_node(name: &str) -> Option<ObjectKey> {
    let (namespace, name) = name.split_once('~')?;
    Some(ObjectKey::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex as StdMutex;

    use async_trait::async_trait;
    use serde_json::json;

    use super::*;

    /// Returns recorded responses; afterwards it never responds.
    struct Scripted {
        responses: StdMutex<VecDeque<(&'static str, Result<Value, u16>)>>,
    }

    #[async_trait]
    impl IronicTransport for Scripted {
        async fn request(
            &self,
            _method: Method,
            path: &str,
            _body: Option<&Value>,
        ) -> Result<Value, IronicTransportError> {
            let next = self.responses.lock().unwrap().pop_front();
            let Some((expected, response)) = next else { std::future::pending().await };
            assert_eq!(path, expected);
            response.map_err(|status| IronicTransportError {
                status: Some(status),
                message: status.to_string(),
            })
        }

        async fn wait_for_event(&self, _after: u64) -> Result<(), IronicTransportError> {
            Ok(())
        }
    }

    fn fleet(seq: u64, complete: bool, nodes: Value, deleted: Value) -> Result<Value, u16> {
        Ok(json!({"seq": seq, "complete": complete, "nodes": nodes, "deleted": deleted,
            "fields": ["uuid", "name", "provision_state", "power_state", "since", "rack"]}))
    }

    async fn check(script: Vec<(&'static str, Result<Value, u16>)>, expected: &[&[&str]]) {
        let transport = Scripted { responses: StdMutex::new(script.into()) };
        let feed = NodeChangeFeed::default();
        for expected in expected {
            let mut changed: Vec<String> =
                feed.next(&transport).await.into_iter().map(|key| key.name().to_owned()).collect();
            changed.sort_unstable();
            assert_eq!(changed, *expected);
        }
        let more = timeout(Duration::from_secs(3600), feed.next(&transport)).await;
        assert!(more.is_err(), "{more:?}");
        assert!(transport.responses.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn only_changes_are_requested_from_ferrite() {
        let row = |id: &str, state: &str, rack: &str| {
            json!([id, format!("lab~{id}"), state, "power on", "1", rack])
        };
        check(
            vec![
                (
                    "/v1/ferrite/fleet",
                    fleet(
                        5,
                        true,
                        json!([
                            row("a", "enroll", "1"),
                            row("b", "active", "1"),
                            ["c", "foreign", "active", "power on", "1", "1"],
                            ["d", null, "active", "power on", "1", "1"],
                        ]),
                        json!([]),
                    ),
                ),
                ("/v1/ferrite/fleet?after=5", fleet(6, false, json!([]), json!([]))),
                // Only a value differs that hosts do not depend on.
                (
                    "/v1/ferrite/fleet?after=6",
                    fleet(7, false, json!([row("b", "active", "2")]), json!([])),
                ),
                ("/v1/ferrite/fleet?after=7", Err(503)),
                (
                    "/v1/ferrite/fleet?after=7",
                    fleet(8, false, json!([row("a", "verifying", "3")]), json!(["b"])),
                ),
                // An operation was started and ended.
                (
                    "/v1/ferrite/fleet?after=8",
                    fleet(
                        8,
                        false,
                        json!([["a", "lab~a", "verifying", "power on", "2", "3"]]),
                        json!([]),
                    ),
                ),
                // Too many changes: all nodes.
                (
                    "/v1/ferrite/fleet?after=8",
                    fleet(9, true, json!([row("e", "enroll", "1")]), json!([])),
                ),
                // The database was replaced.
                ("/v1/ferrite/fleet?after=9", fleet(1, false, json!([]), json!([]))),
                ("/v1/ferrite/fleet", fleet(1, true, json!([]), json!([]))),
            ],
            &[&["a", "b"], &["a", "b"], &["a"], &["a", "e"], &["e"]],
        )
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_list_is_requested_from_another_ironic() {
        let node = |id: &str, error: Value| {
            json!({"uuid": id, "name": format!("lab~{id}"), "provision_state": "enroll",
                "last_error": error})
        };
        let first = "/v1/nodes?fields=uuid,name,provision_state,provision_updated_at,\
                     target_provision_state,power_state,target_power_state,maintenance,fault,\
                     last_error&limit=1000";
        let second: &'static str = Box::leak(format!("{first}&marker=a").into_boxed_str());
        check(
            vec![
                ("/v1/ferrite/fleet", Err(404)),
                (first, Ok(json!({"nodes": [node("a", json!(null))], "next": "http://x"}))),
                (second, Ok(json!({"nodes": [node("b", json!(null))]}))),
                (first, Ok(json!({"nodes": [node("a", json!(null)), node("b", json!("no"))]}))),
                (first, Ok(json!({"nodes": [node("b", json!("no"))]}))),
            ],
            &[&["a", "b"], &["b"], &["a"]],
        )
        .await;
    }
}
