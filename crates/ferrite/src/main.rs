// SPDX-License-Identifier: Apache-2.0
//! The `ferrite` program: bare-metal provisioning in one process.

mod backup;
mod bmc;
mod boot;
mod boot_metrics;
mod certificate_expiries;
mod config;
mod crds;
mod database;
mod database_options;
mod demo;
mod embedded_service;
mod in_process_transport;
mod local_addresses;
mod network_interfaces;
mod operator;
mod ports;
mod process;
mod provisioning;
mod ramdisk;
mod run;
mod secrets;
mod serve;
mod service;
mod sim;
mod telemetry;
mod tls;
mod vault_keys;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use command_line::ClientCommand;
use error_chain::error_chain;

/// Bare-metal provisioning in one program, wire-compatible with OpenStack Ironic.
#[derive(Parser)]
#[command(version, about)]
struct FerriteArguments {
    #[command(subcommand)]
    command: FerriteCommand,
}

#[derive(Subcommand)]
enum FerriteCommand {
    /// Run the API and the conductor.
    Serve(serve::ServeArguments),
    /// Perform one operation on one machine without a long-running service.
    #[command(subcommand)]
    Run(run::RunCommand),
    /// Run the Kubernetes controllers: installations of the service, databases and hosts.
    Operator(operator::OperatorArguments),
    /// Print the CRDs of the operator.
    Crds(crds::CrdsArguments),
    /// Run a demonstration with simulated or QEMU machines: enrol, inspect, clean and deploy.
    Demo(::demo::DemoArguments),
    /// Run simulated machines with BMCs.
    Sim(sim::SimArguments),
    /// Record a BMC to a file, or serve a recording as a BMC.
    #[command(subcommand)]
    Bmc(bmc::BmcCommand),
    /// Build the ramdisk that machines boot the agent from.
    #[command(subcommand)]
    Ramdisk(ramdisk::RamdiskCommand),
    /// Prepare the database for this version.
    #[command(subcommand)]
    Database(database::DatabaseCommand),
    /// Write all data of the database to a file, while servers run. Exit codes: 4 if a newer version has
    /// migrated the database, 6 if it is not reachable, 2 for other errors.
    Backup(backup::BackupArguments),
    /// Restore a backup into SQLite, PostgreSQL or MariaDB. Exit codes: 4 if the backup is damaged or of a
    /// newer version, its sealing key is missing, or the database is not empty; 6 if the database is not
    /// reachable, 2 for other errors.
    Restore(backup::RestoreArguments),
    /// Show and replace the key that encrypts the secrets in the database.
    #[command(subcommand)]
    Secrets(secrets::SecretsCommand),
    /// Commands of the API client.
    #[command(flatten)]
    Client(Box<ClientCommand>),
}

fn main() -> ExitCode {
    let arguments = FerriteArguments::parse_from(command_line::command_line_arguments());
    let result = match arguments.command {
        FerriteCommand::Serve(arguments) => serve::serve(&arguments),
        FerriteCommand::Run(command) => return run::run(&command),
        FerriteCommand::Operator(arguments) => operator::operator(&arguments),
        FerriteCommand::Crds(arguments) => crds::crds(&arguments),
        FerriteCommand::Demo(arguments) => demo::demo(&arguments),
        FerriteCommand::Sim(arguments) => sim::sim(&arguments),
        FerriteCommand::Bmc(command) => bmc::run(&command),
        FerriteCommand::Ramdisk(command) => ramdisk::run(&command),
        FerriteCommand::Database(command) => return database::run(&command),
        FerriteCommand::Backup(arguments) => return backup::run_backup(&arguments),
        FerriteCommand::Restore(arguments) => return backup::run_restore(&arguments),
        FerriteCommand::Secrets(command) => secrets::run(&command),
        FerriteCommand::Client(command) => {
            return command_line::run(&command, FerriteArguments::command());
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::from(2)
        }
    }
}

/// Prints the error with its causes on one line.
#[expect(clippy::print_stderr, reason = "errors are printed here")]
fn print_error(error: &anyhow::Error) {
    eprintln!("ferrite: {}", error_chain(error.as_ref()).replace('\n', " "));
}
