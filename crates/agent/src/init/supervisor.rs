// SPDX-License-Identifier: Apache-2.0
//! Process 1: starts the worker, collects what ended, and never ends itself.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, wait};

use super::power::{PowerAction, act};
use crate::logs::Consoles;
use crate::parameters::{Parameters, Settings};

/// How the worker is told what it is.
pub const WORKER: &str = "--worker";

/// The longest pause between two attempts of the worker.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Mounts, starts, watches. Never returns.
pub fn run() -> ! {
    let complaints = super::mount_all();
    let mut consoles = Consoles::open();
    for complaint in complaints {
        say(&mut consoles, &complaint);
    }
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let settings = Settings::new(&Parameters::from_command_line(&line));
    let begun = Instant::now();
    let mut pause = Duration::from_secs(1);
    loop {
        let program = std::env::current_exe().unwrap_or_else(|_| "/init".into());
        let lived = Instant::now();
        match Command::new(program).arg(WORKER).spawn() {
            Ok(worker) => {
                let ended = wait_for(worker.id());
                say(
                    &mut consoles,
                    &format!(
                        "the agent ended: {ended}; it is started again in {} s. Its last words are above.",
                        pause.as_secs()
                    ),
                );
            }
            Err(error) => say(&mut consoles, &format!("the agent could not be started: {error}")),
        }
        if settings.reboot_after_failure.is_some_and(|bound| begun.elapsed() > bound) {
            say(&mut consoles, "the machine reboots, as ferrite-reboot-after-failure says");
            act(PowerAction::Restart, true);
        }
        if lived.elapsed() > LONGEST_PAUSE {
            pause = Duration::from_secs(1);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Collects every process that ends until it is this one, and says how it ended.
fn wait_for(worker: u32) -> String {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().unsigned_abs() == worker => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("exit status {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => "for no reason the kernel gives".to_owned(),
                };
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return format!("it is not there any more ({error})"),
        }
    }
}

fn say(consoles: &mut Consoles, text: &str) {
    let mut line = Vec::new();
    let _ = writeln!(line, "ferrite-agent: {text}");
    consoles.write(&line);
}
