// SPDX-License-Identifier: Apache-2.0
//! Logs on standard error, and the metrics of conductor, clock and storage for `/metrics`.

use std::fmt::Debug;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use conductor::{Conductor, ConductorCounters};
use node_model::{JobCounts, JobQueue};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use store::{StorageMonitor, Store};
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

use crate::config::{LogSection, check_log_level};

/// Starts logging as configured. Fails if the filter contains an unknown level.
pub(crate) fn start(section: &LogSection) -> anyhow::Result<()> {
    check_log_level("log.level", &section.level)?;
    let filter = EnvFilter::try_new(&section.level)
        .with_context(|| format!("log.level {:?} is invalid", section.level))?;
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| PasswordMaskingWriter(std::io::stderr()));
    let started = if section.json {
        logging.json().try_init()
    } else {
        let logging = logging.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
        logging.fmt_fields(QuotedFields).try_init()
    };
    // Fails only if logging was already started.
    started.map_err(|error| anyhow::anyhow!("{error}"))
}

/// Formats the fields of a text log. Values with spaces are quoted, so that the end of each is clear.
struct QuotedFields;

impl<'writer> FormatFields<'writer> for QuotedFields {
    fn format_fields<R: RecordFields>(
        &self,
        writer: Writer<'writer>,
        fields: R,
    ) -> std::fmt::Result {
        let mut visitor = LogFieldVisitor { writer, is_first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct LogFieldVisitor<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    result: std::fmt::Result,
}

impl Visit for LogFieldVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let name = field.name().trim_start_matches("r#");
        // Where a record of the crate `log` comes from.
        if self.result.is_err() || name.starts_with("log.") {
            return;
        }
        let space = if std::mem::replace(&mut self.is_first, false) { "" } else { " " };
        let text = format!("{value:?}").replace('\x1b', "\\x1b");
        let is_quoted = text.starts_with('"') && text.ends_with('"');
        let needs_quotes = text.contains(char::is_whitespace) && !is_quoted;
        self.result = match name {
            "message" => write!(self.writer, "{space}{text}"),
            name if needs_quotes => write!(self.writer, "{space}{name}={text:?}"),
            name => write!(self.writer, "{space}{name}={text}"),
        };
    }
}

/// Masks passwords in URLs. Each write contains complete lines.
struct PasswordMaskingWriter<W>(W);

impl<W: Write> Write for PasswordMaskingWriter<W> {
    fn write(&mut self, lines: &[u8]) -> std::io::Result<usize> {
        match std::str::from_utf8(lines) {
            Ok(text) => self.0.write_all(node_model::mask_quoted_urls(text).as_bytes())?,
            Err(_) => self.0.write_all(lines)?,
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Collects the conductor's counters when metrics are requested.
#[derive(Debug)]
pub(crate) struct ConductorMetrics(pub(crate) Conductor);

/// Name, help text and field of a counter.
type CounterDefinition = (&'static str, &'static str, fn(&ConductorCounters) -> &AtomicU64);

const COUNTERS: &[CounterDefinition] = &[
    ("actions", "Actions on machines", |counters| &counters.actions),
    ("action_failures", "Failed actions", |counters| &counters.failures),
    ("power_polls", "Polls of power states", |counters| &counters.power_polls),
];

impl Collector for ConductorMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counters = self.0.counters();
        for (name, help, count) in COUNTERS {
            let counter = ConstCounter::new(count(counters).load(Ordering::Relaxed));
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            counter.encode(metric)?;
        }
        let running = counters.running.load(Ordering::Relaxed);
        let gauge = ConstGauge::new(i64::try_from(running).unwrap_or(i64::MAX));
        let metric = encoder.encode_descriptor(
            "nodes_in_work",
            "Nodes with a running action",
            None,
            MetricType::Gauge,
        )?;
        gauge.encode(metric)?;
        let mut metric = encoder.encode_descriptor(
            "jobs",
            "Jobs of limited queues that run or wait, of all processes",
            None,
            MetricType::Gauge,
        )?;
        for &queue in JobQueue::ALL {
            let JobCounts { running, queued } = counters.queue(queue).get();
            for (state, count) in [("running", running), ("queued", queued)] {
                let labels = [("queue", queue.as_str()), ("state", state)];
                let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
                gauge.encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Compares the clock of this host with the database server when metrics are requested.
pub(crate) struct ClockMetrics(pub(crate) Store);

impl std::fmt::Debug for ClockMetrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ClockMetrics").finish_non_exhaustive()
    }
}

impl Collector for ClockMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let status = self.0.clock_status();
        for (name, help, micros) in [
            (
                "clock_difference_seconds",
                "How far the clock of this host is ahead of the database server; negative if it is behind",
                status.ahead_micros,
            ),
            (
                "clock_correction_seconds",
                "What is still to be added to the time of the database because its clock was set",
                status.correction_micros,
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(seconds(micros)).encode(metric)?;
        }
        let metric = encoder.encode_descriptor(
            "clock_beyond_tolerance",
            "1 if the difference or the correction is greater than database.clock_tolerance",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(i64::from(status.beyond_tolerance)).encode(metric)
    }
}

/// Microseconds as seconds, with their sign.
fn seconds(micros: i64) -> f64 {
    Duration::from_micros(micros.unsigned_abs()).as_secs_f64().copysign(if micros < 0 {
        -1.0
    } else {
        1.0
    })
}

/// Reports the last test of the storage, and the free space, when metrics are requested.
pub(crate) struct StorageMetrics(pub(crate) Arc<StorageMonitor>);

impl std::fmt::Debug for StorageMetrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("StorageMetrics").finish_non_exhaustive()
    }
}

impl Collector for StorageMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let metric = encoder.encode_descriptor(
            "storage_writable",
            "0 if the database does not accept writes or a disk is full",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(i64::from(self.0.latest().is_none())).encode(metric)?;
        let Some(free) = self.0.free_bytes() else { return Ok(()) };
        let metric = encoder.encode_descriptor(
            "data_directory_free_bytes",
            "Free space on the disk of the data directory",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(i64::try_from(free).unwrap_or(i64::MAX)).encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Collects what is logged.
    #[derive(Clone, Default)]
    struct WrittenLog(Arc<Mutex<Vec<u8>>>);

    impl Write for WrittenLog {
        fn write(&mut self, lines: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(lines)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn values_with_spaces_are_quoted() {
        let buffer = WrittenLog::default();
        let writer = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .fmt_fields(QuotedFields)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let (node, text) = ("u03", "two words");
            tracing::info!(%node, action = %"check power", text, number = 7, "node task failed");
            tracing::warn!(error = %"no \"x\"", list = ?["a b", "c"], "{} words", 2);
            tracing::info!(log.line = 7, log.target = "x", "a record of log");
        });
        let written = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = written.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                r#"INFO node task failed node=u03 action="check power" text="two words" number=7"#,
                r#"WARN 2 words error="no \"x\"" list="[\"a b\", \"c\"]""#,
                "INFO a record of log",
            ]
        );
    }

    #[test]
    fn unknown_levels_are_refused() {
        let error = start(&LogSection { level: "infoo".to_owned(), json: false }).unwrap_err();
        let expected =
            "log.level: \"infoo\" is not a level; use off, error, warn, info, debug, trace";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn differences_keep_their_sign() {
        assert_eq!(
            [seconds(-1_500_000), seconds(250_000)].map(|time| time.to_string()),
            ["-1.5", "0.25"]
        );
    }

    #[test]
    fn masks_passwords_in_logs() {
        let mut written = Vec::new();
        let line = "{\"error\":\"no https://u:hunter2@h/i\",\"b\":\"c@d\"}\n";
        PasswordMaskingWriter(&mut written).write_all(line.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), line.replace("hunter2", "******"));
    }
}
