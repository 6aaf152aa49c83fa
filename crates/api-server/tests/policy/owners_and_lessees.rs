// SPDX-License-Identifier: Apache-2.0
//! What owners, lessees and others see and do, on the routes and fields that Ironic's cases leave out.

use access_policy::{Caller, CallerScope};
use node_model::{Actor, Inventory, JournalEntry, JournalEvent, JsonObject, Node, NodeId};
use serde_json::{Value, json};

use crate::fixture::{NOW, PolicyFixture, PolicyOptions, caller, project_caller};

const MEMBER: &[&str] = &["member", "reader"];
const ADMIN: &[&str] = &["admin", "manager", "member", "reader"];

/// A fixture with the node `n1`, owned by `owner` and leased by `lessee`, and the node `n2` of others.
async fn fixture() -> PolicyFixture {
    let fixture = PolicyFixture::empty().await;
    for (name, owner, lessee) in [("n1", "owner", "lessee"), ("n2", "other", "other")] {
        let mut node = Node::new(NodeId::random(), "fake-hardware", NOW);
        node.name = Some(name.to_owned());
        node.owner = Some(owner.to_owned());
        node.lessee = Some(lessee.to_owned());
        node.last_error = Some("bmc 192.0.2.9 failed".to_owned());
        let id = node.id;
        let serial = json!({"system_vendor": {"serial_number": format!("SN-{name}")}});
        let inventory = Inventory {
            node_id: id,
            created_at: NOW,
            inventory: JsonObject::from(serial.as_object().expect("an object").clone()),
            plugin_data: JsonObject::empty(),
            derived: JsonObject::empty(),
        };
        let entry = JournalEntry {
            at: NOW,
            node_id: id,
            actor: Actor::User {
                name: Some("earlier tenant".to_owned()),
                project: None,
                request_id: "r".into(),
            },
            event: JournalEvent::Changed { fields: vec!["extra".to_owned()] },
        };
        fixture
            .store
            .write(move |writer| {
                writer.insert(&node)?;
                writer.set_inventory(&inventory)?;
                writer.append(entry.clone());
                Ok::<_, store::StoreError>(())
            })
            .await
            .unwrap();
        let address = format!("02:00:00:00:00:{name}").replace('n', "0");
        fixture.create("/v1/ports", json!({"node_uuid": id, "address": address})).await;
    }
    fixture
}

fn system(roles: &[&str]) -> Caller {
    caller(CallerScope::System, None, roles)
}

#[tokio::test]
async fn routes_without_a_case_in_ironic() {
    let fixture = fixture().await;
    let owner = project_caller("owner", MEMBER);
    let owner_reader = project_caller("owner", &["reader"]);
    let lessee = project_caller("lessee", ADMIN);
    let other = project_caller("third", ADMIN);
    let auditor = system(&["reader"]);
    let operator = system(MEMBER);
    for (who, method, path, expected) in [
        (&owner_reader, "GET", "/v1/ferrite/nodes/n1/timeline", 200),
        (&lessee, "GET", "/v1/ferrite/nodes/n1/timeline", 403),
        (&other, "GET", "/v1/ferrite/nodes/n1/timeline", 404),
        (&auditor, "GET", "/v1/ferrite/nodes/n1/timeline", 200),
        (&lessee, "GET", "/v1/ferrite/nodes/n1/explain?target=manage", 200),
        (&other, "GET", "/v1/ferrite/nodes/n1/explain?target=manage", 404),
        (&owner_reader, "GET", "/v1/ferrite/nodes/n1/bmc", 200),
        (&owner_reader, "POST", "/v1/ferrite/nodes/n1/bmc", 403),
        (&lessee, "GET", "/v1/ferrite/nodes/n1/bmc", 403),
        (&owner_reader, "GET", "/v1/ferrite/nodes/n1/console", 403),
        (&lessee, "GET", "/v1/ferrite/nodes/n1/console", 403),
        (&other, "GET", "/v1/ferrite/nodes/n1/console", 404),
        (&lessee, "GET", "/v1/nodes/validate?node=n1", 200),
        (&owner_reader, "GET", "/v1/nodes/validate?node=n1", 403),
        (&other, "GET", "/v1/nodes/validate?node=n1", 404),
        (&owner, "GET", "/v1/ferrite/topology", 403),
        (&auditor, "GET", "/v1/ferrite/topology", 200),
        (&owner, "GET", "/v1/ferrite/dhcp", 403),
        (&auditor, "GET", "/v1/ferrite/durations", 200),
        (&owner, "GET", "/v1/ferrite/images", 403),
        (&owner, "GET", "/v1/ferrite/flavours", 200),
        (&owner, "PUT", "/v1/ferrite/flavours/large", 403),
        (&auditor, "GET", "/v1/ferrite/sightings", 200),
        (&auditor, "DELETE", "/v1/ferrite/sightings/02:00:00:00:00:09", 403),
        (&operator, "DELETE", "/v1/ferrite/sightings/02:00:00:00:00:09", 403),
        (&owner, "GET", "/v1/ferrite/openapi", 200),
    ] {
        let response = fixture.call(who, method, path, &Value::Null).await;
        assert_eq!(response.status, expected, "{method} {path} {who:?}: {}", response.text);
    }
}

#[tokio::test]
async fn fields_are_redacted_in_every_response_with_a_node() {
    let fixture = fixture().await;
    let lessee = project_caller("lessee", MEMBER);
    let owner = project_caller("owner", &["reader"]);
    for path in ["/v1/nodes/n1", "/v1/nodes/detail", "/v1/nodes/n1/states", "/v1/ferrite/fleet"] {
        let hidden = fixture.call(&lessee, "GET", path, &Value::Null).await;
        assert_eq!(hidden.status, 200, "{path}");
        assert!(hidden.text.contains("n1") || path.ends_with("states"), "{path}: {}", hidden.text);
        assert!(!hidden.text.contains("192.0.2.9"), "{path}: {}", hidden.text);
        let shown = fixture.call(&owner, "GET", path, &Value::Null).await;
        assert!(shown.text.contains("192.0.2.9"), "{path}: {}", shown.text);
    }
    let patch = json!([{"op": "add", "path": "/extra/x", "value": 1}]);
    let patched = fixture.call(&lessee, "PATCH", "/v1/nodes/n1", &patch).await;
    assert_eq!(patched.status, 200, "{}", patched.text);
    assert!(!patched.text.contains("192.0.2.9"), "{}", patched.text);
}

/// With `protected`, a lessee could keep a machine after its lease.
#[tokio::test]
async fn lessees_change_only_their_own_fields() {
    let fixture = fixture().await;
    let (lessee, owner) = (project_caller("lessee", MEMBER), project_caller("owner", MEMBER));
    for (path, value, of_owner) in [
        // Only nodes with an instance can be protected.
        ("/protected", json!(true), 409),
        ("/protected_reason", json!("mine"), 400),
        ("/resource_class", json!("free"), 200),
        ("/maintenance", json!(true), 200),
        ("/maintenance", json!(false), 200),
    ] {
        let patch = json!([{"op": "replace", "path": path, "value": value}]);
        let refused = fixture.call(&lessee, "PATCH", "/v1/nodes/n1", &patch).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.text);
        let changed = fixture.call(&owner, "PATCH", "/v1/nodes/n1", &patch).await;
        assert_eq!(changed.status, of_owner, "{path}: {}", changed.text);
    }
    let patch = json!([{"op": "add", "path": "/description", "value": "mine"}]);
    let changed = fixture.call(&lessee, "PATCH", "/v1/nodes/n1", &patch).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
}

#[tokio::test]
async fn searches_find_only_what_the_caller_may_read() {
    let fixture = fixture().await;
    for (who, text, expected) in [
        (project_caller("owner", &["reader"]), "sn-n", 1),
        (project_caller("lessee", ADMIN), "sn-n", 0),
        (project_caller("third", ADMIN), "sn-n", 0),
        (system(&["reader"]), "sn-n", 2),
        (project_caller("owner", &["reader"]), "02:00", 1),
        (project_caller("lessee", &["reader"]), "02:00", 1),
        (project_caller("third", ADMIN), "02:00", 0),
        (system(&["reader"]), "02:00", 2),
    ] {
        let path = format!("/v1/ferrite/search?text={text}");
        let response = fixture.call(&who, "GET", &path, &Value::Null).await;
        let found = response.json()["matches"].as_array().map(Vec::len);
        assert_eq!(found, Some(expected), "{who:?} {text}: {}", response.text);
    }
    for (who, expected) in [
        (project_caller("owner", &["reader"]), 1),
        (project_caller("lessee", ADMIN), 0),
        (project_caller("third", ADMIN), 0),
        (system(&["reader"]), 2),
    ] {
        let path = "/v1/ferrite/journal?actor=earlier";
        let response = fixture.call(&who, "GET", path, &Value::Null).await;
        let found = response.json()["entries"].as_array().map(Vec::len);
        assert_eq!(found, Some(expected), "{who:?}: {}", response.text);
    }
}

#[tokio::test]
async fn overridden_rules_apply() {
    let template = fixture().await;
    let options = PolicyOptions {
        overrides: Some(
            "\"baremetal:node:get:last_error\": \"rule:persona:project_reader\"\n\
             \"ferrite:node:timeline\": \"rule:persona:project_reader\"\n\
             \"baremetal:node:set_power_state\": \"!\"\n\
             \"baremetal:step:execute:bios.factory_reset\": \"!\"\n",
        ),
        ..PolicyOptions::default()
    };
    let fixture = PolicyFixture::copy_of(template.data.path(), &options);
    let lessee = project_caller("lessee", ADMIN);
    let shown = fixture.call(&lessee, "GET", "/v1/nodes/n1", &Value::Null).await;
    assert!(shown.text.contains("192.0.2.9"), "{}", shown.text);
    let path = "/v1/ferrite/nodes/n1/timeline";
    assert_eq!(fixture.call(&lessee, "GET", path, &Value::Null).await.status, 200);
    let journal = fixture.call(&lessee, "GET", "/v1/ferrite/journal", &Value::Null).await;
    assert!(journal.text.contains("earlier tenant"), "{}", journal.text);
    let power = json!({"target": "power on"});
    let owner = project_caller("owner", ADMIN);
    let response = fixture.call(&owner, "PUT", "/v1/nodes/n1/states/power", &power).await;
    assert_eq!(response.status, 403, "{}", response.text);
    assert!(response.text.contains("baremetal:node:set_power_state"), "{}", response.text);
    let steps = json!([{"interface": "bios", "step": "factory_reset", "args": {}, "order": 1}]);
    let runbook = json!({"name": "CUSTOM_RESET", "steps": steps});
    let response = fixture.call(&owner, "POST", "/v1/runbooks", &runbook).await;
    assert_eq!(response.status, 403, "{}", response.text);
}

#[tokio::test]
async fn child_nodes_of_others_are_not_changed_through_their_parent() {
    let fixture = fixture().await;
    let owner = project_caller("owner", ADMIN);
    fixture
        .store
        .write(|writer| {
            let mut parent = writer.find::<Node>(store::NodeColumn::Name, "n1")?.expect("inserted");
            let mut child = writer.find::<Node>(store::NodeColumn::Name, "n2")?.expect("inserted");
            parent.provision_state = node_model::ProvisionState::Manageable;
            child.parent_node = Some(parent.id);
            writer.save(&mut parent)?;
            writer.save(&mut child)
        })
        .await
        .unwrap();
    let clean = |on_children: bool| {
        json!({"target": "clean", "clean_steps": [{
            "interface": "deploy", "step": "power_off", "execute_on_child_nodes": on_children,
        }]})
    };
    let path = "/v1/nodes/n1/states/provision";
    let response = fixture.call(&owner, "PUT", path, &clean(true)).await;
    assert_eq!(response.status, 403, "{}", response.text);
    let response = fixture.call(&owner, "PUT", path, &clean(false)).await;
    assert_ne!(response.status, 403, "{}", response.text);
    let children = fixture.call(&owner, "GET", "/v1/nodes/n1/children", &Value::Null).await;
    assert_eq!(children.json()["children"], json!([]));
}
