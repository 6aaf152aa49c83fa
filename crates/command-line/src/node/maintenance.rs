// SPDX-License-Identifier: Apache-2.0
//! `ferrite node maintenance`.

use clap::{Args, Subcommand};
use ironic_client::Method;
use serde_json::json;

use crate::bulk::{self, BulkArguments};
use crate::desk::Desk;
use crate::failure::Failure;
use crate::output::OutputArguments;
use crate::selection::Selection;

/// In or out.
#[derive(Subcommand, Debug)]
pub(crate) enum MaintenanceCommand {
    /// Leave machines alone: nothing is done to them by itself.
    On(OnArguments),
    /// Look after machines again.
    Off(OffArguments),
}

/// Options of `on`.
#[derive(Args, Debug)]
pub(crate) struct OnArguments {
    /// Why, for whoever wonders.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    common: OffArguments,
}

/// Options of `off`.
#[derive(Args, Debug)]
pub(crate) struct OffArguments {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    bulk: BulkArguments,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(desk: &Desk, command: &MaintenanceCommand) -> Result<(), Failure> {
    let (common, method, body, done) = match command {
        MaintenanceCommand::On(arguments) => {
            let body = json!({ "reason": arguments.reason });
            let body = arguments.reason.is_some().then_some(body);
            (&arguments.common, Method::PUT, body, "in maintenance")
        }
        MaintenanceCommand::Off(arguments) => {
            (arguments, Method::DELETE, None, "out of maintenance")
        }
    };
    let chosen = common.selection.chosen(desk).await?;
    let outcomes = bulk::each(desk, chosen, common.bulk.parallel, move |api, machine| {
        let (method, body) = (method.clone(), body.clone());
        async move {
            let path = format!("{}/maintenance", machine.path());
            api.send(method, &path, body.as_ref()).await?;
            Ok(done.to_owned())
        }
    })
    .await?
    .outcomes;
    bulk::told(desk, outcomes, common.output.output)
}
