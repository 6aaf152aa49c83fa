// SPDX-License-Identifier: Apache-2.0
//! Health checks and the metrics endpoint.

use http::{HeaderValue, StatusCode};
use ironic_wire::WireError;
use serde_json::json;

use super::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess, UNVERSIONED};
use crate::handler;
use crate::ironic::conductors::is_alive;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/healthz", "Check whether the process runs", handler!(healthz))
        .since(UNVERSIONED)
        .access(RouteAccess::Public)
        .any_host(),
    ApiRoute::get("/readyz", "Check whether requests can be served", handler!(readyz))
        .since(UNVERSIONED)
        .access(RouteAccess::Public)
        .any_host(),
    ApiRoute::get("/metrics", "Show metrics in Prometheus format", handler!(metrics))
        .since(UNVERSIONED)
        .access(RouteAccess::Metrics)
        .any_host(),
];

async fn healthz(_request: ApiRequest) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(br#"{"status":"alive"}"#.to_vec()))
}

/// Ready means that the database accepts writes, the data directory has free space, and a conductor is
/// alive. Certificates that expire soon are warnings. The write is tested at most once a second, because
/// the request needs no credentials.
async fn readyz(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let missing = match request.app.storage.check().await {
        Err(problem) => Some(problem.describe()),
        Ok(()) => missing_conductor(&request).await,
    };
    Ok(match missing {
        None => {
            let mut body = json!({"status": "ready"});
            let warnings = request.app.warnings();
            if !warnings.is_empty() {
                body["warnings"] = json!(warnings);
            }
            ApiResponse::ok(body.to_string().into_bytes())
        }
        Some(what) => {
            let body = json!({"status": "not ready", "missing": what});
            ApiResponse::json(StatusCode::SERVICE_UNAVAILABLE, body.to_string().into_bytes())
        }
    })
}

/// Why there is no conductor; `None` if there is one.
async fn missing_conductor(request: &ApiRequest) -> Option<&'static str> {
    let (now, timeout) = (request.now(), request.app.config.conductor_timeout);
    match request.app.store.read(|reader| reader.conductors()).await {
        Ok(conductors) if conductors.iter().any(|info| is_alive(info, now, timeout)) => None,
        Ok(_) => Some("no conductor is registered and alive"),
        Err(error) => {
            tracing::warn!(%error, "readiness check failed");
            Some("the database does not respond")
        }
    }
}

/// Content type of metrics.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

async fn metrics(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    match request.app.metrics.render() {
        Ok(text) => Ok(ApiResponse::with_type(
            StatusCode::OK,
            HeaderValue::from_static(OPENMETRICS),
            text.into_bytes(),
        )),
        Err(_) => Err(WireError::internal(request.request_id.as_str()).into()),
    }
}
