// SPDX-License-Identifier: Apache-2.0
//! What the demonstration shows: a table that is drawn again and again on a terminal, and lines for
//! what changed anywhere else.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use super::rack::Row;

/// Where the rack is shown.
pub(super) struct Display {
    is_terminal: bool,
    /// How many lines the table has that is on the screen.
    drawn: usize,
    /// What was last said about each machine, where there is no table.
    said: BTreeMap<String, String>,
}

impl Display {
    pub(super) fn new() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal(), drawn: 0, said: BTreeMap::new() }
    }

    /// A line above or below the table.
    pub(super) fn say(&mut self, line: &str) {
        put(&format!("{line}\n"));
    }

    /// The rack as it is now.
    pub(super) fn show(&mut self, rows: &[Row], took: Duration) {
        if self.is_terminal {
            // Back to the first line of the table, and over it.
            let up = if self.drawn > 0 { format!("\x1b[{}A", self.drawn) } else { String::new() };
            let lines = rows.iter().map(|row| format!("{}\x1b[K\n", drawn(row)));
            put(&format!("{up}{}", lines.collect::<String>()));
            self.drawn = rows.len();
            return;
        }
        for row in rows {
            let state = row.state.clone();
            if self.said.get(&row.name) != Some(&state) {
                put(&format!("{:6.1} s  {}  {state}\n", took.as_secs_f64(), row.name));
                self.said.insert(row.name.clone(), state);
            }
        }
    }

    /// The table stays as it is, and what is said next comes below.
    pub(super) fn end(&mut self) {
        if self.drawn > 0 {
            put("\n");
        }
        self.drawn = 0;
    }
}

fn drawn(row: &Row) -> String {
    let bar: String = (0..row.of).map(|stage| if stage < row.done { '■' } else { '□' }).collect();
    let colour = match row.state.as_str() {
        "active" => "32",
        state if state.ends_with("failed") => "31",
        _ => "36",
    };
    format!(
        "  {:<11} {:<12} {bar}  \x1b[{colour}m{:<15}\x1b[0m {}",
        row.name, row.model, row.state, row.doing
    )
}

/// Whoever closed our output has seen enough, and the service goes on.
fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
