// SPDX-License-Identifier: Apache-2.0
//! Bodies: no JSON, too deep, too large, fields that are unknown, of another type, or hold texts
//! that no database takes.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Map, Value, json};

use super::target::{Failures, Framing, Request, Target, words};

/// Fields of resources that may hold more than 255 characters.
const LONG_TEXTS: [&str; 3] = ["description", "protected_reason", "retired_reason"];

/// The runner of this module's properties: the same cases every time, nothing written to files.
pub(super) fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_261_115),
        // Whatever fails is small already, and every try costs a request.
        max_shrink_iters: 200,
        ..Config::default()
    })
}

/// Any JSON, not too large.
pub(super) fn values() -> impl Strategy<Value = Value> {
    let words = prop_oneof![
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
        words,
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
fn bodies_that_are_no_json() {
    let target = Target::start();
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
        // Where a body means nothing, a few of them do.
        for body in bad.into_iter().step_by(if takes_body { 1 } else { 6 }) {
            let response = failures.note(target.check(&route.request(body)));
            if takes_body && response.is_some_and(|response| response.status < 400) {
                failures.note::<()>(Err(format!("taken: {} {body:?}", route.path())));
            }
        }
    }
    // Bodies that are JSON, but of another kind.
    for (route, example) in target.with_bodies() {
        for body in ["null", "1", "\"x\"", "[]", "[1]", "[[]]", "{}"] {
            let other_kind = body.starts_with('{') != example.is_object();
            let response = failures.note(target.check(&route.request(body)));
            let taken = response.is_some_and(|response| response.status < 400);
            // An empty patch changes nothing.
            let empty_patch = route.method == "PATCH" && body == "[]";
            if taken && other_kind && !empty_patch {
                failures.note::<()>(Err(format!(
                    "taken: {} {} {body}",
                    route.method,
                    route.path()
                )));
            }
        }
    }
    failures.assert_none();
}

#[test]
fn bodies_nested_too_deeply() {
    let target = Target::start();
    let mut failures = Failures::default();
    for (route, example) in target.with_bodies() {
        for depth in [26, 127, 128, 2000] {
            let arrays = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let objects = format!("{}1{}", "{\"extra\":".repeat(depth), "}".repeat(depth));
            let open = "[".repeat(depth);
            for body in [arrays, objects, open] {
                let response = failures.note(target.check(&route.request(body)));
                if let Some(response) = response
                    && response.status != 400
                {
                    let status = response.status;
                    failures.note::<()>(Err(format!("{status}: {depth} deep {}", route.path())));
                }
            }
        }
        // Around a body that would be fine without.
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
        failures.note(target.refused_for("deeper", &route.request(body.to_string())));
    }
    failures.assert_none();
}

#[test]
fn bodies_that_are_too_large() {
    const LIMIT: usize = 20_000;
    let target = Target::with(|config| {
        config.body_limits.small = LIMIT;
        config.body_limits.provision = LIMIT;
        config.body_limits.inspection = LIMIT;
    });
    let mut failures = Failures::default();
    for route in &target.routes {
        let example = route.example().unwrap_or_else(|| json!({})).to_string();
        for framing in [Framing::Length, Framing::Chunks] {
            // One byte too many, and far more than fits into any buffer on the way.
            for size in [LIMIT + 1, 600_000] {
                if size > LIMIT + 1 && !route.template.ends_with('s') {
                    continue;
                }
                let mut body = example.clone().into_bytes();
                body.resize(size, b' ');
                let mut request = route.request(body);
                request.framing = framing;
                if let Some(response) = failures.note(target.check(&request))
                    && response.status != 413
                {
                    let what = format!("{} {} {framing:?} {size}", route.method, route.path());
                    failures.note::<()>(Err(format!("{}: {what}", response.status)));
                }
            }
        }
    }
    failures.assert_none();
}

#[test]
fn fields_of_another_type() {
    let target = Target::start();
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
                let fits = described.as_ref().is_none_or(|fields| may_be(&fields[field], value));
                if fits {
                    failures.note(target.check(&request));
                } else {
                    failures.note(target.refused_for(field, &request));
                }
            }
        }
    }
    failures.assert_none();
}

/// Whether a value can be right for a field with this schema, which need not say how lenient the
/// API is with null, and with words and digits in texts.
pub(super) fn may_be(schema: &Value, value: &Value) -> bool {
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
fn texts_that_cannot_be_kept() {
    let target = Target::start();
    let mut failures = Failures::default();
    for (route, example) in target.with_bodies().filter(|(route, _)| route.method != "PATCH") {
        let described = route.schema.as_deref().map(|schema| target.fields(schema).clone());
        let fields: Vec<String> = match &described {
            Some(fields) => fields.keys().cloned().collect(),
            None => example.as_object().unwrap().keys().cloned().collect(),
        };
        // The data of the ramdisk are whatever the firmware says, and kept as JSON.
        let free = route.template.ends_with("continue_inspection");
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
                if free {
                    failures.note(target.check(&with(value)));
                } else {
                    failures.note(target.refused_for(field, &with(value)));
                }
            }
            for value in ["\u{1}\u{1f}\u{7f}", "\u{85}\u{2028}\u{feff}", "\u{10ffff}"] {
                failures.note(target.check(&with(value.into())));
            }
            for (letter, length) in [("x", 256), ("😀", 256), ("é", 4097), ("x", 20_000)] {
                let request = with(letter.repeat(length).into());
                let longest = match described {
                    Some(_) if LONG_TEXTS.contains(&field.as_str()) => 4096,
                    Some(_) => 255,
                    None => usize::MAX,
                };
                if length > longest {
                    failures.note(target.refused_for(field, &request));
                } else {
                    failures.note(target.check(&request));
                }
            }
        }
    }
    failures.assert_none();
}

#[test]
fn odd_bodies() {
    let target = Target::start();
    let routes: Vec<_> = target.with_bodies().collect();
    let names = "[a-zA-Z0-9_ \\x00-\\x7f\u{e9}]{0,20}";
    let change = prop_oneof![
        // One member of the body becomes something else.
        (any::<prop::sample::Index>(), values())
            .prop_map(|(which, value)| Change::Member(which, value)),
        // One more member.
        (names, values()).prop_map(|(name, value)| Change::More(name, value)),
        // Some bytes become others.
        (any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(place, bytes)| Change::Bytes(place, bytes)),
        values().prop_map(Change::Whole),
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
                prop_assert!(words(&response).contains(&shown), "{}", response.body);
            }
            Ok(())
        })
        .unwrap();
}

/// What is done to a body.
#[derive(Clone, Debug)]
enum Change {
    Member(prop::sample::Index, Value),
    More(String, Value),
    Bytes(prop::sample::Index, Vec<u8>),
    Whole(Value),
}

impl Change {
    /// The changed body, and the name of a field that nobody knows, if it got one.
    fn apply(
        self,
        example: &Value,
        fields: Option<&Map<String, Value>>,
    ) -> (Vec<u8>, Option<String>) {
        let mut body = example.clone();
        let mut unknown = None;
        match self {
            Self::Member(which, value) => {
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
            Self::More(name, value) => {
                let place = if body.is_array() { &mut body[0] } else { &mut body };
                if fields.is_some_and(|fields| !fields.contains_key(&name)) && !name.contains('\0')
                {
                    unknown = Some(name.clone());
                }
                // What is wrong with the value may be told first.
                unknown = unknown.filter(|_| !value.to_string().contains("\\u0000"));
                place[name] = value;
            }
            Self::Bytes(place, bytes) => {
                let mut text = body.to_string().into_bytes();
                let at = place.index(text.len());
                let end = (at + bytes.len()).min(text.len());
                text.splice(at..end, bytes);
                return (text, None);
            }
            Self::Whole(value) => body = value,
        }
        (body.to_string().into_bytes(), unknown)
    }
}

/// Bodies where none is expected do no harm.
#[test]
fn bodies_where_none_belongs() {
    let target = Target::start();
    let mut failures = Failures::default();
    for route in target.routes.iter().filter(|route| route.example().is_none()) {
        for body in ["{}", "{\"a\": 1}", "[]", "nope"] {
            failures.note(target.check(&route.request(body)));
            let mut chunked: Request = route.request(body);
            chunked.framing = Framing::Chunks;
            failures.note(target.check(&chunked));
        }
    }
    failures.assert_none();
}
