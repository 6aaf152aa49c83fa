// SPDX-License-Identifier: Apache-2.0
//! `ferrite cluster`: the processes of the service, their nodes and their load (Ferrite only).

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli_error::CliError;
use crate::node::queries::require_ferrite;
use crate::output::{OutputArguments, OutputFormat};
use crate::resource_types;
use crate::resources::ResourceArguments;

/// Commands for the processes of the service.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Show the processes, how many machines each manages and works on, and how late it is.
    Status(ClusterStatusArguments),
}

/// Options of `ferrite cluster status`.
#[derive(Args, Debug)]
pub struct ClusterStatusArguments {
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(arguments: &ResourceArguments<ClusterCommand>) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let ClusterCommand::Status(ClusterStatusArguments { output }) = &arguments.command;
    let output = output.output;
    let found = context.api.find("/v1/ferrite/cluster").await?;
    let status = require_ferrite(found, "show the processes of the service")?;
    let text = match output {
        OutputFormat::Json | OutputFormat::Yaml => output.format_single(&status, context.screen),
        OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name => {
            let replicas = status["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
            output.format_list(replicas, resource_types::REPLICA_COLUMNS, context.screen)
        }
    };
    context.screen.print(&text);
    if matches!(output, OutputFormat::Table | OutputFormat::Wide) {
        summary(&status).iter().for_each(|line| context.screen.print(line));
    }
    Ok(())
}

/// What the table of processes does not show: the queues, and what is wrong.
fn summary(status: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for queue in status["queues"].as_array().into_iter().flatten() {
        let name = queue["name"].as_str().unwrap_or_default();
        let (running, limit, waiting) = (&queue["running"], &queue["limit"], &queue["waiting"]);
        lines.push(format!("{name}: {running} of at most {limit} jobs run, {waiting} wait"));
    }
    if let Some(count) = status["unmanaged_nodes"].as_u64().filter(|count| *count > 0) {
        lines.push(format!(
            "{count} nodes have a driver or a conductor group that no running process has; \
             `ferrite node list` shows them without a conductor"
        ));
    }
    let responder = &status["responder"];
    if responder["clock_beyond_tolerance"] == true {
        let hostname = responder["hostname"].as_str().unwrap_or_default();
        let ahead = &responder["clock_ahead_seconds"];
        lines.push(format!(
            "the clock of {hostname} is {ahead} s ahead of the database server; check its time service"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_summary_names_what_is_wrong() {
        let healthy = json!({
            "queues": [{"name": "deploy", "running": 3, "limit": 250, "waiting": 0}],
            "unmanaged_nodes": 0,
            "responder": {"hostname": "a", "clock_ahead_seconds": 0.1, "clock_beyond_tolerance": false},
        });
        assert_eq!(summary(&healthy), ["deploy: 3 of at most 250 jobs run, 0 wait"]);
        let wrong = json!({
            "queues": [],
            "unmanaged_nodes": 2,
            "responder": {"hostname": "a", "clock_ahead_seconds": 31.5, "clock_beyond_tolerance": true},
        });
        let lines = summary(&wrong);
        assert!(lines[0].starts_with("2 nodes have a driver"), "{lines:?}");
        assert!(lines[1].starts_with("the clock of a is 31.5 s ahead"), "{lines:?}");
    }
}
