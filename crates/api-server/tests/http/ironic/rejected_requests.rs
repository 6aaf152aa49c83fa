// SPDX-License-Identifier: Apache-2.0
//! Rejected provision and power requests: status, message and order of the checks.

use std::time::Duration;

use node_model::{Node, NodeId, ProvisionState};
use serde_json::{Value, json};
use store::LeaseOwner;
use uuid::Uuid;

use crate::support::fixture::Fixture;
use crate::support::test_lab::version_header;

/// Name of a node, and the change that makes it reject requests.
type RejectingNode = (&'static str, fn(&mut Node));

/// A server with nodes that reject requests for different reasons.
async fn start_with_rejecting_nodes() -> Fixture {
    let api = Fixture::start().await;
    let nodes: [RejectingNode; 10] = [
        ("enroll", |_| {}),
        ("manageable", |node| node.provision_state = ProvisionState::Manageable),
        ("available", |node| node.provision_state = ProvisionState::Available),
        ("active", |node| node.provision_state = ProvisionState::Active),
        ("cleaning", |node| node.provision_state = ProvisionState::CleanWait),
        ("repair", |node| {
            node.provision_state = ProvisionState::Available;
            node.maintenance = true;
        }),
        ("locked", |_| {}),
        ("protected", |node| {
            node.provision_state = ProvisionState::Active;
            node.protected = true;
        }),
        ("retired", |node| {
            node.provision_state = ProvisionState::Manageable;
            node.retired = true;
        }),
        ("never-off", |node| node.disable_power_off = true),
    ];
    for (name, change) in nodes {
        let id = api.node(name, change).await;
        if name == "locked" {
            lock(&api, id).await;
        }
    }
    api
}

/// Locks a node for another conductor.
pub(crate) async fn lock(api: &Fixture, id: NodeId) {
    let owner = LeaseOwner { hostname: "elsewhere".to_owned(), run: Uuid::new_v4() };
    let claimed =
        api.store.write(move |tx| tx.claim(id, &owner, Duration::from_secs(3600))).await.unwrap();
    assert!(claimed.is_some());
}

fn step(interface: &str, name: &str) -> Value {
    json!([{"interface": interface, "step": name}])
}

#[tokio::test]
async fn checks_provision_requests_in_order() {
    let api = start_with_rejecting_nodes().await;
    let unknown = NodeId::random().to_string();
    for (node, minor, body, status, expected) in [
        // First the form of the body, then the node.
        (unknown.as_str(), 115, json!({}), 400, "target"),
        (unknown.as_str(), 115, json!({"target": "manage", "bogus": 1}), 400, "bogus"),
        (unknown.as_str(), 115, json!({"target": "manage"}), 404, unknown.as_str()),
        (unknown.as_str(), 3, json!({"target": "manage"}), 404, unknown.as_str()),
        ("unknown", 115, json!({"target": "manage"}), 404, "unknown"),
        ("manageable", 4, json!({"target": "provide"}), 404, "manageable"),
        // Then the version of the verb; for some verbs after the state.
        ("enroll", 5, json!({"target": "inspect"}), 406, "1.6"),
        ("repair", 72, json!({"target": "deploy"}), 406, "1.73"),
        ("enroll", 84, json!({"target": "unhold"}), 400, "enroll"),
        ("enroll", 86, json!({"target": "service"}), 400, "enroll"),
        ("active", 86, json!({"target": "service"}), 406, "1.87"),
        // Then maintenance, then the state.
        ("repair", 115, json!({"target": "active"}), 400, "maintenance"),
        ("repair", 115, json!({"target": "rebuild"}), 400, "maintenance"),
        ("locked", 115, json!({"target": "manage"}), 409, "elsewhere"),
        ("locked", 115, json!({"target": "active"}), 409, "elsewhere"),
        ("locked", 115, json!({"target": "dance"}), 409, "elsewhere"),
        ("enroll", 115, json!({"target": "dance"}), 400, "dance"),
        ("enroll", 115, json!({"target": "provide"}), 400, "Possible now: manage"),
        ("enroll", 115, json!({"target": "clean"}), 400, "in state \"enroll\""),
        ("enroll", 115, json!({"target": "active", "configdrive": {"bogus": 1}}), 400, "in state"),
        ("available", 115, json!({"target": "rebuild"}), 400, "available"),
        ("available", 115, json!({"target": "abort"}), 400, "available"),
        // Then the arguments of the verb.
        ("available", 115, json!({"target": "active", "configdrive": {"bogus": 1}}), 400, "bogus"),
        ("available", 115, json!({"target": "active", "configdrive": 5}), 400, "configdrive"),
        (
            "available",
            68,
            json!({"target": "active", "deploy_steps": [{"interface": "deploy", "step": "x", "args": {}, "priority": 1}]}),
            406,
            "1.69",
        ),
        ("available", 115, json!({"target": "manage", "configdrive": "eA=="}), 400, "configdrive"),
        (
            "available",
            115,
            json!({"target": "manage", "rescue_password": "x"}),
            400,
            "rescue_password",
        ),
        ("manageable", 115, json!({"target": "clean"}), 400, "clean_steps"),
        ("manageable", 115, json!({"target": "clean", "clean_steps": []}), 400, "clean_steps"),
        (
            "manageable",
            115,
            json!({"target": "clean", "clean_steps": [{"step": "x"}]}),
            400,
            "interface",
        ),
        (
            "manageable",
            115,
            json!({"target": "clean", "clean_steps": step("deploy", "dance")}),
            400,
            "dance",
        ),
        ("manageable", 115, json!({"target": "clean", "runbook": "nope"}), 404, "nope"),
        (
            "manageable",
            69,
            json!({"target": "clean", "clean_steps": step("deploy", "erase_devices"), "disable_ramdisk": true}),
            406,
            "disable_ramdisk",
        ),
        (
            "manageable",
            115,
            json!({"target": "inspect", "clean_steps": step("deploy", "x")}),
            400,
            "clean_steps",
        ),
        ("active", 115, json!({"target": "service"}), 400, "service_steps"),
        ("active", 115, json!({"target": "rescue"}), 400, "rescue_password"),
        (
            "active",
            115,
            json!({"target": "rescue", "rescue_password": "  "}),
            400,
            "rescue_password",
        ),
        // Last the checks of the conductor.
        ("protected", 115, json!({"target": "deleted"}), 403, "protected"),
        ("protected", 115, json!({"target": "rebuild"}), 403, "protected"),
        ("retired", 115, json!({"target": "provide"}), 400, "retired"),
    ] {
        let path = format!("/v1/nodes/{node}/states/provision");
        let response =
            api.send("PUT", &path, &version_header(minor), body.to_string().as_bytes()).await;
        let message = response.message();
        assert_eq!(response.status, status, "{node} at 1.{minor} {body}: {message}");
        assert!(message.contains(expected), "{node} at 1.{minor} {body}: {message}");
    }
}

#[tokio::test]
async fn checks_power_requests() {
    let api = start_with_rejecting_nodes().await;
    for (node, minor, body, status, expected) in [
        ("unknown", 115, json!({"target": "power on"}), 404, "unknown"),
        ("enroll", 115, json!({}), 400, "target"),
        ("enroll", 115, json!({"target": "dance"}), 400, "dance"),
        ("enroll", 115, json!({"target": "power on", "timeout": 0}), 400, "timeout"),
        ("enroll", 115, json!({"target": "power on", "timeout": "x"}), 400, "timeout"),
        ("enroll", 26, json!({"target": "power on", "timeout": 5}), 406, "1.27"),
        ("enroll", 26, json!({"target": "soft rebooting"}), 406, "1.27"),
        ("cleaning", 115, json!({"target": "power on"}), 400, "clean wait"),
        ("locked", 115, json!({"target": "power on"}), 409, "elsewhere"),
        ("never-off", 115, json!({"target": "power off"}), 409, "never-off"),
        ("never-off", 115, json!({"target": "rebooting"}), 202, ""),
        ("repair", 115, json!({"target": "power on"}), 202, ""),
        ("enroll", 5, json!({"target": "power off"}), 202, ""),
    ] {
        let path = format!("/v1/nodes/{node}/states/power");
        let response =
            api.send("PUT", &path, &version_header(minor), body.to_string().as_bytes()).await;
        let message = response.message();
        assert_eq!(response.status, status, "{node} at 1.{minor} {body}: {message}");
        assert!(message.contains(expected), "{node} at 1.{minor} {body}: {message}");
    }
}

#[tokio::test]
async fn rejects_boot_mode_changes_while_a_job_runs() {
    let api = start_with_rejecting_nodes().await;
    for (node, minor, what, body, status) in [
        ("enroll", 115, "boot_mode", json!({"target": "uefi"}), 202),
        ("enroll", 115, "secure_boot", json!({"target": true}), 202),
        ("enroll", 75, "boot_mode", json!({"target": "uefi"}), 404),
        ("enroll", 75, "secure_boot", json!({"target": true}), 404),
        ("enroll", 115, "boot_mode", json!({"target": "coreboot"}), 400),
        ("enroll", 115, "secure_boot", json!({"target": "perhaps"}), 400),
        ("cleaning", 115, "boot_mode", json!({"target": "uefi"}), 409),
        ("cleaning", 115, "secure_boot", json!({"target": true}), 409),
        ("locked", 115, "boot_mode", json!({"target": "uefi"}), 409),
        ("unknown", 115, "boot_mode", json!({"target": "uefi"}), 404),
    ] {
        let path = format!("/v1/nodes/{node}/states/{what}");
        let response =
            api.send("PUT", &path, &version_header(minor), body.to_string().as_bytes()).await;
        assert_eq!(response.status, status, "{node} {what} {body}: {}", response.message());
    }
    let states = api.get("/v1/nodes/enroll/states", &version_header(75)).await.json();
    assert_eq!((&states["boot_mode"], &states["secure_boot"]), (&json!("uefi"), &json!(true)));
}
