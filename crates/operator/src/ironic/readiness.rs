// SPDX-License-Identifier: Apache-2.0
//! Whether the objects of an installation are ready, and the conditions of its `Ironic`.
//!
//! Objects are JSON as the API server returns them.

use kube_resources::hosts::conditions::{ConditionStatus, ConditionUpdate};
use kube_resources::ironic::conditions::{
    DEPLOYMENT_AVAILABLE, DEPLOYMENT_FAILED, DEPLOYMENT_IN_PROGRESS, FIELDS_WITHOUT_EFFECT,
    NOT_APPLICABLE, READY, RESOURCES_AVAILABLE, RESOURCES_NOT_READY, message,
};
use serde_json::Value;

use super::desired::{DesiredObjectsError, FieldNotice};

/// Whether an object is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectReadiness {
    /// It is ready.
    Ready,
    /// It becomes ready without a change by a user.
    Waiting(String),
    /// A user has to change something.
    Failed(String),
}

impl ObjectReadiness {
    /// Whether it is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }
}

/// Whether an object of one of the generated kinds is ready. Other kinds are ready when they exist.
#[must_use]
pub fn object_readiness(object: &Value) -> ObjectReadiness {
    match object["kind"].as_str() {
        Some("Deployment") => deployment(object),
        Some("DaemonSet") => daemon_set(object),
        Some("StatefulSet") => stateful_set(object),
        Some("Job") => job(object),
        Some("Service") => waiting_unless(
            object["spec"]["clusterIPs"].as_array().is_some_and(|addresses| !addresses.is_empty()),
            "the Service has no address yet",
        ),
        Some("PersistentVolumeClaim") => waiting_unless(
            object["status"]["phase"] == "Bound",
            &format!(
                "volume claim {} has no volume yet; check its events and the storage class",
                name(object)
            ),
        ),
        _ => ObjectReadiness::Ready,
    }
}

fn waiting_unless(is_ready: bool, text: &str) -> ObjectReadiness {
    if is_ready { ObjectReadiness::Ready } else { ObjectReadiness::Waiting(text.to_owned()) }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// The status describes the current spec.
fn is_observed(object: &Value) -> bool {
    number(&object["status"]["observedGeneration"]) >= number(&object["metadata"]["generation"])
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)
}

fn deployment(object: &Value) -> ObjectReadiness {
    let waiting = || ObjectReadiness::Waiting(RESOURCES_NOT_READY.to_owned());
    if !is_observed(object) {
        return waiting();
    }
    let text = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();
    if let Some(failure) = condition(object, "ReplicaFailure").filter(|it| it["status"] == "True") {
        return ObjectReadiness::Waiting(format!("pods cannot be created: {}", text(failure)));
    }
    let progress = condition(object, "Progressing");
    if let Some(progress) = progress.filter(|it| it["reason"] == "ProgressDeadlineExceeded") {
        return ObjectReadiness::Failed(text(progress));
    }
    let is_rolled_out = progress.is_some_and(|it| it["reason"] == "NewReplicaSetAvailable")
        && number(&object["status"]["updatedReplicas"]) >= number(&object["spec"]["replicas"]);
    let is_available = condition(object, "Available").is_some_and(|it| it["status"] == "True");
    // Old pods that are still being deleted may receive requests.
    let has_old_pods =
        number(&object["status"]["replicas"]) > number(&object["status"]["updatedReplicas"]);
    if is_rolled_out && is_available && !has_old_pods { ObjectReadiness::Ready } else { waiting() }
}

fn daemon_set(object: &Value) -> ObjectReadiness {
    let status = &object["status"];
    let desired = number(&status["desiredNumberScheduled"]);
    if is_observed(object) && desired == 0 {
        return ObjectReadiness::Waiting("no node matches the node selector".to_owned());
    }
    let is_ready = is_observed(object)
        && number(&status["numberUnavailable"]) == 0
        && number(&status["updatedNumberScheduled"]) >= desired;
    waiting_unless(is_ready, RESOURCES_NOT_READY)
}

fn stateful_set(object: &Value) -> ObjectReadiness {
    let status = &object["status"];
    let desired = number(&object["spec"]["replicas"]);
    let is_ready = is_observed(object)
        && status["currentRevision"] == status["updateRevision"]
        && number(&status["readyReplicas"]) >= desired
        && number(&status["updatedReplicas"]) >= desired;
    waiting_unless(is_ready, &format!("StatefulSet {} is not ready yet", name(object)))
}

fn job(object: &Value) -> ObjectReadiness {
    let holds = |type_| condition(object, type_).filter(|condition| condition["status"] == "True");
    if holds("Complete").is_some() {
        return ObjectReadiness::Ready;
    }
    match holds("Failed") {
        Some(failure) => ObjectReadiness::Failed(format!(
            "the database schema cannot be changed, job {} failed: {}; see the logs of its pods. \
             Another image or override starts a new job",
            name(object),
            failure["message"].as_str().unwrap_or_default()
        )),
        None => ObjectReadiness::Waiting(format!("waiting for job {}", name(object))),
    }
}

/// Reason and text of the worst object; `None` if all are ready.
pub(crate) fn worst(readiness: &[ObjectReadiness]) -> Option<(&'static str, &str)> {
    let failed = readiness.iter().find_map(|item| match item {
        ObjectReadiness::Failed(text) => Some((DEPLOYMENT_FAILED, text.as_str())),
        ObjectReadiness::Ready | ObjectReadiness::Waiting(_) => None,
    });
    let waiting = readiness.iter().find_map(|item| match item {
        ObjectReadiness::Waiting(text) => Some((DEPLOYMENT_IN_PROGRESS, text.as_str())),
        ObjectReadiness::Ready | ObjectReadiness::Failed(_) => None,
    });
    failed.or(waiting)
}

/// The condition `Ready` for the readiness of all objects. The worst one decides.
#[must_use]
pub fn ready_condition(readiness: &[ObjectReadiness], generation: Option<i64>) -> ConditionUpdate {
    match worst(readiness) {
        Some((reason, text)) => not_ready(reason, text, generation),
        None => ConditionUpdate {
            type_: READY,
            status: ConditionStatus::True,
            reason: DEPLOYMENT_AVAILABLE,
            message: message(RESOURCES_AVAILABLE),
            observed_generation: generation,
        },
    }
}

/// The condition `Ready` for an installation whose objects cannot be computed.
#[must_use]
pub fn failed_condition(error: &DesiredObjectsError, generation: Option<i64>) -> ConditionUpdate {
    not_ready(DEPLOYMENT_FAILED, &error.to_string(), generation)
}

/// The condition `Ready` with status false.
#[must_use]
pub fn not_ready(reason: &'static str, text: &str, generation: Option<i64>) -> ConditionUpdate {
    ConditionUpdate {
        type_: READY,
        status: ConditionStatus::False,
        reason,
        message: message(text),
        observed_generation: generation,
    }
}

/// The condition that lists fields without effect; `None` if there are none and it can be removed.
#[must_use]
pub fn notices_condition(
    notices: &[FieldNotice],
    generation: Option<i64>,
) -> Option<ConditionUpdate> {
    let texts: Vec<String> = notices.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| ConditionUpdate {
        type_: FIELDS_WITHOUT_EFFECT,
        status: ConditionStatus::True,
        reason: NOT_APPLICABLE,
        message: texts.join("; "),
        observed_generation: generation,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment_with(generation: i64, status: Value) -> Value {
        json!({"kind": "Deployment", "metadata": {"generation": generation},
               "spec": {"replicas": 1}, "status": status})
    }

    fn rolled_out(conditions: Value) -> Value {
        json!({"observedGeneration": 2, "updatedReplicas": 1, "replicas": 1, "conditions": conditions})
    }

    #[test]
    fn readiness_of_deployments() {
        let available = json!([{"type": "Available", "status": "True"},
                               {"type": "Progressing", "reason": "NewReplicaSetAvailable"}]);
        let waiting = ObjectReadiness::Waiting("resources are not ready yet".to_owned());
        let ready = rolled_out(available.clone());
        assert_eq!(object_readiness(&deployment_with(2, ready.clone())), ObjectReadiness::Ready);
        assert_eq!(object_readiness(&deployment_with(3, ready)), waiting);
        assert_eq!(object_readiness(&deployment_with(2, Value::Null)), waiting);
        let old_pods = json!({"observedGeneration": 2, "updatedReplicas": 1, "replicas": 2,
                              "conditions": available});
        assert_eq!(object_readiness(&deployment_with(2, old_pods)), waiting);
        let exceeded = json!([{"type": "Progressing", "reason": "ProgressDeadlineExceeded",
                               "message": "has timed out"}]);
        assert_eq!(
            object_readiness(&deployment_with(2, rolled_out(exceeded))),
            ObjectReadiness::Failed("has timed out".to_owned())
        );
        let failure = json!([{"type": "ReplicaFailure", "status": "True", "message": "quota"}]);
        assert_eq!(
            object_readiness(&deployment_with(2, rolled_out(failure))),
            ObjectReadiness::Waiting("pods cannot be created: quota".to_owned())
        );
    }

    #[test]
    fn readiness_of_other_kinds() {
        let daemon_set = |status: Value| {
            object_readiness(&json!({
                "kind": "DaemonSet", "metadata": {"generation": 1}, "status": status,
            }))
        };
        assert_eq!(
            daemon_set(json!({"observedGeneration": 1, "desiredNumberScheduled": 3,
                              "updatedNumberScheduled": 3, "numberUnavailable": 0})),
            ObjectReadiness::Ready
        );
        assert_eq!(
            daemon_set(json!({"observedGeneration": 1, "desiredNumberScheduled": 3,
                              "updatedNumberScheduled": 3, "numberUnavailable": 1})),
            ObjectReadiness::Waiting("resources are not ready yet".to_owned())
        );
        assert_eq!(
            daemon_set(json!({"observedGeneration": 1})),
            ObjectReadiness::Waiting("no node matches the node selector".to_owned())
        );
        let stateful_set = |ready: i64, current: &str| {
            object_readiness(&json!({
                "kind": "StatefulSet", "metadata": {"generation": 2, "name": "s"},
                "spec": {"replicas": 1},
                "status": {"observedGeneration": 2, "readyReplicas": ready, "updatedReplicas": 1,
                           "currentRevision": current, "updateRevision": "new"},
            }))
        };
        assert_eq!(stateful_set(1, "new"), ObjectReadiness::Ready);
        let waiting = ObjectReadiness::Waiting("StatefulSet s is not ready yet".to_owned());
        assert_eq!(stateful_set(0, "new"), waiting);
        assert_eq!(stateful_set(1, "old"), waiting);
        let service = json!({"kind": "Service", "spec": {"clusterIPs": ["10.0.0.1"]}});
        assert_eq!(object_readiness(&service), ObjectReadiness::Ready);
        assert_ne!(object_readiness(&json!({"kind": "Service"})), ObjectReadiness::Ready);
        let claim = |phase: &str| {
            json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
                   "status": {"phase": phase}})
        };
        assert_eq!(object_readiness(&claim("Bound")), ObjectReadiness::Ready);
        assert!(matches!(
            object_readiness(&claim("Pending")),
            ObjectReadiness::Waiting(text) if text.starts_with("volume claim c ")
        ));
        let job = |type_: &str| {
            object_readiness(&json!({"kind": "Job", "metadata": {"name": "j"}, "status": {
                "conditions": [{"type": type_, "status": "True", "message": "backoff limit"}]}}))
        };
        assert_eq!(job("Complete"), ObjectReadiness::Ready);
        assert_eq!(job("Suspended"), ObjectReadiness::Waiting("waiting for job j".to_owned()));
        assert!(matches!(job("Failed"), ObjectReadiness::Failed(text) if text.contains("backoff")));
    }

    #[test]
    fn the_worst_object_decides() {
        let ready = ObjectReadiness::Ready;
        let waiting = ObjectReadiness::Waiting("w".to_owned());
        let failed = ObjectReadiness::Failed("f".to_owned());
        for (readiness, expected) in [
            (vec![], ("True", "DeploymentAvailable", "ironic: resources are available")),
            (vec![ready.clone(), waiting.clone()], ("False", "DeploymentInProgress", "ironic: w")),
            (vec![waiting, failed, ready], ("False", "DeploymentFailed", "ironic: f")),
        ] {
            let condition = ready_condition(&readiness, Some(7));
            let found = (condition.status.as_str(), condition.reason, condition.message.as_str());
            assert_eq!(found, expected);
            assert_eq!(condition.observed_generation, Some(7));
        }
    }

    #[test]
    fn fields_without_effect_are_listed() {
        assert_eq!(notices_condition(&[], None), None);
        let notice = |path: &str| FieldNotice { path: path.to_owned(), reason: "r".to_owned() };
        let condition = notices_condition(&[notice("a"), notice("b")], None).unwrap();
        assert_eq!(condition.message, "a: r; b: r");
    }
}
