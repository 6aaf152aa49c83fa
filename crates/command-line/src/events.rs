// SPDX-License-Identifier: Apache-2.0
//! What happens at a Ferrite, as it happens, in lines.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use ironic_client::{ApiError, Query};
use serde_json::Value;

use crate::desk::{ConnectionArguments, Desk};
use crate::failure::Failure;
use crate::moments;
use crate::node::look::chosen;
use crate::output::{Format, OutputArguments, name_of};
use crate::screen::{Screen, Tone, one_line};
use crate::table::brief;

/// How long a server may be away before it is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Options of `ferrite events`.
#[derive(Args, Debug)]
pub struct EventsArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Of this machine only.
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Begin after the event of this number.
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(arguments: &EventsArguments) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let node = match &arguments.node {
        Some(name) => Some(chosen(&desk, name).await?.uuid),
        None => None,
    };
    follow(&desk, node.as_deref(), arguments.after, arguments.output.output).await
}

/// Shows events until Ctrl-C. A connection that is lost is made again, and nothing is missed.
pub(crate) async fn follow(
    desk: &Desk,
    node: Option<&str>,
    after: Option<u64>,
    format: Format,
) -> Result<(), Failure> {
    tokio::select! {
        ended = follow_on(desk, node, after, format) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn follow_on(
    desk: &Desk,
    node: Option<&str>,
    mut after: Option<u64>,
    format: Format,
) -> Result<(), Failure> {
    let mut names = Names { desk: desk.clone(), known: HashMap::new() };
    let mut was_there = false;
    if after.is_none() {
        // Until something happens nobody else says where to go on.
        after = now(desk).await.map_err(not_there)?;
    }
    loop {
        match desk.api.events(node, after).await {
            Ok(mut events) => {
                was_there = true;
                while let Ok(Some(event)) = events.next().await {
                    after = event.id.or(after);
                    let name =
                        if node.is_none() { Some(names.of(&event.data).await) } else { None };
                    desk.screen.print(&line(&event.data, name.as_deref(), format, desk.screen));
                }
            }
            Err(error) if was_there && error.is_absence() => {}
            Err(error) => return Err(not_there(error)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The number of the event that happened last, where the server tells.
async fn now(desk: &Desk) -> Result<Option<u64>, ApiError> {
    // Nothing has changed after the end of all numbers, so that no machines are told of.
    let path = Query::new().with("after", &i64::MAX.to_string()).on("/v1/ferrite/fleet");
    Ok(desk.api.find(&path).await?.and_then(|fleet| fleet["seq"].as_u64()))
}

fn not_there(error: ApiError) -> Failure {
    if error.status() == Some(404) {
        let told = "this server has no event stream: it is an Ironic and no Ferrite";
        return Failure::Refused(told.to_owned());
    }
    error.into()
}

/// Names of machines, asked for once.
struct Names {
    desk: Desk,
    known: HashMap<String, String>,
}

impl Names {
    async fn of(&mut self, event: &Value) -> String {
        let uuid = event["node_uuid"].as_str().unwrap_or_default();
        if let Some(name) = self.known.get(uuid) {
            return name.clone();
        }
        let query = Query::new().with("fields", "uuid,name");
        // A machine that is gone keeps its UUID.
        let found = self.desk.api.find(&query.on(&format!("/v1/nodes/{uuid}"))).await;
        let name = match found {
            Ok(Some(node)) => name_of(&node).to_owned(),
            Ok(None) | Err(_) => uuid.to_owned(),
        };
        self.known.insert(uuid.to_owned(), name.clone());
        name
    }
}

/// One entry of a journal.
pub(crate) fn line(entry: &Value, name: Option<&str>, format: Format, screen: Screen) -> String {
    if format.is_for_programs() {
        // One object a line can be read while it comes.
        return format!("{entry}\n");
    }
    let at = entry["at"].as_str().unwrap_or_default();
    let (tone, text) = happening(&entry["what"], at);
    let at = moment(at);
    let who = who(&entry["who"]);
    let name = name.map(|name| format!("{name}  ")).unwrap_or_default();
    let who = if who.is_empty() { String::new() } else { format!("  ({who})") };
    let clean = one_line(&text);
    format!("{}  {name}{}{who}\n", screen.paint(Tone::Faint, &at), screen.paint(tone, &clean))
}

/// Milliseconds are enough for people; all moments of a server are in UTC.
fn moment(at: &str) -> String {
    at.get(..23).unwrap_or(at).replace('T', " ")
}

/// Who made it happen; that a conductor did is the usual case, and not worth a word.
fn who(actor: &Value) -> String {
    let text = |field: &str| actor[field].as_str().unwrap_or_default().to_owned();
    match actor["kind"].as_str().unwrap_or_default() {
        "user" if actor["name"].is_string() => format!("by {}", text("name")),
        "user" => "by a user".to_owned(),
        "machine" => text("address"),
        "agent" => "agent".to_owned(),
        _ => String::new(),
    }
}

/// What happened at a moment, in words.
fn happening(what: &Value, at: &str) -> (Tone, String) {
    let text = |field: &str| brief(&what[field]);
    let took = match what["took_ms"].as_u64() {
        Some(ms) => format!(" in {:.1} s", ms as f64 / 1000.0),
        None => String::new(),
    };
    match what["kind"].as_str().unwrap_or_default() {
        "enrolled" => (Tone::Plain, "enrolled".to_owned()),
        "changed" => (Tone::Plain, format!("changed {}", text("fields"))),
        "removed" => (Tone::Plain, "removed".to_owned()),
        "asked" => (Tone::Plain, format!("asked for {}", text("target"))),
        "entered" => {
            let (from, to) = (text("from"), text("to"));
            (crate::node::list::tone(&to), format!("{from} → {to}: {}", text("why")))
        }
        "did" => (Tone::Plain, format!("did {}{took}", action(&text("action")))),
        "failed" => {
            let action = action(&text("action"));
            (Tone::Bad, format!("failed to {action}{took}: {}", text("error")))
        }
        "waiting" => {
            let until = what["until"].as_str().map(|until| moments::seen_from(until, at));
            let until = until.map(|until| format!(" until {until}"));
            let why = text("why").replace('_', " ");
            (Tone::Busy, format!("waits for {why}{}", until.unwrap_or_default()))
        }
        "power" => {
            (Tone::Plain, format!("power {} → {}: {}", text("from"), text("to"), text("why")))
        }
        "maintenance" => {
            let on = if what["on"] == true { "into" } else { "out of" };
            let reason = text("reason");
            let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
            (Tone::Plain, format!("{on} maintenance{reason}"))
        }
        "noted" | "seen" => (Tone::Plain, format!("{}: {}", text("by"), text("text"))),
        "heard" => (Tone::Plain, format!("agent: {}", text("what"))),
        "bmc_calls" => {
            let calls = what["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
            (Tone::Faint, conversation(calls))
        }
        // A newer server may tell of more.
        _ => (Tone::Plain, what.to_string()),
    }
}

/// What was done, in words. The names of steps have a dot, and are written as they are everywhere.
fn action(name: &str) -> String {
    let word =
        |word: &str| if word.contains('.') { word.to_owned() } else { word.replace('_', " ") };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// What a machine's BMC and its agent were asked, and what they said.
fn conversation(calls: &[Value]) -> String {
    let mut told = String::new();
    let mut last = "";
    for call in calls {
        let what = brief(&call["what"]);
        let (who, what) = match what.strip_prefix("agent: ") {
            Some(what) => ("agent", what),
            None => ("BMC", what.as_str()),
        };
        if !told.is_empty() {
            told.push_str("; ");
        }
        if who != last {
            told.push_str(&format!("{who}: "));
            last = who;
        }
        told.push_str(&format!("{what} → {}", brief(&call["result"])));
    }
    told
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::failure::Code;
    use crate::test_server::{Answer, server};

    /// What happens while the connection is lost is asked for, even if nothing had happened before.
    #[tokio::test]
    async fn nothing_is_missed_from_the_first_moment_on() {
        let mut streams = 0;
        let (desk, log) = server(move |asked| {
            if asked.line.starts_with("GET /v1/ferrite/fleet?") {
                return Answer::Json(200, json!({"seq": 41, "nodes": []}));
            }
            streams += 1;
            match streams {
                // It ends at once; then the server starts again behind its proxy.
                1 => Answer::Json(200, Value::Null),
                2 => Answer::Json(503, Value::Null),
                _ => Answer::Json(403, json!({"error_message": "no more"})),
            }
        });
        let ended = follow_on(&desk, Some("u"), None, Format::Table).await;
        assert_eq!(ended.unwrap_err().code(), Code::NotAuthorised);
        let log = log.lock().unwrap();
        assert_eq!(log[1..], ["GET /v1/ferrite/events?node=u&after=41"; 3], "{log:?}");
    }

    #[test]
    fn entries_are_lines() {
        let entries = [
            json!({"kind": "asked", "target": "provide"}),
            json!({"kind": "entered", "from": "manageable", "to": "cleaning", "why": "provide was asked for"}),
            json!({"kind": "did", "action": "prepare_cleaning", "took_ms": 1240}),
            json!({"kind": "failed", "action": "power_on", "took_ms": 50, "error": "no\nanswer"}),
            json!({"kind": "did", "action": "deploy.write_image", "took_ms": 100}),
            json!({"kind": "waiting", "why": "agent_heartbeat", "until": "2026-01-01T10:05:00.5+00:00"}),
            json!({"kind": "waiting", "why": "retry", "until": "2026-01-02T00:00:00Z"}),
            json!({"kind": "bmc_calls", "calls": [
                {"what": "GET /redfish/v1", "result": "200"},
                {"what": "agent: GET commands", "result": "ok"},
                {"what": "agent: GET commands/1", "result": "ok"},
                {"what": "POST Reset", "result": "204"},
            ]}),
            json!({"kind": "maintenance", "on": true, "reason": "fan"}),
            json!({"kind": "invented", "later": 1}),
        ];
        let lines: String = entries
            .iter()
            .map(|what| {
                let who = json!({"kind": "user", "name": "ann"});
                let entry =
                    json!({"at": "2026-01-01T10:00:00.123456+00:00", "who": who, "what": what});
                line(&entry, Some("n1"), Format::Table, Screen::plain())
            })
            .collect();
        expect![[r#"
            2026-01-01 10:00:00.123  n1  asked for provide  (by ann)
            2026-01-01 10:00:00.123  n1  manageable → cleaning: provide was asked for  (by ann)
            2026-01-01 10:00:00.123  n1  did prepare cleaning in 1.2 s  (by ann)
            2026-01-01 10:00:00.123  n1  failed to power on in 0.1 s: no answer  (by ann)
            2026-01-01 10:00:00.123  n1  did deploy.write_image in 0.1 s  (by ann)
            2026-01-01 10:00:00.123  n1  waits for agent heartbeat until 10:05:00  (by ann)
            2026-01-01 10:00:00.123  n1  waits for retry until 2026-01-02 00:00:00  (by ann)
            2026-01-01 10:00:00.123  n1  BMC: GET /redfish/v1 → 200; agent: GET commands → ok; GET commands/1 → ok; BMC: POST Reset → 204  (by ann)
            2026-01-01 10:00:00.123  n1  into maintenance: fan  (by ann)
            2026-01-01 10:00:00.123  n1  {"kind":"invented","later":1}  (by ann)
        "#]]
        .assert_eq(&lines);
    }
}
