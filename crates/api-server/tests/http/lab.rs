// SPDX-License-Identifier: Apache-2.0
//! A server whose conductor works on fake hardware, and waiting for what it does.

use std::sync::Arc;
use std::time::Duration;

use conductor::Running;
use lifecycle::{Rest, rest};
use node_model::{InterfaceKind, JsonObject, Node, NodeId, ProvisionState};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NOW, Response, resting_conductor};

/// Long enough for a loaded machine, short enough to notice a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server and a conductor at work.
pub(crate) struct Lab {
    pub(crate) api: Fixture,
    _running: Running,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        let api = Fixture::start().await;
        let worker = resting_conductor(api.store.clone(), Arc::new(|| NOW));
        let running = worker.start().await.unwrap();
        Self { api, _running: running }
    }

    /// Enrols a machine with this `driver_info`.
    pub(crate) async fn machine(&self, name: &str, driver_info: Value) -> NodeId {
        self.api.node(name, |node| node.driver_info = object(driver_info)).await
    }

    /// Enrols a machine that is inspected by a ramdisk.
    pub(crate) async fn inspected_by_agent(&self, name: &str) -> NodeId {
        self.api
            .node(name, |node| {
                node.provision_state = ProvisionState::Manageable;
                node.interfaces.set(InterfaceKind::Inspect, Some("agent"));
            })
            .await
    }

    /// Puts a machine into a state as if it had always been there.
    pub(crate) async fn in_state(&self, name: &str, state: ProvisionState) -> NodeId {
        self.api.node(name, |node| node.provision_state = state).await
    }

    pub(crate) async fn provision(&self, name: &str, body: Value) -> Response {
        self.api.ask("PUT", &format!("/v1/nodes/{name}/states/provision"), body).await
    }

    /// Asks for something that must be accepted, and waits for the state it ends in.
    pub(crate) async fn goes(&self, name: &str, body: Value, end: ProvisionState) -> Node {
        let asked = body.to_string();
        let response = self.provision(name, body).await;
        assert_eq!(response.status, 202, "{asked}: {}", response.message());
        assert_eq!(response.body, "");
        let location = format!("http://api.example:6385/v1/nodes/{name}/states");
        assert_eq!(response.header("location"), Some(location.as_str()), "{asked}");
        self.until(name, &asked, |node| node.provision_state == end && is_at_rest(node)).await
    }

    /// Waits until the node is as `wanted` and nobody works on it.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Node) -> bool,
    ) -> Node {
        let mut position = self.api.store.journal_position();
        let mut last = String::new();
        let looking = async {
            loop {
                let node = self.node(name).await;
                if node.reservation.is_none() && wanted(&node) {
                    return node;
                }
                last = format!(
                    "{} by {:?}, last error {:?}",
                    node.provision_state, node.reservation, node.last_error
                );
                // The end of a reservation is no event, so now and then it is looked for.
                let _ = tokio::time::timeout(Duration::from_millis(5), position.changed()).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, looking).await;
        found.unwrap_or_else(|_| panic!("{name} after {what}: {last}"))
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        let name = name.to_owned();
        let found = self
            .api
            .store
            .read(move |reader| reader.find::<Node>(store::NodeColumn::Name, &name))
            .await;
        found.unwrap().expect("the node was enrolled")
    }

    /// Plays the agent on a machine: looks itself up and gets its token.
    pub(crate) async fn agent(&self, id: NodeId) -> String {
        let found = self.api.get(&format!("/v1/lookup?node_uuid={id}"), AGENT_VERSION).await;
        assert_eq!(found.status, 200, "{}", found.message());
        found.json()["config"]["agent_token"].as_str().unwrap().to_owned()
    }

    /// Plays the agent on a machine: calls.
    pub(crate) async fn heartbeat(&self, id: NodeId, token: &str) -> Response {
        let body = json!({
            "callback_url": "https://192.0.2.7:9999",
            "agent_version": "12.0.0",
            "agent_token": token,
        });
        let path = format!("/v1/heartbeat/{id}");
        self.api.send("POST", &path, AGENT_VERSION, body.to_string().as_bytes()).await
    }
}

/// Whether a node moves only when something comes from outside.
pub(crate) fn is_at_rest(node: &Node) -> bool {
    let moved_by_others = matches!(rest(node.provision_state), Rest::Waiting | Rest::Held);
    node.work.is_none() || moved_by_others
}

/// What agents send at most.
pub(crate) const AGENT_VERSION: &str = "X-OpenStack-Ironic-API-Version: 1.68\r\n";

/// The header of a version.
pub(crate) fn at(minor: u16) -> String {
    format!("X-OpenStack-Ironic-API-Version: 1.{minor}\r\n")
}

pub(crate) fn object(value: Value) -> JsonObject {
    let members = value.as_object().expect("driver_info is an object");
    JsonObject::from(members.clone())
}
