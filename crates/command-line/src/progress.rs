// SPDX-License-Identifier: Apache-2.0
//! How machines get on: on a terminal a line each that is drawn again and again, elsewhere a line
//! whenever something changes.

use std::collections::BTreeMap;

use crate::screen::{Screen, Tone, one_line};

/// So many lines fit on any terminal.
const MOST_LINES: usize = 20;

/// A board with a line for every machine. It is for notes, not for results.
pub(crate) struct Board {
    screen: Screen,
    is_live: bool,
    /// What was last said of each, in the order they came.
    lines: Vec<Line>,
    places: BTreeMap<String, usize>,
    drawn: usize,
}

struct Line {
    label: String,
    tone: Tone,
    text: String,
    /// Whether more is to come.
    is_moving: bool,
}

impl Board {
    pub(crate) fn new(screen: Screen) -> Self {
        Self {
            screen,
            is_live: screen.notes_are_seen,
            lines: Vec::new(),
            places: BTreeMap::new(),
            drawn: 0,
        }
    }

    /// Something about a machine.
    pub(crate) fn tell(&mut self, label: &str, tone: Tone, text: &str, is_moving: bool) {
        let text = one_line(text);
        let place = match self.places.get(label) {
            Some(place) => *place,
            None => {
                let line = Line {
                    label: label.to_owned(),
                    tone: Tone::Plain,
                    text: String::new(),
                    is_moving: true,
                };
                self.lines.push(line);
                self.places.insert(label.to_owned(), self.lines.len() - 1);
                self.lines.len() - 1
            }
        };
        let line = &mut self.lines[place];
        let has_changed = line.text != text;
        // What a machine ends as is the result, and told as such.
        if has_changed && is_moving && !self.is_live {
            self.screen.note(&format!("{label}: {text}"));
        }
        (line.tone, line.text, line.is_moving) = (tone, text, is_moving);
    }

    /// Draws the lines over those of the last time.
    pub(crate) fn draw(&mut self) {
        if !self.is_live || self.lines.is_empty() {
            return;
        }
        // Back to the first line, and long lines end at the edge instead of becoming two.
        let up = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        let mut text = format!("{up}\x1b[?7l");
        // Those that move are what one looks at.
        let mut shown: Vec<&Line> = self.lines.iter().collect();
        if shown.len() > MOST_LINES {
            shown.sort_by_key(|line| !line.is_moving);
            shown.truncate(MOST_LINES);
        }
        let width = shown.iter().map(|line| line.label.chars().count()).max().unwrap_or_default();
        for line in &shown {
            let words = self.screen.paint(line.tone, &line.text.replace('\n', " "));
            text.push_str(&format!("{:<width$}  {words}\n", line.label));
        }
        self.drawn = shown.len();
        if self.lines.len() > MOST_LINES {
            let moving = self.lines.iter().filter(|line| line.is_moving).count();
            text.push_str(&format!("{} machines, {moving} on their way\n", self.lines.len()));
            self.drawn += 1;
        }
        text.push_str("\x1b[?7h");
        self.screen.redraw(&text);
    }
}
