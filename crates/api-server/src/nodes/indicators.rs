// SPDX-License-Identifier: Apache-2.0
//! A node's lights, named `light@component`.
//!
//! They are documented for 1.63, but Ironic serves them at every version, and so do we.

use http::Method;
use ironic_wire::{
    Context, Identity, JsonWriter, WireError, indicator_state_body, parse_indicator,
};

use super::reach::{node_id, to_the_end};
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const ONE: &str = "/v1/nodes/{node}/management/indicators/{indicator}";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        "/v1/nodes/{node}/management/indicators",
        "List a node's indicators",
        handler!(list),
    ),
    Route::get(ONE, "Show what an indicator shows", handler!(show)),
    Route::new(Method::PUT, ONE, "Make an indicator show something", handler!(set)),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let id = node_id(&call).await?;
    let indicators = call.app.conductor.indicators(id).await?;
    let context = Context::new(call.version, &call.base_url);
    let mut body = JsonWriter::with_capacity(64 + 384 * indicators.len());
    body.begin_object();
    body.key("indicators");
    body.begin_array();
    for indicator in &indicators {
        let name = format!("{}@{}", indicator.name, indicator.component);
        // The links name the node as the request did.
        let place = format!("{}/management/indicators/{name}", call.param("node"));
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
        context.links(&mut body, "nodes", Identity::Name(&place), "");
        body.end_object();
    }
    body.end_array();
    body.end_object();
    Ok(Reply::ok(body.into_bytes()))
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let (name, component) = parts(call.param("indicator"))?;
    let state = call.app.conductor.indicator(id, component, name).await?;
    Ok(Reply::ok(indicator_state_body(state.as_str())))
}

async fn set(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let state = parse_indicator(&call.body)?;
    let id = node_id(&call).await?;
    let (name, component) = parts(call.param("indicator"))?;
    let (name, component) = (name.to_owned(), component.to_owned());
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move { conductor.set_indicator(id, &component, &name, &state, &actor).await })
        .await?;
    Ok(Reply::no_content())
}

/// The name within the component, and the component.
fn parts(indicator: &str) -> Result<(&str, &str), WireError> {
    match indicator.split_once('@') {
        Some((name, component)) if !name.is_empty() && !component.is_empty() => {
            Ok((name, component))
        }
        Some(_) | None => Err(WireError::invalid_field(
            "indicator",
            "it must be named as the list does, light@component",
        )),
    }
}
