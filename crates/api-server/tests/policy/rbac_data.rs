// SPDX-License-Identifier: Apache-2.0
//! The resources that Ironic's cases refer to, as in its test_acl.py.

use std::collections::BTreeMap;

use node_model::{
    BiosSetting, HistoryEntry, HistoryId, Inventory, JsonObject, Node, NodeId, ProvisionState,
    Severity,
};
use serde_json::{Map, Value, json};
use store::{LeaseOwner, NodeSecrets};
use uuid::Uuid;

use crate::fixture::{NOW, PolicyFixture};

pub(crate) const OWNER: &str = "70e5e25a-2ca2-4cb1-8ae8-7d8739cee205";
pub(crate) const LESSEE: &str = "f11853c7-fa9c-4db3-a477-c9d8e0dbbf13";
const UNOWNED_NODE: &str = "1be26c0b-03f2-4d2e-ae87-c02d7f33c123";
const OWNED_NODE: &str = "1ab63b9e-66d7-4cd7-8618-dddd0f9f7881";
const LEASED_NODE: &str = "38d5abed-c585-4fce-a57e-a2ffc2a2ec6f";
const OTHER_NODE: &str = "573208e5-cd41-4e26-8f06-ef44022b3793";
const ALLOCATED_NODE: &str = "22e26c0b-03f2-4d2e-ae87-c02d7f33c000";
const FIRST_VOLUME: &str = "1be26c0b-03f2-4d2e-ae87-c02d7f33c781";

/// The values of placeholders such as `{node_ident}`.
pub(crate) type Placeholders = BTreeMap<&'static str, String>;

/// One node for the cases without resources of projects.
pub(crate) async fn basic_resources(fixture: &PolicyFixture) -> Placeholders {
    insert_node(fixture, UNOWNED_NODE, |_| {}).await;
    placeholders(&[("node_uuid", UNOWNED_NODE)])
}

/// Nodes of an owner, of a lessee, and of none.
pub(crate) async fn project_resources(fixture: &PolicyFixture) -> Placeholders {
    let owned_history = "6f8a5d5c-0f2d-4b2c-a62a-a38e300e3f31";
    let leased_history = "6f8a5d5c-0f2d-4b2c-a62a-a38e300e3f32";
    let owner_allocation = "3f0d4a0c-6f1c-4a34-9f02-5d3f0f1b0001";
    let lessee_allocation = "3f0d4a0c-6f1c-4a34-9f02-5d3f0f1b0002";
    let runbook = "3f0d4a0c-6f1c-4a34-9f02-5d3f0f1b0003";
    insert_node(fixture, UNOWNED_NODE, |_| {}).await;
    insert_node(fixture, OWNED_NODE, |node| {
        node.owner = Some(OWNER.to_owned());
        node.traits = vec!["CUSTOM_MEOW".to_owned()];
        node.last_error = Some("meow".to_owned());
    })
    .await;
    let parent = Some(node_id(OWNED_NODE));
    insert_node(fixture, "2b3b8adb-add7-4fd0-8e82-dcb714d848e7", |node| node.parent_node = parent)
        .await;
    insert_node(fixture, "3c3b8adb-edd7-3ed0-8e82-aab714d8411a", |node| {
        node.parent_node = parent;
        node.owner = Some(OWNER.to_owned());
    })
    .await;
    insert_node(fixture, LEASED_NODE, |node| {
        node.owner = Some(OWNER.to_owned());
        node.lessee = Some(LESSEE.to_owned());
        node.last_error = Some("meow".to_owned());
    })
    .await;
    insert_node(fixture, OTHER_NODE, |_| {}).await;
    for (node, uuid, address) in [
        (OWNED_NODE, "ebe30f19-358d-41e1-8d28-fd7357a0164c", "00:00:00:00:00:01"),
        (OWNED_NODE, "21a3c5a7-1e14-44dc-a9dd-0c84d5477a57", "00:00:00:00:00:02"),
        (LEASED_NODE, FIRST_VOLUME, "52:54:00:cf:2d:31"),
        (OTHER_NODE, "abfd8dbb-1732-449a-b760-2224035c6b99", "00:00:00:00:00:ff"),
    ] {
        create_port(fixture, node, uuid, address).await;
    }
    for (node, uuid, name, address) in [
        (OWNED_NODE, "b16efcf3-2990-41a1-bc1d-5e2c16f3d5fc", "magicfoo", "01:03:09:ff:01:01"),
        (LEASED_NODE, "6eb02b44-18a3-4659-8c0b-8d2802581ae4", "fooname", "52:54:00:cf:2d:32"),
        (OTHER_NODE, "5810f41c-6585-41fc-b9c9-a94f50d421b5", "corgis", "ff:ff:ff:ff:ff:0f"),
    ] {
        let body = json!({"node_uuid": node, "uuid": uuid, "name": name, "address": address});
        fixture.create("/v1/portgroups", body).await;
    }
    create_volumes(
        fixture,
        OWNED_NODE,
        "a265e2f0-e97f-4177-b1c0-8298add53086",
        "65ea0296-219b-4635-b0c8-a6e055da878d",
    )
    .await;
    create_volumes(fixture, LEASED_NODE, FIRST_VOLUME, FIRST_VOLUME).await;
    create_allocation(fixture, owner_allocation, "CUSTOM_TEST", Some(OWNER), OWNED_NODE).await;
    create_allocation(fixture, lessee_allocation, "CUSTOM_LEASED", Some(LESSEE), LEASED_NODE).await;
    create_runbook(fixture, runbook, Some(OWNER)).await;
    for (node, history) in [(OWNED_NODE, owned_history), (LEASED_NODE, leased_history)] {
        add_history_and_inventory(fixture, node, history).await;
        reserve(fixture, node).await;
    }
    placeholders(&[
        ("node_ident", UNOWNED_NODE),
        ("owner_node_ident", OWNED_NODE),
        ("lessee_node_ident", LEASED_NODE),
        ("allocated_node_ident", LEASED_NODE),
        ("volume_target_ident", FIRST_VOLUME),
        ("volume_connector_ident", FIRST_VOLUME),
        ("lessee_port_ident", FIRST_VOLUME),
        ("lessee_portgroup_ident", "6eb02b44-18a3-4659-8c0b-8d2802581ae4"),
        ("trait", "CUSTOM_MEOW"),
        ("vif_ident", "0e21d58f-5de2-4956-85ff-33935ea1ca01"),
        ("ind_component", "component"),
        ("ind_ident", "magic_light"),
        ("runbook_ident", runbook),
        ("owner_port_ident", "ebe30f19-358d-41e1-8d28-fd7357a0164c"),
        ("other_port_ident", "abfd8dbb-1732-449a-b760-2224035c6b99"),
        ("owner_portgroup_ident", "b16efcf3-2990-41a1-bc1d-5e2c16f3d5fc"),
        ("other_portgroup_ident", "5810f41c-6585-41fc-b9c9-a94f50d421b5"),
        ("driver_name", "fake-hardware"),
        ("owner_allocation", owner_allocation),
        ("lessee_allocation", lessee_allocation),
        ("owned_history_ident", owned_history),
        ("lessee_history_ident", leased_history),
    ])
}

/// One of each resource, for callers of the whole system.
pub(crate) async fn system_resources(fixture: &PolicyFixture) -> Placeholders {
    let history = "6f8a5d5c-0f2d-4b2c-a62a-a38e300e3f31";
    let allocation = "3f0d4a0c-6f1c-4a34-9f02-5d3f0f1b0001";
    let runbook = "3f0d4a0c-6f1c-4a34-9f02-5d3f0f1b0003";
    let template = "3f0d4a0c-6f1c-4a34-9f02-5d3f0f1b0004";
    let chassis = "e74c40e0-d825-11e2-a28f-0800200c9a66";
    let vif = "ee21d58f-5de2-4956-85ff-33935ea1ca00";
    insert_node(fixture, UNOWNED_NODE, |node| {
        node.owner = Some(OWNER.to_owned());
        node.traits = vec!["CUSTOM_TRAIT".to_owned()];
    })
    .await;
    insert_node(fixture, ALLOCATED_NODE, |_| {}).await;
    insert_node(fixture, "18a552fb-dcd2-43bf-9302-e4c93287be11", |_| {}).await;
    create_port(fixture, UNOWNED_NODE, FIRST_VOLUME, "52:54:00:cf:2d:31").await;
    let portgroup = "6eb02b44-18a3-4659-8c0b-8d2802581ae4";
    fixture.create("/v1/portgroups", json!({"node_uuid": UNOWNED_NODE, "uuid": portgroup})).await;
    create_volumes(fixture, UNOWNED_NODE, FIRST_VOLUME, FIRST_VOLUME).await;
    create_allocation(fixture, allocation, "CUSTOM_TEST", None, ALLOCATED_NODE).await;
    create_runbook(fixture, runbook, None).await;
    fixture.create("/v1/chassis", json!({"uuid": chassis})).await;
    let steps =
        json!([{"interface": "bios", "step": "apply_configuration", "args": {}, "priority": 10}]);
    fixture
        .create(
            "/v1/deploy_templates",
            json!({"uuid": template, "name": "CUSTOM_DT1", "steps": steps}),
        )
        .await;
    add_history_and_inventory(fixture, UNOWNED_NODE, history).await;
    let setting = BiosSetting {
        name: "FAKE_SETTING".to_owned(),
        value: Some("FAKE_SETTING".to_owned()),
        created_at: NOW,
        updated_at: None,
        registry: JsonObject::empty(),
    };
    let node = node_id(UNOWNED_NODE);
    fixture
        .store
        .write(move |writer| writer.replace_bios_settings(node, std::slice::from_ref(&setting)))
        .await
        .unwrap();
    placeholders(&[
        ("node_ident", UNOWNED_NODE),
        ("allocated_node_ident", ALLOCATED_NODE),
        ("allocation_ident", allocation),
        ("bios_setting", "FAKE_SETTING"),
        ("chassis_ident", chassis),
        ("component", "component"),
        ("conductor_ident", "test-conductor-node"),
        ("deploy_template_ident", template),
        ("driver_name", "fake-driverz"),
        ("history_ident", history),
        ("ind_ident", "magic_light"),
        ("owner_project_id", OWNER),
        ("other_project_id", "a1111111111111111111111111111111"),
        ("port_ident", FIRST_VOLUME),
        ("portgroup_ident", portgroup),
        ("runbook_ident", runbook),
        ("trait", "CUSTOM_TRAIT"),
        ("vif_ident", vif),
        ("volume_connector_ident", FIRST_VOLUME),
        ("volume_target_ident", FIRST_VOLUME),
    ])
}

fn placeholders(values: &[(&'static str, &str)]) -> Placeholders {
    values.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

fn node_id(uuid: &str) -> NodeId {
    NodeId(Uuid::parse_str(uuid).unwrap())
}

async fn insert_node(fixture: &PolicyFixture, uuid: &str, change: impl FnOnce(&mut Node)) {
    let mut node = Node::new(node_id(uuid), "fake-hardware", NOW);
    node.provision_state = ProvisionState::Available;
    change(&mut node);
    fixture
        .store
        .write(move |writer| {
            let members =
                |value: Value| value.as_object().cloned().expect("the value is an object");
            let secrets = NodeSecrets {
                driver_info: members(json!({"foo": "bar", "fake_password": "fakepass"})),
                instance_info: Map::new(),
                driver_internal_info: members(json!({"private_state": "secret value"})),
                agent_token: None,
            };
            let mut node = node.clone();
            writer.seal_node(&mut node, secrets)?;
            writer.insert(&node)
        })
        .await
        .unwrap();
}

async fn create_port(fixture: &PolicyFixture, node: &str, uuid: &str, address: &str) {
    fixture.create("/v1/ports", json!({"node_uuid": node, "uuid": uuid, "address": address})).await;
}

async fn create_volumes(fixture: &PolicyFixture, node: &str, target: &str, connector: &str) {
    let body = json!({
        "node_uuid": node, "uuid": target, "volume_type": "iscsi", "boot_index": 0,
        "volume_id": target, "properties": {"target_iqn": "iqn.foo"},
    });
    fixture.create("/v1/volume/targets", body).await;
    let body = json!({
        "node_uuid": node, "uuid": connector, "type": "iqn",
        "connector_id": format!("iqn.2012-06.org.openstack.magic-{connector}"),
    });
    fixture.create("/v1/volume/connectors", body).await;
}

/// Inserts an allocation that has its node already.
async fn create_allocation(
    fixture: &PolicyFixture,
    uuid: &str,
    class: &str,
    owner: Option<&str>,
    node: &str,
) {
    let body = json!({"uuid": uuid, "resource_class": class, "owner": owner});
    fixture.create("/v1/allocations", body).await;
    let (uuid, node) = (Uuid::parse_str(uuid).unwrap(), node_id(node));
    fixture
        .store
        .write(move |writer| {
            let id = node_model::AllocationId(uuid);
            let mut allocation = writer.get(id)?.expect("just created");
            allocation.node_id = Some(node);
            allocation.state = node_model::AllocationState::Active;
            allocation.last_error = None;
            writer.save(&mut allocation)?;
            let mut node = writer.get(node)?.expect("inserted before");
            node.allocation_id = Some(id);
            writer.save(&mut node)
        })
        .await
        .unwrap();
}

async fn create_runbook(fixture: &PolicyFixture, uuid: &str, owner: Option<&str>) {
    let steps =
        json!([{"interface": "bios", "step": "apply_configuration", "args": {}, "order": 1}]);
    let body = json!({"uuid": uuid, "name": "CUSTOM_DT1", "steps": steps, "owner": owner});
    fixture.create("/v1/runbooks", body).await;
}

async fn add_history_and_inventory(fixture: &PolicyFixture, node: &str, history: &str) {
    let node = node_id(node);
    let entry = HistoryEntry {
        id: HistoryId(Uuid::parse_str(history).unwrap()),
        node_id: node,
        created_at: NOW,
        event_type: "provisioning".to_owned(),
        severity: Severity::Error,
        event: "meow".to_owned(),
        conductor: None,
        user: None,
        project: None,
        state: None,
        target_provision_state: None,
        duration_seconds: None,
    };
    let inventory = Inventory {
        node_id: node,
        created_at: NOW,
        inventory: JsonObject::empty(),
        plugin_data: JsonObject::empty(),
        derived: JsonObject::empty(),
    };
    fixture
        .store
        .write(move |writer| {
            writer.add_history(&entry)?;
            writer.set_inventory(&inventory)
        })
        .await
        .unwrap();
}

async fn reserve(fixture: &PolicyFixture, node: &str) {
    let owner = LeaseOwner { hostname: "lolcats".to_owned(), run: Uuid::nil() };
    let node = node_id(node);
    let ttl = std::time::Duration::from_secs(3600);
    let lease = fixture.store.write(move |writer| writer.claim(node, &owner, ttl)).await.unwrap();
    assert!(lease.is_some());
}
