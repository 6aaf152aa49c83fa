// SPDX-License-Identifier: Apache-2.0
//! Hosts with the provisioner without hardware: states, annotations, deletion, restarts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube_resources::hosts::annotations::{
    DETACHED, FORCE_DELETE, INSPECT, PAUSED, REBOOT, RETRY_NOW, STATUS,
};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::hardware_data::HardwareData;
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use operator::hosts::provisioner::fixture::FixtureProvisioner;
use operator::hosts::provisioner::{ProvisionerFailureKind, ProvisionerWaitReason, VerbStop};
use serde_json::{Value, json};

use crate::cluster::{TestNamespace, wait_for};
use crate::hosts_lab::{
    HostNamespace, SECRET, bmc_address, error_of, image, is_on, operational, state_of, until_true,
};

async fn start(purpose: &str) -> Option<(HostNamespace, Arc<FixtureProvisioner>)> {
    let fixture = Arc::new(FixtureProvisioner::quick());
    let provisioner = Arc::<FixtureProvisioner>::clone(&fixture);
    Some((HostNamespace::start(purpose, provisioner).await?, fixture))
}

/// Makes a verb of a host wait as long as the test needs it.
fn hold(fixture: &FixtureProvisioner, hosts: &HostNamespace, host: &str, verb: &'static str) {
    let wait = VerbStop::running(ProvisionerWaitReason::StateChange, None);
    fixture.inject((&hosts.namespace.name, host), verb, vec![wait; 500]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_lives_from_creation_to_deletion() {
    let Some((hosts, fixture)) = start("host-life").await else { return };
    hosts.create("a", json!({})).await;
    let host = hosts.until("a", "available and on", |host| {
        state_of(host) == "available" && is_on(host) && host.spec.architecture.is_some()
    });
    let host = host.await;
    assert_eq!(host.spec.architecture.as_deref(), Some("x86_64"));
    assert!(host.finalizers().contains(&"baremetalhost.metal3.io".to_owned()));
    let status = host.status.clone().unwrap();
    assert_eq!(status.hardware.unwrap().cpu.flags.len(), 4, "all details are stored");
    let hardware = hosts.namespace.api::<HardwareData>().get("a").await.unwrap();
    assert_eq!(hardware.spec.hardware.unwrap().nics.len(), 2);
    assert_eq!(hardware.metadata.owner_references.unwrap()[0].name, "a");
    let secret = hosts.namespace.api::<Secret>().get(SECRET).await.unwrap();
    assert_eq!(secret.labels()["environment.metal3.io"], "baremetal");
    assert_eq!(secret.finalizers(), ["baremetalhost.metal3.io/secret"]);
    assert_eq!(secret.owner_references()[0].name, "a");
    let settings = hosts.namespace.api::<HostFirmwareSettings>();
    wait_for("firmware settings", &settings, "a", Option::is_some).await;
    let components = hosts.namespace.api::<HostFirmwareComponents>();
    wait_for("firmware components", &components, "a", Option::is_some).await;

    hosts.edit("a", image("http://images/a")).await;
    hosts.until_state("a", "provisioned").await;
    hosts.edit("a", image("http://images/b")).await;
    let host = hosts.until("a", "the other image", |host| {
        state_of(host) == "provisioned"
            && host.status.as_ref().unwrap().provisioning.deployed_image().unwrap().url
                == "http://images/b"
    });
    let history = host.await.status.unwrap().operation_history;
    assert!(history.deprovision.end.is_some() && history.provision.end.is_some());
    hosts.edit("a", json!({"image": null})).await;
    hosts.until_state("a", "available").await;

    let events = hosts.namespace.api::<Event>().list(&ListParams::default()).await.unwrap();
    let reasons: Vec<&str> =
        events.items.iter().filter_map(|event| event.reason.as_deref()).collect();
    for reason in [
        "Registered",
        "BMCAccessValidated",
        "InspectionStarted",
        "InspectionComplete",
        "ProvisioningStarted",
        "ProvisioningComplete",
        "DeprovisioningStarted",
        "DeprovisioningComplete",
        "PowerOn",
    ] {
        assert!(reasons.contains(&reason), "{reason} is not in {reasons:?}");
    }
    let metrics = hosts.metrics();
    for metric in [
        "metal3_provisioning_state_change_total{prior_state=\"registering\",new_state=\"inspecting\"} 1",
        "metal3_operation_inspect_duration_seconds_count 1",
        "metal3_operation_provision_duration_seconds_count 2",
    ] {
        assert!(metrics.contains(metric), "{metric} is not in {metrics}");
    }
    hosts.delete("a").await;
    hosts.until_gone("a").await;
    assert!(!fixture.knows((&hosts.namespace.name, "a")));
    // Owned objects go with the host: their finalizers are removed.
    wait_for("the Secret", &hosts.namespace.api::<Secret>(), SECRET, Option::is_none).await;
    wait_for("HardwareData", &hosts.namespace.api::<HardwareData>(), "a", Option::is_none).await;
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_control_a_host() {
    let Some((hosts, fixture)) = start("host-annotations").await else { return };
    let name = hosts.namespace.name.clone();
    let calls = |verb: &str| {
        let calls = fixture.calls((&name, "a"));
        calls.iter().filter(|call| **call == verb).count()
    };
    hosts.create("a", image("http://images/a")).await;
    hosts.until("a", "provisioned", |host| state_of(host) == "provisioned" && is_on(host)).await;

    hosts.annotate("a", REBOOT, json!("{\"mode\": \"hard\"}")).await;
    hosts
        .until("a", "rebooted", |host| {
            host.annotation(REBOOT).is_none() && is_on(host) && calls("power_off") > 0
        })
        .await;
    hosts.annotate("a", "reboot.metal3.io/test", json!("")).await;
    hosts.until("a", "held off", |host| !is_on(host)).await;
    hosts.annotate("a", "reboot.metal3.io/test", Value::Null).await;
    hosts.until("a", "on again", is_on).await;

    hosts.annotate("a", PAUSED, json!("")).await;
    hosts.edit("a", json!({"image": null})).await;
    hosts.create("other", json!({})).await;
    hosts.until_state("other", "available").await;
    let host = hosts.hosts().get("a").await.unwrap();
    assert_eq!(state_of(&host), "provisioned", "nothing happens while it is paused");
    hosts.edit("a", image("http://images/a")).await;
    hosts.annotate("a", PAUSED, Value::Null).await;

    hosts.annotate("a", DETACHED, json!("")).await;
    hosts.until("a", "detached", |host| operational(host) == "detached").await;
    assert!(!fixture.knows((&name, "a")));
    let deployments = calls("provision");
    hosts.annotate("a", DETACHED, Value::Null).await;
    hosts.until("a", "attached", |host| operational(host) == "OK").await;
    until_true("adoption", || fixture.knows((&name, "a")) && calls("adopt") > 1).await;
    assert_eq!(calls("provision"), deployments, "it is adopted, not deployed");

    let failure = VerbStop::failed(ProvisionerFailureKind::Inspection, "no DHCP response");
    fixture.inject((&name, "other"), "inspect", vec![failure; 3]);
    hosts.annotate("other", INSPECT, json!("")).await;
    let host = hosts.until("other", "inspection error", |host| !error_of(host).is_empty()).await;
    assert_eq!((state_of(&host), error_of(&host)), ("inspecting", "no DHCP response"));
    let conditions = host.status.unwrap().conditions;
    let retry = conditions.iter().find(|found| found.type_ == "RetryScheduled").unwrap();
    assert!(retry.message.starts_with("Next attempt at "), "{}", retry.message);
    for _ in 0..2 {
        let before = fixture.calls((&name, "other")).len();
        hosts.annotate("other", RETRY_NOW, json!("")).await;
        hosts.until("other", "request", |host| host.annotation(RETRY_NOW).is_none()).await;
        until_true("attempt", || fixture.calls((&name, "other")).len() > before).await;
    }
    hosts.annotate("other", RETRY_NOW, json!("")).await;
    hosts
        .until("other", "inspected", |host| {
            state_of(host) == "available"
                && error_of(host).is_empty()
                && host.annotation(INSPECT).is_none()
        })
        .await;

    let gone = VerbStop::NotReady { message: "connection refused".into() };
    fixture.inject((&name, "other"), "power_off", vec![gone.clone(); 1000]);
    fixture.inject((&name, "other"), "delete", vec![gone; 1000]);
    hosts.delete("other").await;
    let blocked = |host: &BareMetalHost| {
        let conditions = &host.status.as_ref().unwrap().conditions;
        let mut found = conditions.iter().filter(|found| found.type_ == "Progressing");
        found.any(|found| found.message.contains("connection refused"))
    };
    hosts.until("other", "the reason is visible", blocked).await;
    hosts.annotate("other", FORCE_DELETE, json!("")).await;
    hosts.until_gone("other").await;
    hosts.delete("a").await;
    hosts.until_gone("a").await;
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_restored_and_the_host_adopted() {
    let Some((hosts, fixture)) = start("host-restore").await else { return };
    let mut spec = image("http://images/a");
    spec["online"] = json!(true);
    let status = json!({"operationalStatus": "OK", "errorMessage": "", "poweredOn": true,
        "provisioning": {"state": "provisioned", "ID": "old", "image": {"url": "http://images/a"}}});
    let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "a", "annotations": {STATUS: status.to_string()}},
        "spec": {"online": true, "image": spec["image"], "bmc": {
            "address": "redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1",
            "credentialsName": SECRET}}});
    let host = serde_json::from_value(host).unwrap();
    hosts.hosts().create(&Default::default(), &host).await.unwrap();
    hosts
        .until("a", "restored", |host| {
            state_of(host) == "provisioned"
                && host.annotation(STATUS).is_none()
                && host.status.as_ref().unwrap().provisioning.id == "temporary-fake-id"
        })
        .await;
    let calls = fixture.calls((&hosts.namespace.name, "a"));
    assert!(!calls.contains(&"provision") && !calls.contains(&"inspect"), "{calls:?}");
    hosts.delete("a").await;
    hosts.until_gone("a").await;
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn external_and_unmanaged_hosts_are_not_deployed() {
    let Some((hosts, fixture)) = start("host-external").await else { return };
    hosts.create("external", json!({"externallyProvisioned": true})).await;
    hosts
        .until("external", "adopted", |host| {
            state_of(host) == "externally provisioned" && is_on(host)
        })
        .await;
    let calls = fixture.calls((&hosts.namespace.name, "external"));
    assert!(calls.contains(&"adopt") && !calls.contains(&"provision"), "{calls:?}");
    hosts.create("plain", json!({"bmc": null})).await;
    hosts.until("plain", "discovered", |host| operational(host) == "discovered").await;
    hosts
        .edit("plain", json!({"bmc": {"address": "ipmi://192.0.2.1", "credentialsName": SECRET}}))
        .await;
    hosts.until_state("plain", "available").await;
    for name in ["external", "plain"] {
        hosts.delete(name).await;
        hosts.until_gone(name).await;
    }
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_with_the_address_of_another_is_not_registered() {
    let Some((hosts, fixture)) = start("host-duplicate").await else { return };
    hosts.create("first", json!({})).await;
    hosts.until_state("first", "available").await;
    let bmc = json!({"bmc": {"address": bmc_address("first"), "credentialsName": SECRET}});
    hosts.create("second", bmc).await;
    hosts.until("second", "rejected", |host| error_of(host).contains("of the host first")).await;
    assert_eq!(fixture.calls((&hosts.namespace.name, "second")), [""; 0]);
    hosts.delete("first").await;
    hosts.until_gone("first").await;
    hosts.until_state("second", "available").await;
    hosts.delete("second").await;
    hosts.until_gone("second").await;
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_reported_and_corrected() {
    let Some((hosts, _)) = start("host-secrets").await else { return };
    let bmc =
        |secret: &str| json!({"bmc": {"address": bmc_address(secret), "credentialsName": secret}});
    hosts.create("late", bmc("late")).await;
    hosts.until("late", "missing", |host| error_of(host).contains("does not exist")).await;
    hosts.create_secret("late", "admin", "password").await;
    hosts.until_state("late", "available").await;

    hosts.create_secret("empty", "admin", "").await;
    hosts.create("empty", bmc("empty")).await;
    hosts.until("empty", "no password", |host| error_of(host).contains("no key password")).await;
    let patch = Patch::Merge(json!({"stringData": {"password": "secret"}}));
    let secrets = hosts.namespace.api::<Secret>();
    secrets.patch("empty", &PatchParams::default(), &patch).await.unwrap();
    hosts.until_state("empty", "available").await;

    let wrong = json!({"bmc": {"address": "nothing://192.0.2.1", "credentialsName": SECRET}});
    hosts.create("wrong", wrong).await;
    hosts.until("wrong", "scheme", |host| error_of(host).contains("unknown scheme")).await;
    // A new password is sent to the service.
    let before = hosts.hosts().get("late").await.unwrap().status.unwrap().good_credentials;
    let patch = Patch::Merge(json!({"stringData": {"password": "other"}}));
    secrets.patch("late", &PatchParams::default(), &patch).await.unwrap();
    hosts
        .until("late", "registered with the new password", |host| {
            host.status.as_ref().unwrap().good_credentials != before
        })
        .await;
    for name in ["late", "empty", "wrong"] {
        hosts.delete(name).await;
        hosts.until_gone(name).await;
    }
    hosts.end().await;
}

/// Brings a host to a state and keeps it there.
async fn reach(hosts: &HostNamespace, fixture: &FixtureProvisioner, state: &'static str) {
    let name = state.replace(' ', "-");
    let name = name.as_str();
    let verb = match state {
        "registering" => Some("register"),
        "inspecting" => Some("inspect"),
        "preparing" => Some("prepare"),
        "provisioning" => Some("provision"),
        "deprovisioning" => Some("deprovision"),
        _ => None,
    };
    if let Some(verb) = verb {
        hold(fixture, hosts, name, verb);
    }
    let spec = match state {
        "provisioning" | "provisioned" | "deprovisioning" => image("http://images/a"),
        "externally provisioned" => json!({"externallyProvisioned": true}),
        "unmanaged" => json!({"bmc": null}),
        _ => json!({}),
    };
    hosts.create(name, spec).await;
    if state == "deprovisioning" {
        hosts.until_state(name, "provisioned").await;
        hosts.edit(name, json!({"image": null})).await;
    }
    hosts.until_state(name, state).await;
}

const STATES: [&str; 9] = [
    "unmanaged",
    "registering",
    "inspecting",
    "preparing",
    "available",
    "provisioning",
    "provisioned",
    "externally provisioned",
    "deprovisioning",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_deleted_in_every_state() {
    let Some((hosts, fixture)) = start("host-delete").await else { return };
    for state in STATES {
        reach(&hosts, &fixture, state).await;
    }
    for state in STATES {
        hosts.delete(&state.replace(' ', "-")).await;
    }
    for state in STATES {
        hosts.until_gone(&state.replace(' ', "-")).await;
    }
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_deleted_with_its_hosts() {
    let Some((mut hosts, fixture)) = start("host-namespace").await else { return };
    for state in ["inspecting", "available", "provisioned"] {
        reach(&hosts, &fixture, state).await;
    }
    let namespaces: Api<Namespace> = Api::all(hosts.namespace.client.clone());
    let name = hosts.namespace.name.clone();
    namespaces.delete(&name, &DeleteParams::background()).await.unwrap();
    wait_for("deletion of the namespace", &namespaces, &name, Option::is_none).await;
    hosts.stop_operator().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_be_stopped_before_its_caches_are_complete() {
    let Some((mut hosts, _)) = start("host-early-stop").await else { return };
    for _ in 0..5 {
        hosts.stop_operator().await;
        hosts.start_operator();
    }
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_operator_continues_in_every_state() {
    let Some((mut hosts, fixture)) = start("host-kill").await else { return };
    let name = hosts.namespace.name.clone();
    for state in STATES {
        reach(&hosts, &fixture, state).await;
        hosts.kill_operator().await;
        fixture.release((&name, &state.replace(' ', "-")));
        hosts.start_operator();
    }
    for state in STATES {
        let goal = match state {
            "registering" | "inspecting" | "preparing" | "deprovisioning" => "available",
            "provisioning" => "provisioned",
            other => other,
        };
        hosts.until_state(&state.replace(' ', "-"), goal).await;
    }
    let calls = fixture.calls((&name, "provisioned"));
    assert_eq!(calls.iter().filter(|call| **call == "inspect").count(), 2, "{calls:?}");
    for state in STATES {
        hosts.delete(&state.replace(' ', "-")).await;
    }
    hosts.kill_operator().await;
    hosts.start_operator();
    for state in STATES {
        hosts.until_gone(&state.replace(' ', "-")).await;
    }
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_service_database_is_repaired() {
    let Some((mut hosts, fixture)) = start("host-database").await else { return };
    let name = hosts.namespace.name.clone();
    for state in ["available", "provisioned"] {
        reach(&hosts, &fixture, state).await;
    }
    hosts.stop_operator().await;
    for host in ["available", "provisioned"] {
        fixture.forget((&name, host));
    }
    hosts.start_operator();
    for host in ["available", "provisioned"] {
        until_true("registered again", || fixture.knows((&name, host))).await;
        let goal = |found: &BareMetalHost| state_of(found) == host && error_of(found).is_empty();
        hosts.until(host, "registered again", goal).await;
    }
    until_true("adopted", || fixture.calls((&name, "provisioned")).ends_with(&["observe"])).await;
    let calls = fixture.calls((&name, "provisioned"));
    assert_eq!(calls.iter().filter(|call| **call == "provision").count(), 2, "{calls:?}");
    hosts.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_survive_the_loss_of_the_api_server() {
    let Some(namespace) = TestNamespace::with_own_cluster("host-api-server").await else { return };
    let fixture = Arc::new(FixtureProvisioner::quick());
    let provisioner = Arc::<FixtureProvisioner>::clone(&fixture);
    let hosts = HostNamespace::in_namespace(namespace, provisioner).await;
    let name = hosts.namespace.name.clone();
    hold(&fixture, &hosts, "inspecting", "inspect");
    hosts.create("inspecting", json!({})).await;
    hosts.create("available", json!({})).await;
    hosts.until_state("inspecting", "inspecting").await;
    hosts.until_state("available", "available").await;
    hosts.namespace.cluster.stop_api_server().await;
    fixture.release((&name, "inspecting"));
    hosts.namespace.cluster.start_api_server().await.unwrap();
    hosts.until_state("inspecting", "available").await;
    hosts.edit("available", image("http://images/a")).await;
    hosts.until_state("available", "provisioned").await;
    hosts.end().await;
}
