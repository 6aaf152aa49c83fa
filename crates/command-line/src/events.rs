// SPDX-License-Identifier: Apache-2.0
//! Ferrite's event stream and journal entries as text lines.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use ironic_client::{IronicClientError, QueryString};
use serde_json::Value;

use crate::cli_error::CliError;
use crate::context::{CliContext, ConnectionArguments};
use crate::node::queries::select_node;
use crate::node::verbs::cli_verb_name;
use crate::output::{OutputArguments, OutputFormat, display_name};
use crate::screen::{Screen, TextStyle, one_line};
use crate::table::value_text;
use crate::timestamps;

/// Delay before the stream is opened again after a disconnection.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Options of `ferrite events`.
#[derive(Args, Debug)]
pub struct EventsArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Show events of this machine only.
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Start after the event with this number.
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(arguments: &EventsArguments) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let node = match &arguments.node {
        Some(name) => Some(select_node(&context, name).await?.uuid),
        None => None,
    };
    follow(&context, node.as_deref(), arguments.after, arguments.output.output).await
}

/// Prints events until Ctrl-C. Reconnects after a disconnection without losing events.
pub(crate) async fn follow(
    context: &CliContext,
    node: Option<&str>,
    after: Option<u64>,
    format: OutputFormat,
) -> Result<(), CliError> {
    tokio::select! {
        ended = follow_until_error(context, node, after, format) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn follow_until_error(
    context: &CliContext,
    node: Option<&str>,
    mut after: Option<u64>,
    format: OutputFormat,
) -> Result<(), CliError> {
    let mut names = NodeNameCache { context: context.clone(), names: HashMap::new() };
    let mut was_connected = false;
    if after.is_none() {
        // Without this, events between a first, empty connection and the second would be lost.
        after = last_event_id(context).await.map_err(ferrite_only_error)?;
    }
    loop {
        match context.api.events(node, after).await {
            Ok(mut events) => {
                was_connected = true;
                while let Ok(Some(event)) = events.next().await {
                    after = event.id.or(after);
                    let name = if node.is_none() {
                        Some(names.node_name(&event.data).await)
                    } else {
                        None
                    };
                    context.screen.print(&format_entry(
                        &event.data,
                        name.as_deref(),
                        format,
                        context.screen,
                    ));
                }
            }
            Err(error) if was_connected && error.is_server_unavailable() => {}
            Err(error) => return Err(ferrite_only_error(error)),
        }
        tokio::time::sleep(RECONNECT_INTERVAL).await;
    }
}

/// The number of the newest event, if the server reports it.
async fn last_event_id(context: &CliContext) -> Result<Option<u64>, IronicClientError> {
    // `after` is the largest number, so that the response contains no machines.
    let path =
        QueryString::new().with("after", &i64::MAX.to_string()).append_to("/v1/ferrite/fleet");
    Ok(context.api.find(&path).await?.and_then(|fleet| fleet["seq"].as_u64()))
}

fn ferrite_only_error(error: IronicClientError) -> CliError {
    if error.status() == Some(404) {
        let message = "this server has no event stream; it is an Ironic, not a Ferrite";
        return CliError::Rejected(message.to_owned());
    }
    error.into()
}

/// Caches the names of nodes.
struct NodeNameCache {
    context: CliContext,
    names: HashMap<String, String>,
}

impl NodeNameCache {
    async fn node_name(&mut self, event: &Value) -> String {
        let uuid = event["node_uuid"].as_str().unwrap_or_default();
        if let Some(name) = self.names.get(uuid) {
            return name.clone();
        }
        let query = QueryString::new().with("fields", "uuid,name");
        // A deleted node is shown by its UUID.
        let found = self.context.api.find(&query.append_to(&format!("/v1/nodes/{uuid}"))).await;
        let name = match found {
            Ok(Some(node)) => display_name(&node).to_owned(),
            Ok(None) | Err(_) => uuid.to_owned(),
        };
        self.names.insert(uuid.to_owned(), name.clone());
        name
    }
}

/// Formats a journal entry.
pub(crate) fn format_entry(
    entry: &Value,
    name: Option<&str>,
    format: OutputFormat,
    screen: Screen,
) -> String {
    if format.is_machine_readable() {
        // JSON lines, which can be parsed incrementally.
        return format!("{entry}\n");
    }
    let at = entry["at"].as_str().unwrap_or_default();
    let (style, text) = describe_event(&entry["event"], at);
    let at = format_timestamp(at);
    let actor = format_actor(&entry["actor"]);
    let name = name.map(|name| format!("{name}  ")).unwrap_or_default();
    let actor = if actor.is_empty() { String::new() } else { format!("  ({actor})") };
    let text = screen.paint(style, &one_line(&text));
    format!("{}  {name}{text}{actor}\n", screen.paint(TextStyle::Dim, &at))
}

/// Shortens a UTC timestamp to milliseconds.
fn format_timestamp(at: &str) -> String {
    at.get(..23).unwrap_or(at).replace('T', " ")
}

/// Formats the actor; empty for a conductor, the usual case.
fn format_actor(actor: &Value) -> String {
    let text = |field: &str| actor[field].as_str().unwrap_or_default().to_owned();
    match actor["kind"].as_str().unwrap_or_default() {
        "user" if actor["name"].is_string() => format!("by {}", text("name")),
        "user" => "by a user".to_owned(),
        "machine" => text("address"),
        "agent" => "agent".to_owned(),
        _ => String::new(),
    }
}

/// The text of a journal entry, without time and actor, on one line.
#[must_use]
pub fn journal_event_text(entry: &Value) -> String {
    let at = entry["at"].as_str().unwrap_or_default();
    one_line(&describe_event(&entry["event"], at).1)
}

/// Describes a journal event at the time `at`.
fn describe_event(event: &Value, at: &str) -> (TextStyle, String) {
    let text = |field: &str| value_text(&event[field]);
    let took = match event["took_ms"].as_u64() {
        Some(ms) => format!(" in {:.1} s", ms as f64 / 1000.0),
        None => String::new(),
    };
    match event["kind"].as_str().unwrap_or_default() {
        "enrolled" => (TextStyle::Plain, "enrolled".to_owned()),
        "changed" => (TextStyle::Plain, format!("changed {}", text("fields"))),
        "removed" => (TextStyle::Plain, "removed".to_owned()),
        "requested" => (TextStyle::Plain, format!("requested: {}", cli_verb_name(&text("target")))),
        "state_changed" => {
            let (from, to) = (text("from"), text("to"));
            (crate::node::list::state_style(&to), format!("{from} → {to}: {}", text("reason")))
        }
        "action_done" => {
            (TextStyle::Plain, format!("completed {}{took}", action_text(&text("action"))))
        }
        "action_failed" => {
            let action = action_text(&text("action"));
            (TextStyle::Error, format!("failed to {action}{took}: {}", text("error")))
        }
        "waiting" => {
            let time = |field: &str, name: &str| {
                let time = event[field].as_str().map(|time| timestamps::relative_to(time, at));
                time.map(|time| format!("{name} {time}")).unwrap_or_default()
            };
            let (until, next) =
                (time("until", " until"), time("next_action_at", ", next action at"));
            (TextStyle::Progress, format!("waits for {}{until}{next}", text("reason")))
        }
        "power" => (
            TextStyle::Plain,
            format!("power {} → {}: {}", text("from"), text("to"), text("reason")),
        ),
        "maintenance" => {
            let on = if event["on"] == true { "into" } else { "out of" };
            let reason = text("reason");
            let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
            (TextStyle::Plain, format!("{on} maintenance{reason}"))
        }
        "note" | "network_activity" => {
            (TextStyle::Plain, format!("{}: {}", text("by"), text("text")))
        }
        "agent_call" => (TextStyle::Plain, format!("agent: {}", text("call"))),
        "bmc_calls" => {
            let calls = event["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
            (TextStyle::Dim, format_bmc_calls(calls))
        }
        // Events of newer servers are printed as JSON.
        _ => (TextStyle::Plain, event.to_string()),
    }
}

/// Formats an action. Names of steps contain a dot and are kept as they are.
fn action_text(name: &str) -> String {
    let word =
        |word: &str| if word.contains('.') { word.to_owned() } else { word.replace('_', " ") };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Formats calls to a BMC and an agent, with their results.
fn format_bmc_calls(calls: &[Value]) -> String {
    let mut text = String::new();
    let mut last = "";
    for call in calls {
        let request = value_text(&call["request"]);
        let (peer, request) = match request.strip_prefix("agent: ") {
            Some(request) => ("agent", request),
            None => ("BMC", request.as_str()),
        };
        if !text.is_empty() {
            text.push_str("; ");
        }
        if peer != last {
            text.push_str(&format!("{peer}: "));
            last = peer;
        }
        text.push_str(&format!("{request} → {}", value_text(&call["result"])));
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::{TestResponse, start_server};

    /// Events during a disconnection are requested, even if none was received before.
    #[tokio::test]
    async fn resumes_after_the_newest_event() {
        let mut streams = 0;
        let (context, log) = start_server(move |request| {
            if request.line.starts_with("GET /v1/ferrite/fleet?") {
                return TestResponse::Json(200, json!({"seq": 41, "nodes": []}));
            }
            streams += 1;
            match streams {
                // The first stream ends at once, then the server restarts behind its proxy.
                1 => TestResponse::Json(200, Value::Null),
                2 => TestResponse::Json(503, Value::Null),
                _ => TestResponse::Json(403, json!({"error_message": "no more"})),
            }
        });
        let ended = follow_until_error(&context, Some("u"), None, OutputFormat::Table).await;
        assert_eq!(ended.unwrap_err().exit_code(), CliExitCode::NotAuthorised);
        let log = log.lock().unwrap();
        assert_eq!(log[1..], ["GET /v1/ferrite/events?node=u&after=41"; 3], "{log:?}");
    }

    #[test]
    fn formats_journal_entries() {
        let entries = [
            json!({"kind": "requested", "target": "active"}),
            json!({"kind": "state_changed", "from": "manageable", "to": "cleaning", "reason": "requested by a user"}),
            json!({"kind": "action_done", "action": "prepare_cleaning", "took_ms": 1240}),
            json!({"kind": "action_failed", "action": "power_on", "took_ms": 50, "error": "no\nresponse"}),
            json!({"kind": "action_done", "action": "deploy.write_image", "took_ms": 100}),
            json!({"kind": "waiting", "reason": "agent heartbeat", "until": "2026-01-01T10:05:00.5+00:00"}),
            json!({"kind": "waiting", "reason": "BMC response", "until": "2026-01-02T00:00:00Z",
                   "next_action_at": "2026-01-01T10:00:07Z"}),
            json!({"kind": "bmc_calls", "calls": [
                {"request": "GET /redfish/v1", "result": "200"},
                {"request": "agent: GET commands", "result": "ok"},
                {"request": "agent: GET commands/1", "result": "ok"},
                {"request": "POST Reset", "result": "204"},
            ]}),
            json!({"kind": "maintenance", "on": true, "reason": "fan"}),
            json!({"kind": "invented", "later": 1}),
        ];
        let lines: String = entries
            .iter()
            .map(|event| {
                let actor = json!({"kind": "user", "name": "ann"});
                let entry =
                    json!({"at": "2026-01-01T10:00:00.123456+00:00", "actor": actor, "event": event});
                format_entry(&entry, Some("n1"), OutputFormat::Table, Screen::plain())
            })
            .collect();
        expect![[r#"
            2026-01-01 10:00:00.123  n1  requested: deploy  (by ann)
            2026-01-01 10:00:00.123  n1  manageable → cleaning: requested by a user  (by ann)
            2026-01-01 10:00:00.123  n1  completed prepare cleaning in 1.2 s  (by ann)
            2026-01-01 10:00:00.123  n1  failed to power on in 0.1 s: no response  (by ann)
            2026-01-01 10:00:00.123  n1  completed deploy.write_image in 0.1 s  (by ann)
            2026-01-01 10:00:00.123  n1  waits for agent heartbeat until 10:05:00  (by ann)
            2026-01-01 10:00:00.123  n1  waits for BMC response until 2026-01-02 00:00:00, next action at 10:00:07  (by ann)
            2026-01-01 10:00:00.123  n1  BMC: GET /redfish/v1 → 200; agent: GET commands → ok; GET commands/1 → ok; BMC: POST Reset → 204  (by ann)
            2026-01-01 10:00:00.123  n1  into maintenance: fan  (by ann)
            2026-01-01 10:00:00.123  n1  {"kind":"invented","later":1}  (by ann)
        "#]]
        .assert_eq(&lines);
    }

    /// `UPDATE=1 cargo test -p web-ui` writes one sample of each kind of event to the file.
    #[test]
    fn describes_every_kind_of_event() {
        let samples = include_str!("../../../page-tests/unit/journal_events.json");
        let samples: Vec<Value> = serde_json::from_str(samples).unwrap();
        assert!(samples.len() > 10);
        for event in samples {
            let (_, text) = describe_event(&event, "2026-01-01T10:00:00Z");
            assert!(!text.contains("kind"), "no description of {event}");
        }
    }
}
