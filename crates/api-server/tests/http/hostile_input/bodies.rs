// SPDX-License-Identifier: Apache-2.0
//! Invalid bodies: not JSON, too deep, too large; unknown fields, wrong types, texts that a database
//! cannot store.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Map, Value, json};

use super::target::{BodyFraming, Failures, HostileRequest, HostileTarget, error_message};

/// Fields that may have more than 255 characters.
const LONG_TEXTS: [&str; 3] = ["description", "protected_reason", "retired_reason"];

/// A proptest runner with a fixed seed that writes no files.
pub(super) fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_261_115),
        // Cases are small, and each shrink step costs a request.
        max_shrink_iters: 200,
        ..Config::default()
    })
}

/// Small random JSON values.
pub(super) fn values() -> impl Strategy<Value = Value> {
    let texts = prop_oneof![
        Just(json!("true")),
        Just(json!("fake-hardware")),
        Just(json!(super::examples::NODE)),
        "\\PC{0,20}".prop_map(Value::from),
        "[\\x00-\\x1f]{1,3}".prop_map(Value::from),
        (200_usize..5_000).prop_map(|length| "x".repeat(length).into()),
    ];
    let leaves = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts,
    ];
    leaves.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z_~/\\x00]{0,12}", inner, 0..4)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

#[test]
fn rejects_bodies_that_are_not_json() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    let bad: [&[u8]; 15] = [
        b"{",
        b"{\"",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{\"a\":1}}",
        b"{a:1}",
        b"nope",
        b"NaN",
        b"{\"a\":Infinity}",
        b"{\"a\":1e999}",
        b"\xef\xbb\xbf{}",
        b"{\"name\":\"\xff\xfe\"}",
        b"{\"name\":\"\\ud800\"}",
        b"{\"name\":\"a\x00b\"}",
        b"\x00",
    ];
    for route in &target.routes {
        let takes_body = route.example().is_some();
        // Routes that ignore the body need fewer cases.
        for body in bad.into_iter().step_by(if takes_body { 1 } else { 6 }) {
            let response = failures.record(target.check(&route.request(body)));
            if takes_body && response.is_some_and(|response| response.status < 400) {
                failures.record::<()>(Err(format!("accepted: {} {body:?}", route.path())));
            }
        }
    }
    // JSON of the wrong type.
    for (route, example) in target.with_bodies() {
        for body in ["null", "1", "\"x\"", "[]", "[1]", "[[]]", "{}"] {
            let wrong_type = body.starts_with('{') != example.is_object();
            let response = failures.record(target.check(&route.request(body)));
            let accepted = response.is_some_and(|response| response.status < 400);
            // An empty patch is valid.
            let empty_patch = route.method == "PATCH" && body == "[]";
            if accepted && wrong_type && !empty_patch {
                failures.record::<()>(Err(format!(
                    "accepted: {} {} {body}",
                    route.method,
                    route.path()
                )));
            }
        }
    }
    failures.assert_none();
}

#[test]
fn rejects_bodies_nested_too_deeply() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    for (route, example) in target.with_bodies() {
        for depth in [26, 127, 128, 2000] {
            let arrays = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let objects = format!("{}1{}", "{\"extra\":".repeat(depth), "}".repeat(depth));
            let open = "[".repeat(depth);
            for body in [arrays, objects, open] {
                let response = failures.record(target.check(&route.request(body)));
                if let Some(response) = response
                    && response.status != 400
                {
                    let status = response.status;
                    failures.record::<()>(Err(format!("{status}: {depth} deep {}", route.path())));
                }
            }
        }
        // A valid body with one value nested too deeply.
        let mut inner = json!(1);
        for _ in 0..30 {
            inner = json!([inner]);
        }
        let mut body = example.clone();
        if body.is_object() {
            body["extra"] = inner;
        } else {
            body[0]["value"] = inner;
        }
        failures.record(target.check_rejected("deeper", &route.request(body.to_string())));
    }
    failures.assert_none();
}

#[test]
fn rejects_bodies_that_are_too_large() {
    const LIMIT: usize = 20_000;
    let target = HostileTarget::with(|config| {
        config.body_limits.small = LIMIT;
        config.body_limits.provision = LIMIT;
        config.body_limits.inspection = LIMIT;
    });
    let mut failures = Failures::default();
    for route in &target.routes {
        let example = route.example().unwrap_or_else(|| json!({})).to_string();
        for framing in [BodyFraming::Length, BodyFraming::Chunks] {
            // One byte over the limit, and more than all buffers on the way.
            for size in [LIMIT + 1, 600_000] {
                if size > LIMIT + 1 && !route.template.ends_with('s') {
                    continue;
                }
                let mut body = example.clone().into_bytes();
                body.resize(size, b' ');
                let mut request = route.request(body);
                request.framing = framing;
                if let Some(response) = failures.record(target.check(&request))
                    && response.status != 413
                {
                    let what = format!("{} {} {framing:?} {size}", route.method, route.path());
                    failures.record::<()>(Err(format!("{}: {what}", response.status)));
                }
            }
        }
    }
    failures.assert_none();
}

#[test]
fn rejects_fields_of_the_wrong_type() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    let others = [
        json!(null),
        json!(true),
        json!(7),
        json!(-7.5),
        json!(1e300),
        json!(""),
        json!("x y"),
        json!([]),
        json!([null]),
        json!([{}]),
        json!({}),
        json!({"a": [1]}),
    ];
    for (route, example) in target.with_bodies().filter(|(route, _)| route.method != "PATCH") {
        let described = route.schema.as_deref().map(|schema| target.fields(schema).clone());
        let named: Vec<String> = match &described {
            Some(fields) => fields.keys().cloned().collect(),
            None => example.as_object().unwrap().keys().cloned().collect(),
        };
        for field in &named {
            for value in &others {
                let mut body = example.clone();
                body[field] = value.clone();
                let request = route.request(body.to_string());
                let fits =
                    described.as_ref().is_none_or(|fields| may_be_valid(&fields[field], value));
                if fits {
                    failures.record(target.check(&request));
                } else {
                    failures.record(target.check_rejected(field, &request));
                }
            }
        }
    }
    failures.assert_none();
}

/// Whether a value may be valid for a field with this schema. The schema does not describe that the API
/// accepts null, and some strings for booleans and numbers.
pub(super) fn may_be_valid(schema: &Value, value: &Value) -> bool {
    let is = |kind: &str| {
        let types = &schema["type"];
        types == kind || types.as_array().is_some_and(|types| types.iter().any(|one| one == kind))
    };
    match value {
        Value::Null => true,
        Value::Bool(_) => is("boolean"),
        Value::Number(number) => is("integer") && number.is_i64(),
        Value::String(text) => is("string") && (schema["format"].is_null() || text.is_empty()),
        Value::Array(items) => {
            is("array") && (items.is_empty() || items.iter().all(Value::is_object))
        }
        Value::Object(_) => is("object"),
    }
}

#[test]
fn rejects_texts_that_cannot_be_stored() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    for (route, example) in target.with_bodies().filter(|(route, _)| route.method != "PATCH") {
        let described = route.schema.as_deref().map(|schema| target.fields(schema).clone());
        let fields: Vec<String> = match &described {
            Some(fields) => fields.keys().cloned().collect(),
            None => example.as_object().unwrap().keys().cloned().collect(),
        };
        // Inspection data may contain any text and are stored as JSON.
        let accepts_any = route.template.ends_with("continue_inspection");
        for field in &fields {
            let with = |value: Value| {
                let mut body = example.clone();
                body[field] = value;
                route.request(body.to_string())
            };
            for value in [
                json!("a\0b"),
                json!("\0"),
                json!({"a\0": 1}),
                json!({"a": {"b": ["c\0"]}}),
                json!(["CUSTOM_A\0"]),
                json!([{"a": "\0"}]),
            ] {
                if accepts_any {
                    failures.record(target.check(&with(value)));
                } else {
                    failures.record(target.check_rejected(field, &with(value)));
                }
            }
            for value in ["\u{1}\u{1f}\u{7f}", "\u{85}\u{2028}\u{feff}", "\u{10ffff}"] {
                failures.record(target.check(&with(value.into())));
            }
            for (letter, length) in [("x", 256), ("😀", 256), ("é", 4097), ("x", 20_000)] {
                let request = with(letter.repeat(length).into());
                let longest = match described {
                    Some(_) if LONG_TEXTS.contains(&field.as_str()) => 4096,
                    Some(_) => 255,
                    None => usize::MAX,
                };
                if length > longest {
                    failures.record(target.check_rejected(field, &request));
                } else {
                    failures.record(target.check(&request));
                }
            }
        }
    }
    failures.assert_none();
}

#[test]
fn random_bodies() {
    let target = HostileTarget::start();
    let routes: Vec<_> = target.with_bodies().collect();
    let names = "[a-zA-Z0-9_ \\x00-\\x7f\u{e9}]{0,20}";
    let change = prop_oneof![
        // Replace one member.
        (any::<prop::sample::Index>(), values())
            .prop_map(|(which, value)| BodyChange::ReplaceMember(which, value)),
        // Add a member.
        (names, values()).prop_map(|(name, value)| BodyChange::AddMember(name, value)),
        // Replace some bytes.
        (any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(position, bytes)| BodyChange::ReplaceBytes(position, bytes)),
        values().prop_map(BodyChange::ReplaceAll),
    ];
    let cases = (any::<prop::sample::Index>(), change);
    runner(600)
        .run(&cases, |(which, change)| {
            let (route, example) = which.get(&routes);
            let fields = route.schema.as_deref().filter(|_| route.method != "PATCH");
            let (body, unknown) = change.apply(example, fields.map(|schema| target.fields(schema)));
            let request = route.request(body);
            let response = target.check(&request).map_err(TestCaseError::fail)?;
            if let Some(name) = unknown.filter(|_| fields.is_some()) {
                prop_assert_eq!(response.status, 400);
                let shown: String = name.chars().take(100).collect();
                prop_assert!(error_message(&response).contains(&shown), "{}", response.body);
            }
            Ok(())
        })
        .unwrap();
}

/// A random change of a body.
#[derive(Clone, Debug)]
enum BodyChange {
    ReplaceMember(prop::sample::Index, Value),
    AddMember(String, Value),
    ReplaceBytes(prop::sample::Index, Vec<u8>),
    ReplaceAll(Value),
}

impl BodyChange {
    /// The changed body, and the unknown field it contains, if any.
    fn apply(
        self,
        example: &Value,
        fields: Option<&Map<String, Value>>,
    ) -> (Vec<u8>, Option<String>) {
        let mut body = example.clone();
        let mut unknown = None;
        match self {
            Self::ReplaceMember(which, value) => {
                if let Value::Object(members) = &mut body {
                    let names: Vec<String> = match fields {
                        Some(fields) => fields.keys().cloned().collect(),
                        None => members.keys().cloned().collect(),
                    };
                    if !names.is_empty() {
                        members.insert(which.get(&names).clone(), value);
                    }
                } else {
                    body[0]["value"] = value;
                }
            }
            Self::AddMember(name, value) => {
                let members = if body.is_array() { &mut body[0] } else { &mut body };
                if fields.is_some_and(|fields| !fields.contains_key(&name)) && !name.contains('\0')
                {
                    unknown = Some(name.clone());
                }
                // The error may be about the value instead.
                unknown = unknown.filter(|_| !value.to_string().contains("\\u0000"));
                members[name] = value;
            }
            Self::ReplaceBytes(position, bytes) => {
                let mut text = body.to_string().into_bytes();
                let at = position.index(text.len());
                let end = (at + bytes.len()).min(text.len());
                text.splice(at..end, bytes);
                return (text, None);
            }
            Self::ReplaceAll(value) => body = value,
        }
        (body.to_string().into_bytes(), unknown)
    }
}

#[test]
fn ignores_bodies_of_routes_without_one() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    for route in target.routes.iter().filter(|route| route.example().is_none()) {
        for body in ["{}", "{\"a\": 1}", "[]", "nope"] {
            failures.record(target.check(&route.request(body)));
            let mut chunked: HostileRequest = route.request(body);
            chunked.framing = BodyFraming::Chunks;
            failures.record(target.check(&chunked));
        }
    }
    failures.assert_none();
}
