// SPDX-License-Identifier: Apache-2.0
//! What a machine prints on its console, as text for its timeline: lines without what steers a
//! terminal, in pieces, and never more of them than one machine may have.
//!
//! Only what the machine prints gets here. What users type does not, unless the machine prints it
//! back; passwords are not printed back by anything that deserves one. Tokens and passwords that the
//! machine prints itself are masked, in whole lines before they are cut.

use std::time::Duration;

use node_model::NodeId;
use tokio::time::Instant;

use crate::console_secrets::{Before, without_secrets};

/// A piece of what a machine printed, for its timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleText {
    /// Which machine.
    pub node: NodeId,
    /// The address of its BMC.
    pub address: String,
    /// The lines, with line feeds between them.
    pub text: String,
}

/// The lines of one console that are not in the timeline yet.
#[derive(Debug)]
pub(crate) struct Transcript {
    cutter: Cutter,
    lines: Vec<String>,
    bytes: usize,
    allowance: Allowance,
    /// Lines that nobody gets to see, since one was told.
    left_out: u64,
    last_byte: Option<Instant>,
}

/// How many bytes may still be told, now and then more.
#[derive(Debug)]
struct Allowance {
    per_hour: usize,
    left: f64,
    at: Option<Instant>,
}

/// Makes lines of bytes.
#[derive(Debug, Default)]
struct Cutter {
    line: String,
    state: State,
    /// The first bytes of a letter of several.
    letter: Vec<u8>,
    /// The cursor is at the line's beginning: what comes next is written over it.
    is_back: bool,
    /// What is known of the parts of this line that are told already.
    before: Before,
}

/// Where in a control sequence the cutter is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    /// One more byte belongs to it.
    EscapeAndOne,
    /// `ESC [` up to a letter.
    Control,
    /// `ESC ]` and the like, up to a bell or `ESC \`.
    Words,
    WordsEscape,
}

/// How long lines wait for others, so that they are told together.
pub(crate) const TOLD_EVERY: Duration = Duration::from_secs(2);
/// As long as a machine goes on they wait twice as long each time, and at last this long: each time is
/// a row in the database.
pub(crate) const TOLD_AT_LEAST_EVERY: Duration = Duration::from_secs(60);
/// After how long without anything to tell it begins anew.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(5 * 60);
/// Bytes that are told at once, however short they have waited.
pub(crate) const PIECE: usize = 4 << 10;
/// After how long without a byte a line counts as whole that has no end: a prompt.
const PROMPT_AFTER: Duration = Duration::from_secs(10);
/// Bytes that wait for somebody to take them; what comes then is left out.
const MOST_WAITING: usize = 4 * PIECE;
/// Bytes of a line in the timeline; the rest is another line.
const LONGEST_LINE: usize = 1 << 10;
/// Bytes of a line that wait for its end, so that its secrets are seen whole: the longest command line
/// of a kernel and then some.
const MOST_OF_LINE: usize = 8 << 10;
const HOUR: f64 = 3600.0;

impl Transcript {
    /// One of which at most `per_hour` bytes are told in an hour.
    pub(crate) fn new(per_hour: usize) -> Self {
        Self {
            cutter: Cutter::default(),
            lines: Vec::new(),
            bytes: 0,
            allowance: Allowance { per_hour, left: per_hour as f64, at: None },
            left_out: 0,
            last_byte: None,
        }
    }

    /// Takes in what the machine printed.
    pub(crate) fn hear(&mut self, bytes: &[u8], now: Instant) {
        self.last_byte = Some(now);
        self.allowance.grow(now);
        let mut whole = Vec::new();
        self.cutter.cut(bytes, &mut whole);
        for line in whole {
            self.take_in(line);
        }
    }

    /// Whether something waits to be told.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.lines.is_empty() || !self.cutter.line.trim().is_empty()
    }

    /// Whether so much waits that it should be told at once.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= PIECE
    }

    /// What is to be told by now; none if nothing is.
    pub(crate) fn tell(&mut self, now: Instant) -> Option<String> {
        self.allowance.grow(now);
        if self.last_byte.is_none_or(|last| now.duration_since(last) >= PROMPT_AFTER) {
            self.end_line();
        }
        self.told()
    }

    /// All that is left, for the end.
    pub(crate) fn finish(&mut self) -> Option<String> {
        self.end_line();
        self.told()
    }

    fn told(&mut self) -> Option<String> {
        self.bytes = 0;
        let lines = std::mem::take(&mut self.lines);
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn end_line(&mut self) {
        let mut lines = Vec::new();
        self.cutter.end_part(&mut lines);
        for line in lines {
            self.take_in(line);
        }
    }

    fn take_in(&mut self, line: String) {
        let size = line.len() + 1;
        if self.left_out > 0 && self.allowance.is_enough_again() && self.bytes < PIECE {
            let count = std::mem::take(&mut self.left_out);
            self.keep(format!("[{count} lines are left out here]"));
        }
        let fits = self.left_out == 0 && self.bytes + size <= MOST_WAITING;
        if fits && self.allowance.spend(size) {
            self.keep(line);
            return;
        }
        if self.left_out == 0 {
            let most = self.allowance.per_hour >> 10;
            self.keep(format!(
                "[lines are left out from here on: this console prints more than {most} KiB in an \
                 hour, or faster than it can be kept]"
            ));
        }
        self.left_out += 1;
    }

    fn keep(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push(line);
    }
}

impl Allowance {
    fn grow(&mut self, now: Instant) {
        let most = self.per_hour as f64;
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now.duration_since(at));
        self.left = (self.left + most * passed.as_secs_f64() / HOUR).min(most);
    }

    fn spend(&mut self, bytes: usize) -> bool {
        let bytes = bytes as f64;
        let is_there = self.left >= bytes;
        if is_there {
            self.left -= bytes;
        }
        is_there
    }

    /// Whether it is worth to begin again: not for a line or two.
    fn is_enough_again(&self) -> bool {
        self.left >= self.per_hour as f64 / 8.0
    }
}

impl Cutter {
    fn cut(&mut self, bytes: &[u8], lines: &mut Vec<String>) {
        for byte in bytes {
            self.take(*byte, lines);
        }
    }

    fn take(&mut self, byte: u8, lines: &mut Vec<String>) {
        self.state = match (self.state, byte) {
            (State::Words | State::WordsEscape, 0x07) => State::Text,
            (State::Words, 0x1b) => State::WordsEscape,
            (State::WordsEscape, b'\\') => State::Text,
            (State::Words | State::WordsEscape, _) => State::Words,
            // Whatever was not finished is given up for what begins.
            (_, 0x1b) => State::Escape,
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::Words,
            (State::Escape, b' '..=b'/') => State::EscapeAndOne,
            (State::Escape | State::EscapeAndOne, _) => State::Text,
            (State::Control, b'@'..=b'~') => {
                // The cursor goes elsewhere, or the screen is wiped: what follows is another line.
                if matches!(byte, b'H' | b'f' | b'J' | b'A' | b'B' | b'd' | b'E' | b'F') {
                    self.end_line(lines);
                }
                State::Text
            }
            (State::Control, _) => State::Control,
            (State::Text, _) => {
                self.print(byte, lines);
                State::Text
            }
        };
    }

    fn print(&mut self, byte: u8, lines: &mut Vec<String>) {
        if byte >= 0x80 {
            return self.part_of_letter(byte, lines);
        }
        if !std::mem::take(&mut self.letter).is_empty() {
            self.write('\u{fffd}', lines);
        }
        match byte {
            b'\n' | 0x0b | 0x0c => self.end_line(lines),
            b'\r' => self.is_back = true,
            0x08 => {
                self.line.pop();
            }
            b'\t' | b' '..=b'~' => self.write(char::from(byte), lines),
            _ => {}
        }
    }

    fn part_of_letter(&mut self, byte: u8, lines: &mut Vec<String>) {
        self.letter.push(byte);
        match std::str::from_utf8(&self.letter) {
            Ok(text) => {
                let letter = text.chars().next().filter(|letter| !letter.is_control());
                self.letter.clear();
                if let Some(letter) = letter {
                    self.write(letter, lines);
                }
            }
            // The rest is still to come.
            Err(error) if error.error_len().is_none() => {}
            Err(_) => {
                self.letter.clear();
                self.write('\u{fffd}', lines);
            }
        }
    }

    fn write(&mut self, letter: char, lines: &mut Vec<String>) {
        if std::mem::take(&mut self.is_back) {
            // What shows how far something is prints itself over and over: the last one counts.
            self.line.clear();
        }
        if self.line.len() + letter.len_utf8() > MOST_OF_LINE {
            // Between two words, if there are two.
            let blank = self.line.rfind(' ').map_or(self.line.len(), |blank| blank + 1);
            let next = self.line.split_off(blank);
            self.end_part(lines);
            self.line = next;
        }
        self.line.push(letter);
    }

    /// The line is whole.
    fn end_line(&mut self, lines: &mut Vec<String>) {
        self.tell(true, lines);
    }

    /// The line goes on, but what there is of it is told.
    fn end_part(&mut self, lines: &mut Vec<String>) {
        self.tell(false, lines);
    }

    fn tell(&mut self, is_end: bool, lines: &mut Vec<String>) {
        self.is_back = false;
        let line = std::mem::take(&mut self.line);
        let (shown, before) = without_secrets(&line, self.before, is_end);
        self.before = before;
        let mut rest = shown.trim_end();
        // Only if there is something to be seen in it.
        while !rest.trim_start().is_empty() {
            let mut end = rest.len().min(LONGEST_LINE);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let (line, next) = rest.split_at(end);
            lines.push(line.to_owned());
            rest = next;
        }
    }
}

#[cfg(test)]
mod tests;
