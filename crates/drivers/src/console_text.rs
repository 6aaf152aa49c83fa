// SPDX-License-Identifier: Apache-2.0
//! Console output as text for the timeline: lines without terminal control sequences, in batches, with
//! an hourly limit per machine.
//!
//! Contains only what the machine prints. User input appears only if the machine echoes it, and
//! password prompts do not echo. Tokens and passwords that the machine prints are masked in whole
//! lines, before long lines are split.

use std::time::Duration;

use node_model::NodeId;
use tokio::time::Instant;

use crate::console_secrets::{MaskState, mask_line_part};

/// A batch of console text for the timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleText {
    /// The node.
    pub node: NodeId,
    /// The BMC's address.
    pub address: String,
    /// The lines, with line feeds between them.
    pub text: String,
}

/// The lines of one console that are not in the timeline yet.
#[derive(Debug)]
pub struct ConsoleTranscript {
    splitter: ConsoleLineSplitter,
    lines: Vec<String>,
    bytes: usize,
    budget: HourlyByteBudget,
    /// Number of lines dropped since the last recorded one.
    dropped_lines: u64,
    last_byte: Option<Instant>,
}

/// Token bucket: the number of bytes that may still be recorded.
#[derive(Debug)]
struct HourlyByteBudget {
    per_hour: usize,
    remaining: f64,
    updated_at: Option<Instant>,
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
struct ConsoleLineSplitter {
    line: String,
    state: EscapeState,
    /// The first bytes of an incomplete UTF-8 character.
    partial_char: Vec<u8>,
    /// The cursor is at the beginning of the line; the next character replaces the line.
    overwrites_line: bool,
    /// Masking state after the parts of this line that were already emitted.
    mask_state: MaskState,
}

/// Position in a terminal control sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    Escape,
    /// One more byte belongs to the sequence.
    EscapeIntermediate,
    /// `ESC [` up to a letter.
    Csi,
    /// `ESC ]` and similar, up to BEL or `ESC \`.
    ControlString,
    ControlStringEscape,
}

/// How long lines wait so that they are recorded together.
pub(crate) const MIN_BATCH_INTERVAL: Duration = Duration::from_secs(2);
/// The interval doubles while output continues, up to this value: each batch is a row in the database.
pub(crate) const MAX_BATCH_INTERVAL: Duration = Duration::from_secs(60);
/// Time without output after which the interval is reset to its minimum.
pub(crate) const QUIET_AFTER: Duration = Duration::from_secs(5 * 60);
/// Bytes that are recorded at once, without waiting for the interval.
pub(crate) const BATCH_BYTES: usize = 4 << 10;
/// Time without output after which an unfinished line counts as complete: a prompt.
const PROMPT_AFTER: Duration = Duration::from_secs(10);
/// Limit of bytes that wait to be recorded; further lines are dropped.
const MAX_PENDING_BYTES: usize = 4 * BATCH_BYTES;
/// Limit of bytes per line in the timeline; the rest becomes another line.
const MAX_LINE_BYTES: usize = 1 << 10;
/// Limit of bytes buffered until the end of a line, so that secrets are masked as a whole: more than
/// the longest kernel command line.
const MAX_BUFFERED_LINE: usize = 8 << 10;
const HOUR: f64 = 3600.0;

impl ConsoleTranscript {
    /// A transcript of at most `per_hour` bytes per hour.
    pub fn new(per_hour: usize) -> Self {
        Self {
            splitter: ConsoleLineSplitter::default(),
            lines: Vec::new(),
            bytes: 0,
            budget: HourlyByteBudget { per_hour, remaining: per_hour as f64, updated_at: None },
            dropped_lines: 0,
            last_byte: None,
        }
    }

    /// Appends output of the machine.
    pub fn append(&mut self, bytes: &[u8], now: Instant) {
        self.last_byte = Some(now);
        self.budget.refill(now);
        let mut lines = Vec::new();
        self.splitter.split(bytes, &mut lines);
        for line in lines {
            self.add_line(line);
        }
    }

    /// Whether there is text to record.
    pub fn has_pending(&self) -> bool {
        !self.lines.is_empty() || !self.splitter.line.trim().is_empty()
    }

    /// Whether there is enough text for a batch.
    pub fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// Removes and returns the text to record; `None` if there is none.
    pub fn take_due(&mut self, now: Instant) -> Option<String> {
        self.budget.refill(now);
        if self.last_byte.is_none_or(|last| now.duration_since(last) >= PROMPT_AFTER) {
            self.end_line();
        }
        self.take_lines()
    }

    /// Removes and returns all remaining text, including an unfinished line.
    pub fn finish(&mut self) -> Option<String> {
        self.end_line();
        self.take_lines()
    }

    fn take_lines(&mut self) -> Option<String> {
        self.bytes = 0;
        let lines = std::mem::take(&mut self.lines);
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn end_line(&mut self) {
        let mut lines = Vec::new();
        self.splitter.flush_partial_line(&mut lines);
        for line in lines {
            self.add_line(line);
        }
    }

    fn add_line(&mut self, line: String) {
        let size = line.len() + 1;
        if self.dropped_lines > 0 && self.budget.has_recovered() && self.bytes < BATCH_BYTES {
            let count = std::mem::take(&mut self.dropped_lines);
            self.push_line(format!("[{count} lines omitted]"));
        }
        let fits = self.dropped_lines == 0 && self.bytes + size <= MAX_PENDING_BYTES;
        if fits && self.budget.spend(size) {
            self.push_line(line);
            return;
        }
        if self.dropped_lines == 0 {
            let limit_kib = self.budget.per_hour >> 10;
            self.push_line(format!(
                "[further lines omitted: this console prints more than {limit_kib} KiB per hour, or \
                 faster than it can be recorded]"
            ));
        }
        self.dropped_lines += 1;
    }

    fn push_line(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push(line);
    }
}

impl HourlyByteBudget {
    fn refill(&mut self, now: Instant) {
        let limit = self.per_hour as f64;
        let elapsed =
            self.updated_at.replace(now).map_or(Duration::ZERO, |at| now.duration_since(at));
        self.remaining = (self.remaining + limit * elapsed.as_secs_f64() / HOUR).min(limit);
    }

    fn spend(&mut self, bytes: usize) -> bool {
        let bytes = bytes as f64;
        let is_sufficient = self.remaining >= bytes;
        if is_sufficient {
            self.remaining -= bytes;
        }
        is_sufficient
    }

    /// Whether recording may resume: not for a line or two.
    fn has_recovered(&self) -> bool {
        self.remaining >= self.per_hour as f64 / 8.0
    }
}

impl ConsoleLineSplitter {
    fn split(&mut self, bytes: &[u8], lines: &mut Vec<String>) {
        for byte in bytes {
            self.push_byte(*byte, lines);
        }
    }

    fn push_byte(&mut self, byte: u8, lines: &mut Vec<String>) {
        self.state = match (self.state, byte) {
            (EscapeState::ControlString | EscapeState::ControlStringEscape, 0x07) => {
                EscapeState::Text
            }
            (EscapeState::ControlString, 0x1b) => EscapeState::ControlStringEscape,
            (EscapeState::ControlStringEscape, b'\\') => EscapeState::Text,
            (EscapeState::ControlString | EscapeState::ControlStringEscape, _) => {
                EscapeState::ControlString
            }
            // A new sequence aborts an unfinished one.
            (_, 0x1b) => EscapeState::Escape,
            (EscapeState::Escape, b'[') => EscapeState::Csi,
            (EscapeState::Escape, b']' | b'P' | b'X' | b'^' | b'_') => EscapeState::ControlString,
            (EscapeState::Escape, b' '..=b'/') => EscapeState::EscapeIntermediate,
            (EscapeState::Escape | EscapeState::EscapeIntermediate, _) => EscapeState::Text,
            (EscapeState::Csi, b'@'..=b'~') => {
                // Cursor movement or an erased screen starts a new line.
                if matches!(byte, b'H' | b'f' | b'J' | b'A' | b'B' | b'd' | b'E' | b'F') {
                    self.end_line(lines);
                }
                EscapeState::Text
            }
            (EscapeState::Csi, _) => EscapeState::Csi,
            (EscapeState::Text, _) => {
                self.push_text_byte(byte, lines);
                EscapeState::Text
            }
        };
    }

    fn push_text_byte(&mut self, byte: u8, lines: &mut Vec<String>) {
        if byte >= 0x80 {
            return self.push_utf8_byte(byte, lines);
        }
        if !std::mem::take(&mut self.partial_char).is_empty() {
            self.push_char('\u{fffd}', lines);
        }
        match byte {
            b'\n' | 0x0b | 0x0c => self.end_line(lines),
            b'\r' => self.overwrites_line = true,
            0x08 => {
                self.line.pop();
            }
            b'\t' | b' '..=b'~' => self.push_char(char::from(byte), lines),
            _ => {}
        }
    }

    fn push_utf8_byte(&mut self, byte: u8, lines: &mut Vec<String>) {
        self.partial_char.push(byte);
        match std::str::from_utf8(&self.partial_char) {
            Ok(text) => {
                let decoded = text.chars().next().filter(|letter| !letter.is_control());
                self.partial_char.clear();
                if let Some(letter) = decoded {
                    self.push_char(letter, lines);
                }
            }
            // The character is incomplete.
            Err(error) if error.error_len().is_none() => {}
            Err(_) => {
                self.partial_char.clear();
                self.push_char('\u{fffd}', lines);
            }
        }
    }

    fn push_char(&mut self, character: char, lines: &mut Vec<String>) {
        if std::mem::take(&mut self.overwrites_line) {
            // Progress displays overwrite the line; only the last version is kept.
            self.line.clear();
        }
        if self.line.len() + character.len_utf8() > MAX_BUFFERED_LINE {
            // Split between two words if possible.
            let blank = self.line.rfind(' ').map_or(self.line.len(), |blank| blank + 1);
            let next = self.line.split_off(blank);
            self.flush_partial_line(lines);
            self.line = next;
        }
        self.line.push(character);
    }

    /// Emits the complete line.
    fn end_line(&mut self, lines: &mut Vec<String>) {
        self.emit_line(true, lines);
    }

    /// Emits the part of the line that was received so far.
    fn flush_partial_line(&mut self, lines: &mut Vec<String>) {
        self.emit_line(false, lines);
    }

    fn emit_line(&mut self, is_end: bool, lines: &mut Vec<String>) {
        self.overwrites_line = false;
        let line = std::mem::take(&mut self.line);
        let (masked, mask_state) = mask_line_part(&line, self.mask_state, is_end);
        self.mask_state = mask_state;
        let mut rest = masked.trim_end();
        // Lines without visible characters are dropped.
        while !rest.trim_start().is_empty() {
            let mut end = rest.len().min(MAX_LINE_BYTES);
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
