// SPDX-License-Identifier: Apache-2.0
//! JSON patches of every resource that can be patched.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::bodies::{may_be, runner, values};
use super::target::{Failures, Route, Target};

/// More characters than any field takes.
const LONG: usize = 4_097;

/// The routes that take patches, with the name of what they patch.
fn patched(target: &Target) -> Vec<(&Route, &str)> {
    let patched = target.routes.iter().filter(|route| route.method == "PATCH");
    patched
        .filter_map(|route| Some((route, route.schema.as_deref()?.strip_suffix("Patch")?)))
        .collect()
}

#[test]
fn patches_that_are_none() {
    let target = Target::start();
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
        // The first half must not stay when the second is refused.
        json!([
            {"op": "add", "path": "/extra/a", "value": 1},
            {"op": "remove", "path": "/extra/none"},
        ]),
        json!([{"op": "add", "path": "/extra/a", "value": 1}, {"op": "add", "path": "/uuid", "value": 1}]),
    ];
    for (route, _) in patched(&target) {
        for patch in &bad {
            if let Some(response) = failures.note(target.check(&route.request(patch.to_string())))
                && response.status != 400
            {
                let shown: String = patch.to_string().chars().take(200).collect();
                failures.note::<()>(Err(format!("{} {} {shown}", response.status, route.path())));
            }
        }
    }
    failures.assert_none();
}

#[test]
fn fields_patched_to_another_type() {
    let target = Target::start();
    let mut failures = Failures::default();
    let others = [
        json!(null),
        json!(true),
        json!(7),
        json!(-7.5),
        json!("x y"),
        json!("\0"),
        json!("é".repeat(LONG)),
        json!([null]),
        json!({"a": [1]}),
    ];
    for (route, kind) in patched(&target) {
        let shown = target.fields(kind);
        let created = target.fields(&format!("{kind}Create"));
        let more = created.iter().filter(|(name, _)| !shown.contains_key(*name));
        for (field, schema) in shown.iter().chain(more) {
            let path = format!("/{field}");
            for (value, op) in others.iter().zip(["add", "replace"].iter().cycle()) {
                let patch = json!([{"op": op, "path": path, "value": value}]);
                let request = route.request(patch.to_string());
                let long = value.as_str().is_some_and(|text| text.len() > LONG);
                if may_be(schema, value) && !long && *value != json!("\0") {
                    failures.note(target.check(&request));
                } else {
                    failures.note(target.refused_for(field, &request));
                }
            }
            let remove = json!([{"op": "remove", "path": path}]);
            failures.note(target.check(&route.request(remove.to_string())));
            let inside = json!([{"op": "add", "path": format!("{path}/a/b"), "value": 1}]);
            failures.note(target.refused_for(field, &route.request(inside.to_string())));
        }
    }
    failures.assert_none();
}

#[test]
fn odd_patches() {
    let target = Target::start();
    let routes = patched(&target);
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
            let (route, kind) = which.get(&routes);
            let fields: Vec<&String> = target.fields(&format!("{kind}Create")).keys().collect();
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
