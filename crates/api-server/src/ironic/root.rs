// SPDX-License-Identifier: Apache-2.0
//! The version documents, and external network events.

use http::Method;
use ironic_wire::{RenderContext, WireError, parse_object, root_body, v1_body};
use serde_json::Value;

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess};

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/", "Show the versions of the API", handler!(root)).access(RouteAccess::Public),
    ApiRoute::get("/v1", "Show the version and links to all resources", handler!(v1))
        .access(RouteAccess::Public),
    ApiRoute::new(Method::POST, "/v1/events", "Receive external events", handler!(events))
        .rule("baremetal:events:post")
        .since(54),
];

async fn root(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(root_body(&RenderContext::new(request.version, &request.base_url))))
}

async fn v1(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(v1_body(&RenderContext::new(request.version, &request.base_url))))
}

/// Receives Neutron's events about bound ports. As in Ironic without Neutron, they are validated and
/// otherwise ignored.
async fn events(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let mut members = parse_object(&request.body, "events")?;
    let Some(Value::Array(events)) = members.remove("events") else {
        return Err(WireError::missing("events").into());
    };
    if let Some(name) = members.keys().next() {
        return Err(WireError::unexpected(&[name]).into());
    }
    if events.is_empty() {
        return Err(WireError::invalid_field("events", "there must be at least one").into());
    }
    for (index, event) in events.iter().enumerate() {
        check_event(event)
            .map_err(|problem| WireError::invalid_field(&format!("events/{index}"), problem))?;
    }
    tracing::debug!(request_id = %request.request_id, count = events.len(), "received external events");
    Ok(ApiResponse::no_content())
}

fn check_event(event: &Value) -> Result<(), &'static str> {
    const EVENTS: [&str; 3] = ["network.bind_port", "network.unbind_port", "network.delete_port"];
    let Value::Object(members) = event else { return Err("it must be an object") };
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    if !text("event").is_some_and(|name| EVENTS.contains(&name)) {
        return Err("event must be network.bind_port, network.unbind_port or network.delete_port");
    }
    if text("port_id").and_then(ironic_wire::as_uuid).is_none() {
        return Err("port_id must be a UUID");
    }
    if text("mac_address").and_then(|mac| mac.parse::<node_model::Mac>().ok()).is_none() {
        return Err("mac_address must be a MAC address");
    }
    if text("status").is_none() {
        return Err("status must be a text");
    }
    for (name, must_be_uuid) in [("device_id", true), ("binding:vnic_type", false)] {
        let is_invalid = |value: &Value| match value.as_str() {
            Some(text) => must_be_uuid && ironic_wire::as_uuid(text).is_none(),
            None => !value.is_null(),
        };
        if members.get(name).is_some_and(is_invalid) {
            return Err("device_id must be a UUID and binding:vnic_type a text");
        }
    }
    Ok(())
}
