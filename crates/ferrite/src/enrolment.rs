// SPDX-License-Identifier: Apache-2.0
//! Simulated machines as nodes with ports of an Ironic API.

use anyhow::Context as _;
use fleet_sim::Enrolment;
use ironic_client::{Api, ApiError, Method, Target};
use serde_json::{Value, json};

/// The API at an address, which may have a name and a password in it; `option` says where the address
/// comes from.
pub(crate) fn api_at(url: &str, option: &str) -> anyhow::Result<Api> {
    let target = Target::at(url, None, None, option).context("the address of the API")?;
    Ok(Api::new(target)?)
}

/// Creates a node with its ports; `more` are further fields. Returns false if there is a node of that
/// name.
pub(crate) async fn create(api: &Api, node: &Enrolment, more: &Value) -> Result<bool, ApiError> {
    let mut body = json!({
        "name": node.name,
        "driver": node.driver,
        "driver_info": node.driver_info,
        "properties": node.properties,
        "resource_class": node.resource_class,
    });
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    let made = match api.send(Method::POST, "/v1/nodes", Some(&body)).await {
        Ok(made) => made,
        Err(error) if error.status() == Some(409) => return Ok(false),
        Err(error) => return Err(error),
    };
    for port in &node.ports {
        let body = json!({"node_uuid": made["uuid"], "address": port.address});
        api.send(Method::POST, "/v1/ports", Some(&body)).await?;
    }
    Ok(true)
}
