// SPDX-License-Identifier: Apache-2.0
//! The agent as a program: process 1 of a ramdisk, its worker, or an ordinary process.
//!
//! As an ordinary process it takes what the kernel's command line would say as arguments:
//! `ferrite-agent ipa-api-url=http://192.0.2.1:6385 ipa-debug=1`.
//!
//! A vendor's agent is a program that calls [`main`] with hardware managers of its own.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use crate::init::{self, Devices, supervisor};
use crate::logs::{self, Consoles};
use crate::managers::HardwareManager;
use crate::parameters::{Parameters, Settings};
use crate::run::{self, Machine};
use crate::{VERSION, chance};

const USAGE: &str = "usage: ferrite-agent [--api-url URL] [NAME=VALUE]...\n\
    NAME=VALUE is what the kernel's command line would say, such as ipa-api-url=http://192.0.2.1:6385\n";

/// Whoever knows machines better, beside the generic manager.
pub type OwnManagers = Vec<Arc<dyn HardwareManager>>;

/// Everything that `main` does, with these managers built in.
#[must_use]
pub fn main(managers: OwnManagers) -> ExitCode {
    if std::process::id() == 1 {
        supervisor::run();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map(String::as_str) == Some(supervisor::WORKER) {
        return work(managers);
    }
    let mut parameters = Parameters::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match (argument.as_str(), argument.split_once('=')) {
            ("--api-url", _) => parameters.insert("ipa-api-url", rest.next().map_or("", |url| url)),
            ("--version", _) => {
                say(&format!("ferrite-agent {}\n", VERSION));
                return ExitCode::SUCCESS;
            }
            (_, Some((name, value))) if !name.starts_with('-') => parameters.insert(name, value),
            _ => {
                say(USAGE);
                return ExitCode::from(2);
            }
        }
    }
    logs::start(None, Settings::new(&parameters).debug);
    live(parameters, Machine::Others, managers, Devices::of_others)
}

/// The ramdisk's agent.
fn work(managers: OwnManagers) -> ExitCode {
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let parameters = Parameters::from_command_line(&line);
    logs::start(Some(Consoles::open()), Settings::new(&parameters).debug);
    live(parameters, Machine::Own, managers, || {
        let devices = init::start_devices(Path::new("/"), true);
        init::mount_late();
        devices
    })
}

fn live(
    parameters: Parameters,
    machine: Machine,
    managers: OwnManagers,
    devices: impl FnOnce() -> Devices,
) -> ExitCode {
    // One thread is enough: what takes long runs on threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_stack_size(512 << 10)
        .max_blocking_threads(16)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the agent cannot start");
            return ExitCode::FAILURE;
        }
    };
    chance::prepare();
    let devices = devices();
    match runtime.block_on(run::run(parameters, machine, devices, managers)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = logs::causes(&error), "the agent cannot go on");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
