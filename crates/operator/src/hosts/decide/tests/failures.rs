// SPDX-License-Identifier: Apache-2.0
//! Failed and repeated operations: what is shown, and when they are tried again.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::{INSPECT, RETRY_NOW};
use serde_json::json;

use super::lab::HostLab;
use super::life_cycles::{HOST, available, image, lab, provisioned};
use crate::hosts::decide::DEPLOYMENT_FAILED;
use crate::hosts::provisioner::{ProvisionerFailureKind as Kind, ProvisionerWaitReason, VerbStop};

#[tokio::test]
async fn failures_are_visible_and_retried_with_a_limit() {
    for (verb, kind, error_type) in [
        ("register", Kind::Registration, "registration error"),
        ("inspect", Kind::Inspection, "inspection error"),
        ("prepare", Kind::Preparation, "preparation error"),
    ] {
        let (mut lab, fixture) = lab(json!({}));
        fixture.inject(HOST, verb, (0..8).map(|_| VerbStop::failed(kind, "no luck")));
        let mut longest = Duration::ZERO;
        for count in 1..=8 {
            lab.run_until(|lab| lab.status().error_count == count).await;
            let status = lab.status();
            assert_eq!(status.error_type.unwrap().as_str(), error_type);
            assert_eq!(status.error_message, "no luck");
            let (held, _, message) = lab.condition("RetryScheduled");
            assert_eq!(held, "True");
            let at: Timestamp =
                message["Next attempt at ".len()..].split(',').next().unwrap().parse().unwrap();
            longest = longest.max(Duration::try_from(at.duration_since(lab.now)).unwrap());
        }
        assert!(longest <= Duration::from_secs(600) && longest > Duration::from_secs(400));
        lab.annotate(RETRY_NOW, "");
        let before = lab.now;
        lab.pass().await;
        assert!(!lab.has_annotation(RETRY_NOW));
        lab.run_until_state("available").await;
        assert!(Duration::try_from(lab.now.duration_since(before)).unwrap().as_secs() < 60);
        assert_eq!(lab.status().error_message, "");
        assert_eq!(lab.status().error_count, 0);
        assert_eq!(lab.condition("RetryScheduled").0, "False");
    }
}

#[tokio::test]
async fn a_failing_image_is_given_up_after_five_attempts() {
    let (mut lab, fixture) = available().await;
    let failure = VerbStop::failed(Kind::Provisioning, "no space");
    fixture.inject(HOST, "provision", vec![failure; 5]);
    lab.edit(image("http://images/bad"));
    let failed = |lab: &HostLab, count: usize| {
        let condition =
            lab.status().conditions.into_iter().find(|it| it.type_ == DEPLOYMENT_FAILED);
        let expected = format!(
            "Failed deployments of http://images/bad with the checksum abc: {count}; last failure: \
             no space"
        );
        condition.is_some_and(|condition| condition.message == expected)
    };
    let mut delays = Vec::new();
    for count in 1..=4 {
        lab.run_until(|lab| failed(lab, count)).await;
        assert_eq!(lab.status().error_count, i64::try_from(count).unwrap());
        assert_eq!(lab.status().error_message, "no space");
        let (_, _, message) = lab.condition("RetryScheduled");
        let attempts =
            if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") };
        assert!(message.contains(&format!("after {attempts} failed")), "{message}");
        lab.restart();
        delays.push(lab.pass().await.unwrap());
    }
    // Shortened by at most a quarter.
    for pair in delays.windows(2) {
        assert!(pair[1] >= pair[0].mul_f64(1.5) && pair[1] <= pair[0].mul_f64(2.7), "{delays:?}");
    }
    lab.run_until(|lab| failed(lab, 5)).await;
    lab.restart();
    lab.run_until(|lab| lab.status().error_message.contains("5 times")).await;
    let message = lab.status().error_message;
    assert!(message.contains("with this image, the last time with: no space;"), "{message}");
    assert!(failed(&lab, 5));
    lab.settle().await;
    assert_eq!(lab.state(), "available");
    assert_eq!(lab.condition("AvailableForProvisioning").0, "False");
    lab.edit(image("http://images/good"));
    lab.run_until_state("provisioned").await;
    assert_eq!(lab.status().error_message, "");
    assert_eq!(lab.condition(DEPLOYMENT_FAILED).0, "False");
}

#[tokio::test]
async fn failed_deployments_do_not_skip_the_erasure_of_a_deleted_host() {
    let (mut lab, fixture) = available().await;
    fixture.inject(HOST, "provision", vec![VerbStop::failed(Kind::Provisioning, "no space"); 4]);
    lab.edit(image("http://images/bad"));
    lab.run_until(|lab| lab.status().error_count == 4).await;
    assert_eq!(lab.state(), "deprovisioning");
    let before = fixture.calls(HOST).iter().filter(|call| **call == "deprovision").count();
    lab.delete();
    *lab.host.metadata.generation.get_or_insert(1) += 1;
    fixture.inject(HOST, "deprovision", vec![VerbStop::failed(Kind::Provisioning, "no luck"); 2]);
    lab.run_until_gone().await;
    let calls = fixture.calls(HOST);
    let after = calls.iter().filter(|call| **call == "deprovision").count();
    // Two failures, the start and the end.
    assert_eq!(after - before, 4, "{calls:?}");
}

#[tokio::test]
async fn failed_deployments_do_not_prolong_the_erasure_of_a_deleted_host() {
    let (mut lab, fixture) = available().await;
    fixture.inject(HOST, "provision", vec![VerbStop::failed(Kind::Provisioning, "no space"); 4]);
    lab.edit(image("http://images/bad"));
    lab.run_until(|lab| lab.status().error_count == 4).await;
    lab.run_until_state("provisioning").await;
    let before = fixture.calls(HOST).iter().filter(|call| **call == "deprovision").count();
    lab.delete();
    fixture.inject(HOST, "deprovision", vec![VerbStop::failed(Kind::Provisioning, "no luck"); 20]);
    lab.run_until_gone().await;
    let calls = fixture.calls(HOST);
    let after = calls.iter().filter(|call| **call == "deprovision").count();
    assert_eq!(after - before, 4, "{calls:?}");
    let expected = "The image was not removed, so the disks may keep data of the user: no luck";
    assert!(lab.event_texts.iter().any(|text| text == expected), "{:?}", lab.event_texts);
}

#[tokio::test]
async fn a_requested_attempt_does_not_skip_the_erasure_of_a_deleted_host() {
    let (mut lab, fixture) = available().await;
    fixture.inject(HOST, "provision", vec![VerbStop::failed(Kind::Provisioning, "no space"); 4]);
    lab.edit(image("http://images/bad"));
    lab.run_until(|lab| lab.status().error_count == 4).await;
    lab.run_until(|lab| lab.status().error_message.is_empty()).await;
    assert_eq!(lab.state(), "deprovisioning");
    lab.annotate(RETRY_NOW, "");
    lab.pass().await;
    assert_eq!(lab.state(), "deprovisioning");
    lab.events.clear();
    lab.delete();
    let running = VerbStop::running(ProvisionerWaitReason::Undeploying, None);
    let failed = VerbStop::failed(Kind::Provisioning, "no luck");
    fixture.inject(HOST, "deprovision", [running, failed.clone(), failed]);
    lab.run_until_gone().await;
    assert!(lab.events.contains(&"DeprovisioningComplete"), "{:?}", lab.events);
}

#[tokio::test]
async fn a_requested_inspection_permits_new_deployments() {
    let (mut lab, fixture) = available().await;
    fixture.inject(HOST, "provision", vec![VerbStop::failed(Kind::Provisioning, "no space"); 5]);
    lab.edit(image("http://images/bad"));
    lab.run_until(|lab| lab.status().error_message.contains("5 times")).await;
    lab.annotate(INSPECT, "");
    let reason = ProvisionerWaitReason::Inspecting;
    fixture.inject(HOST, "inspect", [VerbStop::running(reason, None), VerbStop::started(reason)]);
    lab.run_until_state("inspecting").await;
    assert_eq!(lab.condition(DEPLOYMENT_FAILED).0, "True");
    lab.annotate(RETRY_NOW, "");
    lab.pass().await;
    assert!(!lab.has_annotation(RETRY_NOW));
    assert_eq!(lab.condition(DEPLOYMENT_FAILED).0, "False");
    lab.run_until_state("provisioned").await;
}

/// The service repeats an operation that failed.
pub(super) fn repeated(reason: ProvisionerWaitReason) -> VerbStop {
    let failure = "the BMC does not respond (next attempt at 2027-01-15T08:05:10.123456+00:00)";
    VerbStop::running(reason, None).with_failure(Some(failure.to_owned()))
}

#[tokio::test]
async fn the_time_of_the_next_attempt_is_shown_until_it_begins() {
    for is_reported in [false, true] {
        let (mut lab, fixture) = available().await;
        lab.policy.are_changes_reported = is_reported;
        lab.now = "2027-01-15T08:05:00Z".parse().unwrap();
        let reason = ProvisionerWaitReason::Deploying;
        fixture.inject(HOST, "provision", vec![repeated(reason); 2]);
        lab.edit(image("http://images/a"));
        let after = lab.pass().await.unwrap();
        let text = "deploying, last failure: the BMC does not respond";
        let expected = format!("{text} (next attempt at 2027-01-15T08:05:10Z)");
        assert_eq!(lab.condition("Progressing").2, expected);
        assert!(after > Duration::from_secs(9) && after < Duration::from_secs(15), "{after:?}");
        lab.now += Duration::from_secs(11);
        lab.pass().await;
        assert_eq!(lab.condition("Progressing").2, text);
    }
}

#[tokio::test]
async fn the_last_failure_of_a_repeated_operation_is_shown() {
    let (mut lab, fixture) = available().await;
    fixture.inject(HOST, "power_off", [repeated(ProvisionerWaitReason::Power)]);
    lab.edit(json!({"online": false}));
    lab.pass().await;
    let (status, _, message) = lab.condition("Progressing");
    assert_eq!(status, "False");
    assert!(message.starts_with("changing the power state, last failure: the BMC"), "{message}");
    lab.settle().await;
    assert!(!lab.status().powered_on);
    assert_eq!(lab.condition("Progressing").2, "");
    // The request is withdrawn, so that no other call ends the wait.
    let (mut lab, fixture) = provisioned().await;
    fixture.inject(HOST, "power_off", [repeated(ProvisionerWaitReason::Power)]);
    lab.edit(json!({"online": false}));
    lab.pass().await;
    assert!(lab.condition("Progressing").2.contains("last failure"));
    lab.edit(json!({"online": true}));
    lab.settle().await;
    assert_eq!(lab.condition("Progressing").2, "");

    let (mut lab, fixture) = provisioned().await;
    fixture.inject(HOST, "deprovision", [repeated(ProvisionerWaitReason::Undeploying)]);
    lab.delete();
    lab.pass().await;
    let message = lab.condition("Progressing").2;
    assert!(message.starts_with("removing the image, last failure: the BMC"), "{message}");
    lab.run_until_gone().await;
}

#[tokio::test]
async fn the_elapsed_time_of_an_operation_survives_a_restart() {
    let (mut lab, fixture) = available().await;
    let step = Some("deploy.write_image".to_owned());
    let running = VerbStop::running(ProvisionerWaitReason::Deploying, step);
    fixture.inject(HOST, "provision", vec![running; 40]);
    lab.edit(image("http://images/a"));
    lab.run_until(|lab| lab.condition("Progressing").2.ends_with(", for 5 min")).await;
    let before = lab.condition("Progressing");
    assert_eq!(before.2, "deploying, step deploy.write_image, for 5 min");
    lab.restart();
    lab.pass().await;
    assert_eq!(lab.condition("Progressing"), before);
}

#[tokio::test]
async fn the_elapsed_time_after_a_restart_has_no_time_between_attempts() {
    let (mut lab, fixture) = lab(json!({}));
    let reason = ProvisionerWaitReason::Inspecting;
    let mut outcomes = vec![VerbStop::failed(Kind::Inspection, "no luck"); 5];
    outcomes.push(VerbStop::started(reason));
    outcomes.extend(vec![VerbStop::running(reason, None); 400]);
    fixture.inject(HOST, "inspect", outcomes);
    lab.run_until(|lab| lab.status().error_count == 5).await;
    lab.run_until(|lab| lab.condition("Progressing").2.ends_with(", for 5 min")).await;
    let before = lab.condition("Progressing");
    lab.restart();
    lab.pass().await;
    assert_eq!(lab.condition("Progressing"), before);
}

#[tokio::test]
async fn the_missing_key_of_a_secret_is_named() {
    for (missing, expected) in [
        (&["username"][..], "has no key username,"),
        (&["password"], "has no key password,"),
        (&["username", "password"], "has neither the key username nor the key password,"),
    ] {
        let (mut lab, _) = lab(json!({}));
        lab.secret.as_mut().unwrap().retain(|key, _| !missing.contains(&key.as_str()));
        lab.pass().await;
        let message = lab.status().error_message;
        assert!(message.contains(expected), "{message}");
    }
}
