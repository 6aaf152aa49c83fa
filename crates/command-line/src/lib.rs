// SPDX-License-Identifier: Apache-2.0
//! The command-line client: `ferrite node`, `ferrite deploy` and others.
//!
//! It uses the HTTP API only, so it works with any Ironic; features of Ferrite (timelines, explanations,
//! wait reasons) are shown if the server is one. Results go to standard output, everything else to
//! standard error, and the exit code reports the outcome to scripts.

mod assignments;
mod audit;
mod bulk;
mod cli_error;
mod cluster;
mod config_drive;
mod context;
mod deploy;
mod deployments;
mod events;
mod images;
mod import;
mod interrupts;
mod login;
mod manual;
mod natural_order;
mod network;
mod node;
mod noderange;
mod output;
mod password_input;
mod progress;
mod quotas;
mod resource_actions;
mod resource_types;
mod resources;
mod runbook_traits;
mod screen;
mod selection;
mod table;
#[cfg(test)]
mod test_server;
mod timestamps;
mod tokens;
mod users;
mod wait;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;

pub use cli_error::CliExitCode;
pub use config_drive::ConfigDriveContent;
pub use deploy::{checksum_instance_info, is_image_reference};
pub use events::journal_event_text;
pub use output::parse_document;
pub use selection::closest_match;
pub use wait::parse_duration;

use cli_error::CliError;
use resources::ResourceArguments;
use screen::Screen;

/// The client's subcommands.
#[derive(Subcommand)]
pub enum ClientCommand {
    /// Machines.
    #[command(visible_alias = "nodes")]
    Node(node::NodeArguments),
    /// Select machines, deploy an image on them and wait for them.
    Deploy(deploy::DeployArguments),
    /// Remove instances from machines and wait until they are cleaned.
    Undeploy(deploy::UndeployArguments),
    /// Deployments that the server carries out, with leases (Ferrite only).
    Deployment(ResourceArguments<deployments::DeploymentCommand>),
    /// Ports: NICs of machines.
    Port(ResourceArguments<resources::PortCommand>),
    /// Port groups: bonded NICs.
    Portgroup(ResourceArguments<resources::PortCommand>),
    /// Allocations: machines reserved for instances.
    Allocation(ResourceArguments<resources::AllocationCommand>),
    /// Deploy templates: steps that traits of an instance add.
    Template(ResourceArguments<resources::ResourceCommand>),
    /// Runbooks: named lists of steps.
    Runbook(ResourceArguments<resources::ResourceCommand>),
    /// Inspection rules.
    Rule(ResourceArguments<resources::ResourceCommand>),
    /// Flavours: classes of machines, defined by their inventory (Ferrite only).
    Flavour(ResourceArguments<resources::FlavourCommand>),
    /// Unknown machines seen on the network (Ferrite only).
    Sighting(ResourceArguments<network::SightingCommand>),
    /// Images of machines and the image cache of the server (Ferrite only).
    Image(ResourceArguments<images::ImageCommand>),
    /// Show which machine is connected to which switch port (Ferrite only).
    Topology(network::TopologyArguments),
    /// The processes of the service (Ferrite only).
    Cluster(ResourceArguments<cluster::ClusterCommand>),
    /// Enabled drivers.
    Driver(ResourceArguments<resources::DriverCommand>),
    /// Users and service accounts (Ferrite only).
    User(ResourceArguments<users::UserCommand>),
    /// Projects, which own and lease machines (Ferrite only).
    Project(ResourceArguments<users::ProjectCommand>),
    /// Quotas: how many machines projects may have (Ferrite only).
    Quota(ResourceArguments<quotas::QuotaCommand>),
    /// API tokens (Ferrite only).
    Token(ResourceArguments<tokens::TokenCommand>),
    /// Sign in with the OpenID Connect provider of the server (Ferrite only).
    Login(login::LoginArguments),
    /// Show the current user, its roles and scope (Ferrite only).
    Whoami(users::WhoamiArguments),
    /// Search and export the audit log (Ferrite only).
    Audit(audit::AuditArguments),
    /// Import machines from another Ironic.
    Import(import::ImportArguments),
    /// Follow the event stream (Ferrite only).
    Events(events::EventsArguments),
    /// Print a shell completion script.
    Completions(manual::CompletionsArguments),
    /// Write manual pages.
    Man(manual::ManArguments),
}

/// The arguments of this process in the order that the parser expects.
#[must_use]
pub fn command_line_arguments() -> Vec<std::ffi::OsString> {
    context::move_connection_options(std::env::args_os().collect())
}

/// Runs a command; `program` is the whole command line, for completions and manual pages.
#[must_use]
pub fn run(command: &ClientCommand, program: clap::Command) -> ExitCode {
    let screen = Screen::from_process();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run_command(command, program)),
        Err(error) => Err(CliError::Failed(format!("cannot start the runtime: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            screen.note(&format!("ferrite: {}", failure.message()));
            ExitCode::from(failure.exit_code() as u8)
        }
    }
}

async fn run_command(command: &ClientCommand, program: clap::Command) -> Result<(), CliError> {
    match command {
        ClientCommand::Node(arguments) => node::run(arguments).await,
        ClientCommand::Deploy(arguments) => deploy::deploy(arguments).await,
        ClientCommand::Undeploy(arguments) => deploy::undeploy(arguments).await,
        ClientCommand::Deployment(arguments) => deployments::run(arguments).await,
        ClientCommand::Port(arguments) => resources::ports(arguments, &resource_types::PORTS).await,
        ClientCommand::Portgroup(arguments) => {
            resources::ports(arguments, &resource_types::PORTGROUPS).await
        }
        ClientCommand::Allocation(arguments) => resources::allocations(arguments).await,
        ClientCommand::Template(arguments) => {
            resources::run(arguments, &resource_types::TEMPLATES).await
        }
        ClientCommand::Runbook(arguments) => {
            resources::run(arguments, &resource_types::RUNBOOKS).await
        }
        ClientCommand::Rule(arguments) => resources::run(arguments, &resource_types::RULES).await,
        ClientCommand::Flavour(arguments) => resources::flavours(arguments).await,
        ClientCommand::Sighting(arguments) => network::sightings(arguments).await,
        ClientCommand::Image(arguments) => images::run(arguments).await,
        ClientCommand::Topology(arguments) => network::topology(arguments).await,
        ClientCommand::Cluster(arguments) => cluster::run(arguments).await,
        ClientCommand::Driver(arguments) => resources::drivers(arguments).await,
        ClientCommand::User(arguments) => users::users(arguments).await,
        ClientCommand::Project(arguments) => users::projects(arguments).await,
        ClientCommand::Quota(arguments) => quotas::run(arguments).await,
        ClientCommand::Token(arguments) => tokens::run(arguments).await,
        ClientCommand::Login(arguments) => login::run(arguments).await,
        ClientCommand::Whoami(arguments) => users::whoami(arguments).await,
        ClientCommand::Audit(arguments) => audit::run(arguments).await,
        ClientCommand::Import(arguments) => import::run(arguments).await,
        ClientCommand::Events(arguments) => events::run(arguments).await,
        ClientCommand::Completions(arguments) => {
            manual::completions(program, arguments);
            Ok(())
        }
        ClientCommand::Man(arguments) => manual::man(program, arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(subcommand)]
        _command: ClientCommand,
    }

    #[test]
    fn has_no_conflicting_options() {
        Program::command().debug_assert();
    }

    #[test]
    fn options_have_the_right_help_heading() {
        let program = Program::command();
        for (path, option, heading) in [
            (&["deploy"][..], "image", None),
            (&["deploy"], "url", Some("Connection")),
            (&["deploy"], "ssh_keys", Some("Config drive")),
            (&["deploy"], "instance_info", None),
            (&["deploy"], "no_wait", Some("Waiting")),
            (&["deploy"], "timeout", Some("Waiting")),
            (&["deploy"], "dry_run", None),
            (&["deploy"], "output", None),
            (&["undeploy"], "yes", None),
            (&["node", "provide"], "filter-owner", Some("Filters")),
            (&["node", "provide"], "wait", Some("Waiting")),
            (&["node", "provide"], "yes", None),
        ] {
            let mut command = &program;
            for name in path {
                command = command.find_subcommand(name).unwrap();
            }
            let argument = command.get_arguments().find(|it| it.get_id() == option).unwrap();
            assert_eq!(argument.get_help_heading(), heading, "{path:?} {option}");
        }
    }

    /// Otherwise the password would be sent to the server of the environment or of a file.
    #[test]
    fn password_requires_a_url() {
        let parsed = |line: &str| Program::try_parse_from(line.split(' ')).is_ok();
        assert!(!parsed("f node list --password-file p"));
        assert!(!parsed("f node --password-file p list"));
        assert!(!parsed("f node list --password-file p --cloud c"));
        assert!(parsed("f node list --password-file p --url http://h"));
        assert!(parsed("f node list --user u --password-file p --url http://h"));
    }
}
