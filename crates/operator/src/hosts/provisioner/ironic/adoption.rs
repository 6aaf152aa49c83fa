// SPDX-License-Identifier: Apache-2.0
//! Adoption of a host that runs a system already.

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{AdoptionRequest, ManagedHost};
use super::calls::IronicCalls;
use super::node::NodeState;

const ADOPTING: ProvisionerWaitReason = ProvisionerWaitReason::Adopting;

impl IronicCalls<'_> {
    pub(super) async fn adopt(
        &self,
        host: &ManagedHost,
        request: &AdoptionRequest,
    ) -> VerbOutcome<()> {
        let node = self.node(host).await?;
        match node.provision_state {
            NodeState::Enroll => Err(VerbStop::NeedsRegistration),
            NodeState::Verifying => Err(node.running(ProvisionerWaitReason::Verifying)),
            NodeState::Manageable => Err(self.request_target(&node, "adopt", ADOPTING).await),
            NodeState::Adopting => Err(node.running(ADOPTING)),
            NodeState::AdoptFailed => {
                if !request.restart_on_failure {
                    return Err(self.failed(node.error_text("adoption")));
                }
                Err(self.request_target(&node, "adopt", ADOPTING).await)
            }
            NodeState::Active => {
                // The service ends maintenance itself once a power failure is over.
                if node.fault.is_none() {
                    self.end_maintenance(&node).await?;
                }
                Ok(())
            }
            NodeState::Available
            | NodeState::DeployWait
            | NodeState::Deploying
            | NodeState::DeployFailed
            | NodeState::Deleting
            | NodeState::Cleaning
            | NodeState::CleanWait
            | NodeState::CleanFailed
            | NodeState::Error
            | NodeState::Inspecting
            | NodeState::InspectWait
            | NodeState::InspectFailed
            | NodeState::Servicing
            | NodeState::ServiceWait
            | NodeState::ServiceFailed
            | NodeState::Other => Ok(()),
        }
    }
}
