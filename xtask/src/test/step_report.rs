// SPDX-License-Identifier: Apache-2.0
//! Runs the steps of `cargo xtask test`, and prints their times and results at the end.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::programs::ProgramResult;
use super::test_counts::TestCounts;
use crate::interrupt::Interrupt;
use crate::print;

/// The number of test programs that the table at the end lists by name.
const LISTED_PROGRAMS: usize = 12;

/// The steps so far.
pub(super) struct StepReport<'a> {
    interrupt: &'a Interrupt,
    started: Instant,
    lines: Vec<String>,
    failed_steps: u64,
    counts: TestCounts,
}

impl<'a> StepReport<'a> {
    pub(super) fn new(interrupt: &'a Interrupt) -> Self {
        Self {
            interrupt,
            started: Instant::now(),
            lines: Vec::new(),
            failed_steps: 0,
            counts: TestCounts::default(),
        }
    }

    /// Runs a step unless the run was interrupted.
    pub(super) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        if self.interrupt.is_raised() {
            return;
        }
        print::heading(name);
        let started = Instant::now();
        let outcome = work();
        self.record(name, started.elapsed(), outcome);
    }

    /// Adds a line below the last step.
    pub(super) fn note(&mut self, text: Option<String>) {
        self.lines.extend(text.map(|text| format!("                 {text}")));
    }

    /// Runs the tests and adds up their results.
    pub(super) fn tests(&mut self, work: impl FnOnce() -> Result<Vec<ProgramResult>>) {
        let mut results = Vec::new();
        self.step("tests", || {
            results = work()?;
            let failed = results.iter().filter(|result| result.failed).count();
            anyhow::ensure!(failed == 0, "{failed} test programs failed");
            Ok(())
        });
        results.iter().for_each(|result| self.counts.add(result.counts));
        results.sort_by_key(|result| std::cmp::Reverse(result.elapsed));
        for result in results.iter().take(LISTED_PROGRAMS) {
            self.lines.push(format!("        {:>5} s  {}", result.elapsed.as_secs(), result.name));
        }
    }

    fn record(&mut self, name: &str, elapsed: Duration, outcome: Result<()>) {
        let seconds = elapsed.as_secs();
        match outcome {
            Ok(()) => self.lines.push(format!("ok      {seconds:>5} s  {name}")),
            Err(error) => {
                print::problem(&format!("{name}: {error:#}"));
                self.failed_steps += 1;
                self.lines.push(format!("FAILED  {seconds:>5} s  {name}: {error:#}"));
            }
        }
    }

    /// Prints the table and the totals. A failed step counts as a failed test if no test failed, so
    /// that the last line of a failed run never reads `0 failed`.
    pub(super) fn finish(self) -> Result<()> {
        print::heading("summary");
        for line in &self.lines {
            print::line(line);
        }
        let minutes = self.started.elapsed().as_secs_f64() / 60.0;
        print::line(&format!("        {minutes:.1} minutes in all"));
        let explained_by_tests = u64::from(self.counts.failed > 0);
        let failed = self.counts.failed + self.failed_steps.saturating_sub(explained_by_tests);
        print::line(&format!("{} passed, {failed} failed", self.counts.passed));
        if self.failed_steps > 0 { std::process::exit(1) } else { Ok(()) }
    }
}
