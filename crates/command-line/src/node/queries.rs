// SPDX-License-Identifier: Apache-2.0
//! Commands that show a node: fields, explanations of verbs, console, validation, inventory.

use std::time::SystemTime;

use clap::{Args, ValueEnum};
use ironic_client::{Method, QueryString, percent_encode};
use serde_json::{Value, json};

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::node::verbs::{Verb, parse_option_value};
use crate::output::{OutputArguments, OutputFormat};
use crate::screen::TextStyle;
use crate::selection::{self, NodeFilters, SelectedNode};
use crate::table::{self, OutputColumn, TableCell, value_cell};
use crate::timestamps;
use crate::wait;

const VALIDATION_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("INTERFACE", |row| value_cell(&row["interface"])),
    OutputColumn::new("RESULT", |row| match row["result"].as_bool() {
        Some(true) => TableCell::styled("ok", TextStyle::Success),
        Some(false) => TableCell::styled("not ok", TextStyle::Error),
        None => TableCell::styled("none", TextStyle::Dim),
    }),
    OutputColumn::new("REASON", |row| value_cell(&row["reason"])),
];

/// Options of `ferrite node show`.
#[derive(Args, Debug)]
pub(crate) struct NodeShowArguments {
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
    /// The verb: deploy, undeploy, provide, clean, inspect and others.
    verb: String,
    /// The steps of the request, as JSON or YAML: a text, or @FILE.
    #[arg(long, value_name = "STEPS")]
    steps: Option<String>,
    /// A runbook with the steps.
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
    /// Enable or disable the console, or attach this terminal to it; Ctrl-] detaches.
    action: Option<ConsoleAction>,
    #[command(flatten)]
    output: OutputArguments,
}

/// What to do with a console.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ConsoleAction {
    On,
    Off,
    Attach,
}

/// Options of `ferrite node validate`.
#[derive(Args, Debug)]
pub(crate) struct ValidateArguments {
    /// The machine.
    node: String,
    /// Check only these interfaces: power,management.
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

pub(crate) async fn show(
    context: &CliContext,
    arguments: &NodeShowArguments,
) -> Result<(), CliError> {
    let names = selection::expand_names(&arguments.nodes)?;
    let format = arguments.output.output;
    let mut nodes =
        selection::find_nodes(&context.api, &names, &NodeFilters::default(), None).await?;
    if format.is_machine_readable() {
        let text = match nodes.as_slice() {
            [node] => format.format_single(node, context.screen),
            several => format.format_list(several, &[], context.screen),
        };
        context.screen.print(&text);
        return Ok(());
    }
    for (index, node) in nodes.iter_mut().enumerate() {
        if index > 0 && format != OutputFormat::Name {
            context.screen.print("\n");
        }
        let is_in_progress = !node["target_provision_state"].is_null();
        let uuid = node["uuid"].as_str().unwrap_or_default().to_owned();
        if is_in_progress
            && let Ok(Some(reason)) = wait::fetch_wait_description(&context.api, &uuid).await
        {
            node["waits_for"] = json!(reason.with_time_left());
        }
        context.screen.print(&format.format_single(node, context.screen));
    }
    Ok(())
}

pub(crate) async fn explain(
    context: &CliContext,
    arguments: &ExplainArguments,
) -> Result<(), CliError> {
    let verb = Verb::parse(&arguments.verb)?;
    let request = explain_request(arguments, verb)?;
    let selected = select_node(context, &arguments.node).await?;
    let explained = fetch_explanation(context, &selected, verb, request).await?;
    let format = arguments.output.output;
    let text = match format {
        OutputFormat::Table | OutputFormat::Wide => {
            format_explanation(context, &selected, verb, &explained)
        }
        OutputFormat::Json | OutputFormat::Yaml | OutputFormat::Name => {
            format.format_single(&explained, context.screen)
        }
    };
    context.screen.print(&text);
    if explained["possible"] == true {
        return Ok(());
    }
    Err(CliError::Rejected(format!("{} is not possible on {}", verb.name(), selected.label)))
}

/// Builds the request with steps or a runbook; `None` without either.
fn explain_request(arguments: &ExplainArguments, verb: Verb) -> Result<Option<Value>, CliError> {
    let mut body = json!({ "target": verb.target() });
    let name = verb.name();
    match (&arguments.steps, &arguments.runbook, verb.steps_field()) {
        (None, None, _) => return Ok(None),
        (Some(steps), _, Some(field)) => body[field] = parse_option_value(steps, "--steps")?,
        (None, Some(runbook), Some("clean_steps" | "service_steps")) => {
            body["runbook"] = json!(runbook);
        }
        (Some(_), _, None) => return Err(CliError::Usage(format!("{name} takes no --steps"))),
        (None, Some(_), _) => return Err(CliError::Usage(format!("{name} takes no --runbook"))),
    }
    Ok(Some(body))
}

async fn fetch_explanation(
    context: &CliContext,
    selected: &SelectedNode,
    verb: Verb,
    request: Option<Value>,
) -> Result<Value, CliError> {
    let path = format!("/v1/ferrite/nodes/{}/explain", percent_encode(&selected.uuid));
    let plain = QueryString::new().with("target", verb.target()).append_to(&path);
    let Some(body) = request else {
        return require_ferrite(context.api.find(&plain).await?, "explain verbs");
    };
    match context.api.send(Method::POST, &path, Some(&body)).await {
        Ok(explained) => Ok(explained),
        // Either the runbook does not exist, or the server has no explanations.
        Err(error) if error.status() == Some(404) => {
            require_ferrite(context.api.find(&plain).await?, "explain verbs")?;
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Formats an explanation as text.
fn format_explanation(
    context: &CliContext,
    selected: &SelectedNode,
    verb: Verb,
    explained: &Value,
) -> String {
    let verb = verb.name();
    let paint = |tone, text: &str| context.screen.paint(tone, text);
    let (label, state) = (&selected.label, selected.state());
    let ends = explained["ends_in"].as_str().unwrap_or("?");
    let mut text = if explained["possible"] == true {
        let verb = paint(TextStyle::Success, &format!("{verb} is possible"));
        format!("{label} is {state}: {verb} and ends in {ends}\n")
    } else {
        let verb = paint(TextStyle::Error, &format!("{verb} is not possible"));
        format!("{label} is {state}: {verb}\n")
    };
    for obstacle in explained["obstacles"].as_array().into_iter().flatten() {
        text.push_str(&format!("  obstacle: {}\n", table::value_text(obstacle)));
    }
    for (step, number) in explained["plan"].as_array().into_iter().flatten().zip(1..) {
        text.push_str(&format!("  {number:>2}. {}\n", format_plan_step(step)));
    }
    if let Some(why) = explained["waiting"]["reason"].as_str() {
        let time = |field: &str, name: &str| {
            let time = explained["waiting"][field].as_str();
            let time = time.map(|time| timestamps::with_time_left(time, SystemTime::now()));
            time.map(|time| format!(", {name} {time}")).unwrap_or_default()
        };
        let (until, next) = (time("until", "until"), time("next_action_at", "next action at"));
        let position = wait::queue_position(&explained["waiting"]);
        let position = position.map(|position| format!(", {position}")).unwrap_or_default();
        let why = why.replace('_', " ");
        text.push_str(&format!("  currently waiting for {why}{position}{until}{next}\n"));
    }
    text
}

pub(crate) async fn console(
    context: &CliContext,
    arguments: &ConsoleArguments,
) -> Result<(), CliError> {
    let selected = select_node(context, &arguments.node).await?;
    let path = format!("{}/states/console", selected.path());
    let change = match arguments.action {
        Some(ConsoleAction::Attach) => return super::attach::attach(context, &selected).await,
        Some(ConsoleAction::On) => Some((true, "the console is being enabled")),
        Some(ConsoleAction::Off) => Some((false, "the console is being disabled")),
        None => None,
    };
    if let Some((enabled, note)) = change {
        context.api.send(Method::PUT, &path, Some(&json!({ "enabled": enabled }))).await?;
        context.screen.note(note);
    }
    let console = context.api.get(&path).await?;
    context.screen.print(&arguments.output.output.format_single(&console, context.screen));
    Ok(())
}

pub(crate) async fn validate(
    context: &CliContext,
    arguments: &ValidateArguments,
) -> Result<(), CliError> {
    let selected = select_node(context, &arguments.node).await?;
    let mut checks = context.api.get(&format!("{}/validate", selected.path())).await?;
    if let Some(all) = checks.as_object_mut().filter(|_| !arguments.interfaces.is_empty()) {
        if let Some(interface) = arguments.interfaces.iter().find(|it| !all.contains_key(*it)) {
            let known = all.keys().cloned().collect::<Vec<_>>().join(", ");
            let message = format!("unknown interface {interface:?}; known: {known}");
            return Err(CliError::Usage(message));
        }
        all.retain(|interface, _| arguments.interfaces.contains(interface));
    }
    // Ironic reports a failure for interfaces set to `no-…`, which the node does not use.
    let node = context.api.get(&selected.path()).await?;
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
        OutputFormat::Json | OutputFormat::Yaml => format.format_single(&checks, context.screen),
        OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name => {
            format.format_list(&rows, VALIDATION_COLUMNS, context.screen)
        }
    };
    context.screen.print(&text);
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| row["result"] == false)
        .filter_map(|row| row["interface"].as_str())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(CliError::Failed(format!("{}: validation of {} failed", selected.label, failed.join(", "))))
}

pub(crate) async fn inventory(
    context: &CliContext,
    arguments: &InventoryArguments,
) -> Result<(), CliError> {
    let selected = select_node(context, &arguments.node).await?;
    let found = context.api.find(&format!("{}/inventory", selected.path())).await?;
    let Some(found) = found else {
        let label = selected.label;
        return Err(CliError::NotFound(format!(
            "{label} has no inventory; inspect it with `ferrite node inspect {label}`"
        )));
    };
    let format = arguments.output.output;
    let shown = if format.is_machine_readable() { &found } else { &found["inventory"] };
    context.screen.print(&format.format_single(shown, context.screen));
    Ok(())
}

/// Finds one node by name.
pub(crate) async fn select_node(
    context: &CliContext,
    name: &str,
) -> Result<SelectedNode, CliError> {
    let node = selection::find_node(&context.api, name, Some(selection::FIELDS)).await?;
    Ok(SelectedNode::new(node))
}

/// Unwraps a response of Ferrite's own API; `None` means that the server is not a Ferrite.
pub(crate) fn require_ferrite(response: Option<Value>, what: &str) -> Result<Value, CliError> {
    response.ok_or_else(|| {
        CliError::Rejected(format!("this server cannot {what}; it is an Ironic, not a Ferrite"))
    })
}

/// Formats a step of a plan, a string or an object.
fn format_plan_step(step: &Value) -> String {
    let Value::Object(members) = step else { return table::value_text(step) };
    let present = members.iter().filter(|(_, value)| !value.is_null());
    let pairs: Vec<String> =
        present.map(|(key, value)| format!("{key} {}", table::value_text(value))).collect();
    pairs.join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::{TestResponse, start_server};

    #[derive(Parser)]
    struct ExplainParser {
        #[command(flatten)]
        arguments: ExplainArguments,
    }

    fn parsed(words: &[&str]) -> ExplainArguments {
        ExplainParser::parse_from(["explain", "n"].iter().chain(words)).arguments
    }

    #[test]
    fn sends_steps_and_runbooks_with_the_verb() {
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
            (&["depoy"], Err("unknown verb \"depoy\"; did you mean \"deploy\"?")),
            (
                &["bogus"],
                Err(
                    "unknown verb \"bogus\"; known verbs: manage, provide, inspect, adopt, clean, \
                     service, deploy, rebuild, undeploy, rescue, unrescue, abort, unhold",
                ),
            ),
        ] {
            let arguments = parsed(words);
            let body =
                Verb::parse(&arguments.verb).and_then(|verb| explain_request(&arguments, verb));
            let body = body.map_err(|failure| failure.to_string());
            assert_eq!(body, expected.map_err(str::to_owned), "{words:?}");
        }
        for (word, verb) in [("active", Verb::Deploy), ("deleted", Verb::Undeploy)] {
            assert_eq!(Verb::parse(word).unwrap(), verb);
        }
    }

    /// Scripts check the exit code.
    #[tokio::test]
    async fn impossible_verb_has_the_exit_code_rejected() {
        for (possible, expected) in [(true, None), (false, Some(CliExitCode::Rejected))] {
            for words in [&["clean"][..], &["clean", "--runbook", "CUSTOM_A"]] {
                let (context, _) =
                    start_server(move |request| match request.line.contains("/explain") {
                        true => TestResponse::Json(
                            200,
                            json!({"possible": possible, "ends_in": "manageable"}),
                        ),
                        false => TestResponse::Json(200, json!({"uuid": "u", "name": "n"})),
                    });
                let ended = explain(&context, &parsed(words)).await;
                assert_eq!(ended.err().map(|failure| failure.exit_code()), expected, "{words:?}");
            }
        }
    }

    #[tokio::test]
    async fn unknown_runbook_is_reported_as_such() {
        let (context, _) = start_server(|request| match request.line.starts_with("POST") {
            true => TestResponse::Json(404, json!({"error_message": "there is no runbook"})),
            false => TestResponse::Json(200, json!({"uuid": "u", "name": "n"})),
        });
        let failure = explain(&context, &parsed(&["clean", "--runbook", "x"])).await.unwrap_err();
        assert_eq!(
            (failure.to_string().as_str(), failure.exit_code()),
            ("there is no runbook", CliExitCode::NotFound)
        );
    }
}
