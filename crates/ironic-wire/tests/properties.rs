// SPDX-License-Identifier: Apache-2.0
//! Arbitrary input never panics, and is rejected with a 4xx status and a message.

use ironic_wire::{
    ApiVersion, InspectionData, ListQuery, LookupQuery, NodeDraft, Patch, PowerChange,
    ProvisionBody, VifAttachment, VirtualMedia, WireError, WritableResource, create, negotiate,
    params, parse_events, parse_heartbeat, parse_raid_config, parse_traits,
};
use node_model::{
    Allocation, Chassis, DeployTemplate, InspectionRule, Node, NodeId, Port, Portgroup, Runbook,
    Timestamp, Verb, VolumeConnector, VolumeTarget,
};
use proptest::prelude::*;
use serde_json::{Map, Value};

fn versions() -> impl Strategy<Value = ApiVersion> {
    (ApiVersion::MIN.0..=ApiVersion::MAX.0).prop_map(ApiVersion)
}

/// Arbitrary JSON, often with known keys so that it passes the first checks.
fn json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        prop::sample::select(vec![
            "driver",
            "name",
            "uuid",
            "address",
            "node_uuid",
            "extra",
            "properties",
            "steps",
            "interface",
            "step",
            "args",
            "priority",
            "order",
            "actions",
            "conditions",
            "op",
            "path",
            "value",
            "target",
            "clean_steps",
            "configdrive",
            "logical_disks",
            "traits",
            "callback_url",
            "inventory",
            "interfaces",
            "mac_address",
            "network_data",
            "links",
            "local_link_connection",
            "boot_index",
            "type",
            "connector_id",
            "resource_class",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec![
            "CUSTOM_X",
            "raid",
            "52:54:00:aa:bb:01",
            "true",
            "phy",
            "eq",
            "fail",
            "/extra/a",
            "add",
            "manage",
            "11111111-1111-1111-1111-111111111111",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn assert_valid_rejection<T>(result: Result<T, WireError>) {
    if let Err(error) = result {
        assert!((400..500).contains(&error.status()), "{error}");
        assert!(!error.message().is_empty());
        assert!(error.message().len() < 20_000, "{} bytes", error.message().len());
        serde_json::from_slice::<Value>(&error.body()).expect("the error body is JSON");
    }
}

fn parse_all(body: &[u8], version: ApiVersion) {
    fn one<R: WritableResource>(body: &[u8], version: ApiVersion) {
        assert_valid_rejection(create::<R>(body, version, Timestamp(0)));
    }
    one::<Node>(body, version);
    one::<Port>(body, version);
    one::<Portgroup>(body, version);
    one::<Chassis>(body, version);
    one::<Allocation>(body, version);
    one::<DeployTemplate>(body, version);
    one::<Runbook>(body, version);
    one::<InspectionRule>(body, version);
    one::<VolumeConnector>(body, version);
    one::<VolumeTarget>(body, version);
    for verb in Verb::ALL {
        assert_valid_rejection(
            ProvisionBody::parse(body).and_then(|r| r.arguments(*verb, version)),
        );
    }
    assert_valid_rejection(PowerChange::parse(body, version));
    assert_valid_rejection(parse_heartbeat(body, version));
    assert_valid_rejection(InspectionData::parse(body));
    assert_valid_rejection(VifAttachment::parse(body, version));
    assert_valid_rejection(VirtualMedia::parse(body));
    assert_valid_rejection(parse_raid_config(body));
    assert_valid_rejection(parse_traits(body));
    assert_valid_rejection(parse_events(body));
    assert_valid_rejection(Patch::parse(body));
}

fn draft() -> NodeDraft {
    let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
    node.extra = node_model::JsonObject::from_stored(r#"{"a":{"b":[1,{"c":2}]}}"#);
    NodeDraft::new(node, Map::new(), Map::new())
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(body in prop::collection::vec(any::<u8>(), 0..200), version in versions()) {
        parse_all(&body, version);
    }

    #[test]
    fn arbitrary_json_does_not_panic(body in json(), version in versions()) {
        parse_all(body.to_string().as_bytes(), version);
    }

    #[test]
    fn arbitrary_patches_do_not_panic(
        operations in prop::collection::vec(
            (
                prop::sample::select(vec!["add", "replace", "remove"]),
                prop_oneof![
                    prop::sample::select(vec![
                        "/extra", "/extra/a", "/extra/a/b", "/extra/a/b/0", "/extra/a/b/-",
                        "/extra/a/b/1/c", "/extra/a/b/99999999999999999999", "/name", "/driver",
                        "/properties", "/properties/cpus", "/maintenance", "/driver_info/x",
                        "/network_data", "/parent_node", "/uuid", "/extra/~0", "/extra/~1~0",
                    ])
                    .prop_map(str::to_owned),
                    any::<String>(),
                ],
                json(),
            ),
            0..5,
        ),
        version in versions(),
    ) {
        let body = Value::from(
            operations
                .into_iter()
                .map(|(op, path, value)| serde_json::json!({"op": op, "path": path, "value": value}))
                .collect::<Vec<_>>(),
        );
        let result = Patch::parse(body.to_string().as_bytes())
            .and_then(|patch| patch.apply::<Node>(draft(), version));
        assert_valid_rejection(result);
    }

    #[test]
    fn arbitrary_queries_do_not_panic(
        pairs in prop::collection::vec(
            (
                prop_oneof![
                    prop::sample::select(params::NODES.iter().map(|p| p.name).collect::<Vec<_>>())
                        .prop_map(str::to_owned),
                    any::<String>(),
                ],
                any::<String>(),
            ),
            0..4,
        ),
        version in versions(),
    ) {
        assert_valid_rejection(ListQuery::<Node>::parse(params::NODES, &pairs, version, 1000, false));
        assert_valid_rejection(LookupQuery::parse(&pairs));
    }

    #[test]
    fn arbitrary_versions_do_not_panic(ironic in any::<Option<String>>(), openstack in any::<Option<String>>()) {
        let _ = negotiate(ironic.as_deref(), openstack.as_deref());
    }
}
