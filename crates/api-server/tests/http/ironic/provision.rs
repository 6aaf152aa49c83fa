// SPDX-License-Identifier: Apache-2.0
//! All verbs, with a running conductor and fake hardware.

use node_model::{PowerState, ProvisionState};
use serde_json::json;

use crate::support::test_lab::{TestLab, version_header};

#[tokio::test]
async fn runs_all_verbs() {
    let lab = TestLab::start().await;
    lab.enrol_machine("n", json!({})).await;
    let password = json!({"target": "rescue", "rescue_password": "hunter2"});
    let parts = json!({"meta_data": {"name": "x"}, "user_data": "#!/bin/sh"});
    let clean = json!({
        "target": "clean",
        "clean_steps": [{"interface": "deploy", "step": "erase_devices"}],
    });
    let service = json!({
        "target": "service",
        "service_steps": [{"interface": "vendor", "step": "log_passthrough"}],
    });
    for (body, end) in [
        (json!({"target": "manage"}), ProvisionState::Manageable),
        (json!({"target": "inspect"}), ProvisionState::Manageable),
        (clean, ProvisionState::Manageable),
        (json!({"target": "provide"}), ProvisionState::Available),
        (json!({"target": "active", "configdrive": parts}), ProvisionState::Active),
        (
            json!({"target": "rebuild", "configdrive": "http://images.example/cd"}),
            ProvisionState::Active,
        ),
        (password, ProvisionState::Rescue),
        (json!({"target": "unrescue"}), ProvisionState::Active),
        (service, ProvisionState::Active),
        (json!({"target": "deleted"}), ProvisionState::Available),
        (json!({"target": "deploy"}), ProvisionState::Active),
        (json!({"target": "undeploy"}), ProvisionState::Available),
        (json!({"target": "manage"}), ProvisionState::Manageable),
        (json!({"target": "adopt"}), ProvisionState::Active),
    ] {
        let node = lab.provision_until("n", body.clone(), end).await;
        assert_eq!(node.last_error, None, "{body}");
    }
}

#[tokio::test]
async fn does_not_show_the_config_drive() {
    let lab = TestLab::start().await;
    lab.node_in_state("n", ProvisionState::Available).await;
    let body = json!({"target": "active", "configdrive": "aHVudGVyMg=="});
    let node = lab.provision_until("n", body, ProvisionState::Active).await;
    assert!(!node.instance_info.as_str().contains("aHVudGVyMg"), "{:?}", node.instance_info);
}

#[tokio::test]
async fn unhold_and_abort_end_a_hold() {
    let lab = TestLab::start().await;
    lab.node_in_state("n", ProvisionState::Manageable).await;
    let held = json!({
        "target": "clean",
        "clean_steps": [
            {"interface": "deploy", "step": "hold"},
            {"interface": "deploy", "step": "erase_devices"},
        ],
    });
    lab.provision_until("n", held.clone(), ProvisionState::CleanHold).await;
    let explained = lab.api.get("/v1/ferrite/nodes/n/explain?target=unhold", "").await.json();
    assert_eq!(
        explained["waiting"],
        json!({"reason": "hold", "until": null, "next_action_at": null, "state": "clean hold"}),
        "{explained}"
    );
    lab.provision_until("n", json!({"target": "unhold"}), ProvisionState::Manageable).await;

    lab.provision_until("n", held, ProvisionState::CleanHold).await;
    let node =
        lab.provision_until("n", json!({"target": "abort"}), ProvisionState::CleanFail).await;
    assert!(node.last_error.is_some_and(|error| error.contains("aborted")));
    lab.provision_until("n", json!({"target": "manage"}), ProvisionState::Manageable).await;
}

#[tokio::test]
async fn runbooks_need_a_trait() {
    let lab = TestLab::start().await;
    let book = json!({
        "name": "CUSTOM_ERASE",
        "steps": [{"interface": "deploy", "step": "erase_devices", "args": {}, "order": 1}],
    });
    let created = lab.api.request("POST", "/v1/runbooks", book).await;
    assert_eq!(created.status, 201, "{}", created.message());
    let path = "/v1/runbooks/CUSTOM_ERASE/traits/CUSTOM_DISKS";
    assert_eq!(lab.api.request("PUT", path, serde_json::Value::Null).await.status, 204);
    lab.api
        .node("by-trait", |node| {
            node.provision_state = ProvisionState::Manageable;
            node.traits = vec!["CUSTOM_DISKS".to_owned()];
        })
        .await;
    lab.api
        .node("by-name", |node| {
            node.provision_state = ProvisionState::Manageable;
            node.traits = vec!["CUSTOM_ERASE".to_owned()];
        })
        .await;
    let clean = json!({"target": "clean", "runbook": "CUSTOM_ERASE"}).to_string();
    for (node, minor, status, expected) in [
        ("by-trait", 111, 400, "trait of that name"),
        ("by-name", 112, 400, "CUSTOM_DISKS"),
        ("by-name", 91, 406, "1.92"),
        ("by-trait", 112, 202, ""),
        ("by-name", 111, 202, ""),
    ] {
        let path = format!("/v1/nodes/{node}/states/provision");
        let headers = version_header(minor);
        let response = lab.api.send("PUT", &path, &headers, clean.as_bytes()).await;
        assert_eq!(response.status, status, "{node} at 1.{minor}: {}", response.message());
        assert!(response.message().contains(expected), "{}", response.message());
    }
    for node in ["by-trait", "by-name"] {
        let done = |node: &node_model::Node| {
            node.provision_state == ProvisionState::Manageable && node.work.is_none()
        };
        lab.wait_for(node, "its runbook", done).await;
    }
    let missing = lab.provision("by-name", json!({"target": "clean", "runbook": "nope"})).await;
    assert_eq!(missing.status, 404, "{}", missing.message());
}

/// As in Ironic, verbs that use the machine are rejected, and an instance can be deleted.
#[tokio::test]
async fn rejects_verbs_in_maintenance() {
    let lab = TestLab::start().await;
    let steps = json!([{"interface": "vendor", "step": "log_passthrough"}]);
    for (name, state, body, status) in [
        ("clean", ProvisionState::Manageable, json!({"clean_steps": steps}), 400),
        ("active", ProvisionState::Available, json!({}), 400),
        ("rebuild", ProvisionState::Active, json!({}), 400),
        ("rescue", ProvisionState::Active, json!({"rescue_password": "hunter2"}), 400),
        ("unrescue", ProvisionState::Rescue, json!({}), 400),
        ("service", ProvisionState::Active, json!({"service_steps": steps}), 400),
        ("deleted", ProvisionState::Active, json!({}), 202),
    ] {
        let in_maintenance = |node: &mut node_model::Node| {
            node.provision_state = state;
            node.maintenance = true;
        };
        lab.api.node(name, in_maintenance).await;
        let mut body = body;
        body["target"] = json!(name);
        let response = lab.provision(name, body).await;
        assert_eq!(response.status, status, "{name}: {}", response.message());
        let explained = response.message().contains("maintenance");
        assert_eq!(explained, status == 400, "{name}: {}", response.message());
    }
}

#[tokio::test]
async fn changes_the_power_state() {
    let lab = TestLab::start().await;
    let node = json!({"name": "n", "driver": "fake-hardware"});
    let created = lab.api.request("POST", "/v1/nodes", node).await;
    assert_eq!(created.status, 201, "{}", created.message());
    // The first request follows the creation at once, when the power state is not known.
    for (target, end) in [
        ("power on", PowerState::On),
        ("rebooting", PowerState::On),
        ("soft power off", PowerState::Off),
        ("power on", PowerState::On),
        ("soft rebooting", PowerState::On),
        ("power off", PowerState::Off),
    ] {
        let body = json!({"target": target, "timeout": 60});
        let response = lab.api.request("PUT", "/v1/nodes/n/states/power", body).await;
        assert_eq!(response.status, 202, "{target}: {}", response.message());
        let location = "http://api.example:6385/v1/nodes/n/states";
        assert_eq!(response.header("location"), Some(location));
        let done = |node: &node_model::Node| {
            node.power_state == Some(end) && node.target_power_state.is_none()
        };
        lab.wait_for("n", target, done).await;
    }
}
