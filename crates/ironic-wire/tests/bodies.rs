// SPDX-License-Identifier: Apache-2.0
//! Create and patch requests, with the responses of Ironic 39.0.0 to the same requests.
//!
//! Intended differences: requests for which Ironic returns 500 (malformed JSON, removing
//! `maintenance`), invalid sizes and capabilities that it accepts, and `~` in paths, which it rejects.

use ironic_wire::{ApiVersion, NodeDraft, Patch, WireError, create};
use node_model::{
    Allocation, Chassis, DeployTemplate, InspectionRule, Node, NodeId, Port, Portgroup,
    ProvisionState, Runbook, Timestamp, VolumeConnector, VolumeTarget,
};
use serde_json::{Map, Value, json};

const NOW: Timestamp = Timestamp(1_795_001_049_123_456);

fn status_and_message<T>(result: Result<T, WireError>) -> (u16, String) {
    match result {
        Ok(_) => (200, String::new()),
        Err(error) => (error.status(), error.message().to_owned()),
    }
}

fn check((status, message): (u16, String), expected: u16, mentions: &str, what: &str) {
    assert_eq!(status, expected, "{what}: {message}");
    assert!(message.contains(mentions), "{what}: {message:?} does not contain {mentions:?}");
}

#[test]
fn creates_or_rejects_nodes() {
    for (more, version, status, mentions) in [
        (json!({}), 115, 200, ""),
        (json!({"bogus": 1}), 115, 400, "bogus"),
        (json!({"bogus": 1}), 1, 400, "bogus"),
        (json!({"name": "a b"}), 115, 400, "name"),
        (json!({"name": "11111111-1111-1111-1111-111111111111"}), 115, 400, "name"),
        (json!({"name": "detail"}), 115, 400, "reserved"),
        (json!({"name": ""}), 115, 400, "name"),
        (json!({"name": 5}), 115, 400, "name"),
        (json!({"name": "x"}), 4, 406, "name"),
        (json!({"uuid": "x"}), 115, 400, "uuid"),
        (json!({"properties": {"cpus": "x"}}), 115, 400, "cpus"),
        (json!({"properties": {"cpus": -1}}), 115, 400, "cpus"),
        (json!({"properties": {"cpus": "4", "capabilities": "a:b,c:d"}}), 115, 200, ""),
        (json!({"properties": {"capabilities": "abc"}}), 115, 400, "abc"),
        (json!({"properties": []}), 115, 400, "properties"),
        (json!({"description": "x".repeat(4096)}), 115, 200, ""),
        (json!({"description": "x".repeat(4097)}), 115, 400, "description"),
        (json!({"resource_class": "x".repeat(81)}), 115, 400, "resource_class"),
        (json!({"maintenance": "maybe"}), 115, 400, "maintenance"),
        (json!({"maintenance": "yes"}), 115, 200, ""),
        (json!({"chassis_uuid": "x"}), 115, 400, "chassis_uuid"),
        (json!({"network_data": {"links": []}}), 115, 400, "network_data"),
        (json!({"provision_state": "active"}), 115, 400, "provision_state"),
        (json!({"protected": true}), 115, 400, "protected"),
        (json!({"traits": []}), 115, 400, "traits"),
        (json!({"instance_name": ""}), 115, 400, "instance_name"),
        (json!({"fault": "x"}), 115, 400, "fault"),
        (json!({"health": "OK"}), 50, 400, "health"),
        (json!({"shard": "x"}), 50, 406, "shard"),
        (json!({"retired_reason": "x"}), 115, 400, "retired"),
        (json!({"conductor_group": "X".repeat(255)}), 115, 200, ""),
        // Each of these letters becomes two characters in lower case.
        (json!({"conductor_group": "İ".repeat(128)}), 115, 400, "conductor_group"),
        (json!({"owner": "a\0"}), 115, 400, "owner"),
        (json!({"extra": {"a": ["\0"]}}), 115, 400, "extra.a[0]"),
        (json!({"retired_reason": "x", "retired": true}), 115, 200, ""),
        (json!({"automated_clean": 5}), 115, 400, "automated_clean"),
    ] {
        let mut body = json!({"driver": "fake-hardware"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let result = create::<Node>(body.to_string().as_bytes(), ApiVersion(version), NOW);
        check(status_and_message(result), status, mentions, &format!("{more} at 1.{version}"));
    }
}

#[test]
fn rejects_bodies_that_are_not_objects() {
    let deep = format!("{}1{}", "[".repeat(26), "]".repeat(26));
    let very_deep = "[".repeat(1_000_000);
    for (body, mentions) in [
        ("{}", "driver"),
        ("", "driver"),
        ("[]", "object"),
        ("\"x\"", "object"),
        ("{bad", "line 1 column 2"),
        ("{\"driver\":", "too early"),
        ("\u{0}", "JSON"),
        (deep.as_str(), "nested"),
        (very_deep.as_str(), "nested"),
    ] {
        let result = create::<Node>(body.as_bytes(), ApiVersion::MAX, NOW);
        check(status_and_message(result), 400, mentions, &body[..body.len().min(40)]);
    }
    let brackets_in_text = format!(r#"{{"driver":"x","extra":{{"a":"{}"}}}}"#, "[".repeat(100));
    assert!(create::<Node>(brackets_in_text.as_bytes(), ApiVersion::MAX, NOW).is_ok());
}

#[test]
fn creates_a_node_with_all_parts() {
    let body = json!({
        "driver": "redfish", "name": "n1", "uuid": "0b6ad1ca-5b6b-4e2d-8a2b-2ec5d1f4c111",
        "driver_info": {"redfish_password": "secret"}, "conductor_group": "RACK1",
        "instance_info": {"display_name": "web"}, "boot_interface": "ipxe", "parent_node": "p",
    });
    let created = create::<Node>(body.to_string().as_bytes(), ApiVersion::MAX, NOW).unwrap();
    let NodeDraft { node, driver_info, parent_node, .. } = created.draft;
    assert_eq!(node.id.to_string(), "0b6ad1ca-5b6b-4e2d-8a2b-2ec5d1f4c111");
    assert_eq!(node.conductor_group, "rack1");
    assert_eq!(node.instance_name.as_deref(), Some("web"));
    assert_eq!(node.interfaces.get(node_model::InterfaceKind::Boot), Some("ipxe"));
    assert_eq!(node.provision_state, ProvisionState::Enroll);
    assert!(node.driver_info.is_empty(), "secrets must not be in the fields that are shown");
    assert_eq!(driver_info["redfish_password"], "secret");
    assert_eq!(parent_node, Some(Some("p".to_owned())));
    let old = create::<Node>(br#"{"driver":"x"}"#, ApiVersion(10), NOW).unwrap();
    assert_eq!(old.draft.node.provision_state, ProvisionState::Available);
}

#[test]
fn creates_or_rejects_other_resources() {
    const N: &str = "0b6ad1ca-5b6b-4e2d-8a2b-2ec5d1f4c111";
    let max = ApiVersion::MAX;
    macro_rules! table {
        ($resource:ty: $(($body:expr, $version:expr, $status:expr, $mentions:expr),)*) => {$(
            let body: Value = $body;
            let result = create::<$resource>(body.to_string().as_bytes(), $version, NOW);
            check(status_and_message(result), $status, $mentions, &body.to_string());
        )*};
    }
    table! {Port:
        (json!({"node_uuid": N, "address": "52:54:00:AA:BB:01"}), max, 200, ""),
        (json!({"node_ident": "n1", "address": "52:54:00:aa:bb:01"}), max, 200, ""),
        (json!({"node_ident": "n1", "address": "52:54:00:aa:bb:01"}), ApiVersion(93), 406, "node_ident"),
        (json!({"node_ident": "n1", "node_uuid": N, "address": "52:54:00:aa:bb:01"}), max, 400, "node_ident"),
        (json!({"address": "52:54:00:aa:bb:01"}), max, 400, "node_uuid"),
        (json!({"node_uuid": N}), max, 400, "address"),
        (json!({"node_uuid": N, "address": "x"}), max, 400, "address"),
        (json!({"node_uuid": N, "address": null}), max, 400, "address"),
        (json!({"node_uuid": N, "address": "52:54:00:aa:bb:01", "physical_network": ""}), max, 400, "physical_network"),
        (json!({"node_uuid": N, "address": "52:54:00:aa:bb:01", "is_smartnic": true}), max, 400, "is_smartnic"),
        (json!({"node_uuid": N, "address": "52:54:00:aa:bb:01", "internal_info": {}}), max, 400, "internal_info"),
        (json!({"node_uuid": N, "address": "52:54:00:aa:bb:01", "vendor": "x"}), ApiVersion(99), 406, "vendor"),
    }
    table! {Portgroup:
        (json!({"node_uuid": N}), max, 200, ""),
        (json!({}), max, 400, "node_uuid"),
        (json!({"node_uuid": N, "mode": "802.3ad"}), ApiVersion(25), 406, "mode"),
        (json!({"node_uuid": N, "name": "a b"}), max, 400, "name"),
    }
    table! {Chassis:
        (json!({}), max, 200, ""),
        (json!({"description": "x".repeat(256)}), max, 400, "description"),
        (json!({"extra": 5}), max, 400, "extra"),
    }
    table! {VolumeConnector:
        (json!({"node_uuid": N, "type": "iqn", "connector_id": "x"}), max, 200, ""),
        (json!({"node_uuid": N, "type": "iqn"}), max, 400, "connector_id"),
    }
    table! {VolumeTarget:
        (json!({"node_uuid": N, "volume_type": "iscsi", "volume_id": "x", "boot_index": 0}), max, 200, ""),
        (json!({"node_uuid": N, "volume_type": "iscsi", "volume_id": "x", "boot_index": "0"}), max, 400, "boot_index"),
    }
    table! {Allocation:
        (json!({"resource_class": "x"}), max, 200, ""),
        (json!({}), max, 400, "resource_class"),
        (json!({"node": "n1"}), max, 200, ""),
        (json!({"node": "n1"}), ApiVersion(57), 400, "Unexpected arguments: node"),
        (json!({"node": "n1", "resource_class": "x"}), ApiVersion(52), 400, "Unexpected arguments: node"),
        (json!({"node": "n1"}), ApiVersion(58), 200, ""),
        (json!({"resource_class": "x", "owner": "o"}), ApiVersion(59), 406, "owner"),
        (json!({"resource_class": "x", "traits": ["bad"]}), max, 400, "traits"),
        (json!({"resource_class": "x", "candidate_nodes": ["a", 5]}), max, 400, "candidate_nodes"),
    }
    table! {DeployTemplate:
        (json!({"name": "CUSTOM_X", "steps": [{"interface": "raid", "step": "x", "args": {}, "priority": 1}]}), max, 200, ""),
        (json!({"name": "CUSTOM_X", "steps": []}), max, 400, "steps"),
        (json!({"name": "x", "steps": [{"interface": "raid", "step": "x", "args": {}, "priority": 1}]}), max, 400, "name"),
        (json!({"name": "CUSTOM_X"}), max, 400, "steps"),
    }
    table! {Runbook:
        (json!({"name": "any-name", "steps": [{"interface": "raid", "step": "x", "order": 1}]}), max, 200, ""),
        (json!({"name": "any-name", "steps": [{"interface": "raid", "step": "x", "order": 1}]}), ApiVersion(111), 400, "name"),
        (json!({"name": "CUSTOM_X", "steps": [{"interface": "raid", "step": "x", "order": 1}], "traits": []}), max, 400, "traits"),
    }
    table! {InspectionRule:
        (json!({"actions": [{"op": "fail", "args": {"msg": "x"}}]}), max, 200, ""),
        (json!({"actions": []}), max, 400, "actions"),
        (json!({}), max, 400, "actions"),
        (json!({"actions": [{"op": "fail", "args": {"msg": "x"}}], "priority": 10_000}), max, 400, "priority"),
        (json!({"actions": [{"op": "fail", "args": {"msg": "x"}}], "phase": "x"}), max, 400, "phase"),
    }
}

fn patch_node(patch: &Value, version: u16) -> Result<(NodeDraft, Vec<&'static str>), WireError> {
    let mut node = Node::new(NodeId::random(), "fake-hardware", NOW);
    node.name = Some("n1".to_owned());
    node.extra = node_model::JsonObject::from_stored(r#"{"a":1,"l":[1,2]}"#);
    let driver_info = Map::from_iter([("password".to_owned(), Value::from("secret"))]);
    let draft = NodeDraft::new(node, driver_info, Map::new());
    let done =
        Patch::parse(patch.to_string().as_bytes())?.apply::<Node>(draft, ApiVersion(version))?;
    Ok((done.draft, done.fields))
}

#[test]
fn applies_or_rejects_node_patches() {
    let long = "x".repeat(4097);
    for (patch, version, status, mentions) in [
        (json!([]), 115, 200, ""),
        (json!({}), 115, 400, "array"),
        (json!([1]), 115, 400, "object"),
        (json!([{}]), 115, 400, "op"),
        (json!([{"op": "test", "path": "/name", "value": "x"}]), 115, 400, "test"),
        (json!([{"op": "move", "from": "/name", "path": "/x"}]), 115, 400, "move"),
        (json!([{"op": "replace", "path": "name", "value": 1}]), 115, 400, "path"),
        (json!([{"op": "replace", "path": "/", "value": 1}]), 115, 400, "path"),
        (json!([{"op": "replace", "path": "", "value": 1}]), 115, 400, "path"),
        (json!([{"op": "replace", "path": "/bogus", "value": 1}]), 115, 400, "/bogus"),
        (json!([{"op": "add", "path": "/bogus/x", "value": 1}]), 115, 400, "/bogus/x"),
        (json!([{"op": "replace", "path": "/uuid", "value": "x"}]), 115, 400, "/uuid"),
        (json!([{"op": "remove", "path": "/driver"}]), 115, 400, "driver"),
        (
            json!([{"op": "replace", "path": "/provision_state", "value": "x"}]),
            115,
            400,
            "/provision_state",
        ),
        (json!([{"op": "replace", "path": "/traits", "value": []}]), 115, 400, "/traits"),
        (json!([{"op": "replace", "path": "/extra/nope", "value": 1}]), 115, 400, "nope"),
        (json!([{"op": "add", "path": "/extra/nope/a", "value": 1}]), 115, 400, "nope"),
        (json!([{"op": "remove", "path": "/extra/nope"}]), 115, 400, "nope"),
        (json!([{"op": "add", "path": "/extra/x"}]), 115, 400, "value"),
        (json!([{"op": "replace", "path": "/extra", "value": 5}]), 115, 400, "extra"),
        (json!([{"op": "replace", "path": "/name", "value": 5}]), 115, 400, "name"),
        (json!([{"op": "replace", "path": "/health", "value": "x"}]), 50, 400, "/health"),
        (json!([{"op": "replace", "path": "/shard", "value": "x"}]), 50, 406, "shard"),
        (json!([{"op": "add", "path": "/extra/a b", "value": "x"}]), 115, 400, "path"),
        (json!([{"op": "add", "path": "/extra/a.b", "value": "x"}]), 115, 400, "path"),
        (json!([{"op": "add", "path": "/extra/a~1b", "value": "x"}]), 97, 406, "~"),
        (json!([{"op": "add", "path": "/extra/a~1b", "value": "x"}]), 98, 200, ""),
        (json!([{"op": "replace", "path": "/extra", "value": {}, "z": 1}]), 115, 400, "z"),
        (json!([{"op": "add", "path": "/extra/l/-", "value": 3}]), 115, 200, ""),
        (json!([{"op": "add", "path": "/extra/l/10", "value": 3}]), 115, 400, "10"),
        (json!([{"op": "remove", "path": "/extra/l/0"}]), 115, 200, ""),
        (json!([{"op": "add", "path": "/name/x", "value": 3}]), 115, 400, "x"),
        (json!([{"op": "remove", "path": "/maintenance"}]), 115, 200, ""),
        (json!([{"op": "replace", "path": "/maintenance", "value": "true"}]), 115, 200, ""),
        (
            json!([{"op": "replace", "path": "/description", "value": long}]),
            115,
            400,
            "description",
        ),
        (
            json!([{"op": "add", "path": "/driver_internal_info/x", "value": 1}]),
            115,
            400,
            "/driver_internal_info",
        ),
        (
            json!([{"op": "replace", "path": "/protected_reason", "value": "x"}]),
            115,
            400,
            "protected",
        ),
        (json!([{"op": "replace", "path": "/network_data", "value": {"a": 1}}]), 115, 400, "links"),
        (json!([{"op": "replace", "path": "/owner", "value": "\0"}]), 115, 400, "/owner"),
        (json!([{"op": "add", "path": "/extra/x", "value": [{"\0": 1}]}]), 115, 400, "/extra/x"),
        (
            json!([{"op": "replace", "path": "/chassis_uuid", "value": "x"}]),
            115,
            400,
            "chassis_uuid",
        ),
    ] {
        check(
            status_and_message(patch_node(&patch, version)),
            status,
            mentions,
            &format!("{patch} at 1.{version}"),
        );
    }
}

#[test]
fn patches_change_only_the_given_fields() {
    let (draft, fields) = patch_node(
        &json!([
            {"op": "add", "path": "/driver_info/user", "value": "u"},
            {"op": "add", "path": "/extra/l/0", "value": 0},
            {"op": "remove", "path": "/name"},
            {"op": "replace", "path": "/driver", "value": "fake-hardware"},
        ]),
        115,
    )
    .unwrap();
    assert_eq!(fields, ["driver_info", "extra", "name"]);
    assert_eq!(Value::Object(draft.driver_info), json!({"password": "secret", "user": "u"}));
    assert_eq!(draft.node.extra.as_str(), r#"{"a":1,"l":[0,1,2]}"#);
    assert_eq!(draft.node.name, None);
}

#[test]
fn sensitive_rules_stay_sensitive_and_complete() {
    let body = json!({"sensitive": true, "actions": [{"op": "fail", "args": {"msg": "x"}}]});
    let rule = create::<InspectionRule>(body.to_string().as_bytes(), ApiVersion::MAX, NOW).unwrap();
    let off = Patch::parse(br#"[{"op":"replace","path":"/sensitive","value":false}]"#).unwrap();
    let refused = off.apply::<InspectionRule>(rule.draft.clone(), ApiVersion::MAX);
    check(status_and_message(refused), 400, "sensitive", "turning sensitive off");
    let msg =
        Patch::parse(br#"[{"op":"replace","path":"/actions/0/args/msg","value":"y"}]"#).unwrap();
    let done = msg.apply::<InspectionRule>(rule.draft, ApiVersion::MAX).unwrap();
    assert_eq!(done.draft.actions.as_str(), r#"[{"args":{"msg":"y"},"op":"fail"}]"#);
}

#[test]
fn patches_cannot_exceed_the_nesting_limit() {
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    let start = json!([{"op": "add", "path": "/extra", "value": deep(20)}]);
    let (draft, _) = patch_node(&start, 115).unwrap();
    for (more, fits) in [(4, true), (5, false)] {
        let path = format!("/extra{}", "/a".repeat(20));
        let patch = json!([{"op": "add", "path": path, "value": deep(more)}]).to_string();
        let patch = Patch::parse(patch.as_bytes()).unwrap();
        let (status, message) =
            status_and_message(patch.apply::<Node>(draft.clone(), ApiVersion(115)));
        assert_eq!(status == 200, fits, "{message}");
        assert!(fits || message.contains("extra"), "{message}");
    }
}
