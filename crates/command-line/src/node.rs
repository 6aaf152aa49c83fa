// SPDX-License-Identifier: Apache-2.0
//! `ferrite node`: machines.

mod attach;
pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod list;
pub(crate) mod look;
pub(crate) mod maintenance;
pub(crate) mod timeline;
pub(crate) mod verbs;

use clap::{Args, Subcommand};

use crate::desk::ConnectionArguments;
use crate::failure::Failure;

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
    List(list::ListArguments),
    /// Show everything about machines.
    Show(look::ShowArguments),
    /// Enrol a machine, or all of a file.
    Create(create::CreateArguments),
    /// Change fields of machines.
    Set(change::SetArguments),
    /// Empty fields of machines.
    Unset(change::UnsetArguments),
    /// Remove machines from the API; the machines themselves are left as they are.
    #[command(visible_alias = "rm")]
    Delete(change::DeleteArguments),
    /// Take machines under management: their BMCs are tried.
    Manage(verbs::VerbArguments),
    /// Make machines available: they are cleaned first.
    Provide(verbs::VerbArguments),
    /// Find out what machines are made of.
    Inspect(verbs::VerbArguments),
    /// Take over machines that run an instance already.
    Adopt(verbs::VerbArguments),
    /// Run cleaning steps on machines.
    Clean(verbs::StepsArguments),
    /// Run steps on machines that are in use.
    Service(verbs::StepsArguments),
    /// Deploy what the instance_info of machines says. `ferrite deploy` picks machines itself.
    Deploy(verbs::DeployVerbArguments),
    /// Deploy machines anew.
    Rebuild(verbs::DeployVerbArguments),
    /// Take instances off machines and clean them.
    Undeploy(verbs::VerbArguments),
    /// Boot machines that are in use into a rescue system.
    Rescue(verbs::RescueArguments),
    /// Boot rescued machines into their instances again.
    Unrescue(verbs::VerbArguments),
    /// Stop what machines are doing, if they wait.
    Abort(verbs::VerbArguments),
    /// Let machines go on that are held by a step.
    Unhold(verbs::VerbArguments),
    /// Switch machines on and off.
    #[command(subcommand)]
    Power(verbs::PowerCommand),
    /// Take machines out of service and back.
    #[command(subcommand)]
    Maintenance(maintenance::MaintenanceCommand),
    /// Show, open or close the console of a machine, or sit down at it.
    Console(look::ConsoleArguments),
    /// Show what happened to a machine, when, by whom and why (Ferrite only).
    Timeline(timeline::TimelineArguments),
    /// Show what a verb would do to a machine and what stands in its way (Ferrite only).
    Explain(look::ExplainArguments),
    /// Wait for machines.
    Wait(verbs::WaitArguments),
    /// Check whether machines have what they need.
    Validate(look::ValidateArguments),
    /// Show what inspection found in a machine.
    Inventory(look::InventoryArguments),
}

/// Runs one of them.
pub(crate) async fn run(arguments: &NodeArguments) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let verb = async |arguments, name| verbs::plain(&desk, arguments, name).await;
    match &arguments.command {
        NodeCommand::List(arguments) => list::run(&desk, arguments).await,
        NodeCommand::Show(arguments) => look::show(&desk, arguments).await,
        NodeCommand::Create(arguments) => create::run(&desk, arguments).await,
        NodeCommand::Set(arguments) => change::set(&desk, arguments).await,
        NodeCommand::Unset(arguments) => change::unset(&desk, arguments).await,
        NodeCommand::Delete(arguments) => change::delete(&desk, arguments).await,
        NodeCommand::Manage(arguments) => verb(arguments, verbs::Verb::Manage).await,
        NodeCommand::Provide(arguments) => verb(arguments, verbs::Verb::Provide).await,
        NodeCommand::Inspect(arguments) => verb(arguments, verbs::Verb::Inspect).await,
        NodeCommand::Adopt(arguments) => verb(arguments, verbs::Verb::Adopt).await,
        NodeCommand::Undeploy(arguments) => verb(arguments, verbs::Verb::Undeploy).await,
        NodeCommand::Unrescue(arguments) => verb(arguments, verbs::Verb::Unrescue).await,
        NodeCommand::Abort(arguments) => verb(arguments, verbs::Verb::Abort).await,
        NodeCommand::Unhold(arguments) => verb(arguments, verbs::Verb::Unhold).await,
        NodeCommand::Clean(arguments) => {
            verbs::with_steps(&desk, arguments, verbs::Verb::Clean).await
        }
        NodeCommand::Service(arguments) => {
            verbs::with_steps(&desk, arguments, verbs::Verb::Service).await
        }
        NodeCommand::Deploy(arguments) => {
            verbs::deploy(&desk, arguments, verbs::Verb::Deploy).await
        }
        NodeCommand::Rebuild(arguments) => {
            verbs::deploy(&desk, arguments, verbs::Verb::Rebuild).await
        }
        NodeCommand::Rescue(arguments) => verbs::rescue(&desk, arguments).await,
        NodeCommand::Power(command) => verbs::power(&desk, command).await,
        NodeCommand::Maintenance(command) => maintenance::run(&desk, command).await,
        NodeCommand::Console(arguments) => look::console(&desk, arguments).await,
        NodeCommand::Timeline(arguments) => timeline::run(&desk, arguments).await,
        NodeCommand::Explain(arguments) => look::explain(&desk, arguments).await,
        NodeCommand::Wait(arguments) => verbs::wait(&desk, arguments).await,
        NodeCommand::Validate(arguments) => look::validate(&desk, arguments).await,
        NodeCommand::Inventory(arguments) => look::inventory(&desk, arguments).await,
    }
}
