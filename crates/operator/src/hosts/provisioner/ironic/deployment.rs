// SPDX-License-Identifier: Apache-2.0
//! Deployment of images, live ISOs and custom deployments.

use kube_resources::hosts::ironic_payloads::capabilities::instance_capabilities;
use kube_resources::hosts::ironic_payloads::image::{
    custom_deploy_steps, has_image, image_changes,
};
use kube_resources::hosts::ironic_payloads::root_device::root_device;
use serde_json::{Map, Value, json};

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{HostDeployRequest, ManagedHost};
use super::calls::IronicCalls;
use super::node::{NodeResponse, NodeState};
use super::patch::NodePatch;
use super::registration::{boot_mode, change_cleaning, change_hardware_properties};

const DEPLOYING: ProvisionerWaitReason = ProvisionerWaitReason::Deploying;

impl IronicCalls<'_> {
    pub(super) async fn provision(
        &self,
        host: &ManagedHost,
        request: &HostDeployRequest,
    ) -> VerbOutcome<()> {
        let node = self.node(host).await?;
        match node.provision_state {
            // Servicing reports its own failures.
            NodeState::Active | NodeState::ServiceFailed => Ok(()),
            NodeState::Available => Err(self.start_deployment(host, request, node).await),
            NodeState::DeployFailed => {
                let image = request.image.as_ref();
                if image.is_some_and(|image| !has_image(&node.instance_info, image)) {
                    return Err(self.start_deployment(host, request, node).await);
                }
                Err(self.failed(node.error_text("deployment")))
            }
            NodeState::Manageable => {
                let mut patch = NodePatch::default();
                change_cleaning(&mut patch, &node, request.automated_cleaning.as_ref());
                let node = self.patch(node, patch).await?;
                Err(self.request_target(&node, "provide", ProvisionerWaitReason::Cleaning).await)
            }
            // Not an abort: that would be a failed deployment.
            NodeState::DeployWait if request.is_forced => {
                Err(self.request_target(&node, "deleted", ProvisionerWaitReason::Aborting).await)
            }
            NodeState::DeployWait | NodeState::Deploying => Err(node.running(DEPLOYING)),
            NodeState::Cleaning | NodeState::CleanWait | NodeState::Deleting => {
                Err(node.running(ProvisionerWaitReason::Cleaning))
            }
            NodeState::CleanFailed if !request.restart_on_failure => {
                Err(self.failed(node.error_text("cleaning")))
            }
            NodeState::Enroll => Err(VerbStop::NeedsRegistration),
            // The image is removed before the next attempt.
            NodeState::Error => Err(self.failed(node.error_text("removal of the image"))),
            // Not a failed deployment: that would remove the image of the node.
            NodeState::Other => {
                Err(VerbStop::Busy { reason: self.wrong_state(&node, "deployment").to_string() })
            }
            NodeState::CleanFailed | NodeState::InspectFailed | NodeState::AdoptFailed => {
                let waits = ProvisionerWaitReason::StateChange;
                Err(self.request_target(&node, "manage", waits).await)
            }
            NodeState::Verifying
            | NodeState::Inspecting
            | NodeState::InspectWait
            | NodeState::Adopting
            | NodeState::Servicing
            | NodeState::ServiceWait => Err(node.running(ProvisionerWaitReason::StateChange)),
        }
    }

    async fn start_deployment(
        &self,
        host: &ManagedHost,
        request: &HostDeployRequest,
        node: NodeResponse,
    ) -> VerbStop {
        let patch = self.instance_patch(host, request, &node);
        let validated = match self.patch(node, patch).await {
            Ok(node) => self.validate(&node).await.map(|()| node),
            Err(stop) => Err(stop),
        };
        let node = match validated {
            Ok(node) => node,
            Err(stop) => return stop,
        };
        let mut body = Map::from_iter([("target".to_owned(), json!("active"))]);
        if let Some(drive) = &request.config_drive {
            body.insert("configdrive".to_owned(), drive.clone());
        }
        let steps = custom_deploy_steps(request.custom_deploy.as_ref());
        if !steps.is_empty() {
            body.insert("deploy_steps".to_owned(), Value::Array(steps));
        }
        self.request_state(&node, &Value::Object(body), DEPLOYING).await
    }

    fn instance_patch(
        &self,
        host: &ManagedHost,
        request: &HostDeployRequest,
        node: &NodeResponse,
    ) -> NodePatch {
        let mut patch = NodePatch::default();
        let secret = request.pull_secret.as_ref().map(|secret| secret.0.as_str());
        let mut changes = image_changes(
            request.image.as_ref(),
            request.custom_deploy.as_ref(),
            secret,
            &self.settings.boot_device_persistence,
        );
        let capabilities = instance_capabilities(&boot_mode(request.boot_mode.as_ref()));
        changes.instance_info.insert("capabilities", Some(Value::Object(capabilities)));
        let hints = request.root_device_hints.as_ref().map(root_device);
        let hints = hints.filter(|hints| !hints.is_empty()).map(Value::Object);
        changes.instance_info.insert("root_device", hints);
        patch.set_text("/instance_uuid", node.instance_uuid.as_deref(), &host.uid);
        patch.change_members("/instance_info", &node.instance_info, &changes.instance_info);
        match changes.deploy_interface {
            Some(interface) => {
                patch.set_text("/deploy_interface", node.deploy_interface.as_deref(), interface);
            }
            // Without an operation for the default there is only its removal.
            None => {
                let special = ["ramdisk", "custom-agent"];
                let is_special =
                    node.deploy_interface.as_deref().is_some_and(|name| special.contains(&name));
                patch.remove("/deploy_interface", is_special);
            }
        }
        if let Some(value) = changes.force_persistent_boot_device {
            let key = "force_persistent_boot_device";
            patch.set(&format!("/driver_info/{key}"), node.driver_info.get(key), json!(value));
        }
        change_hardware_properties(&mut patch, node, request.boot_mode.as_ref(), None);
        patch
    }

    /// Only the boot and deploy interfaces matter for a deployment.
    async fn validate(&self, node: &NodeResponse) -> VerbOutcome<()> {
        let report = self.get(&format!("{}/validate", node.path())).await?;
        let reasons: Vec<String> = ["boot", "deploy"]
            .into_iter()
            .filter(|interface| report[interface]["result"] == json!(false))
            .map(|interface| {
                let reason = report[interface]["reason"].as_str().unwrap_or("no reason given");
                format!("{interface}: {reason}")
            })
            .collect();
        match reasons.is_empty() {
            true => Ok(()),
            false => {
                Err(self.failed(format!("the host cannot be deployed: {}", reasons.join("; "))))
            }
        }
    }
}
