// SPDX-License-Identifier: Apache-2.0
//! Progress of machines: redrawn lines on a terminal, one line per change elsewhere.

use std::collections::BTreeMap;

use crate::screen::{Screen, TextStyle, one_line};

/// Fits on any terminal.
const MAX_LINES: usize = 20;

/// One line per machine on standard error.
pub(crate) struct ProgressBoard {
    screen: Screen,
    is_live: bool,
    /// In the order in which the machines appeared.
    lines: Vec<ProgressLine>,
    indices: BTreeMap<String, usize>,
    drawn_lines: usize,
}

struct ProgressLine {
    label: String,
    style: TextStyle,
    text: String,
    /// Whether the machine has not reached its goal yet.
    is_in_progress: bool,
}

impl ProgressBoard {
    pub(crate) fn new(screen: Screen) -> Self {
        Self {
            screen,
            is_live: screen.is_stderr_terminal,
            lines: Vec::new(),
            indices: BTreeMap::new(),
            drawn_lines: 0,
        }
    }

    /// Updates the line of a machine.
    pub(crate) fn update(
        &mut self,
        label: &str,
        style: TextStyle,
        text: &str,
        is_in_progress: bool,
    ) {
        let text = one_line(text);
        let index = match self.indices.get(label) {
            Some(index) => *index,
            None => {
                let line = ProgressLine {
                    label: label.to_owned(),
                    style: TextStyle::Plain,
                    text: String::new(),
                    is_in_progress: true,
                };
                self.lines.push(line);
                self.indices.insert(label.to_owned(), self.lines.len() - 1);
                self.lines.len() - 1
            }
        };
        let line = &mut self.lines[index];
        let has_changed = line.text != text;
        // The final state is printed as the result.
        if has_changed && is_in_progress && !self.is_live {
            self.screen.note(&format!("{label}: {text}"));
        }
        (line.style, line.text, line.is_in_progress) = (style, text, is_in_progress);
    }

    /// Redraws the lines.
    pub(crate) fn draw(&mut self) {
        if !self.is_live || self.lines.is_empty() {
            return;
        }
        // Move the cursor to the first line, and disable wrapping of long lines.
        let up = if self.drawn_lines > 0 {
            format!("\x1b[{}A\x1b[J", self.drawn_lines)
        } else {
            String::new()
        };
        let mut text = format!("{up}\x1b[?7l");
        // Prefer machines that are in progress.
        let mut shown: Vec<&ProgressLine> = self.lines.iter().collect();
        if shown.len() > MAX_LINES {
            shown.sort_by_key(|line| !line.is_in_progress);
            shown.truncate(MAX_LINES);
        }
        let width = shown.iter().map(|line| line.label.chars().count()).max().unwrap_or_default();
        for line in &shown {
            let painted = self.screen.paint(line.style, &line.text.replace('\n', " "));
            text.push_str(&format!("{:<width$}  {painted}\n", line.label));
        }
        self.drawn_lines = shown.len();
        if self.lines.len() > MAX_LINES {
            let moving = self.lines.iter().filter(|line| line.is_in_progress).count();
            text.push_str(&format!("{} machines, {moving} in progress\n", self.lines.len()));
            self.drawn_lines += 1;
        }
        text.push_str("\x1b[?7h");
        self.screen.redraw(&text);
    }
}
