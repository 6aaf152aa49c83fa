// SPDX-License-Identifier: Apache-2.0
//! How often the deployment of an image failed, and why. Both are in a condition, so that a restart of the
//! operator does not lose them.

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
/// Start of the message; what was deployed, the number and the last failure follow.
const MESSAGE_START: &str = "Failed deployments of ";
const FAILURE_START: &str = "; last failure: ";

/// How often the requested deployment failed in a row. Another image or another checksum starts at 0.
pub(super) fn count(view: &HostView<'_>) -> i64 {
    let spec = &view.host.spec;
    count_of(&view.status, &subject(spec.image.as_ref(), spec.custom_deploy.as_ref())).unwrap_or(0)
}

/// The text of the last failure of the requested deployment.
pub(super) fn last_failure(view: &HostView<'_>) -> Option<String> {
    let spec = &view.host.spec;
    let subject = subject(spec.image.as_ref(), spec.custom_deploy.as_ref());
    let (_, failure) = details(&view.status, &subject)?.split_once(FAILURE_START)?;
    Some(failure.to_owned())
}

fn count_of(status: &BareMetalHostStatus, subject: &str) -> Option<i64> {
    let details = details(status, subject)?;
    details.split_once(FAILURE_START).map_or(details, |(count, _)| count).parse().ok()
}

/// The number of failures and the last one, if that deployment failed last.
fn details<'a>(status: &'a BareMetalHostStatus, subject: &str) -> Option<&'a str> {
    let mut conditions = status.conditions.iter();
    let condition = conditions.find(|condition| condition.type_ == DEPLOYMENT_FAILED)?;
    let failed =
        condition.message.strip_prefix(MESSAGE_START).filter(|_| condition.status == "True");
    failed?.strip_prefix(subject)?.strip_prefix(": ")
}

fn deployed_subject(status: &BareMetalHostStatus) -> String {
    let deployed = &status.provisioning;
    subject(deployed.deployed_image(), deployed.custom_deploy.as_ref())
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

/// Records another failure of the deployment in the status. Returns how many there were in a row.
pub(super) fn record(
    status: &mut BareMetalHostStatus,
    failure: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> i64 {
    let subject = deployed_subject(status);
    let count = count_of(status, &subject).unwrap_or(0) + 1;
    let message = format!("{MESSAGE_START}{subject}: {count}{FAILURE_START}{failure}");
    let value = (ConditionStatus::True, FAILED, message);
    conditions::set(status, DEPLOYMENT_FAILED, value, generation, now);
    count
}

/// Starts at 0 again.
pub(super) fn clear(status: &mut BareMetalHostStatus, generation: Option<i64>, now: Timestamp) {
    if is_true(&status.conditions, DEPLOYMENT_FAILED) {
        let value = (ConditionStatus::False, NOT_FAILED, String::new());
        conditions::set(status, DEPLOYMENT_FAILED, value, generation, now);
    }
}
