// SPDX-License-Identifier: Apache-2.0
//! Runs other programs, with a timeout where needed, and stops them on Ctrl-C.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupt;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// After SIGTERM; then the program is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A cargo command in the repository. The variables that cargo set for xtask itself are removed:
/// the tested crates would read them as their own.
pub(crate) fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// Runs a command to its end. Fails if the command fails or on an interrupt.
pub(crate) fn run(command: &mut Command, interrupt: &Interrupt) -> Result<()> {
    let name = command_line(command);
    let mut child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
    wait(&mut child, &name, None, interrupt)
}

/// Runs a command and passes each line of its standard output to `each_line`.
pub(crate) fn run_and_capture(
    command: &mut Command,
    interrupt: &Interrupt,
    mut each_line: impl FnMut(&str),
) -> Result<()> {
    let name = command_line(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{name}`"))?;
    let output = child.stdout.take().context("the output was not piped")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.with_context(|| format!("cannot read the output of `{name}`"))?;
        each_line(&String::from_utf8_lossy(&line));
    }
    wait(&mut child, &name, None, interrupt)
}

/// Runs a command and returns its standard output; its standard error is part of the error if it
/// fails. Nothing is printed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}", command_line(command), errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for a process to exit by itself. Returns whether it did so within the timeout.
pub(crate) fn exits_within(child: &mut Child, timeout: Duration) -> Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Waits for a process. Stops it and fails on an interrupt or after the timeout; fails if the
/// process fails.
pub(crate) fn wait(
    child: &mut Child,
    name: &str,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<()> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("`{name}` failed: {status}");
        }
        if interrupt.is_raised() {
            stop(child)?;
            bail!("interrupted during `{name}`");
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            stop(child)?;
            bail!("`{name}` did not end within {:?}", timeout.unwrap_or_default());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Sends SIGTERM, then kills. Ctrl-C in a terminal reaches the program as well, but a signal sent
/// to xtask alone does not.
fn stop(child: &mut Child) -> Result<()> {
    let _already_gone = http_probe::send_signal(child.id(), "TERM");
    if !exits_within(child, STOP_TIMEOUT)? {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut text = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}
