// SPDX-License-Identifier: Apache-2.0
//! `ferrite node`.

mod attach;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod list;
pub(crate) mod maintenance;
pub(crate) mod queries;
pub(crate) mod timeline;
pub(crate) mod verbs;

use clap::{Args, Subcommand};

use crate::cli_error::CliError;
use crate::context::ConnectionArguments;

/// Options of `ferrite node`.
#[derive(Args, Debug)]
pub struct NodeArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// List machines.
    #[command(visible_alias = "ls")]
    List(list::NodeListArguments),
    /// Show all fields of machines.
    Show(queries::NodeShowArguments),
    /// Enrol a machine, or all machines of a file.
    Create(create::NodeCreateArguments),
    /// Change fields of machines.
    Set(change::NodeSetArguments),
    /// Remove fields of machines.
    Unset(change::NodeUnsetArguments),
    /// Delete machines from the API; the hardware is not touched.
    #[command(visible_alias = "rm")]
    Delete(change::NodeDeleteArguments),
    /// Manage machines: verify the access to their BMCs.
    Manage(verbs::VerbArguments),
    /// Make machines available; they are cleaned first.
    Provide(verbs::VerbArguments),
    /// Collect the hardware inventory of machines.
    Inspect(verbs::VerbArguments),
    /// Adopt machines that already run an instance.
    Adopt(verbs::VerbArguments),
    /// Run clean steps on machines.
    Clean(verbs::StepsArguments),
    /// Run service steps on machines with an instance.
    Service(verbs::StepsArguments),
    /// Deploy machines as set in their instance_info. `ferrite deploy` also selects the machines.
    Deploy(verbs::DeployVerbArguments),
    /// Redeploy machines with an instance.
    Rebuild(verbs::DeployVerbArguments),
    /// Remove instances from machines and clean the machines.
    Undeploy(verbs::VerbArguments),
    /// Boot machines with an instance into a rescue system.
    Rescue(verbs::RescueArguments),
    /// Boot rescued machines into their instances.
    Unrescue(verbs::VerbArguments),
    /// Abort the running operation of machines that are waiting.
    Abort(verbs::VerbArguments),
    /// Continue machines that a step holds.
    Unhold(verbs::VerbArguments),
    /// Change the power state of machines.
    #[command(subcommand)]
    Power(verbs::PowerCommand),
    /// Put machines into maintenance and end it.
    #[command(subcommand)]
    Maintenance(maintenance::MaintenanceCommand),
    /// Show, enable, disable or attach to the console of a machine.
    Console(queries::ConsoleArguments),
    /// Show the history of a machine: events, actors and reasons (Ferrite only).
    Timeline(timeline::TimelineArguments),
    /// Show what a verb would do to a machine and what prevents it (Ferrite only).
    Explain(queries::ExplainArguments),
    /// Wait until machines reach a state.
    Wait(verbs::WaitArguments),
    /// Check whether the interfaces of a machine have the required settings.
    Validate(queries::ValidateArguments),
    /// Show the hardware inventory of a machine.
    Inventory(queries::InventoryArguments),
}

/// Runs a node command.
pub(crate) async fn run(arguments: &NodeArguments) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let verb = async |arguments, name| verbs::run_verb(&context, arguments, name).await;
    match &arguments.command {
        NodeCommand::List(arguments) => list::run(&context, arguments).await,
        NodeCommand::Show(arguments) => queries::show(&context, arguments).await,
        NodeCommand::Create(arguments) => create::run(&context, arguments).await,
        NodeCommand::Set(arguments) => change::set(&context, arguments).await,
        NodeCommand::Unset(arguments) => change::unset(&context, arguments).await,
        NodeCommand::Delete(arguments) => change::delete(&context, arguments).await,
        NodeCommand::Manage(arguments) => verb(arguments, verbs::Verb::Manage).await,
        NodeCommand::Provide(arguments) => verb(arguments, verbs::Verb::Provide).await,
        NodeCommand::Inspect(arguments) => verb(arguments, verbs::Verb::Inspect).await,
        NodeCommand::Adopt(arguments) => verb(arguments, verbs::Verb::Adopt).await,
        NodeCommand::Undeploy(arguments) => verb(arguments, verbs::Verb::Undeploy).await,
        NodeCommand::Unrescue(arguments) => verb(arguments, verbs::Verb::Unrescue).await,
        NodeCommand::Abort(arguments) => verb(arguments, verbs::Verb::Abort).await,
        NodeCommand::Unhold(arguments) => verb(arguments, verbs::Verb::Unhold).await,
        NodeCommand::Clean(arguments) => {
            verbs::run_verb_with_steps(&context, arguments, verbs::Verb::Clean).await
        }
        NodeCommand::Service(arguments) => {
            verbs::run_verb_with_steps(&context, arguments, verbs::Verb::Service).await
        }
        NodeCommand::Deploy(arguments) => {
            verbs::deploy(&context, arguments, verbs::Verb::Deploy).await
        }
        NodeCommand::Rebuild(arguments) => {
            verbs::deploy(&context, arguments, verbs::Verb::Rebuild).await
        }
        NodeCommand::Rescue(arguments) => verbs::rescue(&context, arguments).await,
        NodeCommand::Power(command) => verbs::power(&context, command).await,
        NodeCommand::Maintenance(command) => maintenance::run(&context, command).await,
        NodeCommand::Console(arguments) => queries::console(&context, arguments).await,
        NodeCommand::Timeline(arguments) => timeline::run(&context, arguments).await,
        NodeCommand::Explain(arguments) => queries::explain(&context, arguments).await,
        NodeCommand::Wait(arguments) => verbs::wait(&context, arguments).await,
        NodeCommand::Validate(arguments) => queries::validate(&context, arguments).await,
        NodeCommand::Inventory(arguments) => queries::inventory(&context, arguments).await,
    }
}
