// SPDX-License-Identifier: Apache-2.0
//! `ferrite node maintenance`.

use clap::{Args, Subcommand};
use ironic_client::Method;
use serde_json::json;

use crate::bulk::{self, BulkArguments};
use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::output::OutputArguments;
use crate::selection::NodeSelection;

/// Commands of `ferrite node maintenance`.
#[derive(Subcommand, Debug)]
pub(crate) enum MaintenanceCommand {
    /// Put machines into maintenance: the server takes no actions by itself.
    On(OnArguments),
    /// End the maintenance of machines.
    Off(OffArguments),
}

/// Options of `on`.
#[derive(Args, Debug)]
pub(crate) struct OnArguments {
    /// The reason, shown with the machine.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    common: OffArguments,
}

/// Options of `off`.
#[derive(Args, Debug)]
pub(crate) struct OffArguments {
    #[command(flatten)]
    selection: NodeSelection,
    #[command(flatten)]
    bulk: BulkArguments,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(
    context: &CliContext,
    command: &MaintenanceCommand,
) -> Result<(), CliError> {
    let (common, method, body, result) = match command {
        MaintenanceCommand::On(arguments) => {
            let body = json!({ "reason": arguments.reason });
            let body = arguments.reason.is_some().then_some(body);
            (&arguments.common, Method::PUT, body, "in maintenance")
        }
        MaintenanceCommand::Off(arguments) => {
            (arguments, Method::DELETE, None, "out of maintenance")
        }
    };
    let selected = common.selection.resolve(context).await?;
    let outcomes =
        bulk::for_each_node(context, selected, common.bulk.parallel, move |api, machine| {
            let (method, body) = (method.clone(), body.clone());
            async move {
                let path = format!("{}/maintenance", machine.path());
                api.send(method, &path, body.as_ref()).await?;
                Ok(result.to_owned())
            }
        })
        .await?
        .outcomes;
    bulk::report(context, outcomes, common.output.output)
}
