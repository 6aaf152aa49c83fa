// SPDX-License-Identifier: Apache-2.0
//! Attacks of clients that know a MAC address of a waiting node, with the default settings.

use conductor::ConductorSettings;
use node_model::{BootProof, InterfaceKind, NodeId, Port, PortId, ProvisionState, Secret};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, NOW};
use crate::support::test_lab::{AGENT_VERSION, object};

const MAC: &str = "52:54:00:aa:bb:01";
const TOKEN: &str = "token-in-the-kernel-parameters-of-the-boot-1";

async fn start() -> Fixture {
    Fixture::with_conductor(|settings| *settings = ConductorSettings::default()).await
}

/// Inserts a node with a port and secrets in its instance.
async fn waiting_node(fixture: &Fixture, state: ProvisionState) -> NodeId {
    let id = fixture
        .node("n", |node| {
            node.provision_state = state;
            node.interfaces.set(InterfaceKind::Inspect, Some("agent"));
            node.properties = object(json!({"root_device": {"serial": "1"}, "note": "hunter1"}));
            node.instance_info = object(json!({
                "image_source": "https://h/i?X-Amz-Signature=hunter2",
                "user_data": "hunter3",
                "root_device": {"serial": "2"},
            }));
            node.driver_internal_info =
                object(json!({"agent_erase_devices_iterations": 1, "other": "hunter4"}));
        })
        .await;
    let port = Port::new(PortId::random(), id, MAC.parse().unwrap(), NOW);
    fixture.store.write(move |writer| writer.insert(&port)).await.unwrap();
    id
}

async fn set_token(fixture: &Fixture, id: NodeId) {
    fixture
        .store
        .write(move |writer| {
            let mut node = writer.get(id)?.unwrap();
            let mut secrets = writer.reveal(&node)?;
            secrets.agent_token = Some(Secret::new(TOKEN.to_owned()));
            writer.seal_node(&mut node, secrets)?;
            node.agent.replace(NOW);
            writer.save(&mut node)
        })
        .await
        .unwrap();
}

/// H1 of the security review: one request with a MAC address returned the token.
#[tokio::test]
async fn lookup_without_boot_proof_finds_nothing() {
    let fixture = start().await;
    waiting_node(&fixture, ProvisionState::DeployWait).await;
    let refused = fixture.get(&format!("/v1/lookup?addresses={MAC}"), AGENT_VERSION).await;
    let unknown = fixture.get("/v1/lookup?addresses=52:54:00:00:00:99", AGENT_VERSION).await;
    assert_eq!(refused.status, 404, "{}", refused.body);
    assert_eq!(refused.message(), unknown.message(), "the responses are the same");
    let wrong = format!("{AGENT_VERSION}X-Ferrite-Boot-Secret: {TOKEN}\r\n");
    let wrong = fixture.get(&format!("/v1/lookup?addresses={MAC}"), &wrong).await;
    assert_eq!(wrong.status, 404, "the node has no token: {}", wrong.body);
    let timeline = fixture.get("/v1/ferrite/nodes/n/timeline", "").await.body;
    assert!(timeline.contains("lookup from 127.0.0.1 refused"), "{timeline}");
    let macs: Vec<String> =
        (0..600).map(|it| format!("52:54:00:aa:{:02x}:{:02x}", it >> 8, it & 255)).collect();
    let many =
        fixture.get(&format!("/v1/lookup?addresses={}", macs.join(",")), AGENT_VERSION).await;
    assert_eq!(many.status, 400, "{}", many.body);
}

/// M2 of the security review: the response contained the URL of the image and the user data.
#[tokio::test]
async fn lookup_returns_only_what_agents_need() {
    let fixture = start().await;
    let id = waiting_node(&fixture, ProvisionState::DeployWait).await;
    set_token(&fixture, id).await;
    let secret = format!("{AGENT_VERSION}X-Ferrite-Boot-Secret: {TOKEN}\r\n");
    for headers in [AGENT_VERSION, &secret] {
        let found = fixture.get(&format!("/v1/lookup?addresses={MAC}"), headers).await;
        assert_eq!(found.status, 200, "{}", found.body);
        assert!(!found.body.contains("hunter") && !found.body.contains(TOKEN), "{}", found.body);
        let body: Value = found.json();
        assert_eq!(body["config"]["agent_token"], "******");
        assert_eq!(body["node"]["uuid"], id.to_string());
        assert_eq!(body["node"]["instance_info"], json!({"root_device": {"serial": "2"}}));
        assert_eq!(body["node"]["properties"], json!({"root_device": {"serial": "1"}}));
        let internal = json!({"agent_erase_devices_iterations": 1});
        assert_eq!(body["node"]["driver_internal_info"], internal);
    }
}

/// The heartbeat of an attacker: no command is sent to another address.
#[tokio::test]
async fn commands_go_only_to_the_address_of_the_agent() {
    let fixture = start().await;
    let id = waiting_node(&fixture, ProvisionState::DeployWait).await;
    set_token(&fixture, id).await;
    let path = format!("/v1/heartbeat/{id}");
    for (token, url, status) in [
        ("guessed", "https://127.0.0.1:9999", 400),
        (TOKEN, "https://192.0.2.66:9999", 400),
        (TOKEN, "https://127.0.0.1:9999/any/path?x=", 400),
        (TOKEN, "https://127.0.0.1:9999", 202),
    ] {
        let body = json!({"callback_url": url, "agent_version": "12.0.0", "agent_token": token});
        let response =
            fixture.send("POST", &path, AGENT_VERSION, body.to_string().as_bytes()).await;
        assert_eq!(response.status, status, "{url}: {}", response.body);
    }
}

/// M3 of the security review.
#[tokio::test]
async fn inspection_data_without_boot_proof_change_nothing() {
    for (required, query, status) in [
        (BootProof::Lease, "", 404),
        (BootProof::Lease, "?boot_secret=guessed", 404),
        (BootProof::None, "", 202),
    ] {
        let fixture =
            Fixture::with_conductor(|settings| settings.agent_boot_proof = required).await;
        let id = waiting_node(&fixture, ProvisionState::InspectWait).await;
        let attacker = json!({"name": "eth0", "mac_address": "52:54:00:66:66:66"});
        let inventory = json!({
            "interfaces": [{"name": "eth1", "mac_address": MAC}, attacker],
            "cpu": {"architecture": "hostile"},
        });
        let body = json!({"inventory": inventory}).to_string();
        let path = format!("/v1/continue_inspection{query}");
        let response = fixture.send("POST", &path, "", body.as_bytes()).await;
        assert_eq!(response.status, status, "{required}: {}", response.body);
        let node = fixture.store.read(move |reader| reader.get(id)).await.unwrap().unwrap();
        let is_changed = node.properties.get("cpu_arch").is_some();
        assert_eq!(is_changed, required == BootProof::None);
    }
}
