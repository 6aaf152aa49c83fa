// SPDX-License-Identifier: Apache-2.0
//! Removal of a node, for deleted and for detached hosts.

use ironic_client::Method;
use serde_json::json;

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{AbortScope, ManagedHost};
use super::calls::IronicCalls;
use super::lookup::node_name;
use super::node::{NodeResponse, NodeState};
use super::patch::NodePatch;

const DELETING: ProvisionerWaitReason = ProvisionerWaitReason::Deleting;

impl IronicCalls<'_> {
    /// Removes the node; done once there is none. Operations that wait for the ramdisk are aborted as
    /// far as `aborts` permits.
    pub(super) async fn remove(&self, host: &ManagedHost, aborts: AbortScope) -> VerbOutcome<()> {
        // Not by MAC address, because that node can belong to another host.
        let Some(node) = self.own_node(host).await? else { return Ok(()) };
        if host.node_id.is_none() && aborts != AbortScope::Forced && may_run_system(&node) {
            tracing::warn!(
                namespace = host.namespace,
                name = host.name,
                node = node.uuid,
                state = node.state_name,
                "host deleted, the node of an earlier host with the same name stays"
            );
            return Ok(());
        }
        let stop = self.remove_node(node, aborts).await;
        if let VerbStop::Busy { reason } = &stop
            && aborts == AbortScope::Forced
        {
            // The lock ends with the running request.
            return Err(VerbStop::running(DELETING, None).with_failure(Some(reason.clone())));
        }
        Err(stop)
    }

    async fn remove_node(&self, node: NodeResponse, aborts: AbortScope) -> VerbStop {
        let is_forced = aborts == AbortScope::Forced;
        let is_aborted = is_forced && node.is_abort_requested();
        if !is_aborted && let Some(stop) = self.abort_waiting(&node, aborts).await {
            let is_accepted = matches!(stop, VerbStop::InProgress(_));
            if is_accepted || !is_forced {
                return stop;
            }
        }
        match node.provision_state {
            NodeState::Available | NodeState::Manageable => {
                let mut patch = NodePatch::default();
                patch.remove("/instance_uuid", node.instance_uuid.is_some());
                match self.patch(node, patch).await {
                    Ok(node) => removing(self.delete_node(&node).await),
                    Err(stop) => stop,
                }
            }
            NodeState::Enroll => removing(self.delete_node(&node).await),
            NodeState::Verifying
            | NodeState::Inspecting
            | NodeState::InspectWait
            | NodeState::Cleaning
            | NodeState::CleanWait
            | NodeState::Deploying
            | NodeState::DeployWait
            | NodeState::Deleting
            | NodeState::Adopting
            | NodeState::Servicing
            | NodeState::ServiceWait => match is_forced {
                true => removing(self.delete_in_maintenance(&node).await),
                false => node.running(DELETING),
            },
            NodeState::Active
            | NodeState::DeployFailed
            | NodeState::CleanFailed
            | NodeState::Error
            | NodeState::InspectFailed
            | NodeState::AdoptFailed
            | NodeState::ServiceFailed
            | NodeState::Other => removing(self.delete_in_maintenance(&node).await),
        }
    }

    /// Removes a node that the deletion of an earlier host with the same name left behind, if its deployment
    /// failed. The machine is not changed. Returns false if the node can be used for the new host. A node
    /// that may run a system is never removed, because the new host may have lost its status.
    pub(super) async fn remove_leftover(
        &self,
        host: &ManagedHost,
        node: &NodeResponse,
    ) -> VerbOutcome<bool> {
        // Nodes with other names may belong to another owner.
        if node.name.as_deref() != Some(node_name(host).as_str()) {
            return Ok(false);
        }
        if may_run_system(node) {
            return Err(self.machine_in_use(host, node));
        }
        match node.provision_state {
            NodeState::DeployFailed | NodeState::Error => {
                self.delete_in_maintenance(node).await?;
                tracing::info!(
                    namespace = host.namespace,
                    name = host.name,
                    node = node.uuid,
                    state = node.state_name,
                    "removed the node of an earlier host with the same name"
                );
                Ok(true)
            }
            NodeState::DeployWait => {
                let stop = self.abort_waiting(node, AbortScope::AllButErasure).await;
                Err(stop.unwrap_or_else(|| node.running(DELETING)))
            }
            NodeState::Deploying | NodeState::Deleting | NodeState::Adopting => {
                Err(node.running(DELETING))
            }
            NodeState::Enroll
            | NodeState::Verifying
            | NodeState::Manageable
            | NodeState::Available
            | NodeState::Cleaning
            | NodeState::CleanWait
            | NodeState::CleanFailed
            | NodeState::Inspecting
            | NodeState::InspectWait
            | NodeState::InspectFailed
            | NodeState::Active
            | NodeState::AdoptFailed
            | NodeState::Servicing
            | NodeState::ServiceWait
            | NodeState::ServiceFailed
            | NodeState::Other => Ok(false),
        }
    }

    fn machine_in_use(&self, host: &ManagedHost, node: &NodeResponse) -> VerbStop {
        self.failed(format!(
            "the service has the node {} ({}) of an earlier host with this name in the state '{}', so the \
             machine may run a system; to keep the system set spec.externallyProvisioned, to give it up delete \
             the node at the service (deleting this host leaves the node)",
            node.uuid,
            node_name(host),
            node.state_name
        ))
    }

    /// Only in maintenance can a node with a deployment be deleted without changing the host.
    async fn delete_in_maintenance(&self, node: &NodeResponse) -> VerbOutcome<()> {
        if node.maintenance != Some(true) {
            let body = json!({"reason": "the host is detached or deleted"});
            self.put(&format!("{}/maintenance", node.path()), &body).await?;
        }
        self.delete_node(node).await
    }

    /// Aborts an operation that waits for the ramdisk; `None` if there is none to abort.
    pub(super) async fn abort_waiting(
        &self,
        node: &NodeResponse,
        aborts: AbortScope,
    ) -> Option<VerbStop> {
        match (node.provision_state, aborts) {
            (_, AbortScope::Nothing) => None,
            (NodeState::DeployWait, _) => Some(self.abort_deployment(node).await),
            (NodeState::CleanWait, AbortScope::AllButErasure) if node.is_erased() => None,
            (NodeState::InspectWait | NodeState::CleanWait | NodeState::ServiceWait, _) => {
                Some(self.abort(node).await)
            }
            (
                NodeState::Enroll
                | NodeState::Verifying
                | NodeState::Manageable
                | NodeState::Available
                | NodeState::Active
                | NodeState::Deploying
                | NodeState::DeployFailed
                | NodeState::Deleting
                | NodeState::Cleaning
                | NodeState::CleanFailed
                | NodeState::Error
                | NodeState::Inspecting
                | NodeState::InspectFailed
                | NodeState::Adopting
                | NodeState::AdoptFailed
                | NodeState::Servicing
                | NodeState::ServiceFailed
                | NodeState::Other,
                _,
            ) => None,
        }
    }

    async fn delete_node(&self, node: &NodeResponse) -> VerbOutcome<()> {
        match self.transport.request(Method::DELETE, &node.path(), None).await {
            Ok(_) => Ok(()),
            Err(error) if error.status == Some(404) => Ok(()),
            Err(error) => Err(self.stop(error)),
        }
    }
}

/// Whether the machine may run a system that was deployed.
fn may_run_system(node: &NodeResponse) -> bool {
    match node.provision_state {
        NodeState::Active
        | NodeState::AdoptFailed
        | NodeState::Servicing
        | NodeState::ServiceWait
        | NodeState::ServiceFailed
        | NodeState::Other => true,
        // It is set before the adoption of a machine.
        NodeState::Manageable => node.instance_uuid.is_some(),
        NodeState::Enroll
        | NodeState::Verifying
        | NodeState::Available
        | NodeState::Deploying
        | NodeState::DeployWait
        | NodeState::DeployFailed
        | NodeState::Deleting
        | NodeState::Cleaning
        | NodeState::CleanWait
        | NodeState::CleanFailed
        | NodeState::Error
        | NodeState::Inspecting
        | NodeState::InspectWait
        | NodeState::InspectFailed
        | NodeState::Adopting => false,
    }
}

/// The next call finds out whether the node is gone.
fn removing(outcome: VerbOutcome<()>) -> VerbStop {
    outcome.err().unwrap_or_else(|| VerbStop::started(DELETING))
}
