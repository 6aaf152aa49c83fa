// SPDX-License-Identifier: Apache-2.0
//! Looking at machines: everything about them, what a verb would do, consoles, checks, inventories.

use std::time::SystemTime;

use clap::{Args, ValueEnum};
use ironic_client::{Method, Query, segment};
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::failure::Failure;
use crate::moments;
use crate::node::verbs::{Verb, written};
use crate::output::{Format, OutputArguments};
use crate::screen::Tone;
use crate::selection::{self, Chosen, Filters};
use crate::table::{self, Cell, Column, plain};
use crate::wait;

const CHECKS: &[Column] = &[
    Column::new("INTERFACE", |row| plain(&row["interface"])),
    Column::new("RESULT", |row| match row["result"].as_bool() {
        Some(true) => Cell::toned("ok", Tone::Good),
        Some(false) => Cell::toned("not ok", Tone::Bad),
        None => Cell::toned("none", Tone::Faint),
    }),
    Column::new("REASON", |row| plain(&row["reason"])),
];

/// Options of `ferrite node show`.
#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    /// Names, UUIDs or noderanges.
    #[arg(value_name = "NODES", required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite node explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArguments {
    /// The machine.
    node: String,
    /// What it would be asked: deploy, undeploy, provide, clean, inspect and so on.
    verb: String,
    /// The steps it would be asked to do, as JSON or YAML: a text, or @FILE.
    #[arg(long, value_name = "STEPS")]
    steps: Option<String>,
    /// A runbook that has the steps.
    #[arg(long, value_name = "NAME", conflicts_with = "steps")]
    runbook: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite node console`.
#[derive(Args, Debug)]
pub(crate) struct ConsoleArguments {
    /// The machine.
    node: String,
    /// Open or close it, or connect this terminal to it; Ctrl-] leaves.
    switch: Option<Switch>,
    #[command(flatten)]
    output: OutputArguments,
}

/// What to do with a console.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Switch {
    On,
    Off,
    Attach,
}

/// Options of `ferrite node validate`.
#[derive(Args, Debug)]
pub(crate) struct ValidateArguments {
    /// The machine.
    node: String,
    /// Only these interfaces: power,management.
    #[arg(long = "interface", value_name = "INTERFACE", value_delimiter = ',')]
    interfaces: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite node inventory`.
#[derive(Args, Debug)]
pub(crate) struct InventoryArguments {
    /// The machine.
    node: String,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn show(desk: &Desk, arguments: &ShowArguments) -> Result<(), Failure> {
    let names = selection::names(&arguments.nodes)?;
    let format = arguments.output.output;
    let mut nodes = selection::rows(&desk.api, &names, &Filters::default(), None).await?;
    if format.is_for_programs() {
        let text = match nodes.as_slice() {
            [node] => format.single(node, desk.screen),
            several => format.list(several, &[], desk.screen),
        };
        desk.screen.print(&text);
        return Ok(());
    }
    for (place, node) in nodes.iter_mut().enumerate() {
        if place > 0 && format != Format::Name {
            desk.screen.print("\n");
        }
        let is_moving = !node["target_provision_state"].is_null();
        let uuid = node["uuid"].as_str().unwrap_or_default().to_owned();
        if is_moving && let Ok(Some(reason)) = wait::waiting(&desk.api, &uuid).await {
            node["waits_for"] = json!(reason.with_rest());
        }
        desk.screen.print(&format.single(node, desk.screen));
    }
    Ok(())
}

pub(crate) async fn explain(desk: &Desk, arguments: &ExplainArguments) -> Result<(), Failure> {
    let verb = Verb::named(&arguments.verb)?;
    let asked = asked(arguments, verb)?;
    let chosen = chosen(desk, &arguments.node).await?;
    let explained = explained(desk, &chosen, verb, asked).await?;
    let format = arguments.output.output;
    let text = match format {
        Format::Table | Format::Wide => told(desk, &chosen, verb, &explained),
        Format::Json | Format::Yaml | Format::Name => format.single(&explained, desk.screen),
    };
    desk.screen.print(&text);
    if explained["possible"] == true {
        return Ok(());
    }
    Err(Failure::Refused(format!("{} is not possible on {}", verb.word(), chosen.label)))
}

/// What goes with the verb, if anything does.
fn asked(arguments: &ExplainArguments, verb: Verb) -> Result<Option<Value>, Failure> {
    let mut body = json!({ "target": verb.target() });
    let word = verb.word();
    match (&arguments.steps, &arguments.runbook, verb.steps_field()) {
        (None, None, _) => return Ok(None),
        (Some(steps), _, Some(field)) => body[field] = written(steps, "--steps")?,
        (None, Some(runbook), Some("clean_steps" | "service_steps")) => {
            body["runbook"] = json!(runbook);
        }
        (Some(_), _, None) => return Err(Failure::Usage(format!("{word} takes no --steps"))),
        (None, Some(_), _) => return Err(Failure::Usage(format!("{word} takes no --runbook"))),
    }
    Ok(Some(body))
}

async fn explained(
    desk: &Desk,
    chosen: &Chosen,
    verb: Verb,
    asked: Option<Value>,
) -> Result<Value, Failure> {
    let path = format!("/v1/ferrite/nodes/{}/explain", segment(&chosen.uuid));
    let plain = Query::new().with("target", verb.target()).on(&path);
    let Some(body) = asked else {
        return of_ferrite(desk.api.find(&plain).await?, "explain verbs");
    };
    match desk.api.send(Method::POST, &path, Some(&body)).await {
        Ok(explained) => Ok(explained),
        // There may be no such runbook, or nobody who explains.
        Err(error) if error.status() == Some(404) => {
            of_ferrite(desk.api.find(&plain).await?, "explain verbs")?;
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// What would happen, for people.
fn told(desk: &Desk, chosen: &Chosen, verb: Verb, explained: &Value) -> String {
    let verb = verb.word();
    let paint = |tone, text: &str| desk.screen.paint(tone, text);
    let (label, state) = (&chosen.label, chosen.state());
    let ends = explained["ends_in"].as_str().unwrap_or("?");
    let mut text = if explained["possible"] == true {
        let verb = paint(Tone::Good, &format!("{verb} is possible"));
        format!("{label} is {state}: {verb} and ends in {ends}\n")
    } else {
        let verb = paint(Tone::Bad, &format!("{verb} is not possible"));
        format!("{label} is {state}: {verb}\n")
    };
    for obstacle in explained["obstacles"].as_array().into_iter().flatten() {
        text.push_str(&format!("  in its way: {}\n", table::brief(obstacle)));
    }
    for (step, number) in explained["plan"].as_array().into_iter().flatten().zip(1..) {
        text.push_str(&format!("  {number:>2}. {}\n", words(step)));
    }
    if let Some(why) = explained["waiting"]["why"].as_str() {
        let until = explained["waiting"]["until"].as_str();
        let until = until.map(|until| moments::to_come(until, SystemTime::now()));
        let until = until.map(|until| format!(", until {until}")).unwrap_or_default();
        text.push_str(&format!("  it waits for {} now{until}\n", why.replace('_', " ")));
    }
    text
}

pub(crate) async fn console(desk: &Desk, arguments: &ConsoleArguments) -> Result<(), Failure> {
    let chosen = chosen(desk, &arguments.node).await?;
    let path = format!("{}/states/console", chosen.path());
    let switched = match arguments.switch {
        Some(Switch::Attach) => return super::attach::attach(desk, &chosen).await,
        Some(Switch::On) => Some((true, "the console is being opened")),
        Some(Switch::Off) => Some((false, "the console is being closed")),
        None => None,
    };
    if let Some((enabled, note)) = switched {
        desk.api.send(Method::PUT, &path, Some(&json!({ "enabled": enabled }))).await?;
        desk.screen.note(note);
    }
    let console = desk.api.get(&path).await?;
    desk.screen.print(&arguments.output.output.single(&console, desk.screen));
    Ok(())
}

pub(crate) async fn validate(desk: &Desk, arguments: &ValidateArguments) -> Result<(), Failure> {
    let chosen = chosen(desk, &arguments.node).await?;
    let mut checks = desk.api.get(&format!("{}/validate", chosen.path())).await?;
    if let Some(all) = checks.as_object_mut().filter(|_| !arguments.interfaces.is_empty()) {
        if let Some(interface) = arguments.interfaces.iter().find(|it| !all.contains_key(*it)) {
            let known = all.keys().cloned().collect::<Vec<_>>().join(", ");
            let told = format!("there is no interface {interface:?}; there are {known}");
            return Err(Failure::Usage(told));
        }
        all.retain(|interface, _| arguments.interfaces.contains(interface));
    }
    // What a machine is not to have, it does not lack: an Ironic says no to that, too.
    let node = desk.api.get(&chosen.path()).await?;
    let has = |interface: &str| {
        let name = node[format!("{interface}_interface")].as_str();
        name.is_some_and(|name| !name.starts_with("no-"))
    };
    let rows: Vec<Value> = checks
        .as_object()
        .into_iter()
        .flatten()
        .map(|(interface, check)| {
            let mut row = check.clone();
            row["interface"] = json!(interface);
            if !has(interface) {
                row["result"] = Value::Null;
            }
            row
        })
        .collect();
    let format = arguments.output.output;
    let text = match format {
        Format::Json | Format::Yaml => format.single(&checks, desk.screen),
        Format::Table | Format::Wide | Format::Name => format.list(&rows, CHECKS, desk.screen),
    };
    desk.screen.print(&text);
    let wrong: Vec<&str> = rows
        .iter()
        .filter(|row| row["result"] == false)
        .filter_map(|row| row["interface"].as_str())
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!("{} lacks something for {}", chosen.label, wrong.join(", "))))
}

pub(crate) async fn inventory(desk: &Desk, arguments: &InventoryArguments) -> Result<(), Failure> {
    let chosen = chosen(desk, &arguments.node).await?;
    let found = desk.api.find(&format!("{}/inventory", chosen.path())).await?;
    let Some(found) = found else {
        let label = chosen.label;
        return Err(Failure::NotFound(format!(
            "{label} was not inspected yet: `ferrite node inspect {label}`"
        )));
    };
    let format = arguments.output.output;
    let shown = if format.is_for_programs() { &found } else { &found["inventory"] };
    desk.screen.print(&format.single(shown, desk.screen));
    Ok(())
}

/// One machine by its name.
pub(crate) async fn chosen(desk: &Desk, name: &str) -> Result<Chosen, Failure> {
    let node = selection::one(&desk.api, name, Some(selection::FIELDS)).await?;
    Ok(Chosen::of(node))
}

/// What only a Ferrite can answer.
pub(crate) fn of_ferrite(answer: Option<Value>, what: &str) -> Result<Value, Failure> {
    answer.ok_or_else(|| {
        Failure::Refused(format!("this server cannot {what}: it is an Ironic and no Ferrite"))
    })
}

/// A step of a plan, however the server tells it.
fn words(step: &Value) -> String {
    let Value::Object(members) = step else { return table::brief(step) };
    let said = members.iter().filter(|(_, value)| !value.is_null());
    let pairs: Vec<String> =
        said.map(|(key, value)| format!("{key} {}", table::brief(value))).collect();
    pairs.join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::failure::Code;
    use crate::test_server::{Answer, server};

    #[derive(Parser)]
    struct Explain {
        #[command(flatten)]
        arguments: ExplainArguments,
    }

    fn parsed(words: &[&str]) -> ExplainArguments {
        Explain::parse_from(["explain", "n"].iter().chain(words)).arguments
    }

    #[test]
    fn what_goes_with_a_verb_is_sent_with_it() {
        let steps = r#"[{"interface": "bios", "step": "factory_reset"}]"#;
        let list: Value = serde_json::from_str(steps).unwrap();
        for (words, expected) in [
            (&["provide"][..], Ok(None)),
            (
                &["clean", "--steps", steps],
                Ok(Some(json!({"target": "clean", "clean_steps": list}))),
            ),
            (
                &["deploy", "--steps", steps],
                Ok(Some(json!({"target": "active", "deploy_steps": list}))),
            ),
            (
                &["service", "--runbook", "CUSTOM_A"],
                Ok(Some(json!({"target": "service", "runbook": "CUSTOM_A"}))),
            ),
            (&["manage", "--steps", steps], Err("manage takes no --steps")),
            (&["deploy", "--runbook", "CUSTOM_A"], Err("deploy takes no --runbook")),
            (&["depoy"], Err("there is no verb \"depoy\"; did you mean \"deploy\"?")),
            (
                &["bogus"],
                Err(
                    "there is no verb \"bogus\"; there are manage, provide, inspect, adopt, clean, \
                     service, deploy, rebuild, undeploy, rescue, unrescue, abort, unhold",
                ),
            ),
        ] {
            let arguments = parsed(words);
            let body = Verb::named(&arguments.verb).and_then(|verb| asked(&arguments, verb));
            let body = body.map_err(|failure| failure.to_string());
            assert_eq!(body, expected.map_err(str::to_owned), "{words:?}");
        }
        for (word, verb) in [("active", Verb::Deploy), ("deleted", Verb::Undeploy)] {
            assert_eq!(Verb::named(word).unwrap(), verb);
        }
    }

    /// A script that asks whether something can be done reads the exit code.
    #[tokio::test]
    async fn what_is_not_possible_is_a_refusal() {
        for (possible, expected) in [(true, None), (false, Some(Code::Refused))] {
            for words in [&["clean"][..], &["clean", "--runbook", "CUSTOM_A"]] {
                let (desk, _) = server(move |asked| match asked.line.contains("/explain") {
                    true => {
                        Answer::Json(200, json!({"possible": possible, "ends_in": "manageable"}))
                    }
                    false => Answer::Json(200, json!({"uuid": "u", "name": "n"})),
                });
                let ended = explain(&desk, &parsed(words)).await;
                assert_eq!(ended.err().map(|failure| failure.code()), expected, "{words:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_runbook_that_is_not_there_is_no_lack_of_a_ferrite() {
        let (desk, _) = server(|asked| match asked.line.starts_with("POST") {
            true => Answer::Json(404, json!({"error_message": "there is no runbook"})),
            false => Answer::Json(200, json!({"uuid": "u", "name": "n"})),
        });
        let failure = explain(&desk, &parsed(&["clean", "--runbook", "x"])).await.unwrap_err();
        assert_eq!(
            (failure.to_string().as_str(), failure.code()),
            ("there is no runbook", Code::NotFound)
        );
    }
}
