// SPDX-License-Identifier: Apache-2.0
//! Invalid JSON patches of every resource.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::bodies::{may_be_valid, runner, values};
use super::target::{DocumentedRoute, Failures, HostileTarget};

/// More characters than any field allows.
const TOO_LONG: usize = 4_097;

/// The `PATCH` routes with the schema of their resource.
fn patch_routes(target: &HostileTarget) -> Vec<(&DocumentedRoute, &str)> {
    let routes = target.routes.iter().filter(|route| route.method == "PATCH");
    routes
        .filter_map(|route| Some((route, route.schema.as_deref()?.strip_suffix("Patch")?)))
        .collect()
}

#[test]
fn rejects_invalid_patches() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    let many = Value::from(vec![json!({"op": "add", "path": "/extra/a", "value": 1}); 10_000]);
    let bad = [
        many,
        json!([{"op": "test", "path": "/extra", "value": {}}]),
        json!([{"op": "move", "from": "/extra", "path": "/extra/a"}]),
        json!([{"op": "copy", "from": "/extra", "path": "/extra/a"}]),
        json!([{"op": "ADD", "path": "/extra/a", "value": 1}]),
        json!([{"op": null, "path": "/extra/a", "value": 1}]),
        json!([{"op": "add", "value": 1}]),
        json!([{"op": "add", "path": "/extra/a"}]),
        json!([{"op": "replace", "path": "/extra/none", "value": 1}]),
        json!([{"op": "remove", "path": "/extra/none"}]),
        json!([{"op": "add", "path": "/extra/none/deeper", "value": 1}]),
        json!([{"op": "add", "path": "/extra/a", "value": 1, "more": 1}]),
        json!([{"op": "add", "path": "", "value": 1}]),
        json!([{"op": "add", "path": "/", "value": 1}]),
        json!([{"op": "add", "path": "//", "value": 1}]),
        json!([{"op": "add", "path": "/extra/", "value": 1}]),
        json!([{"op": "add", "path": "extra/a", "value": 1}]),
        json!([{"op": "add", "path": "/extra/~2", "value": 1}]),
        json!([{"op": "add", "path": "/extra/a\0", "value": 1}]),
        json!([{"op": "add", "path": "/extra/a", "value": "\0"}]),
        json!([{"op": "add", "path": "/extra/a", "value": {"b": [{"\0": 1}]}}]),
        json!([{"op": "add", "path": "/nonsense", "value": 1}]),
        json!([{"op": "add", "path": "/nonsense/a", "value": 1}]),
        json!([{"op": "add", "path": 7, "value": 1}]),
        json!(["add"]),
        json!([[]]),
        json!({"op": "add", "path": "/extra/a", "value": 1}),
        // The first operation must not be stored if the second is rejected.
        json!([
            {"op": "add", "path": "/extra/a", "value": 1},
            {"op": "remove", "path": "/extra/none"},
        ]),
        json!([{"op": "add", "path": "/extra/a", "value": 1}, {"op": "add", "path": "/uuid", "value": 1}]),
    ];
    for (route, _) in patch_routes(&target) {
        for patch in &bad {
            if let Some(response) = failures.record(target.check(&route.request(patch.to_string())))
                && response.status != 400
            {
                let shown: String = patch.to_string().chars().take(200).collect();
                failures.record::<()>(Err(format!("{} {} {shown}", response.status, route.path())));
            }
        }
    }
    failures.assert_none();
}

#[test]
fn rejects_patches_to_the_wrong_type() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    let others = [
        json!(null),
        json!(true),
        json!(7),
        json!(-7.5),
        json!("x y"),
        json!("\0"),
        json!("é".repeat(TOO_LONG)),
        json!([null]),
        json!({"a": [1]}),
    ];
    for (route, schema_name) in patch_routes(&target) {
        let shown = target.fields(schema_name);
        let created = target.fields(&format!("{schema_name}Create"));
        let more = created.iter().filter(|(name, _)| !shown.contains_key(*name));
        for (field, schema) in shown.iter().chain(more) {
            let path = format!("/{field}");
            for (value, op) in others.iter().zip(["add", "replace"].iter().cycle()) {
                let patch = json!([{"op": op, "path": path, "value": value}]);
                let request = route.request(patch.to_string());
                let long = value.as_str().is_some_and(|text| text.len() > TOO_LONG);
                if may_be_valid(schema, value) && !long && *value != json!("\0") {
                    failures.record(target.check(&request));
                } else {
                    failures.record(target.check_rejected(field, &request));
                }
            }
            let remove = json!([{"op": "remove", "path": path}]);
            failures.record(target.check(&route.request(remove.to_string())));
            let inside = json!([{"op": "add", "path": format!("{path}/a/b"), "value": 1}]);
            failures.record(target.check_rejected(field, &route.request(inside.to_string())));
        }
    }
    failures.assert_none();
}

#[test]
fn random_patches() {
    let target = HostileTarget::start();
    let routes = patch_routes(&target);
    let op = prop::sample::select(vec!["add", "replace", "remove"]);
    let inner = prop_oneof![
        3 => Just(String::new()),
        2 => "(/[a-z0-9~-]{1,5}){1,3}",
        1 => "\\PC{0,6}",
        1 => "[/~\\x00-\\x7f]{1,8}",
    ];
    let one = (op, any::<prop::sample::Index>(), inner, values());
    let cases = (any::<prop::sample::Index>(), proptest::collection::vec(one, 1..4));
    runner(600)
        .run(&cases, |(which, operations)| {
            let (route, schema_name) = which.get(&routes);
            let fields: Vec<&String> =
                target.fields(&format!("{schema_name}Create")).keys().collect();
            let operations = operations.into_iter().map(|(op, field, inner, value)| {
                let field = field.get(&fields);
                json!({"op": op, "path": format!("/{field}{inner}"), "value": value})
            });
            let patch = Value::from(operations.collect::<Vec<_>>());
            let request = route.request(patch.to_string());
            target.check(&request).map_err(TestCaseError::fail)?;
            Ok(())
        })
        .unwrap();
}
