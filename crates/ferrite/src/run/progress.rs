// SPDX-License-Identifier: Apache-2.0
//! The output of `ferrite run`: progress and result, as text or as JSON lines.

use std::io::Write as _;
use std::time::Duration;

use clap::ValueEnum;
use command_line::{CliExitCode, journal_event_text};
use serde_json::{Value, json};

use super::outcome::RunFailure;

/// Kinds of journal entries that are not progress of the operation.
const OMITTED_KINDS: [&str; 5] =
    ["enrolled", "changed", "bmc_calls", "agent_call", "network_activity"];

/// The format of `--output`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum RunOutput {
    /// Results on standard output, progress on standard error.
    #[default]
    Text,
    /// One JSON object per line on standard output.
    Json,
}

/// What a successful operation returns besides its success.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct RunResult {
    pub(super) inventory: Option<Value>,
    pub(super) power_state: Option<String>,
}

impl RunOutput {
    /// Reports the start.
    pub(super) fn started(self, operation: &str, node: &str, details: &Value) {
        match self {
            Self::Json => {
                let mut line = json!({"kind": "started", "operation": operation, "node": node});
                if let (Some(line), Some(details)) = (line.as_object_mut(), details.as_object()) {
                    line.extend(details.clone());
                }
                print_output(&line.to_string());
            }
            Self::Text => {
                let verb = if details["resumed"] == true { "continuing" } else { "starting" };
                let state = details["state_dir"].as_str().map(|dir| format!(", state in {dir}"));
                let api = details["api"].as_str().map(|api| format!(", service on {api}"));
                print_progress(&format!(
                    "{verb} {operation} of {node}{}{}",
                    state.unwrap_or_default(),
                    api.unwrap_or_default()
                ));
            }
        }
    }

    /// Reports a journal entry of the node.
    pub(super) fn entry(self, entry: &Value) {
        let kind = entry["event"]["kind"].as_str().unwrap_or_default();
        if OMITTED_KINDS.contains(&kind) {
            return;
        }
        let (at, text) = (entry["at"].as_str().unwrap_or_default(), journal_event_text(entry));
        match self {
            Self::Json => print_output(
                &json!({"kind": "progress", "at": at, "text": text, "event": entry["event"]})
                    .to_string(),
            ),
            // The time of day, to the second.
            Self::Text => print_progress(&format!("{}  {text}", at.get(11..19).unwrap_or(at))),
        }
    }

    /// Reports that an earlier run completed the operation.
    pub(super) fn already_done(self, operation: &str, node: &str) {
        if self == Self::Text {
            print_progress(&format!("{operation} of {node} was completed by an earlier run"));
        }
    }

    /// Reports success. The inventory is printed unless it was written to a file.
    pub(super) fn done(self, operation: &str, node: &str, result: &RunResult, took: Duration) {
        match self {
            Self::Json => {
                let mut line = json!({"kind": "result", "outcome": "done", "exit_code": 0});
                if let Some(inventory) = &result.inventory {
                    line["inventory"] = inventory.clone();
                }
                if let Some(power) = &result.power_state {
                    line["power_state"] = json!(power);
                }
                print_output(&line.to_string());
            }
            Self::Text => {
                if let Some(inventory) = &result.inventory {
                    print_output(&format!("{inventory:#}"));
                }
                if let Some(power) = &result.power_state {
                    print_output(power);
                }
                print_progress(&format!(
                    "{operation} of {node} done in {:.1} s",
                    took.as_secs_f64()
                ));
            }
        }
    }

    /// Reports a failure.
    pub(super) fn failed(self, failure: &RunFailure) {
        match self {
            Self::Json => print_output(
                &json!({
                    "kind": "result",
                    "outcome": outcome_name(failure.code),
                    "exit_code": failure.code as u8,
                    "message": failure.message,
                })
                .to_string(),
            ),
            Self::Text => print_progress(&format!("ferrite: {}", failure.message)),
        }
    }
}

const fn outcome_name(code: CliExitCode) -> &'static str {
    match code {
        CliExitCode::Failed => "failed",
        CliExitCode::Usage | CliExitCode::NotFound | CliExitCode::Rejected => "invalid input",
        CliExitCode::NotAuthorised => "credentials rejected",
        CliExitCode::Unreachable => "BMC unreachable",
        CliExitCode::TimedOut => "timeout",
        CliExitCode::Interrupted => "interrupted",
    }
}

/// Prints a line to standard output. A closed pipe does not end the operation.
fn print_output(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Prints a line to standard error.
fn print_progress(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
