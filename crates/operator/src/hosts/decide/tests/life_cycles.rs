// SPDX-License-Identifier: Apache-2.0
//! Whole life cycles with the fixture. Every one has to end where it must.

use std::sync::Arc;
use std::time::Duration;

use kube_resources::hosts::annotations::{DETACHED, FORCE_DELETE, INSPECT, PAUSED, REBOOT, STATUS};
use serde_json::{Value, json};

use super::failures::repeated;
use super::lab::HostLab;
use crate::hosts::provisioner::fixture::FixtureProvisioner;
use crate::hosts::provisioner::{ProvisionerFailureKind as Kind, ProvisionerWaitReason, VerbStop};

pub(super) const HOST: (&str, &str) = ("lab", "host-1");

pub(super) fn image(url: &str) -> Value {
    json!({"image": {"url": url, "checksum": "abc", "checksumType": "sha256"}})
}

pub(super) fn lab(spec: Value) -> (HostLab, Arc<FixtureProvisioner>) {
    let fixture = Arc::new(FixtureProvisioner::default());
    (HostLab::new(Arc::<FixtureProvisioner>::clone(&fixture), spec), fixture)
}

pub(super) async fn available() -> (HostLab, Arc<FixtureProvisioner>) {
    let (mut lab, fixture) = lab(json!({}));
    lab.run_until_state("available").await;
    lab.settle().await;
    (lab, fixture)
}

pub(super) async fn provisioned() -> (HostLab, Arc<FixtureProvisioner>) {
    let (mut lab, fixture) = available().await;
    lab.edit(image("http://images/a"));
    lab.run_until_state("provisioned").await;
    lab.settle().await;
    (lab, fixture)
}

#[tokio::test]
async fn from_creation_to_deletion() {
    let (mut lab, fixture) = provisioned().await;
    assert_eq!(
        lab.states,
        ["", "registering", "inspecting", "preparing", "available", "provisioning", "provisioned"]
    );
    let status = lab.status();
    assert!(status.powered_on && status.error_message.is_empty());
    assert!(status.hardware.is_some());
    assert_eq!(lab.host.spec.architecture.as_deref(), Some("x86_64"));
    assert!(status.operation_history.provision.end.is_some());
    for name in ["Manageable", "Provisioned", "Ready"] {
        assert_eq!(lab.condition(name).0, "True", "{name}");
    }
    lab.states.clear();
    lab.edit(image("http://images/b"));
    lab.run_until(|lab| lab.states.last().is_some_and(|state| state == "provisioned")).await;
    assert_eq!(lab.states, ["deprovisioning", "available", "provisioning", "provisioned"]);
    assert_eq!(lab.status().provisioning.deployed_image().unwrap().url, "http://images/b");
    lab.edit(json!({"image": null}));
    lab.run_until_state("available").await;
    lab.states.clear();
    lab.delete();
    lab.run_until_gone().await;
    assert_eq!(lab.states, ["powering off before delete", "deleting"]);
    assert!(!fixture.knows(HOST));
}

#[tokio::test]
async fn a_settled_host_is_registered_once() {
    let (mut lab, fixture) = provisioned().await;
    let before = fixture.calls(HOST).len();
    for _ in 0..10 {
        let after = lab.pass().await.unwrap();
        lab.now += after;
    }
    let calls = fixture.calls(HOST).split_off(before);
    assert_eq!(calls, ["observe"; 10]);
    lab.secret_version = "2".to_owned();
    lab.settle().await;
    assert!(fixture.calls(HOST).split_off(before + 10).contains(&"register"));
}

#[tokio::test]
async fn an_externally_provisioned_host_is_adopted_and_never_deployed() {
    let (mut lab, fixture) = lab(json!({"externallyProvisioned": true}));
    lab.run_until_state("externally provisioned").await;
    lab.settle().await;
    assert!(lab.status().powered_on);
    let calls = fixture.calls(HOST);
    assert!(
        calls.contains(&"adopt") && !calls.contains(&"provision") && !calls.contains(&"inspect")
    );
    lab.edit(json!({"externallyProvisioned": false}));
    lab.run_until_state("provisioned").await;
    lab.delete();
    lab.run_until_gone().await;
}

#[tokio::test]
async fn a_detached_host_is_forgotten_and_adopted_again() {
    let (mut lab, fixture) = provisioned().await;
    lab.annotate(DETACHED, "");
    lab.settle().await;
    assert_eq!(lab.status().operational_status.as_str(), "detached");
    assert!(!fixture.knows(HOST) && lab.status().provisioning.id.is_empty());
    lab.restart();
    lab.remove_annotation(DETACHED);
    lab.settle().await;
    assert_eq!(lab.state(), "provisioned");
    assert_eq!(lab.status().operational_status.as_str(), "OK");
    assert!(fixture.knows(HOST));
    assert!(!fixture.calls(HOST).iter().rev().take(6).any(|call| *call == "provision"));
    lab.annotate(DETACHED, r#"{"deleteAction": "delay"}"#);
    lab.settle().await;
    lab.delete();
    lab.settle().await;
    assert!(!lab.is_gone, "deletion is delayed");
    lab.annotate(DETACHED, "");
    lab.run_until_gone().await;
}

#[tokio::test]
async fn the_loss_of_the_service_database_is_repaired() {
    for restarts in [false, true] {
        let (mut lab, fixture) = provisioned().await;
        fixture.forget(HOST);
        if restarts {
            lab.restart();
        }
        lab.settle().await;
        assert!(fixture.knows(HOST));
        assert_eq!(lab.state(), "provisioned");
        assert!(fixture.calls(HOST).ends_with(&["adopt", "observe"]), "{:?}", fixture.calls(HOST));
    }
}

#[tokio::test]
async fn reboots_power_off_and_on() {
    let (mut lab, fixture) = provisioned().await;
    lab.annotate(REBOOT, "");
    lab.run_until(|lab| !lab.has_annotation(REBOOT)).await;
    lab.settle().await;
    assert!(lab.status().powered_on);
    assert!(fixture.calls(HOST).contains(&"power_off"));
    lab.annotate("reboot.metal3.io/capm3", "");
    lab.settle().await;
    assert!(!lab.status().powered_on, "the suffix holds the host off");
    lab.remove_annotation("reboot.metal3.io/capm3");
    lab.settle().await;
    assert!(lab.status().powered_on);
}

#[tokio::test]
async fn the_inspect_annotation_repeats_the_inspection_once() {
    let (mut lab, fixture) = available().await;
    lab.annotate(INSPECT, "");
    lab.states.clear();
    lab.settle().await;
    assert_eq!(lab.states, ["inspecting", "preparing", "available"]);
    assert!(!lab.has_annotation(INSPECT));
    assert_eq!(fixture.calls(HOST).iter().filter(|call| **call == "inspect").count(), 4);
}

#[tokio::test]
async fn a_paused_host_is_left_alone() {
    let (mut lab, fixture) = provisioned().await;
    let before = fixture.calls(HOST).len();
    lab.annotate(PAUSED, "");
    lab.edit(json!({"image": null}));
    assert_eq!(lab.pass().await, None);
    assert_eq!(fixture.calls(HOST).len(), before);
    assert_eq!(lab.state(), "provisioned");
}

#[tokio::test]
async fn a_paused_host_shows_why_it_is_not_deleted() {
    let (mut lab, fixture) = provisioned().await;
    let before = fixture.calls(HOST).len();
    lab.annotate(PAUSED, "");
    lab.delete();
    for _ in 0..2 {
        assert_eq!(lab.pass().await, None);
        let (status, reason, message) = lab.condition("Progressing");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "DeletionPaused"));
        assert!(message.contains("remove the annotation baremetalhost.metal3.io/paused"));
    }
    let events = lab.events.iter().filter(|event| **event == "DeletionPaused").count();
    assert_eq!((events, fixture.calls(HOST).len()), (1, before));
    lab.remove_annotation(PAUSED);
    lab.pass().await;
    assert_eq!(lab.condition("Progressing").1, "Deprovisioning");
    lab.run_until_gone().await;
}

#[tokio::test]
async fn a_paused_host_whose_status_is_restored_later_is_erased() {
    let (mut lab, fixture) = provisioned().await;
    // A backup restores the object without its status.
    let status = serde_json::to_string(&lab.host.status.take()).unwrap();
    lab.restart();
    lab.annotate(PAUSED, "");
    lab.delete();
    assert_eq!(lab.pass().await, None);
    lab.annotate(STATUS, &status);
    assert_eq!(lab.pass().await, None);
    lab.remove_annotation(PAUSED);
    lab.run_until_gone().await;
    let calls = fixture.calls(HOST);
    assert!(calls.contains(&"deprovision") && !fixture.knows(HOST), "{calls:?}");
}

#[tokio::test]
async fn a_failed_power_change_is_retried() {
    let (mut lab, fixture) = provisioned().await;
    fixture.inject(HOST, "power_off", [VerbStop::failed(Kind::Power, "BMC does not respond")]);
    lab.edit(json!({"online": false}));
    lab.run_until(|lab| lab.status().error_count == 1).await;
    assert_eq!(lab.status().error_type.unwrap().as_str(), "power management error");
    lab.run_until(|lab| !lab.status().powered_on).await;
    lab.settle().await;
    assert_eq!((lab.status().error_message.as_str(), lab.status().error_count), ("", 0));
}

#[tokio::test]
async fn a_new_secret_ends_the_wait_after_a_wrong_password() {
    let (mut lab, fixture) = lab(json!({}));
    fixture.inject(HOST, "register", [VerbStop::failed(Kind::Registration, "wrong password")]);
    lab.run_until(|lab| lab.status().error_count == 1).await;
    assert!(lab.pass().await.unwrap() > Duration::from_secs(15));
    lab.secret_version = "2".to_owned();
    lab.pass().await;
    assert_eq!(lab.status().error_message, "");
    lab.run_until_state("available").await;
}

#[tokio::test]
async fn a_rejected_password_is_reported_although_it_is_new() {
    for restarts in [false, true] {
        let (mut lab, fixture) = lab(json!({}));
        fixture.reject(HOST, Some("wrong password"));
        for count in 1..=3 {
            lab.run_until(|lab| lab.status().error_count == count).await;
            assert_eq!(lab.status().error_message, "wrong password");
            if restarts {
                lab.restart();
            }
        }
        fixture.reject(HOST, None);
        lab.secret_version = "2".to_owned();
        lab.run_until_state("available").await;
        // Also a password that is changed later.
        fixture.reject(HOST, Some("wrong password"));
        lab.secret_version = "3".to_owned();
        lab.run_until(|lab| lab.status().error_message == "wrong password").await;
        assert_eq!(lab.state(), "available");
    }
}

#[tokio::test]
async fn wrong_bmc_details_are_reported() {
    let (mut lab, _) = lab(json!({}));
    let secret = lab.secret.take();
    lab.run_until(|lab| lab.status().error_message.contains("does not exist")).await;
    lab.secret = secret;
    lab.run_until_state("available").await;
    let (mut lab, _) = self::lab(json!({"bmc": {"address": "foo://1", "credentialsName": "bmc"}}));
    lab.run_until(|lab| lab.status().error_message.contains("unknown scheme")).await;
    assert_eq!(lab.pass().await, None, "only a change helps");
    lab.delete();
    lab.run_until_gone().await;
}

#[tokio::test]
async fn an_error_in_the_bmc_details_ends_when_they_are_restored() {
    let (mut lab, _) = available().await;
    let bmc = serde_json::to_value(&lab.host.spec.bmc).unwrap();
    lab.edit(json!({"bmc": {"address": "foo://1", "credentialsName": "bmc"}}));
    assert_eq!(lab.pass().await, None);
    assert_eq!(lab.status().operational_status.as_str(), "error");
    lab.edit(json!({"bmc": bmc}));
    lab.settle().await;
    assert_eq!((lab.status().error_message.as_str(), lab.status().error_count), ("", 0));
}

#[tokio::test]
async fn a_host_without_bmc_details_is_only_recorded() {
    let (mut lab, _) = lab(json!({"bmc": null}));
    lab.settle().await;
    assert_eq!(
        (lab.state().as_str(), lab.status().operational_status.as_str()),
        ("unmanaged", "discovered")
    );
    lab.edit(json!({"bmc": {"address": "ipmi://192.0.2.1", "credentialsName": "bmc"}}));
    lab.run_until_state("available").await;
}

#[tokio::test]
async fn a_status_is_restored_from_its_annotation() {
    let (mut lab, fixture) = lab(image("http://images/a"));
    lab.annotate(
        STATUS,
        &json!({"operationalStatus": "OK", "errorMessage": "", "poweredOn": true,
            "provisioning": {"state": "provisioned", "ID": "old",
                "image": {"url": "http://images/a"}}})
        .to_string(),
    );
    lab.settle().await;
    assert_eq!(lab.state(), "provisioned");
    assert!(!lab.has_annotation(STATUS));
    let calls = fixture.calls(HOST);
    assert!(calls.contains(&"adopt") && !calls.contains(&"provision"), "{calls:?}");
}

#[tokio::test]
async fn deletion_ends_in_every_state() {
    for target in [
        "",
        "unmanaged",
        "registering",
        "inspecting",
        "preparing",
        "available",
        "provisioning",
        "provisioned",
        "externally provisioned",
        "deprovisioning",
        "powering off before delete",
        "deleting",
        "ready",
        "match profile",
    ] {
        for service in ["works", "is gone", "fails"] {
            for restarts in [false, true] {
                let (mut lab, fixture) = lab(json!({}));
                lab.run_until_state("available").await;
                let mut status = lab.status();
                status.provisioning.state = target.to_owned().into();
                lab.host.status = Some(status);
                let stop = match service {
                    "works" => None,
                    "is gone" => Some(VerbStop::NotReady { message: "connection refused".into() }),
                    _ => Some(VerbStop::failed(Kind::Removal, "no")),
                };
                for verb in [
                    "register",
                    "deprovision",
                    "adopt",
                    "power_off",
                    "delete",
                    "observe",
                    "has_capacity",
                ] {
                    fixture.inject(
                        HOST,
                        verb,
                        stop.iter().cycle().take(if stop.is_some() { 2000 } else { 0 }).cloned(),
                    );
                }
                if restarts {
                    lab.restart();
                }
                lab.delete();
                let start = lab.now;
                lab.run_until_gone().await;
                let taken = Duration::try_from(lab.now.duration_since(start)).unwrap();
                assert!(taken < Duration::from_secs(2 * 3600), "{target} {service}: {taken:?}");
                assert_eq!(fixture.knows(HOST), service != "works", "{target} {service}");
                let is_forced = lab.events.contains(&"DeletionForced");
                assert_eq!(is_forced, service != "works", "{target} {service}");
            }
        }
    }
}

#[tokio::test]
async fn a_forced_deletion_does_not_wait() {
    let (mut lab, fixture) = provisioned().await;
    let gone = VerbStop::NotReady { message: "connection refused".into() };
    fixture.inject(HOST, "delete", vec![gone; 10]);
    lab.annotate(FORCE_DELETE, "");
    lab.settle().await;
    assert_eq!(lab.state(), "provisioned", "only for a deleted host");
    lab.delete();
    lab.pass().await;
    assert!(lab.is_gone);
    assert!(!fixture.calls(HOST).contains(&"deprovision"));
}

#[tokio::test]
async fn an_outage_long_after_the_request_skips_no_stage_of_a_deletion() {
    let (mut lab, fixture) = provisioned().await;
    lab.delete();
    // No operator ran.
    lab.now += Duration::from_secs(30 * 3600);
    for verb in ["deprovision", "power_off", "delete"] {
        let outage = VerbStop::NotReady { message: "connection refused".into() };
        fixture.inject(HOST, verb, vec![outage]);
    }
    lab.run_until_gone().await;
    let calls = fixture.calls(HOST);
    for verb in ["deprovision", "power_off", "delete"] {
        assert!(calls.contains(&verb), "{verb} is missing in {calls:?}");
    }
    assert!(!fixture.knows(HOST));
    assert!(!lab.events.contains(&"DeletionForced"));
}

#[tokio::test]
async fn a_deletion_that_is_forced_late_still_removes_the_node() {
    let (mut lab, fixture) = provisioned().await;
    let busy = VerbStop::Busy { reason: "locked".into() };
    fixture.inject(HOST, "deprovision", vec![busy; 1000]);
    lab.delete();
    lab.pass().await;
    lab.now += Duration::from_secs(600);
    lab.annotate(FORCE_DELETE, "");
    lab.run_until_gone().await;
    assert!(!fixture.knows(HOST));
    assert!(!lab.events.contains(&"DeletionForced"));
}

#[tokio::test]
async fn a_deletion_shows_what_blocks_it() {
    let (mut lab, fixture) = available().await;
    let gone = VerbStop::NotReady { message: "connection refused".into() };
    fixture.inject(HOST, "power_off", vec![gone; 100]);
    lab.delete();
    lab.pass().await;
    let (status, reason, message) = lab.condition("Progressing");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "PoweringOffBeforeDelete"));
    assert!(message.contains("connection refused"), "{message}");
}

#[tokio::test]
async fn firmware_and_data_images_are_changed_at_a_reboot() {
    let (mut lab, fixture) = provisioned().await;
    let condition = |name: &str| {
        json!({"type": name, "status": "True", "reason": "x", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-11-17T10:00:00Z"})
    };
    lab.companions.firmware_components = serde_json::from_value(json!({
        "metadata": {"generation": 1},
        "spec": {"updates": [{"component": "bmc", "url": "http://firmware"}]},
        "status": {"conditions": [condition("ChangeDetected"), condition("Valid")]},
    }))
    .unwrap();
    lab.companions.data_image =
        serde_json::from_value(json!({"spec": {"url": "http://images/data.iso"}})).unwrap();
    lab.settle().await;
    let changes = |fixture: &FixtureProvisioner| {
        let mut calls = fixture.calls(HOST);
        calls.retain(|call| ["service", "attach_data_image", "detach_data_image"].contains(call));
        calls
    };
    assert!(changes(&fixture).is_empty(), "the host runs");
    lab.annotate("reboot.metal3.io/test", "");
    lab.settle().await;
    lab.companions.update_policy =
        serde_json::from_value(json!({"firmwareUpdates": "onReboot"})).unwrap();
    lab.remove_annotation("reboot.metal3.io/test");
    lab.settle().await;
    assert_eq!(changes(&fixture), ["service", "attach_data_image"]);
    let status = lab.status();
    assert!(status.powered_on && status.operational_status.as_str() == "OK");
    let attached = lab.companions.data_image.unwrap().status.unwrap().attached_image.unwrap();
    assert_eq!(attached.url, "http://images/data.iso");
}

/// Some BMCs report other values than those that were set.
#[tokio::test]
async fn settings_are_applied_once() {
    let settings = |uid: &str, generation: i64, applied: Option<i64>| {
        let mut conditions = vec![json!({"type": "Valid", "status": "True"})];
        conditions.push(json!({"type": "ChangeDetected", "status": "True"}));
        for condition in &mut conditions {
            condition["observedGeneration"] = json!(generation);
        }
        conditions.extend(applied.map(
            |applied| json!({"type": "Applied", "status": "True", "observedGeneration": applied}),
        ));
        for condition in &mut conditions {
            condition["reason"] = json!("Success");
            condition["message"] = json!("");
            condition["lastTransitionTime"] = json!("2026-11-17T10:00:00Z");
        }
        serde_json::from_value(json!({"metadata": {"uid": uid, "generation": generation},
            "spec": {"settings": {"Fan": "fast"}},
            "status": {"settings": {"Fan": "Fast"}, "conditions": conditions}}))
        .unwrap()
    };
    let (mut lab, _) = available().await;
    lab.companions.firmware_settings = Some(settings("a", 3, None));
    lab.run_until(|lab| lab.applied_settings == [3]).await;
    lab.settle().await;
    assert_eq!((lab.state().as_str(), lab.applied_settings.as_slice()), ("available", &[3][..]));
    // Also after a restart, from the condition.
    lab.restart();
    lab.companions.firmware_settings = Some(settings("a", 3, Some(3)));
    lab.settle().await;
    assert_eq!(lab.applied_settings, [3]);
    // The user changes the request.
    lab.companions.firmware_settings = Some(settings("a", 4, Some(3)));
    lab.settle().await;
    assert_eq!((lab.state().as_str(), lab.applied_settings.as_slice()), ("available", &[3, 4][..]));
    // The object is deleted and created again, and reaches the same generation.
    lab.companions.firmware_settings = None;
    lab.settle().await;
    lab.companions.firmware_settings = Some(settings("b", 4, None));
    lab.settle().await;
    assert_eq!(lab.applied_settings, [3, 4, 4]);
}

/// The machine is erased with the address that the node still has.
#[tokio::test]
async fn a_deleted_host_whose_new_bmc_address_is_rejected_is_deprovisioned() {
    for restarts in [false, true] {
        let (mut lab, fixture) = provisioned().await;
        let rejected = VerbStop::failed(Kind::Identity, "leads to another machine");
        fixture.inject(HOST, "register", vec![rejected; 1000]);
        let address = "redfish-virtualmedia://192.0.2.2/redfish/v1/Systems/1";
        lab.edit(json!({"bmc": {"address": address, "credentialsName": "bmc"}}));
        lab.run_until(|lab| lab.status().error_message.contains("another machine")).await;
        if restarts {
            lab.restart();
        }
        lab.delete();
        lab.run_until_gone().await;
        let calls = fixture.calls(HOST);
        for verb in ["deprovision", "power_off", "delete"] {
            assert!(calls.contains(&verb), "{verb} is missing in {calls:?}");
        }
        assert!(!fixture.knows(HOST) && !lab.events.contains(&"DeletionForced"));
    }
}

#[tokio::test]
async fn a_forced_deletion_names_the_last_failure() {
    for (failure, expected) in [
        (
            true,
            "node temporary-fake-id (lab~host-1) may remain in the service: the time limit was \
                reached; last failure: the BMC does not respond",
        ),
        (false, "the time limit was reached while removing the node"),
    ] {
        let (mut lab, fixture) = available().await;
        let reason = ProvisionerWaitReason::Deleting;
        let stop = if failure { repeated(reason) } else { VerbStop::running(reason, None) };
        fixture.inject(HOST, "delete", vec![stop; 200]);
        lab.annotate(FORCE_DELETE, "");
        lab.delete();
        let start = lab.now;
        lab.run_until_gone().await;
        let text = lab.event_texts.last().unwrap();
        assert!(text.contains(expected), "{text}");
        let taken = Duration::try_from(lab.now.duration_since(start)).unwrap();
        assert!(taken <= Duration::from_secs(130), "{taken:?}");
    }
}

#[tokio::test]
async fn cleaning_before_the_first_deployment_does_not_delay_a_deletion() {
    use ProvisionerWaitReason as Reason;
    let (started, running) = (VerbStop::started, |reason| VerbStop::running(reason, None));
    let lost = VerbStop::NotReady { message: "timeout".into() };
    for (stops, restarts, is_aborted) in [
        (vec![started(Reason::Cleaning)], false, true),
        (vec![started(Reason::Cleaning), running(Reason::Cleaning)], false, true),
        (vec![running(Reason::Deploying)], false, false),
        // Another process requested it, perhaps after a deployment.
        (vec![running(Reason::Cleaning)], false, false),
        (vec![started(Reason::Cleaning), running(Reason::Cleaning)], true, false),
        // A deployment was aborted, and its data are erased.
        (vec![started(Reason::Aborting), running(Reason::Cleaning)], false, false),
        // The deployment may have been started.
        (vec![started(Reason::Cleaning), lost], false, false),
    ] {
        let (mut lab, fixture) = available().await;
        let case = format!("{stops:?} {restarts}");
        let passes = stops.len();
        fixture.inject(HOST, "provision", stops);
        lab.edit(image("http://images/a"));
        for _ in 0..passes {
            if restarts {
                lab.restart();
            }
            if let Some(after) = lab.pass().await {
                lab.now += after;
            }
        }
        assert_eq!(lab.state(), "provisioning", "{case}");
        lab.delete();
        lab.run_until_gone().await;
        assert_eq!(lab.memory.aborts_cleaning, is_aborted, "{case}");
        assert_ne!(fixture.calls(HOST).contains(&"deprovision"), is_aborted, "{case}");
        assert!(!fixture.knows(HOST), "{case}");
    }
}

#[tokio::test]
async fn a_host_that_was_never_registered_is_deleted_without_a_service() {
    let gone = || VerbStop::NotReady { message: "connection refused".into() };
    for was_tried in [false, true] {
        let (mut lab, fixture) = lab(json!({}));
        if was_tried {
            let verifying = VerbStop::started(ProvisionerWaitReason::Verifying);
            fixture.inject(HOST, "register", [verifying]);
        }
        fixture.inject(HOST, "register", vec![gone(); 10]);
        fixture.inject(HOST, "delete", vec![gone(); 10]);
        for _ in 0..3 {
            if let Some(after) = lab.pass().await {
                lab.now += after;
            }
        }
        assert_eq!(lab.state(), "registering");
        lab.delete();
        lab.pass().await;
        assert!(lab.is_gone);
        let (status, reason, _) = lab.condition("Manageable");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NotManaged"));
        assert!(fixture.calls(HOST).contains(&"delete"));
        let text = "The host was deleted, but a node named lab~host-1 may remain in the service: the \
                    provisioning service is not ready: connection refused";
        assert!(lab.event_texts.iter().any(|found| found == text));
    }
}

#[tokio::test]
async fn a_host_whose_registration_failed_is_deleted_at_a_service_that_is_back() {
    let (mut lab, fixture) = lab(json!({}));
    fixture.inject(HOST, "register", [VerbStop::NotReady { message: "restarting".into() }]);
    lab.pass().await;
    assert_eq!(lab.state(), "registering");
    lab.delete();
    lab.run_until_gone().await;
    assert!(fixture.calls(HOST).contains(&"delete"));
    assert!(!lab.events.contains(&"DeletionForced"));
}

#[tokio::test]
async fn rejected_credentials_are_those_in_the_secret() {
    let text = "the BMC at 192.0.2.1 rejected the credentials while trying to read its power state; \
                check the user name and password in driver_info";
    let (mut lab, fixture) = lab(json!({}));
    fixture.inject(HOST, "register", [VerbStop::failed(Kind::Registration, text)]);
    lab.pass().await;
    let message = lab.status().error_message;
    let expected = "check the user name and password in the Secret bmc (spec.bmc.credentialsName)";
    assert!(message.ends_with(expected), "{message}");
    let (mut lab, fixture) = provisioned().await;
    let repeated = VerbStop::running(ProvisionerWaitReason::Undeploying, None);
    fixture.inject(HOST, "deprovision", [repeated.with_failure(Some(text.to_owned()))]);
    lab.delete();
    lab.pass().await;
    let message = lab.condition("Progressing").2;
    assert!(message.contains(expected), "{message}");
}

#[tokio::test]
async fn a_deletion_that_failed_before_it_is_forced_still_removes_the_node() {
    for stop in [
        VerbStop::failed(Kind::Removal, "no"),
        VerbStop::Busy { reason: "locked".into() },
        repeated(ProvisionerWaitReason::Deleting),
    ] {
        let (mut lab, fixture) = available().await;
        fixture.inject(HOST, "delete", vec![stop; 3]);
        lab.delete();
        lab.run_until(|lab| lab.state() == "deleting" && fixture.calls(HOST).contains(&"delete"))
            .await;
        lab.now += Duration::from_secs(300);
        fixture.release(HOST);
        lab.annotate(FORCE_DELETE, "");
        lab.run_until_gone().await;
        assert!(!fixture.knows(HOST));
        assert!(!lab.events.contains(&"DeletionForced"));
    }
}
