// SPDX-License-Identifier: Apache-2.0
//! Figures of all rounds compared with a peer, as a table.

use crate::print;

/// The target of a figure.
#[derive(Clone, Copy)]
pub(crate) enum FigureTarget {
    /// No target.
    None,
    /// At most this value.
    AtMost(f64),
    /// At most this share of the peer's figure.
    AtMostShare(f64),
    /// At least this share of the peer's figure.
    AtLeastShare(f64),
}

/// A row of the table: our figures and those of the peer, one per round.
pub(crate) struct RoundsRow {
    name: String,
    unit: &'static str,
    target: FigureTarget,
    sides: [Vec<f64>; 2],
}

/// All rows, in order of insertion.
#[derive(Default)]
pub(crate) struct RoundsSummary {
    rows: Vec<RoundsRow>,
}

impl RoundsSummary {
    /// Adds a figure to column 0 (ours) or 1 (peer) and prints it at once.
    pub(crate) fn add(
        &mut self,
        column: usize,
        name: &str,
        figure: f64,
        unit: &'static str,
        target: FigureTarget,
    ) {
        let side = ["ours", "other"].get(column).copied().unwrap_or_default();
        print::line(&format!("[{side}] {name}: {figure:.2} {unit}"));
        if !self.rows.iter().any(|row| row.name == name) {
            let name = name.to_owned();
            self.rows.push(RoundsRow { name, unit, target, sides: Default::default() });
        }
        let row = self.rows.iter_mut().find(|row| row.name == name);
        if let Some(side) = row.and_then(|row| row.sides.get_mut(column)) {
            side.push(figure);
        }
    }

    /// Prints the medians of both columns.
    pub(crate) fn print(&self, ours: &str, other: &str) {
        print::line(&format!("| figure | {ours} | {other} | ratio | target | met |"));
        print::line("|---|---|---|---|---|---|");
        for row in &self.rows {
            print::line(&row.to_line());
        }
    }
}

impl RoundsRow {
    fn to_line(&self) -> String {
        let Self { name, unit, target, sides } = self;
        let [ours, other] = [median(&sides[0]), median(&sides[1])];
        let ratio = ours.zip(other).map(|(ours, other)| ours / other);
        let (wanted, met) = match *target {
            FigureTarget::None => (String::new(), None),
            FigureTarget::AtMost(most) => {
                (format!("at most {most} {unit}"), ours.map(|it| it <= most))
            }
            FigureTarget::AtMostShare(share) => {
                (format!("at most {share:.3}"), ratio.map(|it| it <= share))
            }
            FigureTarget::AtLeastShare(share) => {
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
    fn a_row_shows_whether_its_target_was_met() {
        let row =
            |target, sides| RoundsRow { name: "x".to_owned(), unit: "s", target, sides }.to_line();
        for (target, ours, expected) in [
            (FigureTarget::AtMost(3.0), 2.0, "| x | 2.0 s | 10.0 s | 0.200 | at most 3 s | yes |"),
            (FigureTarget::AtMost(1.0), 2.0, "| x | 2.0 s | 10.0 s | 0.200 | at most 1 s | NO |"),
            (
                FigureTarget::AtMostShare(0.1),
                2.0,
                "| x | 2.0 s | 10.0 s | 0.200 | at most 0.100 | NO |",
            ),
            (
                FigureTarget::AtLeastShare(0.9),
                9.5,
                "| x | 9.5 s | 10.0 s | 0.950 | at least 0.9 | yes |",
            ),
            (FigureTarget::None, 2.0, "| x | 2.0 s | 10.0 s | 0.200 |  |  |"),
        ] {
            assert_eq!(row(target, [vec![ours], vec![30.0, 10.0, 1.0]]), expected);
        }
        let nothing = row(FigureTarget::AtMost(3.0), [vec![], vec![]]);
        assert_eq!(nothing, "| x | - | - | - | at most 3 s |  |");
    }
}
