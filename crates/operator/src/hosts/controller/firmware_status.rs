// SPDX-License-Identifier: Apache-2.0
//! What the controllers of `HostFirmwareSettings` and `HostFirmwareComponents` have in common.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use kube_resources::field_error::FieldError;
use kube_resources::hosts::conditions::{
    ConditionStatus, ConditionUpdate, firmware, is_true, set_condition,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::merge_patch::{as_json, merge_patch};
use crate::events::ObjectEventRecorder;

/// How often the firmware of an idle host is read. The service reads it from the BMC after every
/// operation, which is reported.
const REFRESH: Duration = Duration::from_secs(6 * 3600);
/// How often it is read while a change is requested.
const REFRESH_CHANGED: Duration = Duration::from_secs(60);
/// When a failed request to the service is repeated.
pub(super) const RETRY: Duration = Duration::from_secs(30);

/// When the firmware is read again.
pub(super) fn next_reading(conditions: &[Condition]) -> Duration {
    if is_true(conditions, firmware::CHANGE_DETECTED) { REFRESH_CHANGED } else { REFRESH }
}

/// Sets the conditions: whether a change was found and whether the request is valid, each with its
/// reason, and what is wrong with the request.
pub(super) fn set_conditions(
    conditions: &mut Vec<Condition>,
    changed: (bool, &'static str),
    valid: (bool, &'static str),
    problem: String,
    observed_generation: Option<i64>,
    now: Timestamp,
) {
    for (type_, (holds, reason), message) in
        [(firmware::CHANGE_DETECTED, changed, String::new()), (firmware::VALID, valid, problem)]
    {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        let update = ConditionUpdate { type_, status, reason, message, observed_generation };
        set_condition(conditions, update, &Time(now));
    }
}

/// Writes a status if it differs, and reports what is wrong with the request.
pub(super) async fn write_status<K, S>(
    api: &Api<K>,
    object: &K,
    (before, after): (Option<&S>, &S),
    problems: &[FieldError],
    (subject, events): (&str, &ObjectEventRecorder),
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    S: Serialize,
{
    let before = before.map_or_else(|| json!({}), as_json);
    let Some(status) = merge_patch(&before, &as_json(after)) else { return Ok(()) };
    let version = object.resource_version();
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
    api.patch_status(&object.name_any(), &PatchParams::default(), &patch).await?;
    for problem in problems {
        let text = format!("Invalid {subject}: {problem}");
        events.warning(object, "ValidationFailed", &text).await;
    }
    Ok(())
}
