// SPDX-License-Identifier: Apache-2.0
//! The status of a claim.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::conditions::{
    ConditionStatus, ConditionUpdate, host_claim as types, host_claim_reason as reason,
    host_reason, is_true, set_condition,
};
use kube_resources::hosts::host_claim::{ClaimedObject, HostClaim, HostClaimStatus};

use crate::object_key::ObjectKey;

/// What was found out about a claim.
#[derive(Clone, Debug)]
pub(in crate::hosts) enum ClaimReport<'a> {
    /// It waits for a host.
    Waiting { message: String },
    /// It is bound to a host.
    Bound {
        host: &'a BareMetalHost,
        has_hardware_data: bool,
        /// What prevents that the host gets the settings of the claim.
        problem: Option<SyncProblem>,
    },
    /// The host is gone, or used by something else.
    Lost { message: String },
    /// The claim is being deleted and waits for its host.
    Releasing { message: String },
}

/// Why the host does not have the settings of the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::hosts) struct SyncProblem {
    pub(in crate::hosts) reason: &'static str,
    pub(in crate::hosts) message: String,
}

/// Conditions of a host that its claim has too.
pub(super) fn reported_conditions(conditions: &[Condition]) -> impl Iterator<Item = &Condition> {
    conditions.iter().filter(|condition| {
        [types::PROVISIONED, types::AVAILABLE_FOR_PROVISIONING].contains(&condition.type_.as_str())
    })
}

/// The status after a report. The time of the update changes only with something else.
pub(in crate::hosts) fn status_after(
    claim: &HostClaim,
    key: Option<&ObjectKey>,
    report: &ClaimReport<'_>,
    now: &Time,
) -> HostClaimStatus {
    let before = claim.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let mut conditions = ConditionList {
        conditions: &mut status.conditions,
        generation: claim.metadata.generation,
        now,
    };
    match report {
        ClaimReport::Waiting { message } => {
            conditions.set(types::ASSOCIATED, false, reason::NO_BARE_METAL_HOST, message);
            conditions.set(types::SYNCHRONIZED, false, reason::NO_BARE_METAL_HOST, "");
            conditions.set(types::PROVISIONED, false, host_reason::NOT_PROVISIONED, "");
            let available = types::AVAILABLE_FOR_PROVISIONING;
            conditions.set(available, false, host_reason::NOT_AVAILABLE, "");
        }
        ClaimReport::Lost { message } => {
            let missing = reason::MISSING_BARE_METAL_HOST;
            conditions.set(types::ASSOCIATED, false, missing, message);
            conditions.set(types::SYNCHRONIZED, false, missing, "");
            for type_ in [types::PROVISIONED, types::AVAILABLE_FOR_PROVISIONING] {
                conditions.set_status(type_, ConditionStatus::Unknown, missing, "");
            }
        }
        ClaimReport::Releasing { message } => {
            let deleting = reason::HOST_CLAIM_DELETING;
            conditions.set(types::SYNCHRONIZED, false, deleting, message);
        }
        ClaimReport::Bound { host, problem, .. } => {
            let associated = reason::BARE_METAL_HOST_ASSOCIATED;
            conditions.set(types::ASSOCIATED, true, associated, "");
            match problem {
                None => {
                    conditions.set(types::SYNCHRONIZED, true, reason::CONFIGURATION_SYNCED, "");
                }
                Some(SyncProblem { reason, message }) => {
                    conditions.set(types::SYNCHRONIZED, false, reason, message);
                }
            }
            conditions.copy_from(host);
        }
    }
    conditions.summarise();
    if let ClaimReport::Bound { host, has_hardware_data, .. } = report {
        let object = key.map(|key| ClaimedObject {
            name: key.name().to_owned(),
            namespace: key.namespace().to_owned(),
        });
        status.hardware_data = object.clone().filter(|_| *has_hardware_data);
        status.bare_metal_host = object;
        status.powered_on = host.status.as_ref().is_some_and(|status| status.powered_on);
    }
    if status != before {
        status.last_updated = Some(now.clone());
    }
    status
}

struct ConditionList<'a> {
    conditions: &'a mut Vec<Condition>,
    generation: Option<i64>,
    now: &'a Time,
}

impl ConditionList<'_> {
    fn set(&mut self, type_: &'static str, holds: bool, reason: &'static str, message: &str) {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        self.set_status(type_, status, reason, message);
    }

    fn set_status(
        &mut self,
        type_: &'static str,
        status: ConditionStatus,
        reason: &'static str,
        message: &str,
    ) {
        let message = message.to_owned();
        let observed_generation = self.generation;
        let update = ConditionUpdate { type_, status, reason, message, observed_generation };
        set_condition(self.conditions, update, self.now);
    }

    /// Copies conditions of the host with their times. A host of an older version of Metal3 has none.
    fn copy_from(&mut self, host: &BareMetalHost) {
        let found = host.status.as_ref().map_or(&[][..], |status| &status.conditions);
        for type_ in [types::PROVISIONED, types::AVAILABLE_FOR_PROVISIONING] {
            let Some(condition) = found.iter().find(|condition| condition.type_ == type_) else {
                self.set_status(type_, ConditionStatus::Unknown, reason::UNKNOWN, "");
                continue;
            };
            let copy = Condition { observed_generation: self.generation, ..condition.clone() };
            match self.conditions.iter_mut().find(|existing| existing.type_ == type_) {
                Some(existing) => *existing = copy,
                None => self.conditions.push(copy),
            }
        }
    }

    /// The first condition that does not hold explains why the claim is not ready.
    fn summarise(&mut self) {
        let parts = [types::ASSOCIATED, types::SYNCHRONIZED, types::PROVISIONED];
        let missing = parts.into_iter().find(|type_| !is_true(self.conditions, type_));
        let Some(missing) = missing else {
            self.set(types::READY, true, reason::READY, "");
            return;
        };
        let found = self.conditions.iter().find(|condition| condition.type_ == missing);
        let message = match found.map(|condition| (&condition.reason, &condition.message)) {
            Some((reason, message)) if message.is_empty() => format!("{missing}: {reason}"),
            Some((_, message)) => format!("{missing}: {message}"),
            None => missing.to_owned(),
        };
        self.set(types::READY, false, reason::NOT_READY, &message);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn host(state: &str, condition: &str) -> BareMetalHost {
        serde_json::from_value(json!({
            "metadata": {"name": "h", "namespace": "infra"},
            "status": {"poweredOn": true, "provisioning": {"state": state}, "conditions": [
                {"type": "Provisioned", "status": condition, "reason": "R", "message": "m",
                 "observedGeneration": 70, "lastTransitionTime": "1970-01-01T00:00:07Z"},
                {"type": "Ready", "status": "True", "reason": "R", "message": "",
                 "lastTransitionTime": "1970-01-01T00:00:07Z"}]}}))
        .unwrap()
    }

    fn check(status: &HostClaimStatus, expected: Expect) {
        let mut text = String::new();
        for condition in &status.conditions {
            let Condition { type_, status, reason, message, .. } = condition;
            text.push_str(&format!("{type_}={status} {reason} {message}\n"));
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn conditions_of_each_report() {
        let mut claim: HostClaim =
            serde_json::from_value(json!({"metadata": {"name": "c", "generation": 3}})).unwrap();
        let key = ObjectKey::new("infra", "h");
        let waiting = ClaimReport::Waiting { message: "no host".to_owned() };
        let status = status_after(&claim, None, &waiting, &at(1));
        assert_eq!(status.last_updated, Some(at(1)));
        check(
            &status,
            expect![[r#"
            Associated=False NoBareMetalHost no host
            Synchronized=False NoBareMetalHost 
            Provisioned=False NotProvisioned 
            AvailableForProvisioning=False NotAvailable 
            Ready=False NotReady Associated: no host
        "#]],
        );
        claim.status = Some(status.clone());
        assert_eq!(status_after(&claim, None, &waiting, &at(2)), status, "nothing changed");

        let found = host("provisioned", "True");
        let bound = |problem: Option<SyncProblem>| ClaimReport::Bound {
            host: &found,
            has_hardware_data: true,
            problem,
        };
        let status = status_after(&claim, Some(&key), &bound(None), &at(3));
        assert_eq!(
            serde_json::to_value(status.bare_metal_host.clone()).unwrap(),
            json!({"namespace": "infra", "name": "h"})
        );
        assert_eq!(status.hardware_data, status.bare_metal_host);
        assert!(status.powered_on);
        assert_eq!(status.conditions[2].last_transition_time, at(7), "the time of the host");
        assert_eq!(status.conditions[2].observed_generation, Some(3));
        check(
            &status,
            expect![[r#"
            Associated=True BareMetalHostAssociated 
            Synchronized=True ConfigurationSynced 
            Provisioned=True R m
            AvailableForProvisioning=Unknown Unknown 
            Ready=True Ready 
        "#]],
        );
        claim.status = Some(status);
        let problem = SyncProblem {
            reason: reason::USER_DATA_SECRET_SYNC_FAILURE,
            message: "no Secret".to_owned(),
        };
        check(
            &status_after(&claim, Some(&key), &bound(Some(problem)), &at(4)),
            expect![[r#"
            Associated=True BareMetalHostAssociated 
            Synchronized=False UserDataSecretSyncFailure no Secret
            Provisioned=True R m
            AvailableForProvisioning=Unknown Unknown 
            Ready=False NotReady Synchronized: no Secret
        "#]],
        );
        let lost = ClaimReport::Lost { message: "gone".to_owned() };
        let status = status_after(&claim, Some(&key), &lost, &at(5));
        assert!(status.bare_metal_host.is_some(), "it is not replaced");
        check(
            &status,
            expect![[r#"
            Associated=False MissingBareMetalHost gone
            Synchronized=False MissingBareMetalHost 
            Provisioned=Unknown MissingBareMetalHost 
            AvailableForProvisioning=Unknown MissingBareMetalHost 
            Ready=False NotReady Associated: gone
        "#]],
        );
        let releasing = ClaimReport::Releasing { message: "removing the image".to_owned() };
        check(
            &status_after(&claim, Some(&key), &releasing, &at(6)),
            expect![[r#"
            Associated=True BareMetalHostAssociated 
            Synchronized=False HostClaimDeleting removing the image
            Provisioned=True R m
            AvailableForProvisioning=Unknown Unknown 
            Ready=False NotReady Synchronized: removing the image
        "#]],
        );
    }
}
