// SPDX-License-Identifier: Apache-2.0
//! Servicing: BIOS settings and firmware of a provisioned host.

use serde_json::json;

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{ManagedHost, ServicingRequest};
use super::calls::IronicCalls;
use super::node::{NodeResponse, NodeState};
use super::preparation::firmware_steps;

const SERVICING: ProvisionerWaitReason = ProvisionerWaitReason::Servicing;

impl IronicCalls<'_> {
    pub(super) async fn service(
        &self,
        host: &ManagedHost,
        request: &ServicingRequest,
    ) -> VerbOutcome<()> {
        let node = self.node(host).await?;
        let steps = firmware_steps(&request.firmware);
        let is_withdrawn =
            request.firmware.settings.is_empty() && request.firmware.updates.is_empty();
        let body = json!({"target": "service", "service_steps": steps});
        match node.provision_state {
            NodeState::Active if !request.is_start || steps.is_empty() => Ok(()),
            NodeState::Active => Err(self.request_state(&node, &body, SERVICING).await),
            NodeState::ServiceFailed if is_withdrawn => Err(self.leave_failed_service(&node).await),
            NodeState::ServiceFailed if request.restart_on_failure && !steps.is_empty() => {
                Err(self.request_state(&node, &body, SERVICING).await)
            }
            NodeState::ServiceFailed => Err(self.failed(node.error_text("servicing"))),
            NodeState::ServiceWait if is_withdrawn => Err(self.abort(&node).await),
            NodeState::Servicing | NodeState::ServiceWait => Err(node.running(SERVICING)),
            NodeState::Enroll => Err(VerbStop::NeedsRegistration),
            NodeState::Manageable
            | NodeState::Available
            | NodeState::DeployFailed
            | NodeState::CleanFailed
            | NodeState::Error
            | NodeState::InspectFailed
            | NodeState::AdoptFailed
            | NodeState::Other => Err(self.wrong_state(&node, "servicing")),
            NodeState::Verifying
            | NodeState::DeployWait
            | NodeState::Deploying
            | NodeState::Deleting
            | NodeState::Cleaning
            | NodeState::CleanWait
            | NodeState::Inspecting
            | NodeState::InspectWait
            | NodeState::Adopting => Err(node.running(ProvisionerWaitReason::StateChange)),
        }
    }

    /// The request was withdrawn after it had failed: back to `active`.
    async fn leave_failed_service(&self, node: &NodeResponse) -> VerbStop {
        if let Err(stop) = self.end_maintenance(node).await {
            return stop;
        }
        self.abort(node).await
    }
}
