// SPDX-License-Identifier: Apache-2.0
//! A node's indicators (LEDs), named `indicator@component`.
//!
//! Documented for version 1.63; like Ironic, we serve them at every version.

use http::Method;
use ironic_wire::{
    JsonWriter, RenderContext, ResourceIdentity, WireError, indicator_state_body, parse_indicator,
};

use super::path_node::find_node_id;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

const ONE: &str = "/v1/nodes/{node}/management/indicators/{indicator}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        "/v1/nodes/{node}/management/indicators",
        "List a node's indicators",
        handler!(list),
    )
    .resource("baremetal:node:get_indicator_state"),
    ApiRoute::get(ONE, "Show the state of an indicator", handler!(show))
        .resource("baremetal:node:get_indicator_state"),
    ApiRoute::new(Method::PUT, ONE, "Set the state of an indicator", handler!(set))
        .resource("baremetal:node:set_indicator_state"),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let id = find_node_id(&request).await?;
    let indicators = request.app.conductor.indicators(id).await?;
    let context = RenderContext::new(request.version, &request.base_url);
    let mut body = JsonWriter::with_capacity(64 + 384 * indicators.len());
    body.begin_object();
    body.key("indicators");
    body.begin_array();
    for indicator in &indicators {
        let name = format!("{}@{}", indicator.name, indicator.component);
        // As in Ironic, links contain the node ident of the request.
        let path = format!("{}/management/indicators/{name}", request.param("node"));
        body.element();
        body.begin_object();
        body.key("name");
        body.string(&name);
        body.key("component");
        body.string(indicator.component.as_str());
        body.key("readonly");
        body.boolean(indicator.readonly);
        body.key("states");
        body.strings(indicator.states.iter().map(|state| state.as_str()));
        body.key("links");
        context.links(&mut body, "nodes", ResourceIdentity::Name(&path), "");
        body.end_object();
    }
    body.end_array();
    body.end_object();
    Ok(ApiResponse::ok(body.into_bytes()))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let (name, component) = split_indicator(request.param("indicator"))?;
    let state = request.app.conductor.indicator(id, component, name).await?;
    Ok(ApiResponse::ok(indicator_state_body(state.as_str())))
}

async fn set(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let state = parse_indicator(&request.body)?;
    let id = find_node_id(&request).await?;
    let (name, component) = split_indicator(request.param("indicator"))?;
    let (name, component) = (name.to_owned(), component.to_owned());
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move {
        conductor.set_indicator(id, &component, &name, &state, &actor).await
    })
    .await?;
    Ok(ApiResponse::no_content())
}

/// Splits `indicator@component`.
fn split_indicator(indicator: &str) -> Result<(&str, &str), WireError> {
    match indicator.split_once('@') {
        Some((name, component)) if !name.is_empty() && !component.is_empty() => {
            Ok((name, component))
        }
        Some(_) | None => Err(WireError::invalid_field(
            "indicator",
            "it must have the form indicator@component, as in the list",
        )),
    }
}
