// SPDX-License-Identifier: Apache-2.0
//! What Ferrite knows about a node and Ironic's API has no place for: its BMC, its measurements, and
//! keeping it warm.

use conductor::SensorStatus;
use http::Method;
use serde_json::{Value, json};

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::nodes::reach::{self, node_id};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

const BMC: &str = "/v1/ferrite/nodes/{node}/bmc";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        BMC,
        "Say what a node's BMC is, what it can do and whether it answers",
        handler!(bmc),
    )
    .since(UNVERSIONED),
    Route::new(
        Method::POST,
        BMC,
        "Ask a node's BMC again what it is and what it can do",
        handler!(probe_bmc),
    )
    .since(UNVERSIONED),
    Route::new(
        Method::POST,
        "/v1/ferrite/nodes/{node}/warm",
        "Boot a machine that nobody uses into the agent, for the next job to use",
        handler!(warm),
    )
    .since(UNVERSIONED),
    Route::get("/v1/ferrite/nodes/{node}/sensors", "Read a node's measurements", handler!(sensors))
        .since(UNVERSIONED),
];

async fn bmc(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let node = reach::node(&call).await?;
    let power = node.power_request.as_ref().and_then(|request| request.retry.as_ref());
    let work = node.work.as_ref().and_then(|work| work.retry.as_ref());
    let retry = power.or(work).map(|retry| {
        json!({
            "since": retry.since.to_string(),
            "tries": retry.tries,
            "next_at": retry.at.to_string(),
            "why": retry.why,
        })
    });
    let body = json!({
        "capabilities": node.driver_internal_info.get("bmc"),
        "silent": node.driver_internal_info.get("bmc_silent"),
        "retry": retry,
        "fault": node.fault.map(|fault| fault.as_str()),
    });
    Ok(Reply::ok(body.to_string().into_bytes()))
}

async fn probe_bmc(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    reach::to_the_end(async move { conductor.probe(id, &actor).await }).await?;
    bmc(call).await
}

async fn warm(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    reach::to_the_end(async move { conductor.warm(id, &actor).await }).await?;
    Ok(Reply::accepted())
}

async fn sensors(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let sensors = call.app.conductor.sensors(id).await?;
    let rows: Vec<Value> = sensors
        .iter()
        .map(|sensor| {
            let health = match sensor.status {
                SensorStatus::Enabled(health) => Some(health.as_str()),
                SensorStatus::Absent => None,
            };
            json!({
                "name": sensor.name,
                "kind": sensor.kind.as_str(),
                "reading": sensor.reading,
                "unit": sensor.unit,
                "present": health.is_some(),
                "health": health,
            })
        })
        .collect();
    Ok(Reply::ok(json!({"sensors": rows}).to_string().into_bytes()))
}
