// SPDX-License-Identifier: Apache-2.0
//! `ferrite node list`.

use clap::Args;
use serde_json::Value;

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::output::{OutputArguments, OutputFormat, display_name};
use crate::screen::TextStyle;
use crate::selection::{self, NodeFilters};
use crate::table::{OutputColumn, TableCell, value_cell};
use crate::watch::{self, WatchArguments};

const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,\
    target_power_state,maintenance,maintenance_reason,fault,last_error,resource_class,owner,\
    instance_uuid,driver";

const COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("NAME", |node| display_name(node).to_owned().into()),
    OutputColumn::new("STATE", state_cell),
    OutputColumn::new("POWER", power_cell),
    OutputColumn::new("CLASS", |node| value_cell(&node["resource_class"])),
    OutputColumn::new("DRIVER", |node| value_cell(&node["driver"])),
    OutputColumn::wide("UUID", |node| value_cell(&node["uuid"])),
    OutputColumn::wide("INSTANCE", |node| value_cell(&node["instance_uuid"])),
    OutputColumn::wide("OWNER", |node| value_cell(&node["owner"])),
    OutputColumn::wide("LESSEE", |node| value_cell(&node["lessee"])),
    OutputColumn::wide("CONDUCTOR", |node| value_cell(&node["conductor"])),
    OutputColumn::wide("GROUP", |node| value_cell(&node["conductor_group"])),
    OutputColumn::wide("TRAITS", |node| value_cell(&node["traits"])),
    OutputColumn::truncated("NOTE", note_cell),
];

/// Options of `ferrite node list`.
#[derive(Args, Debug)]
pub(crate) struct NodeListArguments {
    /// Names, UUIDs or noderanges such as rack1-[01-12]; @FILE reads them from a file, - from standard
    /// input. Without names, all machines.
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    #[command(flatten)]
    filters: NodeFilters,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    watch: WatchArguments,
}

pub(crate) async fn run(
    context: &CliContext,
    arguments: &NodeListArguments,
) -> Result<(), CliError> {
    let names = selection::expand_names(&arguments.nodes)?;
    let format = arguments.output.output;
    let fields = match format {
        OutputFormat::Table => Some(FIELDS),
        // Ironic 39.0 returns 500 for the field `conductor`, so `wide` requests all fields.
        OutputFormat::Wide | OutputFormat::Json | OutputFormat::Yaml => None,
        OutputFormat::Name => Some("uuid,name,provision_state"),
    };
    let rows =
        async || selection::find_nodes(&context.api, &names, &arguments.filters, fields).await;
    watch::show_list(context, &arguments.watch, format, COLUMNS, rows).await
}

fn state_cell(node: &Value) -> TableCell {
    let state = node["provision_state"].as_str().unwrap_or_default();
    let text = match node["target_provision_state"].as_str() {
        Some(target) if target != state => format!("{state} → {target}"),
        Some(_) | None => state.to_owned(),
    };
    TableCell::styled(text, state_style(state))
}

/// The style of a provision state.
pub(crate) fn state_style(state: &str) -> TextStyle {
    match state {
        "active" | "available" => TextStyle::Success,
        "enroll" | "manageable" | "rescue" => TextStyle::Plain,
        "error" => TextStyle::Error,
        state if state.ends_with("failed") => TextStyle::Error,
        _ => TextStyle::Progress,
    }
}

fn power_cell(node: &Value) -> TableCell {
    let short = |text: &str| text.trim_start_matches("power ").to_owned();
    let power = node["power_state"].as_str().map_or_else(|| "?".to_owned(), short);
    match node["target_power_state"].as_str() {
        Some(target) => {
            TableCell::styled(format!("{power} → {}", short(target)), TextStyle::Progress)
        }
        None => power.into(),
    }
}

/// What the operator should notice: maintenance, then faults, then the last error.
fn note_cell(node: &Value) -> TableCell {
    let text = |field: &str| node[field].as_str().filter(|text| !text.is_empty());
    let mut notes = Vec::new();
    if node["maintenance"] == true {
        notes.push(match text("maintenance_reason") {
            Some(reason) => format!("maintenance: {reason}"),
            None => "maintenance".to_owned(),
        });
    }
    notes.extend(text("fault").map(|fault| format!("fault: {fault}")));
    let state = text("provision_state").unwrap_or_default();
    let is_broken =
        matches!(state_style(state), TextStyle::Error) || state == "enroll" || !notes.is_empty();
    let is_moving = text("target_provision_state").is_some();
    // The server hides the error from lessees with a text.
    let error = text("last_error").filter(|error| !error.starts_with("** Value Redacted"));
    let Some(error) = error.filter(|_| is_broken || !is_moving) else {
        // A previous error is irrelevant while an operation is running.
        return TableCell::styled(notes.join("; "), TextStyle::Error);
    };
    if is_broken {
        notes.push(error.to_owned());
        return TableCell::styled(notes.join("; "), TextStyle::Error);
    }
    // The node has reached its state despite the error.
    TableCell::styled(format!("earlier: {error}"), TextStyle::Dim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn notes_distinguish_current_and_earlier_errors() {
        for (state, target, fault, expected) in [
            ("deploy failed", Some("active"), None, "no disk"),
            ("enroll", None, None, "no disk"),
            ("active", None, None, "earlier: no disk"),
            ("active", None, Some("power failure"), "fault: power failure; no disk"),
            ("deploying", Some("active"), None, ""),
            ("clean wait", Some("available"), None, ""),
        ] {
            let node = json!({
                "provision_state": state, "target_provision_state": target, "fault": fault,
                "last_error": "no disk",
            });
            assert_eq!(note_cell(&node).text, expected, "{state}");
        }
    }
}
