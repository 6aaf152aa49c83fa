// SPDX-License-Identifier: Apache-2.0
//! Logging to the machine's consoles and to a bounded buffer that the server can fetch.
//!
//! A ramdisk has no log service, so the program has its own subscriber, which writes one line per event
//! and keeps the newest lines. Registered secrets are masked.

mod bundle;
mod console;
mod stream;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use error_chain::error_chain;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

pub use bundle::{collect, collect_base64};
pub use console::Consoles;
pub use stream::stream_to_server;

/// The maximum size of the buffered lines in bytes.
const MAX_BUFFER_SIZE: usize = 2 << 20;
/// Shorter secrets are not masked, because they could match other text.
const MIN_SECRET_LENGTH: usize = 8;

static LOG_BUFFER: Mutex<LogBuffer> = Mutex::new(LogBuffer::new());

struct LogBuffer {
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of the next line, counted from the program's start.
    next: u64,
    secrets: Vec<String>,
}

impl LogBuffer {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, next: 0, secrets: Vec::new() }
    }

    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.next += 1;
        self.lines.push_back(line);
        while self.bytes > MAX_BUFFER_SIZE {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }

    fn lines_since(&self, number: u64, max_lines: usize, max_bytes: usize) -> (Vec<String>, u64) {
        let oldest = self.next - self.lines.len() as u64;
        let skipped = usize::try_from(number.saturating_sub(oldest)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let fits = |line: &&String| {
            let first = bytes == 0;
            bytes += line.len();
            first || bytes <= max_bytes
        };
        let lines: Vec<_> =
            self.lines.iter().skip(skipped).take(max_lines).take_while(fits).cloned().collect();
        let next = number.max(oldest) + lines.len() as u64;
        (lines, next)
    }
}

/// Starts logging, to the consoles or else to standard error.
pub fn start(consoles: Option<Consoles>, debug: bool) {
    let max_level = if debug { Level::DEBUG } else { Level::INFO };
    let logger = Logger { consoles: consoles.map(Mutex::new), max_level, spans: AtomicU64::new(1) };
    // Tests call this several times per process; the first call wins.
    let _ = tracing::subscriber::set_global_default(logger);
}

/// Registers a secret, which is masked from now on.
pub fn register_secret(secret: &str) {
    let mut buffer = log_buffer();
    if secret.len() >= MIN_SECRET_LENGTH && !buffer.secrets.iter().any(|known| known == secret) {
        buffer.secrets.push(secret.to_owned());
    }
}

/// Returns the text with all registered secrets masked.
#[must_use]
pub fn mask_secrets(text: &str) -> String {
    mask(&log_buffer().secrets, text.to_owned())
}

/// Returns all buffered lines.
#[must_use]
pub fn buffered_lines() -> String {
    let buffer = log_buffer();
    let mut text = String::with_capacity(buffer.bytes);
    buffer.lines.iter().for_each(|line| text.push_str(line));
    text
}

/// Returns the buffered lines from a line number on, at most `max_lines` and, except for a single
/// longer line, `max_bytes`, and the number of the next line.
#[must_use]
pub fn lines_since(number: u64, max_lines: usize, max_bytes: usize) -> (Vec<String>, u64) {
    log_buffer().lines_since(number, max_lines, max_bytes)
}

struct Logger {
    consoles: Option<Mutex<Consoles>>,
    max_level: Level,
    spans: AtomicU64,
}

impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries log too much below warnings.
        let target = metadata.target();
        let ours = ["agent", "machine_inventory", "disk_steps", "ferrite_agent"]
            .iter()
            .any(|name| target.starts_with(name));
        let bound = if ours { self.max_level } else { Level::WARN };
        metadata.is_event() && *metadata.level() <= bound
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText::default();
        event.record(&mut text);
        let level = event.metadata().level();
        let mut buffer = log_buffer();
        let text = mask(&buffer.secrets, text.message + &text.fields);
        let line = format!("{} {level:>5} {text}\n", uptime());
        match &self.consoles {
            Some(consoles) => {
                consoles.lock().unwrap_or_else(PoisonError::into_inner).write(line.as_bytes());
            }
            None => {
                let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            }
        }
        buffer.push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The text of an event: its message, then its fields.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let _ = write!(self.fields, " {}={}", field.name(), error_chain(value));
    }
}

/// Returns the time since boot in the format of kernel messages.
fn uptime() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    format!("[{:5}.{:06}]", now.tv_sec, now.tv_nsec / 1000)
}

fn mask(secrets: &[String], text: String) -> String {
    secrets.iter().fold(text, |text, secret| {
        if text.contains(secret.as_str()) { text.replace(secret.as_str(), "******") } else { text }
    })
}

fn log_buffer() -> MutexGuard<'static, LogBuffer> {
    LOG_BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_oldest_lines_and_keeps_numbering() {
        let mut buffer = LogBuffer::new();
        for number in 0..40_000 {
            buffer.push(format!("{number:>99}\n"));
        }
        assert!(buffer.bytes <= MAX_BUFFER_SIZE && buffer.bytes > MAX_BUFFER_SIZE - 200);
        assert_eq!(buffer.next, 40_000);
        assert_eq!(buffer.lines.len(), MAX_BUFFER_SIZE / 100);
        let (lines, next) = buffer.lines_since(39_990, 100, 350);
        assert_eq!((lines.len(), next), (3, 39_993));
        let (lines, next) = buffer.lines_since(39_999, 100, 1);
        assert_eq!((lines.len(), next), (1, 40_000), "a single line may exceed the limit");
        assert_eq!(buffer.lines_since(0, 1, 1000).1, 40_000 - (MAX_BUFFER_SIZE as u64) / 100 + 1);
        assert_eq!(buffer.lines_since(40_000, 9, 1000), (vec![], 40_000));
    }

    #[test]
    fn masks_secrets() {
        let secrets = vec!["a-long-secret".to_owned()];
        assert_eq!(mask(&secrets, "x=a-long-secret&y".to_owned()), "x=******&y");
    }
}
