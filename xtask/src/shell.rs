// SPDX-License-Identifier: Apache-2.0
//! Running other programs: cargo, and what has to be stopped again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupt;
use crate::say;

/// How often a running program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A cargo command in the repository, without the variables cargo set for xtask itself (they
/// would be taken for the tested crates').
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

/// Runs a command to its end; an error if it fails or if we are interrupted.
pub(crate) fn run(command: &mut Command, interrupt: &Interrupt) -> Result<()> {
    let name = described(command);
    let mut child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
    wait(&mut child, &name, interrupt)
}

/// Runs a command, passing its standard output on line by line to us and to `each_line`.
pub(crate) fn run_and_read(
    command: &mut Command,
    interrupt: &Interrupt,
    mut each_line: impl FnMut(&str),
) -> Result<()> {
    let name = described(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{name}`"))?;
    let output = child.stdout.take().context("the output was not piped")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.with_context(|| format!("cannot read the output of `{name}`"))?;
        let line = String::from_utf8_lossy(&line);
        say::line(&line);
        each_line(&line);
    }
    wait(&mut child, &name, interrupt)
}

/// Runs a command whose output matters only when it fails, or to us; it may run beside others that
/// print.
pub(crate) fn said(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}", described(command), errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for a process to end by itself; whether it did.
pub(crate) fn ends_within(child: &mut Child, patience: Duration) -> Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn wait(child: &mut Child, name: &str, interrupt: &Interrupt) -> Result<()> {
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("`{name}` failed: {status}");
        }
        if interrupt.is_raised() {
            // Ctrl-C in a terminal reached the program as well; a signal sent to us alone did not.
            let _already_gone = http_probe::send_signal(child.id(), "TERM");
            if !ends_within(child, Duration::from_secs(5))? {
                child.kill()?;
                child.wait()?;
            }
            bail!("interrupted during `{name}`");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn described(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut text = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}
