// SPDX-License-Identifier: Apache-2.0
//! The results of `ferrite deploy`: waits for the machines, prints the results and derives the exit code.

use serde_json::{Value, json};

use super::DeployRequests;
use super::reservation::DeployReservation;
use crate::cli_error::{CliError, CliExitCode};
use crate::context::CliContext;
use crate::node::verbs::Verb;
use crate::output::OutputFormat;
use crate::selection::SelectedNode;
use crate::table::{OutputColumn, value_cell};
use crate::wait::{self, WaitDeadline};

const COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("HOSTNAME", |row| value_cell(&row["hostname"])),
    OutputColumn::new("NODE", |row| value_cell(&row["node"])),
    OutputColumn::new("STATE", |row| value_cell(&row["state"])),
    OutputColumn::new("ADDRESSES", |row| value_cell(&row["addresses"])),
    OutputColumn::new("MACS", |row| value_cell(&row["macs"])),
    OutputColumn::wide("UUID", |row| value_cell(&row["uuid"])),
    OutputColumn::wide("ALLOCATION", |row| value_cell(&row["allocation"])),
];

/// The nodes of a deployment by result.
pub(super) struct DeployResults {
    /// Nodes and their states.
    states: Vec<(SelectedNode, String)>,
    failed: Vec<(SelectedNode, CliError)>,
    /// Nodes whose deployment continues on the server.
    continuing: Vec<SelectedNode>,
    is_interrupted: bool,
}

impl DeployResults {
    /// The results if the deployments are not waited for.
    pub(super) fn without_waiting(requests: DeployRequests) -> Self {
        let DeployRequests { accepted, failed, is_interrupted } = requests;
        let state = |node: &SelectedNode| (node.clone(), "deploying".to_owned());
        let states = accepted.iter().map(state).collect();
        Self { states, failed, continuing: accepted, is_interrupted }
    }

    /// Waits for the accepted deployments, unless Ctrl-C was pressed while they were requested.
    pub(super) async fn wait_for(
        context: &CliContext,
        requests: DeployRequests,
        deadline: WaitDeadline,
    ) -> Self {
        if requests.is_interrupted {
            return Self::without_waiting(requests);
        }
        let DeployRequests { accepted, failed, is_interrupted } = requests;
        let mut results =
            Self { states: Vec::new(), failed, continuing: Vec::new(), is_interrupted };
        let goals = accepted.into_iter().map(|node| (node, Verb::Deploy.goal())).collect();
        for outcome in wait::wait_for(context, goals, deadline).await {
            match outcome.result {
                Ok(state) => results.states.push((outcome.selected, state)),
                Err(CliError::Interrupted(_)) => {
                    results.is_interrupted = true;
                    results.continuing.push(outcome.selected);
                }
                Err(failure) => results.failed.push((outcome.selected, failure)),
            }
        }
        results
    }

    /// Prints the deployed nodes as a list, and the failures to standard error.
    pub(super) fn print(
        &self,
        context: &CliContext,
        reservations: &[DeployReservation],
        addresses: &[String],
        format: OutputFormat,
    ) {
        let row = |reservation: &DeployReservation| self.row(reservation, addresses);
        let rows: Vec<Value> = reservations.iter().filter_map(row).collect();
        if !rows.is_empty() || format.is_machine_readable() {
            context.screen.print(&format.format_list(&rows, COLUMNS, context.screen));
        }
        for (node, failure) in &self.failed {
            let label = &node.label;
            let hint = if matches!(failure, CliError::Failed(_) | CliError::OutcomeUnknown(_)) {
                format!(
                    "\n  `ferrite node show {label}` shows its state, `ferrite undeploy {label}` releases it"
                )
            } else {
                String::new()
            };
            context.screen.note(&format!("{label}: {}{hint}", failure.message()));
        }
    }

    fn row(&self, reservation: &DeployReservation, addresses: &[String]) -> Option<Value> {
        let node = reservation.node.as_ref()?;
        let (_, state) = self.states.iter().find(|(other, _)| other.uuid == node.uuid)?;
        Some(json!({
            "hostname": reservation.hostname(),
            "node": node.label,
            "uuid": node.uuid,
            "allocation": reservation.uuid,
            "state": state,
            "addresses": addresses,
            "macs": reservation.macs,
        }))
    }

    /// Returns the error of the command; `total` is the number of requested machines.
    pub(super) fn into_result(mut self, total: usize) -> Result<(), CliError> {
        if self.is_interrupted {
            let is_unknown = |failed: &&(SelectedNode, CliError)| {
                matches!(failed.1, CliError::OutcomeUnknown(_))
            };
            let unknown: Vec<&SelectedNode> =
                self.failed.iter().filter(is_unknown).map(|(node, _)| node).collect();
            return Err(CliError::Interrupted(interruption_message(&self.continuing, &unknown)));
        }
        match self.failed.len() {
            0 => Ok(()),
            1 if total == 1 => {
                let (node, failure) = self.failed.remove(0);
                Err(single_failure(&node.label, &failure))
            }
            failed => Err(CliError::SomeFailed { failed, total }),
        }
    }
}

/// The error for a single node, whose details were already printed.
fn single_failure(label: &str, failure: &CliError) -> CliError {
    let message = format!("{label} is not deployed");
    match failure.exit_code() {
        CliExitCode::TimedOut => CliError::TimedOut(message),
        CliExitCode::Rejected => CliError::Rejected(message),
        CliExitCode::Unreachable => {
            CliError::OutcomeUnknown(format!("{label} may or may not be deployed"))
        }
        CliExitCode::Failed
        | CliExitCode::Usage
        | CliExitCode::NotFound
        | CliExitCode::NotAuthorised
        | CliExitCode::Interrupted => CliError::Failed(message),
    }
}

/// States what continues after Ctrl-C and how to wait for it or release it.
fn interruption_message(continuing: &[SelectedNode], unknown: &[&SelectedNode]) -> String {
    let mut message = "stopped".to_owned();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|node| node.label.as_str()).collect();
        message = format!("{message}; {} may or may not be deploying", names.join(","));
    }
    if !continuing.is_empty() {
        let names: Vec<&str> = continuing.iter().map(|node| node.label.as_str()).collect();
        let names = names.join(",");
        message = format!(
            "{message}; still deploying: {names} (wait with `ferrite node wait {names} --for active`, \
             release with `ferrite undeploy {names}`)"
        );
    }
    if continuing.is_empty() && unknown.is_empty() {
        message.push_str("; no machine is deploying");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruption_message_names_continuing_deployments() {
        let node = |name: &str| SelectedNode::new(json!({"uuid": "u", "name": name}));
        let (one, two) = (node("a"), node("b"));
        assert_eq!(interruption_message(&[], &[]), "stopped; no machine is deploying");
        assert_eq!(
            interruption_message(std::slice::from_ref(&one), &[&two]),
            "stopped; b may or may not be deploying; still deploying: a (wait with `ferrite node wait a \
             --for active`, release with `ferrite undeploy a`)"
        );
        assert_eq!(
            interruption_message(&[one, two], &[]),
            "stopped; still deploying: a,b (wait with `ferrite node wait a,b --for active`, release with \
             `ferrite undeploy a,b`)"
        );
    }
}
