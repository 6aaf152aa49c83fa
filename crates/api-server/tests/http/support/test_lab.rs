// SPDX-License-Identifier: Apache-2.0
//! A server with a running conductor and fake hardware.

use std::sync::Arc;
use std::time::Duration;

use conductor::RunningConductor;
use lifecycle::{StateClass, state_class};
use node_model::{InterfaceKind, JsonObject, Node, NodeId, ProvisionState};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, NOW, RawResponse, idle_conductor};

/// Long enough for a loaded machine, short enough to detect a hang.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server and a running conductor.
pub(crate) struct TestLab {
    pub(crate) api: Fixture,
    _running: RunningConductor,
}

impl TestLab {
    pub(crate) async fn start() -> Self {
        let api = Fixture::start().await;
        let worker = idle_conductor(api.store.clone(), Arc::new(|| NOW));
        let running = worker.start().await.unwrap();
        Self { api, _running: running }
    }

    /// Enrols a machine with this `driver_info`.
    pub(crate) async fn enrol_machine(&self, name: &str, driver_info: Value) -> NodeId {
        self.api.node(name, |node| node.driver_info = object(driver_info)).await
    }

    /// Enrols a machine whose inspect interface is `agent`.
    pub(crate) async fn enrol_agent_inspected(&self, name: &str) -> NodeId {
        self.api
            .node(name, |node| {
                node.provision_state = ProvisionState::Manageable;
                node.interfaces.set(InterfaceKind::Inspect, Some("agent"));
            })
            .await
    }

    /// Inserts a node in the given state.
    pub(crate) async fn node_in_state(&self, name: &str, state: ProvisionState) -> NodeId {
        self.api.node(name, |node| node.provision_state = state).await
    }

    pub(crate) async fn provision(&self, name: &str, body: Value) -> RawResponse {
        self.api.request("PUT", &format!("/v1/nodes/{name}/states/provision"), body).await
    }

    /// Sends a provision request that must be accepted, and waits until the node is idle in `end`.
    pub(crate) async fn provision_until(
        &self,
        name: &str,
        body: Value,
        end: ProvisionState,
    ) -> Node {
        let sent = body.to_string();
        let response = self.provision(name, body).await;
        assert_eq!(response.status, 202, "{sent}: {}", response.message());
        assert_eq!(response.body, "");
        let location = format!("http://api.example:6385/v1/nodes/{name}/states");
        assert_eq!(response.header("location"), Some(location.as_str()), "{sent}");
        self.wait_for(name, &sent, |node| node.provision_state == end && is_idle(node)).await
    }

    /// Waits until the node fulfils `condition` and is not locked.
    pub(crate) async fn wait_for(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&Node) -> bool,
    ) -> Node {
        let mut position = self.api.store.journal_position();
        let mut last = String::new();
        let wait = async {
            loop {
                let node = self.node(name).await;
                if node.reservation.is_none() && condition(&node) {
                    return node;
                }
                last = format!(
                    "{} by {:?}, last error {:?}",
                    node.provision_state, node.reservation, node.last_error
                );
                // Unlocking writes no journal entry, so check periodically, too.
                let _ = tokio::time::timeout(Duration::from_millis(5), position.changed()).await;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, wait).await;
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

    /// Sends the lookup of an agent and returns its token.
    pub(crate) async fn lookup_token(&self, id: NodeId) -> String {
        let found = self.api.get(&format!("/v1/lookup?node_uuid={id}"), AGENT_VERSION).await;
        assert_eq!(found.status, 200, "{}", found.message());
        found.json()["config"]["agent_token"].as_str().unwrap().to_owned()
    }

    /// Sends the heartbeat of an agent.
    pub(crate) async fn heartbeat(&self, id: NodeId, token: &str) -> RawResponse {
        let body = json!({
            "callback_url": "https://192.0.2.7:9999",
            "agent_version": "12.0.0",
            "agent_token": token,
        });
        let path = format!("/v1/heartbeat/{id}");
        self.api.send("POST", &path, AGENT_VERSION, body.to_string().as_bytes()).await
    }
}

/// Whether the node has no job, or one that waits for an external event.
pub(crate) fn is_idle(node: &Node) -> bool {
    let state_class = state_class(node.provision_state);
    node.work.is_none() || matches!(state_class, StateClass::Waiting | StateClass::Held)
}

/// The newest version that agents send.
pub(crate) const AGENT_VERSION: &str = "X-OpenStack-Ironic-API-Version: 1.68\r\n";

/// The header line for version `1.{minor}`.
pub(crate) fn version_header(minor: u16) -> String {
    format!("X-OpenStack-Ironic-API-Version: 1.{minor}\r\n")
}

pub(crate) fn object(value: Value) -> JsonObject {
    let members = value.as_object().expect("a JSON object");
    JsonObject::from(members.clone())
}
