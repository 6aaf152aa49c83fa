// SPDX-License-Identifier: Apache-2.0
//! The `ferrite` program: bare-metal provisioning in one process.

mod bmc;
mod boot;
mod config;
mod demo;
mod enrolment;
mod ports;
mod process;
mod ramdisk;
mod serve;
mod service;
mod sim;
mod telemetry;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use command_line::ClientCommand;

/// Bare-metal provisioning in one program, wire-compatible with OpenStack Ironic.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the API and the conductor.
    Serve(serve::ServeArguments),
    /// Show everything on a simulated rack, or on QEMU machines: enrol, inspect, clean and deploy, and
    /// stay up.
    Demo(demo::DemoArguments),
    /// Run simulated machines with their BMCs, to try Ferrite on.
    Sim(sim::SimArguments),
    /// Record a BMC to a file, or serve a recording as a BMC.
    #[command(subcommand)]
    Bmc(bmc::BmcCommand),
    /// Make the ramdisk that machines boot the agent from.
    #[command(subcommand)]
    Ramdisk(ramdisk::RamdiskCommand),
    /// What people ask an API for.
    #[command(flatten)]
    Client(ClientCommand),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(command_line::words());
    let outcome = match arguments.command {
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Sim(arguments) => sim::sim(&arguments),
        Command::Bmc(command) => bmc::run(&command),
        Command::Ramdisk(command) => ramdisk::run(&command),
        Command::Client(command) => return command_line::run(&command, Arguments::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

/// One line that says what is wrong, with its causes.
#[expect(clippy::print_stderr, reason = "this is where the program speaks to its user")]
fn complain(error: &anyhow::Error) {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors tell their cause themselves: it is not repeated.
        if causes.last().is_none_or(|told| !told.contains(&cause)) {
            causes.push(cause.replace('\n', " "));
        }
    }
    eprintln!("ferrite: {}", causes.join(": "));
}
