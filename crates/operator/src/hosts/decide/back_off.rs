// SPDX-License-Identifier: Apache-2.0
//! Waiting after failures. The next attempt is in a condition, so that users see it and a restart of
//! the operator does not repeat a failing operation at once.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::ACCEPT_REPLACED_MACHINE;
use kube_resources::hosts::conditions::ConditionStatus;
use kube_resources::hosts::host_status::{BareMetalHostStatus, HostErrorType};

use super::super::provisioner::DIFFERENT_MACHINE;
use super::action::HostAction;
use super::conditions;
use super::inputs::{BmcAccessState, HostView};

/// Condition with the time of the next attempt. Not part of Metal3.
pub const RETRY_SCHEDULED: &str = "RetryScheduled";
/// The longest time between two attempts.
pub const MAX_BACK_OFF: Duration = Duration::from_secs(600);
const FIRST_BACK_OFF: Duration = Duration::from_secs(30);
/// Start of the condition's message; the time follows.
const MESSAGE_START: &str = "Next attempt at ";
const NOT_SCHEDULED: &str = "NotScheduled";
/// Reason after the annotation `retry-now` was seen.
pub(super) const RETRY_REQUESTED: &str = "RetryRequested";

/// Time until the next attempt: doubled with every failure, up to the limit. Hosts that fail together
/// are spread by up to a quarter.
pub(super) fn delay(error_count: i64, uid: &str) -> Duration {
    let doublings = u32::try_from(error_count.clamp(1, 10) - 1).unwrap_or(0);
    let full = FIRST_BACK_OFF.saturating_mul(1 << doublings).min(MAX_BACK_OFF);
    full - full.mul_f64(spread(uid, error_count) / 4.0)
}

/// A number from 0 to 1 that depends only on its inputs.
pub(super) fn spread(uid: &str, salt: i64) -> f64 {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in uid.bytes().chain(salt.to_le_bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    f64::from(hash % 1000) / 1000.0
}

/// Records when the next attempt starts.
pub(super) fn schedule(
    status: &mut BareMetalHostStatus,
    reason: &'static str,
    at: Timestamp,
    generation: Option<i64>,
    now: Timestamp,
) {
    let text = format!(
        "{MESSAGE_START}{at:.0}, after {} failed; set the annotation \
         baremetalhost.metal3.io/retry-now to start it at once",
        attempts(status.error_count)
    );
    let value = (ConditionStatus::True, reason, text);
    conditions::set(status, RETRY_SCHEDULED, value, generation, now);
}

fn attempts(count: i64) -> String {
    if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") }
}

/// Records that the user requested the next attempt at once.
pub(super) fn request_now(
    status: &mut BareMetalHostStatus,
    generation: Option<i64>,
    now: Timestamp,
) {
    let text = format!("{MESSAGE_START}{now:.0}, as requested by annotation");
    let value = (ConditionStatus::True, RETRY_REQUESTED, text);
    conditions::set(status, RETRY_SCHEDULED, value, generation, now);
}

/// Removes the schedule, if there is one.
pub(super) fn clear(status: &mut BareMetalHostStatus, generation: Option<i64>, now: Timestamp) {
    if scheduled(&status.conditions).is_some() {
        let value = (ConditionStatus::False, NOT_SCHEDULED, String::new());
        conditions::set(status, RETRY_SCHEDULED, value, generation, now);
    }
}

/// The condition, if an attempt is scheduled.
pub(super) fn scheduled(conditions: &[Condition]) -> Option<&Condition> {
    let mut found = conditions.iter().filter(|condition| condition.type_ == RETRY_SCHEDULED);
    found.find(|condition| condition.status == "True")
}

/// When an attempt was scheduled last, or when the scheduled one started.
pub(super) fn changed_at(conditions: &[Condition]) -> Option<Timestamp> {
    let mut found = conditions.iter().filter(|condition| condition.type_ == RETRY_SCHEDULED);
    found.next().map(|condition| condition.last_transition_time.0)
}

/// When the next attempt starts; `None` if it is due, for example because the message was changed.
fn next_attempt(condition: &Condition) -> Option<Timestamp> {
    let rest = condition.message.strip_prefix(MESSAGE_START)?;
    rest.split(',').next()?.parse().ok()
}

/// Waits if the last attempt failed and nothing changed since.
pub(super) fn wait(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    if view.status.error_message.is_empty() || has_new_credentials(view) {
        return None;
    }
    let condition = scheduled(&view.status.conditions)?;
    let is_accepted = condition.reason == DIFFERENT_MACHINE
        && view.annotations().contains_key(ACCEPT_REPLACED_MACHINE);
    if condition.observed_generation != view.generation() || is_accepted {
        return None;
    }
    let left = next_attempt(condition)?.duration_since(now);
    let after = Duration::try_from(left).ok().filter(|left| !left.is_zero())?;
    Some(HostAction::Wait { after: Some(after) })
}

/// Whether a failed registration used other credentials.
fn has_new_credentials(view: &HostView<'_>) -> bool {
    let BmcAccessState::Usable { secret, version } = &view.companions.bmc_access else {
        return false;
    };
    let is_registration = matches!(
        view.status.error_type,
        Some(HostErrorType::Registration | HostErrorType::ProvisionedRegistration)
    );
    let namespace = view.host.metadata.namespace.as_deref().unwrap_or_default();
    is_registration && !view.status.tried_credentials.matches(namespace, secret, version)
}
