// SPDX-License-Identifier: Apache-2.0
//! The program: process 1 of a ramdisk, its worker, or an ordinary process.
//!
//! An ordinary process takes kernel parameters as arguments:
//! `ferrite-agent ipa-api-url=http://192.0.2.1:6385 ipa-debug=1`.
//!
//! A vendor's agent is a program that calls [`main`] with its own hardware managers.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use crate::init::{self, DeviceMonitor, supervisor};
use crate::logs::{self, Consoles};
use crate::managers::HardwareManager;
use crate::parameters::{AgentOptions, BootParameters};
use crate::run::{self, RunEnvironment};
use crate::{VERSION, entropy};
use error_chain::error_chain;

const USAGE: &str = "usage: ferrite-agent [--api-url URL] [NAME=VALUE]...\n\
    NAME=VALUE is a kernel parameter, such as ipa-api-url=http://192.0.2.1:6385\n";

/// Hardware managers in addition to the generic one.
pub type BuiltInManagers = Vec<Arc<dyn HardwareManager>>;

/// Runs the program with these managers built in.
#[must_use]
pub fn main(managers: BuiltInManagers) -> ExitCode {
    if std::process::id() == 1 {
        supervisor::run();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map(String::as_str) == Some(supervisor::WORKER_ARGUMENT) {
        return run_worker(managers);
    }
    let mut parameters = BootParameters::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match (argument.as_str(), argument.split_once('=')) {
            ("--api-url", _) => parameters.insert("ipa-api-url", rest.next().map_or("", |url| url)),
            ("--version", _) => {
                print(&format!("ferrite-agent {}\n", VERSION));
                return ExitCode::SUCCESS;
            }
            (_, Some((name, value))) if !name.starts_with('-') => parameters.insert(name, value),
            _ => {
                print(USAGE);
                return ExitCode::from(2);
            }
        }
    }
    logs::start(None, AgentOptions::new(&parameters).debug);
    run_agent(parameters, RunEnvironment::HostProcess, managers, DeviceMonitor::unmanaged)
}

/// Runs the worker in the ramdisk.
fn run_worker(managers: BuiltInManagers) -> ExitCode {
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let parameters = BootParameters::from_command_line(&line);
    logs::start(Some(Consoles::open()), AgentOptions::new(&parameters).debug);
    run_agent(parameters, RunEnvironment::Ramdisk, managers, || {
        let devices = init::start_devices(Path::new("/"), true);
        init::mount_late();
        devices
    })
}

fn run_agent(
    parameters: BootParameters,
    machine: RunEnvironment,
    managers: BuiltInManagers,
    devices: impl FnOnce() -> DeviceMonitor,
) -> ExitCode {
    // One thread is enough: blocking work runs on other threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_stack_size(512 << 10)
        .max_blocking_threads(16)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "failed to start the agent");
            return ExitCode::FAILURE;
        }
    };
    entropy::prepare();
    let devices = devices();
    match runtime.block_on(run::run(parameters, machine, devices, managers)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = error_chain(&error), "agent failed");
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
