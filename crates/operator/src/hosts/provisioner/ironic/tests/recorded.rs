// SPDX-License-Identifier: Apache-2.0
//! Requests that verbs send in the states of a node.

use std::sync::Arc;

use kube_resources::hosts::annotations::{FORCE_DELETE, HostRebootMode};
use kube_resources::hosts::bmc_address::BmcAddress;
use serde_json::{Value, json};

use super::recording::{RecordedService, fixture, show};
use crate::hosts::decide::tests::lab::HostLab;
use crate::hosts::provisioner::{
    AbortScope, AdoptionRequest, BmcEventRequest, DeprovisionRequest, FirmwareChanges,
    HostDeployRequest, HostObservation, HostProvisioner, InspectionRequest, PowerOffRequest,
    PreparationRequest, RegistrationRequest, ServicingRequest, VerbStop,
};

const ABORT: &str = "PUT NODE/states/provision abort";

async fn call(fixture: &RecordedService, verb: &str) -> String {
    let (provisioner, host) = (&fixture.provisioner, &fixture.host);
    let firmware = FirmwareChanges {
        updates: serde_json::from_value(json!([{"component": "bmc", "url": "http://f"}])).unwrap(),
        ..FirmwareChanges::default()
    };
    let restarts = verb.ends_with(" again");
    let is_forced = verb.ends_with(" forced");
    match verb.trim_end_matches(" again").trim_end_matches(" forced") {
        "register" => {
            let request =
                RegistrationRequest { restart_on_failure: restarts, ..Default::default() };
            show(&provisioner.register(host, &request).await.node_id)
        }
        "inspect" => {
            let request =
                InspectionRequest { restart_on_failure: restarts, is_forced, ..Default::default() };
            show(&provisioner.inspect(host, &request).await)
        }
        "prepare" => {
            let request = PreparationRequest {
                firmware,
                is_start: true,
                restart_on_failure: restarts,
                ..Default::default()
            };
            show(&provisioner.prepare(host, &request).await)
        }
        "service" => {
            let request =
                ServicingRequest { firmware, is_start: true, restart_on_failure: restarts };
            show(&provisioner.service(host, &request).await)
        }
        "withdraw" => show(&provisioner.service(host, &ServicingRequest::default()).await),
        "provision" => {
            let image =
                serde_json::from_value(json!({"url": "http://i", "checksum": "c"})).unwrap();
            let request = HostDeployRequest {
                image: Some(image),
                config_drive: Some(json!({"meta_data": {}})),
                is_forced,
                restart_on_failure: restarts,
                ..Default::default()
            };
            show(&provisioner.provision(host, &request).await)
        }
        "deprovision" => {
            let request = DeprovisionRequest { restart_on_failure: restarts, ..Default::default() };
            show(&provisioner.deprovision(host, &request).await)
        }
        "adopt" => {
            let request = AdoptionRequest { restart_on_failure: restarts };
            show(&provisioner.adopt(host, &request).await)
        }
        "power on" => show(&provisioner.power_on(host, restarts).await),
        mode @ ("power off" | "soft off" | "final off" | "unused off") => {
            let is_soft = mode == "soft off";
            let request = PowerOffRequest {
                mode: if is_soft { HostRebootMode::Soft } else { HostRebootMode::Hard },
                is_forced: restarts,
                aborts: match mode {
                    "final off" => AbortScope::AllButErasure,
                    "unused off" => AbortScope::Everything,
                    _ => AbortScope::Nothing,
                },
            };
            show(&provisioner.power_off(host, &request).await)
        }
        "delete" => {
            let scope = match (is_forced, restarts) {
                (true, _) => AbortScope::Forced,
                (false, true) => AbortScope::Everything,
                (false, false) => AbortScope::AllButErasure,
            };
            show(&provisioner.delete(host, scope).await)
        }
        "detach" => show(&provisioner.detach(host, restarts).await),
        other => panic!("unknown verb {other}"),
    }
}

#[tokio::test]
async fn every_verb_continues_from_every_state() {
    let deploy = "PATCH NODE /instance_uuid /instance_info/capabilities \
                  /instance_info/image_checksum /instance_info/image_source \
                  /driver_info/force_persistent_boot_device";
    for (verb, state, outcome, changes) in [
        ("register", "enroll", "started verifying the BMC", "PUT NODE/states/provision manage"),
        ("register", "verifying", "verifying the BMC", ""),
        ("register", "manageable", "done", ""),
        ("register", "active", "done", ""),
        ("inspect", "available", "changing the node's state", "PUT NODE/states/provision manage"),
        ("inspect", "manageable", "started inspecting", "PUT NODE/states/provision inspect"),
        ("inspect", "inspect wait", "inspecting", ""),
        ("inspect", "inspect failed", "failed bad luck", ""),
        (
            "inspect again",
            "inspect failed",
            "started inspecting",
            "DELETE NODE/maintenance, PUT NODE/states/provision inspect",
        ),
        ("inspect forced", "inspect wait", "started aborting", ABORT),
        ("prepare", "available", "changing the node's state", "PUT NODE/states/provision manage"),
        ("prepare", "manageable", "started cleaning", "PUT NODE/states/provision clean"),
        ("prepare", "clean wait", "cleaning", ""),
        ("prepare", "clean failed", "failed bad luck", ""),
        (
            "prepare again",
            "clean failed",
            "changing the node's state",
            "DELETE NODE/maintenance, PUT NODE/states/provision manage",
        ),
        ("provision", "manageable", "started cleaning", "PUT NODE/states/provision provide"),
        ("provision", "wait call-back", "deploying", ""),
        // An abort would be a failed deployment.
        (
            "provision forced",
            "wait call-back",
            "started aborting",
            "PUT NODE/states/provision deleted",
        ),
        ("provision", "clean failed", "failed bad luck", ""),
        (
            "provision again",
            "clean failed",
            "started changing the node's state",
            "DELETE NODE/maintenance, PUT NODE/states/provision manage",
        ),
        ("provision", "cleaning", "cleaning", ""),
        ("provision", "active", "done", ""),
        (
            "deprovision",
            "active",
            "started removing the image",
            "PUT NODE/states/provision deleted",
        ),
        (
            "deprovision",
            "deploy failed",
            "started removing the image",
            "DELETE NODE/maintenance, PUT NODE/states/provision deleted",
        ),
        ("deprovision", "error", "failed bad luck", ""),
        (
            "deprovision again",
            "error",
            "started removing the image",
            "DELETE NODE/maintenance, PUT NODE/states/provision deleted",
        ),
        (
            "deprovision",
            "wait call-back",
            "started removing the image",
            "PUT NODE/states/provision deleted",
        ),
        ("deprovision", "service wait", "started aborting", ABORT),
        ("deprovision", "clean failed", "failed bad luck", ""),
        (
            "deprovision again",
            "clean failed",
            "started changing the node's state",
            "DELETE NODE/maintenance, PUT NODE/states/provision manage",
        ),
        ("deprovision", "manageable", "started cleaning", "PUT NODE/states/provision provide"),
        ("deprovision", "available", "done", ""),
        ("adopt", "manageable", "started adopting", "PUT NODE/states/provision adopt"),
        ("adopt", "adopting", "adopting", ""),
        ("adopt", "adopt failed", "failed bad luck", ""),
        (
            "adopt again",
            "adopt failed",
            "started adopting",
            "DELETE NODE/maintenance, PUT NODE/states/provision adopt",
        ),
        ("service", "active", "started servicing", "PUT NODE/states/provision service"),
        ("service", "service wait", "servicing", ""),
        ("service", "service failed", "failed bad luck", ""),
        (
            "service again",
            "service failed",
            "started servicing",
            "DELETE NODE/maintenance, PUT NODE/states/provision service",
        ),
        (
            "withdraw",
            "service failed",
            "started aborting",
            "DELETE NODE/maintenance, PUT NODE/states/provision abort",
        ),
        ("withdraw", "servicing", "servicing", ""),
        ("withdraw", "service wait", "started aborting", ABORT),
        ("withdraw", "active", "done", ""),
        (
            "power on",
            "active",
            "started changing the power state",
            "PUT NODE/states/power power on",
        ),
        ("final off", "clean wait > manageable", "started aborting", ABORT),
        ("final off", "clean wait > available", "changing the node's state", ""),
        ("final off", "inspect wait", "started aborting", ABORT),
        ("unused off", "clean wait > available", "started aborting", ABORT),
        ("delete again", "clean wait > available", "started aborting", ABORT),
        ("delete again", "cleaning", "removing the node", ""),
        ("delete forced", "clean wait > available", "started aborting", ABORT),
        ("delete forced", "wait call-back", "started aborting", ABORT),
        ("delete forced", "cleaning", "started removing the node", "DELETE NODE"),
        ("inspect", "error", "failed bad luck", ""),
        (
            "inspect again",
            "error",
            "removing the image",
            "DELETE NODE/maintenance, PUT NODE/states/provision deleted",
        ),
        (
            "prepare again",
            "deploy failed",
            "removing the image",
            "DELETE NODE/maintenance, PUT NODE/states/provision deleted",
        ),
        ("provision", "error", "failed bad luck", ""),
        (
            "provision",
            "adopt failed",
            "started changing the node's state",
            "DELETE NODE/maintenance, PUT NODE/states/provision manage",
        ),
        ("delete", "enroll", "started removing the node", "DELETE NODE"),
        ("delete", "active", "started removing the node", "DELETE NODE"),
        ("delete", "cleaning", "removing the node", ""),
        ("delete", "clean wait > available", "removing the node", ""),
        ("delete", "clean wait > manageable", "started aborting", ABORT),
        ("delete", "inspect wait", "started aborting", ABORT),
        ("delete", "service wait", "started aborting", ABORT),
        ("delete", "verifying", "removing the node", ""),
        ("detach again", "clean wait > available", "started aborting", ABORT),
        ("detach", "clean wait > available", "removing the node", ""),
        ("detach", "inspect wait", "removing the node", ""),
        ("detach again", "inspect wait", "started aborting", ABORT),
        ("detach again", "wait call-back", "started aborting", ABORT),
        ("inspect", "enroll", "needs registration", ""),
    ] {
        let failed = state.contains("failed") || state == "error";
        let (name, target) = state.split_once(" > ").unzip();
        let node = json!({
            "provision_state": name.unwrap_or(state), "target_provision_state": target,
            "last_error": failed.then_some("bad luck"), "maintenance": failed || verb.starts_with("delete"),
        });
        let fixture = fixture(Some(node), &[]);
        assert_eq!(call(&fixture, verb).await, outcome, "{verb} in {state}");
        assert_eq!(fixture.changes().join(", "), changes, "{verb} in {state}");
    }
    let fixture = fixture(
        Some(json!({"provision_state": "available"})),
        &[("GET NODE/validate", json!({"boot": {"result": true}, "deploy": {"result": true}}))],
    );
    assert_eq!(call(&fixture, "provision").await, "started deploying");
    assert_eq!(fixture.changes(), [deploy, "PUT NODE/states/provision active"]);
}

#[tokio::test]
async fn errors_of_the_service_become_outcomes() {
    let active = || Some(json!({"provision_state": "active", "power_state": "power on"}));
    for (status, expected) in [
        (409, "busy status 409"),
        (400, "failed status 400"),
        (401, "not ready status 401"),
        (500, "not ready status 500"),
        (503, "not ready status 503"),
    ] {
        let fixture = fixture(active(), &[("PUT NODE/states/power", json!(status))]);
        assert_eq!(call(&fixture, "power off").await, expected);
    }
    let fixture = fixture(None, &[]);
    assert_eq!(call(&fixture, "power off").await, "needs registration");
    assert_eq!(call(&fixture, "delete").await, "done");
}

#[tokio::test]
async fn validation_errors_are_shown() {
    let report = json!({"boot": {"result": false, "reason": "no ramdisk"}, "deploy": {"result": true},
        "console": {"result": false}});
    let fixture =
        fixture(Some(json!({"provision_state": "available"})), &[("GET NODE/validate", report)]);
    let outcome = call(&fixture, "provision").await;
    assert_eq!(outcome, "failed the host cannot be deployed: boot: no ramdisk");
}

#[tokio::test]
async fn a_new_host_is_created_with_its_interfaces() {
    let mut fixture = fixture(None, &[]);
    fixture.host.boot_mac_address = Some("52:54:00:AA:00:01".to_owned());
    assert_eq!(call(&fixture, "register").await, "started verifying the BMC");
    let changes = fixture.recording.changes.lock().unwrap();
    assert_eq!(changes[0].0, "POST /v1/nodes");
    assert_eq!(
        changes[0].1,
        json!({
            "driver": "redfish", "name": "lab~host-1", "boot_interface": "redfish-virtual-media",
            "raid_interface": "redfish", "firmware_interface": "redfish",
            "inspect_interface": "agent",
            "driver_info": {"redfish_address": "https://192.0.2.1", "redfish_username": "admin",
                "redfish_password": "secret", "redfish_system_id": "/redfish/v1/Systems/1"},
            "properties": {"capabilities": "boot_mode:uefi"},
        })
    );
    let port = changes.iter().find(|(line, _)| line == "POST /v1/ports").unwrap();
    assert_eq!(
        port.1,
        json!({"node_uuid": "n1", "address": "52:54:00:aa:00:01", "pxe_enabled": true})
    );
}

#[tokio::test]
async fn changed_credentials_are_sent_and_verified() {
    for (check, expected) in [(json!({}), "done"), (json!(404), "done"), (json!(500), "failed")] {
        let fixture = fixture(
            Some(json!({"provision_state": "active"})),
            &[("GET NODE/management/boot_device", check)],
        );
        let request = RegistrationRequest { credentials_changed: true, ..Default::default() };
        let outcome = show(&fixture.provisioner.register(&fixture.host, &request).await.node_id);
        assert!(outcome.starts_with(expected), "{outcome}");
        assert_eq!(fixture.changes(), ["PATCH NODE /driver_info/redfish_password"]);
    }
}

#[tokio::test]
async fn a_soft_power_off_falls_back_to_a_hard_one() {
    let active = json!({"provision_state": "active", "power_state": "power on"});
    let fixture = fixture(Some(active), &[]);
    assert_eq!(call(&fixture, "soft off").await, "started changing the power state");
    assert_eq!(fixture.changes(), ["PUT NODE/states/power soft power off"]);
    let active = json!({"provision_state": "active", "power_state": "power on"});
    let fixture = self::fixture(Some(active), &[("PUT NODE/states/power", json!(400))]);
    assert_eq!(call(&fixture, "soft off").await, "failed status 400");
    assert_eq!(
        fixture.changes(),
        ["PUT NODE/states/power soft power off", "PUT NODE/states/power power off"]
    );
    let last_error = json!({"provision_state": "active", "power_state": "power on",
        "last_error": "Failed to change power state to 'power off'"});
    let fixture = self::fixture(Some(last_error), &[]);
    assert!(call(&fixture, "soft off").await.starts_with("failed Failed to change power state"));
    assert_eq!(call(&fixture, "power off again").await, "started changing the power state");
}

#[tokio::test]
async fn readings_are_translated() {
    let node = json!({"provision_state": "active", "power_state": "power off", "health": "CRITICAL",
        "fault": "power failure"});
    let responses = [
        (
            "GET NODE/bios?detail=true",
            json!({"bios": [{"name": "A", "value": "1", "attribute_type": "Integer"}]}),
        ),
        ("GET NODE/firmware", json!({"firmware": [{"component": "bmc", "initial_version": "1"}]})),
        ("GET NODE/vmedia", json!([{"device_type": "cdrom", "inserted": true}])),
        ("POST NODE/vendor_passthru?method=create_subscription", json!({"Id": "7"})),
    ];
    let RecordedService { provisioner, host, .. } = &fixture(Some(node), &responses);
    let seen = provisioner.observe(host).await.unwrap();
    assert_eq!((seen.powered_on, seen.has_power_failure), (Some(false), true));
    assert_ne!(seen, HostObservation::default());
    let settings = provisioner.firmware_settings(host, true).await.unwrap();
    assert_eq!(settings.settings["A"], "1");
    assert!(settings.schema.unwrap()["A"].attribute_type.is_some());
    assert_eq!(provisioner.firmware_components(host).await.unwrap().len(), 1);
    assert!(provisioner.attach_data_image(host, "http://data").await.is_ok());
    let subscription = BmcEventRequest::default();
    assert_eq!(provisioner.add_event_subscription(host, &subscription).await.unwrap(), "7");
}

#[tokio::test]
async fn an_old_or_empty_service_is_not_ready() {
    for (line, response, expected) in [
        ("GET /v1", json!({"version": {"version": "1.80"}}), "API version 1.80"),
        ("GET /v1", json!({}), "does not state"),
        ("GET /v1/drivers", json!({"drivers": []}), "no driver"),
        ("GET /v1", json!(503), "503"),
    ] {
        let fixture = fixture(None, &[(line, response)]);
        let outcome = call(&fixture, "adopt").await;
        assert!(outcome.starts_with("not ready") && outcome.contains(expected), "{outcome}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_are_listed_once_per_period() {
    let busy: Vec<Value> = (0..19)
        .map(|number| json!({"uuid": format!("b{number}"), "provision_state": "cleaning"}))
        .chain([json!({"uuid": "v", "provision_state": "cleaning",
            "boot_interface": "redfish-virtual-media"})])
        .collect();
    let list = "GET /v1/nodes?fields=uuid,name,provision_state,boot_interface&limit=1000";
    let mut fixture = fixture(None, &[(list, json!({"nodes": busy}))]);
    assert!(fixture.provisioner.has_capacity(&fixture.host).await.unwrap(), "virtual media");
    fixture.host.bmc.as_mut().unwrap().address = BmcAddress::parse("ipmi://192.0.2.1").unwrap();
    let mut admissions = Vec::new();
    for id in ["n1", "n2", "n1", "b3"] {
        fixture.host.node_id = Some(id.to_owned());
        admissions.push(fixture.provisioner.has_capacity(&fixture.host).await.unwrap());
    }
    assert_eq!(admissions, [true, false, true, true]);
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    fixture.host.node_id = Some("n2".to_owned());
    assert!(fixture.provisioner.has_capacity(&fixture.host).await.unwrap(), "n1 never started");
}

/// States in which the service runs nothing, so that waiting would be for ever.
const SETTLED: [&str; 14] = [
    "enroll",
    "manageable",
    "available",
    "active",
    "deploy failed",
    "clean failed",
    "error",
    "inspect failed",
    "adopt failed",
    "service failed",
    "rescue",
    "rescue failed",
    "clean hold",
    "a future state",
];

#[tokio::test]
async fn no_verb_waits_in_a_state_in_which_nothing_runs() {
    for verb in [
        "register",
        "inspect",
        "prepare",
        "provision",
        "deprovision",
        "adopt",
        "service",
        "withdraw",
        "power on",
        "power off",
        "soft off",
        "final off",
        "unused off",
        "delete",
        "detach",
    ] {
        for state in SETTLED {
            for suffix in ["", " again", " forced"] {
                let verb = format!("{verb}{suffix}");
                let failed = state.contains("failed") || state == "error";
                let target = (failed || state == "clean hold").then_some("available");
                let node = json!({"provision_state": state, "target_provision_state": target,
                    "last_error": failed.then_some("bad luck"), "power_state": "power on"});
                let fixture = fixture(Some(node), &[]);
                let outcome = call(&fixture, &verb).await;
                let is_decided = ["done", "failed ", "needs registration", "busy "]
                    .iter()
                    .any(|start| outcome.starts_with(start));
                let is_progress = !fixture.changes().is_empty();
                assert!(is_decided || is_progress, "{verb} in {state}: {outcome}");
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_state_is_named_with_what_to_do() {
    for (verb, state) in [
        ("inspect", "active"),
        ("prepare", "service failed"),
        ("prepare", "rescue"),
        ("deprovision", "clean hold"),
        ("service", "available"),
    ] {
        let fixture = fixture(Some(json!({"provision_state": state, "last_error": "odd"})), &[]);
        let outcome = call(&fixture, verb).await;
        for part in [&*format!("node n1 is in the state '{state}' (odd)"), "delete it", "retry-now"]
        {
            assert!(outcome.contains(part), "{verb}: {outcome}");
        }
    }
}

#[tokio::test]
async fn a_forced_removal_ends_in_every_state() {
    let running = ["verifying", "inspecting", "cleaning", "deploying", "deleting", "adopting"];
    let waiting = ["inspect wait", "clean wait", "wait call-back", "service wait"];
    let removal = ["PUT NODE/maintenance", "DELETE NODE"];
    for state in running.into_iter().chain(SETTLED) {
        let fixture = fixture(Some(json!({"provision_state": state})), &[]);
        assert_eq!(call(&fixture, "delete forced").await, "started removing the node", "{state}");
        assert!(fixture.changes().ends_with(&["DELETE NODE".to_owned()]), "{state}");
    }
    for state in waiting {
        let fixture = fixture(Some(json!({"provision_state": state})), &[]);
        assert_eq!(call(&fixture, "delete forced").await, "started aborting", "{state}");
        // The step cannot be aborted, or the abort is rejected.
        let step = json!({"provision_state": state, "clean_step": {"abort_after": true}});
        let fixture = self::fixture(Some(step), &[]);
        assert_eq!(call(&fixture, "delete forced").await, "started removing the node", "{state}");
        assert_eq!(fixture.changes(), removal);
        let rejected = [("PUT NODE/states/provision", json!(400))];
        let fixture = self::fixture(Some(json!({"provision_state": state})), &rejected);
        assert_eq!(call(&fixture, "delete forced").await, "started removing the node", "{state}");
        assert_eq!(fixture.changes()[1..], removal);
    }
    // A lock ends soon.
    let locked = [("DELETE NODE", json!(409))];
    let fixture = fixture(Some(json!({"provision_state": "cleaning"})), &locked);
    let scope = AbortScope::Forced;
    let outcome = fixture.provisioner.delete(&fixture.host, scope).await;
    let Err(VerbStop::InProgress(wait)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(wait.failure.as_deref(), Some("status 409"));
}

#[tokio::test]
async fn a_node_that_an_earlier_host_left_behind_is_replaced() {
    let registered = |state: &'static str, name: Value, is_new_host: bool| async move {
        let fields = json!({"provision_state": state, "name": name});
        let found = fixture(Some(fields.clone()), &[]).recording.node.lock().unwrap().clone();
        let mut service = fixture(Some(fields), &[("GET /v1/nodes/lab~host-1", found.unwrap())]);
        service.host.node_id = None;
        let request = RegistrationRequest { is_new_host, ..Default::default() };
        let outcome = show(&service.provisioner.register(&service.host, &request).await.node_id);
        let mut changes = service.changes();
        changes.retain(|change| change != "PATCH NODE /automated_clean");
        (outcome, changes)
    };
    let own = || json!("lab~host-1");
    // The new host may be an old one that lost its status.
    for state in ["active", "adopt failed", "service wait", "service failed", "rescue"] {
        let (outcome, changes) = registered(state, own(), true).await;
        assert!(outcome.contains("machine may run a system; to keep"), "{state}: {outcome}");
        assert_eq!(changes, Vec::<String>::new(), "{state}");
    }
    for state in ["deploy failed", "error"] {
        let (outcome, changes) = registered(state, own(), true).await;
        assert_eq!(outcome, "started verifying the BMC", "{state}");
        let expected = [
            "PUT NODE/maintenance",
            "DELETE NODE",
            "POST /v1/nodes",
            "PUT NODE/states/provision manage",
        ];
        assert_eq!(changes, expected, "{state}");
        // The host has the system that runs on the machine.
        assert_eq!(registered(state, own(), false).await, ("done".to_owned(), Vec::new()));
        let (outcome, changes) = registered(state, json!("renamed"), true).await;
        assert_eq!(outcome, "done", "{state}");
        assert!(!changes.contains(&"DELETE NODE".to_owned()), "{state}");
    }
    let (outcome, changes) = registered("wait call-back", own(), true).await;
    assert_eq!((outcome.as_str(), changes), ("started aborting", vec![ABORT.to_owned()]));
    assert_eq!(registered("deleting", own(), true).await.0, "removing the node");
    for state in ["manageable", "available", "clean wait", "clean failed"] {
        assert_eq!(registered(state, own(), true).await, ("done".to_owned(), Vec::new()));
    }
}

#[tokio::test]
async fn a_wait_has_the_last_failure() {
    let error = "the BMC does not respond (next attempt at 2027-01-15T08:00:10Z)";
    for (verb, node) in [
        ("deprovision", json!({"provision_state": "deleting"})),
        ("provision", json!({"provision_state": "clean wait"})),
        ("power off", json!({"provision_state": "active", "target_power_state": "power off"})),
    ] {
        let mut node = node;
        node["last_error"] = json!(error);
        let RecordedService { provisioner, host, .. } = &fixture(Some(node), &[]);
        let outcome = match verb {
            "deprovision" => provisioner.deprovision(host, &DeprovisionRequest::default()).await,
            "provision" => provisioner.provision(host, &HostDeployRequest::default()).await,
            _ => {
                let request = PowerOffRequest {
                    mode: HostRebootMode::Hard,
                    is_forced: false,
                    aborts: AbortScope::Nothing,
                };
                provisioner.power_off(host, &request).await
            }
        };
        let Err(VerbStop::InProgress(wait)) = outcome else { panic!("{verb}: {outcome:?}") };
        assert_eq!(wait.failure.as_deref(), Some("the BMC does not respond"), "{verb}");
        assert_eq!(wait.next_attempt, "2027-01-15T08:00:10Z".parse().ok(), "{verb}");
    }
}

#[tokio::test]
async fn the_annotation_forces_the_removal_of_a_node_that_waits() {
    for (annotation, expected) in [(Some(FORCE_DELETE), vec![ABORT]), (None, vec![])] {
        let node = json!({"provision_state": "clean wait", "target_provision_state": "available"});
        let service = fixture(Some(node), &[]);
        let mut lab = HostLab::new(Arc::new(service.provisioner), json!({}));
        lab.host.metadata.finalizers = Some(vec!["baremetalhost.metal3.io".to_owned()]);
        lab.host.status = serde_json::from_value(json!({"operationalStatus": "OK",
            "provisioning": {"state": "deleting", "ID": "n1"}}))
        .unwrap();
        lab.delete();
        if let Some(annotation) = annotation {
            lab.annotate(annotation, "");
        }
        lab.pass().await;
        let changes = service.recording.changes.lock().unwrap();
        let show = |(line, body): &(String, Value)| {
            format!("{line} {}", body["target"].as_str().unwrap_or_default())
        };
        assert_eq!(changes.iter().map(show).collect::<Vec<String>>(), expected);
    }
}

#[tokio::test]
async fn repeated_failures_to_remove_a_deployment_are_reported_and_delayed() {
    let node = json!({"provision_state": "error", "last_error": "bad luck"});
    let service = fixture(Some(node), &[]);
    let mut lab = HostLab::new(Arc::new(service.provisioner), json!({}));
    lab.host.metadata.finalizers = Some(vec!["baremetalhost.metal3.io".to_owned()]);
    lab.host.status = serde_json::from_value(json!({"operationalStatus": "OK",
        "provisioning": {"state": "inspecting", "ID": "n1"}}))
    .unwrap();
    let removals = || {
        let changes = service.recording.changes.lock().unwrap();
        changes.iter().filter(|(_, body)| body["target"] == "deleted").count()
    };
    let mut delays = Vec::new();
    for attempt in 1..=3 {
        // The node stays in the state 'error'.
        let mut wait = lab.pass().await.unwrap();
        while lab.status().error_count < attempt {
            lab.now += wait;
            wait = lab.pass().await.unwrap();
        }
        assert_eq!(lab.status().error_message, "bad luck");
        assert_eq!(removals(), usize::try_from(attempt).unwrap() - 1);
        delays.push(wait);
        lab.now += wait;
    }
    assert!(delays.is_sorted() && delays[2] > delays[0] * 2, "{delays:?}");
}

#[tokio::test]
async fn a_host_that_was_never_registered_leaves_a_node_that_may_run_a_system() {
    for (state, node_id, scope, is_removed) in [
        ("active", None, AbortScope::AllButErasure, false),
        ("rescue", None, AbortScope::Everything, false),
        ("active", None, AbortScope::Forced, true),
        ("active", Some("n1"), AbortScope::AllButErasure, true),
        ("available", None, AbortScope::AllButErasure, true),
    ] {
        let fields = json!({"provision_state": state, "name": "lab~host-1"});
        let found = fixture(Some(fields.clone()), &[]).recording.node.lock().unwrap().clone();
        let mut service = fixture(Some(fields), &[("GET /v1/nodes/lab~host-1", found.unwrap())]);
        service.host.node_id = node_id.map(str::to_owned);
        let outcome = show(&service.provisioner.delete(&service.host, scope).await);
        let expected = if is_removed { "started removing the node" } else { "done" };
        assert_eq!(outcome, expected, "{state} {node_id:?} {scope:?}");
        assert_eq!(service.changes().contains(&"DELETE NODE".to_owned()), is_removed);
    }
}

#[tokio::test]
async fn every_failed_power_change_counts() {
    let node = json!({"provision_state": "available", "power_state": "power on",
        "last_error": "cannot change the power state: the BMC does not respond"});
    let service = fixture(Some(node), &[]);
    let mut lab = HostLab::new(Arc::new(service.provisioner), json!({}));
    lab.host.metadata.finalizers = Some(vec!["baremetalhost.metal3.io".to_owned()]);
    lab.host.status = serde_json::from_value(json!({"operationalStatus": "OK",
        "provisioning": {"state": "powering off before delete", "ID": "n1"}}))
    .unwrap();
    lab.delete();
    // The service accepts each request, and then fails again.
    let start = lab.now;
    while lab.state() == "powering off before delete" {
        let wait = lab.pass().await;
        lab.now += wait.unwrap_or_default();
        let taken = std::time::Duration::try_from(lab.now.duration_since(start)).unwrap();
        assert!(taken < std::time::Duration::from_secs(3600), "{:?}", lab.status());
    }
    assert_eq!(lab.state(), "deleting");
    assert!(lab.events.iter().filter(|event| **event == "PowerManagementError").count() >= 4);
}
