// SPDX-License-Identifier: Apache-2.0
//! What the program tells about itself: logs on standard error, and counts for `/metrics`.

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
    let logging = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if section.json {
        logging.json().try_init()
    } else {
        logging.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init()
    };
    // Fails only if logging was started before, which `main` does not do.
    started.map_err(|error| anyhow::anyhow!("{error}"))
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
