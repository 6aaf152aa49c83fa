// SPDX-License-Identifier: Apache-2.0
//! Reads a node's timeline and checks that it tells a story without holes.

use http_probe::Client;
use serde_json::Value;

/// The whole timeline of a node, oldest first.
pub(crate) fn timeline(client: &mut Client, node: &str) -> std::io::Result<Vec<Value>> {
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let after =
            entries.last().map_or(0, |last| last["seq"].as_i64().expect("entries are numbered"));
        let path = format!("/v1/ferrite/nodes/{node}/timeline?after={after}&limit=1000");
        let answer = client.send("GET", &path, None)?;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let mut page = answer.json();
        let page = page["timeline"].as_array_mut().expect("a timeline is a list");
        if page.is_empty() {
            return Ok(entries);
        }
        entries.append(page);
    }
}

/// The targets that were asked for and accepted, in order.
pub(crate) fn asked(timeline: &[Value]) -> Vec<&str> {
    of_kind(timeline, "asked").map(|what| text(&what["target"])).collect()
}

/// What happened, without what differs from one time to the next: when, by whose request, how long
/// it took, and what was waited for.
pub(crate) fn story(timeline: &[Value]) -> Vec<Value> {
    let happened =
        timeline.iter().map(|entry| &entry["what"]).filter(|what| what["kind"] != "waiting");
    happened
        .map(|what| {
            let mut what = what.clone();
            if let Some(what) = what.as_object_mut() {
                what.remove("took_ms");
            }
            what
        })
        .collect()
}

/// What is wrong with a timeline whose node was enrolled, was asked for `verbs`, and went along
/// `path` of provision states. Empty if nothing is.
pub(crate) fn complaints(timeline: &[Value], verbs: &[&str], path: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    let numbers: Vec<i64> = timeline.iter().filter_map(|entry| entry["seq"].as_i64()).collect();
    if !numbers.is_sorted_by(|a, b| a < b) || numbers.len() != timeline.len() {
        complaints.push(format!("entries are not numbered in order: {numbers:?}"));
    }
    for (entry, next) in timeline.iter().zip(timeline.iter().skip(1)) {
        if entry["what"] == next["what"] && entry["at"] == next["at"] {
            complaints.push(format!("doubled entry: {entry}"));
        }
    }
    let enrolled = of_kind(timeline, "enrolled").count();
    if enrolled != 1 {
        complaints.push(format!("enrolled {enrolled} times"));
    }
    if asked(timeline) != verbs {
        complaints.push(format!("asked {:?} instead of {verbs:?}", asked(timeline)));
    }
    let mut state = "enroll";
    let mut entered = vec![];
    for what in of_kind(timeline, "entered") {
        let (from, to) = (text(&what["from"]), text(&what["to"]));
        if from != state {
            complaints.push(format!("entered {to} from {from}, but was {state}"));
        }
        entered.push(to);
        state = to;
    }
    if entered != path {
        complaints.push(format!("went {entered:?} instead of {path:?}"));
    }
    for failed in of_kind(timeline, "failed") {
        complaints.push(format!("failed: {failed}"));
    }
    complaints
}

fn of_kind<'a>(timeline: &'a [Value], kind: &'static str) -> impl Iterator<Item = &'a Value> {
    timeline.iter().map(|entry| &entry["what"]).filter(move |what| what["kind"] == kind)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("(no text)")
}

#[test]
fn holes_and_doubles_are_seen() {
    use serde_json::json;
    let entry = |seq: i64, what: Value| json!({"seq": seq, "at": seq.to_string(), "what": what});
    let entered = |seq, from, to| entry(seq, json!({"kind": "entered", "from": from, "to": to}));
    let whole = vec![
        entry(1, json!({"kind": "enrolled"})),
        entry(2, json!({"kind": "asked", "target": "manage"})),
        entered(3, "enroll", "verifying"),
        entered(4, "verifying", "manageable"),
    ];
    let check = |entries: &[Value]| {
        complaints(entries, &["manage"], &["verifying", "manageable"]).join("; ")
    };
    assert_eq!(check(&whole), "");
    let without = |index: usize| {
        let mut entries = whole.clone();
        entries.remove(index);
        entries
    };
    assert_eq!(check(&without(0)), "enrolled 0 times");
    assert_eq!(check(&without(1)), r#"asked [] instead of ["manage"]"#);
    assert!(check(&without(2)).contains("entered manageable from verifying, but was enroll"));
    let mut doubled = whole.clone();
    doubled.insert(2, whole[1].clone());
    assert!(check(&doubled).contains("not numbered in order"));
    assert!(check(&doubled).contains("doubled entry"));
    assert!(check(&doubled).contains(r#"asked ["manage", "manage"]"#));
}
