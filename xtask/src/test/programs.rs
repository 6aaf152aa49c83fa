// SPDX-License-Identifier: Apache-2.0
//! Builds the test programs of the workspace and runs several of them at once.
//!
//! `cargo test` runs one program after the other and calls rustdoc for every library, although
//! there are no doctests. Most of our tests wait for timers, machines or servers, so running
//! programs side by side uses the processors better.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::test_counts::TestCounts;
use crate::interrupt::Interrupt;
use crate::{print, shell};

/// A program that runs longer than this is killed and counts as failed.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// One test program, ready to run.
pub(crate) struct TestProgram {
    /// Crate and target, such as `ferrite end_to_end`.
    pub(crate) name: String,
    pub(crate) command: Command,
}

impl TestProgram {
    /// The same program with the tests below modules of this name only, one after the other; `None` if
    /// there are none.
    pub(crate) fn only_module(&self, module: &str) -> Result<Option<Self>> {
        let listed = shell::output_of(self.without_arguments().args([module, "--list"]))?;
        if !listed.contains(": test") {
            return Ok(None);
        }
        let mut command = self.without_arguments();
        command.args([module, "--test-threads", "1"]);
        let name = format!("{} {}", self.name, module.trim_end_matches(':'));
        Ok(Some(Self { name, command }))
    }

    /// The command with its folder and variables, but no arguments.
    fn without_arguments(&self) -> Command {
        let mut command = Command::new(self.command.get_program());
        if let Some(folder) = self.command.get_current_dir() {
            command.current_dir(folder);
        }
        let variables = self.command.get_envs();
        command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        command
    }
}

/// The result of one program.
pub(crate) struct ProgramResult {
    pub(crate) name: String,
    pub(crate) elapsed: Duration,
    pub(crate) counts: TestCounts,
    pub(crate) failed: bool,
}

/// Compiles all tests and returns their programs. May download crates.
pub(crate) fn build(root: &Path, interrupt: &Interrupt) -> Result<Vec<TestProgram>> {
    let mut build = shell::cargo(root);
    build.args(["test", "--workspace", "--no-run"]);
    build.arg("--message-format=json-render-diagnostics");
    let mut programs = Vec::new();
    shell::run_and_capture(&mut build, interrupt, |line| {
        if let Some(program) = parse_artifact(line) {
            programs.push(program);
        }
    })?;
    if programs.is_empty() {
        bail!("cargo built no test programs");
    }
    Ok(programs)
}

/// Parses a line of cargo's JSON output; `None` unless it describes a test program.
fn parse_artifact(line: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(line).ok()?;
    let executable = message.get("executable")?.as_str()?;
    if message.pointer("/profile/test") != Some(&Value::Bool(true)) {
        return None;
    }
    let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
    let package = folder.file_name()?.to_str()?;
    let target = message.pointer("/target/name")?.as_str()?;
    let name = if target.replace('_', "-") == package {
        package.to_owned()
    } else {
        format!("{package} {target}")
    };
    let mut command = Command::new(executable);
    // As `cargo test` does it: tests find their data relative to the crate.
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    Some(TestProgram { name, command })
}

/// Runs the programs, `at_once` at a time, in the given order. The output of each goes to a file in
/// `logs` and is printed only if it fails.
pub(crate) fn run_all(
    programs: Vec<TestProgram>,
    at_once: usize,
    logs: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<ProgramResult>> {
    fs::create_dir_all(logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let queue = Mutex::new(VecDeque::from(programs));
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while !interrupt.is_raised() {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(program) = next else { break };
                    let result = run_one(program, logs, interrupt);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                }
            });
        }
    });
    if interrupt.is_raised() {
        bail!("interrupted during the tests");
    }
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

fn run_one(program: TestProgram, logs: &Path, interrupt: &Interrupt) -> Result<ProgramResult> {
    let TestProgram { name, mut command } = program;
    let log = logs.join(format!("{}.log", name.replace([' ', '/'], "-")));
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let started = Instant::now();
    let outcome = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {name}"))
        .and_then(|mut child| shell::wait(&mut child, &name, Some(PROGRAM_TIMEOUT), interrupt));
    let elapsed = started.elapsed();
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let mut counts = TestCounts::default();
    text.lines().for_each(|line| counts.add_line(line));
    let failed = outcome.is_err() || counts.failed > 0;
    let verdict = if failed { "FAILED" } else { "ok    " };
    let TestCounts { passed, failed: failures } = counts;
    let mut lines = format!(
        "{verdict} {:>5.0} s  {name}: {passed} passed, {failures} failed;",
        elapsed.as_secs_f64()
    );
    if let Err(error) = outcome {
        lines.push_str(&format!(" {error:#}\n{}", text.trim_end()));
    }
    print::line(&lines);
    Ok(ProgramResult { name, elapsed, counts, failed })
}

/// Moves the programs whose names start with one of `first` to the front, in that order: the
/// longest ones have to start first, or everything else waits for them at the end.
pub(crate) fn start_first(programs: &mut [TestProgram], first: &[&str]) {
    let rank = |name: &str| first.iter().position(|prefix| name.starts_with(prefix));
    programs.sort_by_key(|program| rank(&program.name).unwrap_or(first.len()));
}

/// Where the output of each program is.
pub(crate) fn log_folder(target: &Path) -> PathBuf {
    target.join("test-logs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_are_taken_from_the_output_of_cargo() {
        let artifact = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/x/crates/boot-media/Cargo.toml",
                "target":{{"name":"boot_media"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let name = |line: &str| parse_artifact(line).map(|program| program.name);
        assert_eq!(name(&artifact(true, "\"/x/a\"")).as_deref(), Some("boot-media"));
        let integration = artifact(true, "\"/x/a\"").replace("\"boot_media\"", "\"http\"");
        assert_eq!(name(&integration).as_deref(), Some("boot-media http"));
        assert_eq!(name(&artifact(false, "\"/x/a\"")), None);
        assert_eq!(name(&artifact(true, "null")), None);
        assert_eq!(name("   Compiling a"), None);
    }

    #[test]
    fn a_program_without_arguments_keeps_folder_and_variables() {
        let mut command = Command::new("a");
        command.current_dir("/x").env("KEY", "value").args(["--skip", "slow::"]);
        let bare = TestProgram { name: "a".into(), command }.without_arguments();
        assert_eq!(bare.get_current_dir(), Some(Path::new("/x")));
        assert_eq!(bare.get_envs().count(), 1);
        assert_eq!(bare.get_args().count(), 0);
    }

    #[test]
    fn long_programs_start_first() {
        let program = |name: &str| TestProgram { name: name.into(), command: Command::new("true") };
        let mut programs = ["a", "store", "ferrite end_to_end", "b"].map(program);
        start_first(&mut programs, &["ferrite end_to_end", "store"]);
        let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["ferrite end_to_end", "store", "a", "b"]);
    }
}
