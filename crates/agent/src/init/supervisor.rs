// SPDX-License-Identifier: Apache-2.0
//! Process 1: starts the worker, restarts it when it ends, and reaps other processes.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, wait};

use super::power::{PowerAction, execute};
use crate::logs::Consoles;
use crate::parameters::{AgentOptions, BootParameters};

/// The argument that makes the program a worker.
pub const WORKER_ARGUMENT: &str = "--worker";

/// The maximum delay before the worker is restarted.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(30);

/// Mounts file systems and supervises the worker. Never returns.
pub fn run() -> ! {
    let errors = super::mount_early();
    let mut consoles = Consoles::open();
    for error in errors {
        print(&mut consoles, &error);
    }
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let options = AgentOptions::new(&BootParameters::from_command_line(&line));
    let started = Instant::now();
    let mut pause = Duration::from_secs(1);
    loop {
        let program = std::env::current_exe().unwrap_or_else(|_| "/init".into());
        let lived = Instant::now();
        match Command::new(program).arg(WORKER_ARGUMENT).spawn() {
            Ok(worker) => {
                let status = wait_for(worker.id());
                print(
                    &mut consoles,
                    &format!(
                        "agent ended with {status}, restarting in {} s; its last messages are above",
                        pause.as_secs()
                    ),
                );
            }
            Err(error) => print(&mut consoles, &format!("failed to start the agent: {error}")),
        }
        if options.reboot_after_failure.is_some_and(|bound| started.elapsed() > bound) {
            print(&mut consoles, "rebooting the machine (ferrite-reboot-after-failure)");
            execute(PowerAction::Restart, true);
        }
        if lived.elapsed() > MAX_RESTART_DELAY {
            pause = Duration::from_secs(1);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_RESTART_DELAY);
    }
}

/// Reaps processes until the worker has ended. Returns its exit status as text.
fn wait_for(worker: u32) -> String {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().unsigned_abs() == worker => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("exit status {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => "unknown status".to_owned(),
                };
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return format!("unknown status ({error})"),
        }
    }
}

fn print(consoles: &mut Consoles, text: &str) {
    let mut line = Vec::new();
    let _ = writeln!(line, "ferrite-agent: {text}");
    consoles.write(&line);
}
