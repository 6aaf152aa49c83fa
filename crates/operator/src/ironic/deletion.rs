// SPDX-License-Identifier: Apache-2.0
//! Deletion of an installation: first its pods, then everything else, in bounded time.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube_resources::ironic::conditions::DEPLOYMENT_IN_PROGRESS;
use kube_resources::ironic::names::{IRONIC_FINALIZER, IRONIC_LABEL, event_reason};

use super::controller::{IronicReconciler, event_subject};
use super::readiness::not_ready;
use super::reconcile::DELETION_POLL;
use super::status::StatusUpdate;
use crate::object_loop::Obstacle;
use crate::object_patches::ObjectPatches;
use crate::owned_objects::{DeletionState, OwnedObjects};
use crate::reconcile_loop::RESYNC;

/// Time after which the `Ironic` is deleted even if some of its objects still exist. The garbage
/// collector deletes these later.
const DEADLINE: Duration = Duration::from_secs(600);

/// Kinds in the order of their deletion. Those of a step are deleted when those of the earlier ones do
/// not exist any more: pods use the others.
const STEPS: &[&[(&str, &str)]] = &[
    &[
        ("networking.k8s.io/v1", "Ingress"),
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
        ("batch/v1", "Job"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
    ],
    &[("v1", "Service"), ("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "PersistentVolumeClaim")],
];

impl IronicReconciler {
    /// Deletes the objects of an installation, then removes the finalizer.
    pub(super) async fn delete_installation(
        &self,
        object: &DynamicObject,
        patches: &ObjectPatches,
        owned: &OwnedObjects,
    ) -> Result<Duration, Obstacle> {
        let finalizers = object.metadata.finalizers.iter().flatten();
        if !finalizers.into_iter().any(|finalizer| finalizer == IRONIC_FINALIZER) {
            return Ok(RESYNC);
        }
        self.forget_ramdisks(object);
        let remaining = delete_next(object, owned).await;
        let is_late = is_past_deadline(object, Timestamp::now());
        match remaining {
            Ok(names) if names.is_empty() => {
                patches.remove_finalizer(object, IRONIC_FINALIZER).await?;
                Ok(RESYNC)
            }
            Ok(names) if !is_late => {
                let text = format!("deletion waits for {}", names.join(", "));
                let generation = object.metadata.generation;
                let update = StatusUpdate {
                    ready: not_ready(DEPLOYMENT_IN_PROGRESS, &text, generation),
                    notices: None,
                    requested_version: None,
                };
                self.write_status(object, update).await?;
                Ok(DELETION_POLL)
            }
            Err(obstacle) if !is_late => Err(obstacle),
            result => {
                let what = result.map_or_else(|obstacle| obstacle.text, |names| names.join(", "));
                let note = format!(
                    "not all objects were deleted within {} minutes: {what}; the garbage collector \
                     of the cluster deletes the rest",
                    DEADLINE.as_secs() / 60
                );
                let subject = event_subject(object);
                self.events.warning(&subject, event_reason::DELETION_INCOMPLETE, &note).await;
                patches.remove_finalizer(object, IRONIC_FINALIZER).await?;
                Ok(RESYNC)
            }
        }
    }
}

/// Deletes the objects of the first step that has some, and returns those that still exist.
async fn delete_next(
    object: &DynamicObject,
    owned: &OwnedObjects,
) -> Result<Vec<String>, Obstacle> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let label = format!("{IRONIC_LABEL}={name}");
    for step in STEPS {
        let mut remaining = Vec::new();
        for (api_version, kind) in *step {
            for identity in owned.list(api_version, kind, &label).await? {
                if owned.delete(&identity).await? == DeletionState::Deleting {
                    remaining.push(format!("{kind} {}", identity.name));
                }
            }
        }
        if !remaining.is_empty() {
            return Ok(remaining);
        }
    }
    Ok(Vec::new())
}

fn is_past_deadline(object: &DynamicObject, now: Timestamp) -> bool {
    let Some(deleted_at) = &object.metadata.deletion_timestamp else { return false };
    now >= deleted_at.0 + DEADLINE
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    use super::*;

    #[test]
    fn deletion_has_a_deadline() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let object = |deleted_at: Option<i64>| DynamicObject {
            types: None,
            metadata: ObjectMeta {
                deletion_timestamp: deleted_at.map(|second| Time(at(second))),
                ..ObjectMeta::default()
            },
            data: serde_json::Value::Null,
        };
        assert!(!is_past_deadline(&object(Some(1000)), at(1599)));
        assert!(is_past_deadline(&object(Some(1000)), at(1600)));
        assert!(!is_past_deadline(&object(None), at(i64::from(u32::MAX))));
    }
}
