// SPDX-License-Identifier: Apache-2.0
//! The version documents, and events that others tell us about.

use http::Method;
use ironic_wire::{Context, WireError, parse_object, root_body, v1_body};
use serde_json::Value;

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, Route};

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/", "Show the versions of the API", handler!(root)).access(Access::Public),
    Route::get("/v1", "Show where everything is", handler!(v1)).access(Access::Public),
    Route::new(Method::POST, "/v1/events", "Take note of events", handler!(events)).since(54),
];

async fn root(call: Call) -> Result<Reply, Refusal> {
    Ok(Reply::ok(root_body(&Context::new(call.version, &call.base_url))))
}

async fn v1(call: Call) -> Result<Reply, Refusal> {
    Ok(Reply::ok(v1_body(&Context::new(call.version, &call.base_url))))
}

/// Neutron tells us about ports it has bound. Like Ironic we check the events and do nothing more
/// with them: nothing waits for them.
async fn events(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let mut members = parse_object(&call.body, "events")?;
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
    tracing::debug!(request_id = %call.request_id, count = events.len(), "external events");
    Ok(Reply::no_content())
}

fn check_event(event: &Value) -> Result<(), &'static str> {
    const KINDS: [&str; 3] = ["network.bind_port", "network.unbind_port", "network.delete_port"];
    let Value::Object(members) = event else { return Err("it must be an object") };
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    if !text("event").is_some_and(|kind| KINDS.contains(&kind)) {
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
        let wrong = |value: &Value| match value.as_str() {
            Some(text) => must_be_uuid && ironic_wire::as_uuid(text).is_none(),
            None => !value.is_null(),
        };
        if members.get(name).is_some_and(wrong) {
            return Err("device_id must be a UUID and binding:vnic_type a text");
        }
    }
    Ok(())
}
