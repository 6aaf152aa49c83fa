// SPDX-License-Identifier: Apache-2.0
//! Requests that several verbs use, and how their errors become outcomes.

use ironic_client::{Method, percent_encode};
use serde_json::{Value, json};

use super::super::outcome::{ProvisionerFailureKind, ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::ManagedHost;
use super::node::NodeResponse;
use super::patch::NodePatch;
use super::transport::{IronicTransport, IronicTransportError};
use super::{DEPLOYMENT_ABORT, IronicProvisionerSettings};

/// The calls of one verb.
pub(super) struct IronicCalls<'a> {
    pub(super) transport: &'a dyn IronicTransport,
    pub(super) settings: &'a IronicProvisionerSettings,
    /// The newest microversion of the server.
    pub(super) version: u16,
    /// Kind of the failures of the verb.
    pub(super) kind: ProvisionerFailureKind,
}

impl IronicCalls<'_> {
    /// A failure of the verb.
    pub(super) fn failed(&self, message: impl Into<String>) -> VerbStop {
        VerbStop::failed(self.kind, message)
    }

    /// What an error of a request means for the verb.
    pub(super) fn stop(&self, error: IronicTransportError) -> VerbStop {
        match error.status {
            Some(409) => VerbStop::Busy { reason: error.message },
            Some(400 | 402 | 404..=499) => self.failed(error.message),
            // No response, no permission, or an error of the server: another host would fail too.
            Some(_) | None => VerbStop::NotReady { message: error.message },
        }
    }

    pub(super) async fn get(&self, path: &str) -> VerbOutcome<Value> {
        let result = self.transport.request(Method::GET, path, None).await;
        result.map_err(|error| self.stop(error))
    }

    /// Like [`IronicCalls::get`]; `None` if there is no such resource.
    pub(super) async fn find(&self, path: &str) -> VerbOutcome<Option<Value>> {
        match self.transport.request(Method::GET, path, None).await {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.status == Some(404) => Ok(None),
            Err(error) => Err(self.stop(error)),
        }
    }

    pub(super) async fn find_node(&self, id: &str) -> VerbOutcome<Option<NodeResponse>> {
        let found = self.find(&format!("/v1/nodes/{}", percent_encode(id))).await?;
        found.map(|node| self.parse_node(node)).transpose()
    }

    fn parse_node(&self, node: Value) -> VerbOutcome<NodeResponse> {
        let state_name = node["provision_state"].as_str().unwrap_or("without a name").to_owned();
        let mut node: NodeResponse =
            serde_json::from_value(node).map_err(|error| VerbStop::NotReady {
                message: format!("the service returned a node that cannot be read: {error}"),
            })?;
        node.state_name = state_name;
        Ok(node)
    }

    /// Nothing runs on the node, and the verb cannot continue from its state.
    pub(super) fn wrong_state(&self, node: &NodeResponse, operation: &str) -> VerbStop {
        let error = node.last_error.as_deref().filter(|error| !error.is_empty());
        let error = error.map(|error| format!(" ({error})")).unwrap_or_default();
        self.failed(format!(
            "{operation} is not possible while node {} is in the state '{}'{error}; bring the node to \
             the state 'manageable' or delete it at the service, then set the annotation \
             baremetalhost.metal3.io/retry-now",
            node.uuid, node.state_name
        ))
    }

    /// Removes what is left of a failed deployment or removal from a node whose host has no image. The
    /// first call shows the failure.
    pub(super) async fn recover(
        &self,
        node: &NodeResponse,
        operation: &str,
        restart_on_failure: bool,
    ) -> VerbStop {
        if !restart_on_failure {
            return self.failed(node.error_text(operation));
        }
        let waits = ProvisionerWaitReason::Undeploying;
        self.request_target(node, "deleted", waits).await.not_started()
    }

    /// The node of a registered host.
    pub(super) async fn node(&self, host: &ManagedHost) -> VerbOutcome<NodeResponse> {
        let Some(id) = &host.node_id else { return Err(VerbStop::NeedsRegistration) };
        self.find_node(id).await?.ok_or(VerbStop::NeedsRegistration)
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> VerbOutcome<Value> {
        let result = self.transport.request(Method::POST, path, Some(body)).await;
        result.map_err(|error| self.stop(error))
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> VerbOutcome<()> {
        let result = self.transport.request(Method::PUT, path, Some(body)).await;
        result.map(|_| ()).map_err(|error| self.stop(error))
    }

    pub(super) async fn delete_request(
        &self,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(), IronicTransportError> {
        self.transport.request(Method::DELETE, path, body).await.map(|_| ())
    }

    pub(super) async fn create_node(&self, body: &Value) -> VerbOutcome<NodeResponse> {
        self.post("/v1/nodes", body).await.and_then(|node| self.parse_node(node))
    }

    /// Sends the changes, if there are any, and returns the node with them.
    pub(super) async fn patch(
        &self,
        node: NodeResponse,
        patch: NodePatch,
    ) -> VerbOutcome<NodeResponse> {
        if patch.operations.is_empty() {
            return Ok(node);
        }
        let body = Value::Array(patch.operations);
        let result = self.transport.request(Method::PATCH, &node.path(), Some(&body)).await;
        result.map_err(|error| self.stop(error)).and_then(|node| self.parse_node(node))
    }

    /// Requests a change of the provision state. The result is always a stop.
    pub(super) async fn request_state(
        &self,
        node: &NodeResponse,
        body: &Value,
        reason: ProvisionerWaitReason,
    ) -> VerbStop {
        // The service rejects most changes in maintenance. It ends maintenance for a power failure
        // itself, once it reaches the BMC.
        if node.has_power_failure() {
            let reason = node.maintenance_reason.as_deref().unwrap_or_default();
            return VerbStop::Busy { reason: format!("power failure: {reason}") };
        }
        if let Err(stop) = self.end_maintenance(node).await {
            return stop;
        }
        self.put_state(node, body, reason).await
    }

    async fn put_state(
        &self,
        node: &NodeResponse,
        body: &Value,
        reason: ProvisionerWaitReason,
    ) -> VerbStop {
        match self.put(&format!("{}/states/provision", node.path()), body).await {
            Ok(()) => VerbStop::started(reason),
            Err(stop) => stop,
        }
    }

    /// Aborts an operation, also in maintenance.
    pub(super) async fn abort(&self, node: &NodeResponse) -> VerbStop {
        self.put_state(node, &json!({"target": "abort"}), ProvisionerWaitReason::Aborting).await
    }

    /// Requests a target without parameters.
    pub(super) async fn request_target(
        &self,
        node: &NodeResponse,
        target: &str,
        reason: ProvisionerWaitReason,
    ) -> VerbStop {
        self.request_state(node, &json!({"target": target}), reason).await
    }

    /// Ends maintenance if it is set.
    pub(super) async fn end_maintenance(&self, node: &NodeResponse) -> VerbOutcome<()> {
        if node.maintenance != Some(true) {
            return Ok(());
        }
        let path = format!("{}/maintenance", node.path());
        self.delete_request(&path, None).await.map_err(|error| self.stop(error))
    }

    /// Aborts a deployment that waits for the ramdisk, to remove the node.
    pub(super) async fn abort_deployment(&self, node: &NodeResponse) -> VerbStop {
        // The end of a step that cannot be aborted may never come.
        if self.version >= DEPLOYMENT_ABORT && node.is_deploy_step_abortable() {
            return self.abort(node).await;
        }
        let body = json!({"target": "deleted"});
        self.put_state(node, &body, ProvisionerWaitReason::Aborting).await
    }
}
