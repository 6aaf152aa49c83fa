// SPDX-License-Identifier: Apache-2.0
//! The forms in which results are given.

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::failure::Failure;
use crate::screen::Screen;
use crate::table::{self, Column};

/// A form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// A table for people.
    #[default]
    Table,
    /// A table with more columns, or with fields that say nothing.
    Wide,
    /// JSON, as the server gave it.
    Json,
    /// YAML, as the server gave it.
    Yaml,
    /// Names only, one a line.
    Name,
}

/// The option that chooses the form.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct OutputArguments {
    /// The form of the result.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub(crate) output: Format,
}

impl Format {
    /// Whether the result is read by a program.
    pub(crate) fn is_for_programs(self) -> bool {
        match self {
            Self::Json | Self::Yaml => true,
            Self::Table | Self::Wide | Self::Name => false,
        }
    }

    /// A list in this form.
    pub(crate) fn list(self, rows: &[Value], columns: &[Column], screen: Screen) -> String {
        match self {
            Self::Table => table::list(rows, columns, false, screen),
            Self::Wide => table::list(rows, columns, true, screen),
            Self::Json | Self::Yaml => self.value(&Value::from(rows.to_vec())),
            Self::Name => rows.iter().map(|row| format!("{}\n", name_of(row))).collect(),
        }
    }

    /// One thing in this form.
    pub(crate) fn single(self, thing: &Value, screen: Screen) -> String {
        match self {
            Self::Table => table::single(thing, false, screen),
            Self::Wide => table::single(thing, true, screen),
            Self::Json | Self::Yaml => self.value(thing),
            Self::Name => format!("{}\n", name_of(thing)),
        }
    }

    /// Any value, for programs.
    fn value(self, value: &Value) -> String {
        if self == Self::Yaml
            && let Ok(text) = serde_saphyr::to_string(value)
        {
            return text;
        }
        format!("{value:#}\n")
    }
}

/// Where it stands what a thing is called, best first: machines and the like, those seen on the network,
/// machines of which something is told, images, interfaces.
const NAMES: &[&str] =
    &["name", "uuid", "mac", "hostname", "node_name", "node_uuid", "source", "sha256", "interface"];

/// What a thing is called: by its name if it has one, else by what identifies it.
pub(crate) fn name_of(thing: &Value) -> &str {
    NAMES
        .iter()
        .filter_map(|field| thing[field].as_str())
        .find(|name| !name.is_empty())
        .unwrap_or_default()
}

/// A value from a file or a text, in JSON or YAML.
pub(crate) fn parsed(text: &str, what: &str) -> Result<Value, Failure> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(as_json) => serde_saphyr::from_str(text).map_err(|as_yaml| {
            let is_json = text.trim_start().starts_with(['{', '[']);
            let problem = if is_json { as_json.to_string() } else { first_line(&as_yaml) };
            Failure::Usage(format!("{what} is neither JSON nor YAML: {problem}"))
        }),
    }
}

/// The list under a key of an answer.
pub(crate) fn rows_in(mut answer: Value, key: &str) -> Vec<Value> {
    match answer[key].take() {
        Value::Array(rows) => rows,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Vec::new()
        }
    }
}

/// The rest is a picture of the file.
fn first_line(error: &serde_saphyr::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_in_a_list_has_a_name() {
        for (row, name) in [
            (json!({"name": "a", "uuid": "u"}), "a"),
            (json!({"name": null, "uuid": "u"}), "u"),
            (json!({"mac": "m", "interface": "eth0", "node_uuid": "u"}), "m"),
            (json!({"node_name": "a", "node_uuid": "u"}), "a"),
            (json!({"source": "http://images/a", "nodes": 3}), "http://images/a"),
            (json!({"sha256": "abc", "format": "raw"}), "abc"),
            (json!({"interface": "power", "result": true}), "power"),
        ] {
            let text = Format::Name.list(&[row], &[], Screen::plain());
            assert_eq!(text, format!("{name}\n"));
        }
    }
}
