// SPDX-License-Identifier: Apache-2.0
//! The command line for people: `ferrite node`, `ferrite deploy` and the rest.
//!
//! It talks to the HTTP API only, so it works with any Ironic; what only a Ferrite can tell (timelines,
//! explanations, what a machine waits for) is shown where there is one. Results go to standard output,
//! everything else to standard error, and the exit code tells scripts how it went.

mod assignments;
mod bulk;
mod config_drive;
mod deploy;
mod desk;
mod events;
mod failure;
mod images;
mod import;
mod interrupts;
mod kinds;
mod manual;
mod moments;
mod network;
mod node;
mod noderange;
mod order;
mod output;
mod progress;
mod resources;
mod runbook_traits;
mod screen;
mod selection;
mod table;
#[cfg(test)]
mod test_server;
mod things;
mod wait;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;

use failure::Failure;
use resources::Of;
use screen::Screen;

/// What people can ask for.
#[derive(Subcommand)]
pub enum ClientCommand {
    /// Machines.
    #[command(visible_alias = "nodes")]
    Node(node::NodeArguments),
    /// Pick machines, deploy an image on them and wait for them.
    Deploy(deploy::DeployArguments),
    /// Take instances off machines and wait until they are clean.
    Undeploy(deploy::UndeployArguments),
    /// Network cards of machines.
    Port(Of<resources::PortCommand>),
    /// Network cards that work as one.
    Portgroup(Of<resources::PortCommand>),
    /// Machines that are kept for somebody.
    Allocation(Of<resources::AllocationCommand>),
    /// Deploy templates: steps that traits of an instance bring along.
    Template(Of<resources::ThingCommand>),
    /// Runbooks: steps under a name.
    Runbook(Of<resources::ThingCommand>),
    /// Inspection rules.
    Rule(Of<resources::ThingCommand>),
    /// Kinds of machines, told apart by what inspection finds (Ferrite only).
    Flavour(Of<resources::FlavourCommand>),
    /// Machines that were seen on the network and that nobody enrolled (Ferrite only).
    Sighting(Of<network::SightingCommand>),
    /// Images that machines have, and those the server keeps (Ferrite only).
    Image(Of<images::ImageCommand>),
    /// Who is plugged in where (Ferrite only).
    Topology(network::TopologyArguments),
    /// What machines are driven by.
    Driver(Of<resources::DriverCommand>),
    /// Take over the machines of another Ironic.
    Import(import::ImportArguments),
    /// Follow what happens (Ferrite only).
    Events(events::EventsArguments),
    /// Print a script that completes commands in a shell.
    Completions(manual::CompletionsArguments),
    /// Write manual pages.
    Man(manual::ManArguments),
}

/// The words of this process's command line, as its parser wants them.
#[must_use]
pub fn words() -> Vec<std::ffi::OsString> {
    desk::connection_behind(std::env::args_os().collect())
}

/// Does what was asked; `program` is the whole command line, for completions and manual pages.
#[must_use]
pub fn run(command: &ClientCommand, program: clap::Command) -> ExitCode {
    let screen = Screen::of_this_process();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(done(command, program)),
        Err(error) => Err(Failure::Failed(format!("cannot start the runtime: {error}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            screen.note(&format!("ferrite: {}", failure.told()));
            ExitCode::from(failure.code() as u8)
        }
    }
}

async fn done(command: &ClientCommand, program: clap::Command) -> Result<(), Failure> {
    match command {
        ClientCommand::Node(arguments) => node::run(arguments).await,
        ClientCommand::Deploy(arguments) => deploy::deploy(arguments).await,
        ClientCommand::Undeploy(arguments) => deploy::undeploy(arguments).await,
        ClientCommand::Port(arguments) => resources::ports(arguments, &kinds::PORTS).await,
        ClientCommand::Portgroup(arguments) => {
            resources::ports(arguments, &kinds::PORTGROUPS).await
        }
        ClientCommand::Allocation(arguments) => resources::allocations(arguments).await,
        ClientCommand::Template(arguments) => resources::things(arguments, &kinds::TEMPLATES).await,
        ClientCommand::Runbook(arguments) => resources::things(arguments, &kinds::RUNBOOKS).await,
        ClientCommand::Rule(arguments) => resources::things(arguments, &kinds::RULES).await,
        ClientCommand::Flavour(arguments) => resources::flavours(arguments).await,
        ClientCommand::Sighting(arguments) => network::sightings(arguments).await,
        ClientCommand::Image(arguments) => images::run(arguments).await,
        ClientCommand::Topology(arguments) => network::topology(arguments).await,
        ClientCommand::Driver(arguments) => resources::drivers(arguments).await,
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
    fn no_option_is_there_twice() {
        Program::command().debug_assert();
    }

    /// Whoever looks for an option looks under its heading.
    #[test]
    fn options_stand_where_they_belong() {
        let program = Program::command();
        for (path, option, heading) in [
            (&["deploy"][..], "image", None),
            (&["deploy"], "url", Some("Whom to ask")),
            (&["deploy"], "ssh_keys", Some("What the instance is told")),
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

    /// It would go to whatever address the environment or a file names.
    #[test]
    fn a_password_needs_an_address() {
        let parsed = |line: &str| Program::try_parse_from(line.split(' ')).is_ok();
        assert!(!parsed("f node list --password-file p"));
        assert!(!parsed("f node --password-file p list"));
        assert!(!parsed("f node list --password-file p --cloud c"));
        assert!(parsed("f node list --password-file p --url http://h"));
        assert!(parsed("f node list --user u --password-file p --url http://h"));
    }
}
