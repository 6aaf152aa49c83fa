// SPDX-License-Identifier: Apache-2.0
//! Single decisions: what is called in which state, and how outcomes change the status.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::{
    ACCEPT_REPLACED_MACHINE, DETACHED, INSPECT, REBOOT, RETRY_NOW, STATUS,
};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use serde_json::{Value, json};

use super::lab::HostLab;
use crate::hosts::decide::{
    BMC_ADDRESS_VERIFIED, BmcAccessState, HostAction, HostCompanions, HostLimits, HostMemory,
    HostVerb, HostView, NextPass, VerbValue, apply, decide, is_accepted_machine_uninspected,
    is_accepted_machine_unread,
};
use crate::hosts::provisioner::fixture::FixtureProvisioner;
use crate::hosts::provisioner::{
    BmcAddressChange, BmcAddressCheck, HostHealth, HostObservation, ProvisionerFailureKind as Kind,
    ProvisionerWaitReason, RegistrationAttempt, VerbStop,
};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn host(state: &str, spec: Value, annotations: Value) -> BareMetalHost {
    let mut host = HostLab::new(Arc::new(FixtureProvisioner::default()), spec).host;
    host.metadata.finalizers = Some(vec!["baremetalhost.metal3.io".to_owned()]);
    host.metadata.annotations = serde_json::from_value(annotations).unwrap();
    host.status = serde_json::from_value(json!({
        "operationalStatus": "OK", "lastUpdated": "2026-11-17T10:00:00Z",
        "provisioning": {"state": state, "ID": "node"},
    }))
    .unwrap();
    host
}

fn companions() -> HostCompanions {
    HostCompanions {
        bmc_access: BmcAccessState::Usable { secret: "bmc".into(), version: "1".into() },
        registration_digest: 7,
        ..HostCompanions::default()
    }
}

/// A registered and adopted host in the middle of a pass.
fn memory(powered_on: bool) -> HostMemory {
    HostMemory {
        registered_digest: Some(7),
        is_adopted: true,
        has_capacity: true,
        observation: Some(HostObservation {
            powered_on: Some(powered_on),
            ..HostObservation::default()
        }),
        ..HostMemory::default()
    }
}

fn summary(action: &HostAction) -> String {
    match action {
        HostAction::Wait { after } => format!("wait {:?}", after.map(|after| after.as_secs())),
        HostAction::Update(update) => {
            format!("enter {}", update.status.provisioning.state.as_str())
        }
        HostAction::Call(verb) => format!("{verb:?}"),
    }
}

#[test]
fn every_state_has_its_action() {
    let image = || json!({"image": {"url": "http://images/a"}});
    let none = || json!({});
    for (state, spec, annotations, expected) in [
        ("", none(), none(), "enter registering"),
        ("", json!({"bmc": null}), none(), "enter unmanaged"),
        ("unmanaged", json!({"bmc": null}), none(), "wait None"),
        ("unmanaged", none(), none(), "enter registering"),
        ("registering", none(), none(), "Register"),
        ("match profile", none(), none(), "enter preparing"),
        ("inspecting", none(), none(), "Inspect { refresh: false, is_forced: false }"),
        ("inspecting", none(), json!({INSPECT: ""}), "Inspect { refresh: true, is_forced: false }"),
        (
            "inspecting",
            none(),
            json!({REBOOT: "{\"force\":true}"}),
            "Inspect { refresh: false, is_forced: true }",
        ),
        (
            "inspecting",
            none(),
            json!({RETRY_NOW: ""}),
            "Inspect { refresh: false, is_forced: true }",
        ),
        ("preparing", none(), none(), "Prepare"),
        (
            "preparing",
            json!({"externallyProvisioned": true}),
            none(),
            "enter externally provisioned",
        ),
        ("available", none(), none(), "wait Some(60)"),
        ("ready", none(), none(), "wait Some(60)"),
        ("available", image(), none(), "enter provisioning"),
        ("available", json!({"customDeploy": {"method": "x"}}), none(), "enter provisioning"),
        (
            "available",
            json!({"image": {"url": "http://i"}, "online": false}),
            none(),
            "PowerOff { mode: Soft }",
        ),
        ("available", json!({"online": false}), none(), "PowerOff { mode: Soft }"),
        (
            "available",
            json!({"externallyProvisioned": true}),
            none(),
            "enter externally provisioned",
        ),
        ("available", none(), json!({INSPECT: ""}), "enter inspecting"),
        ("available", none(), json!({INSPECT: "disabled"}), "wait Some(60)"),
        ("available", json!({"raid": {"hardwareRAIDVolumes": []}}), none(), "enter preparing"),
        ("available", json!({"rootDeviceHints": {"model": "x"}}), none(), "enter preparing"),
        ("available", none(), json!({DETACHED: ""}), "Detach { is_forced: false }"),
        (
            "inspecting",
            none(),
            json!({DETACHED: ""}),
            "Inspect { refresh: false, is_forced: false }",
        ),
        ("inspecting", none(), json!({DETACHED: "{\"force\":true}"}), "Detach { is_forced: true }"),
        ("provisioning", none(), none(), "Provision { is_forced: false }"),
        ("provisioning", image(), none(), "enter deprovisioning"),
        ("provisioned", none(), none(), "wait Some(60)"),
        ("provisioned", image(), none(), "enter deprovisioning"),
        ("provisioned", none(), json!({REBOOT: ""}), "PowerOff { mode: Soft }"),
        ("provisioned", none(), json!({REBOOT: "{\"mode\":\"hard\"}"}), "PowerOff { mode: Hard }"),
        ("provisioned", none(), json!({DETACHED: ""}), "Detach { is_forced: false }"),
        ("available", none(), json!({REBOOT: ""}), "wait Some(60)"),
        ("externally provisioned", json!({"externallyProvisioned": true}), none(), "wait Some(60)"),
        ("externally provisioned", none(), none(), "enter provisioned"),
        ("deprovisioning", none(), none(), "Deprovision"),
        ("powering off before delete", none(), none(), "PowerOffBeforeDelete"),
        ("deleting", none(), none(), "Delete"),
        ("future state", none(), none(), "wait None"),
    ] {
        let mut host = host(state, spec.clone(), annotations.clone());
        host.status.as_mut().unwrap().powered_on = true;
        let (companions, memory, policy) = (companions(), memory(true), HostLimits::default());
        let view = HostView::new(&host, &companions, &memory, &policy);
        assert_eq!(summary(&decide(&view, now())), expected, "{state:?} {spec} {annotations}");
    }
}

#[test]
fn hosts_that_metal3_prepared_stay_available() {
    let sda = || json!({"deviceName": "/dev/sda"});
    for (spec, applied, expected) in [
        (json!({}), sda(), "wait Some(60)"),
        (json!({"rootDeviceHints": sda()}), sda(), "wait Some(60)"),
        (json!({"rootDeviceHints": {"deviceName": "/dev/sdb"}}), sda(), "enter preparing"),
        (json!({}), json!({"deviceName": "/dev/sdb"}), "enter preparing"),
    ] {
        let mut host = host("available", spec.clone(), json!({}));
        let status = host.status.as_mut().unwrap();
        status.powered_on = true;
        status.provisioning.root_device_hints = serde_json::from_value(applied.clone()).unwrap();
        let (companions, memory, policy) = (companions(), memory(true), HostLimits::default());
        let view = HostView::new(&host, &companions, &memory, &policy);
        assert_eq!(summary(&decide(&view, now())), expected, "{spec} {applied}");
    }
}

#[test]
fn what_is_not_known_is_read_first() {
    for (state, change, expected) in [
        ("provisioned", "registration", "Register"),
        ("provisioned", "adoption", "Adopt"),
        ("provisioned", "observation", "Observe"),
        ("deprovisioning", "adoption", "Adopt"),
        ("deprovisioning", "capacity", "CheckCapacity"),
        ("inspecting", "capacity", "CheckCapacity"),
        ("provisioning", "capacity", "CheckCapacity"),
    ] {
        let host = host(state, json!({}), json!({}));
        let mut memory = memory(true);
        match change {
            "registration" => memory.registered_digest = Some(6),
            "adoption" => memory.is_adopted = false,
            "observation" => memory.observation = None,
            _ => memory.has_capacity = false,
        }
        let (companions, policy) = (companions(), HostLimits::default());
        let view = HostView::new(&host, &companions, &memory, &policy);
        assert_eq!(summary(&decide(&view, now())), expected, "{state} {change}");
    }
}

#[test]
fn outcomes_change_the_state() {
    let nothing = || Ok(VerbValue::Nothing);
    let registered = || Ok(VerbValue::Registration(Ok("n".to_owned()).into()));
    let failed = |kind| Err(VerbStop::failed(kind, "no"));
    let waits = |reason| Err(VerbStop::started(reason));
    for (state, spec, verb, outcome, expected) in [
        ("registering", json!({}), HostVerb::Register, registered(), "inspecting "),
        (
            "registering",
            json!({"inspectionMode": "disabled"}),
            HostVerb::Register,
            registered(),
            "preparing ",
        ),
        (
            "registering",
            json!({"externallyProvisioned": true}),
            HostVerb::Register,
            registered(),
            "externally provisioned ",
        ),
        (
            "registering",
            json!({}),
            HostVerb::Register,
            failed(Kind::Registration),
            "registering registration error",
        ),
        ("available", json!({}), HostVerb::Register, registered(), "available "),
        (
            "inspecting",
            json!({}),
            HostVerb::Inspect { refresh: false, is_forced: false },
            Ok(VerbValue::Hardware(Box::default())),
            "preparing ",
        ),
        (
            "inspecting",
            json!({}),
            HostVerb::Inspect { refresh: false, is_forced: false },
            failed(Kind::Inspection),
            "inspecting inspection error",
        ),
        ("preparing", json!({}), HostVerb::Prepare, nothing(), "available "),
        (
            "preparing",
            json!({}),
            HostVerb::Prepare,
            failed(Kind::Preparation),
            "preparing preparation error",
        ),
        (
            "preparing",
            json!({}),
            HostVerb::Prepare,
            waits(ProvisionerWaitReason::Cleaning),
            "preparing ",
        ),
        (
            "provisioning",
            json!({}),
            HostVerb::Provision { is_forced: false },
            nothing(),
            "provisioned ",
        ),
        (
            "provisioning",
            json!({}),
            HostVerb::Provision { is_forced: false },
            failed(Kind::Provisioning),
            "deprovisioning provisioning error",
        ),
        ("deprovisioning", json!({}), HostVerb::Deprovision, nothing(), "available "),
        (
            "deprovisioning",
            json!({}),
            HostVerb::Deprovision,
            failed(Kind::Provisioning),
            "deprovisioning provisioning error",
        ),
        (
            "powering off before delete",
            json!({}),
            HostVerb::PowerOffBeforeDelete,
            nothing(),
            "deleting ",
        ),
        (
            "provisioned",
            json!({}),
            HostVerb::Adopt,
            failed(Kind::Adoption),
            "provisioned provisioned registration error",
        ),
        (
            "provisioned",
            json!({}),
            HostVerb::Service,
            failed(Kind::Servicing),
            "provisioned servicing error",
        ),
        (
            "provisioned",
            json!({}),
            HostVerb::Detach { is_forced: false },
            failed(Kind::Removal),
            "provisioned registration error",
        ),
        (
            "provisioned",
            json!({}),
            HostVerb::Observe,
            Err(VerbStop::NotReady { message: "down".into() }),
            "provisioned ",
        ),
        (
            "provisioned",
            json!({}),
            HostVerb::PowerOn,
            Err(VerbStop::Busy { reason: "locked".into() }),
            "provisioned ",
        ),
    ] {
        let host = host(state, spec, json!({}));
        let (companions, memory, policy) = (companions(), memory(true), HostLimits::default());
        let view = HostView::new(&host, &companions, &memory, &policy);
        let case = format!("{state} {verb:?} {outcome:?}");
        let status = apply(&view, &verb, outcome, now()).status;
        let error = status.error_type.as_ref().map(|kind| kind.as_str()).unwrap_or_default();
        let actual = format!("{} {error}", status.provisioning.state.as_str());
        assert_eq!(actual, expected, "{case}");
        assert_eq!(status.error_message.is_empty(), error.is_empty(), "{case}");
    }
}

#[test]
fn a_lost_node_is_registered_again_without_a_loop() {
    let host = host("provisioned", json!({}), json!({}));
    let (companions, policy) = (companions(), HostLimits::default());
    for (is_registered_in_pass, is_immediate) in [(false, true), (true, false)] {
        let memory = HostMemory { is_registered_in_pass, ..memory(true) };
        let view = HostView::new(&host, &companions, &memory, &policy);
        let update = apply(&view, &HostVerb::Observe, Err(VerbStop::NeedsRegistration), now());
        assert_eq!(update.next == NextPass::Now, is_immediate);
        assert_eq!(update.memory.registered_digest, None);
    }
}

#[test]
fn conditions_show_health_power_failure_and_progress() {
    let host = host("provisioned", json!({}), json!({}));
    let (companions, memory, policy) = (companions(), memory(true), HostLimits::default());
    let view = HostView::new(&host, &companions, &memory, &policy);
    for (health, has_power_failure, expected) in [
        (None, false, "Unknown/Unknown True/Manageable"),
        (Some(HostHealth::Ok), false, "True/Healthy True/Manageable"),
        (Some(HostHealth::Warning), false, "False/Warning True/Manageable"),
        (Some(HostHealth::Critical), true, "False/CriticalError False/PowerFailure"),
    ] {
        let seen = HostObservation { powered_on: None, has_power_failure, health };
        let update = apply(&view, &HostVerb::Observe, Ok(VerbValue::Observation(seen)), now());
        let show = |name: &str| {
            let mut found = update.status.conditions.iter();
            let found = found.find(|condition| condition.type_ == name).unwrap();
            format!("{}/{}", found.status, found.reason)
        };
        assert_eq!(format!("{} {}", show("Healthy"), show("Manageable")), expected);
    }
}

#[test]
fn reported_changes_replace_polling() {
    let mut host = host("provisioned", json!({}), json!({}));
    host.status.as_mut().unwrap().powered_on = true;
    let (companions, memory) = (companions(), memory(true));
    for (are_changes_reported, steady, running) in
        [(false, "wait Some(60)", 3..=13), (true, "wait None", 60..=75)]
    {
        let policy = HostLimits { are_changes_reported, ..HostLimits::default() };
        let view = HostView::new(&host, &companions, &memory, &policy);
        assert_eq!(summary(&decide(&view, now())), steady);
        for (reason, expected) in [
            (ProvisionerWaitReason::Servicing, running),
            // The node does not show it.
            (ProvisionerWaitReason::VirtualMedia, 3..=4),
        ] {
            let outcome = Err(VerbStop::running(reason, None));
            let next = apply(&view, &HostVerb::Service, outcome, now()).next;
            let NextPass::After(Some(after)) = next else { panic!("{next:?}") };
            assert!(expected.contains(&after.as_secs()), "{after:?}");
        }
    }
}

#[test]
fn objects_without_requests_need_not_be_read() {
    let host = host("preparing", json!({}), json!({}));
    let (memory, policy) = (memory(true), HostLimits::default());
    let settings = |value: Value| {
        let settings = json!({"metadata": {"generation": 1}, "spec": {"settings": value}});
        HostCompanions {
            firmware_settings: serde_json::from_value(settings).unwrap(),
            ..companions()
        }
    };
    let updates = |value: Value| {
        let updates = json!({"metadata": {"generation": 1}, "spec": {"updates": value}});
        HostCompanions {
            firmware_components: serde_json::from_value(updates).unwrap(),
            ..companions()
        }
    };
    for (companions, expected) in [
        (settings(json!({})), "Prepare"),
        (settings(json!({"a": "b"})), "wait Some(60)"),
        (updates(json!([])), "Prepare"),
        (updates(json!([{"component": "bmc", "url": "http://a"}])), "wait Some(60)"),
    ] {
        let view = HostView::new(&host, &companions, &memory, &policy);
        assert_eq!(summary(&decide(&view, now())), expected);
    }
}

#[test]
fn a_missing_secret_delays_a_deployment_without_failing_it() {
    let host = host("provisioning", json!({}), json!({}));
    let (companions, memory, policy) = (companions(), memory(true), HostLimits::default());
    let view = HostView::new(&host, &companions, &memory, &policy);
    let outcome = Err(VerbStop::MissingInput { message: "the Secret x does not exist".into() });
    let update = apply(&view, &HostVerb::Provision { is_forced: false }, outcome, now());
    assert_eq!(update.status.provisioning.state.as_str(), "provisioning");
    assert!(update.status.error_message.is_empty());
    let mut progressing = update.status.conditions.iter();
    let progressing = progressing.find(|condition| condition.type_ == "Progressing").unwrap();
    assert!(progressing.message.contains("the Secret x does not exist"));
}

#[test]
fn hardware_data_is_newer_than_a_restored_status() {
    let status = json!({"provisioning": {"state": "provisioned"}, "hardware": {"hostname": "old"}});
    let mut host = host("", json!({}), json!({STATUS: status.to_string()}));
    host.status = None;
    let hardware = serde_json::from_value(json!({"hostname": "new"})).unwrap();
    let companions = HostCompanions { hardware_data: Some(hardware), ..companions() };
    let (memory, policy) = (HostMemory::default(), HostLimits::default());
    let view = HostView::new(&host, &companions, &memory, &policy);
    let HostAction::Update(update) = decide(&view, now()) else { panic!("nothing to write") };
    assert_eq!(update.status.hardware.unwrap().hostname.as_deref(), Some("new"));
    assert_eq!(update.status.provisioning.state.as_str(), "provisioned");
}

#[test]
fn a_changed_bmc_address_is_shown() {
    let node_id = || Ok("node".to_owned());
    let stopped = || Err(VerbStop::failed(Kind::Registration, "no response"));
    let rejected = || Err(VerbStop::failed(Kind::Identity, "another machine"));
    let changed = |check, failure: Option<&str>| {
        Some(BmcAddressChange { check, probe_failure: failure.map(str::to_owned) })
    };
    let same = || BmcAddressCheck::SameMachine { identity: "serial number A1".into() };
    let unknown = || BmcAddressCheck::NotVerified { reason: "stock Ironic".into() };
    let is_same = "True/SameMachine/serial number A1";
    let unread = "Unknown/Accepted/accepted by the annotation \
        baremetalhost.metal3.io/accept-replaced-machine; the service keeps the details of the \
        earlier machine: no response";
    let is_accepted = "True/Accepted/accepted by the annotation \
        baremetalhost.metal3.io/accept-replaced-machine";
    let error = Some("registration error");
    let (companions, memory, policy) = (companions(), memory(true), HostLimits::default());
    let mut host = host("provisioned", json!({}), json!({ACCEPT_REPLACED_MACHINE: ""}));
    for (node_id, address_change, expected, error) in [
        (node_id(), None, None, None),
        (node_id(), changed(same(), None), Some(is_same), None),
        (node_id(), None, Some(is_same), None),
        (rejected(), None, Some("False/DifferentMachine/another machine"), error),
        // The user restored the address.
        (node_id(), None, Some("True/Unchanged/"), None),
        (node_id(), changed(unknown(), None), Some("Unknown/NotVerified/stock Ironic"), None),
        // The registration ends in a later call.
        (stopped(), changed(same(), None), Some(is_same), error),
        (node_id(), None, Some(is_same), None),
        (stopped(), changed(BmcAddressCheck::Accepted, Some("no response")), Some(unread), error),
        (node_id(), changed(BmcAddressCheck::Accepted, None), Some(is_accepted), None),
    ] {
        let view = HostView::new(&host, &companions, &memory, &policy);
        let is_removed = node_id.is_ok() || address_change.is_some();
        let value = VerbValue::Registration(RegistrationAttempt { node_id, address_change });
        let update = apply(&view, &HostVerb::Register, Ok(value), now());
        let conditions = update.status.conditions.iter();
        let shown = conditions.clone().find(|condition| condition.type_ == BMC_ADDRESS_VERIFIED);
        let shown = shown.map(|it| format!("{}/{}/{}", it.status, it.reason, it.message));
        assert_eq!(shown.as_deref(), expected);
        assert_eq!(is_accepted_machine_unread(&update.status), expected == Some(unread));
        let kind = update.status.error_type.as_ref().map(|kind| kind.as_str().to_owned());
        assert_eq!(kind.as_deref(), error);
        let removed = &update.patch.removed_annotations;
        assert_eq!(removed.iter().any(|key| key == ACCEPT_REPLACED_MACHINE), is_removed);
        assert_eq!(update.patch.requests_inspection, is_removed);
        host.status = Some(*update.status);
    }
}

#[test]
fn a_machine_that_the_user_accepts_is_registered_at_once() {
    let (companions, memory, policy) = (companions(), memory(true), HostLimits::default());
    for (kind, annotations, expected) in [
        (Kind::Identity, json!({}), "wait Some"),
        (Kind::Identity, json!({ACCEPT_REPLACED_MACHINE: ""}), "Register"),
        (Kind::Registration, json!({ACCEPT_REPLACED_MACHINE: ""}), "wait Some"),
    ] {
        let mut host = host("provisioned", json!({}), annotations.clone());
        let view = HostView::new(&host, &companions, &memory, &policy);
        let failed = Err(VerbStop::failed(kind, "no"));
        host.status = Some(*apply(&view, &HostVerb::Register, failed, now()).status);
        let view = HostView::new(&host, &companions, &memory, &policy);
        let action = summary(&decide(&view, now()));
        assert!(action.starts_with(expected), "{kind:?} {annotations}: {action}");
    }
}

#[test]
fn a_replaced_machine_is_inspected_unless_inspection_is_disabled() {
    let (companions, memory, policy) = (companions(), memory(true), HostLimits::default());
    let accepts = json!({ACCEPT_REPLACED_MACHINE: ""});
    for (spec, annotations, expected) in [
        (json!({}), accepts.clone(), true),
        (json!({}), json!({}), false),
        (json!({"inspectionMode": "disabled"}), accepts, false),
        (json!({}), json!({ACCEPT_REPLACED_MACHINE: "", INSPECT: "disabled"}), false),
    ] {
        let case = format!("{spec} {annotations}");
        let mut host = host("available", spec, annotations);
        let view = HostView::new(&host, &companions, &memory, &policy);
        let check = BmcAddressCheck::Accepted;
        let change = BmcAddressChange { check, probe_failure: None };
        let attempt =
            RegistrationAttempt { node_id: Ok("node".into()), address_change: Some(change) };
        let value = VerbValue::Registration(attempt);
        let update = apply(&view, &HostVerb::Register, Ok(value), now());
        assert_eq!(update.patch.requests_inspection, expected, "{case}");
        assert!(!is_accepted_machine_uninspected(&view.status), "{case}: not accepted yet");
        assert!(is_accepted_machine_uninspected(&update.status), "{case}");
        // The start of the inspection is not enough.
        host.status = Some(*update.status);
        let view = HostView::new(&host, &companions, &memory, &policy);
        let verb = HostVerb::Inspect { is_forced: false, refresh: true };
        let started = Err(VerbStop::started(ProvisionerWaitReason::Inspecting));
        let update = apply(&view, &verb, started, now());
        assert!(is_accepted_machine_uninspected(&update.status), "{case}");
        host.status = Some(*update.status);
        let view = HostView::new(&host, &companions, &memory, &policy);
        let update = apply(&view, &verb, Ok(VerbValue::Hardware(Box::default())), now());
        assert!(!is_accepted_machine_uninspected(&update.status), "{case}");
    }
}
