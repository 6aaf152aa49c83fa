// SPDX-License-Identifier: Apache-2.0
//! `ferrite node list`.

use clap::Args;
use serde_json::Value;

use crate::desk::Desk;
use crate::failure::Failure;
use crate::output::{Format, OutputArguments, name_of};
use crate::screen::Tone;
use crate::selection::{self, Filters};
use crate::table::{Cell, Column, plain};
use crate::watch::{self, WatchArguments};

const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,\
    target_power_state,maintenance,maintenance_reason,fault,last_error,resource_class,owner,\
    instance_uuid,driver";

const COLUMNS: &[Column] = &[
    Column::new("NAME", |node| name_of(node).to_owned().into()),
    Column::new("STATE", state),
    Column::new("POWER", power),
    Column::new("CLASS", |node| plain(&node["resource_class"])),
    Column::new("DRIVER", |node| plain(&node["driver"])),
    Column::wide("UUID", |node| plain(&node["uuid"])),
    Column::wide("INSTANCE", |node| plain(&node["instance_uuid"])),
    Column::wide("OWNER", |node| plain(&node["owner"])),
    Column::wide("LESSEE", |node| plain(&node["lessee"])),
    Column::wide("CONDUCTOR", |node| plain(&node["conductor"])),
    Column::wide("GROUP", |node| plain(&node["conductor_group"])),
    Column::wide("TRAITS", |node| plain(&node["traits"])),
    Column::cut("NOTE", note),
];

/// Options of `ferrite node list`.
#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    /// Names, UUIDs or noderanges such as rack1-[01-12]; @FILE reads them from a file, - from standard
    /// input. All if none is given.
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    watch: WatchArguments,
}

pub(crate) async fn run(desk: &Desk, arguments: &ListArguments) -> Result<(), Failure> {
    let names = selection::names(&arguments.nodes)?;
    let format = arguments.output.output;
    let fields = match format {
        Format::Table => Some(FIELDS),
        // Asked for a field `conductor`, Ironic 39.0 answers 500: wide takes everything.
        Format::Wide | Format::Json | Format::Yaml => None,
        Format::Name => Some("uuid,name,provision_state"),
    };
    let rows = async || selection::rows(&desk.api, &names, &arguments.filters, fields).await;
    watch::list(desk, &arguments.watch, format, COLUMNS, rows).await
}

fn state(node: &Value) -> Cell {
    let state = node["provision_state"].as_str().unwrap_or_default();
    let text = match node["target_provision_state"].as_str() {
        Some(target) if target != state => format!("{state} → {target}"),
        Some(_) | None => state.to_owned(),
    };
    Cell::toned(text, tone(state))
}

/// How a provision state is to be seen.
pub(crate) fn tone(state: &str) -> Tone {
    match state {
        "active" | "available" => Tone::Good,
        "enroll" | "manageable" | "rescue" => Tone::Plain,
        "error" => Tone::Bad,
        state if state.ends_with("failed") => Tone::Bad,
        _ => Tone::Busy,
    }
}

fn power(node: &Value) -> Cell {
    let short = |text: &str| text.trim_start_matches("power ").to_owned();
    let power = node["power_state"].as_str().map_or_else(|| "?".to_owned(), short);
    match node["target_power_state"].as_str() {
        Some(target) => Cell::toned(format!("{power} → {}", short(target)), Tone::Busy),
        None => power.into(),
    }
}

/// What an operator should know: maintenance before faults before the last error.
fn note(node: &Value) -> Cell {
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
    let is_broken = matches!(tone(state), Tone::Bad) || state == "enroll" || !notes.is_empty();
    let is_moving = text("target_provision_state").is_some();
    let Some(error) = text("last_error").filter(|_| is_broken || !is_moving) else {
        // What went wrong before is over once something new is under way.
        return Cell::toned(notes.join("; "), Tone::Bad);
    };
    if is_broken {
        notes.push(error.to_owned());
        return Cell::toned(notes.join("; "), Tone::Bad);
    }
    // It did not keep the machine from getting where it is.
    Cell::toned(format!("earlier: {error}"), Tone::Faint)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_are_told_as_what_they_are() {
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
            assert_eq!(note(&node).text, expected, "{state}");
        }
    }
}
