// SPDX-License-Identifier: Apache-2.0
//! Secrets in the free-form objects of a node are sealed and masked (M2 of the security review).

use node_model::{NodeId, ProvisionState};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, RawResponse};
use crate::support::test_lab::object;

const SIGNED: &str = "https://h/i?X-Amz-Expires=9&X-Amz-Signature=hunter2&v=1";
const SIGNED_MASKED: &str = "https://h/i?X-Amz-Expires=9&X-Amz-Signature=******&v=1";

fn objects() -> Value {
    json!({
        "driver_info": {"my_api_key": "hunter2", "snmp_community": "hunter2", "address": "10.0.0.1"},
        "instance_info": {
            "image_source": SIGNED, "user_data": "hunter2", "image_checksum": "https://h/c?v=1",
            "nested": [{"credential": {"key": "hunter2"}}],
        },
        "extra": {
            "password": "hunter2", "ssh_key_contents": "hunter2", "cert_pem": "hunter2",
            "public_key": "shown", "link": SIGNED,
        },
        "properties": {"cpu_arch": "x86_64", "Passphrase": "hunter2"},
    })
}

fn masked_objects() -> Value {
    json!({
        "driver_info": {"my_api_key": "******", "snmp_community": "******", "address": "10.0.0.1"},
        "instance_info": {
            "image_source": SIGNED_MASKED, "user_data": "******", "image_checksum": "https://h/c?v=1",
            "nested": [{"credential": "******"}],
        },
        "extra": {
            "password": "******", "ssh_key_contents": "******", "cert_pem": "******",
            "public_key": "shown", "link": SIGNED_MASKED,
        },
        "properties": {"cpu_arch": "x86_64", "Passphrase": "******"},
    })
}

fn patch_with(objects: &Value) -> Value {
    let objects = objects.as_object().unwrap();
    let set = |(key, value): (&String, &Value)| json!({"op": "add", "path": format!("/{key}"), "value": value});
    objects.iter().map(set).collect()
}

fn assert_masked(what: &str, response: &RawResponse) {
    assert!(!response.body.contains("hunter"), "{what}: {}", response.body);
}

/// The sealed secrets of a node, by JSON pointer.
async fn sealed(fixture: &Fixture, id: NodeId) -> Value {
    let read = move |reader: &mut store::StoreReader<'_>| {
        let node = reader.get(id)?.ok_or(store::StoreError::Missing)?;
        assert!(!format!("{node:?}").contains("hunter"), "in clear in the database");
        reader.unseal(id.0, &node.sealed)
    };
    serde_json::from_slice(&fixture.store.read(read).await.unwrap()).unwrap()
}

#[tokio::test]
async fn secrets_of_all_objects_are_sealed_and_masked() {
    let fixture = Fixture::start().await;
    let mut body = objects();
    body["driver"] = json!("fake-hardware");
    body["name"] = json!("n1");
    let created = fixture.request("POST", "/v1/nodes", body).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let node = created.json();
    let id: NodeId = node["uuid"].as_str().unwrap().parse().unwrap();
    let mut before = sealed(&fixture, id).await;
    assert_eq!(before["/extra/password"], "hunter2");
    assert_eq!(before["/instance_info/image_source"], SIGNED);
    for (what, change) in [
        ("masked objects sent back", patch_with(&masked_objects())),
        ("another change of extra", json!([{"op": "add", "path": "/extra/more", "value": 1}])),
        ("another change", json!([{"op": "add", "path": "/description", "value": "x"}])),
        ("plain objects", patch_with(&objects())),
    ] {
        let changed = fixture.request("PATCH", "/v1/nodes/n1", change).await;
        assert_eq!(changed.status, 200, "{what}: {}", changed.body);
        assert_masked(what, &changed);
        assert_eq!(sealed(&fixture, id).await, before, "{what}");
    }
    let replaced = json!([{"op": "replace", "path": "/extra/password", "value": "hunter3"}]);
    assert_masked("new secret", &fixture.request("PATCH", "/v1/nodes/n1", replaced).await);
    before["/extra/password"] = json!("hunter3");
    assert_eq!(sealed(&fixture, id).await, before);
    let removed = json!([{"op": "remove", "path": "/extra"}]);
    assert_masked("removed", &fixture.request("PATCH", "/v1/nodes/n1", removed).await);
    assert!(sealed(&fixture, id).await.get("/extra/password").is_none());

    for path in [
        "/v1/nodes/n1",
        "/v1/nodes/detail",
        "/v1/nodes?fields=extra,properties,driver_info,instance_info",
        "/v1/ferrite/nodes/n1/timeline",
        "/v1/nodes/n1/history",
        "/v1/ferrite/search?q=hunter",
    ] {
        assert_masked(path, &fixture.request("GET", path, Value::Null).await);
    }
    let shown = fixture.request("GET", "/v1/nodes/n1", Value::Null).await.json();
    let mut expected = masked_objects();
    expected["extra"] = json!({});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&shown[field], value, "{field}");
    }
}

/// Parts of the program that change `extra` without sealing it, such as inspection.
#[tokio::test]
async fn secrets_written_without_the_api_are_sealed() {
    let fixture = Fixture::start().await;
    let id = fixture
        .node("n1", |node| {
            node.provision_state = ProvisionState::Manageable;
            node.extra = object(objects()["extra"].clone());
        })
        .await;
    let secrets = sealed(&fixture, id).await;
    assert_eq!(
        (&secrets["/extra/password"], &secrets["/extra/link"]),
        (&json!("hunter2"), &json!(SIGNED))
    );
    let shown = fixture.request("GET", "/v1/nodes/n1", Value::Null).await.json();
    assert_eq!(shown["extra"], masked_objects()["extra"]);
}
