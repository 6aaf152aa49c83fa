// SPDX-License-Identifier: Apache-2.0
//! Random values in bodies and patches of nodes and allocations: each is accepted, or rejected with a
//! message and without a change.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use crate::support::fixture::Fixture;

const NODE_FIELDS: &[&str] = &[
    "uuid",
    "name",
    "driver",
    "driver_info",
    "properties",
    "extra",
    "instance_info",
    "instance_uuid",
    "instance_name",
    "chassis_uuid",
    "maintenance",
    "resource_class",
    "power_interface",
    "conductor_group",
    "automated_clean",
    "protected",
    "protected_reason",
    "owner",
    "description",
    "retired",
    "retired_reason",
    "lessee",
    "network_data",
    "shard",
    "parent_node",
    "disable_power_off",
    "console_enabled",
    "traits",
    "nonsense",
];
const ALLOCATION_FIELDS: &[&str] = &[
    "uuid",
    "name",
    "resource_class",
    "traits",
    "candidate_nodes",
    "node",
    "owner",
    "extra",
    "nonsense",
];

fn values() -> impl Strategy<Value = Value> {
    let words = prop_oneof![
        Just(json!("n1")),
        Just(json!("fake-hardware")),
        Just(json!("CUSTOM_A")),
        Just(json!("11111111-1111-4111-8111-111111111111")),
        ".{0,20}".prop_map(Value::from),
    ];
    let leaves = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words,
    ];
    leaves.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z_~/]{0,12}", inner, 0..4)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn bodies(fields: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let members = (proptest::sample::select(fields), values());
    proptest::collection::vec(members, 0..4).prop_map(|members| {
        let mut body = json!({"driver": "fake-hardware"});
        for (name, value) in members {
            body[name] = value;
        }
        body
    })
}

fn patches(fields: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let kind = proptest::sample::select(vec!["add", "replace", "remove", "move"]);
    let inner = prop_oneof![Just(String::new()), "(/[a-z0-9~-]{1,5}){1,2}", ".{0,6}"];
    let operation = (kind, proptest::sample::select(fields), inner, values()).prop_map(
        |(kind, field, inner, value)| {
            json!({"op": kind, "path": format!("/{field}{inner}"), "value": value})
        },
    );
    prop_oneof![9 => proptest::collection::vec(operation, 0..3).prop_map(Value::from), 1 => values()]
}

/// Sends one body. If it is rejected, nothing may have changed.
async fn check_request(
    fixture: &Fixture,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<(), String> {
    let stored = async || {
        let nodes =
            fixture.request("GET", "/v1/nodes/detail?include_children=true", Value::Null).await;
        let allocations = fixture.request("GET", "/v1/allocations", Value::Null).await;
        (nodes.body, allocations.json()["allocations"].as_array().map(Vec::len))
    };
    let before = stored().await;
    let response = fixture.request(method, path, body.clone()).await;
    match response.status {
        200 | 201 => Ok(()),
        400..500 if response.message().is_empty() => Err("rejected without a message".into()),
        400..500 if stored().await != before => Err("rejected, but something was stored".into()),
        400..500 => Ok(()),
        other => Err(format!("{other}: {}", response.body)),
    }
}

#[test]
fn random_values_are_accepted_or_rejected_without_a_change() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let fixture = runtime.block_on(Fixture::start());
    let mut node = None;
    runtime.block_on(async {
        node = Some(fixture.node("n1", |_| {}).await);
    });
    let path = format!("/v1/nodes/{}", node.unwrap());
    let requests = prop_oneof![
        bodies(NODE_FIELDS).prop_map(|body| ("POST", "/v1/nodes".to_owned(), body)),
        patches(NODE_FIELDS).prop_map(move |body| ("PATCH", path.clone(), body)),
        bodies(ALLOCATION_FIELDS).prop_map(|mut body| {
            body["resource_class"] = body["driver"].take();
            body.as_object_mut().unwrap().remove("driver");
            ("POST", "/v1/allocations".to_owned(), body)
        }),
    ];
    let mut runner =
        TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    runner
        .run(&requests, |(method, path, body)| {
            let outcome = runtime.block_on(check_request(&fixture, method, &path, &body));
            prop_assert!(outcome.is_ok(), "{} {} {}: {:?}", method, path, body, outcome);
            Ok(())
        })
        .unwrap();
}
