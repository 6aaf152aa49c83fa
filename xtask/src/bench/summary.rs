// SPDX-License-Identifier: Apache-2.0
//! The figures of all rounds, and the table they end in.

use crate::say;

/// What a figure is to be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// There is none.
    None,
    /// At most this much.
    AtMost(f64),
    /// At most this share of the other side's.
    AtMostShare(f64),
    /// At least this share of the other side's.
    AtLeastShare(f64),
}

/// A row of the table: our figures and those of the other side, one per round.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    target: Target,
    sides: [Vec<f64>; 2],
}

/// All rows, in the order they came.
#[derive(Default)]
pub(crate) struct Summary {
    rows: Vec<Row>,
}

impl Summary {
    /// Notes a figure of column 0, which is ours, or 1, and says it at once: runs are long.
    pub(crate) fn add(
        &mut self,
        column: usize,
        name: &str,
        figure: f64,
        unit: &'static str,
        target: Target,
    ) {
        let side = ["ours", "other"].get(column).copied().unwrap_or_default();
        say::line(&format!("[{side}] {name}: {figure:.2} {unit}"));
        if !self.rows.iter().any(|row| row.name == name) {
            let name = name.to_owned();
            self.rows.push(Row { name, unit, target, sides: Default::default() });
        }
        let row = self.rows.iter_mut().find(|row| row.name == name);
        if let Some(side) = row.and_then(|row| row.sides.get_mut(column)) {
            side.push(figure);
        }
    }

    /// The medians.
    pub(crate) fn print(&self, other: &str) {
        say::line(&format!("| figure | our agent | {other} | ratio | target | met |"));
        say::line("|---|---|---|---|---|---|");
        for row in &self.rows {
            say::line(&row.in_words());
        }
    }
}

impl Row {
    fn in_words(&self) -> String {
        let Self { name, unit, target, sides } = self;
        let [ours, other] = [median(&sides[0]), median(&sides[1])];
        let ratio = ours.zip(other).map(|(ours, other)| ours / other);
        let (wanted, met) = match *target {
            Target::None => (String::new(), None),
            Target::AtMost(most) => (format!("at most {most} {unit}"), ours.map(|it| it <= most)),
            Target::AtMostShare(share) => {
                (format!("at most {share:.3}"), ratio.map(|it| it <= share))
            }
            Target::AtLeastShare(share) => {
                (format!("at least {share}"), ratio.map(|it| it >= share))
            }
        };
        let cell = |figure: Option<f64>| match figure {
            Some(figure) => format!("{figure:.1} {unit}"),
            None => "-".to_owned(),
        };
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
        let met = match met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        format!("| {name} | {} | {} | {ratio} | {wanted} | {met} |", cell(ours), cell(other))
    }
}

fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_its_target_was_met() {
        let row = |target, sides| Row { name: "x".to_owned(), unit: "s", target, sides }.in_words();
        for (target, ours, expected) in [
            (Target::AtMost(3.0), 2.0, "| x | 2.0 s | 10.0 s | 0.200 | at most 3 s | yes |"),
            (Target::AtMost(1.0), 2.0, "| x | 2.0 s | 10.0 s | 0.200 | at most 1 s | NO |"),
            (Target::AtMostShare(0.1), 2.0, "| x | 2.0 s | 10.0 s | 0.200 | at most 0.100 | NO |"),
            (Target::AtLeastShare(0.9), 9.5, "| x | 9.5 s | 10.0 s | 0.950 | at least 0.9 | yes |"),
            (Target::None, 2.0, "| x | 2.0 s | 10.0 s | 0.200 |  |  |"),
        ] {
            assert_eq!(row(target, [vec![ours], vec![30.0, 10.0, 1.0]]), expected);
        }
        let nothing = row(Target::AtMost(3.0), [vec![], vec![]]);
        assert_eq!(nothing, "| x | - | - | - | at most 3 s |  |");
    }
}
