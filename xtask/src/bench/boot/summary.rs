// SPDX-License-Identifier: Apache-2.0
//! The figures of all rounds, and the table they end in.

use super::contest::{Contest, Counts};
use super::sides::Sample;
use crate::say;

const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;

/// The figures so far: by load, by side, one per round.
pub(crate) struct Summary {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    counts: Counts,
    sides: [Vec<Figures>; 2],
}

/// What a sample comes to.
#[derive(Clone, Copy)]
struct Figures {
    /// Per second: leases, MiB or machines.
    rate: f64,
    /// Seconds of processor time: for a lease, a GiB or all machines.
    cost: f64,
    /// How many operations failed.
    failures: f64,
}

impl Summary {
    pub(crate) fn new(contests: &[Contest]) -> Self {
        let rows = contests.iter().map(|contest| Row {
            name: contest.name.clone(),
            counts: contest.counts,
            sides: Default::default(),
        });
        Self { rows: rows.collect() }
    }

    /// Notes a sample, and says it at once: runs are long.
    pub(crate) fn add(&mut self, contest: &Contest, column: usize, sample: &Sample) {
        let figures = Figures::of(contest.counts, sample);
        let label = ["ferrite", "others"].get(column).copied().unwrap_or_default();
        let [rate, cost] = figures.in_words(contest.counts);
        let [half, most] = sample.latencies.map(|seconds| seconds * 1e3);
        let mut text = format!(
            "[{label}] {}: {rate}, CPU {cost}; {:.2} s in all, half within {half:.1} ms, 99 % within {most:.1} ms",
            contest.name, sample.seconds
        );
        if sample.failures > 0 {
            let why = sample.first_failure.as_deref().unwrap_or_default();
            text.push_str(&format!("; {} FAILED, the first: {why}", sample.failures));
        }
        say::line(&text);
        // A load of which nothing was carried out is no figure.
        if sample.operations > 0.0
            && let Some(row) = self.rows.iter_mut().find(|row| row.name == contest.name)
            && let Some(side) = row.sides.get_mut(column)
        {
            side.push(figures);
        }
    }

    /// The medians.
    pub(crate) fn print(&self) {
        say::line("| load | ferrite | dnsmasq, nginx | times | ferrite CPU | theirs | times |");
        say::line("|---|---|---|---|---|---|---|");
        for row in &self.rows {
            let medians = [Figures::median(&row.sides[0]), Figures::median(&row.sides[1])];
            let words = medians.map(|median| {
                median.map_or(["-".to_owned(), "-".to_owned()], |it| it.in_words(row.counts))
            });
            let [faster, cheaper] = match medians {
                [Some(ours), Some(theirs)] => [ours.rate / theirs.rate, theirs.cost / ours.cost]
                    .map(|times| format!("{times:.1}")),
                [None, _] | [_, None] => ["-".to_owned(), "-".to_owned()],
            };
            let [[our_rate, our_cost], [their_rate, their_cost]] = words;
            say::line(&format!(
                "| {} | {our_rate} | {their_rate} | {faster} | {our_cost} | {their_cost} | {cheaper} |",
                row.name
            ));
        }
        say::line(
            "Times: how much faster or cheaper ferrite is; below 1.0 it is slower or dearer.",
        );
    }
}

impl Figures {
    fn of(counts: Counts, sample: &Sample) -> Self {
        let cpu = sample.cpu.as_secs_f64();
        let seconds = sample.seconds.max(1e-9);
        let (rate, cost) = match counts {
            Counts::Leases => (sample.operations / seconds, cpu / sample.operations.max(1.0)),
            Counts::Bytes => (sample.bytes / MIB / seconds, cpu / (sample.bytes.max(1.0) / GIB)),
            Counts::Boots => (sample.operations / seconds, cpu),
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

    fn in_words(self, counts: Counts) -> [String; 2] {
        let [mut rate, cost] = match counts {
            Counts::Leases => {
                [format!("{:.0}/s", self.rate), format!("{:.0} us each", self.cost * 1e6)]
            }
            Counts::Bytes => {
                [format!("{:.0} MiB/s", self.rate), format!("{:.2} s per GiB", self.cost)]
            }
            Counts::Boots => [format!("{:.0}/s", self.rate), format!("{:.2} s", self.cost)],
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
    fn the_median_is_taken_of_each_figure_alone() {
        let figures = [(3.0, 10.0), (1.0, 30.0), (2.0, 20.0)].map(|(rate, cost)| Figures {
            rate,
            cost,
            failures: 0.0,
        });
        let median = Figures::median(&figures).expect("three figures");
        assert_eq!((median.rate, median.cost), (2.0, 20.0));
        assert!(Figures::median(&[]).is_none());
    }
}
