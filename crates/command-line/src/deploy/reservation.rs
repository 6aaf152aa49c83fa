// SPDX-License-Identifier: Apache-2.0
//! Allocations of a deployment: reserve a node, set its `instance_info`, and undo both.

use std::time::Duration;

use ironic_client::{Api, Method, QueryString, percent_encode};
use serde_json::{Map, Value, json};

use super::checks;
use crate::assignments::json_pointer;
use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::selection::{self, SelectedNode};

const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// What APIs return in place of secrets.
const MASK: &str = "******";
/// Interfaces that must validate; failures of others may not matter for the image.
const REQUIRED_INTERFACES: [&str; 4] = ["boot", "deploy", "management", "power"];

/// The requirements for one node.
pub(super) struct AllocationRequest {
    pub(super) hostname: Option<String>,
    pub(super) resource_class: String,
    pub(super) traits: Vec<String>,
    pub(super) candidates: Vec<String>,
}

/// A reserved node, or one that is about to be.
pub(super) struct DeployReservation {
    request: AllocationRequest,
    /// UUID of the allocation, chosen by the client so that it is known even if the response is lost.
    pub(super) uuid: String,
    /// Whether the allocation was requested.
    is_requested: bool,
    pub(super) node: Option<SelectedNode>,
    /// MAC addresses of the node's ports.
    pub(super) macs: Vec<String>,
    /// `instance_info` before it was changed.
    previous_instance_info: Option<Value>,
}

impl DeployReservation {
    pub(super) fn new(request: AllocationRequest) -> Self {
        Self {
            request,
            uuid: uuid::Uuid::new_v4().to_string(),
            is_requested: false,
            node: None,
            macs: Vec::new(),
            previous_instance_info: None,
        }
    }

    pub(super) fn hostname(&self) -> Option<&str> {
        self.request.hostname.as_deref()
    }

    fn path(&self) -> String {
        format!("/v1/allocations/{}", percent_encode(&self.uuid))
    }

    /// Requests the allocation and waits until a node is selected.
    pub(super) async fn allocate(&mut self, context: &CliContext) -> Result<(), CliError> {
        let request = &self.request;
        let mut body = json!({ "uuid": self.uuid, "resource_class": request.resource_class });
        if let Some(hostname) = &request.hostname {
            body["name"] = json!(hostname);
        }
        if !request.traits.is_empty() {
            body["traits"] = json!(request.traits);
        }
        if !request.candidates.is_empty() {
            body["candidate_nodes"] = json!(request.candidates);
        }
        self.is_requested = true;
        let mut allocation = self.create_allocation(&context.api, &body).await?;
        while allocation["state"] == "allocating" {
            tokio::time::sleep(POLL_INTERVAL).await;
            allocation = context.api.get(&self.path()).await?;
        }
        let Some(node) = allocation["node_uuid"].as_str() else {
            let why = allocation["last_error"].as_str().unwrap_or("the server gives no reason");
            return Err(CliError::Rejected(format!(
                "no machine could be allocated: {why}; run again with --dry-run to see why for each machine"
            )));
        };
        let node = selection::find_node(&context.api, node, Some(selection::FIELDS)).await?;
        self.node = Some(SelectedNode::new(node));
        Ok(())
    }

    /// Creates the allocation. After a lost response it checks whether it exists.
    async fn create_allocation(&self, api: &Api, body: &Value) -> Result<Value, CliError> {
        let error = match api.send(Method::POST, "/v1/allocations", Some(body)).await {
            Ok(allocation) => return Ok(allocation),
            Err(error) => error,
        };
        if !error.may_have_been_executed() {
            return Err(error.into());
        }
        match api.find(&self.path()).await? {
            Some(allocation) => Ok(allocation),
            None => Ok(api.send(Method::POST, "/v1/allocations", Some(body)).await?),
        }
    }

    /// Sets the node's `instance_info` and validates its interfaces.
    pub(super) async fn prepare(
        &mut self,
        api: &Api,
        instance: &Map<String, Value>,
    ) -> Result<(), CliError> {
        let Some(selected) = &self.node else { return Ok(()) };
        let set = |(key, value): (&String, &Value)| json!({ "op": "add", "path": json_pointer(&format!("instance_info.{key}")), "value": value });
        let mut operations: Vec<Value> = instance.iter().map(set).collect();
        if let Some(hostname) = &self.request.hostname {
            let path = json_pointer("instance_info.display_name");
            operations.push(json!({ "op": "add", "path": path, "value": hostname }));
        }
        let query = QueryString::new().with("fields", "instance_info");
        let mut node = api.get(&query.append_to(&selected.path())).await?;
        self.previous_instance_info = Some(node["instance_info"].take());
        api.patch(&selected.path(), &operations).await?;
        let checks = api.get(&format!("{}/validate", selected.path())).await?;
        let failed =
            REQUIRED_INTERFACES.iter().find(|interface| checks[interface]["result"] == false);
        if let Some(interface) = failed {
            let why = checks[interface]["reason"].as_str().unwrap_or("the server gives no reason");
            let label = &selected.label;
            let hint = checks::checksum_hint(why, instance);
            return Err(CliError::Rejected(format!(
                "cannot deploy {label}: validation of its {interface} interface failed: {why}{hint}"
            )));
        }
        let query = QueryString::new().with("node", &selected.uuid).with("fields", "address");
        let ports = api.list("/v1/ports", "ports", &query).await?;
        self.macs =
            ports.iter().filter_map(|port| Some(port["address"].as_str()?.to_owned())).collect();
        Ok(())
    }

    /// Restores `instance_info` and deletes the allocation.
    pub(super) async fn release(
        &self,
        api: &Api,
        instance: &Map<String, Value>,
    ) -> Result<(), CliError> {
        if let (Some(selected), Some(before)) = (&self.node, &self.previous_instance_info) {
            let query = QueryString::new().with("fields", "instance_info");
            let node = api.get(&query.append_to(&selected.path())).await?;
            let named = (!instance.contains_key("display_name")).then_some("display_name");
            let keys = instance.keys().map(String::as_str).chain(named);
            let operations = restore_operations(before, &node["instance_info"], keys);
            if !operations.is_empty() {
                api.patch(&selected.path(), &operations).await?;
            }
        }
        if self.is_requested {
            match api.send(Method::DELETE, &self.path(), None).await {
                Ok(_) => {}
                // It was not created.
                Err(error) if error.status() == Some(404) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The command that releases the node.
    pub(super) fn release_command(&self) -> String {
        format!("ferrite allocation delete {}", self.uuid)
    }

    /// The node's name, or the hostname or allocation while no node is selected.
    pub(super) fn label(&self) -> &str {
        let selected = self.node.as_ref().map(|selected| selected.label.as_str());
        selected.or(self.hostname()).unwrap_or(&self.uuid)
    }
}

/// Builds the JSON patch that restores these keys of `instance_info`.
fn restore_operations<'a>(
    before: &Value,
    now: &Value,
    keys: impl Iterator<Item = &'a str>,
) -> Vec<Value> {
    let operation = |key: &str| {
        let path = json_pointer(&format!("instance_info.{key}"));
        match (before.get(key), now.get(key)) {
            (before, now) if before == now => None,
            // Masked secrets cannot be restored.
            (Some(Value::String(mask)), _) if mask == MASK => None,
            (Some(value), _) => Some(json!({ "op": "add", "path": path, "value": value })),
            (None, _) => Some(json!({ "op": "remove", "path": path })),
        }
    };
    keys.filter_map(operation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restores_previous_values() {
        let before = json!({"image_source": "old", "same": 1, "other": 2, "image_password": MASK});
        let now = json!({
            "image_source": "new", "same": 1, "other": 3, "image_password": MASK,
            "display_name": "web",
        });
        let keys = ["image_source", "same", "image_checksum", "image_password", "display_name"];
        assert_eq!(
            restore_operations(&before, &now, keys.into_iter()),
            [
                json!({"op": "add", "path": "/instance_info/image_source", "value": "old"}),
                json!({"op": "remove", "path": "/instance_info/display_name"}),
            ]
        );
    }
}
