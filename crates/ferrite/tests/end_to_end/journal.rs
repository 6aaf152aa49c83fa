// SPDX-License-Identifier: Apache-2.0
//! Reads the timeline of a node and checks that it is complete and consistent.

use http_probe::ProbeClient;
use serde_json::Value;

/// The complete timeline of a node, oldest first.
pub(crate) fn timeline(client: &mut ProbeClient, node: &str) -> std::io::Result<Vec<Value>> {
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let after =
            entries.last().map_or(0, |last| last["seq"].as_i64().expect("entries are numbered"));
        let path = format!("/v1/ferrite/nodes/{node}/timeline?after={after}&limit=1000");
        let response = client.send("GET", &path, None)?;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        let mut page = response.json();
        let page = page["timeline"].as_array_mut().expect("a timeline is a list");
        if page.is_empty() {
            return Ok(entries);
        }
        entries.append(page);
    }
}

/// The accepted provision targets, in order.
pub(crate) fn requested_targets(timeline: &[Value]) -> Vec<&str> {
    events_of_kind(timeline, "requested").map(|what| text(&what["target"])).collect()
}

/// The events without what differs between runs: times, request ids, durations and waits.
pub(crate) fn comparable_events(timeline: &[Value]) -> Vec<Value> {
    let events =
        timeline.iter().map(|entry| &entry["event"]).filter(|what| what["kind"] != "waiting");
    events
        .map(|what| {
            let mut what = what.clone();
            if let Some(what) = what.as_object_mut() {
                what.remove("took_ms");
            }
            what
        })
        .collect()
}

/// Returns the problems of a timeline whose node was enrolled, got the requests `verbs` and passed through
/// the provision states `path`.
pub(crate) fn problems(timeline: &[Value], verbs: &[&str], path: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let numbers: Vec<i64> = timeline.iter().filter_map(|entry| entry["seq"].as_i64()).collect();
    if !numbers.is_sorted_by(|a, b| a < b) || numbers.len() != timeline.len() {
        problems.push(format!("entries are not numbered in order: {numbers:?}"));
    }
    for (entry, next) in timeline.iter().zip(timeline.iter().skip(1)) {
        if entry["event"] == next["event"] && entry["at"] == next["at"] {
            problems.push(format!("duplicate entry: {entry}"));
        }
    }
    let enrolled = events_of_kind(timeline, "enrolled").count();
    if enrolled != 1 {
        problems.push(format!("enrolled {enrolled} times"));
    }
    if requested_targets(timeline) != verbs {
        problems.push(format!("requested {:?} instead of {verbs:?}", requested_targets(timeline)));
    }
    let mut state = "enroll";
    let mut entered = vec![];
    for what in events_of_kind(timeline, "state_changed") {
        let (from, to) = (text(&what["from"]), text(&what["to"]));
        if from != state {
            problems.push(format!("entered {to} from {from}, but was {state}"));
        }
        entered.push(to);
        state = to;
    }
    if entered != path {
        problems.push(format!("entered {entered:?} instead of {path:?}"));
    }
    for failed in events_of_kind(timeline, "failed") {
        problems.push(format!("failed: {failed}"));
    }
    problems
}

fn events_of_kind<'a>(
    timeline: &'a [Value],
    kind: &'static str,
) -> impl Iterator<Item = &'a Value> {
    timeline.iter().map(|entry| &entry["event"]).filter(move |what| what["kind"] == kind)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("(not a string)")
}

#[test]
fn finds_missing_and_duplicate_entries() {
    use serde_json::json;
    let entry = |seq: i64, what: Value| json!({"seq": seq, "at": seq.to_string(), "event": what});
    let entered =
        |seq, from, to| entry(seq, json!({"kind": "state_changed", "from": from, "to": to}));
    let complete = vec![
        entry(1, json!({"kind": "enrolled"})),
        entry(2, json!({"kind": "requested", "target": "manage"})),
        entered(3, "enroll", "verifying"),
        entered(4, "verifying", "manageable"),
    ];
    let check =
        |entries: &[Value]| problems(entries, &["manage"], &["verifying", "manageable"]).join("; ");
    assert_eq!(check(&complete), "");
    let without = |index: usize| {
        let mut entries = complete.clone();
        entries.remove(index);
        entries
    };
    assert_eq!(check(&without(0)), "enrolled 0 times");
    assert_eq!(check(&without(1)), r#"requested [] instead of ["manage"]"#);
    assert!(check(&without(2)).contains("entered manageable from verifying, but was enroll"));
    let mut duplicated = complete.clone();
    duplicated.insert(2, complete[1].clone());
    assert!(check(&duplicated).contains("not numbered in order"));
    assert!(check(&duplicated).contains("duplicate entry"));
    assert!(check(&duplicated).contains(r#"requested ["manage", "manage"]"#));
}
