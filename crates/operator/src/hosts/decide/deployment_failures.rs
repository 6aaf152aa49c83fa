// SPDX-License-Identifier: Apache-2.0
//! How often the deployment of an image failed. The number is in a condition, so that a restart of the
//! operator does not lose it.

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::conditions::{ConditionStatus, is_true};
use kube_resources::hosts::host_image::{CustomDeploy, HostImage};
use kube_resources::hosts::host_status::BareMetalHostStatus;

use super::conditions;
use super::inputs::HostView;

/// Condition with the number of failures. Not part of Metal3.
pub const DEPLOYMENT_FAILED: &str = "DeploymentFailed";
const FAILED: &str = "ProvisioningFailed";
const NOT_FAILED: &str = "NotFailed";
/// Start of the message; what was deployed and the number follow.
const MESSAGE_START: &str = "Failed deployments of ";

/// How often the requested deployment failed in a row. Another image or another checksum starts at 0.
pub(super) fn count(view: &HostView<'_>) -> i64 {
    let spec = &view.host.spec;
    count_of(&view.status, &subject(spec.image.as_ref(), spec.custom_deploy.as_ref())).unwrap_or(0)
}

fn count_of(status: &BareMetalHostStatus, subject: &str) -> Option<i64> {
    let mut conditions = status.conditions.iter();
    let condition = conditions.find(|condition| condition.type_ == DEPLOYMENT_FAILED)?;
    let (failed, count) = condition.message.strip_prefix(MESSAGE_START)?.rsplit_once(": ")?;
    (condition.status == "True" && failed == subject).then(|| count.parse().ok())?
}

/// What is deployed, as in the message.
fn subject(image: Option<&HostImage>, custom: Option<&CustomDeploy>) -> String {
    match (image.filter(|image| !image.url.is_empty()), custom) {
        (Some(image), _) => match &image.checksum {
            Some(checksum) => format!("{} with the checksum {checksum}", image.url),
            None => image.url.clone(),
        },
        (None, Some(custom)) => format!("the custom deployment {}", custom.method),
        (None, None) => "no image".to_owned(),
    }
}

/// Records another failure of the deployment in the status.
pub(super) fn record(status: &mut BareMetalHostStatus, generation: Option<i64>, now: Timestamp) {
    let deployed = &status.provisioning;
    let subject = subject(deployed.deployed_image(), deployed.custom_deploy.as_ref());
    let count = count_of(status, &subject).unwrap_or(0) + 1;
    let message = format!("{MESSAGE_START}{subject}: {count}");
    let value = (ConditionStatus::True, FAILED, message);
    conditions::set(status, DEPLOYMENT_FAILED, value, generation, now);
}

/// Starts at 0 again.
pub(super) fn clear(status: &mut BareMetalHostStatus, generation: Option<i64>, now: Timestamp) {
    if is_true(&status.conditions, DEPLOYMENT_FAILED) {
        let value = (ConditionStatus::False, NOT_FAILED, String::new());
        conditions::set(status, DEPLOYMENT_FAILED, value, generation, now);
    }
}
