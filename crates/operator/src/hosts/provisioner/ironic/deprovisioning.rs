// SPDX-License-Identifier: Apache-2.0
//! Removal of an image, with automated cleaning.

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{DeprovisionRequest, ManagedHost};
use super::calls::IronicCalls;
use super::node::NodeState;
use super::patch::NodePatch;
use super::registration::change_cleaning;

const UNDEPLOYING: ProvisionerWaitReason = ProvisionerWaitReason::Undeploying;
const CLEANING: ProvisionerWaitReason = ProvisionerWaitReason::Cleaning;

impl IronicCalls<'_> {
    pub(super) async fn deprovision(
        &self,
        host: &ManagedHost,
        request: &DeprovisionRequest,
    ) -> VerbOutcome<()> {
        let node = self.node(host).await?;
        let mut patch = NodePatch::default();
        if node.provision_state.accepts_changes() {
            change_cleaning(&mut patch, &node, request.automated_cleaning.as_ref());
        }
        let node = self.patch(node, patch).await?;
        match node.provision_state {
            NodeState::Available => Ok(()),
            NodeState::Error if !request.restart_on_failure => {
                Err(self.failed(node.error_text("removal of the image")))
            }
            NodeState::Active
            | NodeState::DeployFailed
            | NodeState::DeployWait
            | NodeState::Error
            | NodeState::ServiceFailed => {
                Err(self.request_target(&node, "deleted", UNDEPLOYING).await)
            }
            NodeState::ServiceWait => Err(self.abort(&node).await),
            NodeState::Manageable => Err(self.request_target(&node, "provide", CLEANING).await),
            NodeState::CleanFailed => {
                if !request.restart_on_failure {
                    return Err(self.failed(node.error_text("cleaning")));
                }
                let waits = ProvisionerWaitReason::StateChange;
                Err(self.request_target(&node, "manage", waits).await)
            }
            NodeState::InspectFailed | NodeState::AdoptFailed => {
                let waits = ProvisionerWaitReason::StateChange;
                Err(self.request_target(&node, "manage", waits).await)
            }
            NodeState::Cleaning | NodeState::CleanWait => Err(node.running(CLEANING)),
            NodeState::Deleting | NodeState::Deploying => Err(node.running(UNDEPLOYING)),
            NodeState::Enroll => Err(VerbStop::NeedsRegistration),
            NodeState::Other => Err(self.wrong_state(&node, "removal of the image")),
            NodeState::Verifying
            | NodeState::Inspecting
            | NodeState::InspectWait
            | NodeState::Adopting
            | NodeState::Servicing => Err(node.running(ProvisionerWaitReason::StateChange)),
        }
    }
}
