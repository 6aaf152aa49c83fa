// SPDX-License-Identifier: Apache-2.0
//! The fields of a node that are used.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::super::outcome::{ProvisionerWaitReason, VerbStop};

/// A node as the API returns it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeResponse {
    pub(super) uuid: String,
    pub(super) name: Option<String>,
    pub(super) driver: Option<String>,
    #[serde(deserialize_with = "state")]
    pub(super) provision_state: NodeState,
    pub(super) target_provision_state: Option<String>,
    pub(super) power_state: Option<String>,
    pub(super) target_power_state: Option<String>,
    pub(super) last_error: Option<String>,
    pub(super) reservation: Option<String>,
    pub(super) inspection_finished_at: Option<String>,
    #[serde(deserialize_with = "object")]
    pub(super) driver_info: Map<String, Value>,
    #[serde(deserialize_with = "object")]
    pub(super) driver_internal_info: Map<String, Value>,
    #[serde(deserialize_with = "object")]
    pub(super) instance_info: Map<String, Value>,
    #[serde(deserialize_with = "object")]
    pub(super) properties: Map<String, Value>,
    #[serde(deserialize_with = "object")]
    pub(super) network_data: Map<String, Value>,
    pub(super) instance_uuid: Option<String>,
    pub(super) maintenance: Option<bool>,
    pub(super) maintenance_reason: Option<String>,
    pub(super) fault: Option<String>,
    pub(super) deploy_interface: Option<String>,
    pub(super) inspect_interface: Option<String>,
    pub(super) raid_interface: Option<String>,
    pub(super) boot_interface: Option<String>,
    pub(super) automated_clean: Option<bool>,
    pub(super) disable_power_off: Option<bool>,
    pub(super) health: Option<String>,
    /// The state as the service names it.
    #[serde(skip)]
    pub(super) state_name: String,
    deploy_step: Value,
    clean_step: Value,
    service_step: Value,
}

fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NodeState, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    Ok(NodeState::parse(text.as_deref().unwrap_or_default()))
}

/// Provision state of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NodeState {
    Enroll,
    Verifying,
    Manageable,
    Available,
    Active,
    DeployWait,
    Deploying,
    DeployFailed,
    Deleting,
    Cleaning,
    CleanWait,
    CleanFailed,
    Error,
    Inspecting,
    InspectWait,
    InspectFailed,
    Adopting,
    AdoptFailed,
    Servicing,
    ServiceWait,
    ServiceFailed,
    /// Rescue and others that the operator never requests.
    #[default]
    Other,
}

impl NodeState {
    fn parse(text: &str) -> Self {
        match text {
            "enroll" => Self::Enroll,
            "verifying" => Self::Verifying,
            "manageable" => Self::Manageable,
            "available" => Self::Available,
            "active" => Self::Active,
            "wait call-back" => Self::DeployWait,
            "deploying" => Self::Deploying,
            "deploy failed" => Self::DeployFailed,
            "deleting" => Self::Deleting,
            "cleaning" => Self::Cleaning,
            "clean wait" => Self::CleanWait,
            "clean failed" => Self::CleanFailed,
            "error" => Self::Error,
            "inspecting" => Self::Inspecting,
            "inspect wait" => Self::InspectWait,
            "inspect failed" => Self::InspectFailed,
            "adopting" => Self::Adopting,
            "adopt failed" => Self::AdoptFailed,
            "servicing" => Self::Servicing,
            "service wait" => Self::ServiceWait,
            "service failed" => Self::ServiceFailed,
            _ => Self::Other,
        }
    }

    /// Whether the node boots or runs a ramdisk, or waits for it.
    pub(super) fn uses_ramdisk(self) -> bool {
        match self {
            Self::DeployWait
            | Self::Deploying
            | Self::Deleting
            | Self::Cleaning
            | Self::CleanWait
            | Self::Inspecting
            | Self::InspectWait => true,
            Self::Enroll
            | Self::Verifying
            | Self::Manageable
            | Self::Available
            | Self::Active
            | Self::DeployFailed
            | Self::CleanFailed
            | Self::Error
            | Self::InspectFailed
            | Self::Adopting
            | Self::AdoptFailed
            | Self::Servicing
            | Self::ServiceWait
            | Self::ServiceFailed
            | Self::Other => false,
        }
    }

    /// Whether the API accepts changes of the node, except of its address and credentials.
    pub(super) fn accepts_changes(self) -> bool {
        match self {
            Self::Enroll
            | Self::Manageable
            | Self::Available
            | Self::Active
            | Self::DeployFailed
            | Self::CleanFailed
            | Self::Error
            | Self::InspectWait
            | Self::InspectFailed
            | Self::AdoptFailed
            | Self::ServiceFailed
            | Self::Other => true,
            Self::Verifying
            | Self::DeployWait
            | Self::Deploying
            | Self::Deleting
            | Self::Cleaning
            | Self::CleanWait
            | Self::Inspecting
            | Self::Adopting
            | Self::Servicing
            | Self::ServiceWait => false,
        }
    }

    /// Whether the API accepts changes of ports.
    pub(super) fn accepts_ports(self) -> bool {
        match self {
            Self::Enroll
            | Self::Manageable
            | Self::Available
            | Self::Active
            | Self::DeployFailed
            | Self::CleanFailed
            | Self::InspectFailed
            | Self::AdoptFailed
            | Self::ServiceFailed
            | Self::Error => true,
            Self::Verifying
            | Self::DeployWait
            | Self::Deploying
            | Self::Deleting
            | Self::Cleaning
            | Self::CleanWait
            | Self::Inspecting
            | Self::InspectWait
            | Self::Adopting
            | Self::Servicing
            | Self::ServiceWait
            | Self::Other => false,
        }
    }
}

impl NodeResponse {
    /// Whether the service has used the BMC.
    pub(super) fn is_verified(&self) -> bool {
        !matches!(self.provision_state, NodeState::Enroll | NodeState::Verifying)
    }

    /// The running step, such as `deploy.write_image`.
    pub(super) fn step(&self) -> Option<String> {
        [&self.deploy_step, &self.clean_step, &self.service_step].into_iter().find_map(|step| {
            let name = step["step"].as_str()?;
            Some(match step["interface"].as_str() {
                Some(interface) => format!("{interface}.{name}"),
                None => name.to_owned(),
            })
        })
    }

    /// An operation of the service is waited for. While the service repeats what failed, `last_error`
    /// has the failure and the time of the next attempt.
    pub(super) fn running(&self, reason: ProvisionerWaitReason) -> VerbStop {
        let failure = self.last_error.clone().filter(|error| !error.is_empty());
        VerbStop::running(reason, self.step()).with_failure(failure)
    }

    /// Whether the running step was aborted, but cannot end early.
    pub(super) fn is_abort_requested(&self) -> bool {
        let steps = [&self.deploy_step, &self.clean_step, &self.service_step];
        steps.into_iter().any(|step| step["abort_after"] == true)
    }

    /// Whether the running deploy step ends at once if it is aborted.
    pub(super) fn is_deploy_step_abortable(&self) -> bool {
        self.deploy_step["abortable"] != false
    }

    /// The last error, or a text for a missing one.
    pub(super) fn error_text(&self, operation: &str) -> String {
        match self.last_error.as_deref().filter(|error| !error.is_empty()) {
            Some(error) => error.to_owned(),
            None => format!("{operation} failed and the service gives no reason; see its log"),
        }
    }

    /// Whether the service set maintenance because it cannot reach the BMC.
    pub(super) fn has_power_failure(&self) -> bool {
        self.fault.as_deref() == Some("power failure")
    }

    /// Whether the running cleaning is automated cleaning that is not disabled. Manual cleaning leads
    /// to `manageable`.
    pub(super) fn is_erased(&self) -> bool {
        self.target_provision_state.as_deref() != Some("manageable")
            && self.automated_clean != Some(false)
    }

    /// Path of the node in the API.
    pub(super) fn path(&self) -> String {
        format!("/v1/nodes/{}", self.uuid)
    }
}
