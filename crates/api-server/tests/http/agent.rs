// SPDX-License-Identifier: Apache-2.0
//! The agent's calls: lookup, heartbeat and inspection data, and the jobs that wait for them.

use node_model::{MASK, NodeId, PowerState, ProvisionState, Step, WorkKind};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Response, waiting};
use crate::lab::{AGENT_VERSION, Lab, at, object};

#[tokio::test]
async fn a_deployment_goes_on_when_the_agent_calls() {
    let lab = Lab::start().await;
    let id = lab.machine("n", json!({"fake_wait_for_agent": true})).await;
    lab.goes("n", json!({"target": "manage"}), ProvisionState::Manageable).await;

    lab.goes("n", json!({"target": "provide"}), ProvisionState::CleanWait).await;
    let token = lab.agent(id).await;
    assert_eq!(token.len(), 43);
    assert_eq!(lab.agent(id).await, MASK, "the token is told once");
    let refused = lab.heartbeat(id, "guessed").await;
    assert_eq!(refused.status, 400);
    assert!(refused.message().contains("Invalid or missing agent token"), "{}", refused.message());
    let heard = lab.heartbeat(id, &token).await;
    assert_eq!((heard.status, heard.body.as_str()), (202, ""), "{}", heard.message());
    lab.until("n", "cleaning", |node| node.provision_state == ProvisionState::Available).await;

    // The agent and its token end when the machine is switched off.
    let off = lab.api.ask("PUT", "/v1/nodes/n/states/power", json!({"target": "power off"})).await;
    assert_eq!(off.status, 202, "{}", off.message());
    lab.until("n", "power off", |node| node.power_state == Some(PowerState::Off)).await;
    lab.goes("n", json!({"target": "active"}), ProvisionState::DeployWait).await;
    let explained = lab.api.get("/v1/ferrite/nodes/n/explain?target=abort", "").await.json();
    assert_eq!(explained["waiting"]["why"], "agent heartbeat", "{explained}");
    assert!(explained["waiting"]["until"].is_string(), "{explained}");
    let timeline = lab.api.get("/v1/ferrite/nodes/n/timeline", "").await.json();
    let entries = timeline["timeline"].as_array().unwrap();
    let told = entries.iter().rev().find(|entry| entry["what"]["kind"] == "waiting").unwrap();
    assert_eq!(told["what"]["why"], explained["waiting"]["why"], "{told}");
    assert_eq!(told["what"]["until"], explained["waiting"]["until"], "{told}");
    let token = lab.agent(id).await;
    assert_ne!(token, MASK, "the token of the last agent is forgotten");
    assert_eq!(lab.heartbeat(id, &token).await.status, 202);
    lab.until("n", "deploying", |node| node.provision_state == ProvisionState::Active).await;
}

#[tokio::test]
async fn the_first_agent_is_believed() {
    let lab = Lab::start().await;
    let id = lab.machine("n", json!({"fake_wait_for_agent": true})).await;
    lab.goes("n", json!({"target": "manage"}), ProvisionState::Manageable).await;
    let hold = json!({"target": "clean", "clean_steps": [{"interface": "deploy", "step": "hold"}]});
    lab.goes("n", hold, ProvisionState::CleanWait).await;
    let token = lab.agent(id).await;
    assert_eq!(lab.heartbeat(id, &token).await.status, 202);
    lab.until("n", "the hold", |node| node.provision_state == ProvisionState::CleanHold).await;
    let body = json!({
        "callback_url": "https://192.0.2.66:9999",
        "agent_version": "12.0.0",
        "agent_token": token,
    });
    let path = format!("/v1/heartbeat/{id}");
    let refused = lab.api.send("POST", &path, AGENT_VERSION, body.to_string().as_bytes()).await;
    assert_eq!(refused.status, 400);
    assert!(refused.message().contains("Detected change"), "{}", refused.message());
}

#[tokio::test]
async fn what_an_agent_is_told() {
    let lab = Lab::start().await;
    let id = lab.in_state("n", ProvisionState::DeployWait).await;
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
async fn the_steps_of_a_job_are_not_told_to_whoever_asks() {
    let fixture = Fixture::start().await;
    let id = fixture
        .node("n", |node| {
            let mut step = Step::new("deploy", "set_up", 10);
            step.args = object(json!({"seed": "hunter2"}));
            node.provision_state = ProvisionState::CleanWait;
            node.driver_internal_info = object(json!({"kept": 1}));
            node.work = Some(waiting(WorkKind::ManualClean, vec![step]));
        })
        .await;
    let shown = fixture.get("/v1/nodes/n", AGENT_VERSION).await.json();
    assert_eq!(shown["driver_internal_info"]["clean_steps"][0]["step"], "set_up", "{shown}");
    let told = fixture.get(&format!("/v1/lookup?node_uuid={id}"), AGENT_VERSION).await;
    assert_eq!(told.status, 200, "{}", told.message());
    assert!(!told.body.contains("hunter2"), "{}", told.body);
    let info = &told.json()["node"]["driver_internal_info"];
    assert_eq!(info["kept"], 1, "{info}");
    for key in ["clean_steps", "clean_step_index"] {
        assert!(info.get(key).is_none(), "{key}: {info}");
    }
}

#[tokio::test]
async fn lookups_that_find_nothing() {
    let lab = Lab::start().await;
    let waiting = lab.in_state("waiting", ProvisionState::DeployWait).await;
    let resting = lab.in_state("resting", ProvisionState::Active).await;
    let unknown = NodeId::random();
    for (query, minor, status) in [
        (format!("node_uuid={waiting}"), 21, 404),
        (format!("node_uuid={waiting}"), 22, 200),
        (format!("node_uuid={resting}"), 62, 404),
        (format!("node_uuid={unknown}"), 62, 404),
        ("addresses=52:54:00:00:00:01".to_owned(), 62, 404),
        ("addresses=nonsense".to_owned(), 62, 400),
        (String::new(), 62, 400),
        ("bogus=1".to_owned(), 62, 400),
        ("node_uuid=nonsense".to_owned(), 62, 400),
    ] {
        let response = lab.api.get(&format!("/v1/lookup?{query}"), &at(minor)).await;
        assert_eq!(response.status, status, "{query} at 1.{minor}: {}", response.message());
    }
    let messages = [resting, unknown].map(|id| format!("/v1/lookup?node_uuid={id}"));
    let one = lab.api.get(&messages[0], AGENT_VERSION).await.message();
    assert_eq!(one, lab.api.get(&messages[1], AGENT_VERSION).await.message());
}

#[tokio::test]
async fn heartbeats_that_are_refused() {
    let lab = Lab::start().await;
    let id = lab.in_state("n", ProvisionState::DeployWait).await;
    let token = lab.agent(id).await;
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
    for (what, ident, minor, body, status) in [
        ("another node", NodeId::random().to_string(), 68, good.clone(), 404),
        ("another name", "nobody".to_owned(), 68, good.clone(), 404),
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
        let response = lab.api.send("POST", &path, &at(minor), body.to_string().as_bytes()).await;
        assert_eq!(response.status, status, "{what}: {}", response.message());
    }
}

async fn inspect(lab: &Lab, query: &str, headers: &str, body: &Value) -> Response {
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
async fn inspection_ends_when_the_ramdisk_sends_its_data() {
    let lab = Lab::start().await;
    let id = lab.inspected_by_agent("n").await;
    lab.goes("n", json!({"target": "inspect"}), ProvisionState::InspectWait).await;
    let named = format!("?node_uuid={id}");

    for (query, headers, body, status) in [
        (named.as_str(), "", data(), 404),
        (named.as_str(), at(83).as_str(), data(), 404),
        ("", at(2).as_str(), data(), 404),
        ("?node_uuid=x", at(84).as_str(), data(), 400),
        ("?bogus=x", "", data(), 400),
        ("", "", json!({}), 400),
        ("", "", json!({"inventory": {"interfaces": []}}), 400),
        ("", "", json!({"inventory": {"interfaces": [{"mac_address": "x"}]}}), 400),
        // Nobody knows this card yet.
        ("", "", data(), 404),
    ] {
        let response = inspect(&lab, query, headers, &body).await;
        assert_eq!(response.status, status, "{query} {body}: {}", response.message());
    }

    let taken = inspect(&lab, &named, &at(84), &data()).await;
    assert_eq!(taken.status, 202, "{}", taken.message());
    let answer = taken.json();
    assert_eq!(answer["node"]["uuid"], id.to_string());
    assert_eq!(answer["config"]["heartbeat_timeout"], 300);
    let done = |node: &node_model::Node| {
        node.provision_state == ProvisionState::Manageable && node.work.is_none()
    };
    let node = lab.until("n", "inspection", done).await;
    assert_eq!(node.last_error, None);
    assert_eq!(inspect(&lab, &named, &at(84), &data()).await.status, 404, "it waits no longer");

    // By now the card is a port of the node, so that an agent without a version finds it by that.
    lab.goes("n", json!({"target": "inspect"}), ProvisionState::InspectWait).await;
    let taken = inspect(&lab, "", "", &data()).await;
    assert_eq!(taken.status, 202, "{}", taken.message());
    assert_eq!(taken.json(), json!({"uuid": id.to_string()}));
    lab.until("n", "inspection", done).await;
}

#[tokio::test]
async fn waiting_jobs_are_aborted_at_the_right_versions() {
    let lab = Lab::start().await;
    lab.inspected_by_agent("inspected").await;
    lab.goes("inspected", json!({"target": "inspect"}), ProvisionState::InspectWait).await;
    let id = lab.machine("deployed", json!({"fake_wait_for_agent": true})).await;
    lab.goes("deployed", json!({"target": "manage"}), ProvisionState::Manageable).await;
    lab.goes("deployed", json!({"target": "adopt"}), ProvisionState::Active).await;
    lab.goes("deployed", json!({"target": "rebuild"}), ProvisionState::DeployWait).await;
    let abort = json!({"target": "abort"}).to_string();
    for (node, refused, accepted, end) in [
        ("inspected", 40, 41, ProvisionState::InspectFail),
        ("deployed", 109, 110, ProvisionState::DeployFail),
    ] {
        let path = format!("/v1/nodes/{node}/states/provision");
        let early = lab.api.send("PUT", &path, &at(refused), abort.as_bytes()).await;
        assert_eq!(early.status, 406, "{node}: {}", early.message());
        let later = lab.api.send("PUT", &path, &at(accepted), abort.as_bytes()).await;
        assert_eq!(later.status, 202, "{node}: {}", later.message());
        if node == "deployed" {
            // Its step must not be interrupted, so the abort happens when that ends.
            let token = lab.agent(id).await;
            assert_eq!(lab.heartbeat(id, &token).await.status, 202);
        }
        lab.until(node, "abort", |node| node.provision_state == end).await;
    }
}

#[tokio::test]
async fn what_an_agent_says_is_seen_while_it_works() {
    let lab = Lab::start().await;
    let id = lab.in_state("n", ProvisionState::DeployWait).await;
    let live = "/v1/ferrite/nodes/n/logs/live";
    let nothing = json!({"heard_at": null, "next": 0, "lines": []});
    assert_eq!(lab.api.get(live, "").await.json(), nothing);
    let token = lab.agent(id).await;
    let say = async |token: &str, first: u64, lines: Value| {
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
        let refused = say(token, 0, lines).await;
        assert_eq!(refused.status, status, "{}", refused.message());
    }
    let unknown = format!("/v1/ferrite/agents/{}/log", NodeId::random());
    let body = json!({"agent_token": token, "run": "1", "first": 0, "lines": ["a"]});
    let refused = lab.api.send("POST", &unknown, "", body.to_string().as_bytes()).await;
    assert_eq!(refused.status, 404, "{}", refused.message());
    assert_eq!(lab.api.get(live, "").await.json(), nothing, "nothing of that was kept");

    let heard = say(&token, 0, json!(["the agent starts", format!("its token is {token}")])).await;
    assert_eq!(heard.status, 202, "{}", heard.message());
    assert_eq!(say(&token, 2, json!(["writing"])).await.status, 202);
    let said = lab.api.get(live, "").await.json();
    assert_eq!(said["lines"], json!(["the agent starts", "its token is ******", "writing"]));
    assert_eq!(said["next"], 3);
    let said = lab.api.get(&format!("{live}?after=2"), "").await.json();
    assert_eq!(said["lines"], json!(["writing"]));
    assert_eq!(lab.api.get(&format!("{live}?after=x"), "").await.status, 400);
    let listed = lab.api.get("/v1/ferrite/nodes/n/logs", "").await.json();
    assert!(listed["live"]["href"].as_str().unwrap().ends_with(&format!("{id}/logs/live")));
    // The clock stands still: an agent that sends all the time is asked to wait.
    let mut answers = vec![];
    for number in 3..14 {
        answers.push(say(&token, number, json!(["more"])).await.status);
    }
    assert_eq!(answers, [[202; 8].as_slice(), &[429; 3]].concat());
}
