// SPDX-License-Identifier: Apache-2.0
//! The next status of an `Ironic`, and the events that belong to its changes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::conditions::{ConditionStatus, ConditionUpdate, is_true, set_condition};
use kube_resources::ironic::conditions::{
    DEPLOYMENT_FAILED, DEPLOYMENT_IN_PROGRESS, FIELDS_WITHOUT_EFFECT, READY,
};
use kube_resources::ironic::names::event_reason::{IRONIC_NOT_READY, IRONIC_READY};
use kube_resources::ironic::service::IronicStatus;

use super::desired::FieldNotice;
use super::readiness::{not_ready, notices_condition};
use crate::object_loop::Obstacle;

/// The result of a pass for the status.
pub(super) struct StatusUpdate<'a> {
    /// The condition `Ready`.
    pub(super) ready: ConditionUpdate,
    /// Fields without effect; `None` if they are not known.
    pub(super) notices: Option<&'a [FieldNotice]>,
    /// The version that is requested, if it is known.
    pub(super) requested_version: Option<String>,
}

/// A changed status.
#[derive(Debug, PartialEq)]
pub(super) struct ChangedStatus {
    pub(super) status: IronicStatus,
    /// The event about readiness, if that changed.
    pub(super) event: Option<ReadinessEvent>,
}

/// An event about readiness.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadinessEvent {
    pub(super) reason: &'static str,
    pub(super) note: String,
    pub(super) is_warning: bool,
}

/// The next status; `None` if it is the current one.
pub(super) fn changed_status(
    current: &IronicStatus,
    update: StatusUpdate<'_>,
    now: Timestamp,
) -> Option<ChangedStatus> {
    let now = Time(now);
    let mut status = current.clone();
    let was_ready = is_true(&current.conditions, READY);
    let is_ready = update.ready.status == ConditionStatus::True;
    let note = update.ready.message.clone();
    let generation = update.ready.observed_generation;
    set_condition(&mut status.conditions, update.ready, &now);
    if let Some(notices) = update.notices {
        match notices_condition(notices, generation) {
            Some(condition) => {
                set_condition(&mut status.conditions, condition, &now);
            }
            None => status.conditions.retain(|it| it.type_ != FIELDS_WITHOUT_EFFECT),
        }
    }
    if let Some(version) = update.requested_version {
        if is_ready {
            status.installed_version = Some(version.clone());
        }
        status.requested_version = Some(version);
    }
    let event = match (was_ready, is_ready) {
        (false, true) => Some(ReadinessEvent { reason: IRONIC_READY, note, is_warning: false }),
        (true, false) => Some(ReadinessEvent { reason: IRONIC_NOT_READY, note, is_warning: true }),
        (true, true) | (false, false) => None,
    };
    (status != *current).then_some(ChangedStatus { status, event })
}

/// The condition `Ready` for an obstacle.
pub(super) fn obstacle_condition(
    obstacle: &Obstacle,
    generation: Option<i64>,
    next_attempt: Timestamp,
) -> ConditionUpdate {
    let reason = if obstacle.needs_user { DEPLOYMENT_FAILED } else { DEPLOYMENT_IN_PROGRESS };
    not_ready(reason, &obstacle_text(obstacle, next_attempt), generation)
}

/// The text of an obstacle. If it may pass, it has the time of the next attempt.
pub(crate) fn obstacle_text(obstacle: &Obstacle, next_attempt: Timestamp) -> String {
    let seconds = Timestamp::from_second(next_attempt.as_second()).unwrap_or(next_attempt);
    match obstacle.needs_user {
        true => obstacle.text.clone(),
        false => format!("{}; next attempt at {seconds}", obstacle.text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::readiness::{ObjectReadiness, ready_condition};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn update<'a>(readiness: &[ObjectReadiness], version: &str) -> StatusUpdate<'a> {
        StatusUpdate {
            ready: ready_condition(readiness, Some(3)),
            notices: Some(&[]),
            requested_version: Some(version.to_owned()),
        }
    }

    #[test]
    fn a_version_is_installed_when_everything_is_ready() {
        let waiting = [ObjectReadiness::Waiting("pods".to_owned())];
        let first = changed_status(&IronicStatus::default(), update(&waiting, "0.1"), at(1));
        let first = first.unwrap();
        assert_eq!(first.event, None);
        assert_eq!(first.status.requested_version.as_deref(), Some("0.1"));
        assert_eq!(first.status.installed_version, None);
        assert_eq!(changed_status(&first.status, update(&waiting, "0.1"), at(2)), None);

        let ready = changed_status(&first.status, update(&[], "0.1"), at(3)).unwrap();
        assert_eq!(ready.event.unwrap().reason, "IronicReady");
        assert_eq!(ready.status.installed_version.as_deref(), Some("0.1"));

        let upgrade = changed_status(&ready.status, update(&waiting, "0.2"), at(4)).unwrap();
        let event = upgrade.event.unwrap();
        assert_eq!((event.reason, event.note.as_str()), ("IronicNotReady", "ironic: pods"));
        assert!(event.is_warning);
        assert_eq!(upgrade.status.installed_version.as_deref(), Some("0.1"));
    }

    #[test]
    fn fields_without_effect_are_listed_while_they_exist() {
        let notice = [FieldNotice { path: "spec.a".to_owned(), reason: "r".to_owned() }];
        let with = StatusUpdate { notices: Some(&notice), ..update(&[], "0.1") };
        let status = changed_status(&IronicStatus::default(), with, at(1)).unwrap().status;
        assert!(is_true(&status.conditions, FIELDS_WITHOUT_EFFECT));
        let unknown = StatusUpdate { notices: None, ..update(&[], "0.1") };
        assert_eq!(changed_status(&status, unknown, at(2)), None);
        let status = changed_status(&status, update(&[], "0.1"), at(3)).unwrap().status;
        assert!(!is_true(&status.conditions, FIELDS_WITHOUT_EFFECT));
    }

    #[test]
    fn obstacles_name_who_acts_next() {
        let condition = obstacle_condition(&Obstacle::for_user("bad field"), Some(1), at(0));
        assert_eq!(
            (condition.reason, condition.message.as_str()),
            ("DeploymentFailed", "ironic: bad field")
        );
        let condition = obstacle_condition(&Obstacle::transient("no reply"), Some(1), at(60));
        assert_eq!(
            (condition.reason, condition.message.as_str()),
            ("DeploymentInProgress", "ironic: no reply; next attempt at 1970-01-01T00:01:00Z")
        );
    }
}
