// SPDX-License-Identifier: Apache-2.0
//! Preparation: RAID, BIOS settings and firmware by manual cleaning.

use kube_resources::hosts::bmc_address::NO_RAID;
use kube_resources::hosts::ironic_payloads::IronicStep;
use kube_resources::hosts::ironic_payloads::firmware::{bios_step, firmware_step};
use kube_resources::hosts::ironic_payloads::raid::{
    logical_disks, raid_clean_steps, raid_interface,
};
use serde_json::json;

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{FirmwareChanges, ManagedHost, PreparationRequest};
use super::calls::IronicCalls;
use super::node::{NodeResponse, NodeState};
use super::patch::NodePatch;

const CLEANING: ProvisionerWaitReason = ProvisionerWaitReason::Cleaning;
const STATE_CHANGE: ProvisionerWaitReason = ProvisionerWaitReason::StateChange;

impl IronicCalls<'_> {
    pub(super) async fn prepare(
        &self,
        host: &ManagedHost,
        request: &PreparationRequest,
    ) -> VerbOutcome<()> {
        let node = self.node(host).await?;
        let needs_hardware_raid =
            request.raid.as_ref().is_some_and(|raid| !raid.hardware().is_empty());
        if needs_hardware_raid && driver_raid(host) == NO_RAID {
            return Err(self.failed(
                "the BMC type of the host has no hardware RAID; remove spec.raid.hardwareRAIDVolumes",
            ));
        }
        let steps = if request.is_start { clean_steps(host, request) } else { Vec::new() };
        match node.provision_state {
            NodeState::Available | NodeState::Manageable if steps.is_empty() => Ok(()),
            NodeState::Available => Err(self.leave_available(&node).await),
            NodeState::Manageable => Err(self.start_cleaning(host, request, node, &steps).await),
            NodeState::Cleaning | NodeState::CleanWait => Err(node.running(CLEANING)),
            NodeState::CleanFailed => {
                if !request.restart_on_failure {
                    return Err(self.failed(node.error_text("cleaning")));
                }
                Err(self.leave_available(&node).await)
            }
            NodeState::InspectFailed | NodeState::AdoptFailed => {
                Err(self.leave_available(&node).await)
            }
            NodeState::DeployFailed | NodeState::Error => {
                let restarts = request.restart_on_failure;
                Err(self.recover(&node, "the last operation", restarts).await)
            }
            NodeState::Active | NodeState::ServiceFailed | NodeState::Other => {
                Err(self.wrong_state(&node, "preparation"))
            }
            NodeState::Enroll => Err(VerbStop::NeedsRegistration),
            NodeState::Verifying
            | NodeState::DeployWait
            | NodeState::Deploying
            | NodeState::Deleting
            | NodeState::Inspecting
            | NodeState::InspectWait
            | NodeState::Adopting
            | NodeState::Servicing
            | NodeState::ServiceWait => Err(node.running(STATE_CHANGE)),
        }
    }

    /// Requests `manageable`. The changes themselves have not started, so this is no start.
    async fn leave_available(&self, node: &NodeResponse) -> VerbStop {
        self.request_target(node, "manage", STATE_CHANGE).await.not_started()
    }

    async fn start_cleaning(
        &self,
        host: &ManagedHost,
        request: &PreparationRequest,
        node: NodeResponse,
        steps: &[IronicStep],
    ) -> VerbStop {
        match self.configure_raid(host, request, node, steps).await {
            Ok(node) => {
                let body = json!({"target": "clean", "clean_steps": steps});
                self.request_state(&node, &body, CLEANING).await
            }
            Err(stop) => stop,
        }
    }

    /// Sets the RAID interface and the volumes for the steps that create them.
    async fn configure_raid(
        &self,
        host: &ManagedHost,
        request: &PreparationRequest,
        node: NodeResponse,
        steps: &[IronicStep],
    ) -> VerbOutcome<NodeResponse> {
        let (Some(raid), true) = (&request.raid, steps.iter().any(|step| step.interface == "raid"))
        else {
            return Ok(node);
        };
        let interface =
            raid_interface(driver_raid(host), Some(raid), request.applied_raid.as_ref());
        let mut patch = NodePatch::default();
        patch.set_text("/raid_interface", node.raid_interface.as_deref(), interface);
        let node = self.patch(node, patch).await?;
        let disks = logical_disks(raid, request.has_root_device_hints);
        // The schema requires a volume. Without one the steps only delete volumes.
        if disks.is_empty() {
            return Ok(node);
        }
        let body = json!({"logical_disks": disks});
        self.put(&format!("{}/states/raid", node.path()), &body).await?;
        Ok(node)
    }
}

fn driver_raid(host: &ManagedHost) -> &'static str {
    host.bmc.as_ref().map_or(NO_RAID, |bmc| bmc.address.bmc_type.raid_interface)
}

fn clean_steps(host: &ManagedHost, request: &PreparationRequest) -> Vec<IronicStep> {
    let raid = request.raid.as_ref();
    let mut steps = raid_clean_steps(driver_raid(host), raid, request.applied_raid.as_ref());
    steps.extend(firmware_steps(&request.firmware));
    steps
}

/// Steps that change BIOS settings and firmware.
pub(super) fn firmware_steps(changes: &FirmwareChanges) -> Vec<IronicStep> {
    let bios = bios_step(&changes.settings, changes.current_settings.as_ref());
    bios.into_iter().chain(firmware_step(&changes.updates)).collect()
}
