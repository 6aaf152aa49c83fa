// SPDX-License-Identifier: Apache-2.0
//! Secrets in the free-form objects of resources other than nodes are rejected, and masked if they were
//! stored earlier.

use node_model::{Port, PortId};
use serde_json::{Value, json};

use crate::support::fixture::Fixture;

/// A value that looks like a secret, in a key or in a URL.
fn secrets() -> [Value; 3] {
    [
        json!({"password": "hunter2"}),
        json!({"a": [{"api_token": "hunter2"}]}),
        json!({"link": "https://u:hunter2@h/"}),
    ]
}

#[tokio::test]
async fn secrets_of_other_resources_are_rejected() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n", |_| {}).await;
    let step = json!({"interface": "deploy", "step": "x", "args": {}, "priority": 1});
    let bodies = [
        ("/v1/chassis", json!({})),
        ("/v1/ports", json!({"node_uuid": node, "address": "52:54:00:00:00:01"})),
        ("/v1/portgroups", json!({"node_uuid": node})),
        ("/v1/volume/connectors", json!({"node_uuid": node, "type": "iqn", "connector_id": "i"})),
        (
            "/v1/volume/targets",
            json!({"node_uuid": node, "volume_type": "iscsi", "boot_index": 0, "volume_id": "v"}),
        ),
        ("/v1/deploy_templates", json!({"name": "CUSTOM_T", "steps": [step.clone()]})),
        (
            "/v1/runbooks",
            json!({"name": "CUSTOM_R", "steps": [{"interface": "deploy", "step": "x", "args": {}, "order": 1}]}),
        ),
        ("/v1/allocations", json!({"resource_class": "none"})),
    ];
    for (path, mut body) in bodies {
        for extra in secrets() {
            body["extra"] = extra;
            let refused = fixture.request("POST", path, body.clone()).await;
            assert_eq!(refused.status, 400, "{path} {body}: {}", refused.body);
            assert!(refused.body.contains("looks like a secret"), "{path}: {}", refused.body);
            assert!(!refused.body.contains("hunter"), "{path}: {}", refused.body);
        }
        // The mask, as sent back by a client that changes something else.
        body["extra"] = json!({"password": "******", "public_key": "shown"});
        let accepted = fixture.request("POST", path, body.clone()).await;
        assert_eq!(accepted.status, 201, "{path}: {}", accepted.body);
    }
}

#[tokio::test]
async fn stored_secrets_are_masked_and_removed_by_a_change() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n", |_| {}).await;
    let mac = "52:54:00:00:00:01".parse().unwrap();
    let mut port = Port::new(PortId::random(), node, mac, node_model::Timestamp(0));
    port.extra.set("password", "hunter2");
    port.internal_info.set("token", "hunter2");
    let id = port.id;
    fixture.store.write(move |tx| tx.insert(&port)).await.unwrap();
    let path = format!("/v1/ports/{id}");
    for path in [&path, "/v1/ports/detail"] {
        let shown = fixture.request("GET", path, Value::Null).await;
        assert!(shown.body.contains("******"), "{path}: {}", shown.body);
        assert!(!shown.body.contains("hunter"), "{path}: {}", shown.body);
    }
    let patch = json!([{"op": "add", "path": "/extra/rack", "value": "r1"}]);
    let changed = fixture.request("PATCH", &path, patch).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let stored = fixture.store.read(move |reader| reader.get(id)).await.unwrap().unwrap();
    assert_eq!(
        stored.extra.parse(),
        *json!({"password": "******", "rack": "r1"}).as_object().unwrap()
    );
}
