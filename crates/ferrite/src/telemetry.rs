// SPDX-License-Identifier: Apache-2.0
//! What the program tells about itself: logs on standard error, and counts for `/metrics`.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use conductor::{Conductor, Tally};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tracing_subscriber::EnvFilter;

use crate::config::LogSection;

/// Starts logging as configured.
pub(crate) fn start(section: &LogSection) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&section.level)
        .with_context(|| format!("log.level {:?} is not understood", section.level))?;
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Discreet(std::io::stderr()));
    let started = if section.json {
        logging.json().try_init()
    } else {
        logging.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init()
    };
    // Fails only if logging was started before, which `main` does not do.
    started.map_err(|error| anyhow::anyhow!("{error}"))
}

/// Leaves the passwords of URLs out of what is written through it, a line or more at a time.
struct Discreet<W>(W);

impl<W: Write> Write for Discreet<W> {
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

/// The conductor's counts, read when somebody asks.
#[derive(Debug)]
pub(crate) struct ConductorCounts(pub(crate) Conductor);

/// A count: its name, what it counts, and where it is.
type Count = (&'static str, &'static str, fn(&Tally) -> &AtomicU64);

const COUNTERS: &[Count] = &[
    ("actions", "Actions carried out on machines", |tally| &tally.actions),
    ("action_failures", "Actions that failed", |tally| &tally.failures),
    ("power_looks", "Looks at the power of a machine", |tally| &tally.power_looks),
];

impl Collector for ConductorCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let tally = self.0.tally();
        for (name, help, count) in COUNTERS {
            let counter = ConstCounter::new(count(tally).load(Ordering::Relaxed));
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            counter.encode(metric)?;
        }
        let running = tally.running.load(Ordering::Relaxed);
        let gauge = ConstGauge::new(i64::try_from(running).unwrap_or(i64::MAX));
        let metric = encoder.encode_descriptor(
            "nodes_in_work",
            "Nodes being worked on right now",
            None,
            MetricType::Gauge,
        )?;
        gauge.encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_have_no_passwords() {
        let mut written = Vec::new();
        let line = "{\"error\":\"no https://u:hunter2@h/i\",\"b\":\"c@d\"}\n";
        Discreet(&mut written).write_all(line.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), line.replace("hunter2", "******"));
    }
}
