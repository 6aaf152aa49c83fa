// SPDX-License-Identifier: Apache-2.0
//! The figures of all servers as a Markdown table.

use std::time::Duration;

use super::load::LoadMeasurement;
use crate::print;

/// All figures of a run, in order of measurement.
pub(crate) struct FigureTable {
    labels: Vec<&'static str>,
    rows: Vec<(String, Vec<Option<TableFigure>>)>,
}

/// One figure of one server.
#[derive(Clone)]
pub(crate) enum TableFigure {
    /// Requests or operations.
    Load(LoadMeasurement),
    /// A plain number with its unit.
    Plain(f64, &'static str),
}

impl FigureTable {
    pub(crate) fn new(labels: Vec<&'static str>) -> Self {
        Self { labels, rows: Vec::new() }
    }

    /// Adds a figure of the server in that column and prints it at once.
    pub(crate) fn add(&mut self, column: usize, name: &str, figure: TableFigure) {
        let label = self.labels.get(column).copied().unwrap_or_default();
        print::line(&format!("[{label}] {name}: {}", figure.progress_line()));
        let width = self.labels.len();
        let row = match self.rows.iter().position(|(other, _)| other == name) {
            Some(row) => row,
            None => {
                self.rows.push((name.to_owned(), vec![None; width]));
                self.rows.len() - 1
            }
        };
        if let Some(cell) = self.rows.get_mut(row).and_then(|(_, cells)| cells.get_mut(column)) {
            *cell = Some(figure);
        }
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        let mut head = vec!["operation".to_owned()];
        for label in &self.labels {
            head.extend([format!("{label} CPU"), format!("{label} p50"), format!("{label} p99")]);
        }
        if self.labels.len() == 2 {
            head.push("CPU ratio".to_owned());
        }
        print::line(&format!("| {} |", head.join(" | ")));
        print::line(&format!("|{}", "---|".repeat(head.len())));
        for (name, figures) in &self.rows {
            let mut cells = vec![name.clone()];
            for figure in figures {
                cells.extend(
                    figure.as_ref().map_or_else(|| ["-"; 3].map(str::to_owned), TableFigure::cells),
                );
            }
            if let [Some(ours), Some(theirs)] = figures.as_slice() {
                cells.push(ratio(ours, theirs));
            } else if self.labels.len() == 2 {
                cells.push("-".to_owned());
            }
            print::line(&format!("| {} |", cells.join(" | ")));
        }
    }
}

impl TableFigure {
    fn cost(&self) -> Option<f64> {
        match self {
            Self::Load(measured) => measured.server_each().map(|each| each.as_secs_f64()),
            Self::Plain(number, _) => Some(*number),
        }
    }

    fn cells(&self) -> [String; 3] {
        match self {
            Self::Load(measured) => {
                let mut cost = duration(measured.server_each());
                if measured.errors > 0 {
                    cost.push_str(&format!(" ({} errors)", measured.errors));
                }
                [cost, duration(measured.percentile(50)), duration(measured.percentile(99))]
            }
            Self::Plain(number, unit) => {
                [format!("{number:.2} {unit}"), String::new(), String::new()]
            }
        }
    }

    fn progress_line(&self) -> String {
        match self {
            Self::Load(measured) => {
                let [cost, half, most] = self.cells();
                let rate = measured.operations as f64 / measured.wall.as_secs_f64().max(1e-9);
                let mut text = format!(
                    "{} in {:.2} s, {rate:.0}/s, CPU {cost} each, p50 {half}, p99 {most}",
                    measured.operations,
                    measured.wall.as_secs_f64()
                );
                if let Some(error) = &measured.first_error {
                    text.push_str(&format!("; first error: {error}"));
                }
                text
            }
            Self::Plain(number, unit) => format!("{number:.2} {unit}"),
        }
    }
}

fn ratio(ours: &TableFigure, theirs: &TableFigure) -> String {
    match (ours.cost(), theirs.cost()) {
        (Some(ours), Some(theirs)) if ours > 0.0 => format!("{:.0}x", theirs / ours),
        _ => "-".to_owned(),
    }
}

fn duration(duration: Option<Duration>) -> String {
    match duration.map(|duration| duration.as_secs_f64() * 1e6) {
        None => "-".to_owned(),
        Some(micros) if micros < 1000.0 => format!("{micros:.1} us"),
        Some(micros) if micros < 1e6 => format!("{:.2} ms", micros / 1e3),
        Some(micros) => format!("{:.2} s", micros / 1e6),
    }
}
