// SPDX-License-Identifier: Apache-2.0
//! Requests of the agent: lookup, heartbeat, inspection data and logs, and the jobs that wait for them.

use node_model::{MASK, NodeId, PowerState, ProvisionState, Step, WorkKind};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, RawResponse, waiting_work};
use crate::support::test_lab::{AGENT_VERSION, TestLab, object, version_header};

#[tokio::test]
async fn heartbeats_continue_cleaning_and_deployment() {
    let lab = TestLab::start().await;
    let id = lab.enrol_machine("n", json!({"fake_wait_for_agent": true})).await;
    lab.provision_until("n", json!({"target": "manage"}), ProvisionState::Manageable).await;

    lab.provision_until("n", json!({"target": "provide"}), ProvisionState::CleanWait).await;
    let token = lab.lookup_token(id).await;
    assert_eq!(token.len(), 43);
    assert_eq!(lab.lookup_token(id).await, MASK, "the token is sent once");
    let rejected = lab.heartbeat(id, "guessed").await;
    assert_eq!(rejected.status, 400);
    assert!(
        rejected.message().contains("Invalid or missing agent token"),
        "{}",
        rejected.message()
    );
    let accepted = lab.heartbeat(id, &token).await;
    assert_eq!((accepted.status, accepted.body.as_str()), (202, ""), "{}", accepted.message());
    lab.wait_for("n", "cleaning", |node| node.provision_state == ProvisionState::Available).await;

    // Powering off ends the agent and its token.
    let off =
        lab.api.request("PUT", "/v1/nodes/n/states/power", json!({"target": "power off"})).await;
    assert_eq!(off.status, 202, "{}", off.message());
    lab.wait_for("n", "power off", |node| node.power_state == Some(PowerState::Off)).await;
    lab.provision_until("n", json!({"target": "active"}), ProvisionState::DeployWait).await;
    let explained = lab.api.get("/v1/ferrite/nodes/n/explain?target=abort", "").await.json();
    assert_eq!(explained["waiting"]["reason"], "agent heartbeat", "{explained}");
    for time in ["until", "next_action_at"] {
        assert!(explained["waiting"][time].is_string(), "{explained}");
    }
    let timeline = lab.api.get("/v1/ferrite/nodes/n/timeline", "").await.json();
    let entries = timeline["timeline"].as_array().unwrap();
    let wait = entries.iter().rev().find(|entry| entry["event"]["kind"] == "waiting").unwrap();
    assert_eq!(wait["event"]["reason"], explained["waiting"]["reason"], "{wait}");
    for time in ["until", "next_action_at"] {
        assert_eq!(wait["event"][time], explained["waiting"][time], "{wait}");
    }
    let token = lab.lookup_token(id).await;
    assert_ne!(token, MASK, "the token of the previous agent is deleted");
    assert_eq!(lab.heartbeat(id, &token).await.status, 202);
    lab.wait_for("n", "deploying", |node| node.provision_state == ProvisionState::Active).await;
}

#[tokio::test]
async fn rejects_a_changed_callback_url() {
    let lab = TestLab::start().await;
    let id = lab.enrol_machine("n", json!({"fake_wait_for_agent": true})).await;
    lab.provision_until("n", json!({"target": "manage"}), ProvisionState::Manageable).await;
    let hold = json!({"target": "clean", "clean_steps": [{"interface": "deploy", "step": "hold"}]});
    lab.provision_until("n", hold, ProvisionState::CleanWait).await;
    let token = lab.lookup_token(id).await;
    assert_eq!(lab.heartbeat(id, &token).await.status, 202);
    lab.wait_for("n", "the hold", |node| node.provision_state == ProvisionState::CleanHold).await;
    let body = json!({
        "callback_url": "https://192.0.2.66:9999",
        "agent_version": "12.0.0",
        "agent_token": token,
    });
    let path = format!("/v1/heartbeat/{id}");
    let rejected = lab.api.send("POST", &path, AGENT_VERSION, body.to_string().as_bytes()).await;
    assert_eq!(rejected.status, 400);
    assert!(rejected.message().contains("Detected change"), "{}", rejected.message());
}

#[tokio::test]
async fn lookup_returns_the_fields_that_agents_read() {
    let lab = TestLab::start().await;
    let id = lab.node_in_state("n", ProvisionState::DeployWait).await;
    let found = lab.api.get(&format!("/v1/lookup?node_uuid={id}"), AGENT_VERSION).await.json();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let mut node = keys(&found["node"]);
    node.sort();
    assert_eq!(node, ["driver_internal_info", "instance_info", "links", "properties", "uuid"]);
    let mut config = keys(&found["config"]);
    config.sort();
    // As Ironic 39.0.0 sends it.
    assert_eq!(
        config,
        [
            "agent_containers",
            "agent_md5_checksum_enable",
            "agent_skip_bmc_detect",
            "agent_token",
            "agent_token_required",
            "disable_deep_image_inspection",
            "enable_bios_bootloader_install",
            "heartbeat_timeout",
            "metrics",
            "metrics_statsd",
            "permitted_image_formats",
            "tls_cipher_suites",
            "tls_min_version",
        ]
    );
    assert_eq!(found["config"]["heartbeat_timeout"], 300);
}

#[tokio::test]
async fn lookup_does_not_return_the_steps_of_the_job() {
    let fixture = Fixture::start().await;
    let id = fixture
        .node("n", |node| {
            let mut step = Step::new("deploy", "set_up", 10);
            step.args = object(json!({"seed": "hunter2"}));
            node.provision_state = ProvisionState::CleanWait;
            node.driver_internal_info = object(json!({"agent_other": 1}));
            node.work = Some(waiting_work(WorkKind::ManualClean, vec![step]));
        })
        .await;
    let shown = fixture.get("/v1/nodes/n", AGENT_VERSION).await.json();
    assert_eq!(shown["driver_internal_info"]["clean_steps"][0]["step"], "set_up", "{shown}");
    let found = fixture.get(&format!("/v1/lookup?node_uuid={id}"), AGENT_VERSION).await;
    assert_eq!(found.status, 200, "{}", found.message());
    assert!(!found.body.contains("hunter2"), "{}", found.body);
    let info = &found.json()["node"]["driver_internal_info"];
    assert_eq!(info["agent_other"], 1, "{info}");
    for key in ["clean_steps", "clean_step_index"] {
        assert!(info.get(key).is_none(), "{key}: {info}");
    }
}

#[tokio::test]
async fn rejects_lookups_without_a_waiting_node() {
    let lab = TestLab::start().await;
    let waiting = lab.node_in_state("waiting", ProvisionState::DeployWait).await;
    let idle = lab.node_in_state("idle", ProvisionState::Active).await;
    let unknown = NodeId::random();
    for (query, minor, status) in [
        (format!("node_uuid={waiting}"), 21, 404),
        (format!("node_uuid={waiting}"), 22, 200),
        (format!("node_uuid={idle}"), 62, 404),
        (format!("node_uuid={unknown}"), 62, 404),
        ("addresses=52:54:00:00:00:01".to_owned(), 62, 404),
        ("addresses=nonsense".to_owned(), 62, 400),
        (String::new(), 62, 400),
        ("bogus=1".to_owned(), 62, 400),
        ("node_uuid=nonsense".to_owned(), 62, 400),
    ] {
        let response = lab.api.get(&format!("/v1/lookup?{query}"), &version_header(minor)).await;
        assert_eq!(response.status, status, "{query} at 1.{minor}: {}", response.message());
    }
    let messages = [idle, unknown].map(|id| format!("/v1/lookup?node_uuid={id}"));
    let one = lab.api.get(&messages[0], AGENT_VERSION).await.message();
    assert_eq!(one, lab.api.get(&messages[1], AGENT_VERSION).await.message());
}

#[tokio::test]
async fn rejects_invalid_heartbeats() {
    let lab = TestLab::start().await;
    let id = lab.node_in_state("n", ProvisionState::DeployWait).await;
    let token = lab.lookup_token(id).await;
    let good = json!({
        "callback_url": "https://192.0.2.7:9999",
        "agent_version": "12.0.0",
        "agent_token": token,
    });
    let with = |key: &str, value: Value| {
        let mut body = good.clone();
        body[key] = value;
        body
    };
    let unknown = NodeId::random().to_string();
    for (what, ident, minor, body, status) in [
        ("another node", NodeId::random().to_string(), 68, good.clone(), 404),
        ("another name", "unknown".to_owned(), 68, good.clone(), 404),
        ("another node, no token", unknown, 68, with("agent_token", Value::Null), 404),
        ("another name, no URL", "unknown".to_owned(), 68, with("callback_url", json!("x")), 404),
        ("too old", id.to_string(), 21, good.clone(), 404),
        ("version too old for its version", id.to_string(), 35, good.clone(), 400),
        ("no TLS", id.to_string(), 68, with("callback_url", json!("http://192.0.2.7")), 400),
        ("no URL", id.to_string(), 68, with("callback_url", json!("gopher://x")), 400),
        ("no token", id.to_string(), 68, with("agent_token", Value::Null), 400),
        ("wrong token", id.to_string(), 68, with("agent_token", json!("x")), 400),
        ("certificate too early", id.to_string(), 67, with("agent_verify_ca", json!("PEM")), 400),
        ("bad status", id.to_string(), 72, with("agent_status", json!("dancing")), 400),
        ("unknown", id.to_string(), 68, with("bogus", json!(1)), 400),
        ("by name", "n".to_owned(), 68, good.clone(), 202),
    ] {
        let path = format!("/v1/heartbeat/{ident}");
        let response =
            lab.api.send("POST", &path, &version_header(minor), body.to_string().as_bytes()).await;
        assert_eq!(response.status, status, "{what}: {}", response.message());
    }
}

async fn inspect(lab: &TestLab, query: &str, headers: &str, body: &Value) -> RawResponse {
    let path = format!("/v1/continue_inspection{query}");
    lab.api.send("POST", &path, headers, body.to_string().as_bytes()).await
}

fn data() -> Value {
    json!({
        "inventory": {
            "interfaces": [{"name": "eth0", "mac_address": "52:54:00:aa:bb:01", "has_carrier": true}],
            "cpu": {"count": 4, "architecture": "x86_64"},
            "memory": {"physical_mb": 8192},
            "disks": [],
            "boot": {"current_boot_mode": "uefi", "pxe_interface": "52:54:00:aa:bb:01"},
        },
        "root_disk": null,
    })
}

#[tokio::test]
async fn inspection_data_finish_the_inspection() {
    let lab = TestLab::start().await;
    let id = lab.enrol_agent_inspected("n").await;
    lab.provision_until("n", json!({"target": "inspect"}), ProvisionState::InspectWait).await;
    let by_uuid = format!("?node_uuid={id}");

    for (query, headers, body, status) in [
        (by_uuid.as_str(), "", data(), 404),
        (by_uuid.as_str(), version_header(83).as_str(), data(), 404),
        ("", version_header(2).as_str(), data(), 404),
        ("?node_uuid=x", version_header(84).as_str(), data(), 400),
        ("?bogus=x", "", data(), 400),
        ("", "", json!({}), 400),
        ("", "", json!({"inventory": {"interfaces": []}}), 400),
        ("", "", json!({"inventory": {"interfaces": [{"mac_address": "x"}]}}), 400),
        // No node has a port with this MAC address yet.
        ("", "", data(), 404),
    ] {
        let response = inspect(&lab, query, headers, &body).await;
        assert_eq!(response.status, status, "{query} {body}: {}", response.message());
    }

    let accepted = inspect(&lab, &by_uuid, &version_header(84), &data()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.message());
    let response = accepted.json();
    assert_eq!(response["node"]["uuid"], id.to_string());
    assert_eq!(response["config"]["heartbeat_timeout"], 300);
    let done = |node: &node_model::Node| {
        node.provision_state == ProvisionState::Manageable && node.work.is_none()
    };
    let node = lab.wait_for("n", "inspection", done).await;
    assert_eq!(node.last_error, None);
    assert_eq!(
        inspect(&lab, &by_uuid, &version_header(84), &data()).await.status,
        404,
        "the node does not wait any more"
    );

    // Now the node has a port with this MAC address, so an agent without a version finds the node by it.
    lab.provision_until("n", json!({"target": "inspect"}), ProvisionState::InspectWait).await;
    let accepted = inspect(&lab, "", "", &data()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.message());
    assert_eq!(accepted.json(), json!({"uuid": id.to_string()}));
    lab.wait_for("n", "inspection", done).await;
}

#[tokio::test]
async fn abort_of_waiting_jobs_depends_on_the_version() {
    let lab = TestLab::start().await;
    lab.enrol_agent_inspected("inspected").await;
    lab.provision_until("inspected", json!({"target": "inspect"}), ProvisionState::InspectWait)
        .await;
    let id = lab.enrol_machine("deployed", json!({"fake_wait_for_agent": true})).await;
    lab.provision_until("deployed", json!({"target": "manage"}), ProvisionState::Manageable).await;
    lab.provision_until("deployed", json!({"target": "adopt"}), ProvisionState::Active).await;
    lab.provision_until("deployed", json!({"target": "rebuild"}), ProvisionState::DeployWait).await;
    let abort = json!({"target": "abort"}).to_string();
    for (node, too_old, new_enough, end) in [
        ("inspected", 40, 41, ProvisionState::InspectFail),
        ("deployed", 109, 110, ProvisionState::DeployFail),
    ] {
        let path = format!("/v1/nodes/{node}/states/provision");
        let early = lab.api.send("PUT", &path, &version_header(too_old), abort.as_bytes()).await;
        assert_eq!(early.status, 406, "{node}: {}", early.message());
        let later = lab.api.send("PUT", &path, &version_header(new_enough), abort.as_bytes()).await;
        assert_eq!(later.status, 202, "{node}: {}", later.message());
        if node == "deployed" {
            // The step must not be interrupted, so the abort happens at its end.
            let token = lab.lookup_token(id).await;
            assert_eq!(lab.heartbeat(id, &token).await.status, 202);
        }
        lab.wait_for(node, "abort", |node| node.provision_state == end).await;
    }
}

#[tokio::test]
async fn live_log_shows_the_lines_of_the_agent() {
    let lab = TestLab::start().await;
    let id = lab.node_in_state("n", ProvisionState::DeployWait).await;
    let live = "/v1/ferrite/nodes/n/logs/live";
    let nothing = json!({"received_at": null, "next": 0, "lines": []});
    assert_eq!(lab.api.get(live, "").await.json(), nothing);
    let token = lab.lookup_token(id).await;
    let send_lines = async |token: &str, first: u64, lines: Value| {
        let body = json!({"agent_token": token, "run": "1", "first": first, "lines": lines});
        let path = format!("/v1/ferrite/agents/{id}/log");
        lab.api.send("POST", &path, "", body.to_string().as_bytes()).await
    };
    for (token, lines, status) in [
        ("guessed", json!(["a"]), 400),
        ("", json!(["a"]), 400),
        (token.as_str(), json!("a"), 400),
        (token.as_str(), json!(vec!["a"; 3000]), 400),
    ] {
        let rejected = send_lines(token, 0, lines).await;
        assert_eq!(rejected.status, status, "{}", rejected.message());
    }
    let unknown = format!("/v1/ferrite/agents/{}/log", NodeId::random());
    let body = json!({"agent_token": token, "run": "1", "first": 0, "lines": ["a"]});
    let rejected = lab.api.send("POST", &unknown, "", body.to_string().as_bytes()).await;
    assert_eq!(rejected.status, 404, "{}", rejected.message());
    assert_eq!(lab.api.get(live, "").await.json(), nothing, "rejected lines are not stored");

    let lines = json!(["agent started", format!("its token is {token}")]);
    let accepted = send_lines(&token, 0, lines).await;
    assert_eq!(accepted.status, 202, "{}", accepted.message());
    assert_eq!(send_lines(&token, 2, json!(["writing"])).await.status, 202);
    let tail = lab.api.get(live, "").await.json();
    assert_eq!(tail["lines"], json!(["agent started", "its token is ******", "writing"]));
    assert_eq!(tail["next"], 3);
    let tail = lab.api.get(&format!("{live}?after=2"), "").await.json();
    assert_eq!(tail["lines"], json!(["writing"]));
    assert_eq!(lab.api.get(&format!("{live}?after=x"), "").await.status, 400);
    let listed = lab.api.get("/v1/ferrite/nodes/n/logs", "").await.json();
    assert!(listed["live"]["href"].as_str().unwrap().ends_with(&format!("{id}/logs/live")));
    // The clock is constant, so the rate limit applies.
    let mut statuses = vec![];
    for number in 3..14 {
        statuses.push(send_lines(&token, number, json!(["more"])).await.status);
    }
    assert_eq!(statuses, [[202; 8].as_slice(), &[429; 3]].concat());
}
