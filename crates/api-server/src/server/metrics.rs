// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics: the registry of the whole process, and the metrics of HTTP requests.
//!
//! Labels are routes, methods and status classes, so their number is bounded by the route table. No
//! metric has a node as label.

use std::fmt;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::routes::RouteEntry;

/// The metrics registry. Cheap to clone; all clones share it.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// An empty registry whose metric names start with `ferrite_`.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Registry::with_prefix("ferrite"))))
    }

    /// Lets another part of the process register metrics.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// All metrics in Prometheus text format.
    pub(crate) fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(16 * 1024);
        encode(&mut text, &self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Metrics of HTTP requests.
pub(crate) struct RequestMetrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    in_flight: Gauge<i64, AtomicI64>,
    /// Handles by route index, created on first use: recording a request needs no label lookup, and
    /// unused routes are not in the output.
    per_route: Vec<RouteHandles>,
}

#[derive(Default)]
struct RouteHandles {
    by_class: [OnceLock<Counter>; 5],
    duration: OnceLock<Histogram>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    class: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RouteLabels {
    method: String,
    route: String,
}

/// Decrements the number of requests in flight on drop.
pub(crate) struct RequestInFlight<'m>(&'m Gauge<i64, AtomicI64>);

impl RequestMetrics {
    /// Registers the metrics.
    pub(crate) fn register(metrics: &Metrics, routes: usize) -> Self {
        let requests = Family::<RequestLabels, Counter>::default();
        let durations = Family::<RouteLabels, Histogram>::new_with_constructor(|| {
            // Buckets in seconds, from a cached read to a slow body.
            Histogram::new([0.0001, 0.0005, 0.002, 0.01, 0.05, 0.25, 1.0, 5.0])
        });
        let in_flight = Gauge::<i64, AtomicI64>::default();
        metrics.register(|registry| {
            registry.register("http_requests", "Requests handled", requests.clone());
            registry.register(
                "http_request_duration_seconds",
                "Time from the head of a request to its response",
                durations.clone(),
            );
            registry.register("http_requests_in_flight", "Requests now served", in_flight.clone());
        });
        // The last entry is for requests that match no route.
        let per_route = (0..=routes).map(|_| RouteHandles::default()).collect();
        Self { requests, durations, in_flight, per_route }
    }

    /// Counts a request as in flight until the result is dropped.
    pub(crate) fn start_request(&self) -> RequestInFlight<'_> {
        self.in_flight.inc();
        RequestInFlight(&self.in_flight)
    }

    /// Records a completed request.
    pub(crate) fn record(&self, route: Option<&RouteEntry>, status: u16, duration: Duration) {
        const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        let handles = match route {
            Some(entry) => &self.per_route[entry.index],
            None => &self.per_route[self.per_route.len() - 1],
        };
        let labels = || match route {
            Some(RouteEntry { route, .. }) => {
                RouteLabels { method: route.method.to_string(), route: route.path.to_owned() }
            }
            None => RouteLabels { method: String::new(), route: "none".to_owned() },
        };
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        handles.by_class[class]
            .get_or_init(|| {
                let RouteLabels { method, route } = labels();
                let labels = RequestLabels { method, route, class: CLASSES[class] };
                self.requests.get_or_create(&labels).clone()
            })
            .inc();
        handles
            .duration
            .get_or_init(|| self.durations.get_or_create(&labels()).clone())
            .observe(duration.as_secs_f64());
    }
}

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
