// SPDX-License-Identifier: Apache-2.0
//! BMC status, sensors and warm-up of a node.

use http::Method;
use node_model::SensorStatus;
use serde_json::{Value, json};

use crate::handler;
use crate::ironic::nodes::path_node::{find_node, find_node_id};
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED, run_to_completion};

const BMC: &str = "/v1/ferrite/nodes/{node}/bmc";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        BMC,
        "Show model, capabilities and reachability of a node's BMC",
        handler!(show_bmc),
    )
    .resource("ferrite:node:bmc:get")
    .since(UNVERSIONED),
    ApiRoute::new(
        Method::POST,
        BMC,
        "Probe a node's BMC for model and capabilities",
        handler!(probe_bmc),
    )
    .resource("ferrite:node:bmc:probe")
    .since(UNVERSIONED),
    ApiRoute::new(
        Method::POST,
        "/v1/ferrite/nodes/{node}/warm",
        "Boot an idle machine into the agent, ready for the next job",
        handler!(warm_up),
    )
    .resource("ferrite:node:warm_up")
    .since(UNVERSIONED),
    ApiRoute::get("/v1/ferrite/nodes/{node}/sensors", "Read a node's sensors", handler!(sensors))
        .resource("ferrite:node:sensors")
        .since(UNVERSIONED),
];

async fn show_bmc(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let node = find_node(&request).await?;
    let power = node.power_request.as_ref().and_then(|request| request.retry.as_ref());
    let work = node.work.as_ref().and_then(|work| work.retry.as_ref());
    let retry = power.or(work).map(|retry| {
        json!({
            "since": retry.since.to_string(),
            "attempts": retry.attempts,
            "next_at": retry.at.to_string(),
            "error": retry.error,
        })
    });
    let body = json!({
        "capabilities": node.driver_internal_info.get("bmc"),
        "unreachable": node.driver_internal_info.get("bmc_unreachable"),
        "retry": retry,
        "fault": node.fault.map(|fault| fault.as_str()),
    });
    Ok(ApiResponse::ok_value(&body))
}

async fn probe_bmc(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.probe(id, &actor).await }).await?;
    show_bmc(request).await
}

async fn warm_up(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.warm_up(id, &actor).await }).await?;
    Ok(ApiResponse::accepted())
}

async fn sensors(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let sensors = request.app.conductor.sensors(id).await?;
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
    Ok(ApiResponse::ok_value(&json!({"sensors": rows})))
}
