// SPDX-License-Identifier: Apache-2.0
//! Output of the demonstration: a table that is redrawn on a terminal, one line per state change
//! elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use super::rack::RackRow;

/// Standard output.
pub(super) struct Display {
    is_terminal: bool,
    /// Number of lines of the table that is on the screen.
    table_lines: usize,
    /// The last printed state of each machine, if standard output is not a terminal.
    printed_states: BTreeMap<String, String>,
}

impl Display {
    pub(super) fn new() -> Self {
        Self {
            is_terminal: std::io::stdout().is_terminal(),
            table_lines: 0,
            printed_states: BTreeMap::new(),
        }
    }

    /// Prints a line outside the table.
    pub(super) fn print(&mut self, line: &str) {
        write_stdout(&format!("{line}\n"));
    }

    /// Redraws the table, or prints the machines whose state changed.
    pub(super) fn show(&mut self, rows: &[RackRow], elapsed: Duration) {
        if self.is_terminal {
            // Move the cursor to the first line of the table and overwrite it.
            let up = match self.table_lines {
                0 => String::new(),
                lines => format!("\x1b[{lines}A"),
            };
            let lines = rows.iter().map(|row| format!("{}\x1b[K\n", format_row(row)));
            write_stdout(&format!("{up}{}", lines.collect::<String>()));
            self.table_lines = rows.len();
            return;
        }
        for row in rows {
            if self.printed_states.get(&row.name) != Some(&row.state) {
                let seconds = elapsed.as_secs_f64();
                write_stdout(&format!("{seconds:6.1} s  {}  {}\n", row.name, row.state));
                self.printed_states.insert(row.name.clone(), row.state.clone());
            }
        }
    }

    /// Keeps the table on the screen; further output appears below it.
    pub(super) fn finish_table(&mut self) {
        if self.table_lines > 0 {
            write_stdout("\n");
        }
        self.table_lines = 0;
    }
}

fn format_row(row: &RackRow) -> String {
    let bar: String = (0..row.total_stages)
        .map(|stage| if stage < row.completed_stages { '■' } else { '□' })
        .collect();
    let colour = match row.state.as_str() {
        "active" => "32",
        state if state.ends_with("failed") => "31",
        _ => "36",
    };
    format!(
        "  {:<11} {:<12} {bar}  \x1b[{colour}m{:<15}\x1b[0m {}",
        row.name, row.model, row.state, row.detail
    )
}

/// Ignores errors: the server keeps running when the reader of standard output is gone.
fn write_stdout(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
