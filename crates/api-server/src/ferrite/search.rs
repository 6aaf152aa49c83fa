// SPDX-License-Identifier: Apache-2.0
//! Finds nodes by MAC address or serial number.

use ironic_wire::WireError;
use node_model::Node;
use serde_json::{Value, json};
use store::NodeMatch;

use super::visible_nodes::allows_node;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

/// Maximum number of results of each kind.
const MAX_RESULTS: u32 = 10;
/// Length of a search text in characters. Shorter texts match too much.
const MIN_TEXT: usize = 3;
const MAX_TEXT: usize = 100;

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/search",
    "Find nodes by MAC address or serial number",
    handler!(search),
)
.list("baremetal:node:list_all", "baremetal:node:list")
.since(UNVERSIONED)
.query(&["text"])];

async fn search(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["text"])?;
    let Some(text) = request.query_value("text").map(|text| text.trim().to_lowercase()) else {
        return Err(WireError::missing("text").into());
    };
    if !(MIN_TEXT..=MAX_TEXT).contains(&text.chars().count()) {
        let problem = format!("it must have {MIN_TEXT} to {MAX_TEXT} characters");
        return Err(WireError::invalid_field("text", &problem).into());
    }
    let project = request.access.list_project(None)?;
    let access = request.access.clone();
    let found = request
        .app
        .store
        .scan(move |reader| {
            let mut rows = Vec::new();
            let project = project.as_deref();
            for (id, matched) in reader.nodes_by_mac_or_serial(&text, project, MAX_RESULTS)? {
                let node: Option<Node> = reader.get(id)?;
                let rule = match matched {
                    NodeMatch::Mac(_) => "baremetal:port:get",
                    NodeMatch::Serial(_) => "baremetal:node:inventory:get",
                };
                if !node.as_ref().is_some_and(|node| allows_node(&access, rule, node)) {
                    continue;
                }
                let (field, value) = match matched {
                    NodeMatch::Mac(mac) => ("MAC address", mac.to_string()),
                    NodeMatch::Serial(serial) => ("serial number", serial),
                };
                rows.push(json!({
                    "node_uuid": id.to_string(),
                    "node_name": node.and_then(|node| node.name),
                    "field": field,
                    "value": value,
                }));
            }
            Ok::<_, ApiError>(rows)
        })
        .await?;
    Ok(ApiResponse::ok_value(&json!({"matches": Value::from(found)})))
}
