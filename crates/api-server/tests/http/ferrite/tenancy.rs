// SPDX-License-Identifier: Apache-2.0
//! Deployments and the audit log over HTTP.

use authentication::AuthSettings;
use node_model::ProvisionState;
use serde_json::{Value, json};

use crate::support::fixture::Fixture;

const DEPLOYMENTS: &str = "/v1/ferrite/deployments";

#[tokio::test]
async fn deployments_are_created_extended_and_removed() {
    let fixture = Fixture::start().await;
    fixture.node("n1", |node| node.provision_state = ProvisionState::Available).await;
    for invalid in [
        json!({}),
        json!({"image": "http://images/a"}),
        json!({"image": "debian", "nodes": ["n1"]}),
        json!({"image": "http://images/a", "nodes": ["nope"]}),
        json!({"image": "http://images/a", "flavour": "nope"}),
        json!({"image": "http://images/a", "nodes": ["n1"], "lease": {"duration": "long"}}),
    ] {
        let response = fixture.request("POST", DEPLOYMENTS, invalid.clone()).await;
        assert_eq!(response.status, 400, "{invalid}: {}", response.body);
    }
    let body = json!({
        "name": "web", "nodes": ["n1"], "image": "http://user:word@images/a",
        "ssh_keys": ["ssh-ed25519 AAAA ann"], "lease": {"duration": 3600, "at_end": "notify"},
    });
    let created = fixture.request("POST", DEPLOYMENTS, body.clone()).await;
    assert_eq!(created.status, 202, "{}", created.body);
    assert!(!created.body.contains("word@"), "{}", created.body);
    let created = created.json();
    assert_eq!(created["state"], "allocating");
    assert_eq!(created["lease"]["at_end"], "notify");
    assert_eq!(fixture.request("POST", DEPLOYMENTS, body).await.status, 409);
    let path = format!("{DEPLOYMENTS}/web");
    let shown = fixture.request("GET", &path, Value::Null).await.json();
    assert_eq!(shown["uuid"], created["uuid"]);
    let extended = fixture.request("PATCH", &path, json!({"lease": {"unlimited": true}})).await;
    assert_eq!(extended.json()["lease"]["expires_at"], Value::Null);
    assert_eq!(fixture.request("PATCH", &path, json!({"name": "x"})).await.status, 400);
    assert_eq!(fixture.request("DELETE", &path, Value::Null).await.status, 202);
    let listed =
        fixture.request("GET", "/v1/ferrite/deployments?state=deleting", Value::Null).await;
    assert_eq!(listed.json()["deployments"][0]["name"], "web");
    assert_eq!(
        fixture.request("PATCH", &path, json!({"lease": {"duration": 1}})).await.status,
        409
    );
    assert_eq!(
        fixture.request("GET", "/v1/ferrite/deployments/nope", Value::Null).await.status,
        404
    );
}

#[tokio::test]
async fn audit_log_is_exported_as_json_lines() {
    let fixture = Fixture::start().await;
    for name in ["a", "b", "c"] {
        let body = json!({"driver": "fake-hardware", "name": name});
        assert_eq!(fixture.request("POST", "/v1/nodes", body).await.status, 201);
    }
    // Agents are in the journal, not here.
    let heartbeat = json!({"callback_url": "http://192.0.2.1:9999", "agent_version": "1"});
    fixture.request("POST", "/v1/heartbeat/a", heartbeat).await;
    let exported = fixture.get("/v1/ferrite/audit-log?format=jsonl", "").await;
    assert_eq!(exported.status, 200, "{}", exported.body);
    let entries: Vec<Value> = exported
        .body
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(Value::is_object)
        .collect();
    assert_eq!(entries.len(), 3, "{}", exported.body);
    assert_eq!(entries[0]["path"], "/v1/nodes");
    assert_eq!(entries[0]["address"], "127.0.0.1");
    assert!(entries[0]["resource_id"].is_string());
}

#[tokio::test]
async fn refused_credentials_are_in_the_audit_log() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("htpasswd");
    std::fs::write(&file, "").unwrap();
    let auth = AuthSettings::htpasswd(file);
    let fixture = Fixture::with(|config| config.auth = auth).await;
    assert_eq!(fixture.get("/v1/nodes", "").await.status, 401);
    let query = store::ResourceQuery::<node_model::AuditEntry>::default();
    let entries = fixture.store.read(move |reader| reader.collect(&query)).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].status, entries[0].user.as_deref()), (401, None));
}
