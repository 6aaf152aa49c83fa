// SPDX-License-Identifier: Apache-2.0
//! The figures of all rounds as a table.

use super::boot_load::{BootLoad, LoadUnit};
use super::peers::LoadSample;
use crate::print;

const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;

/// Figures by load and peer, one per round.
pub(crate) struct BootSummary {
    rows: Vec<BootSummaryRow>,
}

struct BootSummaryRow {
    name: String,
    counts: LoadUnit,
    sides: [Vec<BootFigures>; 2],
}

/// The figures of one sample.
#[derive(Clone, Copy)]
struct BootFigures {
    /// Leases, MiB or machines per second.
    rate: f64,
    /// Seconds of processor time per lease, per GiB or for all machines.
    cost: f64,
    /// Failed operations.
    failures: f64,
}

impl BootSummary {
    pub(crate) fn new(contests: &[BootLoad]) -> Self {
        let rows = contests.iter().map(|contest| BootSummaryRow {
            name: contest.name.clone(),
            counts: contest.counts,
            sides: Default::default(),
        });
        Self { rows: rows.collect() }
    }

    /// Adds a sample and prints it at once.
    pub(crate) fn add(&mut self, contest: &BootLoad, column: usize, sample: &LoadSample) {
        let figures = BootFigures::of(contest.counts, sample);
        let label = ["ferrite", "others"].get(column).copied().unwrap_or_default();
        let [rate, cost] = figures.to_cells(contest.counts);
        let [half, most] = sample.latencies.map(|seconds| seconds * 1e3);
        let mut text = format!(
            "[{label}] {}: {rate}, CPU {cost}; {:.2} s in all, half within {half:.1} ms, 99 % within {most:.1} ms",
            contest.name, sample.seconds
        );
        if sample.failures > 0 {
            let why = sample.first_failure.as_deref().unwrap_or_default();
            text.push_str(&format!("; {} FAILED, the first: {why}", sample.failures));
        }
        print::line(&text);
        // A load without a successful operation has no figure.
        if sample.operations > 0.0
            && let Some(row) = self.rows.iter_mut().find(|row| row.name == contest.name)
            && let Some(side) = row.sides.get_mut(column)
        {
            side.push(figures);
        }
    }

    /// Prints the medians.
    pub(crate) fn print(&self) {
        print::line("| load | ferrite | dnsmasq, nginx | times | ferrite CPU | theirs | times |");
        print::line("|---|---|---|---|---|---|---|");
        for row in &self.rows {
            let medians = [BootFigures::median(&row.sides[0]), BootFigures::median(&row.sides[1])];
            let words = medians.map(|median| {
                median.map_or(["-".to_owned(), "-".to_owned()], |it| it.to_cells(row.counts))
            });
            let [faster, cheaper] = match medians {
                [Some(ours), Some(theirs)] => [ours.rate / theirs.rate, theirs.cost / ours.cost]
                    .map(|times| format!("{times:.1}")),
                [None, _] | [_, None] => ["-".to_owned(), "-".to_owned()],
            };
            let [[our_rate, our_cost], [their_rate, their_cost]] = words;
            print::line(&format!(
                "| {} | {our_rate} | {their_rate} | {faster} | {our_cost} | {their_cost} | {cheaper} |",
                row.name
            ));
        }
        print::line(
            "Times: how much faster or cheaper ferrite is; below 1.0 it is slower or dearer.",
        );
    }
}

impl BootFigures {
    fn of(counts: LoadUnit, sample: &LoadSample) -> Self {
        let cpu = sample.cpu.as_secs_f64();
        let seconds = sample.seconds.max(1e-9);
        let (rate, cost) = match counts {
            LoadUnit::Leases => (sample.operations / seconds, cpu / sample.operations.max(1.0)),
            LoadUnit::Bytes => (sample.bytes / MIB / seconds, cpu / (sample.bytes.max(1.0) / GIB)),
            LoadUnit::Boots => (sample.operations / seconds, cpu),
        };
        Self { rate, cost, failures: sample.failures as f64 }
    }

    fn median(figures: &[Self]) -> Option<Self> {
        let middle = |of: fn(&Self) -> f64| {
            let mut all: Vec<f64> = figures.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        Some(Self {
            rate: middle(|it| it.rate)?,
            cost: middle(|it| it.cost)?,
            failures: middle(|it| it.failures)?,
        })
    }

    fn to_cells(self, counts: LoadUnit) -> [String; 2] {
        let [mut rate, cost] = match counts {
            LoadUnit::Leases => {
                [format!("{:.0}/s", self.rate), format!("{:.0} us each", self.cost * 1e6)]
            }
            LoadUnit::Bytes => {
                [format!("{:.0} MiB/s", self.rate), format!("{:.2} s per GiB", self.cost)]
            }
            LoadUnit::Boots => [format!("{:.0}/s", self.rate), format!("{:.2} s", self.cost)],
        };
        if self.failures > 0.0 {
            rate.push_str(&format!(" ({} failed)", self.failures));
        }
        [rate, cost]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_computed_per_figure() {
        let figures = [(3.0, 10.0), (1.0, 30.0), (2.0, 20.0)].map(|(rate, cost)| BootFigures {
            rate,
            cost,
            failures: 0.0,
        });
        let median = BootFigures::median(&figures).expect("three figures");
        assert_eq!((median.rate, median.cost), (2.0, 20.0));
        assert!(BootFigures::median(&[]).is_none());
    }
}
