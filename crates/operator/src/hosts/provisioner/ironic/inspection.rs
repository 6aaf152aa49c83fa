// SPDX-License-Identifier: Apache-2.0
//! Inspection by the ramdisk or by the BMC.

use kube_resources::hosts::hardware_data::HardwareDetails;
use kube_resources::hosts::ironic_payloads::hardware_details::{IronicInventory, hardware_details};

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{InspectionRequest, ManagedHost};
use super::calls::IronicCalls;
use super::node::{NodeResponse, NodeState};
use super::patch::NodePatch;
use super::registration::{AGENT_INSPECT_INTERFACE, change_hardware_properties};

const INSPECTING: ProvisionerWaitReason = ProvisionerWaitReason::Inspecting;

impl IronicCalls<'_> {
    pub(super) async fn inspect(
        &self,
        host: &ManagedHost,
        request: &InspectionRequest,
    ) -> VerbOutcome<HardwareDetails> {
        let node = self.node(host).await?;
        match node.provision_state {
            NodeState::Available => {
                let waits = ProvisionerWaitReason::StateChange;
                // Inspection itself has not started yet.
                Err(self.request_target(&node, "manage", waits).await.not_started())
            }
            NodeState::InspectWait if request.is_forced => Err(self.abort(&node).await),
            NodeState::Inspecting | NodeState::InspectWait => Err(node.running(INSPECTING)),
            NodeState::InspectFailed => {
                let was_aborted =
                    node.last_error.as_deref().is_some_and(|error| error.contains("aborted"));
                if !was_aborted && !request.restart_on_failure && !request.refresh {
                    return Err(self.failed(node.error_text("inspection")));
                }
                Err(self.start_inspection(host, request, node).await)
            }
            NodeState::Manageable => {
                if request.refresh {
                    return Err(self.start_inspection(host, request, node).await);
                }
                match self.find(&format!("{}/inventory", node.path())).await? {
                    Some(inventory) => self.read_inventory(inventory),
                    None if node.inspection_finished_at.is_some()
                        && !request.restart_on_failure =>
                    {
                        Err(self
                            .failed("the inspection ended, but the service stored no inventory"))
                    }
                    None => Err(self.start_inspection(host, request, node).await),
                }
            }
            NodeState::CleanFailed | NodeState::AdoptFailed => {
                let waits = ProvisionerWaitReason::StateChange;
                Err(self.request_target(&node, "manage", waits).await.not_started())
            }
            NodeState::Enroll => Err(VerbStop::NeedsRegistration),
            NodeState::DeployFailed | NodeState::Error => {
                let restarts = request.restart_on_failure;
                Err(self.recover(&node, "the last operation", restarts).await)
            }
            NodeState::Active | NodeState::ServiceFailed | NodeState::Other => {
                Err(self.wrong_state(&node, "inspection"))
            }
            NodeState::Verifying
            | NodeState::DeployWait
            | NodeState::Deploying
            | NodeState::Deleting
            | NodeState::Cleaning
            | NodeState::CleanWait
            | NodeState::Adopting
            | NodeState::Servicing
            | NodeState::ServiceWait => Err(node.running(ProvisionerWaitReason::StateChange)),
        }
    }

    fn read_inventory(&self, inventory: serde_json::Value) -> VerbOutcome<HardwareDetails> {
        serde_json::from_value::<IronicInventory>(inventory)
            .map(|inventory| hardware_details(&inventory))
            .map_err(|error| self.failed(format!("the inventory cannot be read: {error}")))
    }

    async fn start_inspection(
        &self,
        host: &ManagedHost,
        request: &InspectionRequest,
        node: NodeResponse,
    ) -> VerbStop {
        let by_bmc = host
            .bmc
            .as_ref()
            .and_then(|bmc| bmc.address.bmc_type.out_of_band_inspect_interface)
            .filter(|_| request.is_fast);
        let interface = by_bmc.unwrap_or(AGENT_INSPECT_INTERFACE);
        let mut patch = NodePatch::default();
        patch.set_text("/inspect_interface", node.inspect_interface.as_deref(), interface);
        change_hardware_properties(
            &mut patch,
            &node,
            request.boot_mode.as_ref(),
            request.architecture.as_deref(),
        );
        match self.patch(node, patch).await {
            Ok(node) => self.request_target(&node, "inspect", INSPECTING).await,
            Err(stop) => stop,
        }
    }
}
