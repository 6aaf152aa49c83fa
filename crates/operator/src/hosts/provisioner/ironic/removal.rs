// SPDX-License-Identifier: Apache-2.0
//! Removal of a node, for deleted and for detached hosts.

use ironic_client::Method;
use serde_json::json;

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::ManagedHost;
use super::calls::IronicCalls;
use super::node::{NodeResponse, NodeState};
use super::patch::NodePatch;

/// Which operations are aborted when a node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbortScope {
    /// None.
    Nothing,
    /// All but automated cleaning, which removes the data of the last user.
    AllButErasure,
    /// All.
    Everything,
}

const DELETING: ProvisionerWaitReason = ProvisionerWaitReason::Deleting;

impl IronicCalls<'_> {
    /// Removes the node; done once there is none. Operations that wait for the ramdisk are aborted as
    /// far as `aborts` permits.
    pub(super) async fn remove(&self, host: &ManagedHost, aborts: AbortScope) -> VerbOutcome<()> {
        // Not by MAC address, because that node can belong to another host.
        let Some(node) = self.own_node(host).await? else { return Ok(()) };
        if let Some(stop) = self.abort_waiting(&node, aborts).await {
            return Err(stop);
        }
        match node.provision_state {
            NodeState::Available | NodeState::Manageable => {
                let mut patch = NodePatch::default();
                patch.remove("/instance_uuid", node.instance_uuid.is_some());
                let node = self.patch(node, patch).await?;
                Err(self.delete_node(&node).await)
            }
            NodeState::Enroll => Err(self.delete_node(&node).await),
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
            | NodeState::ServiceWait => Err(VerbStop::running(DELETING, node.step())),
            NodeState::Active
            | NodeState::DeployFailed
            | NodeState::CleanFailed
            | NodeState::Error
            | NodeState::InspectFailed
            | NodeState::AdoptFailed
            | NodeState::ServiceFailed
            | NodeState::Other => {
                // Only in maintenance can a node in these states be deleted without changing the host.
                if node.maintenance != Some(true) {
                    let body = json!({"reason": "the host is detached or deleted"});
                    self.put(&format!("{}/maintenance", node.path()), &body).await?;
                }
                Err(self.delete_node(&node).await)
            }
        }
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

    async fn delete_node(&self, node: &NodeResponse) -> VerbStop {
        match self.transport.request(Method::DELETE, &node.path(), None).await {
            Ok(_) => VerbStop::started(DELETING),
            Err(error) if error.status == Some(404) => VerbStop::started(DELETING),
            Err(error) => self.stop(error),
        }
    }
}
