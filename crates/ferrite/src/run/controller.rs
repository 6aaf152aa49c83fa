// SPDX-License-Identifier: Apache-2.0
//! Drives the service from the creation of the node to the end of the operation.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ironic_client::{Api, IronicClientError, Method, QueryString, percent_encode};
use node_model::{InterfaceKind, PowerTarget, Verb};
use serde_json::{Map, Value, json};

use super::decide::{RunDecision, RunOperation, decide};
use super::host_file::{HostFile, name_host_file_keys};
use super::outcome::RunFailure;
use super::progress::{RunOutput, RunResult};
use super::record::{RunRecord, RunStatus, StateDir};

const POLL_INTERVAL: Duration = Duration::from_millis(250);
const POLLED_FIELDS: &str = "provision_state,target_provision_state,power_state,target_power_state,\
                             last_error,reservation";
/// Entries of the timeline in one response.
const TIMELINE_LIMIT: usize = 1000;

/// The operation of one node.
pub(super) struct RunController<'a> {
    pub(super) api: Api,
    pub(super) operation: RunOperation,
    pub(super) host: &'a HostFile,
    pub(super) host_path: &'a Path,
    pub(super) state: &'a StateDir,
    pub(super) record: RunRecord,
    pub(super) output: RunOutput,
}

impl RunController<'_> {
    /// Prepares the node, unless an earlier run did, and performs the operation.
    pub(super) async fn run(mut self) -> Result<RunResult, RunFailure> {
        if self.record.status != RunStatus::Running {
            self.prepare().await?;
        }
        let result = self.follow().await;
        self.record.status = match &result {
            Ok(_) => RunStatus::Done,
            Err(_) => RunStatus::Failed,
        };
        self.state.store(&self.record)?;
        result
    }

    /// Creates or updates the node and its ports. It can be repeated after a kill, because nothing was
    /// requested yet.
    async fn prepare(&mut self) -> Result<(), RunFailure> {
        let node = self.api.find(&self.node_path("")).await?;
        // Before the record of the earlier operation is replaced: it stays if this one is refused.
        if let Some(node) = &node {
            self.check_decision(node)?;
        }
        self.record.status = RunStatus::Preparing;
        self.state.store(&self.record)?;
        let mut fields = self.host.node.clone();
        fields.insert("uuid".to_owned(), json!(self.record.node_uuid));
        if let Some(instance) = &self.host.instance {
            let info = Value::Object(instance.instance_info.clone());
            fields.insert("instance_info".to_owned(), info);
        }
        if self.operation == (RunOperation::Clean { has_steps: false }) {
            // Otherwise the configuration could disable the only thing to do.
            fields.insert("automated_clean".to_owned(), json!(true));
        }
        match node {
            None => {
                self.api.send(Method::POST, "/v1/nodes", Some(&Value::Object(fields))).await?;
            }
            Some(node) => self.update_node(&node, fields).await?,
        }
        self.create_ports().await?;
        self.record.after_seq = self.last_entry().await?;
        self.record.status = RunStatus::Running;
        self.state.store(&self.record)
    }

    /// Fails if the operation is not possible with the node of an earlier one.
    fn check_decision(&self, node: &Value) -> Result<(), RunFailure> {
        match decide(self.operation, node, &BTreeSet::new()) {
            RunDecision::Refused(reason) => Err(RunFailure::invalid_input(reason)),
            RunDecision::Failed(error) => {
                Err(RunFailure::of_operation(self.operation.name(), &error))
            }
            RunDecision::Provision(_)
            | RunDecision::Power(_)
            | RunDecision::Wait
            | RunDecision::Done => Ok(()),
        }
    }

    /// Updates the node of an earlier operation.
    async fn update_node(
        &self,
        node: &Value,
        mut fields: Map<String, Value>,
    ) -> Result<(), RunFailure> {
        fields.remove("uuid");
        // Responses contain no secrets to compare with.
        let is_changed = |(key, value): &(String, Value)| {
            key == "driver_info" || key == "instance_info" || node[key] != *value
        };
        let changes: Vec<Value> = fields
            .into_iter()
            .filter(is_changed)
            .map(|(key, value)| json!({"op": "add", "path": format!("/{key}"), "value": value}))
            .collect();
        let body = Value::Array(changes);
        self.send_when_unlocked(Method::PATCH, &self.node_path(""), Some(&body)).await?;
        if node["maintenance"] == true {
            let path = self.node_path("/maintenance");
            self.send_when_unlocked(Method::DELETE, &path, None).await?;
        }
        Ok(())
    }

    /// Creates missing ports and updates the others.
    async fn create_ports(&self) -> Result<(), RunFailure> {
        let query =
            QueryString::new().with("node", &self.record.node_uuid).with("fields", "uuid,address");
        let existing = self.api.list("/v1/ports", "ports", &query).await?;
        for fields in &self.host.ports {
            let port = existing.iter().find(|port| Some(&port["address"]) == fields.get("address"));
            match port {
                None => {
                    let mut body = fields.clone();
                    body.insert("node_uuid".to_owned(), json!(self.record.node_uuid));
                    self.api.send(Method::POST, "/v1/ports", Some(&Value::Object(body))).await?;
                }
                Some(port) => {
                    let changed = fields.iter().filter(|(key, _)| *key != "address");
                    let changes: Vec<Value> = changed
                        .map(|(key, value)| {
                            json!({"op": "add", "path": format!("/{key}"), "value": value})
                        })
                        .collect();
                    if !changes.is_empty() {
                        let uuid = port["uuid"].as_str().unwrap_or_default();
                        let path = format!("/v1/ports/{}", percent_encode(uuid));
                        let body = Value::Array(changes);
                        self.send_when_unlocked(Method::PATCH, &path, Some(&body)).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the deployment as the service does before it writes an image. Cleaning comes first and erases
    /// the disks, so an invalid deployment must be found before it.
    async fn validate_deployment(&self) -> Result<(), RunFailure> {
        let results = self.api.get(&self.node_path("/validate")).await?;
        // The deploy interface also checks the boot interface.
        let deploy = &results[InterfaceKind::Deploy.as_str()];
        if deploy["result"] != false {
            return Ok(());
        }
        let reason = deploy["reason"].as_str().unwrap_or("no reason was reported");
        Err(RunFailure::invalid_input(format!(
            "cannot deploy with the host file {}: {}; nothing was erased",
            self.host_path.display(),
            name_host_file_keys(reason.trim_end_matches('.'))
        )))
    }

    /// Requests each next verb until the operation has ended.
    async fn follow(&self) -> Result<RunResult, RunFailure> {
        let path = QueryString::new().with("fields", POLLED_FIELDS).append_to(&self.node_path(""));
        let mut seen = self.record.after_seq;
        let mut requested = BTreeSet::new();
        loop {
            let node = self.api.get(&path).await?;
            for entry in self.new_entries(seen).await? {
                seen = entry["seq"].as_u64().unwrap_or(seen);
                if entry["event"]["kind"] == "requested"
                    && let Some(target) = entry["event"]["target"].as_str()
                {
                    requested.insert(target.to_owned());
                }
                self.output.entry(&entry);
            }
            match decide(self.operation, &node, &requested) {
                RunDecision::Wait => tokio::time::sleep(POLL_INTERVAL).await,
                RunDecision::Provision(verb) => {
                    if verb == Verb::Provide && self.operation == RunOperation::Deploy {
                        self.validate_deployment().await?;
                    }
                    self.request_verb(verb).await?;
                }
                RunDecision::Power(target) => self.request_power(target).await?,
                RunDecision::Done => return self.result(&node).await,
                RunDecision::Refused(reason) => return Err(RunFailure::invalid_input(reason)),
                RunDecision::Failed(error) => {
                    return Err(RunFailure::of_operation(self.operation.name(), &error));
                }
            }
        }
    }

    async fn request_verb(&self, verb: Verb) -> Result<(), RunFailure> {
        let mut body = json!({ "target": verb });
        if verb == Verb::Clean {
            body["clean_steps"] = json!(self.host.clean_steps);
        }
        if verb == Verb::Active
            && let Some(instance) = &self.host.instance
        {
            if let Some(drive) = instance.config_drive(&self.record.node_uuid, self.host.name()) {
                body["configdrive"] = drive;
            }
            if !instance.deploy_steps.is_empty() {
                body["deploy_steps"] = json!(instance.deploy_steps);
            }
        }
        self.request("/states/provision", &body).await
    }

    async fn request_power(&self, target: PowerTarget) -> Result<(), RunFailure> {
        self.request("/states/power", &json!({ "target": target })).await
    }

    /// Sends a request. If the node is locked, the next poll decides again.
    async fn request(&self, path: &str, body: &Value) -> Result<(), RunFailure> {
        match self.api.send(Method::PUT, &self.node_path(path), Some(body)).await {
            Ok(_) => Ok(()),
            Err(error) if is_locked(&error) => {
                tokio::time::sleep(POLL_INTERVAL).await;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn send_when_unlocked(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(), RunFailure> {
        loop {
            match self.api.send(method.clone(), path, body).await {
                Ok(_) => return Ok(()),
                Err(error) if is_locked(&error) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn result(&self, node: &Value) -> Result<RunResult, RunFailure> {
        let mut result = RunResult::default();
        match self.operation {
            RunOperation::Inspect => {
                let inventory = self.api.get(&self.node_path("/inventory")).await?;
                self.state.store_inventory(&inventory)?;
                result.inventory = Some(inventory);
            }
            RunOperation::Power(_) | RunOperation::PowerStatus => {
                result.power_state = node["power_state"].as_str().map(str::to_owned);
            }
            RunOperation::Deploy | RunOperation::Clean { .. } => {}
        }
        Ok(result)
    }

    /// The journal entries of the node after a number.
    async fn new_entries(&self, after: u64) -> Result<Vec<Value>, RunFailure> {
        let mut entries = Vec::new();
        let mut after = after;
        loop {
            let page = self.timeline(&[("after", after), ("limit", TIMELINE_LIMIT as u64)]).await?;
            let is_last = page.len() < TIMELINE_LIMIT;
            after = page.last().and_then(|entry| entry["seq"].as_u64()).unwrap_or(after);
            entries.extend(page);
            if is_last {
                return Ok(entries);
            }
        }
    }

    /// The number of the last journal entry of the node.
    async fn last_entry(&self) -> Result<u64, RunFailure> {
        let page = self.timeline(&[("last", 1)]).await?;
        Ok(page.last().and_then(|entry| entry["seq"].as_u64()).unwrap_or_default())
    }

    async fn timeline(&self, query: &[(&str, u64)]) -> Result<Vec<Value>, RunFailure> {
        let mut parameters = QueryString::new();
        for (name, value) in query {
            parameters.add(name, &value.to_string());
        }
        let uuid = percent_encode(&self.record.node_uuid);
        let path = parameters.append_to(&format!("/v1/ferrite/nodes/{uuid}/timeline"));
        let mut page = self.api.get(&path).await?;
        Ok(match page["timeline"].take() {
            Value::Array(entries) => entries,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => Vec::new(),
        })
    }

    fn node_path(&self, rest: &str) -> String {
        format!("/v1/nodes/{}{rest}", percent_encode(&self.record.node_uuid))
    }
}

/// Whether the request can succeed later without any change.
fn is_locked(error: &IronicClientError) -> bool {
    matches!(error.status(), Some(409 | 503))
}
