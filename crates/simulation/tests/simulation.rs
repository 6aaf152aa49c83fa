// SPDX-License-Identifier: Apache-2.0
//! Runs the simulation with the fixed list of seeds and with some that depend on the commit, and tests that it
//! is deterministic and finds defects.

use simulation::{SimulationDefect, simulate, simulate_with_defect};

/// The variable with the number from which new seeds are counted. `cargo xtask test` sets it to a number that
/// depends on the commit, so that each commit tests other seeds, and always the same ones.
const FIRST_SEED: &str = "FERRITE_SIMULATION_SEEDS";
/// How many new seeds are run.
const NEW_SEEDS: u64 = 10;

/// Runs a seed. Fails with the seed and the violated rules.
fn check(seed: u64) {
    let report = simulate(seed).expect("the simulation runs");
    assert!(
        report.violations.is_empty(),
        "repeat it with: cargo xtask simulate --seed {seed}\n{}\n{}",
        report.violations.join("\n"),
        report.events.iter().rev().take(20).rev().cloned().collect::<Vec<_>>().join("\n"),
    );
}

#[test]
fn fixed_seeds_violate_no_rule() {
    let lines = include_str!("../seeds.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let seed = line.split_whitespace().next().and_then(|seed| seed.parse().ok());
        check(seed.unwrap_or_else(|| panic!("not a seed: {line}")));
    }
}

#[test]
fn new_seeds_violate_no_rule() {
    let first = std::env::var(FIRST_SEED).ok().and_then(|first| first.parse().ok());
    let first: u64 = first.unwrap_or(10_000);
    (first..first + NEW_SEEDS).for_each(check);
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in [11, 12, 13] {
        let (first, second) = (simulate(seed).unwrap(), simulate(seed).unwrap());
        let pairs = first.events.iter().zip(&second.events);
        for (number, (first, second)) in pairs.enumerate() {
            assert_eq!(first, second, "event {number} of seed {seed}");
        }
        assert_eq!(first.events.len(), second.events.len(), "seed {seed}");
    }
}

/// Fails unless one of many seeds finds a violation with one of these texts. Most defects show in every third
/// to tenth run.
fn assert_found(defect: SimulationDefect, texts: &[&str]) {
    let is_expected = |violation: &String| texts.iter().any(|text| violation.contains(text));
    let is_found = (1..=100).any(|seed| {
        let report = simulate_with_defect(seed, defect).expect("the simulation runs");
        report.violations.iter().any(is_expected)
    });
    assert!(is_found, "{defect:?} was not found");
}

#[test]
fn commands_without_the_lease_are_found() {
    let texts = ["whose lease", "after a later lease"];
    assert_found(SimulationDefect::SlowClock, &texts);
}

#[test]
fn lost_changes_are_found() {
    let texts = ["accepted, and the job was not stored", "was confirmed, and stored 0 times"];
    assert_found(SimulationDefect::ForgottenCommits, &texts);
}
