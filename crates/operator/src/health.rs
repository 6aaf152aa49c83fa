// SPDX-License-Identifier: Apache-2.0
//! Probes and metrics over HTTP: `/healthz`, `/readyz` and `/metrics`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use http::{Method, StatusCode};

use crate::http_server::{
    BufferedRequest, FullResponse, RequestHandler, method_not_allowed, text, with_type,
};
use crate::metrics::OperatorMetrics;

/// Content type of Prometheus's text format as the encoder writes it.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the process still waits for before it is ready. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct OperatorReadiness(Arc<Mutex<BTreeSet<String>>>);

/// Something that the process waits for. It remains if this is dropped.
#[derive(Debug)]
#[must_use = "the process is ready only after `open`"]
pub struct ReadinessGate {
    readiness: OperatorReadiness,
    name: String,
}

impl OperatorReadiness {
    /// Makes the process unready until the gate is opened, such as `webhooks` or `cache of Ironic`.
    pub fn gate(&self, name: impl Into<String>) -> ReadinessGate {
        let name = name.into();
        self.lock().insert(name.clone());
        ReadinessGate { readiness: self.clone(), name }
    }

    /// What the process waits for, sorted.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadinessGate {
    /// States that the process no longer waits for this.
    pub fn open(self) {
        self.readiness.lock().remove(&self.name);
    }
}

/// Serves `/healthz` and `/readyz`.
pub(crate) struct ProbeHandler(pub(crate) OperatorReadiness);

/// Serves `/metrics`.
pub(crate) struct MetricsHandler(pub(crate) OperatorMetrics);

impl RequestHandler for ProbeHandler {
    const MAX_BODY: usize = 1024;

    fn handle(self: Arc<Self>, request: BufferedRequest) -> BoxFuture<'static, FullResponse> {
        Box::pin(async move {
            if !is_read(&request) {
                return method_not_allowed("GET, HEAD");
            }
            match request.path.as_str() {
                "/healthz" => text(StatusCode::OK, "ok\n"),
                "/readyz" => readiness_response(&self.0.waiting_for()),
                _ => text(StatusCode::NOT_FOUND, "not found; use /healthz or /readyz\n"),
            }
        })
    }
}

impl RequestHandler for MetricsHandler {
    const MAX_BODY: usize = 1024;

    fn handle(self: Arc<Self>, request: BufferedRequest) -> BoxFuture<'static, FullResponse> {
        Box::pin(async move {
            if !is_read(&request) {
                return method_not_allowed("GET, HEAD");
            }
            if request.path != "/metrics" {
                return text(StatusCode::NOT_FOUND, "not found; use /metrics\n");
            }
            match self.0.render() {
                Ok(metrics) => with_type(StatusCode::OK, METRICS_TYPE, metrics),
                Err(_) => {
                    text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be encoded\n")
                }
            }
        })
    }
}

fn readiness_response(waiting_for: &[String]) -> FullResponse {
    if waiting_for.is_empty() {
        return text(StatusCode::OK, "ok\n");
    }
    let body = format!("waiting for {}\n", waiting_for.join(", "));
    text(StatusCode::SERVICE_UNAVAILABLE, body)
}

fn is_read(request: &BufferedRequest) -> bool {
    matches!(request.method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_ready_when_all_gates_are_open() {
        let readiness = OperatorReadiness::default();
        assert_eq!(readiness_response(&readiness.waiting_for()).status(), StatusCode::OK);
        let (webhooks, cache) = (readiness.gate("webhooks"), readiness.gate("cache"));
        assert_eq!(readiness.clone().waiting_for(), ["cache", "webhooks"]);
        let response = readiness_response(&readiness.waiting_for());
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        webhooks.open();
        drop(cache);
        assert_eq!(readiness.waiting_for(), ["cache"]);
    }
}
