// SPDX-License-Identifier: Apache-2.0
//! Limits for clients that have not authenticated: connections, requests, bodies and parsing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use connection_limits::{ConnectionLimits, ConnectionTable, client_prefix};
use ironic_wire::WireError;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;

use super::byte_budget::{BudgetShare, ByteBudget};
use super::metrics::Metrics;
use super::parser_threads::ParserThreads;
use super::request_rate::RequestRates;
use crate::config::ApiConfig;

/// Bodies of unauthenticated requests that are longer are parsed on threads of their own.
const LARGE_BODY: usize = 64 * 1024;
/// Memory for the bodies of all authenticated requests, in bytes. One address uses at most half of it.
const AUTHENTICATED_BODY_BUDGET: usize = 512 * 1024 * 1024;
/// One in this many connections is reserved for known clients.
const RESERVED_PART: usize = 8;

/// The limits and what is in use.
#[derive(Debug)]
pub(crate) struct ClientLimits {
    pub(crate) connections: Arc<ConnectionTable>,
    bodies: Arc<ByteBudget>,
    /// For unauthenticated bodies of known clients, so that others cannot delay heartbeats.
    bodies_of_known_clients: Arc<ByteBudget>,
    authenticated_bodies: Arc<ByteBudget>,
    rates: RequestRates,
    parsers: ParserThreads,
    rejected_rates: Counter,
    rejected_bodies: Counter,
}

impl ClientLimits {
    pub(crate) fn new(config: &ApiConfig, metrics: &Metrics) -> Self {
        let connections = ConnectionTable::new(ConnectionLimits {
            total: config.max_connections,
            reserved: config.max_connections / RESERVED_PART,
            per_client: config.max_connections_per_address,
        });
        let unauthenticated =
            || ByteBudget::new(config.unauthenticated_body_budget, config.body_limits.inspection);
        let (bodies, bodies_of_known_clients) = (unauthenticated(), unauthenticated());
        let authenticated_bodies =
            ByteBudget::new(AUTHENTICATED_BODY_BUDGET, config.body_limits.provision);
        let (rejected_rates, rejected_bodies) = (Counter::default(), Counter::default());
        metrics.register(|registry| {
            registry.register(
                "http_requests_over_rate",
                "Unauthenticated requests rejected because their client sent too many",
                rejected_rates.clone(),
            );
            registry.register(
                "http_bodies_over_budget",
                "Requests rejected because the budget for bodies was used up",
                rejected_bodies.clone(),
            );
            let bodies = [&bodies, &bodies_of_known_clients].map(Arc::clone);
            let collector = LimitsCollector { connections: connections.clone(), bodies };
            registry.register_collector(Box::new(collector));
        });
        Self {
            connections,
            bodies,
            bodies_of_known_clients,
            authenticated_bodies,
            rates: RequestRates::new(config.unauthenticated_requests_per_second),
            parsers: ParserThreads::start(),
            rejected_rates,
            rejected_bodies,
        }
    }

    /// Fails with 503 if the client sent too many unauthenticated requests. 503 and not 429, because the
    /// ramdisk agent repeats inspection data only after errors of the server.
    pub(crate) fn check_rate(&self, address: IpAddr) -> Result<(), WireError> {
        if address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST {
            return Ok(());
        }
        let now = Instant::now();
        let is_known = self.connections.is_known(address, now);
        if self.rates.take(client_prefix(address), is_known, now) {
            return Ok(());
        }
        self.rejected_rates.inc();
        Err(WireError::unavailable("Too many requests from this address; try again soon."))
    }

    /// A share of a budget for the body of a request.
    pub(crate) fn body_share(&self, address: IpAddr, is_authenticated: bool) -> BudgetShare {
        let budget = if is_authenticated {
            &self.authenticated_bodies
        } else if self.connections.is_known(address, Instant::now()) {
            &self.bodies_of_known_clients
        } else {
            &self.bodies
        };
        budget.share(client_prefix(address))
    }

    /// The error of a body that does not fit into the budget.
    pub(crate) fn body_rejected(&self) -> WireError {
        self.rejected_bodies.inc();
        WireError::unavailable("Too many large requests are being received; try again soon.")
    }

    /// Parses a body of an unauthenticated request, on another thread if it is large: it would delay the
    /// other requests of an asynchronous thread.
    pub(crate) async fn parse<T: Send + 'static>(
        &self,
        body_length: usize,
        parse: impl FnOnce() -> Result<T, WireError> + Send + 'static,
    ) -> Result<T, WireError> {
        if body_length <= LARGE_BODY {
            return parse();
        }
        let failed = || WireError::unavailable("The body could not be parsed now; try again soon.");
        self.parsers.run(parse).await.ok_or_else(failed)?
    }
}

/// Shows what is in use.
#[derive(Debug)]
struct LimitsCollector {
    connections: Arc<ConnectionTable>,
    bodies: [Arc<ByteBudget>; 2],
}

impl Collector for LimitsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let gauges = [
            ("http_connections", "Open connections of the API", self.connections.open()),
            (
                "http_unauthenticated_body_bytes",
                "Memory used by bodies of unauthenticated requests",
                self.bodies.iter().map(|budget| budget.used()).sum(),
            ),
        ];
        for (name, help, value) in gauges {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)?;
        }
        let counters = [
            (
                "http_connections_closed",
                "Waiting connections closed because a limit was reached",
                self.connections.closed_for_others(),
            ),
            (
                "http_connections_refused",
                "Connections refused because a limit was reached",
                self.connections.refused(),
            ),
        ];
        for (name, help, value) in counters {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)?;
        }
        Ok(())
    }
}
