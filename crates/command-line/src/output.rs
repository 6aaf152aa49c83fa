// SPDX-License-Identifier: Apache-2.0
//! Output formats of results.

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::cli_error::CliError;
use crate::screen::Screen;
use crate::table::{self, OutputColumn};

/// An output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum OutputFormat {
    /// A table.
    #[default]
    Table,
    /// A table with more columns, or with empty fields.
    Wide,
    /// The server's JSON.
    Json,
    /// The server's JSON as YAML.
    Yaml,
    /// Names only, one per line.
    Name,
}

/// The option that selects the output format.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct OutputArguments {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
}

impl OutputFormat {
    /// Whether the output is JSON or YAML.
    pub(crate) fn is_machine_readable(self) -> bool {
        match self {
            Self::Json | Self::Yaml => true,
            Self::Table | Self::Wide | Self::Name => false,
        }
    }

    /// Formats a list.
    pub(crate) fn format_list(
        self,
        rows: &[Value],
        columns: &[OutputColumn],
        screen: Screen,
    ) -> String {
        match self {
            Self::Table => table::format_table(rows, columns, false, screen),
            Self::Wide => table::format_table(rows, columns, true, screen),
            Self::Json | Self::Yaml => self.format_value(&Value::from(rows.to_vec())),
            Self::Name => rows.iter().map(|row| format!("{}\n", display_name(row))).collect(),
        }
    }

    /// Formats one resource.
    pub(crate) fn format_single(self, resource: &Value, screen: Screen) -> String {
        match self {
            Self::Table => table::format_fields(resource, false, screen),
            Self::Wide => table::format_fields(resource, true, screen),
            Self::Json | Self::Yaml => self.format_value(resource),
            Self::Name => format!("{}\n", display_name(resource)),
        }
    }

    /// Formats a value as JSON or YAML. The text ends with a newline.
    fn format_value(self, value: &Value) -> String {
        if self == Self::Yaml
            && let Ok(text) = serde_saphyr::to_string(value)
        {
            return format!("{}\n", text.trim_end_matches('\n'));
        }
        format!("{value:#}\n")
    }
}

/// Fields that identify a resource, in order of preference: nodes and other named resources, sightings,
/// rows about nodes, images, interfaces.
const NAME_FIELDS: &[&str] = &[
    "name",
    "uuid",
    "mac",
    "hostname",
    "node_name",
    "node_uuid",
    "source",
    "sha256",
    "interface",
    "id",
];

/// The name of a resource, or what identifies it otherwise.
pub(crate) fn display_name(resource: &Value) -> &str {
    NAME_FIELDS
        .iter()
        .filter_map(|field| resource[field].as_str())
        .find(|name| !name.is_empty())
        .unwrap_or_default()
}

/// Parses JSON or YAML; `what` names the source in errors.
pub(crate) fn parse_json_or_yaml(text: &str, what: &str) -> Result<Value, CliError> {
    parse_document(text).map_err(|problem| CliError::Usage(format!("{what} is {problem}")))
}

/// Parses JSON or YAML. The error does not quote the text.
pub fn parse_document(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(as_json) => serde_saphyr::from_str(text).map_err(|as_yaml| {
            let is_json = text.trim_start().starts_with(['{', '[']);
            let problem = if is_json { as_json.to_string() } else { first_line(&as_yaml) };
            format!("neither JSON nor YAML: {problem}")
        }),
    }
}

/// Takes the list under a key of a response.
pub(crate) fn take_rows(mut response: Value, key: &str) -> Vec<Value> {
    match response[key].take() {
        Value::Array(rows) => rows,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Vec::new()
        }
    }
}

/// The other lines quote the file.
fn first_line(error: &serde_saphyr::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_lists_end_with_a_newline() {
        for (format, expected) in [
            (OutputFormat::Table, "\n"),
            (OutputFormat::Wide, "\n"),
            (OutputFormat::Json, "[]\n"),
            (OutputFormat::Yaml, "[]\n"),
            (OutputFormat::Name, ""),
        ] {
            assert_eq!(format.format_list(&[], &[], Screen::plain()), expected, "{format:?}");
        }
    }

    #[test]
    fn every_row_has_a_display_name() {
        for (row, name) in [
            (json!({"name": "a", "uuid": "u"}), "a"),
            (json!({"name": null, "uuid": "u"}), "u"),
            (json!({"mac": "m", "interface": "eth0", "node_uuid": "u"}), "m"),
            (json!({"node_name": "a", "node_uuid": "u"}), "a"),
            (json!({"source": "http://images/a", "nodes": 3}), "http://images/a"),
            (json!({"sha256": "abc", "format": "raw"}), "abc"),
            (json!({"interface": "power", "result": true}), "power"),
        ] {
            let text = OutputFormat::Name.format_list(&[row], &[], Screen::plain());
            assert_eq!(text, format!("{name}\n"));
        }
    }
}
