// SPDX-License-Identifier: Apache-2.0
//! What the agent says: to every console of the machine, and into a bounded memory of its own that
//! the server can ask for.
//!
//! A ramdisk has no log service. So the program has its own subscriber, which writes one line per
//! event and keeps the newest lines. Secrets it was told about are masked wherever they turn up.

mod bundle;
mod console;
mod stream;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

pub use bundle::{collect, collect_base64};
pub use console::Consoles;
pub use stream::stream_home;

/// Bytes of lines that are kept.
const KEPT: usize = 2 << 20;
/// Secrets shorter than this are not masked: too much else looks like them.
const SHORTEST_SECRET: usize = 8;

static MEMORY: Mutex<Memory> = Mutex::new(Memory::new());

struct Memory {
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of the line after the newest, counted from the program's start.
    next: u64,
    secrets: Vec<String>,
}

impl Memory {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, next: 0, secrets: Vec::new() }
    }

    fn keep(&mut self, line: String) {
        self.bytes += line.len();
        self.next += 1;
        self.lines.push_back(line);
        while self.bytes > KEPT {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }

    fn since(&self, number: u64, most: usize, most_bytes: usize) -> (Vec<String>, u64) {
        let oldest = self.next - self.lines.len() as u64;
        let skipped = usize::try_from(number.saturating_sub(oldest)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let fits = |line: &&String| {
            let first = bytes == 0;
            bytes += line.len();
            first || bytes <= most_bytes
        };
        let lines: Vec<_> =
            self.lines.iter().skip(skipped).take(most).take_while(fits).cloned().collect();
        let next = number.max(oldest) + lines.len() as u64;
        (lines, next)
    }
}

/// Starts logging. Lines go to the consoles (if there are any) or to standard error.
pub fn start(consoles: Option<Consoles>, debug: bool) {
    let most_verbose = if debug { Level::DEBUG } else { Level::INFO };
    let logger =
        Logger { consoles: consoles.map(Mutex::new), most_verbose, spans: AtomicU64::new(1) };
    // Tests start it more than once in a process; the first stays.
    let _ = tracing::subscriber::set_global_default(logger);
}

/// From now on this text is masked in everything that is logged.
pub fn conceal(secret: &str) {
    let mut memory = memory();
    if secret.len() >= SHORTEST_SECRET && !memory.secrets.iter().any(|known| known == secret) {
        memory.secrets.push(secret.to_owned());
    }
}

/// A text with every secret masked.
#[must_use]
pub fn masked(text: &str) -> String {
    mask(&memory().secrets, text.to_owned())
}

/// All lines that are kept.
#[must_use]
pub fn lines() -> String {
    let memory = memory();
    let mut text = String::with_capacity(memory.bytes);
    memory.lines.iter().for_each(|line| text.push_str(line));
    text
}

/// The lines from this number on that are still kept, at most so many lines and (but for one line) so
/// many bytes, and the number to go on with.
#[must_use]
pub fn lines_since(number: u64, most: usize, most_bytes: usize) -> (Vec<String>, u64) {
    memory().since(number, most, most_bytes)
}

struct Logger {
    consoles: Option<Mutex<Consoles>>,
    most_verbose: Level,
    spans: AtomicU64,
}

impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The libraries underneath tell far too much below warnings.
        let target = metadata.target();
        let ours = ["agent", "machine_inventory", "disk_steps", "ferrite_agent"]
            .iter()
            .any(|name| target.starts_with(name));
        let bound = if ours { self.most_verbose } else { Level::WARN };
        metadata.is_event() && *metadata.level() <= bound
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let level = event.metadata().level();
        let mut memory = memory();
        let text = mask(&memory.secrets, words.message + &words.fields);
        let line = format!("{} {level:>5} {text}\n", uptime());
        match &self.consoles {
            Some(consoles) => {
                consoles.lock().unwrap_or_else(PoisonError::into_inner).write(line.as_bytes());
            }
            None => {
                let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            }
        }
        memory.keep(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// An event in words: its message, then its fields.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let _ = write!(self.fields, " {}={}", field.name(), causes(value));
    }
}

/// An error and everything that led to it, on one line.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors repeat their cause.
        if !text.contains(&next) {
            let _ = write!(text, ": {next}");
        }
        cause = error.source();
    }
    text
}

/// Seconds since the machine started, as the kernel's own messages have them.
fn uptime() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    format!("[{:5}.{:06}]", now.tv_sec, now.tv_nsec / 1000)
}

fn mask(secrets: &[String], text: String) -> String {
    secrets.iter().fold(text, |text, secret| {
        if text.contains(secret.as_str()) { text.replace(secret.as_str(), "******") } else { text }
    })
}

fn memory() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_lines_make_room_and_numbers_go_on() {
        let mut memory = Memory::new();
        for number in 0..40_000 {
            memory.keep(format!("{number:>99}\n"));
        }
        assert!(memory.bytes <= KEPT && memory.bytes > KEPT - 200);
        assert_eq!(memory.next, 40_000);
        assert_eq!(memory.lines.len(), KEPT / 100);
        let (lines, next) = memory.since(39_990, 100, 350);
        assert_eq!((lines.len(), next), (3, 39_993));
        let (lines, next) = memory.since(39_999, 100, 1);
        assert_eq!((lines.len(), next), (1, 40_000), "one line goes however long it is");
        assert_eq!(memory.since(0, 1, 1000).1, 40_000 - (KEPT as u64) / 100 + 1);
        assert_eq!(memory.since(40_000, 9, 1000), (vec![], 40_000));
    }

    #[test]
    fn secrets_are_masked() {
        let secrets = vec!["a-long-secret".to_owned()];
        assert_eq!(mask(&secrets, "x=a-long-secret&y".to_owned()), "x=******&y");
    }
}
