// SPDX-License-Identifier: Apache-2.0
//! Pages for those who watch over the process: does it live, is it ready, what has it counted.

use http::{HeaderValue, StatusCode};

use serde_json::json;

use crate::call::Call;
use crate::conductors::is_alive;
use crate::handler;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, Route, UNVERSIONED};
use ironic_wire::WireError;

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/healthz", "Tell whether the process lives", handler!(healthz))
        .since(UNVERSIONED)
        .access(Access::Public),
    Route::get("/readyz", "Tell whether requests can be served", handler!(readyz))
        .since(UNVERSIONED)
        .access(Access::Public),
    Route::get("/metrics", "Show measurements in Prometheus format", handler!(metrics))
        .since(UNVERSIONED)
        .access(Access::Metrics),
];

async fn healthz(_call: Call) -> Result<Reply, Refusal> {
    Ok(Reply::ok(br#"{"status":"alive"}"#.to_vec()))
}

/// Ready means that the database answers and that some conductor will carry out what is asked.
async fn readyz(call: Call) -> Result<Reply, Refusal> {
    let (now, patience) = (call.now(), call.app.config.conductor_timeout);
    let answer = call.app.store.read(|reader| reader.conductors()).await;
    let missing = match answer {
        Ok(conductors) if conductors.iter().any(|info| is_alive(info, now, patience)) => None,
        Ok(_) => Some("no conductor has registered or given a sign of life lately"),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            Some("the database does not answer")
        }
    };
    Ok(match missing {
        None => Reply::ok(br#"{"status":"ready"}"#.to_vec()),
        Some(what) => {
            let body = json!({"status": "not ready", "missing": what});
            Reply::json(StatusCode::SERVICE_UNAVAILABLE, body.to_string().into_bytes())
        }
    })
}

async fn metrics(call: Call) -> Result<Reply, Refusal> {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match call.app.metrics.render() {
        Ok(text) => Ok(Reply::with_type(
            StatusCode::OK,
            HeaderValue::from_static(OPENMETRICS),
            text.into_bytes(),
        )),
        Err(_) => Err(WireError::internal(call.request_id.as_str()).into()),
    }
}
