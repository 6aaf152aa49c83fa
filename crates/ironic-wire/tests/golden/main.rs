// SPDX-License-Identifier: Apache-2.0
//! Golden JSON of fully populated resources at several versions. The format was compared with
//! Ironic 39.0.0. `UPDATE_EXPECT=1` accepts a change.

mod documents;
mod nodes;
mod resources;

use expect_test::Expect;
use ironic_wire::{ApiVersion, FieldSelection, RenderContext, WireResource};
use node_model::{
    AgentInfo, ChassisId, InterfaceKind, JsonObject, Node, NodeId, PowerState, ProvisionState,
    Timestamp,
};
use uuid::Uuid;

pub(crate) const NOW: Timestamp = Timestamp(1_795_001_049_123_456);

pub(crate) fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

pub(crate) fn context(version: u16) -> RenderContext<'static> {
    RenderContext::new(ApiVersion(version), "http://h:6385")
}

pub(crate) fn pretty(bytes: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(bytes).expect("a response is JSON");
    format!("{value:#}")
}

/// Checks all fields of a version except links, which have a separate test.
pub(crate) fn check<R: WireResource>(resource: &R, version: u16, expected: &Expect) {
    let names: Vec<&str> = FieldSelection::<R>::detail(ApiVersion(version)).names().collect();
    let body = FieldSelection::<R>::detail(ApiVersion(version)).body(resource, &context(version));
    let mut value: serde_json::Value = serde_json::from_slice(&body).expect("a resource is JSON");
    let object = value.as_object_mut().expect("a resource is an object");
    assert_eq!(object.len(), names.len(), "no field is written twice");
    object.retain(|_, value| !value.to_string().contains("\"rel\""));
    expected.assert_eq(&format!("{value:#}"));
}

pub(crate) fn node() -> Node {
    let mut node = Node::new(NodeId(id(1)), "redfish", NOW);
    node.updated_at = Some(Timestamp::from_secs(1_795_001_050));
    node.name = Some("n\"1".to_owned());
    for kind in InterfaceKind::ALL {
        node.interfaces.set(*kind, Some("redfish"));
    }
    node.driver_info = JsonObject::from_stored(r#"{"redfish_password":"******"}"#);
    node.driver_internal_info = JsonObject::from_stored(r#"{"last_power_state_change":"x"}"#);
    node.properties = JsonObject::from_stored(r#"{"cpus":4}"#);
    node.instance_uuid = Some(id(2));
    node.chassis_id = Some(ChassisId(id(3)));
    node.power_state = Some(PowerState::On);
    node.provision_state = ProvisionState::CleanWait;
    node.target_provision_state = Some(ProvisionState::Available);
    node.traits = vec!["CUSTOM_A".to_owned()];
    node.agent = AgentInfo {
        url: Some("https://10.0.0.9:9999".to_owned()),
        version: Some("12.0".to_owned()),
        last_heartbeat: Some(NOW),
        has_token: true,
        ..AgentInfo::default()
    };
    node.work = serde_json::from_value(serde_json::json!({
        "id": id(9), "kind": "clean", "stage": "run", "cursor": 0, "awaiting": true,
        "steps": [{"interface": "deploy", "step": "erase_devices", "priority": 10, "abortable": true}],
        "started_at": NOW, "since": NOW, "requested_by": {"kind": "conductor", "hostname": "c"},
    }))
    .expect("a job as it is stored");
    node
}
