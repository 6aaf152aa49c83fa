// SPDX-License-Identifier: Apache-2.0
//! Creates a node together with its ports.

use reqwest::Method;
use serde_json::{Value, json};

use crate::api::Api;
use crate::error::IronicClientError;
use crate::query::{QueryString, percent_encode};

/// Creates a node and a port for each MAC address. Returns false if a node of that name exists; its
/// missing ports are created nevertheless, because an earlier call may have been interrupted.
pub async fn create_node_with_ports<'a>(
    api: &Api,
    node: &Value,
    macs: impl Iterator<Item = &'a str>,
) -> Result<bool, IronicClientError> {
    let (node_uuid, existing_ports) = match api.send(Method::POST, "/v1/nodes", Some(node)).await {
        Ok(created) => (created["uuid"].clone(), None),
        Err(error) if error.status() == Some(409) => {
            let name = node["name"].as_str().unwrap_or_default();
            let existing = api.get(&format!("/v1/nodes/{}", percent_encode(name))).await?;
            let uuid = existing["uuid"].as_str().unwrap_or_default();
            let query = QueryString::new().with("node", uuid).with("fields", "address");
            let ports = api.list("/v1/ports", "ports", &query).await?;
            (existing["uuid"].clone(), Some(ports))
        }
        Err(error) => return Err(error),
    };
    for mac in macs {
        let has_mac = |port: &Value| {
            port["address"].as_str().is_some_and(|address| address.eq_ignore_ascii_case(mac))
        };
        if existing_ports.iter().flatten().any(has_mac) {
            continue;
        }
        let body = json!({"node_uuid": node_uuid, "address": mac});
        api.send(Method::POST, "/v1/ports", Some(&body)).await?;
    }
    Ok(existing_ports.is_none())
}

#[cfg(test)]
mod tests {
    use crate::test_server::TestServer;

    use super::*;

    #[tokio::test]
    async fn creates_missing_ports_of_an_existing_node() {
        let server = TestServer::start(|request, _| {
            let path = request.line.split('?').next().unwrap_or_default();
            let (status, body) = match path {
                "POST /v1/nodes" => (409, json!({"error_message": "it exists"})),
                "GET /v1/nodes/n" => (200, json!({"uuid": "u"})),
                "GET /v1/ports" => (200, json!({"ports": [{"address": "0a"}]})),
                _ => (201, json!({})),
            };
            (status, "", body.to_string())
        });
        let node = json!({"name": "n", "driver": "redfish"});
        let created = create_node_with_ports(&server.api(), &node, ["0A", "0B"].into_iter()).await;
        assert!(!created.unwrap());
        let requests = server.requests();
        let ports: Vec<_> =
            requests.iter().filter(|request| request.line == "POST /v1/ports").collect();
        let [port] = *ports else { panic!("{requests:?}") };
        let body: Value = serde_json::from_str(&port.body).unwrap();
        assert_eq!(body, json!({"node_uuid": "u", "address": "0B"}));
    }
}
